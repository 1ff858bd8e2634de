"""Objects from JSON to slices and back: one decoded, checked, encoded; and JSON merge patches.

Decoding: the fast way is strict. What does not decode so is tried once more with nulls dropped and
numbers in quotes accepted, because real dumps hold both; only then it is an error, which names the
path.

Checks: quantities stay text until they are computed with, and pod templates and revisions stay
plain JSON. They are checked once, where an object comes in, so that no rule later meets a quantity
that is none. An API server refuses most of this itself; a ControllerRevision's `data` is the
exception: it may be any JSON at all.

Encoding: a slice holds only what some decision reads, so what it encodes to is never fit to replace
the object in a cluster: writes there are patches of what changed. Absent and zero values are left
out, as the API leaves them out.

`go_json` writes JSON as Go's encoding/json does: sorted keys, no blanks, and HTML characters
escaped. A ControllerRevision's `data` is compared byte by byte (`EqualRevision`, `Match`): one
other byte, and the DaemonSet controller that comes back makes another revision. Everything that is
sent is written by this one function, so that no request needs a rule of its own. Numbers are
written as Python has them; a pod template has integers only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from kubectl_nodelife.kube import times
from kubectl_nodelife.kube.field_managers import FieldManagers, read_field_managers
from kubectl_nodelife.kube.kinds import KINDS, Kind, kind_named, kind_of, kind_of_type
from kubectl_nodelife.kube.meta import (
    ApiStruct,
    KubeObject,
    MicroTime,
    ObjectMeta,
    Time,
    controller_of,
)
from kubectl_nodelife.kube.names import LONGEST_NAME, is_dns_subdomain
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod, PodSpec, ResourceRequirements
from kubectl_nodelife.kube.quantity import Quantity, parse_quantity
from kubectl_nodelife.kube.unreadable import InputError, Unreadable, reason, related
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, Event, PodDisruptionBudget

if TYPE_CHECKING:
    from kubectl_nodelife.kube.documents import Json

T = TypeVar("T", bound=KubeObject)
S = TypeVar("S")

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_OWN_TIMES = (Lease, Event)


def decode_hook(type_: type[KubeObject]) -> Callable[[type[Any], Any], Any]:
    """The `dec_hook` of a decoder of that type."""
    if type_ is Node:
        return _decode_part
    return times.decode_time if type_ in _OWN_TIMES else times.decode_shared_time


def _decode_part(type_: type[Any], raw: Any) -> Any:
    """Who wrote fields, or an instant."""
    return read_field_managers(raw) if type_ is FieldManagers else times.decode_time(type_, raw)


DECODERS: dict[type[KubeObject], Callable[[Any], Any]] = {
    kind.type: msgspec.json.Decoder(kind.type, dec_hook=decode_hook(kind.type)).decode
    for kind in KINDS
}
"""The strict decoder of each type, JSON in; raises one of UNDECODABLE."""

_FAULT = re.compile(r"(?P<what>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?", re.DOTALL)


def decode(kind: str, raw: Mapping[str, Any]) -> KubeObject:
    """The slice of an object of a known kind, from plain Python objects.

    Raises InputError naming the path, KeyError for a kind that is not in the registry.
    """
    return convert(raw, kind_named(kind).type, "", "")


def decode_json(type_: type[T], raw: Json | msgspec.Raw) -> T:
    """The slice of an object of a known type, from its JSON: the way for lists and watches.

    Raises InputError.
    """
    try:
        return DECODERS[type_](raw)  # type: ignore[no-any-return]
    except UNDECODABLE:
        return convert(plain(raw, "", ""), type_, "", "")


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
        return isinstance(value, str) and times.parse_time(value) is not None
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
        # With YAML, which nothing else here needs, and which takes 10 ms to be loaded.
        from kubectl_nodelife.kube.documents import end_of_json

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


DEEPEST_PLAIN: Final = 100
"""Levels of nesting in what stays plain JSON; pod templates have some ten."""

_MOST_REMEMBERED: Final = 10_000
_good: set[Quantity] = set()  # quantities that parse; a cluster has few different ones

_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 63) - 1


def unfit(obj: KubeObject) -> str:
    """Why no decision can be taken on the object, "" where one can."""
    check = CHECKS.get(type(obj))
    if check is None:
        return ""
    try:
        check(obj)
    except ValueError as error:
        return reason(error)
    except Exception as error:  # a bug of ours; its text may quote a value
        return f"our check of it failed: {type(error).__name__}"
    return ""


def as_unreadable(obj: KubeObject, why: str) -> Unreadable:
    """The object as one that cannot be read."""
    kind, owner = kind_of(obj), controller_of(obj.metadata)
    owners = [(owner.kind, owner.name)] if owner is not None else []
    node = obj.spec.node_name if isinstance(obj, Pod) else ""
    meta = obj.metadata
    refs = related(kind, obj.key, owners, node)
    return Unreadable(kind, obj.key, why, meta.uid, meta.resource_version, refs)


def sift(objects: Iterable[KubeObject]) -> tuple[list[KubeObject], list[Unreadable]]:
    """The objects that can be decided on, and the others."""
    fit: list[KubeObject] = []
    others: list[Unreadable] = []
    for obj in objects:
        why = unfit(obj)
        if why:
            others.append(as_unreadable(obj, why))
        else:
            fit.append(obj)
    return fit, others


def _node(node: Any) -> None:
    _quantities("status.allocatable", node.status.allocatable)
    _quantities("status.capacity", node.status.capacity)


def _pod(pod: Any) -> None:
    _pod_spec(pod.spec)


def _pod_spec(spec: PodSpec) -> None:
    are_good = _good.issuperset
    for container in spec.containers:
        resources = container.resources
        requests, limits = resources.requests, resources.limits
        if (requests and not are_good(requests.values())) or (
            limits and not are_good(limits.values())
        ):
            _container(resources)
    for container in spec.init_containers:
        _container(container.resources)
    if spec.overhead:
        _quantities("spec.overhead", spec.overhead)
    if spec.resources is not None:
        _quantities("spec.resources.requests", spec.resources.requests)
        _quantities("spec.resources.limits", spec.resources.limits)


def _container(resources: ResourceRequirements) -> None:
    _quantities("resources.requests", resources.requests)
    _quantities("resources.limits", resources.limits)


def _quantities(path: str, quantities: Mapping[str, Quantity] | None) -> None:
    if not quantities or _good.issuperset(quantities.values()):
        return
    for name, quantity in quantities.items():
        try:
            parse_quantity(quantity)
        except ValueError as error:
            raise ValueError(f"{path}[{name!r}]: {error}") from None
    if len(_good) > _MOST_REMEMBERED:
        _good.clear()
    _good.update(quantities.values())


def _daemon_set(daemon_set: Any) -> None:
    _template("spec.template", daemon_set.spec.template)


def _revision(revision: Any) -> None:
    """Only a DaemonSet's revisions are read, and those that a DaemonSet could adopt."""
    data = revision.data or {}
    _plain("data", data)
    owner = controller_of(revision.metadata)
    if owner is not None and owner.kind != "DaemonSet":
        return
    spec = _member("data", data, "spec")
    template = _member("data.spec", spec, "template")
    _template("data.spec.template", {k: v for k, v in template.items() if k != "$patch"})


