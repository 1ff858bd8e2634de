"""The leader's report on its last pass, which is kept on the run's Lease for `upgrade status`.
Nothing is decided by it. It costs no write of its own, and may be as old as the last renewal.

How long the run still takes is foretold by its steps, zones, soaks, slots and windows, with the
times that drains and work of this run took so far; what budgets and room will hold is not foreseen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from heapq import heapreplace
from itertools import chain, islice, zip_longest
from statistics import median_low
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import claims
from kubectl_nodelife.controllers.upgrade.claiming import SOAK, pools_in_turn
from kubectl_nodelife.controllers.upgrade.claims import Candidates
from kubectl_nodelife.controllers.upgrade.counts import CLUSTER, CORDONED, NodeScope
from kubectl_nodelife.controllers.upgrade.document import NOT_BEGUN, RunPhase
from kubectl_nodelife.controllers.upgrade.gates import BLIND, WINDOW
from kubectl_nodelife.controllers.upgrade.marks import NodeMark, NodeState
from kubectl_nodelife.controllers.upgrade.policy import Duration, WorkMode, fits_ns
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.codec import UNDECODABLE
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time, parse_time

ASSUMED_DRAIN_NS: Final = MINUTE_NS
"""Where no drain of the run has ended, and none is foreseen."""
_DRAIN_RANGE: Final = {True: (0.7, 1.0, 1.5), False: (0.0, 1.0, 2.0)}
"""A drain's length at least, as expected, at most, as shares; True: drains of this run ended. Until
then it is not known whether pods take their grace period at all."""


class TimeLeft(NamedTuple):
    """Seconds from now until the run is over, at least, as expected, at most. `nodes`: how many are
    in flight, waited for, or still to be claimed. `rests_on`: what is assumed. `is_held`: the run
    does not go on by itself, so that it counts from when it does.
    """

    nodes: int
    low: float
    expected: float
    high: float
    rests_on: tuple[str, ...]
    is_held: bool = False


def time_left(p: UpgradePass) -> TimeLeft | None:
    """The time that is left of the run; None where nothing is left, or nothing is seen of it."""
    policy, times = p.policy, claims.measured(p.marks.values())
    if times.work_ns is not None:
        policy = replace(policy, expect_work_ns=Duration(times.work_ns))
    candidates = p.memory.candidates if p.phase is not RunPhase.ABORTING else {}
    marked = p.marks.keys() | _skipped(p).keys()
    waiting = [c for n, c in candidates.items() if n not in marked and not isinstance(c, str)]
    count = len(p.in_flight) + len(p.gone) + len(waiting)
    if not count or p.document.proof_only or BLIND in p.gates:
        return None
    costs = [c.drain.high_seconds for n, c in p.memory.costs.items() if n not in p.marks]
    foreseen_ns = int(median_low(costs) * SECOND_NS) if costs else ASSUMED_DRAIN_NS
    drain_ns = foreseen_ns if times.drain_ns is None else times.drain_ns
    shares, limit_ns = _DRAIN_RANGE[times.drain_ns is not None], policy.drain_timeout_ns
    low, expected, high = (
        _Rest(
            p, (min(int(drain_ns * share), limit_ns), *phases), own_drains=share == shares[-1]
        ).length_ns(waiting)
        / SECOND_NS
        for phases, share in zip(claims.phase_times(policy, _renewal_ns(p)), shares, strict=True)
    )
    rests_on = claims.assumptions(policy, times.nodes)
    return TimeLeft(count, low, expected, high * claims.SLACK, rests_on, _is_held(p))


def _renewal_ns(p: UpgradePass) -> int | None:
    """How often the nodes' Leases are renewed; None where that is not known beforehand."""
    schedules = (beat.schedule for name in p.selected if (beat := p.cache.heartbeat(name)))
    return max((schedule.every_ns for schedule in schedules if schedule), default=None)


def _is_held(p: UpgradePass) -> bool:
    """True if a gate holds the run, other than a window, or nothing is in flight, and what may be
    claimed is held, other than by a window or a soak.
    """
    claims_wait = any(hold.by not in (WINDOW, SOAK) for hold in p.holds.values())
    is_busy = bool(p.in_flight or p.gone)
    return bool(p.gates.keys() - {WINDOW}) or (claims_wait and not is_busy)


