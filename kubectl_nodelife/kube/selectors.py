"""Selectors of labels, fields and nodes: reading them as text, and what they match.

Follows apimachinery/pkg/labels/selector.go, apimachinery/pkg/apis/meta/v1/helpers.go
(`LabelSelectorAsSelector`) and apimachinery/pkg/fields. One form serves all: selectors written in
kubectl's syntax become a `LabelSelector` whose expressions may also use Gt and Lt.

Upstream refuses to build a selector that holds a malformed requirement, and most callers then go on
as if nothing matched. Here a malformed requirement matches nothing, and `selector_fault` says what
is wrong with it. Left out: the check of a selector object's keys and values for forbidden
characters (no label can have them, so the answers are the same but for NotIn and DoesNotExist).

Which nodes a pod may run on by its own words, nodeSelector and required node affinity, follows
component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go. A malformed requirement makes its
term match nothing (upstream: the term is an error, the other terms still count). Left out:
preferred terms, which decide nothing here.

`SelectorIndex` finds which of many selectors match a pod's labels, without trying them all: a
cluster holds hundreds of budgets and spread constraints, and the question is asked for every pod.
Nearly every selector demands at least one `key=value` pair, so a selector is filed under one such
pair, and only those filed under a pair that the pod has are tried; the rest are tried always. The
answer is exactly that of trying each in the order in which it was added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector, LabelSelectorRequirement
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import NodeSelector, NodeSelectorTerm, Pod, PodSpec

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GREATER_THAN: Final = "Gt"
LESS_THAN: Final = "Lt"

_NO_LABELS: Mapping[str, str] = {}

_DECIMAL = re.compile(r"[+-]?\d{1,40}", re.ASCII)

_FIELD_NAME = "metadata.name"


def matches(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """True if the selector matches; None matches nothing, an empty selector everything.

    A selector with a malformed requirement (`selector_fault`) matches nothing.
    """
    if selector is None:
        return False
    labels = labels or _NO_LABELS
    if selector.match_labels:
        for key, value in selector.match_labels.items():
            if labels.get(key) != value:
                return False
    return all(requirement_matches(r, labels) for r in selector.match_expressions)


def matches_set(wanted: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> bool:
    """True if `labels` hold every pair of `wanted`, as `SelectorFromSet`; no pairs match all."""
    labels = labels or _NO_LABELS
    return all(labels.get(key) == value for key, value in (wanted or _NO_LABELS).items())


def requirement_matches(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """True if one requirement holds. Follows `Requirement.Matches`; a malformed one never does.

    NotIn holds where the key is absent. Gt and Lt compare signed 64-bit decimals.
    """
    operator, values = requirement.operator, requirement.values
    if requirement_fault(requirement) is not None:
        return False
    present = requirement.key in labels
    if operator == IN:
        return present and labels[requirement.key] in values
    if operator == NOT_IN:
        return not present or labels[requirement.key] not in values
    if operator == EXISTS:
        return present
    if operator == DOES_NOT_EXIST:
        return not present
    if not present:
        return False
    number, limit = parse_int64(labels[requirement.key]), parse_int64(values[0])
    if number is None or limit is None:
        return False
    return number > limit if operator == GREATER_THAN else number < limit


def requirement_fault(requirement: LabelSelectorRequirement) -> str | None:
    """The reason why the requirement is malformed, or None. Follows `NewRequirement`."""
    operator, values = requirement.operator, requirement.values
    if operator in (IN, NOT_IN):
        return None if values else f"{requirement.key}: {operator} needs at least one value"
    if operator in (EXISTS, DOES_NOT_EXIST):
        return f"{requirement.key}: {operator} takes no values" if values else None
    if operator in (GREATER_THAN, LESS_THAN):
        if len(values) == 1 and parse_int64(values[0]) is not None:
            return None
        return f"{requirement.key}: {operator} needs exactly one value, an integer"
    return f"{requirement.key}: unknown operator {operator!r}"


def selector_fault(selector: LabelSelector | None) -> str | None:
    """The reason why the label selector is invalid in an object, or None.

    Follows `LabelSelectorAsSelector`: there, unlike in node selectors, Gt and Lt are unknown.
    """
    for requirement in selector.match_expressions if selector is not None else ():
        fault = requirement_fault(requirement)
        if fault is None and requirement.operator in (GREATER_THAN, LESS_THAN):
            fault = f"{requirement.key}: unknown operator {requirement.operator!r}"
        if fault is not None:
            return fault
    return None


# --- kubectl's syntax ----------------------------------------------------------------------------

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_KEY = re.compile(rf"(?:{_PREFIX}/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_SET_BASED = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_COMPARED = re.compile(r"(?P<key>[^=!<>\s]*)\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[^=!<>]*)")
_EXISTENCE = re.compile(r"(?P<absent>!?)\s*(?P<key>[^=!<>\s]*)")
_OPERATORS = {
    "in": IN,
    "notin": NOT_IN,
    "=": IN,
    "==": IN,
    "!=": NOT_IN,
    ">": GREATER_THAN,
    "<": LESS_THAN,
}


def parse_selector(text: str) -> LabelSelector:
    """The label selector that kubectl's `-l` syntax names: `a=b,c!=d,e in (x,y),!f,g,n>5`.

    Blank text matches everything. Raises ValueError with one line that quotes the faulty part.
    Follows `labels.Parse`.
    """
    if not text.strip():
        return LabelSelector()
    parts = _COMMA_OUTSIDE_PARENTHESES.split(text)
    return LabelSelector(match_expressions=tuple(_parse_requirement(p, text) for p in parts))


def label_selector(text: str | None, names: Collection[str] = ()) -> LabelSelector | None:
    """What the flag `-l` says, as kubectl reads it; None where nothing is.

    Raises BadInput where it cannot be read, or stands beside names.
    """
    if names and text is not None:
        raise BadInput("give names or a selector, not both", on="--selector")
    try:
        return None if text is None else parse_selector(text)
    except ValueError as error:
        raise BadInput(str(error), on="--selector") from None


def _parse_requirement(part: str, text: str) -> LabelSelectorRequirement:
    part = part.strip()
    where = f"selector {text!r}"
    if not part:
        raise ValueError(f"{where}: a requirement is missing beside a comma")
    requirement = _read_requirement(part)
    if requirement is None:
        raise ValueError(
            f"{where}: cannot read {part!r}; write key=value, key!=value, key in (a,b), key or !key"
        )
    if _KEY.fullmatch(requirement.key) is None:
        raise ValueError(f"{where}: {requirement.key!r} is not a valid label key")
    for value in requirement.values:
        if requirement.operator in (IN, NOT_IN) and _VALUE.fullmatch(value) is None:
            raise ValueError(f"{where}: {value!r} is not a valid label value")
    fault = requirement_fault(requirement)
    if fault is not None:
        raise ValueError(f"{where}: {fault}")
    return requirement


def _read_requirement(part: str) -> LabelSelectorRequirement | None:
    if match := _SET_BASED.fullmatch(part):
        values = tuple(value.strip() for value in match["values"].split(","))
        return LabelSelectorRequirement(match["key"], _OPERATORS[match["operator"]], values)
    if match := _COMPARED.fullmatch(part):
        operator = _OPERATORS[match["operator"]]
        return LabelSelectorRequirement(match["key"], operator, (match["value"].strip(),))
    if match := _EXISTENCE.fullmatch(part):
        return LabelSelectorRequirement(match["key"], DOES_NOT_EXIST if match["absent"] else EXISTS)
    return None


def format_selector(selector: LabelSelector | None) -> str:
    """The selector in kubectl's syntax; `<none>` for None, "" for one that matches everything."""
    if selector is None:
        return "<none>"
    terms = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    return ",".join(terms + [_format_requirement(r) for r in selector.match_expressions])


