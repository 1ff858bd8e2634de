"""Builds the timeline of a replay from all sources, merged, linked and filtered, with its lanes:
what happened, who did it and what led to it, as a document.

Of several sources about one thing the journal comes first, then Events, then objects. A
controller's Event about a write that the journal confirmed is that write. Two lines are the same if
they show the same within half a minute: an Event has whole seconds, and the journal has the time at
which we saw it.

Which line led to which is inferred where the journal does not record it: by rules, as a table. The
latest matching line before counts, within 15 minutes. Such a cause is marked as inferred.

Lanes show for how long nodes were not Ready, tainted, cordoned or under maintenance, and zones
braked. They are made of lines, so that a state whose beginning is not known is not drawn. What our
copy only planned is no state of the cluster. Of EvictionRequests, Evictions and PodGroups lines say
who asked, who answered and what came.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.document import document
from kubectl_nodelife.kube.lifecycle import Eviction, EvictionRequest, PodGroup
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_micro_time
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TAINT_NODE_UNSCHEDULABLE, TRUE
from kubectl_nodelife.kube.workload import Condition, Event
from kubectl_nodelife.outlook.replay import DECISIONS, lines
from kubectl_nodelife.outlook.replay.drains import DRAIN, drains
from kubectl_nodelife.outlook.replay.lines import judge_attempts
from kubectl_nodelife.outlook.replay.replay_line import (
    CONTROLLER,
    OBJECT,
    ORDER_OF_SOURCES,
    OTHER,
    US,
    Actor,
    ReplayLine,
)

ASKED: Final = "eviction-requested"
"""The family of requests for a pod's eviction, and of responders that begin with it."""

_OVER: Final = "eviction-over"
_CONTROLLER: Final = Actor(CONTROLLER, "evictionrequest")
_SCHEDULER: Final = Actor(CONTROLLER, "scheduler")


def of_lifecycle(obj: KubeObject) -> Iterator[ReplayLine]:
    """The lines of one object; none of another kind."""
    if isinstance(obj, (EvictionRequest, Eviction)):
        about = ("Pod", obj.spec.target.pod.name) if obj.spec.target.pod else ("", "")
    if isinstance(obj, EvictionRequest):
        who, created = Actor(OTHER, obj.spec.requester), obj.metadata.creation_timestamp
        name = f"EvictionRequest {obj.name}"
        yield from _line(obj, about, created, who, "RequestEviction", (ASKED, obj.name), name)
        yield from _conditions(obj, about, obj.status.conditions, _CONTROLLER)
    elif isinstance(obj, Eviction):
        for status in obj.status.responders:
            who = Actor(OTHER, status.name)
            begun, done = (ASKED, obj.name, status.name), (_OVER, obj.name, status.name)
            words = status.message
            yield from _line(obj, about, status.start_time, who, "BeginEviction", begun, "", words)
            yield from _line(obj, about, status.completion_time, who, "CompleteEviction", done)
    elif isinstance(obj, PodGroup):
        yield from _conditions(obj, ("PodGroup", obj.name), obj.status.conditions, _SCHEDULER)


def _conditions(
    obj: KubeObject, about: tuple[str, str], conditions: Iterable[Condition], who: Actor
) -> Iterator[ReplayLine]:
    """Those that are True: none of these types is True for long before something came of it."""
    for condition in conditions:
        if condition.status == TRUE:
            since, words = condition.last_transition_time, condition.message
            family = (_OVER, obj.name, condition.type)
            detail = f"{condition.type}=True ({condition.reason})"
            yield from _line(obj, about, since, who, "SetCondition", family, detail, words)


def _line(
    obj: KubeObject,
    about: tuple[str, str],
    time: Time | None,
    actor: Actor,
    action: str,
    identity: tuple[str, ...],
    detail: str = "",
    why: str = "",
) -> Iterator[ReplayLine]:
    if time is not None:
        where = (about[0], obj.namespace, about[1], identity, (OBJECT,))
        yield ReplayLine(int(time), actor, action, *where, detail=detail, why=why)


QUIET: Final = frozenset({"Pulling", "Pulled", "Created", "Started", "AddedInterface"})
"""Events that say nothing about why pods and nodes come and go."""

QUIET_CHANGES: Final = frozenset({"UpdateDaemonSetStatus"})
"""Changes of which there is one after each other change, and which say no more than that."""

