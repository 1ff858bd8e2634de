"""Plays the loss of each node, zone or group by itself, and ranks them by what goes down.

Every target is played, on a fork of one present; the baseline is played once. The order is that of
severity: workloads at zero, Services without endpoints, seconds at zero, budgets below what they
ask for, pods without a place, stuck pods, drains that do not end, missing pod-seconds, then the
target's name. Each is counted workload by workload: what is worse for one is not made up for by
what is better for another. A workload or a Service that goes to zero with one target alone has a
single point of failure.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.node import zone_display, zone_key
from kubectl_nodelife.kube.times import SECOND_NS, in_seconds
from kubectl_nodelife.outlook.what_if import EACH
from kubectl_nodelife.outlook.what_if.acts import Act, Narrowing, read_acts
from kubectl_nodelife.outlook.what_if.answer import (
    act_warnings,
    figures_of,
    goes_down,
    lost_already,
)
from kubectl_nodelife.outlook.what_if.document import Both
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading, WorkloadCourse
from kubectl_nodelife.outlook.what_if.question import EachPlay, Question
from kubectl_nodelife.outlook.what_if.sentences import DRAINED
from kubectl_nodelife.outlook.what_if.service_levels import SERVICE, ServedObject
from kubectl_nodelife.sim.timeline import without_collector

_SEVERITY: Final = (
    "workloads_at_zero",
    "services_without_endpoints",
    "seconds_at_zero",
    "budgets_below",
    "pods_pending",
    "pods_stuck",
    "drains_unfinished",
    "unavailable_pod_seconds",
)
_HARM: Final = _SEVERITY[:-1]
PAIR_OF: Final = "pair-of"
MOST_PAIRS: Final = 20_000
_ALL: Final = Narrowing()
_COMMAND: Final = ("kubectl", "nodelife", "what-if")


class TargetGroup(msgspec.Struct, frozen=True):
    """Nodes that are lost at once: their name, themselves, and the words of a command for them."""

    name: str
    nodes: tuple[str, ...]
    words: tuple[str, ...]


class RankedTarget(msgspec.Struct, frozen=True, rename="camel"):
    """The loss of one target, ranked. `verdict`: each figure in the baseline and in the future;
    `more`: how much of it the future has more, summed over those that have more; `down`: workloads
    and Services of which it leaves nothing, `namespace/Kind/name`; `down_seconds`: the longest time
    for which nothing of one of them is left; `lost_already`: all its nodes are, in the baseline.
    """

    rank: int
    target: str
    nodes: list[str]
    verdict: dict[str, Both]
    more: dict[str, float]
    down: list[str]
    down_seconds: float
    command: str
    lost_already: bool

    @property
    def does_harm(self) -> bool:
        """True if any figure that counts as harm is higher with it."""
        return any(self.more[figure] > 0 for figure in _HARM)


class SinglePoint(msgspec.Struct, frozen=True, rename="camel"):
    """A workload or Service of which one target alone leaves nothing."""

    kind: str
    namespace: str
    name: str
    targets: list[str]


class WhatIfRanking(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The whole answer, every target in it. `harmless`: how many of them do no harm;
    `without_group`: nodes that have not the label. `partial`: it was interrupted."""

    api_version: str = "nodelife.dev/v1alpha1"
    kind: str = "WhatIfRanking"
    source: dict[str, Any]
    moment: dict[str, str]
    profile: str
    each: str
    act: str
    horizon: dict[str, float]
    futures: int
    harmless: int
    ignored: int
    without_group: int
    items: list[RankedTarget]
    single_points: list[SinglePoint]
    assumed: list[str]
    warnings: list[str]
    partial: bool = False


def group_by(each: str) -> tuple[str, str]:
    """(node, zone or label, the label's key): what makes a target. Raises BadInput."""
    kind, _, key = each.removeprefix(f"{PAIR_OF} ").partition("=")
    if kind not in ("node", "zone", "label") or (kind == "label") != bool(key):
        raise BadInput(f"no such group {each!r}", on="--each", remedy=f"give {EACH}")
    return kind, key


