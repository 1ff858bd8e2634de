"""Explains a pod: where it runs, what its node's state means for it, and when it is evicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_mirror_pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import FALSE
from kubectl_nodelife.kube.workload import DaemonSet, Event
from kubectl_nodelife.kubelet.conditions import READY_TO_START_CONTAINERS
from kubectl_nodelife.outlook.endpoints import endpoint_sections
from kubectl_nodelife.outlook.eviction_forecast import (
    ClassicEviction,
    EvictionTimer,
    is_left_out,
    key_of,
    termination_grace_seconds,
)
from kubectl_nodelife.outlook.explain import DelayTerm, ExplainedQuestion, quoted, unless_of
from kubectl_nodelife.outlook.explain_node import (
    coming_taint,
    eviction_effect,
    eviction_terms,
    how_it_works,
    is_known_absent,
    overdue_sentence,
    what_can_hold_it,
    why_terminating,
)
from kubectl_nodelife.outlook.node import OVERDUE_NS, NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import delete_pod, in_words, node_verdict
from kubectl_nodelife.outlook.zone import zone_of
from kubectl_nodelife.workloads.pending import NO_ORIGIN, Origin, pending_reason
from kubectl_nodelife.workloads.scheduling import volumes_elsewhere

_MIRRORS: Final = (
    "It shows a static pod: its kubelet makes the object anew each time that it is deleted, and the"
    " container runs on. Give its manifest a toleration for that taint."
)
_MOST_VOLUMES: Final = 8
_IF_LOST: Final = "When would it be evicted if its node were lost?"
_NOT_YET: Final = "Why is it not evicted yet, and when will it be?"


def pod_sections(
    outlook: Outlook, pod: Pod, *, services_read: bool = False
) -> Iterator[ExplainedQuestion]:
    """The sections about one pod. `services_read`: if only to find none."""
    node = outlook.cache.node(pod.spec.node_name) if pod.spec.node_name else None
    yield ExplainedQuestion("Where is it, and how is it?", list(_where(outlook, pod, node)))
    yield from starting_section(outlook.cache, pod)
    if pod.metadata.deletion_timestamp is not None:
        because = why_terminating(outlook, node, pod)
        sentences = [because[0].upper() + because[1:], *what_can_hold_it(outlook, node, pod)]
        yield ExplainedQuestion("Why is it Terminating?", sentences, answer=sentences[0])
    elif pod.status.phase in TERMINAL_PHASES:
        yield _finished(pod)
    elif not pod.spec.node_name:
        yield _pending(outlook, pod)
    elif node is not None:
        yield from _eviction(outlook, pod, node)
    if node is not None:
        lost = outlook.node(node).ready in ("False", "Unknown")
        yield from endpoint_sections(outlook.cache, [pod], lost=lost, services_read=services_read)


def starting_section(cache: Cache, pod: Pod) -> Iterator[ExplainedQuestion]:
    """Why a pod that is bound does not run yet, where claims, other pods or Events show it."""
    bound, going = pod.spec.node_name, pod.metadata.deletion_timestamp is not None
    if pod.status.phase != "Pending" or not bound or going:
        return
    there = [other for other in cache.pods.values() if other.namespace == pod.namespace]
    elsewhere = volumes_elsewhere(there, [pod], cache.get).get(pod.uid)
    sentences = []
    if elsewhere is not None:
        holder = elsewhere.holder
        leaves = ", which is being deleted" * (holder.metadata.deletion_timestamp is not None)
        sentences.append(
            f"It waits for the volume of claim {elsewhere.claim}, which is attached to"
            f" {holder.spec.node_name}: pod {holder.name} there has it{leaves}."
        )
    events = [e for e in cache.all("Event") if isinstance(e, Event) and _warns_of(e, pod)]
    events.sort(key=lambda event: int(event.last_timestamp or event.event_time or 0))
    sentences += [f"Its last Event: {e.reason}: {e.message}" for e in events[-1:]]
    sandbox = pod.status.condition(READY_TO_START_CONTAINERS)
    if sandbox is not None and sandbox.status == FALSE and sandbox.reason:  # since v1.37
        sentences.append(f"Its sandbox is not ready ({sandbox.reason}){quoted(sandbox.message)}.")
    if sentences:
        yield ExplainedQuestion("Why does it not start?", sentences, answer=sentences[0])


def _warns_of(event: Event, pod: Pod) -> bool:
    about = event.involved_object
    is_of_it = (about.kind, about.namespace, about.name) == ("Pod", *pod.key)
    return is_of_it and event.type == "Warning"


def _pending(outlook: Outlook, pod: Pod) -> ExplainedQuestion:
    """Why it has no node: by our own filters, the smallest change, then the scheduler's words."""
    cache, owner, origin = outlook.cache, controller_of(pod.metadata), NO_ORIGIN
    daemon_set = cache.get("DaemonSet", (pod.namespace, owner.name)) if owner is not None else None
    if isinstance(daemon_set, DaemonSet):
        spec = daemon_set.spec.template.get("spec") or {}
        namespace = cache.get("Namespace", ("", pod.namespace))
        annotations = namespace.metadata.annotations if namespace is not None else None
        origin = Origin(f"DaemonSet {daemon_set.name}", spec.get("nodeSelector") or {}, annotations)
    reason = pending_reason(pod, cache.nodes, cache.pods_on, origin)
    sentences = ["It waits for the scheduler."]
    if reason is not None:
        sentences = [f"{str(reason)[0].upper()}{str(reason)[1:]}."]
        if reason.obstacle.change:
            sentences.append(f"The smallest change: {reason.obstacle.change}.")
    if pod.status.nominated_node_name:
        node = pod.status.nominated_node_name
        sentences.append(f"Room is being made for it on {node}: it preempts pods there.")
    scheduled = pod.status.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.message:
        sentences.append(f"The scheduler says: {scheduled.message}")
    return ExplainedQuestion("Why is it Pending?", sentences, answer=sentences[0])


