"""What an audit says beforehand: what would go wrong in an outage that has not happened.

Which DaemonSets would loop; and how many nodes would be tainted although all of them are silent,
since zones are judged only when the pass that found them lost has written all it has to write
(docs/upstream/brake-comes-late.md). The pass is reckoned (`engine/pace.py`), and held against plays
in tests/pace, since a play of each cluster that is audited would take too long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, cast

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.pace import FASTER_QPS, FLAG, Pace, pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import zone_key
from kubectl_nodelife.kube.times import SECOND_NS, human_duration
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.outlook.daemonset.hot_loops import hot_loops_beforehand

_SHORT_NS: Final = 10 * SECOND_NS


def beforehand(cache: Cache, settings: Settings) -> Iterator[str]:
    """Sentences, one for each thing."""
    yield from _all_silent(cache, settings)
    sets = (cast(DaemonSet, each) for each in cache.all("DaemonSet"))
    yield from hot_loops_beforehand(sets, settings)


def tainted_in_first_pass(cache: Cache, settings: Settings, pace: Pace) -> tuple[int, int]:
    """(length of the pass in ns, nodes tainted in it) where all ready nodes fall silent at once."""
    beta_only = settings.profile.has("beta_zone_labels_only")
    ready = [node for node in cache.nodes.values() if node.is_ready]
    zones = Counter(zone_key(node.metadata.labels, beta_only=beta_only) for node in ready)
    pods = sum(cache.count_on(node.name) for node in ready)
    pass_ns = pace.pass_ns(len(ready), pods)
    rate = settings.node_eviction_rate
    return pass_ns, sum(pace.tainted_in(pass_ns, rate, nodes) for nodes in zones.values())


def _all_silent(cache: Cache, settings: Settings) -> Iterator[str]:
    pace = pace_of(settings)
    if pace is None or not settings.taint_manager:
        return
    pass_ns, tainted = tainted_in_first_pass(cache, settings, pace)
    if not tainted or pass_ns < _SHORT_NS:
        return
    are = "is" if tainted == 1 else "are"
    better = ""
    if pace.qps < FASTER_QPS:
        faster = pace.at(FASTER_QPS)
        _, fewer = tainted_in_first_pass(cache, settings, faster)
        better = f"; {FLAG} {faster.qps:g} makes it {fewer}"
    yield (
        f"if all nodes fall silent at once, about {counted(tainted, 'node')} {are} tainted before"
        f" the pass that finds them lost ends, after {human_duration(pass_ns)}: their pods are"
        f" deleted, although none should be while all zones are dark{better} ({pace.sentence})"
    )
