"""`what-if --each zone` for ten minutes, in one process."""

from __future__ import annotations

from bench import Stopwatch
from bench._what_if_cluster import question
from kubectl_nodelife.outlook.what_if.ranking import Ranker, act_on, ranked, targets_of

NODES = 1000
PODS = 20_000
_ZONES = 5


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Rank the zones."""
    asked = question(nodes, pods, seed, (), 600, _ZONES)
    with stopwatch:
        targets, _ = targets_of("zone", asked.cluster, beta_zone_labels_only=False)
        acts = {t.name: act_on((), t, asked.cluster, beta_zone_labels_only=False) for t in targets}
        ranker = Ranker(asked, acts)
        answer = ranked([ranker.outcome(name) for name in acts], targets, ())
    return {"futures": answer["futures"], "singlePoints": len(answer["single_points"])}
