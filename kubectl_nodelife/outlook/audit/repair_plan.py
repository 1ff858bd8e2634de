"""Plans which request `repair` would send about each finding, or says why it would send none.

Nothing is sent from here: a step holds the action, which `repair --yes` has carried out. A request
carries the uid and the resourceVersion that were judged: if the object has changed since, the API
server answers with a conflict. What cannot be proven is refused. Three kinds of requests are made:

- Ready, set to False by the node controller, is restored once the node is back (`undo_mark`);
- a lost pod is deleted for good, if its node is gone or the operator says that it is fenced;
- the object that is left of an evicted pod is deleted.

And one only if its class is asked for by name: a pod that looks ready on a lost node is set not
ready, as the node controller would have done.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from kubectl_nodelife.engine.actions import DeletePod, SetPodReady
from kubectl_nodelife.engine.calls import Request, request_of
from kubectl_nodelife.kube.meta import Time, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import FALSE, TRUE, UNKNOWN
from kubectl_nodelife.kubelet.conditions import TERMINAL_PHASES
from kubectl_nodelife.kubelet.pods import is_mirror_pod
from kubectl_nodelife.outlook.audit import CAP, notes
from kubectl_nodelife.outlook.audit.classify import (
    GATES,
    LAGGING,
    MARKED_NODE_DOWN,
    RECOVERING,
    STALE_READY,
    STUCK_NOT_READY,
    Classification,
)
from kubectl_nodelife.outlook.audit.findings import AuditContext, PodFinding
from kubectl_nodelife.outlook.audit.undo_mark import (
    PER_NODE_AND_SECOND,
    FirstSeen,
    RepairLimits,
    refusals,
    times_of_one_look,
)
from kubectl_nodelife.workloads.force_advice import AFTER_POWER_OFF
from kubectl_nodelife.workloads.node_readiness import NodeReadiness

ORPHAN_WAIT_NS: Final = 120 * SECOND_NS
"""Pod garbage collection is given so long to do its work."""

REPAIR: Final = "repair"
"""In whose name the requests are sent."""


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
    """The operator's choice: classes by name, and nodes of which he knows that they are off."""

    classes: frozenset[str] = frozenset()
    fenced: frozenset[str] = frozenset()
    cap: int = CAP


class RepairCase(msgspec.Struct, frozen=True):
    """All that there is to know about one finding."""

    finding: PodFinding
    node: NodeReadiness
    context: AuditContext
    wishes: RepairOptions
    sighting: FirstSeen | None

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.finding.pod


Planned = SetPodReady | DeletePod | tuple[str, ...]
Way = Callable[[RepairCase], Planned]


def plan(
    findings: Iterable[PodFinding],
    health: Mapping[str, NodeReadiness],
    context: AuditContext,
    wishes: RepairOptions,
    sightings: Mapping[str, FirstSeen] | None = None,
) -> list[RepairStep]:
    """A step for each finding, in their order. `sightings`, by pod uid: since when a pod has been
    seen in its class; without one the age is what the times in this one look prove."""
    steps = []
    of_node: Counter[str] = Counter()
    for finding in findings:
        node = health.get(finding.pod.spec.node_name) or NodeReadiness(
            name=finding.pod.spec.node_name, exists=False
        )
        sighting = (sightings or {}).get(finding.pod.uid)
        if sighting is None:
            sighting = times_of_one_look(finding.pod, node)
        outcome = _WAYS[finding.name](RepairCase(finding, node, context, wishes, sighting))
        if isinstance(outcome, tuple):
            steps.append(RepairStep(finding, None, outcome))
        elif sum(of_node.values()) >= wishes.cap:
            steps.append(
                RepairStep(finding, None, (f"one run sends at most {wishes.cap} requests",))
            )
        else:
            wait_s = of_node[node.name] // PER_NODE_AND_SECOND
            of_node[node.name] += 1
            steps.append(RepairStep(finding, outcome, (), wait_s))
    return steps


def _undo_the_mark(case: RepairCase) -> Planned:
    context = case.context
    against = refusals(
        case.pod,
        case.node,
        case.finding.classification or Classification(case.finding.name),
        case.sighting,
        context.rules,
        RepairLimits(context.settle_ns, context.release.heartbeat_ns),
        context.now_ns,
    )
    return against or _set_ready(case, TRUE)


