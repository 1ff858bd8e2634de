"""`what-if --each node`: ten minutes after the loss of each of the nodes by itself, on all cores.

`futureMilliseconds`: the core time of one of them, the present and the baseline left out.
"""

from __future__ import annotations

import time

from bench import BenchFailed, Stopwatch
from bench._what_if_cluster import question
from kubectl_nodelife.commands.answering.what_if import play_all
from kubectl_nodelife.outlook.what_if.ranking import Ranker, act_on, ranked, targets_of

NODES = 5000
PODS = 150_000
_SAMPLE = 20


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Rank all nodes."""
    asked = question(nodes, pods, seed, (), 600)
    with stopwatch:
        targets, _ = targets_of("node", asked.cluster, beta_zone_labels_only=False)
        acts = {t.name: act_on((), t, asked.cluster, beta_zone_labels_only=False) for t in targets}
        ranker = Ranker(asked, acts)
        began = time.perf_counter()
        found, _ = play_all(ranker.outcome, list(acts), None)
        played_s = time.perf_counter() - began
        answer = ranked(found, targets, ())
    if answer["futures"] != len(acts):
        raise BenchFailed(f"{answer['futures']} of {len(acts)} were played")
    began_cpu = time.process_time()
    for name in list(acts)[:_SAMPLE]:
        ranker.outcome(name)
    sampled_s = (time.process_time() - began_cpu) / min(_SAMPLE, len(acts))
    return {
        "futures": answer["futures"],
        "harmless": answer["harmless"],
        "singlePoints": len(answer["single_points"]),
        "playedSeconds": round(played_s, 3),
        "futureMilliseconds": round(1000 * sampled_s, 3),
    }
