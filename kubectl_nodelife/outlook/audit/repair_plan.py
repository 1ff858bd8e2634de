"""Plans which request `repair` would send about each finding, or says why it would send none.

Nothing is sent from here: a step holds the action, which `repair --yes` has carried out. A request
carries the uid and the resourceVersion that were judged: if the object has changed since, the API
server answers with a conflict. What cannot be proven is refused. Three kinds of requests are made:

- Ready, set to False by the node controller, is restored once the node is back;
- a lost pod is deleted for good, if its node is gone or the operator says that it is fenced;
- the object that is left of an evicted pod is deleted.

And one only if its class is asked for by name: a pod that looks ready on a lost node is set not
ready, as the node controller would have done.

When Ready=False may be undone from outside is our own design. A running kubelet restores Ready
within two sync batches, so every condition here is a reason to believe that this kubelet never will
and that the pod can serve. Each condition that does not hold is a refusal of its own, in one line.
The kubelet may overwrite the patch at any time.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kubectl_nodelife.engine.actions import DeletePod, SetPodReady, of_pod
from kubectl_nodelife.engine.calls import Request, request_of
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.meta import Time, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_mirror_pod
from kubectl_nodelife.kube.times import SECOND_NS, human_duration
from kubectl_nodelife.kubelet import conditions
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.outlook.audit import CAP, classes
from kubectl_nodelife.outlook.audit.classes import (
    GATES,
    LAGGING,
    MARKED_NODE_DOWN,
    RECOVERING,
    SETTLE_NS,
    STALE_READY,
    STUCK_NOT_READY,
    Classification,
)
from kubectl_nodelife.outlook.audit.findings import PodFinding
from kubectl_nodelife.workloads.force_advice import AFTER_POWER_OFF, NodeReadiness

ORPHAN_WAIT_NS: Final = 120 * SECOND_NS
"""Pod garbage collection is given so long to do its work."""

LATE_LEASE_NS: Final = 20 * SECOND_NS
"""Two renewals: a kubelet makes one each 10 s (a quarter of its nodeLeaseDurationSeconds)."""

REPAIR: Final = "repair"
"""In whose name the requests are sent."""


Planned = SetPodReady | DeletePod | tuple[str, ...]
PER_NODE_AND_SECOND: Final = 5
"""No more pods of one node are repaired in a second."""


class RepairStep(msgspec.Struct, frozen=True):
    """The repair of one finding: a request, or the reasons against it."""

    finding: PodFinding
    action: SetPodReady | DeletePod | None
    refusals: tuple[str, ...]
    not_before_s: int = 0

    @property
    def request(self) -> Request | None:
        """The request to send; None where none would be."""
        return None if self.action is None else request_of(self.action, self.finding.pod)

    @property
    def command(self) -> str:
        """The same through kubectl, "" where nothing would be sent."""
        return "" if self.request is None else _command(self.finding.pod, self.request)


class RepairOptions(msgspec.Struct, frozen=True):
    """The operator's choice: classes by name, and nodes that the operator knows to be off."""

    classes: frozenset[str] = frozenset()
    fenced: frozenset[str] = frozenset()
    cap: int = CAP


class RepairCase(msgspec.Struct, frozen=True):
    """A finding, what the operator chose, and since when the pod is known to be in its class."""

    finding: PodFinding
    options: RepairOptions
    first_seen: FirstSeen | None


Way = Callable[[RepairCase], Planned]


def plan(
    findings: Iterable[PodFinding],
    options: RepairOptions,
    first_seen: Mapping[str, FirstSeen] | None = None,
) -> list[RepairStep]:
    """A step for each finding, in their order. `first_seen`, by pod uid: since when a pod has been
    seen in its class; without one the age is what the times in this one look prove."""
    steps = []
    of_node: Counter[str] = Counter()
    for finding in findings:
        pod, node = finding.pod, finding.node
        since = (first_seen or {}).get(pod.uid) or times_of_one_look(pod, node)
        way = _WAYS[finding.name]
        outcome = (way,) if isinstance(way, str) else way(RepairCase(finding, options, since))
        if isinstance(outcome, tuple):
            steps.append(RepairStep(finding, None, outcome))
        elif sum(of_node.values()) >= options.cap:
            beyond = f"one run sends at most {options.cap} requests"
            steps.append(RepairStep(finding, None, (beyond,)))
        else:
            wait_s = of_node[node.name] // PER_NODE_AND_SECOND
            of_node[node.name] += 1
            steps.append(RepairStep(finding, outcome, (), wait_s))
    return steps


def _undo_the_mark(case: RepairCase) -> Planned:
    finding, context = case.finding, case.finding.context
    against = refusals(
        finding.pod,
        finding.node,
        finding.classification or Classification(finding.name),
        case.first_seen,
        context.rules,
        context.release.heartbeat_ns,
        context.now_ns,
    )
    return against or _set_ready(finding, wellknown.TRUE)


