"""Observations of a cluster of which there is one moment only: a dump or a snapshot.

The author of a change is known from managedFields, taints' times and conditions; whether
kube-controller-manager runs, from its Lease beside other Leases and Events of its controllers.
Objects of a dump are read one kind after another, so that what became due within the time that this
may have taken is not judged. What was late and is done cannot be known.

What is missing is what the joined copy of the controllers would write at that moment; since when it
was due follows from the objects: a condition's transition, a taint's time, the last sign of life.
Where nothing shows it, nothing is said. Nodes that wait for their zone's rate limiter get their
turns one after another, from the newest taint of the zone on and from the last time that any node's
Ready changed: before that the zone's brake may have held them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.taints import (
    NO_EXECUTE_TAINTS,
    NO_SCHEDULE_TAINTS,
    is_own,
    no_schedule_pass,
    taint_is_wanted,
)
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.pace import pace_of
from kubectl_nodelife.engine.workqueue import Never
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.field_managers import TAINTS, UNSCHEDULABLE
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Lease, Node, zone_display
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, human_duration
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.outlook.diverge import observations
from kubectl_nodelife.outlook.diverge.setting_estimates import run_of_pass, runs_of
from kubectl_nodelife.outlook.eviction_forecast import eviction_due, eviction_forecast
from kubectl_nodelife.outlook.node import Outlook
from kubectl_nodelife.outlook.taint_turns import ready_since

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
        "controllermanager",  # the disruption controller's name for itself, to this day
        *("node-controller", "taint-controller", "taint-eviction-controller"),
        *("daemonset-controller", "deployment-controller", "replicaset-controller"),
        *("replication-controller", "statefulset-controller", "job-controller"),
        *("cronjob-controller", "ttl-after-finished-controller", "horizontal-pod-autoscaler"),
        *("endpoint-controller", "endpoint-slice-controller"),
        *("endpoint-slice-mirroring-controller", "garbage-collector-controller"),
        *("attachdetach-controller", "persistentvolume-controller", "volume_expand"),
        *("ephemeral_volume", "resource_claim", "kube-controller-manager"),
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


_CONDITION_OF: Final = {
    **{key: condition for (condition, _), key in NO_SCHEDULE_TAINTS.items()},
    **{pair[0].key: wellknown.NODE_READY for pair in NO_EXECUTE_TAINTS.values()},
}
"""A taint's key -> the condition that asks for it."""


def dump_observations(
    outlook: Outlook,
    overdue: Iterable[Action],
    events: Iterable[Event],
    *,
    blind: str = "",
    noted: bool = False,
    unread: Iterable[str] = (),
) -> observations.Observations:
    """The observations that a dump allows. `overdue`: writes of the joined controllers at its
    moment.

    `blind`: why nothing can be judged, "" where it can. `noted`: the moment is noted in a snapshot.
    `unread`: kinds that were not read.
    """
    lacking, sent = frozenset(unread), list(events)
    reading_ns = READING_SNAPSHOT_NS if noted else READING_NS
    missing = missing_writes(outlook, overdue)
    settled = tuple(w for w in missing if outlook.now_ns - w.time_ns > reading_ns)
    nodes, pods = outlook.cache.nodes.values(), outlook.cache.pods.values()
    observed = [seen for node in nodes for seen in _of_node(outlook, node)]
    of_others = [event for event in sent if not _is_the_managers(event)]
    losses = {seen.at_ns for seen in observed if seen.what == observations.LOST}
    if len(losses) < 2:  # one kubelet's clock may be wrong
        observed = [seen for seen in observed if seen.what != observations.LOST]
    return observations.Observations(
        assumed=observations.AssumedSettings.of(outlook.settings),
        since_ns=min(_created(nodes), default=outlook.now_ns),
        writes=settled,
        observed=(*observed, *_drained(pods)),
        lease=_lease(outlook),
        unwatched=(observations.UnwatchedSpan(outlook.now_ns, None, blind),) if blind else (),
        evaluated=(observations.LIFECYCLE, observations.EVICTION)
        if "Pod" not in lacking
        else (observations.LIFECYCLE,),
        not_evaluated=tuple(_not_evaluated(outlook, lacking, missing, reading_ns)),
        last_write_ns=max(_signs_of_the_manager(sent, nodes, pods), default=None),
        last_sign_of_others_ns=max(filter(None, map(_last_sent_ns, of_others)), default=None),
        one_moment=True,
        reported=tuple(_too_early(outlook, pods)),
        runs=tuple(_runs(outlook, nodes)),
    )


