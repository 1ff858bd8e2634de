"""What a rehearsal is given: the nodes, the counts, and where a run that is under way stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubectl_nodelife.controllers.upgrade.claims import PoolPlace
from kubectl_nodelife.controllers.upgrade.counts import CountedNode, NodeCounts
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.order import UpgradeCandidate
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.controllers.upgrade.windows import Window


class BegunNode(NamedTuple):
    """A node in flight: its state, and for how long it has been in it, ns."""

    name: str
    pool: str
    zone: str
    state: NodeState
    spent_ns: int


@dataclass(slots=True)
class RehearsedRun:
    """What is played. `nodes`: all nodes that count; `zone_of`: the zone key of each that counts
    for the lifecycle controller; `not_ready`: those that are not Ready. `now_ns`: the moment of the
    first claim. Of a run under way, `begun`: the nodes in flight, which are counted as available in
    `counts`; `place`: where the run is in the pool that comes first.
    """

    policy: UpgradePolicy
    candidates: Sequence[UpgradeCandidate]
    nodes: Sequence[CountedNode]
    counts: NodeCounts
    zone_of: Mapping[str, str] = field(default_factory=dict)
    not_ready: frozenset[str] = frozenset()
    zone_threshold: float = 0.55
    windows: Sequence[Window] = ()
    now_ns: int = 0
    begun: Sequence[BegunNode] = ()
    place: PoolPlace | None = None