def _make_the_mark(case: RepairCase) -> Planned:
    """The write that the node controller left out (`MarkPodsNotReady`), or why it is not made."""
    finding, context = case.finding, case.finding.context
    pod, node = finding.pod, finding.node
    if STALE_READY not in case.options.classes:
        return (f"only reported; ask for it with --class {STALE_READY}",)
    if node.ready != wellknown.UNKNOWN or pod.status.phase in TERMINAL_PHASES or is_mirror_pod(pod):
        return ("only what runs on a node that does not report is marked, as upstream",)
    if node.heartbeat_ns is None:
        return (f"node {node.name} has no heartbeat that was read",)
    if context.now_ns - node.heartbeat_ns < context.release.heartbeat_ns:
        return (f"the heartbeat of node {node.name} is young",)
    return _with_preconditions(pod) or _set_ready(finding, wellknown.FALSE)


def _release_from_dead_node(case: RepairCase) -> Planned:
    finding, node, pod = case.finding, case.finding.node, case.finding.pod
    advice = finding.advice
    if advice is None or advice.force_delete != AFTER_POWER_OFF:
        return (advice.sentence if advice is not None else f"node {node.name} was not read",)
    if pod.metadata.finalizers:
        return (_kept_by_finalizers(pod),)
    if node.name not in case.options.fenced:
        return (f"nothing proves that node {node.name} is off; say so with --fenced {node.name}",)
    return _with_preconditions(pod) or _deletion(finding, grace_s=0)


def _delete_orphan(case: RepairCase) -> Planned:
    finding, pod = case.finding, case.finding.pod
    deleted_ns = pod.metadata.deletion_timestamp
    if pod.metadata.finalizers:
        return (_kept_by_finalizers(pod),)
    if deleted_ns is None or finding.context.now_ns - deleted_ns < ORPHAN_WAIT_NS:
        return ("pod garbage collection is given 2 minutes, and nothing proves that it had them",)
    return _with_preconditions(pod) or _deletion(finding, grace_s=0)


def _delete_leftover(case: RepairCase) -> Planned:
    finding, pod = case.finding, case.finding.pod
    owner = controller_of(pod.metadata)
    if owner is not None and owner.kind == "Job":
        return (f"Job {owner.name} counts it and removes it by its own rules",)
    if pod.metadata.finalizers:
        return (_kept_by_finalizers(pod),)
    alive = [s.name for s in pod.status.container_statuses or () if s.state.running is not None]
    if alive:
        return (f"container {alive[0]} is reported as running",)
    return _with_preconditions(pod) or _deletion(finding, grace_s=None)


def _never_on_a_ready_node(case: RepairCase) -> Planned:
    advice = case.finding.advice
    suffix = f"; {advice.sentence}" if advice is not None else ""
    return (f"its node is called Ready: forced, its containers may stay{suffix}",)


_WAYS: Final[dict[str, Way | str]] = {
    STUCK_NOT_READY: _undo_the_mark,
    STALE_READY: _make_the_mark,
    classes.TERMINATING_DEAD_NODE: _release_from_dead_node,
    classes.ORPHANED: _delete_orphan,
    classes.EVICTED_LEFTOVER: _delete_leftover,
    classes.TERMINATING_FINALIZER: "only the owner of a finalizer may take it away",
    classes.TERMINATING_SLOW: _never_on_a_ready_node,
    classes.NOT_EVICTED: "taint-eviction deletes it once it works: this is its write",
    classes.NOT_STARTING: "what it lacks is not in the object: its Events say that",
    RECOVERING: "its kubelet is given the settle time to undo the mark by itself",
    MARKED_NODE_DOWN: "the mark is right while the node is down",
    GATES: "only the owner of the gate's condition may set it",
    LAGGING: "only its kubelet knows which of the two is true",
    classes.DAEMONSET_NEVER_EVICTED: "nothing is wrong with the pod, but with its node",
    classes.NEVER_EVICTED: "nothing is wrong with the pod, but with its node",
}
"""How the findings of each class are repaired, or why they are not."""


def _kept_by_finalizers(pod: Pod) -> str:
    return f"its finalizers would keep it: {', '.join(pod.metadata.finalizers)}"


def _with_preconditions(pod: Pod) -> tuple[str, ...]:
    """The refusal of a request that could hit another object than the one judged."""
    if pod.uid and pod.metadata.resource_version:
        return ()
    return ("without its uid and resourceVersion the request would have no precondition",)


def _set_ready(of: PodFinding, status: str) -> SetPodReady:
    at = Time(of.context.now_ns)
    return SetPodReady(
        controller=REPAIR, because=of.because, **of_pod(of.pod), status=status, at=at
    )


def _deletion(of: PodFinding, grace_s: int | None) -> DeletePod:
    return DeletePod(
        controller=REPAIR,
        because=of.because,
        **of_pod(of.pod),
        grace_period_seconds=grace_s,
        if_unchanged=True,
    )


def _command(pod: Pod, request: Request) -> str:
    text = shlex.quote(json.dumps(request.body, separators=(",", ":")))
    if request.method == "DELETE":
        return f"echo {text} | kubectl delete --raw {shlex.quote(request.path)} -f -"
    named = shlex.join(("-n", pod.namespace, pod.name))
    return f"kubectl patch pod {named} --subresource=status -p {text}"


