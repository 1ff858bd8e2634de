"""Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.

The last follows apimachinery/pkg/util/strategicpatch as far as kubectl's own commands and kubelets
use it: lists that merge by a key, and the `$patch`, `$deleteFromPrimitiveList`, `$setElementOrder`
and `$retainKeys` directives. Lists that are not in the table are replaced whole, as atomic ones
are. Server-side apply is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubectl_nodelife.kube.merge import merge_patch

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
        return [item for item in patch if not _is_directive(item)]
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


def _is_directive(item: Any) -> bool:
    return isinstance(item, dict) and "$patch" in item


def json_patch(document: dict[str, Any], operations: Sequence[Any]) -> dict[str, Any]:
    """RFC 6902: the operations in order, all or none. Raises PatchError."""
    result: Any = _copy(document)
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
        return _add(document, path, _copy(operation["value"]))
    if op == "remove":
        return _remove(document, path)
    if op == "replace":
        _find(document, path)
        return (
            _add(_remove(document, path), path, _copy(operation["value"]))
            if path
            else (operation["value"])
        )
    if op in ("move", "copy"):
        source = _pointer(operation.get("from", ""))
        value = _copy(_find(document, source))
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


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
