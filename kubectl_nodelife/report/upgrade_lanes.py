"""The lanes of an upgrade, planned or played: a node from its claim through its states to its end,
and in a played course the run itself, with the time in which a gate holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.html import Bar, Row
from kubectl_nodelife.sim.timeline import Record
from kubectl_nodelife.sim.upgrade_course import PlayedNode

PHASES: Final = (
    ("draining", "Draining"),
    ("working", "Working"),
    ("settling", "Settling"),
    ("proving", "Proving"),
    ("soaking", "Soaking (in service)"),
)
"""Class and meaning of each state that takes time, in their order."""
PLAYED: Final = (("held", "a gate holds the upgrade"), *PHASES, ("stuck", "failed or held"))
"""The same of a played run, whose nodes may come to a bad end."""
_STYLES: Final = {
    **{word.partition(" ")[0]: style for style, word in PHASES},
    **dict.fromkeys(("Failed", "Held"), "stuck"),
}
"""The class of each state, by its word in the records."""
_OVER: Final = ("Finished", "Aborted")
_CONTROLLER: Final = "upgrade"
_RESTORED: Final = "Restored"
"""Given back before it was done: the word is ours, for such a node has no mark any more."""

_Course = list[tuple[float, str]]
"""What is so from each instant on, in seconds; `""`: nothing any more."""


def turn_bars(turn: PlayedNode) -> Iterator[Bar]:
    """The states of a node of a planned run."""
    instants = (
        turn.claimed_ns,
        turn.drained_ns,
        turn.worked_ns,
        turn.settled_ns,
        turn.released_ns,
        turn.done_ns,
    )
    for (style, _), begin, end in zip(PHASES, instants, instants[1:], strict=False):
        if begin is not None and end is not None and end > begin:
            yield Bar(begin / SECOND_NS, end / SECOND_NS, style)


def played_rows(
    records: Iterable[Record], last: float, instant_text: Callable[[float], str]
) -> Iterator[Row]:
    """The run, then its nodes in the order of their claims; nothing where no upgrade was played.

    `last`: the end of the course, in seconds.
    """
    nodes: dict[str, _Course] = {}
    gates: dict[str, _Course] = {}
    phases: _Course = []
    for record in records:
        at, detail = record.at, record.detail
        if record.controller != _CONTROLLER or record.error:
            continue
        if record.action == "SetGate":
            course = gates.setdefault(detail["gate"], [])
            course.append((at, detail["gate"] if detail["holds"] else ""))
        elif record.action == "SetUpgradePhase":
            phases.append((at, detail["to"]))
        elif record.action == "RestoreNode":
            nodes.setdefault(record.object.name, []).append((at, _RESTORED))
        elif record.object.kind == "Node" and detail.get("to", "") != detail.get("from", ""):
            nodes.setdefault(record.object.name, []).append((at, detail.get("to", "")))
    if gates or phases or nodes:
        over = next((at for at, phase in phases if phase in _OVER), last)
        held = [bar for course in gates.values() for bar in _bars(course, over, _held)]
        words = _words(phases, instant_text)
        yield Row("the upgrade", sorted(held), "when a gate holds it", "group", words)
    for name, course in nodes.items():
        states = [each for each in course if each[1]]
        words = _words(states[-1:], instant_text)
        yield Row(name, list(_bars(course, last, _style_of)), words=words)


def _held(gate: str) -> str:
    return "held"


def _style_of(state: str) -> str:
    return _STYLES.get(state, "")


def _bars(course: _Course, last: float, style_of: Callable[[str], str]) -> Iterator[Bar]:
    for (at, says), (end, _) in pairwise([*course, (last, "")]):
        if end > at and (style := style_of(says) if says else ""):
            yield Bar(at, end, style, says)


def _words(course: _Course, instant_text: Callable[[float], str]) -> str:
    return " → ".join(f"{says} {instant_text(at)}" for at, says in course)
