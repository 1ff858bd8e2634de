"""Create, update and patch, as the API server's registry does.

Follows apiserver/pkg/registry/rest (create.go, update.go) and the strategies of the kinds as far as
clients notice: names and uids, versions as preconditions, generations, status apart from the rest,
no write where nothing changes, deletion once the last finalizer is gone. Left out: validation, and
admission but for the default tolerations of pods.

A node's managedFields are kept as far as they are read here: the writers of taints, cordon,
conditions (`with_writer`). As for updates and patches that are not server-side apply, the writer of
a field owns it alone, by the name in fieldManager, else the first word of its User-Agent. The
simulated controllers' own writes are not noted.

Patches are JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch. The last
follows apimachinery/pkg/util/strategicpatch as far as kubectl's own commands and kubelets use it:
lists that merge by a key, and the `$patch`, `$deleteFromPrimitiveList`, `$setElementOrder` and
`$retainKeys` directives. Lists that are not in the table are replaced whole, as atomic ones are.
Server-side apply is left out.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.kube.codec import encode, merge_patch
from kubectl_nodelife.kube.field_managers import (
    TAINTS,
    UNSCHEDULABLE,
    FieldManager,
    FieldManagers,
    condition_field,
    read_field_managers,
)
from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.wellknown import LIFECYCLE_CONDITIONS
from kubectl_nodelife.sandbox.discovery import SUBRESOURCES
from kubectl_nodelife.sandbox.served import ServedApi, merge_back
from kubectl_nodelife.sandbox.status import (
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    unprocessable,
)
from kubectl_nodelife.sandbox.store import StoredObject
from kubectl_nodelife.sim.api import as_created, as_updated

Document = dict[str, Any]

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED = frozenset(
    {
        "DaemonSet",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Job",
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    }
)
"""Kinds whose generation counts changes of the spec."""

_KEPT = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
"""Metadata that a write cannot change."""

_UNKNOWN: Final = "unknown"


class WriteTarget(NamedTuple):
    """The subject of a request: `name` "" for the collection."""

    resource: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class RequestApplier:
    """Applies clients' writes. All methods return the resulting object; refusals: StatusError."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api

    def find(self, target: WriteTarget) -> StoredObject:
        """The object, or StatusError 404."""
        entry = self._api.served.get(target.resource.name, (target.namespace, target.name))
        if entry is None:
            raise not_found(target.resource, target.name)
        return entry

    def create(self, target: WriteTarget, document: Document, *, dry_run: bool = False) -> Document:
        """POST to a collection."""
        resource = target.resource
        self._check_kind(resource, document)
        meta = document.setdefault("metadata", {})
        if not isinstance(meta, dict):
            raise bad_request("metadata is not an object")
        if resource.namespaced:
            if meta.get("namespace", target.namespace) != target.namespace:
                raise bad_request("the namespace of the object does not match the request's")
            meta["namespace"] = target.namespace
        if not meta.get("name"):
            if not meta.get("generateName"):
                why = "Required value: name or generateName is required"
                raise invalid(resource, "", "metadata.name", why)
            meta["name"] = meta["generateName"] + _suffix()
        name = meta["name"]
        if self._api.served.get(resource.name, (target.namespace, name)) is not None:
            raise already_exists(resource, name)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = format_time(self._api.now_ns)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
            meta.pop(field, None)
        return self._store(resource, self._defaulted(resource, document), dry_run)

    def update(
        self, target: WriteTarget, document: Document, *, manager: str = "", dry_run: bool = False
    ) -> Document:
        """PUT of an object or of its status. `manager`: the field manager."""
        entry = self.find(target)
        self._check_kind(target.resource, document)
        meta = document.get("metadata")
        if not isinstance(meta, dict) or meta.get("name") != target.name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self._replace(target, entry, document, manager, dry_run)

    def patch(
        self,
        target: WriteTarget,
        content_type: str,
        patch: Any,
        *,
        manager: str = "",
        dry_run: bool = False,
    ) -> Document:
        """PATCH of an object or of its status, in any form but apply."""
        entry = self.find(target)
        try:
            document = apply_patch(content_type, entry.document(), patch)
        except PatchError:
            raise unprocessable() from None
        return self._replace(target, entry, document, manager, dry_run)

    def _replace(
        self,
        target: WriteTarget,
        entry: StoredObject,
        document: Document,
        manager: str,
        dry_run: bool,
    ) -> Document:
        resource, present = target.resource, entry.document()
        meta, old_meta = document["metadata"], present["metadata"]
        if meta.get("resourceVersion") not in (None, "", "0", old_meta["resourceVersion"]):
            raise conflict(resource, target.name)
        if meta.get("uid") not in (None, "", old_meta["uid"]):
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
            raise conflict(resource, target.name, why + old_meta["uid"])
        if target.subresource == "status":
            document = {**present, "status": document.get("status", {})}
        elif "status" in SUBRESOURCES.get(resource.name, ()):
            document = _with(document, "status", present.get("status"))
        document["metadata"] = {**document["metadata"], "name": target.name}
        for field in (*_KEPT, "namespace", "resourceVersion"):
            document["metadata"] = _with(document["metadata"], field, old_meta.get(field))
        document.update(kind=resource.name, apiVersion=resource.api_version)
        if document == present:
            return present
        if resource.name == "Node" and manager:
            document = with_writer(present, document, manager, self._api.now_ns)
        node = present.get("spec", {}).get("nodeName")
        if resource.name == "Pod" and document.get("spec", {}).get("nodeName") != node:
            why = "Forbidden: may not be changed"  # a bound pod stays where it is
            raise invalid(resource, target.name, "spec.nodeName", why)
        document = self._regenerated(resource, entry, document)
        if _is_let_go(resource, document):
            if not dry_run:
                self._api.remove(resource, (target.namespace, target.name))
            return document
        return self._store(resource, document, dry_run)

    def _store(self, resource: Kind, document: Document, dry_run: bool) -> Document:
        if dry_run:
            return document
        try:
            return self._api.write(resource, document).document()
        except InputError as error:
            raise bad_request(str(error)) from None

    def _check_kind(self, resource: Kind, document: Document) -> None:
        kind, version = document.get("kind"), document.get("apiVersion")
        wanted = resource.name, resource.api_version
        if (kind or resource.name, version or resource.api_version) != wanted:
            raise bad_request(f"the object is {kind} of {version}, not {' of '.join(wanted)}")
        document.update(kind=resource.name, apiVersion=resource.api_version)

    def _defaulted(self, resource: Kind, document: Document) -> Document:
        if resource.name in _GENERATED:
            document["metadata"]["generation"] = 1
        if resource.name == "Pod":
            return _defaulted_pod(document, self._api)
        if resource.name == "DaemonSet":
            document["metadata"].pop("generation", None)
            obj = _slice(self._api, resource.name, document)
            return dict(merge_back(document, encode(obj), encode(as_created(obj))))
        if resource.name == "Namespace":
            document.setdefault("status", {})["phase"] = "Active"
        return document

    def _regenerated(self, resource: Kind, entry: StoredObject, document: Document) -> Document:
        """A changed spec is a new generation; a DaemonSet's template has its own count too."""
        if resource.name == "DaemonSet":
            obj = _slice(self._api, resource.name, document)
            return dict(merge_back(document, encode(obj), encode(as_updated(entry.obj, obj))))
        if resource.name in _GENERATED and document.get("spec") != entry.document().get("spec"):
            meta = document["metadata"]
            document["metadata"] = {**meta, "generation": meta.get("generation", 0) + 1}
        return document