def targets_of(
    each: str, cluster: Cache, among: Narrowing = _ALL, *, beta_zone_labels_only: bool
) -> tuple[list[TargetGroup], int]:
    """(the targets by name, how many nodes are in none). Targets are those that have a node of
    `among`, whole, as an act hits them. Raises BadInput."""
    groups: dict[str, list[str]] = {}
    without = 0
    chosen = frozenset(among.nodes(cluster, beta_zone_labels_only=beta_zone_labels_only))
    of_pairs = each.startswith(f"{PAIR_OF} ")
    kind, key = group_by(each)
    for name, node in sorted(cluster.nodes.items()):
        labels = node.metadata.labels
        group = name
        if kind == "zone":
            group = zone_display(zone_key(labels, beta_only=beta_zone_labels_only))
        elif kind == "label":
            group = (labels or {}).get(key, "")
        if group:
            groups.setdefault(group, []).append(name)
        else:
            without += name in chosen
    groups = {name: nodes for name, nodes in groups.items() if not chosen.isdisjoint(nodes)}
    if not groups:
        raise BadInput("there is nothing to lose", on=f"--each {each}", remedy="check the labels")
    targets = [
        TargetGroup(name, tuple(nodes), _words_of(kind, key, name))
        for name, nodes in sorted(groups.items())
    ]
    return (list(_pairs(kind, key, targets)) if of_pairs else targets), without


def _pairs(kind: str, key: str, singles: Sequence[TargetGroup]) -> Iterator[TargetGroup]:
    """Each two of them. Raises BadInput."""
    count = len(singles) * (len(singles) - 1) // 2
    if not 0 < count <= MOST_PAIRS:
        what = f"{len(singles):,} make {count:,} pairs, and at most {MOST_PAIRS:,} are played"
        if not count:
            what = "there is only one, which makes no pair"
        remedy = "narrow with -l or --zone, or rank groups"
        raise BadInput(what, on=f"--each {PAIR_OF} {kind}", remedy=remedy)
    for one, other in combinations(singles, 2):
        words: tuple[str, ...] = (kind, one.name, other.name)
        if kind == "label":
            words = ("nodes", "-l", f"{key} in ({one.name},{other.name})")
        yield TargetGroup(f"{one.name} + {other.name}", (*one.nodes, *other.nodes), words)


def _words_of(kind: str, key: str, name: str) -> tuple[str, ...]:
    """How a command names the group."""
    return ("nodes", "-l", f"{key}={name}") if kind == "label" else (kind, name)


def words_on(words: Sequence[str], targets: Sequence[str]) -> list[str]:
    """The words of an act that names no target, on these targets: `lose` where they say no verb.
    Raises BadInput."""
    verb, *rest = words if words and not words[0].startswith("-") else ("lose", *words)
    if verb not in ("lose", "taint", "drain"):
        remedy = "give lose, lose link, drain, or taint with the taint"
        raise BadInput(f"{verb} is not for each of them", on="--each", remedy=remedy)
    link = ["link"] if rest[:1] == ["link"] else []
    return [verb, *link, *targets, *rest[len(link) :]]


def act_on(
    words: Sequence[str], target: TargetGroup, cluster: Cache, *, beta_zone_labels_only: bool
) -> Act:
    """The act of the words, which name no target, on a target. Raises BadInput."""
    on_target = words_on(words, target.words)
    return read_acts(on_target, cluster, beta_zone_labels_only=beta_zone_labels_only)[0]


class TargetOutcome(NamedTuple):
    """The effect of the loss of one target: each figure in the baseline and in the future, what the
    future has more, and the workloads and Services of which it leaves nothing.
    """

    target: str
    figures: dict[str, Both]
    more: dict[str, float]
    down: list[ServedObject]
    down_seconds: float
    lost_already: bool
    ignored: frozenset[ServedObject]


class Ranker:
    """Plays one target after the other, each on a fork of one present."""

    def __init__(
        self,
        question: Question,
        acts: Mapping[str, Act],
        ignores: Callable[[ServedObject], bool] = lambda served: False,
    ) -> None:
        """Plays the baseline. Raises BadInput."""
        self.acts, self._settings, self._ignores = acts, question.settings, ignores
        self._plays = EachPlay(question)
        self.before = PlayReading(self._plays.baseline, self._settings, ignores)
        self.was = figures_of(self.before)

    def warnings(self) -> list[str]:
        """Sentences on targets of which a loss says nothing, and on an act that is too long."""
        return act_warnings(self.acts.values(), self.before, self._plays.present)

    @without_collector()  # a play leaves no circle
    def outcome(self, target: str) -> TargetOutcome:
        """The effect of the target's loss, played. Raises BadInput."""
        act = self.acts[target]
        after = PlayReading(self._plays.play([act]), self._settings, self._ignores)
        now = figures_of(after)
        down = sorted(c for c in after.outages if goes_down(c, self.before, after))
        figures = {name: Both(baseline=self.was[name], future=now[name]) for name in now}
        of_down = [(each.kind == SERVICE, after.outage(each)) for each in down]
        longest_ns = max((o.no_ready_ns if s else o.at_zero_ns for s, o in of_down), default=0)
        is_lost = set(act.nodes) == set(lost_already(act, self.before, self._plays.present))
        more, ignored = _more(self.before, after, down), frozenset(after.ignored)
        longest_s = in_seconds(longest_ns)
        return TargetOutcome(target, figures, more, down, longest_s, is_lost, ignored)