class FirstSeen(msgspec.Struct, frozen=True):
    """Since when a pod has been seen in its class without a break, and its resourceVersion then
    ("": not known, as where the times in a single snapshot give the age)."""

    first_seen_ns: int
    resource_version: str = ""


def times_of_one_look(pod: Pod, node: NodeReadiness) -> FirstSeen | None:
    """The age of the class as one look at the objects proves it; None where it does not.

    What makes the class is Ready False, ContainersReady True and the node Ready. Each carries the
    time since when it has been so, and since 1.16 the mark of the node controller moves that time
    too (PR 78104).
    """
    types = (conditions.READY, conditions.CONTAINERS_READY)
    found = [c for type_ in types if (c := pod.status.condition(type_)) is not None]
    times = [node.ready_since_ns, *(condition.last_transition_time for condition in found)]
    read = [time for time in times if time is not None]
    return FirstSeen(max(read)) if len(read) == 1 + len(types) else None


def refusals(
    pod: Pod,
    node: NodeReadiness,
    class_: Classification,
    first_seen: FirstSeen | None,
    rules: StatusRules,
    heartbeat_ns: int,
    now_ns: int,
) -> tuple[str, ...]:
    """Every reason against undoing the mark; none means that it is safe. `heartbeat_ns`: a node
    counts as reporting if its heartbeat is younger, the node monitor grace period."""
    if class_.name != STUCK_NOT_READY:
        return (f"its class is {class_.name}, and only {STUCK_NOT_READY} is undone",)
    return (
        *_node_refusals(node, heartbeat_ns, now_ns),
        *_pod_refusals(pod, class_, rules),
        *_first_seen_refusals(pod, first_seen, now_ns),
    )


def _node_refusals(node: NodeReadiness, heartbeat_ns: int, now_ns: int) -> Iterator[str]:
    if node.heartbeat_from_lease:
        # A Lease that missed two renewals is that of a kubelet which has stopped, whatever the
        # grace period may still allow.
        heartbeat_ns = min(heartbeat_ns, LATE_LEASE_NS)
    if not node.exists or not node.is_ready:
        yield f"node {node.name} is not Ready"
        return
    if node.ready_since_ns is None:
        yield f"node {node.name} does not say since when it is Ready"
    elif now_ns - node.ready_since_ns < SETTLE_NS:
        yield f"node {node.name} has been Ready for less than {human_duration(SETTLE_NS)}"
    if node.heartbeat_ns is None:
        yield f"node {node.name} has no heartbeat that was read: no lease and no lastHeartbeatTime"
    elif now_ns - node.heartbeat_ns >= heartbeat_ns:
        age = human_duration(now_ns - node.heartbeat_ns)
        yield f"the last heartbeat of node {node.name} is {age} old ({node.heartbeat_field})"
    for key in (wellknown.TAINT_NODE_NOT_READY, wellknown.TAINT_NODE_UNREACHABLE):
        if node.has_taint(key):
            yield f"node {node.name} still has the taint {key}"


def _pod_refusals(pod: Pod, class_: Classification, rules: StatusRules) -> Iterator[str]:
    status = pod.status
    if not pod.uid or not pod.metadata.resource_version:
        yield "without its uid and resourceVersion the patch would have no precondition"
    if pod.metadata.deletion_timestamp is not None:
        yield "it is terminating"
    if status.phase != "Running":
        yield f"its phase is {status.phase or 'not set'}"
    if is_mirror_pod(pod):
        yield "it is a mirror pod: only its kubelet knows it"
    containers_ready = conditions.containers_ready_condition(pod.spec, status, rules)
    stored = status.condition(conditions.CONTAINERS_READY)
    both = {containers_ready.status, "" if stored is None else stored.status}
    if both != {wellknown.TRUE}:
        yield "its containers are not all ready"
    for name in _not_running(pod, rules):
        yield f"container {name} is not reported as running and ready"
    if class_.expected is None or class_.expected.status != wellknown.TRUE:
        yield "its readiness gates are not all True"
    ready = status.condition(conditions.READY)
    if ready is None or (ready.status, ready.reason, ready.message) != (wellknown.FALSE, "", ""):
        yield "its Ready condition was not made by the node controller"


def _not_running(pod: Pod, rules: StatusRules) -> Iterator[str]:
    """Regular containers and sidecars that are not reported as ready and running."""
    sidecars = [c for c in pod.spec.init_containers if rules.sidecars and conditions.is_sidecar(c)]
    status = pod.status
    reported = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    fit = {s.name for s in reported if s.ready and s.state.running is not None}
    return (c.name for c in (*sidecars, *pod.spec.containers) if c.name not in fit)


def _first_seen_refusals(pod: Pod, first_seen: FirstSeen | None, now_ns: int) -> Iterator[str]:
    if first_seen is None:
        yield "nothing proves since when it has been so"
        return
    if now_ns - first_seen.first_seen_ns < SETTLE_NS:
        yield f"it is not proven to have been so for {human_duration(SETTLE_NS)}"
    if first_seen.resource_version not in ("", pod.metadata.resource_version):
        yield "its status changed meanwhile: a kubelet at work repairs it by itself"