def _slice(api: ServedApi, kind: str, document: Document) -> Any:
    try:
        return api.served.collections[kind].to_slice(msgspec.json.encode(document))
    except InputError as error:
        raise bad_request(str(error)) from None


def _with(document: Document, field: str, value: Any) -> Document:
    """The document with that field, or without it where the value is None."""
    changed = dict(document)
    if value is None:
        changed.pop(field, None)
    else:
        changed[field] = value
    return changed


def _is_let_go(resource: Kind, document: Document) -> bool:
    """True if the last finalizer of an object that is being deleted is gone."""
    meta = document["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return resource.name != "Pod" or meta.get("deletionGracePeriodSeconds", 0) == 0


def _defaulted_pod(document: Document, api: ServedApi) -> Document:
    """The defaults that the API server fills in, and the plugin DefaultTolerationSeconds."""
    spec = document.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    status = document.setdefault("status", {})
    status.setdefault("phase", "Pending")
    pod = _slice(api, "Pod", document)
    assert isinstance(pod, Pod)
    tolerations = api.default_tolerations.admit(pod).spec.tolerations
    added = tolerations[len(pod.spec.tolerations) :]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(encode, added)]
    return document


def _suffix() -> str:
    return "".join(secrets.choice(_SUFFIX) for _ in range(5))


