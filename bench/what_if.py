"""`what-if lose node` for an hour in a large cluster in memory: three plays and the answer."""

from __future__ import annotations

from bench import BenchFailed, Stopwatch
from bench._what_if_cluster import question
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.question import play

NODES = 5000
PODS = 150_000


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Ask about one node."""
    asked = question(nodes, pods, seed, (), 3600)
    with stopwatch:
        acts = read_acts(["lose", "node", "a1"], asked.cluster, beta_zone_labels_only=False)
        plays = play(asked._replace(acts=acts))
        answer = make_answer(plays, acts, asked.settings, source={}, moment={}, warnings=())
    if not answer.verdict.pods_evicted.future:
        raise BenchFailed("nobody was evicted")
    return {
        "endedSeconds": answer.horizon.ended_seconds,
        "podsEvicted": answer.verdict.pods_evicted.future,
        "workloads": len(answer.workloads),
    }
