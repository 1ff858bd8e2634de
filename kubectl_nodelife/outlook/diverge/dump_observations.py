"""Observations of a cluster of which there is one moment only: a dump or a snapshot.

What is missing then is told by `dump_writes`; who did what, by managedFields, taints' times and
conditions; whether kube-controller-manager lives, by its Lease beside other Leases and by Events of
its controllers. Objects of a dump are read one kind after another, so that what became due within
the time that this may have taken is not judged. What was late and is done cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.taints import is_own, taint_is_wanted
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.core import Event
from kubectl_nodelife.kube.field_managers import TAINTS, UNSCHEDULABLE
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    CONTROLLER_MANAGERS,
    DELETION_BY_TAINT_MANAGER,
    DISRUPTION_TARGET,
    EVICTION_BY_EVICTION_API,
    NAMESPACE_NODE_LEASE,
    SILENT_REASONS,
    TRUE,
    UNKNOWN,
)
from kubectl_nodelife.outlook.diverge.authors import author_of
from kubectl_nodelife.outlook.diverge.dump_writes import eviction_due, missing_writes
from kubectl_nodelife.outlook.diverge.observations import (
    CORDONED,
    DRAINED,
    EARLY,
    EVICTION,
    LIFECYCLE,
    LIKELY,
    LOST,
    MANAGER,
    TAINTED,
    AssumedSettings,
    Divergence,
    ExpectedWrite,
    LeaseObservation,
    Observations,
    ObservedWrite,
    UnwatchedSpan,
    WriteAuthor,
)
from kubectl_nodelife.outlook.node import Outlook

READING_NS: Final = 5 * MINUTE_NS
"""So long the reading of a dump may have taken, from the first kind to the last."""

READING_SNAPSHOT_NS: Final = MINUTE_NS
"""The same of `snapshot save`, which notes the moment of the Leases."""

_LEASES_APART_NS: Final = MINUTE_NS
"""Leases of several namespaces may be read so long after one another."""

_JOINED_NS: Final = 10 * MINUTE_NS
"""Within that time of its creation a node gets the taints that it is installed with."""

_EARLY_NS: Final = 5 * SECOND_NS
_COMPONENTS: Final = frozenset(
    {
        "attachdetach-controller",
        "controllermanager",  # the disruption controller's name for itself, to this day
        "cronjob-controller",
        "daemonset-controller",
        "deployment-controller",
        "endpoint-controller",
        "endpoint-slice-controller",
        "endpoint-slice-mirroring-controller",
        "ephemeral_volume",
        "garbage-collector-controller",
        "horizontal-pod-autoscaler",
        "job-controller",
        "kube-controller-manager",
        "node-controller",
        "persistentvolume-controller",
        "replicaset-controller",
        "replication-controller",
        "resource_claim",
        "statefulset-controller",
        "taint-controller",
        "taint-eviction-controller",
        "ttl-after-finished-controller",
        "volume_expand",
    }
)
"""The sources of Events, from v1.11 to v1.36, that are part of kube-controller-manager in every
cluster. Left out are those that may be part of cloud-controller-manager: service-controller,
route_controller and the CIDR allocators."""

_OWNERS: Final = {
    "ReplicaSet": "apps/",
    "StatefulSet": "apps/",
    "DaemonSet": "apps/",
    "Job": "batch/",
    "ReplicationController": "v1",
}
"""Kinds whose pods kube-controller-manager makes -> how their API version begins."""


def dump_observations(
    outlook: Outlook,
    overdue: Iterable[Action],
    events: Iterable[Event],
    *,
    blind: str = "",
    noted: bool = False,
    unread: Iterable[str] = (),
) -> Observations:
    """The observations that a dump allows. `overdue`: writes of the joined controllers at its
    moment.

    `blind`: why nothing can be judged, "" where it can. `noted`: the moment is noted in a snapshot.
    `unread`: kinds that were not read.
    """
    lacking, told = frozenset(unread), list(events)
    reading_ns = READING_SNAPSHOT_NS if noted else READING_NS
    missing = missing_writes(outlook, overdue)
    settled = tuple(w for w in missing if outlook.now_ns - w.time_ns > reading_ns)
    nodes = [node for node in outlook.cache.all("Node") if isinstance(node, Node)]
    pods = [pod for pod in outlook.cache.all("Pod") if isinstance(pod, Pod)]
    observed = [seen for node in nodes for seen in _of_node(outlook, node)]
    losses = [seen for seen in observed if seen.what == LOST]
    if len({lost.at_ns for lost in losses}) < 2:  # one kubelet's clock may be wrong
        observed = [seen for seen in observed if seen.what != LOST]
    return Observations(
        assumed=_assumed(outlook),
        since_ns=min(_created(nodes), default=outlook.now_ns),
        writes=settled,
        observed=(*observed, *_drained(pods)),
        lease=_lease(outlook),
        unwatched=(UnwatchedSpan(outlook.now_ns, None, blind),) if blind else (),
        evaluated=(LIFECYCLE, EVICTION) if "Pod" not in lacking else (LIFECYCLE,),
        not_evaluated=tuple(_not_evaluated(outlook, lacking, missing, reading_ns)),
        last_write_ns=max(_signs_of_the_manager(told, nodes, pods), default=None),
        last_sign_of_others_ns=max(
            (
                at_ns
                for event in told
                if (at_ns := _last_told(event)) and not _is_the_managers(event)
            ),
            default=None,
        ),
        one_moment=True,
        told=tuple(_too_early(outlook, pods)),
    )


def _assumed(outlook: Outlook) -> AssumedSettings:
    settings = outlook.settings
    return AssumedSettings(
        period_ns=settings.node_monitor_period_ns,
        grace_ns=settings.node_monitor_grace_period_ns,
        rate=settings.node_eviction_rate,
        origins=settings.origins,
    )


def _created(nodes: Iterable[Node]) -> Iterator[int]:
    times = (node.metadata.creation_timestamp for node in nodes)
    return (int(time) for time in times if time is not None)


def _of_node(outlook: Outlook, node: Node) -> Iterator[ObservedWrite]:
    ready, zone = node.ready(), outlook.zone_of(node)
    status = ready.status if ready is not None else ""
    since = ready.last_transition_time if ready is not None else None
    if status == UNKNOWN and ready is not None and since is not None:
        sign_ns = outlook.node(node).sign_age_ns
        began_ns = outlook.now_ns - sign_ns if sign_ns is not None else None
        if began_ns is not None and began_ns < since and ready.reason in SILENT_REASONS:
            silent_ns = int(since) + SECOND_NS - began_ns  # transitions have whole seconds
            yield ObservedWrite(int(since), LOST, node.name, zone, silent_ns=silent_ns)
    yield from _taints(node, zone, status)
    cordoned = node.managers.writer_of(UNSCHEDULABLE) if node.spec.unschedulable else None
    if cordoned is not None:
        author = WriteAuthor(cordoned.name, cordoned.operation, cordoned.time_ns)
        yield ObservedWrite(cordoned.time_ns, CORDONED, node.name, zone, author=author)


def _taints(node: Node, zone: str, ready: str) -> Iterator[ObservedWrite]:
    """The taints whose author is known; kubectl gives its own no time."""
    writer = node.managers.writer_of(TAINTS)
    for taint in node.spec.taints:
        if taint.time_added is not None:
            at_ns = int(taint.time_added)
            author = author_of(node, TAINTS, at_ns)
        elif writer is not None and not _installed(node, writer.time_ns):
            at_ns = writer.time_ns
            author = WriteAuthor(writer.name, writer.operation, at_ns)
        else:
            continue
        if author is not None:
            yield ObservedWrite(
                at_ns=at_ns,
                what=TAINTED,
                node=node.name,
                zone=zone,
                detail=str(taint),
                own=is_own(taint),
                explained=taint_is_wanted(node, taint),
                ready=ready,
                author=author,
            )


def _installed(node: Node, at_ns: int) -> bool:
    created = node.metadata.creation_timestamp
    return created is not None and at_ns - int(created) < _JOINED_NS


def _drained(pods: Iterable[Pod]) -> Iterator[ObservedWrite]:
    for pod in pods:
        target = pod.status.condition(DISRUPTION_TARGET)
        since = target.last_transition_time if target is not None else None
        evicted = target is not None and target.reason == EVICTION_BY_EVICTION_API
        if evicted and since is not None and pod.metadata.deletion_timestamp is not None:
            where = f"{pod.namespace}/{pod.name}"
            yield ObservedWrite(int(since), DRAINED, pod.spec.node_name, detail=where)


def _too_early(outlook: Outlook, pods: Iterable[Pod]) -> Iterator[Divergence]:
    """Pods that the taint-eviction controller deleted before their tolerations ran out."""
    for pod in pods:
        target = pod.status.condition(DISRUPTION_TARGET)
        due_ns = eviction_due(outlook, pod)
        since = target.last_transition_time if target is not None else None
        if target is None or target.status != TRUE or since is None or due_ns is None:
            continue
        early_ns = due_ns - int(since)
        if target.reason == DELETION_BY_TAINT_MANAGER and early_ns > _EARLY_NS:
            name = f"{pod.namespace}/{pod.name}"
            yield Divergence(
                kind=EARLY,
                object_kind="Pod",
                namespace=pod.namespace,
                name=pod.name,
                node=pod.spec.node_name,
                message=f"DeletePod on {name} came {early_ns // SECOND_NS}s before its tolerations "
                "of the node's taints ran out, unless the node was tainted before",
                sure=LIKELY,
                controller=EVICTION,
                action="DeletePod",
                expected_ns=due_ns,
                seen_ns=int(since),
            )


def _lease(outlook: Outlook) -> LeaseObservation:
    """The manager's Lease, beside the newest of all: they were read at about the same time."""
    leases = [lease for lease in outlook.cache.all("Lease") if isinstance(lease, Lease)]
    found = next((o for o in leases if o.key == ("kube-system", MANAGER)), None)
    if found is None or found.spec.renew_time is None:
        return LeaseObservation(error=f"the dump has no Lease kube-system/{MANAGER}")
    others = [int(o.spec.renew_time) for o in leases if o.spec.renew_time is not None]
    lasts_ns = (found.spec.lease_duration_seconds or 15) * SECOND_NS + _LEASES_APART_NS
    holder, renewed_ns = found.spec.holder_identity or "", int(found.spec.renew_time)
    return LeaseObservation(holder, lasts_ns, renewed_ns, max(others))


