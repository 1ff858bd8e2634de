"""The courses of nodes in a play, and the ranges of their instants.

An instant that upstream leaves to chance has a range: a node is called Unknown by the first monitor
pass after its grace period, whenever that begins; of several nodes that wait in a zone any may get
the first token; a pod is deleted so long after the taint as it tolerates it, and as it waits for
the requests of others; pod-gc runs each 20 s, whenever that is, and at the end of a quarantine its
run may come first. Other ranges stand on the plays of a fast and of a slow cluster, of which an
`Extreme` is kept: little beside a play, so that one process can hand it to another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.health import lost_after_ns
from kubectl_nodelife.controllers.podgc import GC_CHECK_PERIOD_NS, QUARANTINE_NS
from kubectl_nodelife.engine.actions import DeletePod, EvictPod
from kubectl_nodelife.engine.pace import pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS, in_seconds
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import (
    AtRisk,
    CountRange,
    InstantRange,
    NodeFuture,
    PlayExtreme,
)
from kubectl_nodelife.outlook.what_if.play_reading import Played, PlayReading, seconds, zone_changes
from kubectl_nodelife.outlook.what_if.service_levels import Outage, ServedObject
from kubectl_nodelife.sim.reading import Happened

_TOLERANCE_S: Final = 0.2
"""How far an instant may lie outside of its reckoned range by requests and the eviction loop."""
_COLLECTOR: Final = "pod-gc"

Deletion = Happened[DeletePod | EvictPod]
"""When a pod of a node is asked to go in the play, and by whom."""


def node_futures(
    before: PlayReading,
    after: PlayReading,
    acts: Sequence[Act],
    others: Sequence[Mapping[str, int]] = (),
) -> list[NodeFuture]:
    """The nodes that the acts name, and those that fare otherwise than without them. `others`:
    how many pods of each node are deleted in plays of the same acts, in which pods get other nodes.
    """
    named = {name for act in acts for name in act.nodes}
    changed = {n for n in after.nodes if after.nodes[n] and after.nodes[n] != before.nodes.get(n)}
    deletions, waited = deletions_by_node(after)
    losses = Losses(after, deletions, waited)
    futures = []
    for name in sorted(named | changed):
        elsewhere = [deleted.get(name, 0) for deleted in others]
        futures.append(_node(name, after, deletions.get(name, []), losses, elsewhere))
    return futures


def deletions_by_node(after: PlayReading) -> tuple[dict[str, list[Deletion]], dict[str, float]]:
    """Of each node the deletions of its pods, and for how long the first waited for its client."""
    deletions: defaultdict[str, list[Deletion]] = defaultdict(list)
    waited: dict[str, float] = {}
    for done, pod in after.played.courses.evicted:
        deletions[pod.node].append(done)
        waited.setdefault(pod.node, 0.0 if pod.due_at is None else done.at - pod.due_at)
    return deletions, waited


def _node(
    name: str,
    after: PlayReading,
    deletions: Sequence[Deletion],
    losses: Losses,
    elsewhere: Sequence[int],
) -> NodeFuture:
    """`elsewhere`: how many of its pods are deleted in other plays."""
    instants = dict(after.nodes.get(name, {}))
    instants["first_deletion_seconds"] = min((d.at for d in deletions), default=None)
    instants["last_deletion_seconds"] = max((d.at for d in deletions), default=None)
    ranges = dict(_ranges(name, after, instants, deletions, losses.range_of(name)))
    at_risk = AtRisk(**after.on_node[name])
    fewest, most = min([len(deletions), *elsewhere]), max([len(deletions), *elsewhere])
    tainted = ranges.get("taintedSeconds")
    if tainted is not None and tainted.latest_seconds is None:  # it may be tainted, or not
        fewest, most = 0, max(most, at_risk.queue + at_risk.brake)
    return NodeFuture(
        name=name,
        zone=after.zone_of(name),
        evicted=len(deletions),
        evicted_range=CountRange(fewest=fewest, most=most),
        pods=after.played.levels.pods_on_at_start(name),
        at_risk=at_risk,
        ranges=ranges,
        **instants,
    )


class LossRange(NamedTuple):
    """Between which instants a node is called Unknown (`latest` None: perhaps only after the end of
    the play), and how much sooner and later than in the
    play its token may come, None where it has none of such a kind; `wait`: by how much less and
    more its pods may wait for the requests of others. Where its zone stops before all nodes have
    their tokens: `may_fail` of one that has its, and of one that has none `may_come`: the earliest
    instants of its taint and of its first and last deletion.
    """

    earliest: float
    latest: float | None
    token: tuple[float, float] | None
    wait: tuple[float, float] = (0.0, 0.0)
    may_fail: bool = False
    may_come: tuple[float, ...] = ()


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
            yield "taintedSeconds", _moved(instants["tainted_seconds"], of_loss.token, of_loss)
        words = ("taintedSeconds", "firstDeletionSeconds", "lastDeletionSeconds")
        yield from zip(words, (InstantRange(at, None) for at in of_loss.may_come), strict=False)
    collected = [d.at for d in deletions if d.action.controller == _COLLECTOR]
    each = [
        _of_collector(name, deletion.at, min(collected), after)
        if deletion.action.controller == _COLLECTOR
        else _of_taint(deletion.at, instants.get("tainted_seconds"), of_loss)
        for deletion in deletions
    ]
    if any(one.earliest_seconds != one.latest_seconds for one in each):
        for word, pick in (("firstDeletionSeconds", min), ("lastDeletionSeconds", max)):
            earliest = pick(one.earliest_seconds for one in each)
            latest = [one.latest_seconds for one in each if one.latest_seconds is not None]
            yield word, InstantRange(earliest, pick(latest) if len(latest) == len(each) else None)


def _of_taint(at: float, tainted: float | None, of_loss: LossRange | None) -> InstantRange:
    if tainted is None or at < tainted or of_loss is None or of_loss.token is None:
        return InstantRange(at, at)
    (sooner, later), (less, more) = of_loss.token, of_loss.wait
    return _moved(at, (sooner + less, later + more), of_loss)


def _moved(at: float, by: tuple[float, float], of_loss: LossRange) -> InstantRange:
    latest = None if of_loss.may_fail else round(at + by[1], 3)
    return InstantRange(round(at - by[0], 3), latest)


def _of_collector(name: str, at: float, first: float, after: PlayReading) -> InstantRange:
    """When pod-gc deletes a pod that it deletes at `at` in the play, the first of the node's at
    `first`. Of a node that is gone the quarantine begins with the next run, and ends at a run, or
    right after it.
    """
    period = GC_CHECK_PERIOD_NS / SECOND_NS
    gone = after.played.courses.nodes[name].event_at("Deleted")
    if gone is None:
        return InstantRange(max(0.0, round(at - period, 3)), round(at + period, 3))
    quarantine = QUARANTINE_NS / SECOND_NS * after.settings.profile.has("gc_quarantine")
    takes, runs = at - first + _TOLERANCE_S, 2 if quarantine else 1
    latest = gone + quarantine + runs * period + takes
    return InstantRange(round(gone + quarantine, 3), round(latest, 3))


class Losses:
    """The nodes that a play calls Unknown, and what of their courses is chance.

    A pass that finds many lost takes its time, as its client does, and comes to them in any order.
    A node that falls due while it is at work over others waits for its end and a period more; which
    nodes one pass finds together is chance, where they fall due one after another.
    """

    def __init__(
        self,
        after: PlayReading,
        deletions: Mapping[str, Sequence[Deletion]],
        waited: Mapping[str, float],
    ) -> None:
        """`waited`: for how long the first deletion on each node waited for its client."""
        settings = after.settings
        self._after, self._deletions, self._waited = after, deletions, waited
        self._pace = pace_of(settings)
        self._period_s = (settings.node_monitor_period_ns + MILLISECOND_NS) / SECOND_NS
        grace_ns = settings.node_monitor_grace_period_ns
        lost_s = lost_after_ns(grace_ns, settings.node_monitor_period_ns) / SECOND_NS
        self._lost_s = lost_s
        self._unknown: dict[str, float] = {
            name: instants["unknown_seconds"]
            for name, instants in after.nodes.items()
            if "unknown_seconds" in instants
        }
        pods = sum(map(after.played.levels.pods_on_at_start, self._unknown))
        self._reach_s = self._period_s + self._takes(len(self._unknown), pods)
        self._due = {n: (max(0.0, at - self._reach_s), at) for n, at in self._unknown.items()}
        for name in self._unknown.keys() & after.played.last_signs.keys():
            first, last = map(after.seconds, after.played.last_signs[name])
            self._due[name] = (round((first or 0.0) + lost_s, 3), round((last or 0.0) + lost_s, 3))
        self._passes = self._passes_of_play()
        self._stopping = {
            zone
            for zone, changes in zone_changes(after.played).items()
            if any(change.rate == 0 for change in changes)
        }
        self._together = {n: chain for chain in self._chains() for n in chain.names}

    def range_of(self, name: str) -> LossRange | None:
        """The range of a node's course; None where it has none: it is not lost, or its time was
        counted anew, as the controllers were started again or all was dark."""
        if name not in self._unknown:
            return self._beyond(name)
        (earliest, due), of_pass, unknown = self._due[name], self._passes[name], self._unknown[name]
        chain, spread = self._together[name], of_pass.last - of_pass.first
        most = self._takes(len(chain.names), chain.pods)
        splits = chain.due[0] < chain.due[-1] and most > 0
        more = max(0.0, most - spread) if chain.due[0] < due else 0.0
        latest = round(due + self._period_s + spread + more, 3)
        if not earliest - _TOLERANCE_S <= unknown <= latest + _TOLERANCE_S:
            return None
        zone = self._after.zone_of(name)
        turns, tainted = chain.zones[zone], self._tainted(name)
        if tainted is None:
            may = [earliest, *(earliest + each for each in turns.delays)] if turns.tainted else []
            return LossRange(earliest, latest, None, may_come=tuple(round(at, 3) for at in may))
        least = 0.0 if splits else max(0.0, turns.tainted[0] - turns.begins)
        last = turns.tainted[-1] - turns.begins - (0.0 if splits else spread)
        token = round(tainted - earliest - least, 3), round(latest + last - tainted, 3)
        own, wait = self._waited.get(name), (0.0, 0.0)
        if own is not None:
            wait = own - (0.0 if splits else min(chain.waits)), max(chain.waits) - own
        may_fail = len(turns.tainted) < turns.nodes or (splits and zone in self._stopping)
        return LossRange(earliest, latest, token, wait, may_fail)

    def _beyond(self, name: str) -> LossRange | None:
        """Of a node that the play's last pass finds alive, and one at another moment may not."""
        played, seconds = self._after.played, self._after.seconds
        if name not in played.silent or name not in played.last_signs:
            return None
        signs = (seconds(at_ns) or 0.0 for at_ns in played.last_signs[name])
        first, last = (round(at + self._lost_s, 3) for at in signs)
        until, ready = seconds(played.end_ns) or 0.0, played.cluster.nodes[name].ready()
        is_unknown = ready is not None and ready.status == "Unknown"
        if is_unknown or not first <= until <= last + self._period_s:
            return None
        return LossRange(first, None, None)

    def _tainted(self, name: str) -> float | None:
        tainted: float | None = self._after.nodes[name].get("tainted_seconds")
        return tainted

    def _takes(self, nodes: int, pods: int) -> float:
        """How long a pass takes that finds so many lost, seconds."""
        return self._pace.pass_ns(nodes, pods) / SECOND_NS if self._pace is not None else 0.0

    def _chains(self) -> Iterator[_Chain]:
        """Nodes that a pass may find together, or be at work over when others of them fall due."""
        names: list[str] = []
        for name in sorted(self._due, key=lambda n: (self._due[n], n)):
            if names and self._due[name][0] > self._due[names[-1]][1] + self._reach_s:
                yield self._chain(names)
                names = []
            names.append(name)
        if names:
            yield self._chain(names)

    def _chain(self, names: list[str]) -> _Chain:
        pods_on = self._after.played.levels.pods_on_at_start
        zones: dict[str, list[str]] = {}
        for name in names:
            zones.setdefault(self._after.zone_of(name), []).append(name)
        return _Chain(
            names,
            [self._due[name][0] for name in names],
            sum(map(pods_on, names)),
            [self._waited[name] for name in names if name in self._waited],
            {zone: self._turns(of_zone) for zone, of_zone in zones.items()},
        )

    def _turns(self, names: Sequence[str]) -> _Turns:
        tainted = {name: at for name in names if (at := self._tainted(name)) is not None}
        deleted = [
            (at - tainted[name], max(d.at for d in of_node) - tainted[name])
            for name in tainted
            if (of_node := self._deletions.get(name)) and (at := min(d.at for d in of_node))
        ]
        begins = min((self._passes[name].first for name in tainted), default=0.0)
        delays = tuple(min(each) for each in zip(*deleted, strict=True))
        return _Turns(len(names), begins, sorted(tainted.values()), delays)

    def _passes_of_play(self) -> dict[str, LossPass]:
        """Node -> the pass that called it Unknown: those that were silent for long enough when it
        called the first one are its nodes."""
        passes: dict[str, LossPass] = {}
        waiting = sorted(self._unknown, key=lambda name: (self._unknown[name], name))
        while waiting:
            first = self._unknown[waiting[0]]
            due = first + _TOLERANCE_S
            own = [n for n in waiting if self._due[n][0] <= due or self._unknown[n] == first]
            of_pass = LossPass(first, max(self._unknown[name] for name in own))
            passes.update(dict.fromkeys(own, of_pass))
            waiting = [name for name in waiting if name not in passes]
        return passes


