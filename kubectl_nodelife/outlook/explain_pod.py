"""Explains a pod: where it runs, what its node's state means for it, and when it is evicted."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.classic_eviction import ClassicEviction, is_left_out
from kubectl_nodelife.outlook.eviction_forecast import (
    LOST,
    EvictionForecast,
    eviction_forecast,
    termination_grace_seconds,
)
from kubectl_nodelife.outlook.explain import DelayTerm, ExplainedQuestion
from kubectl_nodelife.outlook.explain_classic import how_it_works, pod_fate
from kubectl_nodelife.outlook.explain_endpoints import endpoint_sections
from kubectl_nodelife.outlook.explain_node import eviction_terms
from kubectl_nodelife.outlook.node import NodeOutlook, Outlook
from kubectl_nodelife.outlook.node_verdict import node_verdict
from kubectl_nodelife.outlook.terminating import why_terminating
from kubectl_nodelife.outlook.zone import zones


def pod_sections(outlook: Outlook, pod: Pod) -> Iterator[ExplainedQuestion]:
    """The sections about one pod."""
    node = outlook.cache.node(pod.spec.node_name) if pod.spec.node_name else None
    yield ExplainedQuestion("Where is it, and how is it?", list(_where(outlook, pod, node)))
    if pod.metadata.deletion_timestamp is not None:
        because = why_terminating(outlook, node, pod)
        yield ExplainedQuestion("Why is it Terminating?", [because[0].upper() + because[1:]])
    elif node is not None:
        yield from _eviction(outlook, pod, node)
    if node is not None:
        lost = outlook.node(node).ready in ("False", "Unknown")
        yield from endpoint_sections(outlook.cache, [pod], lost=lost)


def _eviction(outlook: Outlook, pod: Pod, node: Node) -> Iterator[ExplainedQuestion]:
    """When it is evicted, or why it is not."""
    of_node = outlook.node(node)
    timer = next((t for t in of_node.timers if (t.namespace, t.name) == pod.key), None)
    operators = outlook.settings.gate("TaintTolerationComparisonOperators")
    taints = no_execute_taints(node.spec.taints)
    if timer is not None:
        left_s = max(0, timer.due_ns - outlook.now_ns) / SECOND_NS
        what = eviction_forecast(pod, taints, comparison_operators=operators)
        terms = [DelayTerm("until its deletion", left_s, left_s, what.because), _grace_term(pod)]
        sentence = (
            "It will be evicted: the timer was fixed when the taint was seen; neither a longer nor "
            "a shorter toleration changes it now, only losing the taint does."
        )
        yield ExplainedQuestion("When will it be evicted?", [sentence], terms)
        return
    if of_node.classic is not None:
        yield from _without_taints(outlook, pod, of_node, of_node.classic)
        return
    if taints:
        what = eviction_forecast(pod, taints, comparison_operators=operators)
        names = ", ".join(str(t) for t in taints)
        yield ExplainedQuestion(
            "Why is it not evicted?", [f"Its node has {names}, and {what.because}."]
        )
        return
    yield from _not_tainted(outlook, pod, of_node)


def _without_taints(
    outlook: Outlook, pod: Pod, of_node: NodeOutlook, classic: ClassicEviction
) -> Iterator[ExplainedQuestion]:
    """The eviction of v1.16 that counts pod-eviction-timeout and no toleration."""
    fate = pod_fate(pod, outlook.cache, of_node, classic)
    sentences = [f"It {fate}.", *how_it_works(of_node, classic)]
    taints = no_execute_taints(of_node.node.spec.taints)
    if taints and not outlook.settings.taint_manager:
        names = ", ".join(str(t) for t in taints)
        sentences.append(f"Its node has {names}, on which nobody acts: enable-taint-manager=false.")
    terms: list[DelayTerm] = []
    if not classic.evicted and not is_left_out(pod, outlook.cache):
        zone = next(z for z in zones(outlook.memory, outlook.settings) if z.key == of_node.zone)
        terms = eviction_terms(outlook, of_node, zone)
    question = "When would it be evicted if its node were lost?"
    if of_node.ready in ("False", "Unknown"):
        question = "Why is it not evicted yet, and when will it be?"
    yield ExplainedQuestion(question, sentences, [*terms, _grace_term(pod)] if terms else [])


def _not_tainted(outlook: Outlook, pod: Pod, of_node: NodeOutlook) -> Iterator[ExplainedQuestion]:
    what = eviction_forecast(pod, LOST[:1])
    zone = next(z for z in zones(outlook.memory, outlook.settings) if z.key == of_node.zone)
    if what.after_seconds is None:
        sentence = (
            f"It never is while its node object exists: {what.because}. If the node is lost it "
            "stays bound to it, marked not ready."
        )
        yield ExplainedQuestion("When would it be evicted if its node were lost?", [sentence])
        return
    terms = eviction_terms(outlook, of_node, zone)
    if not terms:
        sentence = f"No Lease was read, so only the last term is known: {what.because}."
        yield ExplainedQuestion("When would it be evicted if its node were lost?", [sentence])
        return
    question = "When would it be evicted if its node were lost?"
    if of_node.ready != "True":
        question = "Why is it not evicted yet, and when will it be?"
    yield ExplainedQuestion(
        question, ["These times add up, term by term."], [*terms, *_own_terms(pod, what)]
    )


def _own_terms(pod: Pod, what: EvictionForecast) -> list[DelayTerm]:
    seconds = float(what.after_seconds or 0)
    return [
        DelayTerm("tolerated after the taint", seconds, seconds, what.because),
        _grace_term(pod),
    ]


def _grace_term(pod: Pod) -> DelayTerm:
    grace = float(termination_grace_seconds(pod))
    origin = "terminationGracePeriodSeconds; for ever while the kubelet is dead"
    return DelayTerm("terminating", 0.0, grace, origin)


def _where(outlook: Outlook, pod: Pod, node: Node | None) -> Iterator[str]:
    owner = controller_of(pod.metadata)
    owned = f"controlled by {owner.kind} {owner.name}" if owner else "controlled by nobody"
    yield f"Phase {pod.status.phase or 'unknown'}, {owned}."
    ready = pod.status.condition("Ready")
    if ready is not None:
        reason = f" ({ready.reason})" if ready.reason else ""
        yield f"Ready is {ready.status}{reason}."
    if not pod.spec.node_name:
        yield "It is bound to no node, so no node's state concerns it."
        return
    if node is None:
        read = "was read" if outlook.cache.nodes else "was read at all"
        yield f"It is bound to {pod.spec.node_name}, but no such node {read}."
        return
    of_node = outlook.node(node)
    verdict = node_verdict(of_node, outlook.now_ns)
    yield f"Its node {node.name} is {verdict.state}: {verdict.because}."
    if of_node.message:
        yield f"Its node says: {of_node.message}"
