"""The API server's version and discovery: which resources it serves, in both forms that clients ask
for: the documents of every group, and all in one (aggregated discovery v2).

The sandbox serves all kinds that are read, and a few more that kubectl asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final, NamedTuple

from kubectl_nodelife.kube.kinds import KINDS
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
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
}


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
    return sorted({r.api_version for r in RESOURCES if r.group} | set(_REVIEWS))


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
            resource.plural, resource.kind, group_version, resource.namespaced, _VERBS
        )
        item["shortNames"] = list(resource.short_names)
        item["subresources"] = []
        for sub in resource.subresources:
            group, version_, kind, verbs = _subresource(resource, sub)
            item["subresources"].append(
                {
                    "subresource": sub,
                    "responseKind": {"group": group, "version": version_, "kind": kind},
                    "verbs": verbs,
                }
            )
        resources.append(item)
    for name, kind in _REVIEWS.get(group_version, {}).items():
        resources.append(_discovered_resource(name, kind, group_version, False, ["create"]))
    return resources


def _discovered_resource(
    plural: str, kind: str, group_version: str, namespaced: bool, verbs: list[str]
) -> dict[str, Any]:
    group, _, version_ = group_version.rpartition("/")
    return {
        "resource": plural,
        "responseKind": {"group": group, "version": version_, "kind": kind},
        "scope": "Namespaced" if namespaced else "Cluster",
        "singularResource": kind.lower(),
        "verbs": verbs,
    }


def _served_in(group_version: str) -> list[ServedResource]:
    return [resource for resource in RESOURCES if resource.api_version == group_version]


def _subresource(resource: ServedResource, name: str) -> tuple[str, str, str, list[str]]:
    special = _SUBRESOURCE_KINDS.get(name)
    if special is not None:
        return special
    return resource.group, resource.version, resource.kind, ["get", "patch", "update"]


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
        root = "apis" if resource.group else "api"
        inside = "namespaces/{namespace}/" if resource.namespaced else ""
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in ("dryRun", "fieldValidation")
        ]
        paths[f"/{root}/{group_version}/{inside}{resource.plural}/{{name}}"] = {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": kind,
            }
        }
    info = {"title": "sandbox", "version": "v1"}
    return {"openapi": "3.0.0", "info": info, "paths": paths}


_SUBRESOURCES: Final = {
    "Pod": ("status", "binding", "eviction"),
    "Node": ("status",),
    "Namespace": ("status", "finalize"),
    "DaemonSet": ("status",),
    "ReplicaSet": ("status",),
    "Deployment": ("status",),
    "StatefulSet": ("status",),
    "ReplicationController": ("status",),
    "Job": ("status",),
    "PodDisruptionBudget": ("status",),
    "PersistentVolume": ("status",),
    "PersistentVolumeClaim": ("status",),
    "HorizontalPodAutoscaler": ("status",),
    "Service": ("status",),
    "EvictionRequest": ("status",),
    "Eviction": ("status",),
    "PodGroup": ("status",),
}

# kind, plural, namespaced, apiVersion, short names: served, though nothing here reads them
_OTHERS: Final = (
    ("ConfigMap", "configmaps", True, "v1", ("cm",)),
    ("Secret", "secrets", True, "v1", ()),
    ("ServiceAccount", "serviceaccounts", True, "v1", ("sa",)),
    ("Endpoints", "endpoints", True, "v1", ("ep",)),
    ("LimitRange", "limitranges", True, "v1", ("limits",)),
    ("ResourceQuota", "resourcequotas", True, "v1", ("quota",)),
    ("CronJob", "cronjobs", True, "batch/v1", ("cj",)),
    ("CSIDriver", "csidrivers", False, "storage.k8s.io/v1", ()),
    ("ClusterRole", "clusterroles", False, "rbac.authorization.k8s.io/v1", ()),
    ("ClusterRoleBinding", "clusterrolebindings", False, "rbac.authorization.k8s.io/v1", ()),
)


class ServedResource(NamedTuple):
    """One kind as it is served. `type` is a bare KubeObject where only the metadata matter."""

    kind: str
    plural: str
    namespaced: bool
    api_version: str
    type: type[KubeObject]
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The API group, "" for the core one."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version without its group."""
        return self.api_version.rpartition("/")[2]

    @property
    def name(self) -> str:
        """`nodes`, `daemonsets.apps`: as errors and kubectl name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def read(self) -> bool:
        """True if the simulated cluster and the controllers know the kind."""
        return self.type is not KubeObject

    @property
    def has_status(self) -> bool:
        """True if the status can be written on its own only."""
        return "status" in self.subresources


RESOURCES: Final = (
    *(
        ServedResource(
            kind.name,
            kind.plural,
            kind.namespaced,
            kind.api_version,
            kind.type,
            kind.short_names,
            _SUBRESOURCES.get(kind.name, ()),
        )
        for kind in KINDS
    ),
    *(
        ServedResource(kind, plural, namespaced, version, KubeObject, short)
        for kind, plural, namespaced, version, short in _OTHERS
    ),
)

BY_PATH: Final = {(r.api_version, r.plural): r for r in RESOURCES}
BY_KIND: Final = {r.kind: r for r in RESOURCES}
BY_KIND_AND_VERSION: Final = {(r.api_version, r.kind): r for r in RESOURCES}