def _runs(outlook: Outlook, nodes: Iterable[Node]) -> Iterator[observations.WriteRun]:
    """Passes that marked the pods of lost nodes, by when Ready of the nodes and their pods turned:
    of a silent node no kubelet writes that. Transitions have whole seconds.
    """
    pace = pace_of(outlook.settings)
    if pace is None:
        return
    lost: list[int] = []
    marks: list[int] = []
    for node in nodes:
        ready, since_ns = node.ready(), ready_since(node)
        if ready is None or ready.status != wellknown.UNKNOWN or not since_ns:
            continue
        lost.append(since_ns)
        for pod in outlook.cache.pods_on(node.name):
            of_pod = pod.status.condition(wellknown.NODE_READY)
            marked = of_pod.last_transition_time if of_pod is not None else None
            if marked is not None and not pod.ready() and marked >= since_ns:
                marks.append(int(marked))
    for run in runs_of([*lost, *marks], pause_ns=SECOND_NS):
        losses = sum(run[0] <= at_ns <= run[-1] for at_ns in lost)
        if losses:
            yield run_of_pass(pace, losses, len(run) - losses, run[-1] - run[0], SECOND_NS)


def _created(nodes: Iterable[Node]) -> Iterator[int]:
    times = (node.metadata.creation_timestamp for node in nodes)
    return (int(time) for time in times if time is not None)


def _of_node(outlook: Outlook, node: Node) -> Iterator[observations.ObservedWrite]:
    ready, zone, since_ns = node.ready(), outlook.zone_of(node), ready_since(node)
    if ready is not None and ready.status == wellknown.UNKNOWN and since_ns:
        sign_ns = outlook.node(node).sign_age_ns
        began_ns = outlook.now_ns - sign_ns if sign_ns is not None else since_ns
        if began_ns < since_ns and ready.reason in wellknown.SILENT_REASONS:
            silent_ns = since_ns + SECOND_NS - began_ns  # transitions have whole seconds
            lost = (since_ns, observations.LOST, node.name, zone)
            yield observations.ObservedWrite(*lost, silent_ns=silent_ns)
    yield from _taints(node, zone, ready.status if ready is not None else "")
    cordoned = node.managers.writer_of(UNSCHEDULABLE) if node.spec.unschedulable else None
    if cordoned is not None:
        author = observations.WriteAuthor(cordoned.name, cordoned.operation, cordoned.time_ns)
        write = (cordoned.time_ns, observations.CORDONED, node.name, zone)
        yield observations.ObservedWrite(*write, author=author)


def _taints(node: Node, zone: str, ready: str) -> Iterator[observations.ObservedWrite]:
    """The taints whose author is known; kubectl gives its own no time."""
    writer = node.managers.writer_of(TAINTS)
    for taint in node.spec.taints:
        if taint.time_added is not None:
            at_ns = int(taint.time_added)
            author = observations.author_of(node, TAINTS, at_ns)
        elif writer is not None and not _installed(node, writer.time_ns):
            at_ns = writer.time_ns
            author = observations.WriteAuthor(writer.name, writer.operation, at_ns)
        else:
            continue
        if author is not None:
            yield observations.ObservedWrite(
                *(at_ns, observations.TAINTED, node.name, zone, str(taint)),
                own=is_own(taint),
                explained=taint_is_wanted(node, taint),
                ready=ready,
                author=author,
            )


