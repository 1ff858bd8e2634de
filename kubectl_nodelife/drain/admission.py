"""Admission before the Eviction API: terminating namespaces, admission webhooks and policies.

Follows apiserver admission/plugin/namespace/lifecycle, plugin/webhook (rules, namespaceSelector,
objectSelector, matchConditions, failurePolicy) and plugin/policy/validating; and
pkg/controller/namespace, which ends what cannot be evicted. The object of an eviction is an
Eviction, which has the pod's name and namespace and no labels, so an objectSelector that asks for a
label never meets one. What a webhook that runs will answer cannot be known from here; what happens
when its service is missing can. Rules whose CEL cannot be evaluated from what was read leave the
answer open too.

Left out: the built-in plugins that never concern an eviction, MutatingAdmissionPolicies, and
authorization, which only the API server decides.

`eviction_webhooks` lists the webhooks that are asked before pods are evicted, and what each
selects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.drain.results import EvictionWebhook
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.admission import (
    MatchCondition,
    MatchResources,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
    Webhook,
)
from kubectl_nodelife.kube.cel import Budget, CelError, Partial, Unknown, evaluate
from kubectl_nodelife.kube.cel.values import MATCH_CONDITIONS_BUDGET, POLICY_BUDGET
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import format_selector, matches
from kubectl_nodelife.kube.service import EndpointSlice
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.kubectl.cluster import GATE_NAMESPACE
from kubectl_nodelife.workloads.budgets import EvictionRefused

GATE_WEBHOOK: Final = "webhook"

NAMESPACE_GRACE_NS: Final = 5 * SECOND_NS
"""namespaceDeletionGracePeriod: how long a namespace terminates before its content is deleted."""

NAMESPACE_OVERDUE_NS: Final = 1 * MINUTE_NS

PLAN_BUDGET: Final = 50_000_000
"""All expressions of a plan cost no more, about half a minute; a usual one costs 20 a pod."""

_STATUS_CODES: Final = {
    "Unauthorized": 401,
    "Forbidden": 403,
    "Invalid": 422,
    "RequestEntityTooLarge": 413,
}
_NO_LABELS: Mapping[str, str] = {}


class AdmissionRequest(NamedTuple):
    """An admission request about one pod: its eviction, or its deletion."""

    operation: str
    subresource: str
    pod: Pod
    object: Mapping[str, Any] | None
    old_object: Mapping[str, Any] | None
    labels: Mapping[str, str]


class Doubt(NamedTuple):
    """Something that may refuse the request; whether it does is not known from what was read."""

    reason: str


class Admission:
    """Admission's answers to evictions and deletions of pods, from a snapshot."""

    def __init__(self, snapshot: PlanSnapshot) -> None:
        self._snapshot = snapshot
        configurations: list[MutatingWebhookConfiguration | ValidatingWebhookConfiguration] = []
        configurations += snapshot.all_of(MutatingWebhookConfiguration)
        configurations += snapshot.all_of(ValidatingWebhookConfiguration)
        self.webhooks = [(c.name, webhook) for c in configurations for webhook in c.webhooks]
        policies = {policy.name: policy for policy in snapshot.all_of(ValidatingAdmissionPolicy)}
        self._policies = [
            (policies[binding.spec.policy_name], binding)
            for binding in snapshot.all_of(ValidatingAdmissionPolicyBinding)
            if binding.spec.policy_name in policies and "Deny" in binding.spec.validation_actions
        ]
        self._services_with_endpoints = {
            (slice_.namespace, (slice_.metadata.labels or _NO_LABELS).get(_SERVICE_NAME, ""))
            for slice_ in snapshot.all_of(EndpointSlice)
            if any(e.conditions.ready is not False and e.addresses for e in slice_.endpoints)
        }
        self._answers: dict[tuple[str, str], EvictionRefused | Doubt | None] = {}
        self._budget = Budget(PLAN_BUDGET)

    @property
    def has_rules(self) -> bool:
        """True if a webhook or policy may have a say."""
        return bool(self.webhooks or self._policies)

    # --- questions -------------------------------------------------------------------------------

    def namespace_terminates(self, namespace: str) -> bool:
        """True if the namespace is being deleted, so that nothing can be created in it."""
        found = self._snapshot.namespaces.get(namespace)
        return found is not None and found.status.phase == "Terminating"

    def namespace_ends_pods_ns(self, namespace: str) -> int | None:
        """When the namespace controller deletes the pods of a namespace that is being deleted.

        Nanoseconds since the epoch, perhaps in the past; None where it will not: the namespace
        stays, or its pods should have been marked so long ago that the controller seems to be gone.
        A dump's moment is its newest sign of life, which may be older than the deletion that the
        dump shows; the deletion is no later than the dump.
        """
        found = self._snapshot.namespaces.get(namespace)
        if found is None or found.metadata.deletion_timestamp is None:
            return None
        now_ns = self._snapshot.now_ns
        ends_ns = min(found.metadata.deletion_timestamp, now_ns) + NAMESPACE_GRACE_NS
        return ends_ns if now_ns - ends_ns < NAMESPACE_OVERDUE_NS else None

    def refuses_eviction(self, pod: Pod) -> EvictionRefused | None:
        """The refusal that meets the eviction before the API looks at budgets, or None."""
        name = pod.metadata.namespace
        if self.namespace_terminates(name):
            message = (
                f'pods "{pod.name}" is forbidden: unable to create new content in namespace {name}'
                " because it is being terminated"
            )
            return EvictionRefused(403, message, GATE_NAMESPACE)
        answer = self._answer(pod, "CREATE")
        return answer if isinstance(answer, EvictionRefused) else None

    def refuses_deletion(self, pod: Pod) -> EvictionRefused | None:
        """The refusal that meets a DELETE of the pod, or None."""
        answer = self._answer(pod, "DELETE")
        return answer if isinstance(answer, EvictionRefused) else None

    def doubt(self, pod: Pod, *, deletion: bool = False) -> str | None:
        """What may refuse the request with an answer that cannot be known from here, or None."""
        answer = self._answer(pod, "DELETE" if deletion else "CREATE")
        return answer.reason if isinstance(answer, Doubt) else None

    def _answer(self, pod: Pod, operation: str) -> EvictionRefused | Doubt | None:
        if not self.webhooks and not self._policies:
            return None
        key = (pod.metadata.uid, operation)
        if key not in self._answers:
            request = eviction_of(pod) if operation == "CREATE" else deletion_of(pod)
            self._answers[key] = self._ask(request)
        return self._answers[key]

    def _ask(self, request: AdmissionRequest) -> EvictionRefused | Doubt | None:
        """Policies and webhooks in one: a sure refusal counts more than a doubt."""
        doubt: Doubt | None = None
        for policy, binding in self._policies:
            answer = self._policy(policy, binding, request)
            if isinstance(answer, EvictionRefused):
                return answer
            doubt = doubt or answer
        for configuration, webhook in self.webhooks:
            answer = self._webhook(configuration, webhook, request)
            if isinstance(answer, EvictionRefused):
                return answer
            doubt = doubt or answer
        return doubt

    # --- webhooks --------------------------------------------------------------------------------

    def _webhook(
        self, configuration: str, webhook: Webhook, request: AdmissionRequest
    ) -> EvictionRefused | Doubt | None:
        ignores = webhook.failure_policy == "Ignore"
        name = f"webhook {webhook.name} of {configuration}"
        try:
            if not self.is_asked(webhook, request):
                return None
        except CelError as error:
            if ignores:
                return None
            return EvictionRefused(403, f"{name}: {error}", GATE_WEBHOOK)
        except Unknown as unknown:
            return Doubt(f"{name} may refuse it: {unknown}")
        failure = self.unreachable(webhook)
        if failure is None:
            return Doubt(f"{name} is asked, and its answer cannot be known from here")
        if ignores:
            return None
        message = f'Internal error occurred: failed calling webhook "{webhook.name}": {failure}'
        return EvictionRefused(500, message, GATE_WEBHOOK)

    def is_asked(self, webhook: Webhook, request: AdmissionRequest) -> bool:
        """True if the webhook is called for the request. Raises CelError, Unknown."""
        return (
            any(rule_matches(rule, request) for rule in webhook.rules)
            and self._selected(webhook.namespace_selector, webhook.object_selector, request)
            and self._conditions_hold(webhook.match_conditions, request)
        )

    def unreachable(self, webhook: Webhook) -> str | None:
        """Why the webhook cannot be called, where that is certain."""
        service = webhook.client_config.service
        if service is None or not self._snapshot.was_read("Service"):
            return None
        if self._snapshot.find("Service", service.namespace, service.name) is None:
            return f'failed to call webhook: service "{service.name}" not found'
        if not self._snapshot.was_read("EndpointSlice"):
            return None
        if (service.namespace, service.name) not in self._services_with_endpoints:
            return f'failed to call webhook: no endpoints available for service "{service.name}"'
        return None

    # --- policies --------------------------------------------------------------------------------

    def _policy(
        self,
        policy: ValidatingAdmissionPolicy,
        binding: ValidatingAdmissionPolicyBinding,
        request: AdmissionRequest,
    ) -> EvictionRefused | Doubt | None:
        if not self._in_scope(policy.spec.match_constraints, request):
            return None
        if not self._in_scope(binding.spec.match_resources or MatchResources(), request, True):
            return None
        try:
            return self._validate(policy, binding, request)
        except CelError as error:
            if policy.spec.failure_policy == "Ignore":
                return None
            return _denied(policy, binding, request, str(error), None)
        except Unknown as unknown:
            return Doubt(f"ValidatingAdmissionPolicy {policy.name} may refuse it: {unknown}")

    def _validate(
        self,
        policy: ValidatingAdmissionPolicy,
        binding: ValidatingAdmissionPolicyBinding,
        request: AdmissionRequest,
    ) -> EvictionRefused | None:
        """The first validation that fails. Raises CelError and Unknown."""
        if not self._conditions_hold(policy.spec.match_conditions, request):
            return None
        variables = {v.name: v.expression for v in policy.spec.variables}
        values = self._values(request)
        if policy.spec.param_kind is not None:
            del values["params"]  # what it holds was not read
        budget = Budget(POLICY_BUDGET, within=self._budget)
        for validation in policy.spec.validations:
            if evaluate(validation.expression, values, variables, budget) is not True:
                message = validation.message or f"failed expression: {validation.expression}"
                return _denied(policy, binding, request, message, validation.reason)
        return None

    def _in_scope(
        self, scope: MatchResources | None, request: AdmissionRequest, all_resources: bool = False
    ) -> bool:
        """True if the match resources name the request; a binding without rules names every one."""
        if scope is None:
            return False
        if any(rule_matches(rule, request) for rule in scope.exclude_resource_rules):
            return False
        if not any(rule_matches(rule, request) for rule in scope.resource_rules) and not (
            all_resources and not scope.resource_rules
        ):
            return False
        return self._selected(scope.namespace_selector, scope.object_selector, request)

    # --- matching --------------------------------------------------------------------------------

    def _selected(
        self,
        namespace_selector: LabelSelector | None,
        object_selector: LabelSelector | None,
        request: AdmissionRequest,
    ) -> bool:
        if namespace_selector is not None:
            labels = self._namespace_labels(request.pod.namespace)
            if not matches(namespace_selector, labels):
                return False
        return object_selector is None or matches(object_selector, request.labels)

    def _namespace_labels(self, namespace: str) -> Mapping[str, str]:
        known = self._snapshot.namespace_labels.get(namespace)
        # The one label that every namespace has, for a snapshot without namespaces.
        return {"kubernetes.io/metadata.name": namespace} if known is None else known

    def _conditions_hold(
        self, conditions: tuple[MatchCondition, ...], request: AdmissionRequest
    ) -> bool:
        """True if all match conditions hold. Raises CelError, Unknown.

        One that is false settles it, whatever is wrong with the others.
        """
        error: CelError | Unknown | None = None
        budget = Budget(MATCH_CONDITIONS_BUDGET, within=self._budget)
        values = self._values(request)
        for condition in conditions:
            try:
                if evaluate(condition.expression, values, budget=budget) is not True:
                    return False
            except (CelError, Unknown) as raised:
                error = error or raised
        if error is not None:
            raise error
        return True

    def _values(self, request: AdmissionRequest) -> dict[str, Any]:
        """The variables that an expression may use, as far as they are known."""
        pod = request.pod
        resource = {"group": "", "version": "v1", "resource": "pods"}
        kind = ("policy", "v1", "Eviction") if request.subresource else ("", "v1", "Pod")
        asked = Partial(
            kind=dict(zip(("group", "version", "kind"), kind, strict=True)),
            resource=resource,
            requestResource=resource,
            subResource=request.subresource,
            requestSubResource=request.subresource,
            name=pod.name,
            namespace=pod.namespace,
            operation=request.operation,
            dryRun=False,
        )
        labels = dict(self._namespace_labels(pod.namespace))
        namespace = Partial(metadata=Partial(name=pod.namespace, labels=labels))
        return {
            "object": request.object,
            "oldObject": request.old_object,
            "request": asked,
            "namespaceObject": namespace,
            "params": None,
        }