_ASSIGNED: Final = re.compile(r"Successfully assigned \S+ to (\S+)")


_DISRUPTIONS: Final = frozenset(
    {
        *("DeletePod", "EvictPod", "Evicted", "Preempted", "TaintManagerEviction"),
        *("MarkPodNotReady", "NodeNotReady", "SetPodCondition", "SetPodPhase"),
    }
)
SAME_NS: Final = 30 * SECOND_NS
LONGEST_NS: Final = 15 * MINUTE_NS
_LOOKED_AT: Final = 1000
"""So many candidates of one kind before a line, the nearest."""


NOT_READY: Final = "NotReady"
TAINTED: Final = "tainted"
CORDONED: Final = "cordoned"
MAINTENANCE: Final = "maintenance"
ZONE: Final = "zone braked"
STATES: Final = (NOT_READY, TAINTED, CORDONED, MAINTENANCE, ZONE)
"""In the order in which they are drawn."""
_NORMAL: Final = ("Initial", "Normal")
_HAPPENED: Final = ("", "confirmed", "applied")


class ReplaySources(NamedTuple):
    """The traces that were read. `changes` are the contract's documents; None: no journal."""

    changes: Sequence[Mapping[str, Any]] | None = None
    events: Sequence[Event] = ()
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    asked: Sequence[KubeObject] = ()
    """EvictionRequests, Evictions and PodGroups."""


class ReplayFilter(NamedTuple):
    """Which lines. `node`: the node and the pods on it; what led to a line comes with it."""

    since_ns: int
    until_ns: int
    node: str = ""
    pod: tuple[str, str] | None = None
    quiet: bool = False


def is_about_nodes(line: ReplayLine) -> bool:
    """True if it belongs to the story of nodes: about a node or a zone, or a pod that lost its
    place by one."""
    return line.kind in ("Node", "Zone") or (line.kind == "Pod" and line.action in _DISRUPTIONS)


def timeline(sources: ReplaySources, wanted: ReplayFilter) -> list[ReplayLine]:
    """The lines in the order of time, with their causes."""
    lines = merged(_all(sources, wanted))
    judge_attempts(lines, sources.nodes, sources.pods)
    _place(lines, sources)
    lines = sorted([*drains(lines, sources.pods), *lines], key=lambda line: line.time_ns)
    link(lines)
    shown = [line for line in in_order(lines) if wanted.since_ns <= line.time_ns <= wanted.until_ns]
    return _with_causes(shown, [line for line in shown if _asked_for(line, wanted)])


def _all(sources: ReplaySources, wanted: ReplayFilter) -> Iterable[ReplayLine]:
    for change in sources.changes or ():
        included = wanted.quiet or change["action"] not in QUIET_CHANGES
        if included and (line := lines.of_change(change)) is not None:
            yield line
    for event in sources.events:
        included = wanted.quiet or event.reason not in QUIET
        if included and (line := lines.of_event(event)) is not None:
            yield line
    for node in sources.nodes:
        yield from lines.of_node(node)
    for pod in sources.pods:
        yield from lines.of_pod(pod)
    for obj in sources.asked:
        yield from of_lifecycle(obj)


def _place(lines: Iterable[ReplayLine], sources: ReplaySources) -> None:
    """Set the node of lines about a pod: where it is or was, as far as anything says so."""
    nodes = {pod.key: pod.spec.node_name for pod in sources.pods if pod.spec.node_name}
    unplaced = []
    for line in lines:
        key = (line.namespace, line.name)
        if line.kind != "Pod":
            continue
        if assigned := _ASSIGNED.search(line.why):
            line.node = line.node or assigned[1]
        if line.node:
            nodes.setdefault(key, line.node)
        else:
            unplaced.append(line)
    for line in unplaced:
        line.node = nodes.get((line.namespace, line.name), "")


def _asked_for(line: ReplayLine, wanted: ReplayFilter) -> bool:
    if wanted.node:
        return line.about_node == wanted.node
    if wanted.pod is not None:
        namespace, name = wanted.pod
        about = line.kind == "Pod" and (line.namespace, line.name) == wanted.pod
        return about or (line.namespace == namespace and name in line.names)
    return True


