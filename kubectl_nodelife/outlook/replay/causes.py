"""Infers which line led to which, where the journal does not record it: rules, as a table.

The latest matching line before counts, within 15 minutes. Such a cause is marked as inferred.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.outlook.replay.drains import DRAIN
from kubectl_nodelife.outlook.replay.lines import DECISIONS
from kubectl_nodelife.outlook.replay.replay_line import CONTROLLER, ReplayLine

LONGEST_NS: Final = 15 * MINUTE_NS
_LOOKED_AT: Final = 1000
"""So many candidates of one kind before a line, the nearest."""


class Rule(NamedTuple):
    """The latest happening of one of the families `causes` on `scope` leads to it.

    `node`: the same node, or the one that the pod is on; `pod`: the same pod; `owned`: a pod of
    this owner; `named`: an object that names this pod; `owner`: an owner of pods so called.
    """

    causes: tuple[str, ...]
    scope: str
    fits: Callable[[ReplayLine, ReplayLine], bool] = lambda effect, cause: True


def _by_taints(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.actor.name.endswith("taint-eviction") and NO_EXECUTE in cause.detail


def _by_a_timer(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.actor.name.endswith("taint-eviction")


def _not_by_a_controller(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.actor.kind != CONTROLLER


def _of_the_cordon(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.gist[2] == TAINT_NODE_UNSCHEDULABLE


def _of_the_silence(effect: ReplayLine, cause: ReplayLine) -> bool:
    return effect.gist[2] != TAINT_NODE_UNSCHEDULABLE


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
            told = by_change.get(line.change_cause)
            line.cause = told if told is not None and not _leads_to(line, told) else None
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
        known = keys.get(line)
        if known is not None:
            return known
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
            found = [
                other
                for scope in _wanted(line, rule.scope)
                for family in rule.causes
                if (other := self._latest(line, rule, (family, *scope))) is not None
            ]
            if found:
                return max(found, key=lambda other: other.time_ns)
        return None

    def _latest(self, line: ReplayLine, rule: Rule, key: tuple[str, ...]) -> ReplayLine | None:
        known = self._lines.get(key, [])
        end = bisect_right(known, _latest_ns(line), key=lambda other: other.time_ns)
        for other in reversed(known[max(0, end - _LOOKED_AT) : end]):
            if line.time_ns - other.time_ns > LONGEST_NS:
                return None
            if other is not line and rule.fits(line, other) and not _leads_to(line, other):
                return other
        return None


def _latest_ns(line: ReplayLine) -> int:
    """When it may have happened: of an Event only the second is known."""
    return line.time_ns if line.time_ns % SECOND_NS else line.time_ns + SECOND_NS - 1


def _scopes(line: ReplayLine) -> Iterable[tuple[str, ...]]:
    """The keys under which a line is found as a cause."""
    if line.kind == "Node":
        yield "node", line.name
    elif line.kind == "Pod" or line.family in ("delete", "create"):
        name = line.gist[-1] if line.family == "delete" else line.name
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
        case "pod" | "named":
            yield scope, line.namespace, line.name
        case "owned":
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
