"""A node that pods are bound to, or that Events tell of, and of which there is no Node object.

A kubelet registers once in its life (`registerWithAPIServer`, registrationCompleted): where
somebody deletes the Node of a machine that runs on, its containers run, its status updates fail,
and pod-gc deletes its pods 40 s after it saw the Node gone, in passes that are 20 s apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubectl_nodelife.controllers.podgc import QUARANTINE_NS
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time, human_duration
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.outlook.view import ClusterView

_GC_PERIOD_NS: Final = 20 * SECOND_NS
_DELETED: Final = ("RemovingNode", "DeletingNode")
_REGISTERED: Final = "RegisteredNode"


def absent_sections(view: ClusterView, name: str) -> list[ExplainedQuestion]:
    """What is known of a node without an object; empty where nothing speaks of it."""
    pods = view.cache.pods_on(name)
    told = _events_of(view, name)
    if not pods and not told:
        return []
    if "Node" in view.unread or view.cache.is_quarantined("Node", ("", name)):
        many = counted(len(pods), "pod")
        sentence = f"of no list that was read: whether it exists is not known; {many} bound to it."
        return [ExplainedQuestion("What state is it in?", [sentence])]
    gone_ns = _deleted_ns(told)
    state = [f"gone: no such Node{_when(view, told, gone_ns)}."]
    answer = _pods_go(view, pods, gone_ns)
    return [
        ExplainedQuestion("What state is it in?", [*state, *_kubelet(view, name)]),
        ExplainedQuestion("What becomes of its pods?", [answer, *map(_named, pods)], answer=answer),
        ExplainedQuestion("How does it come back?", [_BACK]),
    ]


def orphan_section(view: ClusterView, pod: Pod) -> Iterator[ExplainedQuestion]:
    """When pod-gc deletes a pod whose node is known to be gone; nothing of one that terminates."""
    name = pod.spec.node_name
    if not name or view.cache.node(name) is not None or pod.metadata.deletion_timestamp is not None:
        return
    if "Node" in view.unread or view.cache.is_quarantined("Node", ("", name)):
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
    return [
        obj
        for obj in view.objects
        if isinstance(obj, Event)
        and obj.involved_object.kind == "Node"
        and obj.involved_object.name == name
    ]


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
    heartbeat = view.cache.heartbeat(name)
    renewal = heartbeat.renewal(view.now_ns) if heartbeat is not None else None
    if renewal is None or renewal[0] is None:
        return []
    ago = human_duration(max(0, view.now_ns - renewal[0]))
    return [f"Its Lease was renewed {ago} ago: its kubelet may run on, and restarting it helps."]


def _named(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}, phase {pod.status.phase or 'unknown'}."