def _make_the_mark(case: RepairCase) -> Planned:
    """The write that the node controller left out (`MarkPodsNotReady`), or why it is not made."""
    pod, node, now_ns = case.pod, case.node, case.context.now_ns
    if STALE_READY not in case.wishes.classes:
        return (f"only reported; ask for it with --class {STALE_READY}",)
    if node.ready != UNKNOWN or pod.status.phase in TERMINAL_PHASES or is_mirror_pod(pod):
        return ("only what runs on a node of which nothing is heard is marked, as upstream",)
    if node.heartbeat_ns is None:
        return (f"node {node.name} has no heartbeat that was read",)
    if now_ns - node.heartbeat_ns < case.context.release.heartbeat_ns:
        return (f"the heartbeat of node {node.name} is young",)
    return _with_preconditions(pod) or _set_ready(case, FALSE)


def _release_from_dead_node(case: RepairCase) -> Planned:
    advice, node, pod = case.finding.advice, case.node, case.pod
    if advice is None or advice.force_delete != AFTER_POWER_OFF:
        return (advice.sentence if advice is not None else f"node {node.name} was not read",)
    if pod.metadata.finalizers:
        return (_kept_by_finalizers(pod),)
    if node.name not in case.wishes.fenced:
        return (f"nothing proves that node {node.name} is off; say so with --fenced {node.name}",)
    return _with_preconditions(pod) or _deletion(case, grace_s=0)


def _delete_orphan(case: RepairCase) -> Planned:
    pod, deleted_ns = case.pod, case.pod.metadata.deletion_timestamp
    if pod.metadata.finalizers:
        return (_kept_by_finalizers(pod),)
    if deleted_ns is None or case.context.now_ns - deleted_ns < ORPHAN_WAIT_NS:
        return ("pod garbage collection is given 2 minutes, and nothing proves that it had them",)
    return _with_preconditions(pod) or _deletion(case, grace_s=0)


def _delete_leftover(case: RepairCase) -> Planned:
    pod = case.pod
    owner = controller_of(pod.metadata)
    if owner is not None and owner.kind == "Job":
        return (f"Job {owner.name} counts it and removes it by its own rules",)
    if pod.metadata.finalizers:
        return (_kept_by_finalizers(pod),)
    alive = [s.name for s in pod.status.container_statuses or () if s.state.running is not None]
    if alive:
        return (f"container {alive[0]} is reported as running",)
    return _with_preconditions(pod) or _deletion(case, grace_s=None)


def _never_on_a_ready_node(case: RepairCase) -> Planned:
    advice = case.finding.advice
    told = f"; {advice.sentence}" if advice is not None else ""
    return (f"its node is called Ready: forced, its containers may stay{told}",)


def _nothing(sentence: str) -> Way:
    return lambda case: (sentence,)


_WAYS: Final[dict[str, Way]] = {
    STUCK_NOT_READY: _undo_the_mark,
    STALE_READY: _make_the_mark,
    notes.TERMINATING_DEAD_NODE: _release_from_dead_node,
    notes.ORPHANED: _delete_orphan,
    notes.EVICTED_LEFTOVER: _delete_leftover,
    notes.TERMINATING_FINALIZER: _nothing("only the owner of a finalizer may take it away"),
    notes.TERMINATING_SLOW: _never_on_a_ready_node,
    RECOVERING: _nothing("its kubelet is given the settle time to undo the mark by itself"),
    MARKED_NODE_DOWN: _nothing("the mark is right while the node is down"),
    GATES: _nothing("only the owner of the gate's condition may set it"),
    LAGGING: _nothing("only its kubelet knows which of the two is true"),
    notes.DAEMONSET_NEVER_EVICTED: _nothing("nothing is wrong with the pod, but with its node"),
    notes.NEVER_EVICTED: _nothing("nothing is wrong with the pod, but with its node"),
}


def _kept_by_finalizers(pod: Pod) -> str:
    return f"its finalizers would keep it: {', '.join(pod.metadata.finalizers)}"


def _with_preconditions(pod: Pod) -> tuple[str, ...]:
    """The refusal of a request that could hit another object than the one judged."""
    if pod.uid and pod.metadata.resource_version:
        return ()
    return ("without its uid and resourceVersion the request would have no precondition",)


def _set_ready(case: RepairCase, status: str) -> SetPodReady:
    pod = case.pod
    return SetPodReady(
        controller=REPAIR,
        because=case.finding.because,
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        status=status,
        at=Time(case.context.now_ns),
    )


def _deletion(case: RepairCase, grace_s: int | None) -> DeletePod:
    pod = case.pod
    return DeletePod(
        controller=REPAIR,
        because=case.finding.because,
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        grace_period_seconds=grace_s,
        if_unchanged=True,
    )


def _command(pod: Pod, request: Request) -> str:
    text = shlex.quote(json.dumps(request.body, separators=(",", ":")))
    if request.method == "DELETE":
        return f"echo {text} | kubectl delete --raw {request.path} -f -"
    return f"kubectl patch pod -n {pod.namespace} {pod.name} --subresource=status -p {text}"
