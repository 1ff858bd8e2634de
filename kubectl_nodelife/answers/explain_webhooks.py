"""Explains which admission webhooks are asked before pods of a node are evicted."""

from __future__ import annotations

from collections.abc import Sequence

from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.drain.webhooks import eviction_webhooks
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.workloads.owners import stays_on_its_node


def webhook_section(snapshot: PlanSnapshot, pods: Sequence[Pod]) -> ExplainedQuestion:
    """The section about evictions of those of the pods that a drain evicts."""
    pods = [pod for pod in pods if not stays_on_its_node(pod)]
    unread = [
        kind
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
        if not snapshot.was_read(kind)
    ]
    sentences = [found.told() for found in eviction_webhooks(Admission(snapshot), pods)]
    if unread:
        sentences.append(f"Not all is known: no {' and no '.join(unread)} was read.")
    return ExplainedQuestion(
        "Which webhooks are asked before an eviction here?", sentences or ["None."]
    )