def _template(path: str, template: dict[str, Any]) -> None:
    _plain(path, template)
    convert(_member(path, template, "metadata"), ObjectMeta, "", f"{path}.metadata")
    spec: Any = convert(_member(path, template, "spec"), PodSpec, "", f"{path}.spec")
    _pod_spec(spec)


def _member(path: str, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path}.{name}: expected an object, got {type(value).__name__}")
    return value


def _plain(path: str, document: Any) -> None:
    """Bounds of plain JSON: what Go's types hold, and a depth that recursion bears."""
    level = [document]
    for _ in range(DEEPEST_PLAIN):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                deeper += value.values()
            elif isinstance(value, list):
                deeper += value
            elif type(value) is int and not _LEAST_INT <= value <= _MOST_INT:
                raise ValueError(f"{path}: holds an integer of more than 64 bits")
        if not deeper:
            return
        level = deeper
    raise ValueError(f"{path}: is nested more than {DEEPEST_PLAIN} deep")


_VALUES: Final[dict[type[KubeObject], Callable[[Any], None]]] = {
    Node: _node,
    Pod: _pod,
    DaemonSet: _daemon_set,
    ControllerRevision: _revision,
}
_ANY_NAME: Final = (PodDisruptionBudget, Event)
"""Kinds whose names the API server does not check either; see `kube.names`."""


_is_namespace = lru_cache(maxsize=1 << 12)(is_dns_subdomain)
"""A cluster has few, each of which its pods name over and over; none that is too long is kept."""


def _check_of(type_: type[KubeObject]) -> Callable[[Any], None]:
    """The check of an object of that type; raises ValueError."""
    values, any_name = _VALUES.get(type_), issubclass(type_, _ANY_NAME)

    def check(obj: Any) -> None:
        meta = obj.metadata
        if not (any_name or is_dns_subdomain(meta.name)):
            raise ValueError("metadata.name: is no DNS name, which no API server takes")
        namespace = meta.namespace
        if namespace and not (len(namespace) <= LONGEST_NAME and _is_namespace(namespace)):
            raise ValueError("metadata.namespace: is no DNS name, which no API server takes")
        if values is not None:
            values(obj)

    return check


CHECKS: Final = {kind.type: _check_of(kind.type) for kind in KINDS}
"""The check of each type: name and values. Raises ValueError."""


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
    neither. The inverse of `decode`, except that instants lose what is finer than the
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
        return times.format_micro_time(value)
    if isinstance(value, Time):
        return times.format_time(value)
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