def _more(
    before: PlayReading, after: PlayReading, down: Sequence[ServedObject]
) -> dict[str, float]:
    """How much the future has more of each figure: what is more for one workload, and the next."""
    outages = [
        (after.outages[each], before.outage(each)) for each in after.outages if each.kind != SERVICE
    ]
    courses = [
        (course, before.courses.get(each, WorkloadCourse()))
        for each, course in after.courses.items()
    ]

    def rise(pairs: Iterable[tuple[float, float]]) -> float:
        return sum(max(0, now - was) for now, was in pairs)

    fell = {key for key, budget in before.budgets.items() if budget.falls_below}
    return {
        "workloads_at_zero": sum(each.kind != SERVICE for each in down),
        "services_without_endpoints": sum(each.kind == SERVICE for each in down),
        "seconds_at_zero": _seconds(
            rise((now.at_zero_ns, was.at_zero_ns) for now, was in outages if was.before.serving)
        ),
        "budgets_below": sum(
            budget.falls_below and key not in fell for key, budget in after.budgets.items()
        ),
        "pods_pending": rise((len(now.pending), len(was.pending)) for now, was in courses),
        "pods_stuck": rise((len(now.stuck), len(was.stuck)) for now, was in courses),
        "pods_evicted": rise((now.evicted, was.evicted) for now, was in courses),
        "drains_unfinished": sum(drain.ended != DRAINED for drain in after.drains()),
        "unavailable_pod_seconds": _seconds(
            rise((now.missing_pod_ns, was.missing_pod_ns) for now, was in outages)
        ),
    }


def _seconds(span_ns: float) -> float:
    """A span of time as seconds, to a tenth: less is no difference."""
    return round(span_ns / SECOND_NS, 1)


class Ranked(TypedDict):
    """The fields of WhatIfRanking that are about its targets."""

    futures: int
    harmless: int
    ignored: int
    items: list[RankedTarget]
    single_points: list[SinglePoint]


def ranked(
    outcomes: Sequence[TargetOutcome],
    targets: Iterable[TargetGroup],
    words: Sequence[str],
    flags: Sequence[str] = (),
) -> Ranked:
    """The targets, the worst first. `words`: the act, without its target; `flags`: of the question
    about each, without which its figures are others."""
    groups = {target.name: target for target in targets}
    order = sorted(outcomes, key=lambda o: (*(-o.more[f] for f in _SEVERITY), o.target))
    items = [
        RankedTarget(
            *(number, outcome.target, list(groups[outcome.target].nodes)),
            *(outcome.figures, outcome.more, ["/".join(served) for served in outcome.down]),
            down_seconds=outcome.down_seconds,
            command=shlex.join([*_COMMAND, *words_on(words, groups[outcome.target].words), *flags]),
            lost_already=outcome.lost_already,
        )
        for number, outcome in enumerate(order, 1)
    ]
    points: dict[ServedObject, list[str]] = {}
    for outcome in order:
        for served in outcome.down:
            points.setdefault(served, []).append(outcome.target)
    single = [
        SinglePoint(kind=s.kind, namespace=s.namespace, name=s.name, targets=sorted(targets))
        for s, targets in sorted(points.items(), key=lambda p: (p[0].kind == SERVICE, p[0]))
    ]
    return Ranked(
        futures=len(outcomes),
        harmless=sum(not item.does_harm for item in items),
        ignored=len(frozenset().union(*(outcome.ignored for outcome in outcomes))),
        items=items,
        single_points=single,
    )


def horizon_ns(each: str, until_ns: int | None) -> int:
    """The horizon that was asked for, else ten minutes for nodes and an hour for groups."""
    if until_ns is not None:
        return until_ns
    return (600 if each.removeprefix(f"{PAIR_OF} ") == "node" else 3600) * SECOND_NS