_SERVICE_NAME = "kubernetes.io/service-name"


def eviction_of(pod: Pod) -> AdmissionRequest:
    """CREATE of pods/eviction. The object has no labels."""
    obj = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {},
    }
    return AdmissionRequest("CREATE", "eviction", pod, obj, None, _NO_LABELS)


def deletion_of(pod: Pod) -> AdmissionRequest:
    """DELETE of the pod itself: there is only the old object."""
    labels = pod.metadata.labels or _NO_LABELS
    metadata = Partial(
        name=pod.name,
        namespace=pod.namespace,
        labels=dict(labels),
        annotations=dict(pod.metadata.annotations or {}),
    )
    obj = Partial(apiVersion="v1", kind="Pod", metadata=metadata)
    return AdmissionRequest("DELETE", "", pod, None, obj, labels)


def rule_matches(rule: RuleWithOperations, request: AdmissionRequest) -> bool:
    """True if a rule names the request. Follows plugin/webhook/predicates/rules."""
    if not {"*", request.operation}.intersection(rule.operations):
        return False
    if not {"*", ""}.intersection(rule.api_groups):
        return False
    if not {"*", "v1"}.intersection(rule.api_versions):
        return False
    if rule.scope == "Cluster":
        return False
    if rule.resource_names and request.pod.name not in rule.resource_names:
        return False
    return any(_resource_matches(resource, request) for resource in rule.resources)


