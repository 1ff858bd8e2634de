"""One object: from JSON, or from plain Python objects, to its slice.

The fast way is strict. What does not decode so is tried once more with nulls dropped and numbers in
quotes accepted, because real dumps hold both; only then it is an error, which names the path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kubectl_nodelife.kube.documents import Json, end_of_json
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.field_managers import FieldManagers, read_field_managers
from kubectl_nodelife.kube.kinds import KINDS, Kind, kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import decode_shared_time, decode_time, parse_time
from kubectl_nodelife.kube.workload import Event

T = TypeVar("T", bound=KubeObject)
S = TypeVar("S")

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_OWN_TIMES = (Lease, Event)


def decode_hook(type_: type[KubeObject]) -> Callable[[type[Any], Any], Any]:
    """The `dec_hook` of a decoder of that type."""
    if type_ is Node:
        return _decode_part
    return decode_time if type_ in _OWN_TIMES else decode_shared_time


def _decode_part(type_: type[Any], raw: Any) -> Any:
    """Who wrote fields, or an instant."""
    return read_field_managers(raw) if type_ is FieldManagers else decode_time(type_, raw)


DECODERS: dict[type[KubeObject], Callable[[Any], Any]] = {
    kind.type: msgspec.json.Decoder(kind.type, dec_hook=decode_hook(kind.type)).decode
    for kind in KINDS
}
"""The strict decoder of each type, JSON in; raises one of UNDECODABLE."""

_FAULT = re.compile(r"(?P<what>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?", re.DOTALL)


def decode(kind: str, raw: Mapping[str, Any], source: str = "", path: str = "") -> KubeObject:
    """The slice of an object of a known kind, from plain Python objects.

    Raises InputError naming the path, KeyError for a kind that is not in the registry.
    """
    return convert(raw, kind_named(kind).type, source, path)


def decode_json(type_: type[T], raw: Json | msgspec.Raw, source: str = "", path: str = "") -> T:
    """The slice of an object of a known type, from its JSON: the way for lists and watches.

    Raises InputError.
    """
    try:
        return DECODERS[type_](raw)  # type: ignore[no-any-return]
    except UNDECODABLE:
        return convert(plain(raw, source, path), type_, source, path)


_UNDECIDED: Final = re.compile(
    r"\.lastProbeTime$|template\.metadata\.creationTimestamp$|\.lastUpdateTime$"
)
"""Fields by which no controller and nobody here decides."""

_TEMPLATES: Final = (("spec", "template", "metadata"), ("data", "spec", "template", "metadata"))

_MOST_LEFT_OUT: Final = 100


def convert(raw: Any, type_: type[S], source: str, path: str) -> S:
    """The slice of plain Python objects, tolerant. Raises InputError."""
    try:
        return msgspec.convert(raw, type_, dec_hook=_decode_part)
    except (msgspec.ValidationError, TypeError):
        pass  # nulls and quotes, perhaps
    try:
        return msgspec.convert(_without_nulls(raw), type_, strict=False, dec_hook=_decode_part)
    except msgspec.ValidationError as error:
        match = _FAULT.fullmatch(str(error))
        what, inner = (match["what"], match["path"] or "") if match else (str(error), "")
        raise InputError(
            what[:1].lower() + what[1:],
            source=source,
            path=(path + inner).removeprefix("."),
            remedy="put it in quotes" if what.startswith("Expected `str") else "correct the value",
        ) from None


def without_undecided(
    raw: dict[str, Any], type_: type[S], source: str, path: str
) -> tuple[S, list[str]]:
    """As `convert`, without fields that decide nothing and hold no value of their type, each of
    which is a sentence of the second result. Raises InputError for the first other one."""
    left_out: list[str] = []
    for place in _TEMPLATES:  # which stay plain, as their hash is taken of them
        metadata = _walked(raw, place)
        created = metadata.get("creationTimestamp") if isinstance(metadata, dict) else None
        if created is not None and not _is_time(created):
            metadata["creationTimestamp"] = None
            left_out.append(_left_out(".".join((*place, "creationTimestamp")), created))
    while True:
        try:
            return convert(raw, type_, source, path), left_out
        except InputError as error:
            field = error.path.removeprefix(path).removeprefix(".")
            if not field or len(left_out) == _MOST_LEFT_OUT:
                raise
            keys = [part for part in re.split(r"[.\[\]]+", field) if part]
            holder, value = _walked(raw, keys[:-1]), None
            if isinstance(holder, dict):
                value = holder.get(keys[-1])
            unset = value == "null" and keys[-1].endswith(("Time", "Timestamp"))
            if not isinstance(holder, dict) or not (unset or _UNDECIDED.search(field)):
                raise
            del holder[keys[-1]]
            left_out.append(_left_out(field, value))


def _left_out(field: str, value: Any) -> str:
    return f"{field} is {value!r:.40}, which is left out: nothing depends on it"


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and parse_time(value) is not None
    except ValueError:
        return False


def _walked(value: Any, keys: Sequence[str]) -> Any:
    """The value at the end of the keys and of the places in lists; None where there is none."""
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def plain(raw: Json | msgspec.Raw, source: str, path: str) -> Any:
    """The JSON as plain Python objects. Raises InputError."""
    try:
        return msgspec.json.decode(raw)
    except UnicodeDecodeError:
        raise InputError("holds bytes that are not UTF-8", source=source, path=path) from None
    except (msgspec.DecodeError, RecursionError):
        end_of_json(bytes(raw), source)  # says what and where
        raise InputError("is not JSON", source=source, path=path) from None


def _without_nulls(value: Any) -> Any:
    """The value without members and items that are null: what Go's decoder makes of them."""
    if isinstance(value, Mapping):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value if v is not None]
    return value


# --- what versions of a group name otherwise -----------------------------------------------------

_EVENT_FIELDS = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


_OTHER_DEFAULTS = frozenset(
    {("policy/v1beta1", "PodDisruptionBudget"), ("extensions/v1beta1", "DaemonSet")}
)


def needs_mending(api_version: str, kind: Kind) -> bool:
    """True if that version differs from the one that the slices follow."""
    if kind.name == "Event":
        return api_version.startswith("events.k8s.io/")
    return (api_version, kind.name) in _OTHER_DEFAULTS


def mended(api_version: str, kind: Kind, raw: dict[str, Any]) -> dict[str, Any]:
    """The object in the form of the version that the slices follow."""
    if not needs_mending(api_version, kind):
        return raw
    if kind.name == "Event":
        return {_EVENT_FIELDS.get(key, key): value for key, value in raw.items()}
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return raw
    if kind.name == "DaemonSet":  # `SetDefaults_DaemonSet` of pkg/apis/extensions/v1beta1
        strategy = spec.get("updateStrategy") or {}
        if isinstance(strategy, dict) and strategy.get("type"):
            return raw
        return {**raw, "spec": {**spec, "updateStrategy": {"type": "OnDelete"}}}
    # An empty selector matches no pod in policy/v1beta1, and every pod in policy/v1.
    selector = spec.get("selector")
    empty = isinstance(selector, dict) and not any(selector.values())
    return {**raw, "spec": {**spec, "selector": None}} if empty else raw