def manager_of(query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """The field manager that a request names, or else the one of its User-Agent."""
    agent = headers.get("User-Agent", "").partition("/")[0]
    return query.get("fieldManager") or agent or _UNKNOWN


def with_writer(before: Document, after: Document, manager: str, now_ns: int) -> dict[str, Any]:
    """The node `after` a write of that manager, with its managedFields."""
    old, new = _fields(before), _fields(after)
    changed = frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    managers = read_field_managers(before["metadata"].get("managedFields")).entries
    entries = [entry._replace(fields=entry.fields - changed) for entry in managers]
    at_ns = now_ns // SECOND_NS * SECOND_NS
    for fields in (changed & {TAINTS, UNSCHEDULABLE}, changed - {TAINTS, UNSCHEDULABLE}):
        if written := fields & new.keys():
            entries.append(FieldManager(manager, "Update", at_ns, written))
    managed = FieldManagers(tuple(entry for entry in entries if entry.fields)).document()
    metadata = {**after["metadata"], "managedFields": managed}
    if not managed:
        del metadata["managedFields"]
    return {**after, "metadata": metadata}


def _fields(node: Document) -> dict[str, Any]:
    """The fields that count, by their name in fieldsV1, with their values."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    values = {TAINTS: spec.get("taints"), UNSCHEDULABLE: spec.get("unschedulable")}
    for condition in status.get("conditions") or ():
        if condition.get("type") in LIFECYCLE_CONDITIONS:
            values[condition_field(condition["type"])] = condition
    return {key: value for key, value in values.items() if value}


JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

# list field -> the key by which its members merge
_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})


class PatchError(ValueError):
    """A patch that cannot be applied; the text says why."""


def apply_patch(content_type: str, document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The document after the patch; the document itself stays as it is. Raises PatchError."""
    if content_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise PatchError("a JSON patch is a list of operations")
        return json_patch(document, patch)
    if not isinstance(patch, dict):
        raise PatchError("the patch is not an object")
    if content_type == MERGE_PATCH:
        merged: dict[str, Any] = merge_patch(document, patch)
        return merged
    return strategic_patch(document, patch)


def strategic_patch(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """One object of a strategic merge patch."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "delete":
        return {}
    merged = dict(target)
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field) or () if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            present = merged.get(key)
            merged[key] = strategic_patch(present if isinstance(present, dict) else {}, value)
        elif isinstance(value, list):
            merged[key] = _strategic_list(key, merged.get(key) or [], value)
        else:
            merged[key] = value
    return merged


def _strategic_list(field: str, present: list[Any], patch: list[Any]) -> list[Any]:
    if field in _PRIMITIVE_SETS:
        return present + [item for item in patch if item not in present]
    key = _MERGE_KEYS.get(field)
    if key is None or not all(isinstance(item, dict) and key in item for item in [*present]):
        return [item for item in patch if not (isinstance(item, dict) and "$patch" in item)]
    merged = list(present)
    for item in patch:
        if not isinstance(item, dict):
            raise PatchError(f"a member of {field} is not an object")
        if item.get("$patch") == "replace" and key not in item:
            merged = []
            continue
        if key not in item:
            raise PatchError(f"a member of {field} has no {key}")
        at = next((i for i, old in enumerate(merged) if old[key] == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append({k: v for k, v in item.items() if not k.startswith("$")})
        else:
            merged[at] = strategic_patch(merged[at], item)
    return merged


def json_patch(document: dict[str, Any], operations: Sequence[Any]) -> dict[str, Any]:
    """RFC 6902: the operations in order, all or none. Raises PatchError."""
    result: Any = deepcopy(document)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise PatchError("an operation lacks op or path")
        result = _operate(result, operation)
    if not isinstance(result, dict):
        raise PatchError("the patch leaves no object")
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    op, path = operation["op"], _pointer(operation["path"])
    if op in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"{op} lacks a value")
    if op == "test":
        if _find(document, path) != operation["value"]:
            raise PatchError(f"testing value {operation['path']} failed: test failed")
        return document
    if op == "add":
        return _add(document, path, deepcopy(operation["value"]))
    if op == "remove":
        return _remove(document, path)
    if op == "replace":
        _find(document, path)
        return _add(_remove(document, path) if path else None, path, deepcopy(operation["value"]))
    if op in ("move", "copy"):
        source = _pointer(operation.get("from", ""))
        value = deepcopy(_find(document, source))
        return _add(_remove(document, source) if op == "move" else document, path, value)
    raise PatchError(f"unknown operation {op!r}")


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _find(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_step(document, part)]
    return document


def _step(container: Any, part: str, *, end: bool = False) -> Any:
    """The key or index that the pointer's part means in the container. Raises PatchError."""
    if isinstance(container, dict):
        if part in container or end:
            return part
    elif isinstance(container, list):
        if part == "-" and end:
            return len(container)
        if part.isdecimal() and int(part) < len(container) + end:
            return int(part)
    raise PatchError(f"the path has no {part!r}")


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    container = _find(document, path[:-1])
    at = _step(container, path[-1], end=True)
    if isinstance(container, list):
        container.insert(at, value)
    else:
        container[at] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole object cannot be removed")
    container = _find(document, path[:-1])
    del container[_step(container, path[-1])]
    return document
