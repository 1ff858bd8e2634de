"""From slices back to the API's JSON: names in its own spelling, instants as RFC 3339 text.

A slice holds only what some decision reads, so what it encodes to is never fit to replace the
object in a cluster: writes there are patches of what changed. Absent and zero values are left out,
as the API leaves them out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubectl_nodelife.kube.field_managers import FieldManagers
from kubectl_nodelife.kube.kinds import kind_of_type
from kubectl_nodelife.kube.meta import ApiStruct, KubeObject, MicroTime, Time
from kubectl_nodelife.kube.times import format_micro_time, format_time


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