def _finished(pod: Pod) -> ExplainedQuestion:
    """A pod whose containers have ended: nothing is evicted any more.

    Its owner no longer counts it: `FilterActivePods` of ReplicaSets and Jobs; a StatefulSet's
    controller deletes it and makes it again (`processReplica`). A DELETE takes it away at once
    (`CheckGracefulDelete` of a pod that has failed or succeeded).
    """
    status, owner = pod.status, controller_of(pod.metadata)
    reason = f", {status.reason}" if status.reason else ""
    how = "Its kubelet has ended it" if status.reason == "Evicted" else "It has finished"
    ended = f"{how} ({status.phase}{reason}): nothing of it runs any more."
    who = f"{owner.kind} {owner.name}" if owner is not None else ""
    match owner.kind if owner is not None else "":
        case "":
            replaced = "No controller owns it: nothing replaces it."
        case "StatefulSet":
            replaced = f"{who} deletes it and makes it again."
        case "DaemonSet":
            replaced = f"{who} deletes it and makes another, if its node shall run one."
        case "Job":
            replaced = f"{who} keeps it, and goes on by its own rules."
        case "Node":
            replaced = "Its kubelet starts it again, from its manifest."
        case _:
            replaced = f"{who} does not count it: it is replaced already."
    stays = "Its object stays until it is deleted, and then goes at once (grace 0)."
    answer = f"{ended} {replaced}"
    return ExplainedQuestion("What becomes of it?", [ended, replaced, stays], answer=answer)


