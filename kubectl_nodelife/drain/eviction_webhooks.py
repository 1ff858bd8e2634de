"""Lists the admission webhooks that are asked before pods are evicted, and what each selects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kubectl_nodelife.drain.results import EvictionWebhook
from kubectl_nodelife.kube.admission import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    Webhook,
)
from kubectl_nodelife.kube.cel import CelError, Unknown
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import format_selector
from kubectl_nodelife.workloads.admission import (
    Admission,
    AdmissionRequest,
    ObjectsRead,
    deletion_of,
    eviction_of,
)

WebhookConfiguration = ValidatingWebhookConfiguration | MutatingWebhookConfiguration

WEBHOOK_KINDS = (
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Service",
    "EndpointSlice",
)
"""The kinds that the answer about webhooks is made from."""

DEFAULT_TIMEOUT_SECONDS = 10


def eviction_webhooks(admission: Admission, pods: Sequence[Pod]) -> Iterator[EvictionWebhook]:
    """The webhooks that are asked about the eviction of one of these pods."""
    for configuration, webhook in admission.webhooks:
        asked = [pod for pod in pods if _is_asked(admission, webhook, eviction_of(pod))]
        if asked:
            yield EvictionWebhook(
                configuration,
                webhook.name,
                _selects(webhook),
                webhook.failure_policy or "Fail",
                webhook.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
                admission.unreachable(webhook) or "",
                [f"{pod.namespace}/{pod.name}" for pod in asked],
            )


def ignoring(objects: ObjectsRead, pod: Pod) -> Iterator[tuple[WebhookConfiguration, list[int]]]:
    """Configurations of webhooks that are asked about the eviction or the deletion of the pod, with
    `failurePolicy: Ignore` for these; the places of those that had another, at least one.
    """
    admission, requests = Admission(objects), (eviction_of(pod), deletion_of(pod))
    for kind in WEBHOOK_KINDS[:2]:
        for each in objects.all(kind):
            assert isinstance(each, (ValidatingWebhookConfiguration, MutatingWebhookConfiguration))
            webhooks = list(each.webhooks)
            failing = [
                place
                for place, webhook in enumerate(webhooks)
                if webhook.failure_policy != "Ignore"
                and any(_is_asked(admission, webhook, request) for request in requests)
            ]
            for place in failing:
                webhooks[place] = replace(webhooks[place], failure_policy="Ignore")
            if failing:
                yield replace(each, webhooks=tuple(webhooks)), failing


def _is_asked(admission: Admission, webhook: Webhook, request: AdmissionRequest) -> bool:
    """A match condition that cannot be evaluated from what was read counts as one that holds."""
    try:
        return admission.is_asked(webhook, request)
    except (CelError, Unknown):
        return True


def _selects(webhook: Webhook) -> str:
    """Its selectors in kubectl's syntax. An Eviction has no labels of its own."""
    clauses = []
    for what, selector in (
        ("namespaces", webhook.namespace_selector),
        ("objects", webhook.object_selector),
    ):
        if selector is not None and format_selector(selector):
            clauses.append(f"{what} with {format_selector(selector)}")
    clauses += [f"where {condition.expression}" for condition in webhook.match_conditions]
    return ", ".join(clauses) or "every eviction"