def _installed(node: Node, at_ns: int) -> bool:
    created = node.metadata.creation_timestamp
    return created is not None and at_ns - int(created) < _JOINED_NS


def _drained(pods: Iterable[Pod]) -> Iterator[observations.ObservedWrite]:
    for pod in pods:
        target = pod.status.condition(wellknown.DISRUPTION_TARGET)
        since = target.last_transition_time if target is not None else None
        evicted = target is not None and target.reason == wellknown.EVICTION_BY_EVICTION_API
        if evicted and since is not None and pod.metadata.deletion_timestamp is not None:
            where = f"{pod.namespace}/{pod.name}"
            node = pod.spec.node_name
            yield observations.ObservedWrite(int(since), observations.DRAINED, node, detail=where)


def _too_early(outlook: Outlook, pods: Iterable[Pod]) -> Iterator[observations.Divergence]:
    """Pods that the taint-eviction controller deleted before their tolerations ran out."""
    for pod in pods:
        target = pod.status.condition(wellknown.DISRUPTION_TARGET)
        due_ns = _earliest_eviction(outlook, pod)
        since = target.last_transition_time if target is not None else None
        if target is None or target.status != wellknown.TRUE or since is None or due_ns is None:
            continue
        early_ns = due_ns - int(since)
        if target.reason == wellknown.DELETION_BY_TAINT_MANAGER and early_ns > _EARLY_NS:
            came = f"DeletePod on {'/'.join(pod.key)} came {human_duration(early_ns)} before"
            message = f"{came} its tolerations of the node's taints ran out"
            yield observations.Divergence(
                *(observations.EARLY, "Pod", *pod.key, message, observations.LIKELY),
                node=pod.spec.node_name,
                controller=observations.EVICTION,
                action="DeletePod",
                expected_ns=due_ns,
                seen_ns=int(since),
            )


def _lease(outlook: Outlook) -> observations.LeaseObservation:
    """The manager's Lease, beside the newest of all: they were read at about the same time."""
    leases = [lease for lease in outlook.cache.all("Lease") if isinstance(lease, Lease)]
    of_manager = next((o for o in leases if o.key == ("kube-system", observations.MANAGER)), None)
    if of_manager is None or of_manager.spec.renew_time is None:
        error = f"the dump has no Lease kube-system/{observations.MANAGER}"
        return observations.LeaseObservation(error=error)
    others = [int(o.spec.renew_time) for o in leases if o.spec.renew_time is not None]
    lasts_ns = (of_manager.spec.lease_duration_seconds or 15) * SECOND_NS + _LEASES_APART_NS
    holder, renewed_ns = of_manager.spec.holder_identity or "", int(of_manager.spec.renew_time)
    read_ns = min(max(others), max(outlook.now_ns, renewed_ns))  # one clock may be ahead
    return observations.LeaseObservation(holder, lasts_ns, renewed_ns, read_ns)


def _signs_of_the_manager(
    events: Iterable[Event], nodes: Iterable[Node], pods: Iterable[Pod]
) -> Iterator[int]:
    """When it ran: it sent an Event, wrote to a node, or made a pod for an owner."""
    for event in events:
        at_ns = _last_sent_ns(event)
        if at_ns is not None and _is_the_managers(event):
            yield at_ns
    for node in nodes:
        wrote = (e for e in node.managers.entries if e.name in wellknown.CONTROLLER_MANAGERS)
        yield from (entry.time_ns for entry in wrote)
    for pod in pods:
        owner, created = controller_of(pod.metadata), pod.metadata.creation_timestamp
        version = _OWNERS.get(owner.kind) if owner is not None else None
        if owner and version and created is not None and owner.api_version.startswith(version):
            yield int(created)


def _is_the_managers(event: Event) -> bool:
    return (event.reporting_component or event.source.component) in _COMPONENTS


def _last_sent_ns(event: Event) -> int | None:
    """When it was last sent, in ns."""
    series = event.series.last_observed_time if event.series is not None else None
    last_sent = series or event.last_timestamp or event.event_time
    return int(last_sent) if last_sent is not None else None


