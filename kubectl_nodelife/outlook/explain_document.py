"""`explain`: what happens to an object, when, why, and why not yet, as a document.

A node may be explained that pods are bound to, or that Events tell of, and of which there is no
Node object. A kubelet registers once in its life (`registerWithAPIServer`, registrationCompleted):
where somebody deletes the Node of a machine that runs on, its containers run, its status updates
fail, and pod-gc deletes its pods 40 s after it saw the Node gone, in passes that are 20 s apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.podgc import QUARANTINE_NS
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import parse_taint
from kubectl_nodelife.kube.times import SECOND_NS, format_time, human_duration
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.outlook.audit.audit_pods import (
    context_of,
    missing_node,
    pod_findings,
    waits_for,
)
from kubectl_nodelife.outlook.audit.classes import WRONG
from kubectl_nodelife.outlook.audit.document import with_late_taints
from kubectl_nodelife.outlook.audit.findings import PodFinding
from kubectl_nodelife.outlook.daemonset.summary import daemon_sets, set_sections, summarize
from kubectl_nodelife.outlook.endpoints import endpoint_sections
from kubectl_nodelife.outlook.explain import ExplainedQuestion, total
from kubectl_nodelife.outlook.explain_node import node_sections, taint_sections
from kubectl_nodelife.outlook.explain_pod import pod_sections, starting_section
from kubectl_nodelife.outlook.explain_who import who_section
from kubectl_nodelife.outlook.node import NodeOutlook, renewed_ns
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.zone import find_zone, zone_names, zone_sections
from kubectl_nodelife.workloads.force_advice import NodeReadiness, node_readiness, release_of

if TYPE_CHECKING:
    from kubectl_nodelife.drain.snapshot import PlanSnapshot

_GC_PERIOD_NS: Final = 20 * SECOND_NS
_DELETED: Final = ("RemovingNode", "DeletingNode")


def absent_sections(view: ClusterView, name: str) -> list[ExplainedQuestion]:
    """What is known of a node without an object; empty where nothing speaks of it."""
    pods = view.cache.pods_on(name)
    told = _events_of(view, name)
    if not pods and not told:
        return []
    if not view.is_listed("Node", name):
        many = counted(len(pods), "pod")
        sentence = f"of no list that was read: whether it exists is not known; {many} bound to it."
        return [ExplainedQuestion("What state is it in?", [sentence])]
    gone_ns = _deleted_ns(told)
    state = [f"gone: no such Node{_when(view, told, gone_ns)}.", *_kubelet(view, name)]
    answer = _pods_go(view, pods, gone_ns)
    return [
        ExplainedQuestion("What state is it in?", state),
        ExplainedQuestion("What becomes of its pods?", [answer, *map(_named, pods)], answer=answer),
        ExplainedQuestion("How does it come back?", [_BACK]),
    ]


def orphan_section(view: ClusterView, pod: Pod) -> Iterator[ExplainedQuestion]:
    """When pod-gc deletes a pod whose node is known to be gone; nothing of one that terminates."""
    name = pod.spec.node_name
    if not name or view.cache.node(name) is not None or pod.metadata.deletion_timestamp is not None:
        return
    if not view.is_listed("Node", name):
        return
    gone_ns = _deleted_ns(told := _events_of(view, name))
    answer = _pods_go(view, [pod], gone_ns).replace("1 pod is bound to it and goes", "It goes")
    sentences = [f"Its node {name} is gone: no such Node{_when(view, told, gone_ns)}.", answer]
    yield ExplainedQuestion("When is it deleted?", sentences, answer=" ".join(sentences))


_BACK: Final = (
    "A kubelet registers once in its life: restart the kubelet on that machine, and it makes its "
    "Node again. Until then the containers run on, whatever becomes of the pods' objects."
)


def _events_of(view: ClusterView, name: str) -> list[Event]:
    events = (obj for obj in view.objects if isinstance(obj, Event))
    about = ((event, event.involved_object) for event in events)
    return [event for event, obj in about if (obj.kind, obj.name) == ("Node", name)]


def _at_ns(event: Event) -> int:
    at = event.last_timestamp or event.event_time
    return 0 if at is None else int(at)


def _deleted_ns(told: Sequence[Event]) -> int | None:
    """When the Node was deleted, as the Events tell; None where they do not."""
    gone = [_at_ns(event) for event in told if event.reason in _DELETED]
    return min((at_ns for at_ns in gone if at_ns), default=None)


def _when(view: ClusterView, told: Sequence[Event], gone_ns: int | None) -> str:
    if gone_ns is None:
        return ""
    reasons = ", ".join(sorted({e.reason for e in told if e.reason in _DELETED}))
    ago = human_duration(max(0, view.now_ns - gone_ns))
    why = next((e.message for e in told if e.reason == "DeletingNode"), "")
    said = f": {why}" if why else ""
    return f"; deleted at {format_time(gone_ns)}, {ago} ago (Events {reasons}{said})"


def _pods_go(view: ClusterView, pods: Sequence[Pod], gone_ns: int | None) -> str:
    if not pods:
        return "No pod is bound to it."
    many, go = counted(len(pods), "pod"), "goes" if len(pods) == 1 else "go"
    are = "is" if len(pods) == 1 else "are"
    if gone_ns is None:
        wait = "40 s after it saw the Node gone, in a pass each 20 s"
        return f"{many} {are} bound to it and {go} with pod-gc, {wait}."
    earliest_ns = gone_ns + QUARANTINE_NS
    latest_ns = earliest_ns + _GC_PERIOD_NS
    between = f"{format_time(earliest_ns)} and {format_time(latest_ns)}"
    if latest_ns + _GC_PERIOD_NS < view.now_ns:
        late = human_duration(view.now_ns - latest_ns)
        return (
            f"{many} {are} bound to it; pod-gc should have deleted them between {between}, "
            f"{late} ago: it does not work, or something refuses it."
        )
    return f"{many} {are} bound to it and {go} with pod-gc between about {between}."


def _kubelet(view: ClusterView, name: str) -> list[str]:
    at_ns = renewed_ns(view.cache, name, view.now_ns)
    if at_ns is None:
        return []
    ago = human_duration(max(0, view.now_ns - at_ns))
    return [f"Its Lease was renewed {ago} ago: its kubelet may run on, and restarting it helps."]


def _named(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}, phase {pod.status.phase or 'unknown'}."


_DOUBT: Final = "it depends on an unreadable object: what is said here is unknown, not decided"
_CHECK: Final = "check the name, and the namespace with -n"


class Explanation(msgspec.Struct, frozen=True):
    """All that is said of one object; of a node with a `taint`, where one is given."""

    kind: str
    namespace: str
    name: str
    head: dict[str, Any]
    sections: list[ExplainedQuestion]
    warnings: list[str]
    taint: str = ""

    def document(self) -> dict[str, Any]:
        """The explanation as a JSON document."""
        subject = {"kind": self.kind, "name": self.name}
        if self.namespace:
            subject["namespace"] = self.namespace
        return document(
            "Explanation",
            object=subject,
            **self.head,
            answers=[_section(s) for s in self.sections],
            warnings=self.warnings,
        )


def explanation_of(
    view: ClusterView, kind: str, namespace: str, name: str, taint: str = ""
) -> Explanation:
    """The explanation of one object, or of what a taint would do to a node.

    Raises Failed where the cluster does not have the object, BadInput for what is no taint, and for
    a kind that is not explained.
    """
    if kind not in _SECTIONS:
        raise BadInput(f"{kind[:40]!r} is not explained", remedy=f"give {', '.join(_SECTIONS)}")
    doubts = [_DOUBT] * view.outlook.cache.is_quarantined(kind, (namespace, name))
    made = _tainted(view, name, taint) if taint else _SECTIONS[kind](view, namespace, name)
    return Explanation(
        kind=kind,
        namespace=namespace,
        name=name,
        head=view.head,
        sections=list(made),
        warnings=[*doubts, *view.warnings],
        taint=taint,
    )


def _node(view: ClusterView, namespace: str, name: str) -> Iterator[ExplainedQuestion]:
    if view.cache.node(name) is None and (absent := absent_sections(view, name)):
        yield from absent
        return
    of_node, services_read = _of_node(view, name), _services_read(view)
    pods_read = "Pod" not in view.unread
    state, *sections = node_sections(
        view.outlook, of_node, pods_read=pods_read, services_read=services_read
    )
    yield state
    yield _who(view, of_node.node, of_node.pods)
    yield from sections
    if not view.watched:  # a daemon does not watch webhooks
        from kubectl_nodelife.outlook.explain_drain import webhook_section

        yield webhook_section(plan_snapshot(view), list(of_node.pods))


def _who(view: ClusterView, node: Node, pods: Collection[Pod]) -> ExplainedQuestion:
    events = [obj for obj in view.objects if isinstance(obj, Event)]
    return who_section(node, pods, events, view.now_ns)


def _services_read(view: ClusterView) -> bool:
    """True if Services were read; a daemon does not watch them."""
    return not view.watched and "Service" not in view.unread


def _tainted(view: ClusterView, name: str, text: str) -> Iterator[ExplainedQuestion]:
    try:
        taint = parse_taint(text)
    except ValueError as error:
        raise BadInput(str(error), on="--taint") from None
    pods_read = "Pod" not in view.unread
    return taint_sections(view.outlook, _of_node(view, name), taint, pods_read=pods_read)


def _of_node(view: ClusterView, name: str) -> NodeOutlook:
    node = view.outlook.cache.node(name)
    if node is None:
        raise NotFound("nodes", name, among=view.outlook.cache.nodes)
    return view.outlook.node(node)


def _zone(view: ClusterView, namespace: str, name: str) -> Iterable[ExplainedQuestion]:
    zone = find_zone(view.outlook, name)
    if zone is None:
        names = ", ".join(zone_names(view.outlook)) or "no zone"
        raise NotFound("zones", name, remedy=f"there is {names}")
    return zone_sections(view.outlook, zone)


def _pod(view: ClusterView, namespace: str, name: str) -> Iterator[ExplainedQuestion]:
    from kubectl_nodelife.outlook.explain_drain import drain_sections

    pod = view.outlook.cache.pod(namespace, name)
    if pod is None:
        pods = ("/".join(key) for key in view.outlook.cache.pods)
        raise NotFound("pods", f"{namespace}/{name}", remedy=_CHECK, among=pods)
    yield from pod_sections(view.outlook, pod, services_read=_services_read(view))
    yield from orphan_section(view, pod)
    yield finding_section(view, pod)
    if not view.watched:  # a daemon does not watch what these depend on
        yield from drain_sections(plan_snapshot(view), pod)


def _daemon_set(view: ClusterView, namespace: str, name: str) -> Iterable[ExplainedQuestion]:
    sets = daemon_sets(view, namespace, name)()
    if (namespace, name) not in sets.set_keys(namespace):
        names = (f"{obj.namespace}/{obj.name}" for obj in view.cache.all("DaemonSet"))
        raise NotFound("daemonsets.apps", f"{namespace}/{name}", remedy=_CHECK, among=names)
    return set_sections(sets, summarize(sets, (namespace, name)))


_SECTIONS: Final[dict[str, Callable[[ClusterView, str, str], Iterable[ExplainedQuestion]]]] = {
    "Node": _node,
    "Zone": _zone,
    "Pod": _pod,
    "DaemonSet": _daemon_set,
}


def plan_snapshot(view: ClusterView) -> PlanSnapshot:
    """The view as the planner takes it."""
    from kubectl_nodelife.drain.snapshot import PlanSnapshot

    kinds = frozenset(kind.name for kind in KINDS) - view.unread.keys()
    release = release_of(view.settings)
    return PlanSnapshot(view.cache, view.now_ns, kinds, view.unreadable, release, view.settings)


def continued(explanation: Explanation, view: ClusterView) -> Explanation:
    """A daemon's explanation of a pod or a node, with what depends on kinds that it does not watch.

    `view`: a look at the cluster of that moment, of a node at least itself and its pods.
    """
    more = _more_of_node if explanation.kind == "Node" else _more_of_pod
    sections = {section.question: section for section in explanation.sections}
    asked = more(view, explanation.namespace, explanation.name)
    sections |= {section.question: section for section in asked}
    return replace(
        explanation,
        sections=list(sections.values()),
        warnings=[*explanation.warnings, *view.warnings],
    )


def _more_of_pod(view: ClusterView, namespace: str, name: str) -> Iterator[ExplainedQuestion]:
    from kubectl_nodelife.outlook.explain_drain import drain_sections

    pod = view.cache.pod(namespace, name)
    if pod is None:
        return
    node = view.cache.node(pod.spec.node_name) if pod.spec.node_name else None
    if node is not None:
        yield from _endpoints(view, node, [pod])
    yield from starting_section(view.cache, pod)
    yield from drain_sections(plan_snapshot(view), pod)


def _more_of_node(view: ClusterView, namespace: str, name: str) -> Iterator[ExplainedQuestion]:
    from kubectl_nodelife.outlook.explain_drain import webhook_section

    node, pods = view.cache.node(name), view.cache.pods_on(name)
    if node is not None:
        yield from _endpoints(view, node, pods)
        yield _who(view, node, pods)
        yield webhook_section(plan_snapshot(view), pods)


def _endpoints(view: ClusterView, node: Node, pods: Sequence[Pod]) -> Iterator[ExplainedQuestion]:
    lost = view.outlook.node(node).ready in ("False", "Unknown")
    return endpoint_sections(view.cache, pods, lost=lost, services_read=_services_read(view))


def _section(section: ExplainedQuestion) -> dict[str, Any]:
    of_section: dict[str, Any] = {"question": section.question, "sentences": section.sentences}
    if section.answer:
        of_section["answer"] = section.answer
    if section.terms:
        of_section["terms"] = [
            {"what": t.what, **_between(t.low, t.high), "origin": t.origin} for t in section.terms
        ]
        of_section["total"] = _between(*total(section.terms))
    return of_section


def _between(*ends: float | None) -> dict[str, float | None]:
    low, high = (None if seconds is None else round(seconds, 3) for seconds in ends)
    return {"lowSeconds": low, "highSeconds": high}


def finding_section(view: ClusterView, pod: Pod) -> ExplainedQuestion:
    """The audit's findings on the pod: the class of each, its evidence, and what to do. What is
    wrong with a pod that is not going anyway is said first."""
    context = context_of(view.settings, view.now_ns)
    findings = list(with_late_taints(view, pod_findings(pod, _node_of(view, pod), context)))
    is_going = pod.metadata.deletion_timestamp is not None
    wrong = [f for f in findings if f.note.severity == WRONG and not is_going]
    first = [f"{f.name}: {f.because}. Do: {f.what_to_do}." for f in wrong[:1]]
    sentences = list(_about_findings(findings)) or [_without_finding(pod)]
    question = "Does the audit find something?"
    return ExplainedQuestion(question, sentences, answer="".join(first), goes_before=True)


def _about_findings(findings: Iterable[PodFinding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.name}: {finding.because}."
        yield f"It means: {finding.note.meaning}."
        yield f"Do: {finding.what_to_do}."
        if finding.known_issues:
            yield f"Known: {', '.join(finding.known_issues)}."


def _without_finding(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "Nothing yet: it is being deleted, and not more than a minute past its time."
    if lacking := _lacking(pod):
        return f"Not known: {lacking}."
    waits = waits_for(pod)
    but = f", but it waits ({waits[0]})" if waits else ""
    return f"No: its readiness fits its containers and its node{but}."


def _lacking(pod: Pod) -> str:
    """The part that the audit misses in a scheduled pod's status, as a sentence; else ""."""
    if not pod.spec.node_name:
        return ""
    ready, status = pod.status.condition("Ready"), pod.status
    if ready is None:
        return "it has no Ready condition"
    if not status.container_statuses:
        return f"it reports no container statuses to hold its Ready={ready.status} against"
    return ""


def _node_of(view: ClusterView, pod: Pod) -> NodeReadiness:
    """The health of the pod's node, as the audit takes it."""
    name = pod.spec.node_name
    node = view.cache.node(name) if name else None
    if node is None:
        return missing_node(pod, read=view.is_listed("Node", name))
    return node_readiness(node, renewed_ns(view.cache, name, view.now_ns))