def _signs_of_the_manager(
    events: Iterable[Event], nodes: Iterable[Node], pods: Iterable[Pod]
) -> Iterator[int]:
    """When it was alive: it sent an Event, wrote to a node, or made a pod for an owner."""
    for event in events:
        at_ns = _last_told(event)
        if at_ns is not None and _is_the_managers(event):
            yield at_ns
    for node in nodes:
        yield from (
            entry.time_ns for entry in node.managers.entries if entry.name in CONTROLLER_MANAGERS
        )
    for pod in pods:
        owner, created = controller_of(pod.metadata), pod.metadata.creation_timestamp
        if owner is not None and created is not None:
            version = _OWNERS.get(owner.kind)
            if version is not None and owner.api_version.startswith(version):
                yield int(created)


def _is_the_managers(event: Event) -> bool:
    return (event.reporting_component or event.source.component) in _COMPONENTS


def _last_told(event: Event) -> int | None:
    """When it was last sent, in ns."""
    series = event.series.last_observed_time if event.series is not None else None
    told = series or event.last_timestamp or event.event_time
    return int(told) if told is not None else None


def _not_evaluated(
    outlook: Outlook, lacking: frozenset[str], missing: list[ExpectedWrite], reading_ns: int
) -> Iterator[str]:
    yield (
        "a dump shows one moment: not judged are writes that came late and are done, pods that are "
        "gone, pod-gc (see 'audit -f') and DaemonSets' pods (see 'daemonset -f')"
    )
    young = sum(outlook.now_ns - write.time_ns <= reading_ns for write in missing)
    if young:
        yield (
            f"{young} {'write' if young == 1 else 'writes'} that became due within the last "
            f"{reading_ns // MINUTE_NS}m of the dump: it may have been read before that"
        )
    if "Lease" in lacking or not any(
        lease.namespace == NAMESPACE_NODE_LEASE for lease in outlook.cache.all("Lease")
    ):
        yield "no node Lease was read: whether a node should be Unknown"
    if "Pod" in lacking:
        yield "no pods were read: evictions"
    if not outlook.settings.taint_mode:
        yield "this release evicts without NoExecute taints: when pods should have been deleted"
    zones = outlook.memory.zones
    for zone, queue in zones.queues.items():
        if queue.waiting() and zones.rate(zone) <= 0:
            yield f"zone {zone} is stopped by its brake: no NoExecute taint is due there"