class _Rest:
    """The rest of a run: nodes go one after another as slots come free, pool by pool, step by step.
    `lengths_ns`: how long a node is in each state of `_IN_TURN`; `own_drains`: in Draining for as
    long as the planner says of it, where that is longer.
    """

    def __init__(self, p: UpgradePass, lengths_ns: tuple[int, ...], *, own_drains: bool) -> None:
        self._p, self._lengths_ns, self._own_drains = p, lengths_ns, own_drains
        self._soaks_ns = int(p.policy.node_soak_ns)
        self._until: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        """Until when each slot is taken, by pool and zone: those of nodes in flight."""
        self._end_ns = 0
        for name, mark in p.in_flight.items():
            progress, reading = p.memory.progress_of(name) if own_drains else None, p.readings[name]
            drain_ns = progress.drained_ns - p.now_ns if progress is not None else 0
            self._add(reading.turn, reading.zone, mark, drain_ns)
        for entry in p.gone.values():
            if entry.mark is not None:
                self._add(entry.pool, entry.zone, entry.mark)
        self._out = Counter(pool for (pool, _), until in self._until.items() for _ in until)
        """How many of each pool the run has out of service, or brings back that others took out."""

    def _add(self, pool: str, zone: str, mark: NodeMark, own_drain_ns: int = 0) -> None:
        """A node in flight; `own_drain_ns`: for how long it is drained still, by the planner."""
        spent_ns = max(0, self._p.clock_ns - parse_time(mark.since)) if mark.since else 0
        free_ns = 0
        if mark.state in _IN_TURN:
            now_ns, *later_ns = self._lengths_ns[_IN_TURN.index(mark.state) :]
            now_ns = max(0, now_ns - spent_ns)
            if mark.state is NodeState.DRAINING:
                now_ns = max(now_ns, own_drain_ns)
            free_ns, spent_ns = now_ns + sum(later_ns), 0
            self._until[pool, zone].append(free_ns)
        self._end_ns = max(self._end_ns, free_ns + max(0, self._soaks_ns - spent_ns))

    def length_ns(self, waiting: Candidates) -> int:
        """When the last node is Done, from now."""
        p, step = self._p, self._p.next.step
        for pool in pools_in_turn(p, {c.pool for c in waiting}):
            mine = claims.claim_order([c for c in waiting if c.pool == pool], p.policy.canary_nodes)
            if p.policy.zones != 1:  # one of each zone after another, as where several are open
                turns = zip_longest(*_of_zones(mine).values())
                mine = [node for turn in turns for node in turn if node is not None]
            is_here = pool == step.pool and step.window != NOT_BEGUN
            if is_here and not step.window:
                self._claim(pool, mine, soaks=True)
                continue
            more = step.window - len(step.nodes) if is_here else p.policy.canary_width
            mine = self._grow(pool, mine, step.k if is_here else 0, more)
            self._claim(pool, mine, soaks=True, begins_ns=self._end_ns)
        return self._end_ns

    def _grow(self, pool: str, nodes: Candidates, k: int, more: int) -> Candidates:
        """Step by step, and a soak after each; the nodes that are left once growth is over."""
        policy = self._p.policy
        most, is_here = self._p.fleet.most_unavailable(pool), pool == self._p.next.step.pool
        begins_ns = 0 if is_here else self._end_ns  # pools go one after another
        while nodes and claims.is_growing(k, policy.canary_width, most, policy.max_parallel):
            self._claim(pool, nodes[: max(0, more)], begins_ns=begins_ns)
            nodes, k = nodes[max(0, more) :], k + 1
            more = claims.step_width(k, policy.canary_width)
            begins_ns = self._end_ns = self._end_ns + (self._soak_ns() if nodes else 0)
        return nodes

    def _claim(
        self, pool: str, nodes: Candidates, *, soaks: bool = False, begins_ns: int = 0
    ) -> None:
        """All of these nodes, those of a zone once the zone before is done where zones follow one
        another; `soaks`: with a soak in between.
        """
        if self._p.policy.zones != 1:
            self._slide(pool, nodes, begins_ns)
            return
        begun = self._p.next.step.nodes.values() if soaks and not begins_ns else ()
        before = {entry.zone for entry in begun}
        for zone, mine in _of_zones(nodes).items():
            if (pool, zone) not in self._until:
                is_next = soaks and before and zone not in before
                begins_ns = self._end_ns + (self._soak_ns() if is_next else 0)
            self._slide(pool, mine, begins_ns)
            before = {zone}

    def _soak_ns(self) -> int:
        """How long the step, or the zone, soaks that ends next; one may do so already."""
        p = self._p
        so_far_ns = p.now_ns - p.memory.soak[1] if p.memory.soak and not self._end_ns else 0
        return max(0, p.policy.soak_ns - so_far_ns)

    def _most(self, scope: NodeScope, ours: int) -> int:
        """How many of the scope the run may have out at once; `ours`: so many it has out now, or
        will have."""
        by_others = max(0, self._p.fleet.counts.budget(scope).unavailable - ours)
        return self._p.fleet.most_out(scope) - by_others

    def _slide(self, pool: str, nodes: Candidates, begins_ns: int) -> None:
        """Each of them goes as soon as its pool and its zone have a slot, and a window fits."""
        policy = self._p.policy
        limit = policy.max_parallel or len(self._p.nodes)
        why = [self._p.fleet.counts.node(node.name).unavailable for node in nodes]
        sick = sum(map(bool, why))
        most = self._most(NodeScope("pool", pool), self._out[pool] + sick)
        taken = (until for (of, _), until in self._until.items() if of == pool)
        slots = _free(chain(*taken), min(limit, most))
        most = self._most(CLUSTER, self._out.total() + sick)
        of_cluster = _free(chain(*self._until.values()), most)
        stays_cordoned = policy.work.mode is not WorkMode.REPLACE
        self._out[pool] += sick - stays_cordoned * why.count(CORDONED)
        proving_ns = self._lengths_ns[-1]
        of_zone: dict[str, tuple[list[int], list[int]]] = {}
        for node in nodes:
            if node.zone not in of_zone:
                most, down = self._p.fleet.most_out_of_zone(node.name)
                until = self._until[pool, node.zone]
                settled = (at_ns - proving_ns for at_ns in until)  # a proof is no loss to the zone
                of_zone[node.zone] = _free(until, most), _free(settled, down)
            zone, brake = of_zone[node.zone]
            free_ns = max(slots[0], of_cluster[0], zone[0], brake[0])
            at_ns = self._p.clock_ns + max(begins_ns, free_ns)
            high_ns = claims.high_estimate_ns(policy, node.drain.high_seconds)
            at_ns = fits_ns(policy.window, at_ns, high_ns) or at_ns
            at_ns += sum(self._lengths_ns) - self._p.clock_ns
            if self._own_drains:
                own_ns = int(node.drain.high_seconds * SECOND_NS)
                at_ns += max(0, own_ns - self._lengths_ns[0])
            for heap in (slots, of_cluster, zone):
                heapreplace(heap, at_ns)
            heapreplace(brake, at_ns - proving_ns)
            self._until[pool, node.zone].append(at_ns)
            self._end_ns = max(self._end_ns, at_ns + self._soaks_ns)


