"""What the API server fills into a DaemonSet's spec where the writer left it out.

Follows `SetDefaults_DaemonSet` (`pkg/apis/apps/v1/defaults.go`) and, for the template, those of
`SetDefaults_PodSpec` (`pkg/apis/core/v1/defaults.go`) that every pod spec gets. Who plays the API
server applies them before anything is decided; the controller takes a set as it is. Left out: the
defaults of containers and volumes, which no decision reads.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.kube.workload import (
    DaemonSetSpec,
    DaemonSetUpdateStrategy,
    RollingUpdateDaemonSet,
)

DEFAULT_REVISION_HISTORY_LIMIT = 10


def default_daemon_set_spec(spec: DaemonSetSpec) -> DaemonSetSpec:
    """The spec as the API server stores it; the same object where nothing was missing."""
    limit = spec.revision_history_limit
    defaulted = replace(
        spec,
        update_strategy=default_update_strategy(spec.update_strategy),
        revision_history_limit=DEFAULT_REVISION_HISTORY_LIMIT if limit is None else limit,
        template=default_pod_template(spec.template),
    )
    return spec if defaulted == spec else defaulted


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
    """The template with a pod spec's defaults; a template without a spec stays as it is."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return template
    defaults: dict[str, Any] = {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    missing = {key: value for key, value in defaults.items() if spec.get(key) is None}
    return {**template, "spec": {**spec, **missing}} if missing else template