def _eviction(outlook: Outlook, pod: Pod, node: Node) -> Iterator[ExplainedQuestion]:
    """When it is evicted, or why it is not."""
    of_node = outlook.node(node)
    timer = next((t for t in of_node.timers if key_of(t) == pod.key), None)
    taints = no_execute_taints(node.spec.taints)
    if timer is not None:
        left_s = max(0, timer.comes_ns - outlook.now_ns) / SECOND_NS
        what = outlook.forecast(pod, taints)
        terms = [DelayTerm("until its deletion", left_s, left_s, what.because)]
        sentences = [
            "It will be evicted: the timer was fixed when the taint was seen; neither a longer nor "
            "a shorter toleration changes it now, only losing the taint does."
        ]
        if of_node.leaving:
            sentences.append(f"Of its node, {of_node.leaving}.")
        if of_node.ready == "Unknown":
            sentences += _for_ever(outlook, pod)
        else:
            terms.append(_grace_term(pod))
        unless = unless_of(of_node)
        yield ExplainedQuestion("When will it be evicted?", sentences, terms, unless=unless)
        return
    if of_node.classic is not None:
        yield from _without_taints(outlook, pod, of_node, of_node.classic)
        return
    late = next((t for t in of_node.overdue if key_of(t) == pod.key), None)
    if late is not None:
        yield _overdue(outlook, pod, taints, late)
    elif of_node.taint_overdue_ns is not None:
        upcoming = node_verdict(of_node, outlook.now_ns).next
        assert upcoming is not None
        what = outlook.forecast(pod, coming_taint(of_node))
        after = "it stays even then" if what.after_seconds is None else "only then its seconds run"
        sentences = [overdue_sentence(upcoming), f"{after[0].upper()}{after[1:]}: {what.because}."]
        yield ExplainedQuestion(_NOT_YET, sentences, answer=sentences[0])
    elif taints:
        names = ", ".join(map(str, taints))
        sentences = [f"Its node has {names}, and {outlook.forecast(pod, taints).because}."]
        yield ExplainedQuestion("Why is it not evicted?", sentences)
    else:
        yield from _not_tainted(outlook, pod, of_node)


def _overdue(
    outlook: Outlook, pod: Pod, taints: Sequence[Taint], late: EvictionTimer
) -> ExplainedQuestion:
    """A pod whose time is over, and that is not deleted."""
    why = outlook.forecast(pod, taints).because
    names = ", ".join(str(t) for t in taints)
    late_ns = outlook.now_ns - late.due_ns
    if late_ns <= OVERDUE_NS:
        sentence = f"It is due for deletion now: its node has {names}, and {why}."
    else:
        action = delete_pod(late, None, late.due_ns, late_ns)
        sentence = f"{overdue_sentence(action)} Its node has {names}, and {why}."
    loop = [_MIRRORS] * is_mirror_pod(pod)
    return ExplainedQuestion(_NOT_YET, [sentence, *loop], answer=sentence)


def _without_taints(
    outlook: Outlook, pod: Pod, of_node: NodeOutlook, classic: ClassicEviction
) -> Iterator[ExplainedQuestion]:
    """The eviction of v1.16 that counts pod-eviction-timeout and no toleration."""
    fate = eviction_effect(pod, outlook.cache, of_node, classic)
    sentences = [f"It {fate}.", how_it_works(of_node, classic)]
    taints = no_execute_taints(of_node.node.spec.taints)
    if taints and not outlook.settings.taint_manager:
        names = ", ".join(str(t) for t in taints)
        sentences.append(
            f"Its node has {names}, on which no controller acts: enable-taint-manager=false."
        )
    terms: list[DelayTerm] = []
    if not classic.evicted and not is_left_out(pod, outlook.cache):
        zone = zone_of(outlook, of_node)
        terms = eviction_terms(outlook, of_node, zone)
    question = _NOT_YET if of_node.ready in ("False", "Unknown") else _IF_LOST
    yield ExplainedQuestion(question, sentences, [*terms, _grace_term(pod)] if terms else [])