_IN_TURN: Final = (NodeState.DRAINING, NodeState.WORKING, NodeState.SETTLING, NodeState.PROVING)


def _of_zones(nodes: Candidates) -> dict[str, Candidates]:
    of_zones: dict[str, Candidates] = {}
    for node in nodes:
        of_zones.setdefault(node.zone, []).append(node)
    return of_zones


def _free(taken: Iterable[int], most: int) -> list[int]:
    """When each of so many slots comes free, as a heap."""
    most = max(1, most)
    return sorted([*[0] * most, *taken])[-most:]


ANNOTATION_REPORT: Final = "nodelife.dev/upgrade-report"
REPORT_LIMIT: Final = 96 * 1024
"""In bytes: all annotations of an object together may have 256 KiB, the run's document half."""
MOST_NODES: Final = 100
MOST_WORDS: Final = 300


class LeaderReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """`waits`: node in flight -> what is waited for. `deadlines`: node in flight -> until when it
    may be in its state, where that is not what its mark says; "" while its clock stands. `holds`:
    node or step -> why it is not claimed or does not go on yet. `skipped`: node -> why it is not
    upgraded. `lowest`: scope (`NodeScope.key`) -> the fewest nodes that were available in it during
    the run, and when. `budgets`: scope -> its nodes, how many are available, how many must be, how
    many may be unavailable. Instants are RFC 3339, by the API server's clock.
    """

    run: str = ""
    at: str = ""
    gates: dict[str, str] = {}
    waits: dict[str, str] = {}
    deadlines: dict[str, str] = {}
    holds: dict[str, claims.ClaimHold] = {}
    skipped: dict[str, str] = {}
    lowest: dict[str, tuple[int, str]] = {}
    budgets: dict[str, tuple[int, int, int, int]] = {}
    left: TimeLeft | None = None


