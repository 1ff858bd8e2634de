"""Takes over a running cluster into a world: kubelets as they were, each in its own phase.
DaemonSets whose revisions were not read count as up to date.

There is no upstream to follow. A kubelet that reported in time goes on, whatever it reports; one
that is late stays silent, as `status` counts it down. No node is called lost by the age of its
status alone, where its Lease was not read.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.history import new_revision
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.sign_of_life import LastSignOfLife, sign_of_life
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node, NodeMeta
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH, NAMESPACE_NODE_LEASE
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.sim.api import made_uid
from kubectl_nodelife.sim.kubelet_state import HeartbeatSchedule
from kubectl_nodelife.sim.scenario import Setting

_REVISION = "ControllerRevision"
_ON_DELETE = "OnDelete"


def joined_kubelets(setting: Setting) -> dict[str, HeartbeatSchedule]:
    """The kubelets that go on, by node name."""
    kubelets = {}
    for node in (*setting.cluster.nodes.values(), *_nodes_that_are_gone(setting.cluster)):
        sign = last_sign(setting, node)
        if goes_on(node, sign, setting.start_ns, late_renew=setting.late_kubelets_renew):
            kubelets[node.name] = _heartbeats_of(setting, node, sign)
    return kubelets


def _nodes_that_are_gone(cluster: Cache) -> Iterator[Node]:
    """An empty Node for each Lease without one: a kubelet outlives its Node object, and belongs to
    a Node of the same name that is made later.
    """
    for lease in cluster.all("Lease"):
        if lease.namespace == NAMESPACE_NODE_LEASE and lease.name not in cluster.nodes:
            yield Node(NodeMeta(name=lease.name))


def last_sign(setting: Setting, node: Node) -> LastSignOfLife:
    """The node's last sign of life at t=0."""
    return sign_of_life(node, setting.cluster, setting.start_ns, setting.leases_count)


def goes_on(node: Node, sign: LastSignOfLife, now_ns: int, *, late_renew: bool = False) -> bool:
    """True if the node's kubelet is alive."""
    ready = node.ready()
    if sign.at_ns is None:
        return ready is not None and ready.status != "Unknown"
    if late_renew and ready is not None and ready.status != "Unknown":
        return True
    return not sign.is_late(now_ns)


def _heartbeats_of(setting: Setting, node: Node, sign: LastSignOfLife) -> HeartbeatSchedule:
    """When it renews and posts next; a phase that the scenario gives takes precedence."""
    now_ns, terms = setting.start_ns, setting.scenario.kubelet
    every_ns = terms.lease_renew_interval_ns or sign.every_ns
    if terms.lease_renew_phase_ns is not None:
        first_ns = now_ns + terms.lease_renew_phase_ns
    else:
        first_ns = _next_of(sign.at_ns, every_ns, now_ns)
    ready = node.ready()
    posted = ready.last_heartbeat_time if ready is not None else None
    posted_ns = first_ns if posted is None else _uncut(int(posted), first_ns, every_ns)
    return HeartbeatSchedule(first_ns, every_ns, _next_of(posted_ns, terms.post_every_ns, now_ns))


def _uncut(posted_ns: int, first_ns: int, every_ns: int) -> int:
    """When the status was posted, of which the API keeps whole seconds: with the renewal in that
    second, if there was one.
    """
    later_ns = (first_ns - posted_ns) % every_ns
    return posted_ns + later_ns if later_ns < SECOND_NS else posted_ns


def _next_of(at_ns: int | None, every_ns: int, now_ns: int) -> int:
    """The first of at + k x every that is not before now."""
    if at_ns is None or at_ns >= now_ns:
        return now_ns if at_ns is None else at_ns
    return at_ns - (at_ns - now_ns) // every_ns * every_ns


def joined_cluster(setting: Setting) -> Cache:
    """A copy of the cluster to play on."""
    cluster = setting.cluster.fork()
    for found in list(cluster.all("DaemonSet")):
        if isinstance(found, DaemonSet) and not _makes_its_own(found):
            cluster.set("DaemonSet", found.key, None)
    if _REVISION not in setting.kinds_read:
        hold_up_to_date(cluster, setting.start_ns)
    return cluster


def _makes_its_own(daemon_set: DaemonSet) -> bool:
    """False where the template does not have the labels that the selector wants, as the API server
    asks (ValidateDaemonSetSpec): it was not read, and its pods would be made without end.
    """
    meta = daemon_set.spec.template.get("metadata") or {}
    return matches(daemon_set.spec.selector, meta.get("labels"))


def hold_up_to_date(cluster: Cache, now_ns: int) -> None:
    """Give each DaemonSet a revision, where none were read: none of their pods counts as old."""
    for found in cluster.all("DaemonSet"):
        if isinstance(found, DaemonSet):
            _hold_up_to_date(cluster, found, now_ns)


def _hold_up_to_date(cluster: Cache, daemon_set: DaemonSet, now_ns: int) -> None:
    """A DaemonSet whose revisions were not read gets one, that of its newest pod. Where its pods
    have several, it is not known which are old, and none is replaced for it.
    """
    hashes = list(_hashes(cluster, daemon_set))
    if not hashes:
        return
    revision = new_revision(daemon_set, 1)
    labels = {**(revision.metadata.labels or {}), LABEL_CONTROLLER_REVISION_HASH: hashes[-1]}
    meta = replace(
        revision.metadata,
        name=f"{daemon_set.name}-{hashes[-1]}",
        uid=made_uid(len(cluster.objects.get(_REVISION, ())), 0x4E5F),
        labels=labels,
        creation_timestamp=Time(daemon_set.metadata.creation_timestamp or now_ns),
    )
    held: ControllerRevision = replace(revision, metadata=meta)
    cluster.set(_REVISION, held.key, held)
    strategy = daemon_set.spec.update_strategy
    if len(set(hashes)) > 1 and strategy.type != _ON_DELETE:
        spec = replace(daemon_set.spec, update_strategy=replace(strategy, type=_ON_DELETE))
        cluster.set("DaemonSet", daemon_set.key, replace(daemon_set, spec=spec))


def _hashes(cluster: Cache, daemon_set: DaemonSet) -> Iterator[str]:
    """The revision hashes of its pods, the newest pod's last."""
    pods = cluster.pods_of(daemon_set.uid)
    for pod in sorted(pods, key=lambda p: (p.metadata.creation_timestamp or 0, p.name)):
        revision_hash = (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH)
        if revision_hash:
            yield revision_hash