def _with_causes(shown: Sequence[ReplayLine], chosen: Iterable[ReplayLine]) -> list[ReplayLine]:
    """The chosen ones and all that led to them, as long as it is shown at all."""
    with_causes: set[ReplayLine] = set()
    within = set(shown)
    for line in chosen:
        above: ReplayLine | None = line
        while above is not None and above in within and above not in with_causes:
            with_causes.add(above)
            above = above.cause
    return [line for line in shown if line in with_causes]


def merged(lines: Iterable[ReplayLine]) -> list[ReplayLine]:
    """The lines, each thing once, in the order of time."""
    ranked = sorted(lines, key=lambda line: (ORDER_OF_SOURCES.index(line.seen[0]), line.time_ns))
    by_identity: dict[tuple[str, ...], list[tuple[int, int, ReplayLine]]] = {}
    distinct: list[ReplayLine] = []
    for number, line in enumerate(ranked):
        alike = by_identity.setdefault(line.identity, [])
        twin = _nearest(alike, line)
        if twin is None:
            insort(alike, (line.time_ns, number, line))
            distinct.append(line)
        else:
            _absorb(twin, line)
    order = {line: number for number, line in enumerate(distinct)}
    return sorted(distinct, key=lambda line: (line.time_ns, order[line]))


def _nearest(alike: list[tuple[int, int, ReplayLine]], line: ReplayLine) -> ReplayLine | None:
    """The nearest in time that no line of the same source was merged into."""
    at = bisect_left(alike, (line.time_ns, -1))
    near = (
        other
        for _, _, other in alike[max(0, at - 3) : at + 3]
        if abs(other.time_ns - line.time_ns) <= SAME_NS and line.seen[0] not in other.seen
    )
    return min(near, key=lambda other: abs(other.time_ns - line.time_ns), default=None)


def _absorb(line: ReplayLine, other: ReplayLine) -> None:
    """Take over what `other` knows and `kept` does not."""
    line.seen = (*line.seen, *other.seen)
    line.node = line.node or other.node
    line.why = line.why or other.why
    line.detail = line.detail or other.detail
    line.sets = line.sets or other.sets
    line.names = line.names or other.names
    if line.family == "cordon" and OBJECT in other.seen:  # a kubelet reports, and has not done it
        line.actor, line.action = other.actor, other.action
        line.time_ns = min(line.time_ns, other.time_ns)
    if other.count > line.count:
        line.count, line.first_ns = other.count, other.first_ns
    if line.actor.kind == OTHER and other.actor.kind not in (OTHER, US):
        line.actor = other.actor


class Rule(NamedTuple):
    """The latest happening of one of the families `causes` on `scope` leads to it.

    `node`: the same node, or the one that the pod is on; `pod`: the same pod; `owned`: a pod of
    this owner; `named`: an object that names this pod; `owner`: an owner of pods so called.
    """

    causes: tuple[str, ...]
    scope: str
    fits: Callable[[ReplayLine, ReplayLine], bool] = lambda effect, cause: True


def _by_taints(effect: ReplayLine, cause: ReplayLine) -> bool:
    taints = (cause.sets, *cause.sets.get("taints", ()))
    executes = any(taint.get("effect") == NO_EXECUTE for taint in taints)
    return executes and effect.actor.name.endswith("taint-eviction")


