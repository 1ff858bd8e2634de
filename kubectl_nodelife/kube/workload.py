"""Slices of what owns pods or guards them: DaemonSet, ControllerRevision, ReplicaSet, budgets and
the rest.

Event and PriorityClass are mentioned in answers; no decision reads them.

The defaults that the API server fills into a DaemonSet's spec where the writer left it out follow
`SetDefaults_DaemonSet` (`pkg/apis/apps/v1/defaults.go`) and, for the template, what nearly every
pod spec gets of `pkg/apis/core/v1/defaults.go`. A simulated API server applies the former before
anything is decided; templates are compared as if both had the latter. Left out: the defaults of
probes, volumes and the rarer fields.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.kube.meta import (
    ApiStruct,
    BaseCondition,
    Int64,
    KubeObject,
    LabelSelector,
    MicroTime,
    Time,
)

IntOrString = Int64 | str
_INTEGER = re.compile(r"[+-]?[0-9]+")


class NotAPercentage(ValueError):
    """An IntOrString is neither an integer nor a percentage. `why` and the text are upstream's."""

    def __init__(self, why: str) -> None:
        super().__init__(f"invalid value for IntOrString: {why}")


def scaled_value(value: IntOrString, total: int, *, up: bool = True) -> int:
    """An int as it is; a percentage of `total`, rounded up or down. Raises NotAPercentage.

    Follows `GetScaledValueFromIntOrPercent` (`apimachinery/pkg/util/intstr`).
    """
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise NotAPercentage("invalid type: string is not a percentage")
    number = value[:-1]
    if _INTEGER.fullmatch(number) is None:
        parsing = f'strconv.Atoi: parsing "{number}": invalid syntax'
        raise NotAPercentage(f'invalid value "{value}": {parsing}')
    share = int(number) * total
    return -(-share // 100) if up else share // 100


class RollingUpdateDaemonSet(ApiStruct, frozen=True):
    """`apps/v1.RollingUpdateDaemonSet`."""

    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DaemonSetUpdateStrategy(ApiStruct, frozen=True):
    """`apps/v1.DaemonSetUpdateStrategy`."""

    type: str = ""
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(ApiStruct, frozen=True):
    """`apps/v1.DaemonSetSpec`. The template stays plain JSON: revisions hash all of it."""

    selector: LabelSelector | None = None
    template: dict[str, Any] = {}
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: Int64 = 0
    revision_history_limit: Int64 | None = None
    template_generation: Int64 | None = None


class DaemonSetCondition(BaseCondition, frozen=True):
    """`apps/v1.DaemonSetCondition` (nothing sets one upstream; kept so that a write does not lose
    it).
    """

    last_transition_time: Time | None = None


class DaemonSetStatus(ApiStruct, frozen=True):
    """`apps/v1.DaemonSetStatus`."""

    current_number_scheduled: Int64 = 0
    number_misscheduled: Int64 = 0
    desired_number_scheduled: Int64 = 0
    number_ready: Int64 = 0
    observed_generation: Int64 = 0
    updated_number_scheduled: Int64 = 0
    number_available: Int64 = 0
    number_unavailable: Int64 = 0
    collision_count: Int64 | None = None
    conditions: tuple[DaemonSetCondition, ...] = ()


class DaemonSet(KubeObject, frozen=True):
    """`apps/v1.DaemonSet`."""

    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class ControllerRevision(KubeObject, frozen=True):
    """`apps/v1.ControllerRevision`: `data` is the patch document as plain JSON."""

    data: dict[str, Any] | None = None
    revision: Int64 = 0


class ScaleSpec(ApiStruct, frozen=True):
    """The common part of the specs of Deployment, ReplicaSet and StatefulSet."""

    replicas: Int64 | None = None
    selector: LabelSelector | None = None
    min_ready_seconds: Int64 = 0
    template: dict[str, Any] = {}
    pod_management_policy: str = ""


class ScaleStatus(ApiStruct, frozen=True):
    """The replica counts that they report."""

    replicas: Int64 = 0
    ready_replicas: Int64 = 0
    available_replicas: Int64 = 0


class ReplicaSet(KubeObject, frozen=True):
    """`apps/v1.ReplicaSet`."""

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class RollingUpdateDeployment(ApiStruct, frozen=True):
    """`apps/v1.RollingUpdateDeployment`."""

    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DeploymentStrategy(ApiStruct, frozen=True):
    """`apps/v1.DeploymentStrategy`."""

    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(ScaleSpec, frozen=True):
    """`apps/v1.DeploymentSpec`."""

    strategy: DeploymentStrategy = DeploymentStrategy()
    paused: bool = False


class Deployment(KubeObject, frozen=True):
    """`apps/v1.Deployment`."""

    spec: DeploymentSpec = DeploymentSpec()
    status: ScaleStatus = ScaleStatus()


class StatefulSet(KubeObject, frozen=True):
    """`apps/v1.StatefulSet`."""

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class ReplicationControllerSpec(ApiStruct, frozen=True):
    """`core/v1.ReplicationControllerSpec`: its selector is a plain map of labels."""

    replicas: Int64 | None = None
    selector: dict[str, str] | None = None
    min_ready_seconds: Int64 = 0
    template: dict[str, Any] = {}


class ReplicationController(KubeObject, frozen=True):
    """`core/v1.ReplicationController`."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: ScaleStatus = ScaleStatus()


class PodFailurePolicyOnPodConditionsPattern(ApiStruct, frozen=True):
    """`batch/v1.PodFailurePolicyOnPodConditionsPattern`."""

    type: str = ""
    status: str = "True"


class PodFailurePolicyRule(ApiStruct, frozen=True):
    """`batch/v1.PodFailurePolicyRule`."""

    action: str = ""
    on_pod_conditions: tuple[PodFailurePolicyOnPodConditionsPattern, ...] = ()


class PodFailurePolicy(ApiStruct, frozen=True):
    """`batch/v1.PodFailurePolicy`."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class JobSpec(ApiStruct, frozen=True):
    """`batch/v1.JobSpec`."""

    parallelism: Int64 | None = None
    completions: Int64 | None = None
    backoff_limit: Int64 | None = None
    suspend: bool | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: PodFailurePolicy | None = None


class JobStatus(ApiStruct, frozen=True):
    """`batch/v1.JobStatus`."""

    succeeded: Int64 = 0
    failed: Int64 = 0
    conditions: tuple[Condition, ...] = ()


class Job(KubeObject, frozen=True):
    """`batch/v1.Job`."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class CrossVersionObjectReference(ApiStruct, frozen=True):
    """`autoscaling/v2.CrossVersionObjectReference`."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class HorizontalPodAutoscalerSpec(ApiStruct, frozen=True):
    """`autoscaling/v2.HorizontalPodAutoscalerSpec`: what it scales and between which bounds."""

    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: Int64 | None = None
    max_replicas: Int64 = 0


class HorizontalPodAutoscaler(KubeObject, frozen=True):
    """`autoscaling/v2.HorizontalPodAutoscaler`."""

    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    """`policy/v1.PodDisruptionBudgetSpec`."""

    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class Condition(BaseCondition, frozen=True):
    """`metav1.Condition`."""

    observed_generation: Int64 = 0
    last_transition_time: Time | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    """`policy/v1.PodDisruptionBudgetStatus`."""

    observed_generation: Int64 = 0
    disrupted_pods: dict[str, Time] | None = None
    disruptions_allowed: Int64 = 0
    current_healthy: Int64 = 0
    desired_healthy: Int64 = 0
    expected_pods: Int64 = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(KubeObject, frozen=True):
    """`policy/v1.PodDisruptionBudget`."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class NamespaceStatus(ApiStruct, frozen=True):
    """`core/v1.NamespaceStatus`."""

    phase: str = ""


class Namespace(KubeObject, frozen=True):
    """`core/v1.Namespace`."""

    status: NamespaceStatus = NamespaceStatus()


class ObjectReference(ApiStruct, frozen=True):
    """`core/v1.ObjectReference`."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    field_path: str = ""


class EventSource(ApiStruct, frozen=True):
    """`core/v1.EventSource`."""

    component: str = ""
    host: str = ""


class EventSeries(ApiStruct, frozen=True):
    """`core/v1.EventSeries`."""

    count: Int64 = 0
    last_observed_time: MicroTime | None = None


class Event(KubeObject, frozen=True):
    """`core/v1.Event`. `kube.load` brings events of `events.k8s.io` into this form."""

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    count: Int64 = 0
    series: EventSeries | None = None


class PriorityClass(KubeObject, frozen=True):
    """`scheduling.k8s.io/v1.PriorityClass`."""

    value: Int64 = 0
    global_default: bool = False
    preemption_policy: str | None = None


DEFAULT_REVISION_HISTORY_LIMIT = 10


def default_daemon_set_spec(spec: DaemonSetSpec) -> DaemonSetSpec:
    """The spec with its strategy and history limit; the template stays as written."""
    limit = spec.revision_history_limit
    return replace(
        spec,
        update_strategy=default_update_strategy(spec.update_strategy),
        revision_history_limit=DEFAULT_REVISION_HISTORY_LIMIT if limit is None else limit,
    )


def default_update_strategy(strategy: DaemonSetUpdateStrategy) -> DaemonSetUpdateStrategy:
    """RollingUpdate with maxUnavailable 1 and maxSurge 0, where nothing else is said."""
    if strategy.type not in ("", "RollingUpdate"):
        return strategy
    rolling = strategy.rolling_update or RollingUpdateDaemonSet()
    unavailable = 1 if rolling.max_unavailable is None else rolling.max_unavailable
    surge = 0 if rolling.max_surge is None else rolling.max_surge
    return DaemonSetUpdateStrategy(
        "RollingUpdate", RollingUpdateDaemonSet(max_unavailable=unavailable, max_surge=surge)
    )


def default_pod_template(template: dict[str, Any]) -> dict[str, Any]:
    """The template with a pod spec's defaults; one without a spec stays as it is."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return template
    filled = _with_defaults(spec, _POD_DEFAULTS)
    for key in ("containers", "initContainers"):
        if isinstance(filled.get(key), list):
            filled = {**filled, key: [_default_container(c) for c in filled[key]]}
    return {**template, "spec": filled}


_POD_DEFAULTS: dict[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS: dict[str, Any] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def _default_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image") or "")
    latest = "@" not in image and (":" not in image.rpartition("/")[2] or image.endswith(":latest"))
    pull = {"imagePullPolicy": "Always" if latest else "IfNotPresent"}
    filled = _with_defaults(container, _CONTAINER_DEFAULTS | pull)
    ports = filled.get("ports")
    if isinstance(ports, list):
        filled["ports"] = [
            _with_defaults(port, {"protocol": "TCP"}) if isinstance(port, dict) else port
            for port in ports
        ]
    return filled


def _with_defaults(fields: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    missing = {key: value for key, value in defaults.items() if fields.get(key) is None}
    return {**fields, **missing}