def _not_evaluated(
    outlook: Outlook,
    lacking: frozenset[str],
    missing: list[observations.ExpectedWrite],
    reading_ns: int,
) -> Iterator[str]:
    yield (
        "a dump shows one moment: not judged are writes that came late and are done, pods that are "
        "gone, pod-gc (see 'audit -f') and DaemonSets' pods (see 'daemonset -f')"
    )
    young = sum(outlook.now_ns - write.time_ns <= reading_ns for write in missing)
    if young:
        yield (
            f"{counted(young, 'write')} that became due within the last "
            f"{reading_ns // MINUTE_NS}m of the dump: it may have been read before that"
        )
    if "Lease" in lacking or not any(
        lease.namespace == wellknown.NAMESPACE_NODE_LEASE for lease in outlook.cache.all("Lease")
    ):
        yield "no node Lease was read: whether a node should be Unknown is not judged"
    if "Pod" in lacking:
        yield "no pods were read: evictions are not judged"
    if not outlook.settings.taint_mode:
        what = "when pods should have been deleted is not judged"
        yield f"this release evicts without NoExecute taints: {what}"
    zones = outlook.memory.zones
    for zone, queue in zones.queues.items():
        if queue.waiting() and zones.rate(zone) <= 0:
            name = zone_display(zone)
            which = f"zone {name}" if name else "the zone of the nodes without a zone label"
            yield f"{which} is stopped by its brake: no NoExecute taint is due there"


def missing_writes(outlook: Outlook, overdue: Iterable[Action]) -> list[observations.ExpectedWrite]:
    """The writes, each due at `time_ns` by what the objects show. `overdue`: what the copy of the
    controllers would do at the moment of the outlook.
    """
    numbers = count(1)
    writes: dict[tuple[str, ...], observations.ExpectedWrite] = {}
    for write in (*_planned(outlook, overdue), *_mirrored(outlook), *_unmarked(outlook)):
        if write.time_ns <= outlook.now_ns:
            key = (write.action, write.kind, write.namespace, write.name, write.what)
            writes.setdefault(key, _numbered(outlook, write, next(numbers)))
    return [*writes.values(), *_waiting(outlook, numbers)]


def _numbered(
    outlook: Outlook, write: observations.ExpectedWrite, number: int
) -> observations.ExpectedWrite:
    node = outlook.cache.node(write.node)
    zone = outlook.zone_of(node) if node is not None else ""
    return replace(write, id=number, zone=zone, rate=_rate(outlook, zone))


def _rate(outlook: Outlook, zone: str) -> float:
    zones = outlook.memory.zones
    return zones.rate(zone) if zone in zones.queues else 0.0


def _planned(outlook: Outlook, overdue: Iterable[Action]) -> Iterator[observations.ExpectedWrite]:
    for action in overdue:
        kind, (namespace, name) = action.target
        node = outlook.cache.node(name) if kind == "Node" else None
        pod = outlook.cache.pod(namespace, name) if kind == "Pod" else None
        for word, detail in action.records():
            if word not in observations.WRITES:
                continue
            what, due_ns = "", None
            if node is not None and word in ("AddTaint", "RemoveTaint"):
                what = f"{detail['key']}:{detail['effect']}"
                due_ns = _taint_due(node, str(detail["key"]))
            elif node is not None and word == "SetNodeCondition":
                what = f"{detail['type']}={detail['status']}"
                due_ns = _silent_too_long(outlook, node)
            elif pod is not None and word == "DeletePod":
                due_ns = _eviction_due(outlook, pod)
            if due_ns is not None:
                on = pod.spec.node_name if pod is not None else name
                where = (kind, namespace, name, on)
                why = (what, action.because)
                yield observations.ExpectedWrite(0, due_ns, action.controller, word, *where, *why)