def _not_tainted(outlook: Outlook, pod: Pod, of_node: NodeOutlook) -> Iterator[ExplainedQuestion]:
    what = outlook.forecast(pod, coming_taint(of_node))
    zone = zone_of(outlook, of_node)
    if what.after_seconds is None:
        stays = "If the node is lost it stays bound to it, marked not ready."
        never = f"It never is while its node object exists: {what.because}."
        yield ExplainedQuestion(_IF_LOST, [f"{never} {stays}"])
        return
    terms = eviction_terms(outlook, of_node, zone)
    if not terms:
        question = _IF_LOST
        sentence = f"No Lease was read, so only the last term is known: {what.because}."
        if of_node.ready == "Unknown":
            question = "When will it be evicted?"
            sentence = f"Its node is lost and has no NoExecute taint yet; {what.because}."
        yield ExplainedQuestion(question, [sentence, *_for_ever(outlook, pod)])
        return
    question = _IF_LOST if of_node.ready == "True" else _NOT_YET
    seconds = float(what.after_seconds or 0)
    terms.append(DelayTerm("tolerated after the taint", seconds, seconds, what.because))
    sentences = ["These times add up, term by term, to its deletion."]
    if of_node.ready == "False":
        terms.append(_grace_term(pod))  # its kubelet reports, and ends the pod
    else:
        sentences += _for_ever(outlook, pod)
    yield ExplainedQuestion(question, sentences, terms)


def _for_ever(outlook: Outlook, pod: Pod) -> Iterator[str]:
    """Sentences on a pod that is deleted while its kubelet does not report."""
    ways = "its kubelet is back, its node object is deleted"
    if outlook.settings.gate("NodeOutOfServiceVolumeDetach"):
        ways += ", its node is tainted out-of-service"
    yield f"Then it is Terminating for ever, until {ways} or it is force-deleted."
    owner = controller_of(pod.metadata)
    if owner is not None and owner.kind == "StatefulSet":
        yield (
            f"StatefulSet {owner.name} keeps to at most one {pod.name}: it makes no other as long "
            "as this object is there."
        )


def _grace_term(pod: Pod) -> DelayTerm:
    grace = float(termination_grace_seconds(pod))
    return DelayTerm("terminating", 0.0, grace, "terminationGracePeriodSeconds")


def _containers(pod: Pod) -> Iterator[str]:
    """The containers that wait or have been restarted."""
    status = pod.status
    for reported in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = reported.state.waiting
        times = f"restarted {reported.restart_count} times" if reported.restart_count else ""
        if waiting is not None:
            again = f", {times}" if times else ""
            yield f"Container {reported.name} waits ({waiting.reason or 'no reason'}){again}."
        elif times:
            yield f"Container {reported.name} was {times}."


def volume_health(pod: Pod) -> Iterator[str]:
    """A sentence on each volume that its CSI driver calls unhealthy (`status.volumeHealth`, since
    v1.37 by the gate CSIVolumeHealth, KEP-1432). No controller acts on it. The driver's message may
    hold anything, and is not told."""
    for volume in pod.status.volume_health[:_MOST_VOLUMES]:
        said = [c.status + (f" ({c.reason})" if c.reason else "") for c in volume.health_conditions]
        if said:
            at = volume.last_transition_time
            since = f" since {format_time(at)}" if at is not None else ""
            yield f"Its volume {volume.name} is not healthy{since}: {'; '.join(said)}."


def _where(outlook: Outlook, pod: Pod, node: Node | None) -> Iterator[str]:
    owner = controller_of(pod.metadata)
    owned = f"controlled by {owner.kind} {owner.name}" if owner else "not controlled by anything"
    yield f"Phase {pod.status.phase or 'unknown'}, {owned}."
    ready = pod.status.condition("Ready")
    if ready is not None:
        reason = f" ({ready.reason})" if ready.reason else ""
        yield f"Ready is {ready.status}{reason}."
    yield from _containers(pod)
    yield from volume_health(pod)
    if pod.metadata.finalizers:
        finalizers = ", ".join(pod.metadata.finalizers)
        yield f"Finalizers keep its object when it is deleted: {finalizers}."
    if not pod.spec.node_name:
        yield "It has no node yet."
        return
    if node is None:
        known = is_known_absent(outlook, pod.spec.node_name)
        read = "but no such node was read" if known else "of which nothing was read"
        yield f"It is bound to {pod.spec.node_name}, {read}."
        return
    of_node = outlook.node(node)
    verdict = node_verdict(of_node, outlook.now_ns)
    yield f"Its node {node.name} is {in_words(verdict.state)}: {verdict.because}."
    if of_node.message:
        yield f"Its node says: {of_node.message}"
