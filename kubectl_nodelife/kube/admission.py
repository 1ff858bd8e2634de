"""Slices of what may stop a request in admission: webhooks, policies, services behind webhooks."""

from __future__ import annotations

from kubectl_nodelife.kube.meta import ApiStruct, Int64, KubeObject, LabelSelector


class RuleWithOperations(ApiStruct, frozen=True):
    """`admissionregistration/v1.RuleWithOperations` and `NamedRuleWithOperations`."""

    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str | None = None
    resource_names: tuple[str, ...] = ()


class ServiceReference(ApiStruct, frozen=True):
    """`admissionregistration/v1.ServiceReference`."""

    namespace: str = ""
    name: str = ""
    port: Int64 | None = None


class WebhookClientConfig(ApiStruct, frozen=True):
    """`admissionregistration/v1.WebhookClientConfig`: either a URL or a service."""

    url: str | None = None
    service: ServiceReference | None = None


class MatchCondition(ApiStruct, frozen=True):
    """`admissionregistration/v1.MatchCondition`: a CEL expression."""

    name: str = ""
    expression: str = ""


class Webhook(ApiStruct, frozen=True):
    """`admissionregistration/v1.ValidatingWebhook`, and what MutatingWebhook shares with it."""

    name: str = ""
    rules: tuple[RuleWithOperations, ...] = ()
    failure_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    match_conditions: tuple[MatchCondition, ...] = ()
    client_config: WebhookClientConfig = WebhookClientConfig()
    timeout_seconds: Int64 | None = None


class ValidatingWebhookConfiguration(KubeObject, frozen=True):
    """`admissionregistration/v1.ValidatingWebhookConfiguration`."""

    webhooks: tuple[Webhook, ...] = ()


class MutatingWebhookConfiguration(KubeObject, frozen=True):
    """`admissionregistration/v1.MutatingWebhookConfiguration`."""

    webhooks: tuple[Webhook, ...] = ()


class MatchResources(ApiStruct, frozen=True):
    """`admissionregistration/v1.MatchResources`. An absent selector matches everything."""

    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    resource_rules: tuple[RuleWithOperations, ...] = ()
    exclude_resource_rules: tuple[RuleWithOperations, ...] = ()


class Validation(ApiStruct, frozen=True):
    """`admissionregistration/v1.Validation`: a CEL expression that must be true."""

    expression: str = ""
    message: str = ""
    reason: str | None = None


class Variable(ApiStruct, frozen=True):
    """`admissionregistration/v1.Variable`: a named CEL expression."""

    name: str = ""
    expression: str = ""


class ParamKind(ApiStruct, frozen=True):
    """`admissionregistration/v1.ParamKind`."""

    api_version: str = ""
    kind: str = ""


class ValidatingAdmissionPolicySpec(ApiStruct, frozen=True):
    """`admissionregistration/v1.ValidatingAdmissionPolicySpec`."""

    match_constraints: MatchResources | None = None
    validations: tuple[Validation, ...] = ()
    failure_policy: str | None = None
    match_conditions: tuple[MatchCondition, ...] = ()
    variables: tuple[Variable, ...] = ()
    param_kind: ParamKind | None = None


class ValidatingAdmissionPolicy(KubeObject, frozen=True):
    """`admissionregistration/v1.ValidatingAdmissionPolicy`."""

    spec: ValidatingAdmissionPolicySpec = ValidatingAdmissionPolicySpec()


class ValidatingAdmissionPolicyBindingSpec(ApiStruct, frozen=True):
    """`admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec`."""

    policy_name: str = ""
    match_resources: MatchResources | None = None
    validation_actions: tuple[str, ...] = ()


class ValidatingAdmissionPolicyBinding(KubeObject, frozen=True):
    """`admissionregistration/v1.ValidatingAdmissionPolicyBinding`."""

    spec: ValidatingAdmissionPolicyBindingSpec = ValidatingAdmissionPolicyBindingSpec()
