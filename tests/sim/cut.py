"""A simulated run, cut at an instant: what `kubectl get` would show of the cluster then."""

from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.heartbeat import Heartbeat
from kubectl_nodelife.kube.meta import MicroTime, Time
from kubectl_nodelife.kube.node import Lease, LeaseMeta, LeaseSpec, Node
from kubectl_nodelife.kube.times import SECOND_NS, whole_seconds
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.sim.present import Branch


def cut(branch: Branch, now_ns: int) -> Cache:
    """The objects as they are, with the Leases and status posts that the run knows in closed form.

    They are in kilobytes the same as a dump: nothing of the run's own memory is in them.
    """
    store, shown = branch.world.api.store, Cache()
    objects = [obj for kind in store.objects if kind != "Lease" for obj in store.all(kind)]
    shown.fill([*objects, *store.pods.values()], now_ns)
    for name, node in store.nodes.items():
        beat = branch.engine.cache.heartbeat(name)
        shown.fill([node if beat is None else _posted(node, beat, now_ns)], now_ns)
        if beat is not None and (lease := _lease(name, beat, now_ns)) is not None:
            shown.fill([lease], now_ns)
    return shown


def _lease(name: str, beat: Heartbeat, now_ns: int) -> Lease | None:
    renewal = beat.renewal(now_ns)
    if renewal is None or renewal[0] is None or beat.schedule is None:
        return None
    seconds = max(1, 4 * beat.schedule.every_ns // SECOND_NS)
    spec = LeaseSpec(name, seconds, renew_time=MicroTime(renewal[0] // 1000 * 1000))
    return Lease(metadata=LeaseMeta(name=name, namespace=NAMESPACE_NODE_LEASE), spec=spec)


def _posted(node: Node, beat: Heartbeat, now_ns: int) -> Node:
    """The node with the time of its last post, if a kubelet's conditions still stand."""
    post_ns = beat.status_post(now_ns)
    if post_ns is None:
        return node
    at = Time(whole_seconds(post_ns))
    conditions = tuple(
        c
        if c.status == "Unknown" or (c.last_heartbeat_time or 0) > at
        else replace(c, last_heartbeat_time=at)
        for c in node.status.conditions
    )
    return replace(node, status=replace(node.status, conditions=conditions))
