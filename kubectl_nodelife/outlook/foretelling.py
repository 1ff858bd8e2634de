"""What the node lifecycle controller does next, played on a fork of the present.

Terms of an explanation and the rate of a zone say where a time comes from; whether they add up as
things go on depends on more than they name: nodes that are silent together stop their zone or wait
before this one, and those that wait today are served before it joins them. So the controller itself
is played, with the kubelets that are late silent on, and no other act. Their pods are played, too:
a pass that marks them lasts as long as its requests, and zones are judged at its end. The end of a
pass that lasts longer than is played is reckoned. Its states and taints are read to the nanosecond
and by the zone's key, which `sim/reading.py` does not keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from kubectl_nodelife.engine.actions import Action, SetNodeConditions, SetZoneState
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE, NO_EXECUTE, TRUE
from kubectl_nodelife.outlook import taint_turns
from kubectl_nodelife.outlook.eviction_forecast import Range
from kubectl_nodelife.sim.events import KubeletEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.present import Branch, join
from kubectl_nodelife.sim.timing import FAST

HORIZON_NS: Final = 900 * SECOND_NS
"""So far it is played: what has not come by then is held by something."""

_LIFECYCLE: Final = "node-lifecycle"
_KINDS: Final = ("Node", "Lease", "Pod")


def foretell(
    cache: Cache,
    settings: Settings,
    now_ns: int,
    zone_of: Callable[[Node], str],
    silent: Mapping[str, int],
    is_late: Callable[[Node], bool],
    after: Mapping[str, taint_turns.ZoneAfterLoss],
    next_pass_ns: int | None = None,
    falls_silent: Node | None = None,
) -> taint_turns.Foretold | None:
    """The play's answer; None where it cannot be played: objects that decide cannot be read.

    `zone_of`: a node's zone key. `silent`: how many nodes are, by zone key. `is_late`: whether a
    node's next sign of life should have come. `after`: the zones that have another state, by key,
    once the silent ones are lost. `next_pass_ns`: when the running controller begins its next pass,
    None: not known. `falls_silent`: a node that reports no more from now on, if it still does.
    """
    if cache.quarantine.unreadable or not settings.taint_mode:
        return None
    leases = [obj for obj in cache.all("Lease") if obj.namespace == NAMESPACE_NODE_LEASE]
    if not leases and settings.leases_count:
        return None
    nodes = cache.nodes.values()
    marked = (cache.pods_on(node.name) for node in nodes if node is falls_silent or is_late(node))
    lifecycle = Cache()
    lifecycle.fill([*nodes, *leases, *chain.from_iterable(marked)], now_ns)
    present = join(lifecycle, settings, now_ns, _KINDS, next_pass_ns=next_pass_ns)
    branch = present.begin(HORIZON_NS, controllers=(_LIFECYCLE,))
    ready = falls_silent.ready() if falls_silent is not None else None
    if falls_silent is not None and (ready is None or ready.status == TRUE):
        targets = Targets(nodes=(falls_silent.name,))
        stops = KubeletEvent(targets, heartbeats="stop")
        branch.add([ScenarioEvent(0, stops, FieldPath("the present", ""))])
    faster = branch.fork_under(FAST)
    branch.play()
    lost = [n for n in nodes if n.is_ready and (n is falls_silent or is_late(n))]
    asked = _Asked(
        *(silent, after, len(lost), sum(cache.count_on(node.name) for node in lost), zone_of),
        *(now_ns, 0 if next_pass_ns is not None else settings.node_monitor_period_ns),
    )
    foretold = _read(branch, asked)
    clients, comes = branch.world.clients, any(zone.states for zone in foretold.zones.values())
    if comes and clients is not None and clients.longest_wait_ns and not clients.pace.is_seen:
        faster.play()
        return foretold.as_early_as(_read(faster, asked))
    return foretold


class _Asked(NamedTuple):
    """`silent`, `after`: as of `foretell`. `lost`: how many nodes the next pass over silent ones
    finds lost, with so many `pods` on them. `spread_ns`: as of `Foretold`."""

    silent: Mapping[str, int]
    after: Mapping[str, taint_turns.ZoneAfterLoss]
    lost: int
    pods: int
    zone_of: Callable[[Node], str]
    now_ns: int
    spread_ns: int

    def state(self, state: str, rate: float, at_ns: int) -> taint_turns.ForetoldState:
        """One that is taken at that instant in the play."""
        low_ns = max(self.now_ns, at_ns - self.spread_ns)
        return taint_turns.ForetoldState(state, rate, low_ns, at_ns + self.spread_ns)


def _read(branch: Branch, asked: _Asked) -> taint_turns.Foretold:
    states: dict[str, list[taint_turns.ForetoldState]] = {}
    tainted_ns: dict[str, int] = {}
    taints: dict[str, list[int]] = {}
    until_ns, begins_ns = asked.now_ns + HORIZON_NS, None
    for at_ns, action in branch.timeline.entries:
        if isinstance(action, SetZoneState):  # of all zones, where none has a ready node any more
            step = asked.state(action.to, action.rate, at_ns)
            states.setdefault(action.zone, []).append(step)
        if begins_ns is None and isinstance(action, SetNodeConditions):
            begins_ns = at_ns
        kind, (_, name) = action.target
        if kind == "Node" and name not in tainted_ns and _adds_no_execute(action):
            tainted_ns[name] = at_ns
            node = branch.world.api.store.nodes[name]
            taints.setdefault(asked.zone_of(node), []).append(at_ns)
    pace = branch.world.clients.pace if branch.world.clients is not None else None
    takes_ns = pace.pass_ns(asked.lost, asked.pods) if pace is not None else 0
    if begins_ns is not None and begins_ns + takes_ns > until_ns:
        for key, zone in asked.after.items():
            step = asked.state(zone.state, zone.rate, begins_ns + takes_ns)
            states.setdefault(key, [step])
    before = {
        key: pace.tainted_in(takes_ns, zone.before, zone.lost)
        for key, zone in asked.after.items()
        if pace is not None
    }
    zones = {
        key: taint_turns.ForetoldZone(
            *(asked.silent.get(key, 0), tuple(states.get(key, ())), tuple(taints.get(key, ()))),
            *(Range(takes_ns, takes_ns), before.get(key, 0)),
        )
        for key in asked.silent.keys() | states.keys() | taints.keys()
    }
    return taint_turns.Foretold(until_ns, asked.spread_ns, zones, tainted_ns)


def _adds_no_execute(action: Action) -> bool:
    added = (detail for word, detail in action.records() if word == "AddTaint")
    return any(taint["effect"] == NO_EXECUTE for taint in added)
