"""Explains what the audit finds about one pod."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit.audit_pods import context_of, pod_findings, waits_for
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.workloads.node_readiness import NodeReadiness, node_readiness


def finding_section(view: ClusterView, pod: Pod) -> ExplainedQuestion:
    """The audit's findings on the pod: the class of each, its evidence, and what to do."""
    return ExplainedQuestion("Does the audit find something?", list(_findings(view, pod)))


def _findings(view: ClusterView, pod: Pod) -> Iterator[str]:
    context = context_of(view.settings, view.now_ns)
    found = list(pod_findings(pod, _node_of(view, pod), context))
    for finding in found:
        yield f"{finding.name}: {finding.because}."
        yield f"It means: {finding.note.meaning}."
        yield f"Do: {finding.what_to_do}."
        if finding.known_issues:
            yield f"Known: {', '.join(finding.known_issues)}."
    if not found and pod.metadata.deletion_timestamp is not None:
        yield "Nothing yet: it is being deleted, and not more than a minute past its time."
    elif not found and (lacking := _lacking(pod)):
        yield f"Not known: {lacking}."
    elif not found:
        waits = waits_for(pod)
        but = f", but it waits ({waits[0]})" if waits else ""
        yield f"No: its readiness fits its containers and its node{but}."


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
        read = "Node" not in view.unread
        return NodeReadiness(name=name, read=read and bool(name), exists=not (read and name))
    heartbeat = view.cache.heartbeat(name)
    renewal = heartbeat.renewal(view.now_ns) if heartbeat is not None else None
    return node_readiness(node, renewal[0] if renewal is not None else None)
