"""The moment of a dump: what most clocks in it agree on, and which clock is wrong.

A kubelet dates its own Lease and status. Upstream does not care what they say:
`tryUpdateNodeHealth` compares whether they moved, and measures with the controller's clock. Who
reads a dump has no clock, so that one kubelet whose clock is ahead would make all others look
silent. A sign that no other comes near, while the control plane's Leases or most other nodes agree
on an earlier moment, moves nothing. A Lease that is too old while kube-controller-manager renews
its own and left Ready True is either of a clock that is behind or of a manager that does not act:
one moment cannot tell, and its age is not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import human_duration
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.outlook.node import CLOCKS_APART_NS

_CONTROL_PLANE: Final = "kube-system"
_MANAGER: Final = "kube-controller-manager"
_LEASE_OF: Final = "the Lease {}"
_OF_MANAGER: Final = _LEASE_OF.format(_MANAGER)


class SignOfLife(NamedTuple):
    """When a node last gave a sign (ns since the epoch), and what it was."""

    time_ns: int
    source: str


class ClockSign(NamedTuple):
    """The newest sign of one clock: a node's, or (`node` "") that of a holder of a Lease in
    kube-system. `says_ready`: the node's Ready is True."""

    sign: SignOfLife
    node: str
    says_ready: bool


class DoubtedClock(NamedTuple):
    """A node whose clock, or whose controller, is wrong; `sentence` says which and how far."""

    node: str
    sentence: str


def newest_sign(objects: Iterable[KubeObject]) -> SignOfLife | None:
    """The newest sign of life of any node; None where there is none."""
    signs = filter(None, map(_sign_of_life, objects))
    return max(signs, key=lambda sign: sign.time_ns, default=None)


def agreed_sign(clocks: Sequence[ClockSign]) -> SignOfLife | None:
    """The newest sign that is not one clock's alone; None where there is none at all."""
    for place, newest in enumerate(clocks):
        rest = [clock for clock in clocks[place + 1 :] if clock.node != newest.node]
        if not rest:
            break
        if newest.sign.time_ns - rest[0].sign.time_ns <= CLOCKS_APART_NS:
            return newest.sign
        if not newest.node or not _agree(rest, len(clocks)):
            break
    return clocks[0].sign if clocks else None


def clocks_ahead(clocks: Sequence[ClockSign], moment_ns: int) -> list[DoubtedClock]:
    """The nodes whose signs lie beyond the moment, by name."""
    doubted = []
    for clock in clocks:
        by_ns = clock.sign.time_ns - moment_ns
        if clock.node and by_ns > CLOCKS_APART_NS:
            sentence = f"{clock.node}: its clock is {human_duration(by_ns)} ahead of the others"
            doubted.append(DoubtedClock(clock.node, f"{sentence}, which moves nothing"))
    return sorted(doubted)


def clock_behind(clocks: Sequence[ClockSign], moment_ns: int, grace_ns: int) -> DoubtedClock | None:
    """The one node whose Lease is too old, though a manager that works left Ready True; None where
    there is none, or several, which no clock explains."""
    renewed = [clock.sign.time_ns for clock in clocks if clock.sign.source == _OF_MANAGER]
    if not renewed or not -CLOCKS_APART_NS <= moment_ns - renewed[0] <= CLOCKS_APART_NS:
        return None
    of_nodes = [clock for clock in clocks if clock.node]
    latest_ns = moment_ns - grace_ns - CLOCKS_APART_NS
    old = [clock for clock in of_nodes if clock.says_ready and clock.sign.time_ns < latest_ns]
    if len(old) != 1 or len(of_nodes) < 2:
        return None
    node, by = old[0].node, human_duration(moment_ns - old[0].sign.time_ns)
    return DoubtedClock(
        node,
        f"its last sign of life is dated {by} ago, and Ready is still True while "
        f"{_MANAGER} renews its Lease: its clock is behind, or the manager does not act on it; "
        f"one look cannot tell",
    )


def _agree(rest: Sequence[ClockSign], total: int) -> bool:
    """True if the newest of the rest stand together: with the control plane, or most of all."""
    group = [c for c in rest if rest[0].sign.time_ns - c.sign.time_ns <= CLOCKS_APART_NS]
    nodes = [c for c in group if c.node]
    if len(nodes) < len(group):
        return bool(nodes)
    return len(nodes) > 1 and 2 * len(nodes) > total and all(c.says_ready for c in nodes)


def clocks_of(objects: Iterable[KubeObject]) -> list[ClockSign]:
    """The newest sign of each clock, the newest first."""
    newest: dict[tuple[str, str], SignOfLife] = {}
    ready: set[str] = set()
    for obj in objects:
        if type(obj) is Node:
            key, sign = ("node", obj.name), _sign_of_life(obj)
            if obj.is_ready:
                ready.add(obj.name)
        elif type(obj) is Lease and obj.namespace == _CONTROL_PLANE:
            at = obj.spec.renew_time
            key = ("lease", obj.name)
            sign = None if at is None else SignOfLife(int(at), _LEASE_OF.format(obj.name))
        elif type(obj) is Lease:
            key, sign = ("node", obj.name), _sign_of_life(obj)
        else:
            continue
        if sign is not None and (key not in newest or sign.time_ns > newest[key].time_ns):
            newest[key] = sign
    clocks = [
        ClockSign(sign, name if kind == "node" else "", kind == "node" and name in ready)
        for (kind, name), sign in newest.items()
    ]
    return sorted(clocks, key=lambda clock: (-clock.sign.time_ns, clock.node))


def _sign_of_life(obj: KubeObject) -> SignOfLife | None:
    if isinstance(obj, Lease) and obj.namespace == NAMESPACE_NODE_LEASE:
        if obj.spec.renew_time is not None:
            return SignOfLife(int(obj.spec.renew_time), f"the lease of node {obj.name}")
    elif isinstance(obj, Node):
        ready = obj.ready()
        if ready is not None and ready.last_heartbeat_time is not None:
            return SignOfLife(int(ready.last_heartbeat_time), f"the status of node {obj.name}")
    return None
