"""Explains which admission webhooks are asked before pods of a node are evicted."""

from __future__ import annotations

from collections.abc import Sequence

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.drain.webhooks import EvictionWebhook, eviction_webhooks
from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.explain import ExplainedQuestion

_MOST_NAMES = 4


def webhook_section(snapshot: PlanSnapshot, pods: Sequence[Pod]) -> ExplainedQuestion:
    """The section about evictions of these pods."""
    unread = [
        kind
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
        if not snapshot.was_read(kind)
    ]
    sentences = [_sentence(found) for found in eviction_webhooks(snapshot, pods)]
    if unread:
        sentences.append(f"Not all is known: no {' and no '.join(unread)} was read.")
    return ExplainedQuestion(
        "Which webhooks are asked before an eviction here?", sentences or ["None."]
    )


def _sentence(found: EvictionWebhook) -> str:
    name = f"{found.name} of {found.configuration}"
    asked = f"is asked about {_names(found.pods)} (it selects {found.selects})"
    if not found.failing:
        fails = "refuses the eviction" if found.failure_policy == "Fail" else "lets it go on"
        return f"{name} {asked}; no answer within {found.timeout_seconds}s {fails}."
    if found.failure_policy == "Ignore":
        return f"{name} {asked}; it cannot be called and is ignored: {found.failing}."
    return f"{name} {asked}; it cannot be called, so that every eviction fails: {found.failing}."


def _names(pods: Sequence[Pod]) -> str:
    return first_names([f"{pod.namespace}/{pod.name}" for pod in pods], _MOST_NAMES)
