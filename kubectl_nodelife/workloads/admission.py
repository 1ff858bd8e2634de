"""Admission in the API server: terminating namespaces, admission webhooks and policies.

Follows apiserver admission/plugin/namespace/lifecycle, plugin/webhook (rules, namespaceSelector,
objectSelector, matchConditions, failurePolicy) and plugin/policy/validating; and
pkg/controller/namespace, which ends what cannot be evicted. The object of an eviction is an
Eviction, which has the pod's name and namespace and no labels, so an objectSelector that asks for a
label never meets one. What a webhook that runs will answer cannot be known from here; what happens
when its service is missing can. Rules whose CEL cannot be evaluated from what was read leave the
answer open too.

Webhooks and policies are asked about pods that are evicted or deleted; of what is created, only the
namespace's state is known to refuse it. Left out: the other built-in plugins,
MutatingAdmissionPolicies, and authorization, which only the API server decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from kubectl_nodelife.kube.admission import (
    MatchCondition,
    MatchResources,
    MutatingWebhookConfiguration,
    RuleWithOperations,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicySpec,
    ValidatingWebhookConfiguration,
    Validation,
    Webhook,
)
from kubectl_nodelife.kube.cel import Budget, CelError, Partial, Unknown, evaluate
from kubectl_nodelife.kube.cel.values import MATCH_CONDITIONS_BUDGET, POLICY_BUDGET
from kubectl_nodelife.kube.kinds import ADMISSION_KINDS, KINDS
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.service import EndpointSlice
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.workload import Namespace
from kubectl_nodelife.workloads.budgets import EvictionRefused
from kubectl_nodelife.workloads.owners import OwnerLookup

GATE_NAMESPACE: Final = "namespace-terminating"
"""The gate of a refusal because the namespace is being deleted."""

GATE_WEBHOOK: Final = "webhook"

DECIDING_KINDS: Final = frozenset({"Namespace", *ADMISSION_KINDS, "Service", "EndpointSlice"})
"""The kinds of the objects that an answer depends on, the pod in question aside."""

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
NOTHING_CHANGED: Final[Mapping[tuple[str, str], bool]] = {}
_RESOURCES: Final = {kind.name: kind.resource for kind in KINDS if kind.namespaced}


class ObjectsRead(OwnerLookup, Protocol):
    """The objects of a cluster, and which kinds of them were read at all."""

    def all(self, kind: str) -> Iterable[KubeObject]:
        """All objects of a kind."""


class AdmissionRequest(NamedTuple):
    """An admission request about one pod: its eviction, or its deletion."""

    operation: str
    subresource: str
    pod: Pod
    object: Mapping[str, Any] | None
    old_object: Mapping[str, Any] | None
    labels: Mapping[str, str]


_Answer = EvictionRefused | str | None
"""A sure refusal; or what may refuse the request, where that is not known from what was read."""


class Admission:
    """Admission's answers, from the objects of a cluster. Where one of DECIDING_KINDS changes, a
    new one is needed: answers are kept.

    `serving`: by (namespace, name) whether a Service has ready endpoints, where that has changed
    since the slices were written.
    """

    def __init__(
        self, objects: ObjectsRead, serving: Mapping[tuple[str, str], bool] = NOTHING_CHANGED
    ) -> None:
        self._objects = objects
        self.serving = serving
        self._answers: dict[tuple[str, str], _Answer] = {}
        self._budget = Budget(PLAN_BUDGET)

    def fork(self, objects: ObjectsRead) -> Admission:
        """The same for a copy of the cluster; what was answered is known to both."""
        other = copy(self)
        other._objects = objects
        return other

    @cached_property
    def webhooks(self) -> list[tuple[str, Webhook]]:
        """(configuration's name, webhook), in the order in which they are asked."""
        return [
            (configuration.name, webhook)
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
            for configuration in self._objects.all(kind)
            if isinstance(
                configuration, (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)
            )
            for webhook in configuration.webhooks
        ]

    @cached_property
    def _policies(self) -> list[tuple[ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding]]:
        bound = []
        for binding in self._objects.all("ValidatingAdmissionPolicyBinding"):
            assert isinstance(binding, ValidatingAdmissionPolicyBinding)
            name = binding.spec.policy_name
            policy = self._objects.find("ValidatingAdmissionPolicy", "", name)
            denies = "Deny" in binding.spec.validation_actions
            if isinstance(policy, ValidatingAdmissionPolicy) and denies:
                bound.append((policy, binding))
        return bound

    @cached_property
    def _services_with_endpoints(self) -> set[tuple[str, str]]:
        return {
            (slice_.namespace, (slice_.metadata.labels or _NO_LABELS).get(_SERVICE_NAME, ""))
            for slice_ in self._objects.all("EndpointSlice")
            if isinstance(slice_, EndpointSlice)
            and any(e.conditions.ready is not False and e.addresses for e in slice_.endpoints)
        }

    def calls(self, service: tuple[str, str]) -> bool:
        """True if a webhook is served by it: (namespace, name)."""
        return any(
            (called := webhook.client_config.service) is not None
            and (called.namespace, called.name) == service
            for _, webhook in self.webhooks
        )

    @cached_property
    def has_rules(self) -> bool:
        """True if a webhook or policy may have a say."""
        return bool(self.webhooks or self._policies)

    # --- questions -------------------------------------------------------------------------------

    @cached_property
    def terminating(self) -> frozenset[str]:
        """The namespaces that are being deleted, in which nothing can be created."""
        return frozenset(
            namespace.name
            for namespace in self._objects.all("Namespace")
            if isinstance(namespace, Namespace) and namespace.status.phase == "Terminating"
        )

    def refuses_creation(self, kind: str, namespace: str, name: str) -> EvictionRefused | None:
        """The refusal that meets the creation of an object, or None."""
        if namespace in self.terminating:
            return _terminating(_RESOURCES.get(kind, kind.lower()), namespace, name)
        return None

    def refuses_eviction(self, pod: Pod) -> EvictionRefused | None:
        """The refusal that meets the eviction before the API looks at budgets, or None."""
        if pod.metadata.namespace in self.terminating:
            return _terminating("pods", pod.metadata.namespace, pod.name)
        answer = self._answer(pod, "CREATE")
        return answer if isinstance(answer, EvictionRefused) else None

    def refuses_deletion(self, pod: Pod) -> EvictionRefused | None:
        """The refusal that meets a DELETE of the pod, or None."""
        answer = self._answer(pod, "DELETE")
        return answer if isinstance(answer, EvictionRefused) else None

    def doubt(self, pod: Pod, *, deletion: bool = False) -> str | None:
        """What may refuse the request with an answer that cannot be known from here, or None."""
        answer = self._answer(pod, "DELETE" if deletion else "CREATE")
        return answer if isinstance(answer, str) else None

    def _answer(self, pod: Pod, operation: str) -> _Answer:
        if not self.has_rules:
            return None
        key = (pod.metadata.uid, operation)
        if key not in self._answers:
            request = eviction_of(pod) if operation == "CREATE" else deletion_of(pod)
            self._answers[key] = self._ask(request)
        return self._answers[key]

    def _ask(self, request: AdmissionRequest) -> _Answer:
        """Policies and webhooks in one: a sure refusal counts more than a doubt."""
        doubt: str | None = None
        of_policies = (self._policy(*bound, request) for bound in self._policies)
        of_webhooks = (self._webhook(*webhook, request) for webhook in self.webhooks)
        for answer in chain(of_policies, of_webhooks):
            if isinstance(answer, EvictionRefused):
                return answer
            doubt = doubt or answer
        return doubt

    # --- webhooks --------------------------------------------------------------------------------

    def _webhook(self, configuration: str, webhook: Webhook, request: AdmissionRequest) -> _Answer:
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
            return f"{name} may refuse it: {unknown}"
        failure = self.unreachable(webhook)
        if failure is None:
            return f"{name} is asked, and its answer cannot be known from here"
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
        if service is None or not self._objects.was_read("Service"):
            return None
        if self._objects.find("Service", service.namespace, service.name) is None:
            return f'failed to call webhook: service "{service.name}" not found'
        key = (service.namespace, service.name)
        serves = self.serving.get(key)
        if serves is None and not self._objects.was_read("EndpointSlice"):
            return None
        if serves is None:
            serves = key in self._services_with_endpoints
        if not serves:
            return f'failed to call webhook: no endpoints available for service "{service.name}"'
        return None

    # --- policies --------------------------------------------------------------------------------

    def _policy(
        self,
        policy: ValidatingAdmissionPolicy,
        binding: ValidatingAdmissionPolicyBinding,
        request: AdmissionRequest,
    ) -> _Answer:
        if not self._in_scope(policy.spec.match_constraints, request):
            return None
        if not self._in_scope(binding.spec.match_resources or MatchResources(), request, True):
            return None
        try:
            failed = self._first_failed(policy.spec, request)
        except CelError as error:
            ignores = policy.spec.failure_policy == "Ignore"
            failed = None if ignores else Validation(message=str(error))
        except Unknown as unknown:
            return f"ValidatingAdmissionPolicy {policy.name} may refuse it: {unknown}"
        if failed is None:
            return None
        resource = "pods" if not request.subresource else "pods/eviction"
        text = (
            f'{resource} "{request.pod.name}" is forbidden: ValidatingAdmissionPolicy'
            f" '{policy.name}' with binding '{binding.name}' denied request: "
            f"{failed.message or f'failed expression: {failed.expression}'}"
        )
        code = _STATUS_CODES.get(failed.reason or "Invalid", 422)
        return EvictionRefused(code, text, GATE_WEBHOOK)

    def _first_failed(
        self, policy: ValidatingAdmissionPolicySpec, request: AdmissionRequest
    ) -> Validation | None:
        """The first validation that fails. Raises CelError and Unknown."""
        if not self._conditions_hold(policy.match_conditions, request):
            return None
        variables = {v.name: v.expression for v in policy.variables}
        values = self._values(request)
        if policy.param_kind is not None:
            del values["params"]  # what it holds was not read
        budget = Budget(POLICY_BUDGET, within=self._budget)
        for validation in policy.validations:
            if evaluate(validation.expression, values, variables, budget) is not True:
                return validation
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
        its_object = self._objects.find("Namespace", "", namespace)
        if its_object is None:  # the one label that every namespace has, where none were read
            return {"kubernetes.io/metadata.name": namespace}
        return its_object.metadata.labels or _NO_LABELS

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


def ends_pods_ns(namespace: Namespace, now_ns: int) -> int | None:
    """When the namespace controller deletes the pods of a namespace that is being deleted.

    Nanoseconds since the epoch, perhaps in the past; None where it will not: the namespace stays,
    or its pods should have been marked so long ago that the controller seems to be gone. A dump's
    moment is its newest sign of life, which may be older than the deletion that the dump shows; the
    deletion is no later than the dump.
    """
    deleted_ns = namespace.metadata.deletion_timestamp
    if deleted_ns is None:
        return None
    ends_ns = min(deleted_ns, now_ns) + NAMESPACE_GRACE_NS
    return ends_ns if now_ns - ends_ns < NAMESPACE_OVERDUE_NS else None


def _terminating(resource: str, namespace: str, name: str) -> EvictionRefused:
    """The refusal of plugin/namespace/lifecycle. An eviction is asked for as a pod."""
    message = (
        f'{resource} "{name}" is forbidden: unable to create new content in namespace {namespace}'
        " because it is being terminated"
    )
    return EvictionRefused(403, message, GATE_NAMESPACE)
