"""What led to what, where the journal does not say: rules by kind of happening, as a table.

The latest fitting line before counts, within a quarter of an hour. Such a cause is an inference,
and is marked as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TAINT_NODE_UNSCHEDULABLE
from kubectl_nodelife.outlook.replay.line import CONTROLLER, Line

LONGEST_NS: Final = 15 * MINUTE_NS
_ROUNDING_NS: Final = SECOND_NS
"""An Event has whole seconds: its cause may seem to come after it."""


class Rule(NamedTuple):
    """A happening of family `cause` on `scope` (`node`, `pod`, `owned`, `named`) leads to it."""

    cause: str
    scope: str
    fits: Callable[[Line, Line], bool] = lambda effect, cause: True


def _by_taints(effect: Line, cause: Line) -> bool:
    evicted = effect.actor.name in ("taint-eviction", "us, as taint-eviction")
    return evicted and cause.gist[-1] == NO_EXECUTE


def _not_by_a_controller(effect: Line, cause: Line) -> bool:
    return effect.actor.kind != CONTROLLER


def _of_the_cordon(effect: Line, cause: Line) -> bool:
    return effect.gist[2] == TAINT_NODE_UNSCHEDULABLE


def _of_the_silence(effect: Line, cause: Line) -> bool:
    return effect.gist[2] != TAINT_NODE_UNSCHEDULABLE


RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "taint": (Rule("cordon", "node", _of_the_cordon), Rule("not-ready", "node", _of_the_silence)),
    "untaint": (
        Rule("uncordon", "node", _of_the_cordon),
        Rule("ready", "node", _of_the_silence),
    ),
    "pod-not-ready": (Rule("not-ready", "node"),),
    "delete": (Rule("taint", "node", _by_taints), Rule("cordon", "node", _not_by_a_controller)),
    "cancel": (Rule("untaint", "node"), Rule("ready", "node")),
    "kill": (Rule("delete", "pod"), Rule("cordon", "node")),
    "create": (Rule("delete", "owned"), Rule("kill", "owned")),
    "schedule": (Rule("create", "named"),),
}
"""Family of the effect -> what may have led to it, the likeliest first."""


def link(lines: Iterable[Line]) -> None:
    """Give each line its cause: the journal's, else by the first rule that finds one.

    The lines must be in the order of time.
    """
    ordered = list(lines)
    by_change = {line.change: line for line in ordered if line.change is not None}
    index = _Index(ordered)
    for line in ordered:
        if line.change_cause is not None:
            line.cause = by_change.get(line.change_cause)
        else:
            line.cause = index.cause_of(line)
            line.inferred = line.cause is not None


class _Index:
    """Lines by family and by what they are about, each list in the order of time."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines: dict[tuple[str, ...], list[Line]] = {}
        for line in lines:
            for scope in _scopes(line):
                self._lines.setdefault((line.family, *scope), []).append(line)

    def cause_of(self, line: Line) -> Line | None:
        for rule in RULES.get(line.family, ()):
            for scope in _wanted(line, rule.scope):
                for other in reversed(self._lines.get((rule.cause, *scope), ())):
                    if other.time_ns > line.time_ns + _ROUNDING_NS or other is line:
                        continue
                    if line.time_ns - other.time_ns > LONGEST_NS:
                        break
                    if rule.fits(line, other) and not _leads_to(line, other):
                        return other
        return None


def _scopes(line: Line) -> Iterable[tuple[str, ...]]:
    """What a line can be found by as a cause."""
    if line.kind == "Node":
        yield "node", line.name
    elif line.kind == "Pod" or line.family in ("delete", "create"):
        name = line.gist[-1] if line.family == "delete" else line.name
        yield "pod", line.namespace, name
        parts = name.split("-")
        for end in range(1, len(parts)):
            yield "owned", line.namespace, "-".join(parts[:end])
        for named in line.names:
            yield "named", line.namespace, named


def _wanted(line: Line, scope: str) -> Iterable[tuple[str, ...]]:
    """Where a cause of that scope is looked for."""
    match scope:
        case "node":
            if line.about_node:
                yield "node", line.about_node
        case "pod" | "named":
            yield scope, line.namespace, line.name
        case "owned":
            yield scope, line.namespace, line.name


def _leads_to(line: Line, other: Line) -> bool:
    """Whether `line` is among the causes of `other` already."""
    above: Line | None = other
    while above is not None:
        if above is line:
            return True
        above = above.cause
    return False