def _format_requirement(requirement: LabelSelectorRequirement) -> str:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if operator == EXISTS:
        return key
    if operator == DOES_NOT_EXIST:
        return f"!{key}"
    if operator in (GREATER_THAN, LESS_THAN):
        return f"{key}{'>' if operator == GREATER_THAN else '<'}{','.join(values)}"
    if len(values) == 1:
        return f"{key}{'=' if operator == IN else '!='}{values[0]}"
    return f"{key} {operator.lower()} ({','.join(values)})"


# --- fields --------------------------------------------------------------------------------------


class FieldRequirement(NamedTuple):
    """One term of a field selector: `field=value`, or `field!=value` where `equal` is False."""

    field: str
    equal: bool
    value: str


_COMMON_FIELDS: dict[str, Callable[[Any], Any]] = {
    "metadata.name": attrgetter("metadata.name"),
    "metadata.namespace": attrgetter("metadata.namespace"),
}
_NOT_SELECTABLE = {(Node, "metadata.namespace")}
_FIELDS: dict[type[KubeObject], dict[str, Callable[[Any], Any]]] = {
    Pod: {
        "spec.nodeName": attrgetter("spec.node_name"),
        "spec.restartPolicy": attrgetter("spec.restart_policy"),
        "spec.schedulerName": attrgetter("spec.scheduler_name"),
        "spec.hostNetwork": attrgetter("spec.host_network"),
        "status.phase": attrgetter("status.phase"),
        "status.podIP": attrgetter("status.pod_ip"),
        "status.nominatedNodeName": attrgetter("status.nominated_node_name"),
    },
    Node: {"spec.unschedulable": attrgetter("spec.unschedulable")},
}
_FIELD_TERM = re.compile(r"(?P<field>[^=!]*)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)
_UNESCAPED_COMMA = re.compile(r"(?<!\\),")


def parse_field_selector(text: str, type_: type[KubeObject]) -> tuple[FieldRequirement, ...]:
    """The terms of a field selector such as `metadata.name=x,spec.nodeName!=y` for objects of
    `type_`.

    Blank text gives no terms, which match everything. Raises ValueError, in one line, for text that
    cannot be read and for a field that such objects cannot be selected by. Follows
    `fields.ParseSelector`.
    """
    return tuple(
        _parse_field_term(term, text, type_)
        for term in _UNESCAPED_COMMA.split(text)
        if term.strip()
    )


def _parse_field_term(term: str, text: str, type_: type[KubeObject]) -> FieldRequirement:
    match = _FIELD_TERM.fullmatch(term.strip())
    if match is None:
        raise ValueError(f"field selector {text!r}: cannot read {term!r}; write field=value")
    field = match["field"].strip()
    fields = {
        name
        for name in (*_COMMON_FIELDS, *_FIELDS.get(type_, ()))
        if (type_, name) not in _NOT_SELECTABLE
    }
    if field not in fields:
        raise ValueError(
            f"field selector {text!r}: {field!r} is not supported for {type_.__name__};"
            f" use one of {', '.join(sorted(fields))}"
        )
    value = re.sub(r"\\([\\,=])", r"\1", match["value"].strip())
    return FieldRequirement(field, match["operator"] != "!=", value)


def matches_fields(requirements: tuple[FieldRequirement, ...], obj: KubeObject) -> bool:
    """True if all terms hold for `obj`, which is of the type they were parsed for."""
    return all((field_value(obj, r.field) == r.value) == r.equal for r in requirements)


def field_value(obj: KubeObject, field: str) -> str:
    """The value of a selectable field as the API compares it: as text, `true` or `false` for a
    bool.
    """
    read = _COMMON_FIELDS.get(field) or _FIELDS[type(obj)][field]
    value = read(obj)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_int64(text: str) -> int | None:
    """The signed 64-bit decimal that `text` is, or None. Follows `strconv.ParseInt`."""
    if _DECIMAL.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def matches_required_node_affinity(spec: PodSpec, node: Node) -> bool:
    """True if nodeSelector and required node affinity both admit the node.

    Follows `GetRequiredNodeAffinity(pod).Match(node)`.
    """
    if spec.node_selector and not matches_set(spec.node_selector, node.metadata.labels):
        return False
    selector = required_node_selector(spec)
    return selector is None or matches_node_selector(selector, node)


def required_node_selector(spec: PodSpec) -> NodeSelector | None:
    """The pod's required node affinity; None where it has none, which admits every node."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return None
    return affinity.required_during_scheduling_ignored_during_execution


def matches_node_selector(selector: NodeSelector, node: Node) -> bool:
    """True if one of the terms matches; no terms match nothing. Follows `NodeSelector.Match`."""
    return matches_node_selector_terms(selector.node_selector_terms, node)


def matches_node_selector_terms(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """True if one of the terms matches the node. Follows `MatchNodeSelectorTerms`."""
    return any(matches_node_selector_term(term, node) for term in terms)


def matches_node_selector_term(term: NodeSelectorTerm, node: Node) -> bool:
    """True if all expressions and all fields of the term hold; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels or {}
    return all(requirement_matches(r, labels) for r in term.match_expressions) and all(
        _field_matches(r, node) for r in term.match_fields
    )


def _field_matches(requirement: LabelSelectorRequirement, node: Node) -> bool:
    """A field requirement: only metadata.name, only In and NotIn, only one value."""
    if requirement.key != _FIELD_NAME or len(requirement.values) != 1:
        return False
    if requirement.operator == IN:
        return node.metadata.name == requirement.values[0]
    return requirement.operator == NOT_IN and node.metadata.name != requirement.values[0]


Item = TypeVar("Item")


Entry = tuple[int, LabelSelector, Item]


class SelectorIndex(Generic[Item]):
    """Items that are found by the labels that their selectors match, within a namespace."""

    __slots__ = ("_added", "_always", "_by_pair")

    def __init__(self) -> None:
        self._added = 0
        # By namespace, label key and label value: a namespace's selectors use few different keys.
        self._by_pair: dict[str, dict[str, dict[str, list[Entry[Item]]]]] = {}
        self._always: dict[str, list[Entry[Item]]] = {}

    def add(self, namespace: str, selector: LabelSelector | None, item: Item) -> None:
        """File `item` under its selector. None matches nothing and so is not kept."""
        self._added += 1
        if selector is None:
            return
        entry = (self._added, selector, item)
        pair = next(demanded_pairs(selector), None)
        if pair is None:
            self._always.setdefault(namespace, []).append(entry)
        else:
            by_value = self._by_pair.setdefault(namespace, {}).setdefault(pair[0], {})
            by_value.setdefault(pair[1], []).append(entry)

    def find(self, namespace: str, labels: Mapping[str, str] | None) -> list[Item]:
        """The items whose selectors match, in the order in which they were added."""
        labels = labels or _NO_LABELS
        candidates = self._always.get(namespace)
        by_key = self._by_pair.get(namespace)
        if by_key is not None:
            for key, by_value in by_key.items():
                value = labels.get(key)
                filed = by_value.get(value) if value is not None else None
                if filed is not None:
                    candidates = filed if candidates is None else candidates + filed
        if candidates is None:
            return []
        matching = [entry for entry in candidates if matches(entry[1], labels)]
        if len(matching) > 1:
            matching.sort(key=itemgetter(0))
        return [entry[2] for entry in matching]


def demanded_pairs(selector: LabelSelector) -> Iterator[tuple[str, str]]:
    """The labels that everything the selector matches must have, as it names them."""
    if selector.match_labels:
        # The last one: generated labels (a template's hash) tend to come late and are the rarest.
        yield from reversed(selector.match_labels.items())
    for requirement in selector.match_expressions:
        if requirement.operator == IN and len(requirement.values) == 1:
            yield requirement.key, requirement.values[0]