class _Turns(NamedTuple):
    """Those of a zone: how many `nodes`, when the first pass begins that finds one that is tainted,
    when they are in order, and the least time from a taint to the first and last deletion."""

    nodes: int
    begins: float
    tainted: list[float]
    delays: tuple[float, ...]


class _Chain(NamedTuple):
    """`names` and when these fall `due` at the earliest, in order; the `pods` on them;
    `waits`: of the first deletions on them for their client."""

    names: list[str]
    due: list[float]
    pods: int
    waits: list[float]
    zones: dict[str, _Turns]


class LossPass(NamedTuple):
    """When a monitor pass called the first and the last of its nodes Unknown."""

    first: float
    last: float


class Extreme(msgspec.Struct, frozen=True):
    """`outages`: of workloads and Services whose level changed; `evicted`: how many pods of each
    workload; `deleted`: how many pods of each node; `waited_ns`: as of `Played`.
    """

    start_ns: int
    outages: dict[ServedObject, Outage]
    evicted: dict[ServedObject, int]
    deleted: dict[str, int]
    waited_ns: int

    @classmethod
    def of(cls, played: Played, settings: Settings) -> Extreme:
        """Of that play, which ended under these settings."""
        reading = PlayReading(played, settings)
        evicted = {workload: course.evicted for workload, course in reading.courses.items()}
        deleted = {node: len(each) for node, each in deletions_by_node(reading)[0].items()}
        return cls(played.start_ns, reading.outages, evicted, deleted, played.waited_ns)

    def of_workload(self, workload: ServedObject, unchanged: Outage) -> PlayExtreme:
        """How the workload fared. `unchanged`: the figures of one whose level does not change."""
        outage = self.outages.get(workload, unchanged)
        return PlayExtreme(
            lowest_serving=outage.lowest_serving,
            at_zero_seconds=in_seconds(outage.at_zero_ns),
            back_seconds=seconds(outage.back_ns, self.start_ns),
        )
