"""Which nodes a run is about, in which order it takes them, and how long each is out of service.

The order is pool by pool, zone by zone, the easiest drain first. A run grows by steps: step k
claims `canary * 2^k` nodes, waits until none of them is in flight, and soaks. When the next step
would be as wide as the pool's limit, growth ends, and nodes are claimed whenever they may be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median_low
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.counts import foreign_mark, why_unavailable
from kubectl_nodelife.controllers.upgrade.document import Step
from kubectl_nodelife.controllers.upgrade.marks import LABEL_HOLD, NodeMark
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode, is_selector
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Node, pool_of, zone_display, zone_key
from kubectl_nodelife.kube.selectors import matches, parse_selector
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_duration, parse_time

CONTROL_PLANE: Final = "control plane"
"""The pool of all control-plane nodes; no label has such a value."""
_CONTROL_PLANE_LABELS: Final = frozenset(
    {"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}
)


def is_control_plane(node: Node) -> bool:
    """True if a label says that the node runs the control plane."""
    return not _CONTROL_PLANE_LABELS.isdisjoint(node.metadata.labels or ())


def is_selected(node: Node, policy: UpgradePolicy) -> bool:
    """True if the run is about the node: named or selected, and not excluded."""
    if is_control_plane(node) and not policy.include_control_plane:
        return False
    if is_selector(policy.exclude):
        is_excluded = matches(_selector(policy.exclude), node.metadata.labels)
    else:
        is_excluded = node.name in policy.exclude.split(",")
    if is_excluded:
        return False
    if policy.nodes:
        return node.name in policy.nodes
    return matches(_selector(policy.selector), node.metadata.labels)


def named_nodes(policy: UpgradePolicy) -> tuple[str, ...]:
    """The nodes that the order names: to be done, to be first, to be left out."""
    excluded = () if is_selector(policy.exclude) else policy.exclude.split(",")
    return (*policy.nodes, *policy.canary_nodes, *(name for name in excluded if name))


def pool_name(node: Node, policy: UpgradePolicy) -> str:
    """The pool in which the node counts, "" for none."""
    return pool_of(node.metadata.labels, policy.pool_label)[1]


def turn_of(node: Node, policy: UpgradePolicy) -> str:
    """The pool in whose turn the node goes: control planes are one of their own."""
    return CONTROL_PLANE if is_control_plane(node) else pool_name(node, policy)


def zone_name(node: Node) -> str:
    """The zone in which the node counts, as it is shown; "" for none."""
    return zone_display(zone_key(node.metadata.labels))


@lru_cache(maxsize=64)
def _selector(text: str) -> LabelSelector:
    return parse_selector(text) if text else LabelSelector()


def why_skipped(node: Node, policy: UpgradePolicy, *, lease_is_fresh: bool = True) -> str:
    """Why the node itself is not claimed, "" where nothing prevents it."""
    why = why_left_alone(node, policy)
    return why or why_unhealthy(node, policy, lease_is_fresh=lease_is_fresh)


def why_left_alone(node: Node, policy: UpgradePolicy) -> str:
    """Why a node is not claimed however healthy it is, "" where it may be."""
    if policy.is_target_met(node, ""):
        return f"is there already ({', '.join(map(str, policy.target))})"
    if LABEL_HOLD in (node.metadata.labels or {}):
        return f"held by a person (label {LABEL_HOLD})"
    if mark := foreign_mark(node):
        return mark
    if node.spec.unschedulable and not policy.include_cordoned:
        return "cordoned by others"
    return ""


def why_unhealthy(node: Node, policy: UpgradePolicy, *, lease_is_fresh: bool = True) -> str:
    """Why a node is not healthy enough to be claimed, "" where it is. One that is cordoned may be
    claimed as it is."""
    if node.spec.unschedulable or policy.unhealthy == "include":
        return ""
    why = why_unavailable(node, lease_is_fresh=lease_is_fresh)
    return f"unhealthy before the run: {why}" if why else ""


def why_too_few(control_plane_nodes: int) -> str:
    """Why no control-plane node is claimed where there are so many; "" where one may be."""
    few = f"of {control_plane_nodes} control-plane nodes none is taken out, of 3 one"
    return few if control_plane_nodes < 3 else ""


PodKey = tuple[str, str]

NO_END: Final = frozenset({"never", "refused"})
"""Verdicts of drains that never end."""


class DrainVerdict(NamedTuple):
    """The drain planner's verdict on a node, with `drain-timeout` and the nodes Draining now.

    `verdict`: ready, slow, unknown, never or refused (`drain/results.py`); `sentence`: why, with
    the cheapest fix. `waits`: a budget is at zero now and refills. `low_seconds`, `high_seconds`:
    how long the drain takes. `moving`: the pods that leave; `evictable`: those of them that the
    plan lets go now. `is_short`: a budget spares fewer now than leave the node, whatever the
    verdict.
    """

    verdict: str
    sentence: str = ""
    waits: bool = False
    low_seconds: float = 0.0
    high_seconds: float = 0.0
    moving: tuple[PodKey, ...] = ()
    evictable: tuple[PodKey, ...] = ()
    is_short: bool = False


def why_undrainable(verdict: DrainVerdict, policy: UpgradePolicy) -> str:
    """Why a node with this verdict of the drain planner is not claimed, "" where it may be."""
    if verdict.verdict in NO_END:
        return f"drain: {verdict.verdict}: {verdict.sentence}"
    if verdict.verdict == "unknown" and not policy.accept_unknown:
        return f"drain: unknown: {verdict.sentence} (--accept-unknown)"
    return ""


def step_width(step: int, canary: int) -> int:
    """How many nodes step `step` claims in all."""
    return canary << step


def is_growing(step: int, canary: int, most: int, max_parallel: int | None = None) -> bool:
    """True if the step is played as one; from the first that is not, the window slides. `most`: how
    many nodes of the pool may be unavailable. Step 0 is always played.
    """
    limit = most if max_parallel is None else min(most, max_parallel)
    return step == 0 or step_width(step, canary) < limit


def next_step(step: int, *, done: int, failed: int) -> int:
    """The step after one of which so many nodes were done and failed: wider, the same again, or,
    after failures within `--max-failures`, from the beginning.
    """
    if failed:
        return 0
    return step + 1 if done else step


class UpgradeCandidate(NamedTuple):
    """A node that may be claimed, and what the drain planner said of it last."""

    name: str
    pool: str
    zone: str
    drain: DrainVerdict = DrainVerdict("ready")


Candidates = list[UpgradeCandidate]
_RANK: Final = {"ready": 0, "slow": 1}
"""Drain verdicts with which a node goes before one whose verdict is unknown."""


def claim_order(candidates: Candidates, canaries: Sequence[str] = ()) -> Candidates:
    """The candidates of a pool in their turn: the named canaries, then zone by zone, by cost. Where
    the verdict is unknown the budgets still say which are quick: a plan of what could be read has
    the order of the run that reads all.
    """
    first = {name: index for index, name in enumerate(canaries)}

    def turn(candidate: UpgradeCandidate) -> tuple[int, str, int, bool, float, int, str]:
        name, _, zone, drain = candidate
        rank, moving = _RANK.get(drain.verdict, len(_RANK)), len(drain.moving)
        begins = first.get(name, len(first))
        return begins, zone, rank, drain.is_short, drain.high_seconds, moving, name

    return sorted(candidates, key=turn)


SLOTS: Final = "slots"
PARALLEL: Final = "max-parallel"


class ClaimHold(NamedTuple):
    """Why a node is not claimed now: what holds it (slots, zone, room, ...), and a sentence."""

    by: str
    because: str

    def __str__(self) -> str:
        return f"{self.by}: {self.because}" if self.because else self.by


class ClaimStage(NamedTuple):
    """The claims that a pool's step allows: how many more nodes, of which zones. `soak`: none
    before `--soak` has passed since the last node ended; then the next step begins, or, once growth
    is over, these are claimed, of the next zone.
    """

    wanted: int = 0
    zones: tuple[str, ...] = ()
    soak: bool = False


def stage_of(
    step: Step,
    candidates: Collection[UpgradeCandidate],
    in_flight: Mapping[str, str],
    canary: int,
    zones_at_once: int = 1,
) -> ClaimStage:
    """The claims that are allowed in a pool now. Where zones follow one another there is a soak
    between two of them.

    `candidates`: its nodes that could be claimed but for slots and gates. `in_flight`: its nodes in
    Draining to Soaking, or waiting for a newcomer, and their zones. `zones_at_once`: of how many
    zones, the first unfinished ones by name; 0 for all of them.
    """
    waiting = {candidate.zone for candidate in candidates}
    unfinished = sorted(waiting | set(in_flight.values()))
    zones = tuple(unfinished[: zones_at_once or None])
    if step.window:
        wanted = step_width(step.k, canary) - len(step.nodes.keys() | in_flight.keys())
        if wanted > 0 and waiting:
            return ClaimStage(wanted, zones)
        return ClaimStage(soak=bool(waiting) and not in_flight)
    if not unfinished:
        return ClaimStage()
    before = {entry.zone for entry in step.nodes.values()}  # none: growth ended, and has soaked
    before |= set(in_flight.values())
    is_next = zones_at_once == 1 and bool(before) and zones[0] not in before
    return ClaimStage(len(candidates), zones, soak=is_next)


DEFAULT_WORK_NS: Final = 10 * MINUTE_NS
"""Where no duration of the work is given."""
RENEWAL_NS: Final = 10 * SECOND_NS
"""How often kubelets renew their Leases by default: four times in its 40 s."""
SETTLE_EXTRA_NS: Final = 2 * SECOND_NS
"""Beside `--ready-for`: the checks are looked at every few seconds."""
DAEMON_PODS_NS: Final = 30 * SECOND_NS
"""How much longer the pods of DaemonSets may take until they are Ready."""
CANARY_NS: Final = (11 * SECOND_NS, 14 * SECOND_NS, 30 * SECOND_NS)
"""Scheduled, started, 10 s without a restart, deleted; at most its image is pulled."""
_WORK_RANGE: Final = {True: (0.8, 1.25), False: (0.5, 2.0)}
"""The work's length at least and at most, as shares; True: its duration is given."""
SLACK: Final = 1.05
"""The time that passes between the phases: the leader's looks, its requests, their answers."""