def _resource_matches(resource: str, request: AdmissionRequest) -> bool:
    name, slash, subresource = resource.partition("/")
    if name not in ("*", "pods"):
        return False
    if not slash:
        return not request.subresource
    return subresource in ("*", request.subresource)


def _denied(
    policy: ValidatingAdmissionPolicy,
    binding: ValidatingAdmissionPolicyBinding,
    request: AdmissionRequest,
    message: str,
    reason: str | None,
) -> EvictionRefused:
    """The API server's refusal in the name of a policy."""
    resource = "pods" if not request.subresource else "pods/eviction"
    text = (
        f'{resource} "{request.pod.name}" is forbidden: ValidatingAdmissionPolicy'
        f" '{policy.name}' with binding '{binding.name}' denied request: {message}"
    )
    return EvictionRefused(_STATUS_CODES.get(reason or "Invalid", 422), text, GATE_WEBHOOK)


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
    clauses = []
    for what, selector in (
        ("namespaces", webhook.namespace_selector),
        ("objects", webhook.object_selector),
    ):
        if selector is not None and format_selector(selector):
            clauses.append(f"{what} with {format_selector(selector)}")
    clauses += [f"where {condition.expression}" for condition in webhook.match_conditions]
    return ", ".join(clauses) or "every eviction"
