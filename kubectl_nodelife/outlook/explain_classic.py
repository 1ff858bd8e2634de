"""Explains the eviction of v1.16 without taints: its times, its pace, and which pods it takes."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.classic_eviction import ClassicEviction, is_left_out
from kubectl_nodelife.outlook.explain import DelayTerm
from kubectl_nodelife.outlook.node import NodeOutlook


def timeout_terms(
    of_node: NodeOutlook, classic: ClassicEviction, settings: Settings
) -> Iterator[DelayTerm]:
    """The rest of pod-eviction-timeout, by the clock that counts; nothing once it is over."""
    if classic.left is None:
        return
    flag = "pod-eviction-timeout"
    origin = f"{flag} {settings.flags[flag]} ({settings.origins[flag]}), since {classic.clock}"
    what = f"{flag} left"
    if of_node.ready in ("True", ""):
        what += ", if no heartbeat comes"
    low, high = classic.left.low_ns / SECOND_NS, classic.left.high_ns / SECOND_NS
    yield DelayTerm(what, low, low, origin)
    period = f"node-monitor-period {settings.flags['node-monitor-period']}"
    yield DelayTerm("until a monitor pass queues the node", 0.0, high - low, period)


def how_it_works(of_node: NodeOutlook, classic: ClassicEviction) -> Iterator[str]:
    """How pods are evicted without taints, in words, and what the times that follow mean."""
    silent = "If its heartbeats stop now, these" if of_node.ready == "True" else "These"
    yield (
        f"{silent} times add up to the eviction of its pods. This release is set up to evict "
        f"without taints: pod-eviction-timeout {format_duration(classic.timeout_ns)} counts from "
        "the moment Ready turned False, or from the last sign of life where it is Unknown; "
        "tolerations are ignored, and all pods of the node go in one turn."
    )


def pod_fate(pod: Pod, cache: Cache, of_node: NodeOutlook, classic: ClassicEviction) -> str:
    """The effect of the eviction on one pod that is not Terminating, to stand after its name."""
    if is_left_out(pod, cache):
        return "stays, whatever happens to the node: a DaemonSet selects it"
    if classic.evicted:
        return "came after the node's turn: v1.16 does not evict a node twice"
    if of_node.ready in ("True", ""):
        return "would be deleted with the others when the node's turn comes, whatever it tolerates"
    return "is deleted with the others when the node's turn comes, whatever it tolerates"


def pace(rate: float) -> str:
    """How fast the zone's queue goes on."""
    if rate > 0:
        return f"The pods of {rate:g} nodes a second are evicted, one node each {1 / rate:g}s."
    return "No node of it has its pods evicted now."