def _mirrored(outlook: Outlook) -> Iterator[observations.ExpectedWrite]:
    """NoSchedule taints that do not fit the node's conditions and its cordon."""
    nodes, now_ns = outlook.cache.nodes.values(), outlook.now_ns
    planned = (no_schedule_pass(node, now_ns, None) for node in nodes)
    return _planned(outlook, chain.from_iterable(planned))


def _unmarked(outlook: Outlook) -> Iterator[observations.ExpectedWrite]:
    """Pods that are Ready on a node whose kubelet is silent, where others are not: the pods of a
    node that was not Ready before its kubelet fell silent are marked then, which their kubelet sets
    right again, and not once more."""
    for node in outlook.cache.nodes.values():
        ready, pods = node.ready(), outlook.cache.pods_on(node.name)
        if ready is None or ready.status != wellknown.UNKNOWN or all(pod.ready() for pod in pods):
            continue
        since_ns = ready_since(node)
        because = f"the node's Ready is Unknown ({ready.reason}), so that its pods are not Ready"
        for pod in pods:
            if pod.ready() and pod.metadata.deletion_timestamp is None and since_ns:
                done = (observations.LIFECYCLE, "MarkPodNotReady", "Pod", *pod.key, node.name)
                yield observations.ExpectedWrite(0, since_ns, *done, "", because)


def _waiting(outlook: Outlook, numbers: Iterator[int]) -> Iterator[observations.ExpectedWrite]:
    """NoExecute taints for which tokens have been there. Under a rate of exactly 1 that is not
    known: a zone that was stopped once stays so (`Never` in engine/workqueue.py)."""
    for node, turn_ns in outlook.taints_due:
        ready, rate = node.ready(), _rate(outlook, outlook.zone_of(node))
        if rate == Never.qps:
            continue
        pair = NO_EXECUTE_TAINTS[ready.status] if ready is not None else None
        if ready is not None and pair is not None and turn_ns <= outlook.now_ns:
            because = f"Ready is {ready.status}, and its zone's limiter lets {rate:g} a second pass"
            done = (observations.LIFECYCLE, "AddTaint", "Node", "", node.name, node.name)
            write = observations.ExpectedWrite(0, turn_ns, *done, str(pair[0]), because)
            yield _numbered(outlook, write, next(numbers))


def _taint_due(node: Node, key: str) -> int | None:
    """When the node's state came to ask for the taint, or ceased to; None where unknown."""
    if key == wellknown.TAINT_NODE_UNSCHEDULABLE:
        writer = node.managers.writer_of(UNSCHEDULABLE)
        return writer.time_ns if writer is not None else None
    condition = node.status.condition(_CONDITION_OF.get(key, ""))
    since = condition.last_transition_time if condition is not None else None
    return int(since) if since is not None else None


def _silent_too_long(outlook: Outlook, node: Node) -> int | None:
    of_node = outlook.node(node)
    if of_node.sign_age_ns is None:
        return None
    return outlook.now_ns - of_node.sign_age_ns + of_node.grace_ns


def _earliest_eviction(outlook: Outlook, pod: Pod) -> int | None:
    """The same, where the node was lost in other ways before: its taint took the place of another,
    since when the pod's timer runs, but not longer than the pod is on the node."""
    node, due_ns = outlook.cache.node(pod.spec.node_name), _eviction_due(outlook, pod)
    if node is None or due_ns is None or not any(map(is_own, node.spec.taints)):
        return due_ns
    bound = pod.status.start_time or pod.metadata.creation_timestamp
    tolerated = [eviction_forecast(pod, [pair[0]]) for pair in NO_EXECUTE_TAINTS.values()]
    waits = [each.after_seconds for each in tolerated if each.after_seconds is not None]
    if bound is None or not waits:
        return None
    return min(due_ns, int(bound) + min(waits) * SECOND_NS)


def _eviction_due(outlook: Outlook, pod: Pod) -> int | None:
    node = outlook.cache.node(pod.spec.node_name)
    taints = no_execute_taints(node.spec.taints) if node is not None else []
    return eviction_due(taints, outlook.forecast(pod, taints))
