"""When a node gets its NoExecute taint, played on a fork of the present.

The terms of an explanation say where the time comes from; whether they add up as things go on
depends on more than they name: other nodes that are about to be lost stop the zone or wait before
this one, and those that wait today are served before it joins them. So the controller itself is
played, with this node's kubelet silent from now on where it still reports, and no other act.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE, NO_EXECUTE, TRUE
from kubectl_nodelife.sim.events import KubeletEvent, ScenarioEvent, Targets
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.present import Branch, join

HORIZON_NS: Final = 900 * SECOND_NS
"""So far it is played: what has not come by then is held by something."""

_LIFECYCLE: Final = "node-lifecycle"
_KINDS: Final = ("Node", "Lease")


class PlayedTaint(msgspec.Struct, frozen=True):
    """`after_ns`: from now until the taint; None: it does not come within `HORIZON_NS`."""

    after_ns: int | None


def played_taint(cache: Cache, settings: Settings, now_ns: int, node: Node) -> PlayedTaint | None:
    """The play's answer; None where it cannot be played: objects that decide cannot be read."""
    if cache.quarantine.unreadable or not settings.taint_mode:
        return None
    nodes_alone = Cache()
    leases = (obj for obj in cache.all("Lease") if _is_of_node(obj))
    nodes_alone.fill([*cache.nodes.values(), *leases], now_ns)
    if not any(nodes_alone.all("Lease")) and settings.leases_count:
        return None
    present = join(nodes_alone, settings, now_ns, _KINDS)
    branch = present.begin(HORIZON_NS, controllers=(_LIFECYCLE,))
    ready = node.ready()
    if ready is None or ready.status == TRUE:
        targets = Targets(nodes=(node.name,))
        silent = KubeletEvent(targets, heartbeats="stop")
        branch.add([ScenarioEvent(0, silent, FieldPath("the present", ""))])
    branch.play()
    return PlayedTaint(_first_taint(branch, node.name, now_ns))


def _first_taint(branch: Branch, node: str, now_ns: int) -> int | None:
    for at_ns, action in branch.timeline.entries:
        if action.target != ("Node", ("", node)):
            continue
        for word, detail in action.records():
            if word == "AddTaint" and detail["effect"] == NO_EXECUTE:
                return at_ns - now_ns
    return None


def _is_of_node(obj: object) -> bool:
    return isinstance(obj, Lease) and obj.namespace == NAMESPACE_NODE_LEASE