def _by_a_timer(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.actor.name.endswith("taint-eviction")


def _not_by_a_controller(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.actor.kind != CONTROLLER


def _of_the_cordon(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.identity[2] == TAINT_NODE_UNSCHEDULABLE


def _of_the_silence(effect: ReplayLine, cause: ReplayLine) -> bool:
    return not _of_the_cordon(effect, cause)


RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "taint": (
        Rule(("cordon",), "node", _of_the_cordon),
        Rule(("not-ready",), "node", _of_the_silence),
    ),
    "untaint": (
        Rule(("uncordon",), "node", _of_the_cordon),
        Rule(("ready",), "node", _of_the_silence),
    ),
    "pod-not-ready": (Rule(("not-ready",), "node"),),
    "timer": (Rule(("taint", "taints"), "node", _by_taints),),
    "delete": (
        Rule(("timer",), "pod", _by_a_timer),
        Rule(("taint", "taints"), "node", _by_taints),
        Rule(("not-ready",), "node", _by_a_timer),
        Rule((ASKED,), "pod", _not_by_a_controller),
        Rule((DRAIN, "cordon"), "node", _not_by_a_controller),
    ),
    DRAIN: (Rule(("cordon",), "node"),),
    "cancel": (Rule(("untaint",), "node"), Rule(("ready",), "node")),
    "kill": (Rule(("delete",), "pod"), Rule((DRAIN, "cordon"), "node")),
    "create": (Rule(("delete", "kill"), "owned"),),
    "schedule": (Rule(("create",), "named"), Rule(("create",), "owner")),
}
"""Family of the effect -> what may have led to it, the likeliest first."""


def link(lines: Iterable[ReplayLine]) -> None:
    """Give each line its cause: the journal's, else by the first rule that finds one.

    The lines must be in the order of time.
    """
    ordered = list(lines)
    by_change = {line.change: line for line in ordered if line.change is not None}
    index = _Index(ordered)
    for line in ordered:
        if line.change_cause is not None:
            cause = by_change.get(line.change_cause)
            line.cause = cause if cause is not None and not _leads_to(line, cause) else None
        else:
            line.cause = index.cause_of(line)
            line.inferred = line.cause is not None


def in_order(lines: Iterable[ReplayLine]) -> list[ReplayLine]:
    """By time, but nothing before its cause.

    An Event has whole seconds; and what only our copy decides, ahead of the running controller, can
    have happened no sooner than what led to it.
    """
    keys: dict[ReplayLine, tuple[int, int]] = {}

    def key(line: ReplayLine) -> tuple[int, int]:
        place = keys.get(line)
        if place is not None:
            return place
        own, above = (line.time_ns, 0), line.cause
        if above is not None:
            early = above.time_ns - line.time_ns
            if line.action in DECISIONS and early > 0:
                line.time_ns = above.time_ns
            if early < SECOND_NS or line.action in DECISIONS:
                at_ns, depth = key(above)
                own = max((line.time_ns, 0), (at_ns, depth + 1))
        keys[line] = own
        return own

    return sorted(lines, key=key)


class _Index:
    """Lines by family and by what they are about, each list in the order of time."""

    def __init__(self, lines: Iterable[ReplayLine]) -> None:
        self._lines: dict[tuple[str, ...], list[ReplayLine]] = {}
        for line in lines:
            for scope in _scopes(line):
                self._lines.setdefault((line.family, *scope), []).append(line)

    def cause_of(self, line: ReplayLine) -> ReplayLine | None:
        for rule in RULES.get(line.family, ()):
            causes = [
                other
                for scope in _wanted(line, rule.scope)
                for family in rule.causes
                if (other := self._latest(line, rule, (family, *scope))) is not None
            ]
            if causes:
                return max(causes, key=lambda other: other.time_ns)
        return None

    def _latest(self, line: ReplayLine, rule: Rule, key: tuple[str, ...]) -> ReplayLine | None:
        lines, latest_ns = self._lines.get(key, []), line.time_ns
        if latest_ns % SECOND_NS == 0:  # of an Event only the second is known
            latest_ns += SECOND_NS - 1
        end = bisect_right(lines, latest_ns, key=lambda other: other.time_ns)
        for other in reversed(lines[max(0, end - _LOOKED_AT) : end]):
            if line.time_ns - other.time_ns > LONGEST_NS:
                return None
            if other is not line and rule.fits(line, other) and not _leads_to(line, other):
                return other
        return None


def _scopes(line: ReplayLine) -> Iterable[tuple[str, ...]]:
    """The keys under which a line is found as a cause."""
    if line.kind == "Node":
        yield "node", line.name
    elif line.kind == "Pod" or line.family in ("delete", "create"):
        name = line.identity[-1] if line.family == "delete" else line.name
        yield "pod", line.namespace, name
        yield "owner", line.namespace, line.name
        for owner in _owners(name):
            yield "owned", line.namespace, owner
        for named in line.names:
            yield "named", line.namespace, named


def _wanted(line: ReplayLine, scope: str) -> Iterable[tuple[str, ...]]:
    """Where a cause of that scope is looked for."""
    match scope:
        case "node":
            if line.about_node:
                yield "node", line.about_node
        case "pod" | "named" | "owned":
            yield scope, line.namespace, line.name
        case "owner":
            for owner in _owners(line.name):
                yield scope, line.namespace, owner


def _owners(pod: str) -> Iterable[str]:
    """The names that a pod's owners may have, by the pod's own."""
    parts = pod.split("-")
    return ("-".join(parts[:end]) for end in range(1, len(parts)))


def _leads_to(line: ReplayLine, other: ReplayLine) -> bool:
    """True if `line` is among the causes of `other` already."""
    above: ReplayLine | None = other
    while above is not None:
        if above is line:
            return True
        above = above.cause
    return False


class StateSpan(NamedTuple):
    """A state of a node or zone, in ns since the epoch. `what`: the taint, condition or state.

    `end_ns` None: its end is not known; `is_over`: the node shows that it has ended all the same.
    """

    name: str
    state: str
    what: str
    begin_ns: int
    end_ns: int | None
    is_over: bool = False


def state_spans(replay_lines: Iterable[ReplayLine], nodes: Iterable[Node] = ()) -> list[StateSpan]:
    """All states, by name, then in the order of STATES. `replay_lines` in the order of time;
    `nodes`: as they are now, those that were read."""
    begun: dict[tuple[str, str, str], int] = {}
    spans: list[StateSpan] = []
    for line in replay_lines:
        if line.outcome not in _HAPPENED:
            continue
        for state, what, begins in _changes(line):
            key = (line.name, state, what)
            if begins:
                begun.setdefault(key, line.time_ns)
            elif key in begun:
                spans.append(StateSpan(*key, begun.pop(key), line.time_ns))
    now = {node.name: node for node in nodes}
    for key, begin_ns in begun.items():
        span = StateSpan(*key, begin_ns, None)
        is_over = bool(now) and span.state != ZONE and not _has(now.get(span.name), span)
        spans.append(span._replace(is_over=is_over))
    return sorted(spans, key=lambda span: (span.name, STATES.index(span.state), span.begin_ns))


def _has(node: Node | None, span: StateSpan) -> bool:
    """True unless the node shows that the state is over; one that is gone has none."""
    if node is None:
        return False
    shows = {
        NOT_READY: not node.is_ready,
        CORDONED: node.spec.unschedulable,
        TAINTED: any(taint.key in span.what for taint in node.spec.taints),
    }
    return shows.get(span.state, True)


def _changes(line: ReplayLine) -> Iterator[tuple[str, str, bool]]:
    """(state, what, whether it begins) that a line shows."""
    match line.family:
        case "not-ready" | "ready":
            yield NOT_READY, "", line.family == "not-ready"
        case "RemovingNode":  # which node-lifecycle says of a Node that is gone
            yield NOT_READY, "", False
            yield CORDONED, "", False
        case "cordon" | "uncordon":
            yield CORDONED, "", line.family == "cordon"
        case "taint" | "untaint" if line.identity[2] != TAINT_NODE_UNSCHEDULABLE:
            yield TAINTED, ":".join(line.identity[2:]), line.family == "taint"
        case "taints" if line.sets.get("taints"):
            yield TAINTED, line.detail, True
        case lines.LIFECYCLE:
            yield MAINTENANCE, line.identity[2], line.identity[3] == TRUE
        case "SetZoneState" if line.sets:  # an Event may be called so
            before, after = line.sets["from"], line.sets["to"]
            if before not in _NORMAL:
                yield ZONE, before, False
            if after not in _NORMAL:
                yield ZONE, after, True


def replay_document(
    lines: Sequence[ReplayLine],
    source: dict[str, Any],
    since_ns: int,
    until_ns: int,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The Replay document. Lines are not folded; `cause` is the id of another line."""
    ids = {line: number for number, line in enumerate(lines)}
    return document(
        "Replay",
        source=source,
        since=format_micro_time(since_ns),
        until=format_micro_time(until_ns),
        items=[_item(line, ids) for line in lines],
        warnings=list(warnings),
    )


def _item(line: ReplayLine, ids: dict[ReplayLine, int]) -> dict[str, Any]:
    actor, obj = line.documents
    item: dict[str, Any] = {
        "id": ids[line],
        "time": format_micro_time(line.time_ns),
        "actor": actor,
        "action": line.action,
        "object": obj,
        "detail": line.detail,
        "reason": line.why,
        "cause": ids.get(line.cause) if line.cause is not None else None,
        "seenBy": list(line.seen),
    }
    more: dict[str, Any] = {
        "causeInferred": (line.inferred and item["cause"] is not None) or None,
        "node": line.node or None,
        "outcome": line.outcome or None,
        "count": line.count if line.count > 1 else None,
        "firstTime": None if line.first_ns is None else format_micro_time(line.first_ns),
        "change": line.change,
    }
    return item | {key: value for key, value in more.items() if value is not None}
