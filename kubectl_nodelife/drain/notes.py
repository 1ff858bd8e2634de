"""Notes beside a plan: what it rests on, and what somebody should know before."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.drain.play import Play
from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.enumeration import counted, first_names
from kubectl_nodelife.kube.times import SECOND_NS

LONG_WAIT_NS: Final = 30 * SECOND_NS


def assumptions(play: Play) -> list[str]:
    """The assumptions of the plan that nothing in the cluster shows."""
    made = [a for a in play.world.actors.values() if a.created_ns is not None]
    moved = {
        target.actor.workload
        for run in play.runs.values()
        for target in run.targets
        if target.actor.workload is not None
    }
    if not moved and not any(run.targets for run in play.runs.values()):
        return []
    sources: dict[str, str] = {}
    for actor in made:
        took = play.scope.times.time_to_ready(actor.pod)
        if took is not None and actor.workload is not None:
            name = f"{actor.workload.kind} {actor.workload.name}"
            if took.source != name:
                sources[name] = took.source
    lines = ["pods take their whole grace period to stop (the low end: none of it)"]
    lines += _late_kubelets(play)
    if play.scope.left_out:
        pods = counted(play.scope.left_out, "pod")
        lines.append(f"the room that {pods} elsewhere may take or leave meanwhile is not counted")
    if sources:
        shown = first_names([f"{name}: {of}" for name, of in sorted(sources.items())], 5, "; ")
        lines.append(f"time to be Ready not learnt from the workload itself: {shown}")
    assumed = sorted({f"{w.kind} {w.name}" for w in moved if w.rule.assumed})
    if assumed:
        lines.append(f"owners that were not read replace their pods: {first_names(assumed, 5)}")
    guessed = sorted({ledger.guessed for ledger in play.world.ledgers.values() if ledger.guessed})
    lines += [f"{why}; the budget's recorded status stands in" for why in guessed[:5]]
    return lines


def _late_kubelets(play: Play) -> list[str]:
    """Kubelets that are taken for silent, where the drain takes long enough to feel it."""
    snapshot = play.scope.snapshot
    late = sorted(snapshot.late.items())
    if not late or play.world.controllers is None:
        return []
    told = [f"{name} ({human_duration(snapshot.now_ns - at_ns)} ago)" for name, at_ns in late]
    return [f"kubelets last heard of too long ago stay silent: {first_names(told, 5)}"]


def if_late_were_slow(slow: Play) -> list[str]:
    """What becomes of a drain that does not finish, where kubelets that are late are only slow.

    `slow`: the run in which they are.
    """
    drained = all(run.drained for run in slow.runs.values())
    if slow.end_ns is None or not drained or len(slow.runs) < len(slow.scope.nodes):
        return []
    took = human_duration(slow.end_ns)
    return [f"if these kubelets are only slow and renew again, this drain finishes in {took}"]


def warnings_of(play: Play) -> list[str]:
    """Silent kubelets, replacements without room or late, pods that move twice."""
    warnings = []
    snapshot = play.scope.snapshot
    for name in play.scope.nodes:
        silent = snapshot.silent_kubelet(name)
        if silent is not None:
            warnings.append(f"{silent}: its pods are not ended")
    still_cordoned = {
        name for name in play.scope.nodes if play.world.landing.nodes[name].spec.unschedulable
    }
    twice = sum(
        1
        for actor in play.world.actors.values()
        if actor.created_ns is not None and actor.node in still_cordoned
    )
    if twice:
        warnings.append(
            f"{twice} replacement{'s' if twice > 1 else ''} would land on a node of this plan:"
            " they tolerate its cordon"
        )
    waiting = play.world.waiting
    if waiting:
        why = play.world.landing.placement.no_room(waiting[0].pod)
        more = " (the first of them)" if len(waiting) > 1 else ""
        warnings.append(
            f"{len(waiting)} replacement{'s' if len(waiting) > 1 else ''} would stay Pending:"
            f" {why}{more}"
        )
    return [*warnings, *_waits_for_room(play), *_second_moves(play)]


def _waits_for_room(play: Play) -> list[str]:
    """Replacements that found a node in the end, and when."""
    waited = [
        actor.placed_ns - actor.created_ns
        for actor in play.world.actors.values()
        if actor.created_ns is not None and actor.placed_ns is not None
    ]
    long = [wait_ns for wait_ns in waited if wait_ns > LONG_WAIT_NS]
    if not long:
        return []
    return [
        f"{len(long)} replacement{'s' if len(long) > 1 else ''} would wait for room, up to"
        f" {max(long) // SECOND_NS}s: the nodes of the plan are cordoned, and come back later"
    ]


def _second_moves(play: Play) -> list[str]:
    """Replacements that landed on a node which is drained later."""
    again = sum(
        1
        for run in play.runs.values()
        for target in run.targets
        if target.actor.created_ns is not None and target.accepted_ns is not None
    )
    if not again:
        return []
    pods = "pod moves" if again == 1 else "pods move"
    return [f"{again} {pods} twice: to a node that is drained later"]