def report_of(p: UpgradePass) -> LeaderReport:
    """The report on a pass; of many nodes the first hundred."""
    seen = {name: p.memory.progress_of(name) for name in p.in_flight}
    waits = {name: one.waits_for for name, one in seen.items() if one and one.waits_for}
    holds = {
        name: hold._replace(because=hold.because[:MOST_WORDS])
        for name, hold in islice(p.holds.items(), MOST_NODES)
    }
    counts = p.fleet.counts
    budgets = map(counts.budget, counts.scopes() if BLIND not in p.gates else ())
    return LeaderReport(
        run=p.document.run,
        at=p.stamp,
        gates=_cut(p.gates),
        waits=_cut(waits),
        deadlines=_cut(_deadlines(p)),
        holds=holds,
        skipped=_cut(_skipped(p)),
        lowest=_lowest(p),
        budgets={b.scope.key: (b.base, b.available, b.floor, b.most_unavailable) for b in budgets},
        left=time_left(p),
    )


_SAME_NS: Final = 2 * SECOND_NS
"""A mark's deadline is written in whole seconds, a moment after the clock began."""


def _deadlines(p: UpgradePass) -> dict[str, str]:
    """Until when nodes may be in their states by this leader's clock, which begins anew as long as
    what a node waits for is not its own fault.
    """
    found = {}
    for name, mark in p.in_flight.items():
        progress, length_ns = p.memory.progress_of(name), p.deadline_ns(mark.state)
        if progress is None or not progress.is_of(mark) or not mark.deadline:
            continue
        deadline_ns = p.clock_ns - p.now_ns + progress.armed_ns + length_ns
        if abs(deadline_ns - parse_time(mark.deadline)) > _SAME_NS:
            found[name] = format_time(deadline_ns) if progress.armed_ns < p.now_ns else ""
    return found


def _skipped(p: UpgradePass) -> dict[str, str]:
    """Why each node is left out, those too of pools whose turn it is not: by what was last heard of
    their drains."""
    costs = p.memory.costs.items()
    return {n: c.why_not for n, c in costs if c.why_not and n not in p.marks} | p.skipped


def _lowest(p: UpgradePass) -> dict[str, tuple[int, str]]:
    """The low points so far, also of leaders before this one. A blind leader, which has not seen
    every Lease renewed, counts nodes as unavailable that are not.
    """
    lows = p.memory.lowest
    report = report_on(p.lease)
    for key, low in report.lowest.items() if report.run == p.document.run else ():
        if key not in lows or low[0] < lows[key][0]:
            lows[key] = low
    for scope in p.fleet.counts.scopes() if BLIND not in p.gates else ():
        available = p.fleet.counts.budget(scope).available
        if scope.key not in lows or available < lows[scope.key][0]:
            lows[scope.key] = (available, p.stamp)
    return lows


def encode_report(report: LeaderReport) -> str:
    """The annotation's text, with the gates alone where it would be too long: it goes with each
    renewal of the Lease, which must not fail for it.
    """
    text = msgspec.json.encode(report)
    if len(text) > REPORT_LIMIT:
        gates = {gate: because[:MOST_WORDS] for gate, because in report.gates.items()}
        text = msgspec.json.encode(LeaderReport(at=report.at, gates=gates))
    return text.decode()


def report_on(lease: Lease | None) -> LeaderReport:
    """The leader's last report; an empty one where there is none, or none that can be read."""
    notes = lease.metadata.annotations if lease is not None else None
    try:
        return msgspec.json.decode((notes or {}).get(ANNOTATION_REPORT, "{}"), type=LeaderReport)
    except UNDECODABLE:
        return LeaderReport()


def _cut(texts: dict[str, str]) -> dict[str, str]:
    return {name: text[:MOST_WORDS] for name, text in islice(texts.items(), MOST_NODES)}
