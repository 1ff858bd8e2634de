"""Defaults that the API server fills into a DaemonSet's spec where the writer left it out.

Follows `SetDefaults_DaemonSet` (`pkg/apis/apps/v1/defaults.go`) and, for the template, what nearly
every pod spec gets of `pkg/apis/core/v1/defaults.go`. A simulated API server applies the former
before anything is decided; templates are compared as if both had the latter. Left out: the defaults
of probes, volumes and the rarer fields.
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
