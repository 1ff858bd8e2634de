"""The admission webhooks that are asked before pods are evicted, and what each of them selects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kubectl_nodelife.drain.admission import Admission, eviction_of
from kubectl_nodelife.kube.admission import Webhook
from kubectl_nodelife.kube.cel import CelError, Unknown
from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import format_selector

WEBHOOK_KINDS = (
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Service",
    "EndpointSlice",
)
"""The kinds that tell it."""

DEFAULT_TIMEOUT_SECONDS = 10
_MOST_NAMES = 4


class EvictionWebhook(msgspec.Struct, frozen=True, rename="camel"):
    """A webhook that is asked about the eviction of `pods`, each as namespace/name. `selects`: by
    which rules, in words.

    `failing`: why it certainly cannot be called, "" where it can or that is not known.
    """

    configuration: str
    name: str
    selects: str
    failure_policy: str
    timeout_seconds: int
    failing: str
    pods: list[str]

    def told(self) -> str:
        """In a sentence: who is asked about what, and what comes of no answer."""
        names = first_names(self.pods, _MOST_NAMES)
        asked = f"is asked about {names} (it selects {self.selects})"
        name = f"{self.name} of {self.configuration}"
        if not self.failing:
            fails = "refuses the eviction" if self.failure_policy == "Fail" else "lets it go on"
            return f"{name} {asked}; no answer within {self.timeout_seconds}s {fails}."
        if self.failure_policy == "Ignore":
            return f"{name} {asked}; it cannot be called and is ignored: {self.failing}."
        return f"{name} {asked}; it cannot be called, so that every eviction fails: {self.failing}."


def eviction_webhooks(admission: Admission, pods: Sequence[Pod]) -> Iterator[EvictionWebhook]:
    """The webhooks that are asked about the eviction of one of these pods.

    A match condition that cannot be evaluated from what was read counts as one that holds.
    """
    for configuration, webhook in admission.webhooks:
        asked = [pod for pod in pods if _is_asked(admission, webhook, pod)]
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


def _is_asked(admission: Admission, webhook: Webhook, pod: Pod) -> bool:
    try:
        return admission.is_asked(webhook, eviction_of(pod))
    except (CelError, Unknown):
        return True


def _selects(webhook: Webhook) -> str:
    """Its selectors in kubectl's syntax. An Eviction has no labels of its own."""
    said = []
    for what, selector in (
        ("namespaces", webhook.namespace_selector),
        ("objects", webhook.object_selector),
    ):
        if selector is not None and format_selector(selector):
            said.append(f"{what} with {format_selector(selector)}")
    said += [f"where {condition.expression}" for condition in webhook.match_conditions]
    return ", ".join(said) or "every eviction"
