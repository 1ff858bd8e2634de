"""Explains who cordoned, tainted or drained a node, when, why, and what undoes or repeats it.

From the lines of a replay (`replay/timeline`), made of managedFields, conditions and Events, so
that both name the same program. Only the API server's audit log has users' names.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kubectl_nodelife.controllers.nodelifecycle.taints import MIRRORING_KEYS
from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.counts import FOREIGN_TAINTS, foreign_mark
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.field_managers import TAINTS
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS, format_time, human_duration
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.outlook.replay import replay_line
from kubectl_nodelife.outlook.replay.drains import DRAIN
from kubectl_nodelife.outlook.replay.replay_line import (
    CONTROLLER,
    KUBELET,
    OTHER,
    US,
    USER,
    Actor,
    ReplayLine,
)
from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, ReplaySources, timeline
from kubectl_nodelife.workloads.foreign_taints import CREATED, mark_of_taint, note_of

WHO: Final = "Who cordoned, tainted or drained it, and what undoes that?"
"""The question of the section."""

_SOON_NS: Final = MINUTE_NS
"""Clocks differ: what seems to lie ahead so little has happened."""


def who_section(
    node: Node, pods: Collection[Pod], events: Sequence[Event], now_ns: int
) -> ExplainedQuestion:
    """The section about one node. `pods`: on it; `events`: at least those about it."""
    sources = ReplaySources(None, events, (node,), list(pods))
    lines_of_all = timeline(sources, ReplayFilter(0, now_ns + _SOON_NS, node.name, quiet=True))
    lines = [line for line in lines_of_all if line.kind == "Node"]
    cordon, deletion = list(_cordon(node, lines, now_ns)), list(_deletion(lines, now_ns))
    sentences = [
        *(*cordon, *_taints(node, lines, now_ns), *_drains(node, lines, now_ns)),
        *(*_conditions(node, lines, now_ns), *deletion, *_upgrade(node), *_conflict(node, lines)),
    ]
    sentences = sentences or ["It is neither cordoned nor tainted."]
    is_asked = node.spec.unschedulable and node.is_ready
    first = [*(cordon if is_asked else ()), *deletion]  # of a lost node other things are asked
    return ExplainedQuestion(WHO, sentences, answer=" ".join(first), goes_before=True)


def _cordon(node: Node, lines: Sequence[ReplayLine], now_ns: int) -> Iterator[str]:
    line = _last(lines, "cordon")
    if not node.spec.unschedulable:
        if line is not None:
            yield f"It was cordoned {_when(line, now_ns)}, and is not any more."
        return
    if line is None:
        yield f"It is cordoned; who did it is unknown: {_why_not(node)}."
        return
    by = "" if line.actor.kind == "kubelet" else f" by {line.actor}"
    then, mark = replay_line.what_next(line.actor, node.name), marks.readable_mark(node)
    if mark is not None and mark.cordon == marks.CordonOwner.OURS and mark.state in marks.TAKEN:
        then = f"upgrade run {mark.run} uncordons it"
    yield f"Cordoned {_when(line, now_ns)}{by}{f': {then}' if then else ''}."


def _taints(node: Node, lines: Sequence[ReplayLine], now_ns: int) -> Iterator[str]:
    for taint in node.spec.taints:
        line = _last(lines, "taint", taint.key, taint.effect)
        if taint.key == wellknown.TAINT_NODE_UNSCHEDULABLE and not node.spec.unschedulable:
            stale = mark_of_taint(node, taint, now_ns)
            assert stale is not None
            yield f"Taint {stale.sentence}."
            continue
        if taint.key not in MIRRORING_KEYS:
            yield _other_taint(node, taint, line, now_ns)
            continue
        since = f" {_when(line, now_ns)}" if line is not None else ""
        by = line.actor if line is not None else "node-lifecycle"
        yield f"Taint {taint}{since} by {by}: it mirrors the node's conditions and ends with them."


def _other_taint(node: Node, taint: Taint, line: ReplayLine | None, now_ns: int) -> str:
    note, owner = note_of(taint.key), replay_line.owner_of_taint(taint.key)
    if note is not None and (note.since == CREATED or not owner):
        since = f" {_when(line, now_ns)}" if line is not None else ""
        return f"Taint {taint}{since} is one of {note.owner}: {note.ends}."
    if line is not None and line.actor != replay_line.UNKNOWN_ACTOR:
        then = replay_line.what_next(line.actor, node.name).partition(" (")[0]
        return f"Taint {taint} {_when(line, now_ns)} by {line.actor}{f': {then}' if then else ''}."
    if owner:
        then = replay_line.what_next(Actor(OTHER, owner), node.name)
        return f"Taint {taint} is one of {owner}{f': {then}' if then else ''}."
    writer = node.managers.writer_of(TAINTS)
    if writer is None:
        return f"Taint {taint}: who set it is unknown: {_why_not(node)}."
    last = f"{replay_line.of_manager(writer.name)} {_ago(writer.time_ns, now_ns)}"
    return f"Taint {taint} by {last} or by an earlier client: only the list's last write is kept."


def _drains(node: Node, lines: Sequence[ReplayLine], now_ns: int) -> Iterator[str]:
    line = _last(lines, DRAIN)
    if line is not None:
        yield (
            f"Drained by {line.actor} {_when(line, now_ns)}: {line.detail} ({line.why}); "
            f"'kubectl nodelife replay --drain {shlex.quote(node.name)}' shows more."
        )


def _conditions(node: Node, lines: Sequence[ReplayLine], now_ns: int) -> Iterator[str]:
    for type_ in wellknown.LIFECYCLE_CONDITIONS:
        condition, line = node.status.condition(type_), _last(lines, "lifecycle", type_)
        if condition is None or line is None or _is_over(condition):
            continue
        message = f": {condition.message}" if condition.message else ""
        stale = condition.status == wellknown.TRUE and not node.spec.unschedulable
        forgotten = " The node is not cordoned: it was probably forgotten." * stale
        yield f"Condition {line.detail} {_when(line, now_ns)} by {line.actor}{message}.{forgotten}"


def _conflict(node: Node, lines: Sequence[ReplayLine]) -> Iterator[str]:
    """What else is at work on the node, and whether several take it out of service."""
    acting: dict[str, str] = {}

    def note(actor: Actor, what: str) -> None:
        if actor.kind not in (KUBELET, CONTROLLER) and actor != replay_line.UNKNOWN_ACTOR:
            name = "a person" if actor.kind in (USER, US) else actor.name
            acting.setdefault(name, f"{name} ({what})")

    cordon, mark, foreign = _last(lines, "cordon"), marks.readable_mark(node), foreign_mark(node)
    if mark is not None:
        acting["upgrade"] = f"upgrade run {mark.run}"
    elif node.spec.unschedulable and cordon is not None:
        note(cordon.actor, "cordon")
    for type_ in wellknown.LIFECYCLE_CONDITIONS:
        line = _last(lines, "lifecycle", type_, wellknown.TRUE)
        if line is not None and (mark is None or line.actor.kind != US):
            note(line.actor, type_)
    if foreign and not any(name.partition("-")[0] in foreign.lower() for name in acting):
        acting[foreign] = foreign
    if len(acting) > 1:
        actors = "; ".join(acting.values())
        yield f"Several take it out of service, and the first that is done puts it back: {actors}."
    elif foreign and not any(taint.key in FOREIGN_TAINTS for taint in node.spec.taints):
        yield f"Its mark names what is at work on it: {foreign}."


def _is_over(condition: NodeCondition) -> bool:
    """True if it says nothing of the present: a drain that ended well, or what is not so."""
    ended_well = condition.reason == wellknown.DRAIN_COMPLETED
    is_drain = condition.type == wellknown.DRAIN_IN_PROGRESS
    return condition.status == wellknown.FALSE and (ended_well or not is_drain)


def _deletion(lines: Sequence[ReplayLine], now_ns: int) -> Iterator[str]:
    """A cloud provider that wants to delete the Node of a machine that is gone."""
    line, failed = _last(lines, "DeletingNode"), _last(lines, "DeletingNodeFailed")
    if line is None:
        return
    times = f", {line.count} times" if line.count > 1 else ""
    yield f"{line.actor} wants to delete it {_when(line, now_ns)}{times}: {line.why}."
    if failed is not None:
        again = f" ({failed.count} times)" if failed.count > 1 else ""
        yield f"That fails{again}, and the Node stays: {failed.why}."


def _upgrade(node: Node) -> Iterator[str]:
    try:
        mark = marks.mark_of(node)
    except marks.UnreadableMark:
        yield "Its annotation nodelife.dev/upgrade cannot be read: no upgrade run touches it."
        return
    if mark is not None:
        ours = mark.cordon == marks.CordonOwner.OURS
        cordon = ", which cordoned it and uncordons it" if ours else ""
        reason = f": {mark.reason}" if mark.reason else ""
        yield (
            f"Upgrade run {mark.run}{cordon}: {mark.state} since {mark.since or 'unknown'}{reason}"
            f"; 'kubectl nodelife upgrade status {shlex.quote(node.name)}' shows more."
        )


def _last(lines: Sequence[ReplayLine], family: str, *rest: str) -> ReplayLine | None:
    """The newest line of that family whose identity goes on so behind the node's name."""
    of_family = (line for line in reversed(lines) if line.family == family)
    its = (line for line in of_family if line.identity[2 : 2 + len(rest)] == rest)
    return next(its, None)


def _when(line: ReplayLine, now_ns: int) -> str:
    return f"{_ago(line.time_ns, now_ns)} ({format_time(line.time_ns)})"


def _ago(at_ns: int, now_ns: int) -> str:
    return f"{human_duration(max(0, now_ns - at_ns))} ago"


def _why_not(node: Node) -> str:
    if node.managers:
        return "what managedFields say of it is gone"
    return "no managedFields were read (kubectl get nodes --show-managed-fields)"
