"""The courses of nodes in a play, and the ranges of their instants.

An instant that upstream leaves to chance has a range: a node is called Unknown by the first monitor
pass after its grace period, whenever that begins; of several nodes that wait in a zone any may get
the first token; a pod is deleted so long after the taint as it tolerates it, and as it waits for
the requests of others; pod-gc runs each 20 s, whenever that is, and at the end of a quarantine its
run may come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubectl_nodelife.controllers.nodelifecycle.health import lost_after_ns
from kubectl_nodelife.controllers.podgc import GC_CHECK_PERIOD_NS, QUARANTINE_NS
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import AtRisk, InstantRange, NodeFuture
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading, is_eviction

_TOLERANCE_S: Final = 0.2
"""How far an instant may lie outside of its reckoned range by requests and the eviction loop."""


def node_futures(before: PlayReading, after: PlayReading, acts: Sequence[Act]) -> list[NodeFuture]:
    """The nodes that the acts name, and those that fare otherwise than without them."""
    named = {name for act in acts for name in act.nodes}
    changed = {n for n in after.nodes if after.nodes[n] and after.nodes[n] != before.nodes.get(n)}
    deletions: dict[str, list[Deletion]] = {}
    homes, deleted = after.played.levels.node_of, set[str]()
    due: dict[str, float] = {}
    waited: dict[str, float] = {}
    for record in after.played.records:
        if record.action == "ScheduleEviction":
            due[record.object.uid] = record.detail["due"]
        if record.object.kind != "Pod" or record.error or not is_eviction(record):
            continue
        if record.object.uid not in deleted:  # a repeated DELETE is no deletion
            deleted.add(record.object.uid)
            home = homes.get(record.object.uid, "")
            deletion = Deletion(record.at, by_collector=record.controller == "pod-gc")
            deletions.setdefault(home, []).append(deletion)
            waited.setdefault(home, record.at - due.get(record.object.uid, record.at))
    names = sorted(named | changed)
    passes = _passes(after)
    waiting = _turns(after, passes, waited)
    return [_node(name, after, deletions.get(name, []), waiting, passes) for name in names]


def _node(
    name: str,
    after: PlayReading,
    deletions: Sequence[Deletion],
    waiting: Mapping[str, Turns],
    passes: Mapping[str, LossPass],
) -> NodeFuture:
    instants = dict(after.nodes.get(name, {}))
    instants["first_deletion_seconds"] = min((d.at for d in deletions), default=None)
    instants["last_deletion_seconds"] = max((d.at for d in deletions), default=None)
    of_loss = _loss_range(name, after, instants, waiting.get(name), passes.get(name))
    return NodeFuture(
        name=name,
        zone=after.zone_of(name),
        evicted=len(deletions),
        pods=after.played.levels.pods_at_start[name],
        at_risk=AtRisk(**after.on_node[name]),
        ranges=dict(_ranges(name, after, instants, deletions, of_loss)),
        **instants,
    )


class LossRange(NamedTuple):
    """Between which instants a node is called Unknown, and how much sooner and later than in the
    play its token may come, None where it has none of such a kind; `wait`: by how much less and
    more its pods may wait for the requests of others.
    """

    earliest: float
    latest: float
    token: tuple[float, float] | None
    wait: tuple[float, float] = (0.0, 0.0)


def _loss_range(
    name: str,
    after: PlayReading,
    instants: Mapping[str, Any],
    turns: Turns | None,
    of_pass: LossPass | None,
) -> LossRange | None:
    unknown = instants.get("unknown_seconds")
    sign = after.played.last_signs.get(name)
    if unknown is None or sign is None or of_pass is None:
        return None
    settings = after.settings
    period_ns = settings.node_monitor_period_ns + MILLISECOND_NS
    lost_ns = lost_after_ns(settings.node_monitor_grace_period_ns, settings.node_monitor_period_ns)
    earliest, begins = (after.seconds(at_ns + lost_ns) or 0.0 for at_ns in sign)
    begins += period_ns / SECOND_NS
    latest = round(begins + of_pass.last - of_pass.first, 3)
    if not earliest - _TOLERANCE_S <= unknown <= latest + _TOLERANCE_S:
        return None  # its time was counted anew: the controllers were started again, or all dark
    tainted = instants.get("tainted_seconds")
    if tainted is None or turns is None:
        return LossRange(earliest, latest, None)
    sooner = round(tainted - max(0.0, turns.first - (of_pass.first - earliest)), 3)
    later = round(turns.last + (begins - of_pass.first) - tainted, 3)
    return LossRange(earliest, latest, (sooner, later), turns.wait)


def _ranges(
    name: str,
    after: PlayReading,
    instants: Mapping[str, Any],
    deletions: Sequence[Deletion],
    of_loss: LossRange | None,
) -> Iterator[tuple[str, InstantRange]]:
    """The ranges of a node's instants, by the names of the document's fields."""
    if of_loss is not None:
        yield "unknownSeconds", InstantRange(of_loss.earliest, of_loss.latest)
        if of_loss.token is not None:
            yield "taintedSeconds", _moved(instants["tainted_seconds"], of_loss.token)
    collected = [d.at for d in deletions if d.by_collector]
    each = [
        _of_collector(name, deletion.at, min(collected), after)
        if deletion.by_collector
        else _of_taint(deletion.at, instants.get("tainted_seconds"), of_loss)
        for deletion in deletions
    ]
    if any(one.earliest_seconds != one.latest_seconds for one in each):
        for word, pick in (("firstDeletionSeconds", min), ("lastDeletionSeconds", max)):
            earliest = pick(one.earliest_seconds for one in each)
            yield word, InstantRange(earliest, pick(one.latest_seconds for one in each))


def _of_taint(at: float, tainted: float | None, of_loss: LossRange | None) -> InstantRange:
    if tainted is None or at < tainted or of_loss is None or of_loss.token is None:
        return InstantRange(at, at)
    (sooner, later), (less, more) = of_loss.token, of_loss.wait
    return _moved(at, (sooner + less, later + more))


def _moved(at: float, token: tuple[float, float]) -> InstantRange:
    return InstantRange(round(at - token[0], 3), round(at + token[1], 3))


def _of_collector(name: str, at: float, first: float, after: PlayReading) -> InstantRange:
    """When pod-gc deletes a pod that it deletes at `at` in the play, the first of the node's at
    `first`. Of a node that is gone the quarantine begins with the next run, and ends at a run, or
    right after it.
    """
    period = GC_CHECK_PERIOD_NS / SECOND_NS
    gone = after.gone.get(name)
    if gone is None:
        return InstantRange(max(0.0, round(at - period, 3)), round(at + period, 3))
    quarantine = QUARANTINE_NS / SECOND_NS * after.settings.profile.has("gc_quarantine")
    takes = at - first + _TOLERANCE_S
    runs = 2 if quarantine else 1
    return InstantRange(
        round(gone + quarantine, 3), round(gone + quarantine + runs * period + takes, 3)
    )


class Deletion(NamedTuple):
    """When a pod of a node is asked to go in the play, and whether pod-gc asks."""

    at: float
    by_collector: bool


class LossPass(NamedTuple):
    """When a monitor pass called the first and the last of its nodes Unknown."""

    first: float
    last: float


def _passes(after: PlayReading) -> dict[str, LossPass]:
    """Node -> the pass that called it Unknown. One that finds many lost takes its time, as its
    client does, and comes to them in any order: those that were silent for long enough when it
    called the first one are its nodes.
    """
    settings = after.settings
    lost_ns = lost_after_ns(settings.node_monitor_grace_period_ns, settings.node_monitor_period_ns)
    unknown = {n: each["unknown_seconds"] for n, each in after.nodes.items() if _is_lost(each)}
    signs = after.played.last_signs
    due = {n: after.seconds(signs[n][0]) if n in signs else None for n in unknown}
    found: dict[str, LossPass] = {}
    waiting = sorted(unknown, key=lambda name: (unknown[name], name))
    while waiting:
        first = unknown[waiting[0]]
        own = [n for n in waiting if _silent_by(due[n], lost_ns, first) or unknown[n] == first]
        of_pass = LossPass(first, max(unknown[name] for name in own))
        found.update(dict.fromkeys(own, of_pass))
        waiting = [name for name in waiting if name not in found]
    return found


def _is_lost(instants: Mapping[str, Any]) -> bool:
    return "unknown_seconds" in instants


def _silent_by(silent: float | None, lost_ns: int, at: float) -> bool:
    return silent is not None and silent + lost_ns / SECOND_NS <= at + _TOLERANCE_S


class Turns(NamedTuple):
    """`first`, `last`: when the first of the nodes got its token with which a node waited, and when
    the last may. `wait`: by how much less and more its pods may wait for the requests of others.
    """

    first: float
    last: float
    wait: tuple[float, float]


def _turns(
    after: PlayReading, passes: Mapping[str, LossPass], waited: Mapping[str, float]
) -> dict[str, Turns]:
    """Of each node: nodes of a zone get their tokens, and those of a pass have their pods deleted,
    in an order that is not known. `waited`: for how long the first deletion on each node waited for
    its client's requests.
    """
    together: dict[tuple[str, float], list[str]] = {}
    of_pass: dict[float, list[float]] = {}
    for name, instants in after.nodes.items():
        if "tainted_seconds" in instants and "unknown_seconds" in instants:
            first = passes[name].first
            together.setdefault((after.zone_of(name), first), []).append(name)
            of_pass.setdefault(first, []).extend([waited[name]] if name in waited else [])
    found = {}
    for (_, first), names in together.items():
        tainted = [after.nodes[name]["tainted_seconds"] for name in names]
        waits = of_pass[first]
        for name in names:
            own = waited.get(name)
            wait = (own - min(waits), max(waits) - own) if own is not None else (0.0, 0.0)
            found[name] = Turns(min(tainted), max(tainted), wait)
    return found