class PhaseTimes(NamedTuple):
    """How long a node's phases take, in nanoseconds: the work, Settling, Proving."""

    work_ns: int
    settle_ns: int
    prove_ns: int


def expected_work_ns(policy: UpgradePolicy) -> int:
    """How long the work on a node is expected to take."""
    if policy.work.mode is WorkMode.NOTHING:
        return 0
    return DEFAULT_WORK_NS if policy.expect_work_ns is None else policy.expect_work_ns


def phase_times(
    policy: UpgradePolicy, renewal_ns: int | None = None
) -> tuple[PhaseTimes, PhaseTimes, PhaseTimes]:
    """The phases at least, as expected, and at most. `renewal_ns`: how often the nodes' Leases are
    renewed, None where it is not known; check S2 sees three renewals, the first of them at once, if
    need be.
    """
    work = expected_work_ns(policy)
    least, most = _WORK_RANGE[policy.expect_work_ns is not None]
    soonest = max(policy.ready_for_ns, 2 * (renewal_ns or 0))
    settle = max(policy.ready_for_ns, 3 * (renewal_ns or RENEWAL_NS)) + SETTLE_EXTRA_NS
    longest = settle + max(DAEMON_PODS_NS, settle // 2)
    return (
        PhaseTimes(int(work * least), soonest, CANARY_NS[0]),
        PhaseTimes(work, settle, CANARY_NS[1]),
        PhaseTimes(
            min(int(work * most), policy.work_timeout_ns),
            min(longest, policy.return_timeout_ns),
            min(CANARY_NS[2], policy.prove_timeout_ns),
        ),
    )


def high_estimate_ns(policy: UpgradePolicy, drain_seconds: float) -> int:
    """The high estimate of one node: drain, work, return and proof, each at its longest."""
    return int(drain_seconds * SECOND_NS) + sum(phase_times(policy)[2])


def assumptions(policy: UpgradePolicy, measured_nodes: int) -> tuple[str, str]:
    """What each estimate rests on, in words: the work's length, the median over so many nodes of
    the run under way where it is measured, and that nothing else happens.
    """
    source = "--expect-work" if policy.expect_work_ns is not None else "assumed: give --expect-work"
    if measured_nodes:
        source = f"the median of {counted(measured_nodes, 'node')} of the run under way"
    work = f"the work takes {format_duration(expected_work_ns(policy))} ({source})"
    if policy.work.mode is WorkMode.NOTHING:
        work = "no work is done"
    return work, "all work succeeds, and no other node fails meanwhile"


class MeasuredTimes(NamedTuple):
    """Medians over the nodes of a run whose work has ended, ns; None where there is none yet."""

    nodes: int = 0
    drain_ns: int | None = None
    work_ns: int | None = None


def measured(marks: Iterable[NodeMark]) -> MeasuredTimes:
    """The times that drains and work took so far, by the marks' own instants; first tries alone."""
    done = [mark for mark in marks if mark.work.ended and mark.try_ == 1 and not mark.for_]
    drains = [_between(m.claimed, m.work.started) for m in done if m.claimed and m.work.started]
    works = [_between(m.work.started, m.work.ended) for m in done if m.work.started]
    return MeasuredTimes(
        len(works), median_low(drains) if drains else None, median_low(works) if works else None
    )


def _between(earlier: str, later: str) -> int:
    return max(0, parse_time(later) - parse_time(earlier))
