"""The API server's version and discovery: which resources it serves, in both forms that clients ask
for: the documents of every group, and all in one (aggregated discovery v2).

The sandbox serves all kinds that are read, and a few more that kubectl asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from kubectl_nodelife.kube.kinds import KINDS, Kind, group_of
from kubectl_nodelife.kube.meta import KubeObject

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_REVIEWS = {
    "authorization.k8s.io/v1": {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
    "authentication.k8s.io/v1": {"selfsubjectreviews": "SelfSubjectReview"},
}
_SUBRESOURCE_KINDS = {
    "binding": ({"group": "", "version": "v1", "kind": "Binding"}, ["create"]),
    "eviction": ({"group": "policy", "version": "v1", "kind": "Eviction"}, ["create"]),
}
_UPDATES = ["get", "patch", "update"]


def version(git_version: str) -> dict[str, Any]:
    """GET /version."""
    major, minor = git_version.removeprefix("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "sandbox",
    }


def groups() -> list[str]:
    """The group versions that are served, such as `apps/v1`, those of a group in a row."""
    return sorted({r.api_version for r in RESOURCES if group_of(r.api_version)} | set(_REVIEWS))


def _by_group(group_versions: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The groups, "" for the core one, with their versions."""
    in_a_row = groupby(group_versions, key=lambda version: version.rpartition("/")[0])
    return [(group, list(versions)) for group, versions in in_a_row]


def api_versions() -> dict[str, Any]:
    """GET /api."""
    return {"kind": "APIVersions", "versions": ["v1"]}


def api_groups() -> dict[str, Any]:
    """GET /apis."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": group,
                "versions": [_version_of(version) for version in versions],
                "preferredVersion": _version_of(versions[0]),
            }
            for group, versions in _by_group(groups())
        ],
    }


def _version_of(group_version: str) -> dict[str, str]:
    return {"groupVersion": group_version, "version": group_version.partition("/")[2]}


def resource_list(group_version: str) -> dict[str, Any] | None:
    """GET /api/v1 and /apis/GROUP/VERSION; None where there is no such version."""
    resources: list[dict[str, Any]] = []
    for item in _discovered(group_version):
        namespaced = item["scope"] == "Namespaced"
        resource = {
            "name": item["resource"],
            "singularName": item["singularResource"],
            "namespaced": namespaced,
            "kind": item["responseKind"]["kind"],
            "verbs": item["verbs"],
        }
        short = {"shortNames": item["shortNames"]} if "shortNames" in item else {}
        resources.append({**resource, **short})
        for sub in item.get("subresources", ()):
            name = f"{item['resource']}/{sub['subresource']}"
            about = {"name": name, "singularName": "", "namespaced": namespaced}
            resources.append({**about, **sub["responseKind"], "verbs": sub["verbs"]})
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def aggregated(*, core: bool) -> dict[str, Any]:
    """GET /api (`core`) and /apis as APIGroupDiscoveryList v2."""
    versions = ["v1"] if core else groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group},
                "versions": [
                    {
                        "version": version.rpartition("/")[2],
                        "freshness": "Current",
                        "resources": _discovered(version),
                    }
                    for version in of_group
                ],
            }
            for group, of_group in _by_group(versions)
        ],
    }


def _discovered(group_version: str) -> list[dict[str, Any]]:
    resources: list[dict[str, Any]] = []
    for resource in _served_in(group_version):
        item = _discovered_resource(
            resource.plural, resource.name, group_version, resource.namespaced, _VERBS
        )
        item["shortNames"] = list(resource.short_names)
        item["subresources"] = [
            {"subresource": sub, "responseKind": response, "verbs": verbs}
            for sub in SUBRESOURCES.get(resource.name, ())
            for response, verbs in [
                _SUBRESOURCE_KINDS.get(sub, (_kind(group_version, resource.name), _UPDATES))
            ]
        ]
        resources.append(item)
    for name, kind in _REVIEWS.get(group_version, {}).items():
        resources.append(_discovered_resource(name, kind, group_version, False, ["create"]))
    return resources


def _discovered_resource(
    plural: str, kind: str, group_version: str, namespaced: bool, verbs: list[str]
) -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": _kind(group_version, kind),
        "scope": "Namespaced" if namespaced else "Cluster",
        "singularResource": kind.lower(),
        "verbs": verbs,
    }


def _kind(group_version: str, kind: str) -> dict[str, str]:
    group, _, version_ = group_version.rpartition("/")
    return {"group": group, "version": version_, "kind": kind}


def _served_in(group_version: str) -> list[Kind]:
    return [resource for resource in RESOURCES if resource.api_version == group_version]


def openapi_index() -> dict[str, Any]:
    """GET /openapi/v3: where each group version's document is."""
    paths = {}
    for group_version in ["v1", *groups()]:
        path = f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash=0"}
    return {"paths": paths}


def openapi(group_version: str) -> dict[str, Any]:
    """GET /openapi/v3/...: no schemas, only that writes take dryRun and fieldValidation.

    It is what kubectl looks for before it leaves the validation of an object to the server.
    """
    paths = {}
    for resource in _served_in(group_version):
        root = "apis" if group_of(resource.api_version) else "api"
        inside = "namespaces/{namespace}/" if resource.namespaced else ""
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in ("dryRun", "fieldValidation")
        ]
        paths[f"/{root}/{group_version}/{inside}{resource.plural}/{{name}}"] = {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": _kind(group_version, resource.name),
            }
        }
    info = {"title": "sandbox", "version": "v1"}
    return {"openapi": "3.0.0", "info": info, "paths": paths}


_RBAC: Final = "rbac.authorization.k8s.io/v1"

_WITH_STATUS: Final = (
    *("Pod", "Node", "Namespace", "DaemonSet", "ReplicaSet", "Deployment", "StatefulSet", "Job"),
    *("ReplicationController", "PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim"),
    *("HorizontalPodAutoscaler", "Service", "EvictionRequest", "Eviction", "PodGroup"),
)
SUBRESOURCES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_WITH_STATUS, ("status",)),
    "Pod": ("status", "binding", "eviction"),
    "Namespace": ("status", "finalize"),
}
"""By the name of the kind. Of one with `status` the status can be written on its own only."""

RESOURCES: Final = (
    *KINDS,
    # Served, though nothing here reads them: only their metadata matter.
    Kind("ConfigMap", KubeObject, "configmaps", True, ("v1",), ("cm",)),
    Kind("Secret", KubeObject, "secrets", True, ("v1",)),
    Kind("ServiceAccount", KubeObject, "serviceaccounts", True, ("v1",), ("sa",)),
    Kind("Endpoints", KubeObject, "endpoints", True, ("v1",), ("ep",)),
    Kind("LimitRange", KubeObject, "limitranges", True, ("v1",), ("limits",)),
    Kind("ResourceQuota", KubeObject, "resourcequotas", True, ("v1",), ("quota",)),
    Kind("CronJob", KubeObject, "cronjobs", True, ("batch/v1",), ("cj",)),
    Kind("CSIDriver", KubeObject, "csidrivers", False, ("storage.k8s.io/v1",)),
    Kind("ClusterRole", KubeObject, "clusterroles", False, (_RBAC,)),
    Kind("ClusterRoleBinding", KubeObject, "clusterrolebindings", False, (_RBAC,)),
)

BY_PATH: Final = {(r.api_version, r.plural): r for r in RESOURCES}
BY_KIND: Final = {r.name: r for r in RESOURCES}
BY_KIND_AND_VERSION: Final = {(r.api_version, r.name): r for r in RESOURCES}
