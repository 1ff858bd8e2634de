"""From slices back to the API's JSON: names in its own spelling, instants as RFC 3339 text; and
JSON merge patches.

A slice holds only what some decision reads, so what it encodes to is never fit to replace the
object in a cluster: writes there are patches of what changed. Absent and zero values are left out,
as the API leaves them out.

`go_json` writes JSON as Go's encoding/json does: sorted keys, no blanks, and HTML characters
escaped. A ControllerRevision's `data` is compared byte by byte (`EqualRevision`, `Match`): one
other byte, and the DaemonSet controller that comes back makes another revision. Everything that is
sent is written by this one function, so that no request needs a rule of its own. Numbers are
written as Python has them; a pod template has integers only.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kubectl_nodelife.kube.field_managers import FieldManagers
from kubectl_nodelife.kube.kinds import kind_of_type
from kubectl_nodelife.kube.meta import ApiStruct, KubeObject, MicroTime, Time
from kubectl_nodelife.kube.times import format_micro_time, format_time

_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


def encode(value: ApiStruct) -> dict[str, Any]:
    """The API's JSON form of a slice, as plain Python objects.

    A whole object begins with apiVersion and kind; a part of one (a taint, a condition) has
    neither. The inverse of `kube.decode.decode`, except that instants lose what is finer than the
    wire's form.
    """
    # By way of JSON, because msgspec.to_builtins leaves tuples where JSON has lists.
    encoded: dict[str, Any] = msgspec.json.decode(_encoder.encode(value))
    if not isinstance(value, KubeObject):
        return encoded
    kind = kind_of_type(type(value))
    return {"apiVersion": kind.api_version, "kind": kind.name, **encoded}


def encode_part(value: Any) -> Any:
    """The `enc_hook` of slices: instants and managedFields as the API writes them.

    Raises NotImplementedError for anything else.
    """
    if isinstance(value, MicroTime):
        return format_micro_time(value)
    if isinstance(value, Time):
        return format_time(value)
    if isinstance(value, FieldManagers):
        return value.document()
    raise NotImplementedError(f"no encoding for {type(value)!r}")


_encoder = msgspec.json.Encoder(enc_hook=encode_part)


def go_json(value: Any) -> bytes:
    """The bytes of `json.Marshal` for a value of plain Python objects.

    Raises ValueError for a number that JSON has not.
    """
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return text.translate(_ESCAPES).encode()


def merge_patch(target: Any, patch: Any) -> Any:
    """The target after the patch, both plain JSON; the target itself stays as it is.

    Follows RFC 7386: objects merge, null takes a member away, anything else replaces.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
