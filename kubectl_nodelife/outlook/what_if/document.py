"""The document `WhatIf`: what the future has that the baseline has not.

Only what differs is listed. Seconds count from the question, to the ms. `sentences.py` says
question and outcome in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import msgspec

from kubectl_nodelife.drain.results import BudgetPoint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.eviction_forecast import Range
from kubectl_nodelife.outlook.taint_turns import pass_in_words
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.sim.present import UnreadKind
from kubectl_nodelife.sim.reading import PodLoop


class CausedChange(msgspec.Struct, frozen=True, rename="camel"):
    """One change: when, what was done to what, and why; then the causes, the nearest first."""

    at: float
    action: str
    object: str
    reason: str


class WhyChanged(msgspec.Struct, frozen=True, rename="camel"):
    """All changes of an object, each with its chain of causes."""

    about: str
    changes: list[list[CausedChange]]


class _Document(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A part of the document."""


class Both(_Document, frozen=True, omit_defaults=True):
    """A figure in the baseline and in the future; and in a play without any act, where the baseline
    has the acts as well, under today's settings."""

    baseline: float
    future: float
    without_acts: float | None = None

    def rises(self) -> bool:
        """True if it is higher in the future than without any act, by a tenth at least."""
        without = self.baseline if self.without_acts is None else self.without_acts
        return round(self.future - without, 1) > 0


class Verdict(_Document, frozen=True):
    """The worst first: one line, and the figures that it stands on."""

    text: str
    outage: str
    workloads_at_zero: Both
    services_without_endpoints: Both
    budgets_below: Both
    pods_pending: Both
    pods_stuck: Both
    pods_evicted: Both
    pods_at_risk: Both
    unavailable_pod_seconds: Both
    blind_seconds: Both
    longest_at_zero_seconds: Both
    seconds_at_zero: Both
    drains_unfinished: Both


class CountRange(_Document, frozen=True):
    """Between which numbers something is, where upstream leaves that to chance."""

    fewest: int = 0
    most: int = 0

    @property
    def text(self) -> str:
        """One number, or both."""
        return f"{self.fewest}" if self.fewest == self.most else f"{self.fewest}-{self.most}"


class AtRisk(_Document, frozen=True):
    """Pods on nodes that are lost at the end and that are not deleted, by what keeps them: the time
    that they tolerate it is not over, their node waits for its turn, its zone has stopped, they
    tolerate it for ever, or only their kubelet can end them."""

    timer: int = 0
    queue: int = 0
    brake: int = 0
    for_ever: int = 0
    mirror: int = 0

    def all(self) -> int:
        """How many there are."""
        return self.timer + self.queue + self.brake + self.for_ever + self.mirror


class PendingPod(_Document, frozen=True):
    """A pod that is not where it should be at the end: it has no node, or does not start."""

    pod: str
    why: str


class PlayExtreme(_Document, frozen=True):
    """The same in the fast or in the slow play."""

    lowest_serving: int
    at_zero_seconds: float
    back_seconds: float | None


class OtherCourse(_Document, frozen=True):
    """How a workload fares in another play than the future; `down`: it goes down there; `is_same`:
    as many pods serve as in the future, at the same times."""

    is_same: bool
    down: bool
    at_zero_seconds: float
    ready_at_end: int
    pending: int


class Point(_Document, frozen=True):
    """How many pods are ready and serve, since an instant."""

    at: float
    ready: int
    serving: int


class WorkloadFuture(_Document, frozen=True):
    """The course of a workload. `back_seconds` None: not within the horizon. `not_started`: pods
    that are bound at the end and wait for a volume; `held_up`: those that are not made again, and
    those that do not go. `wanted`: replicas of its spec where that was
    read, else as many pods as there were (`wanted_from`). `without_acts`: its course if nothing is
    done; `with_settings_of_today`: with the same acts, where settings are changed beside others.
    `evicted_range`: over the nodes that pods may get, and those that may be tainted or not.
    """

    namespace: str
    kind: str
    name: str
    top_owner: str
    wanted: int
    wanted_from: str
    outage: str
    ready_before: int
    lowest_ready: int
    lowest_serving: int
    first_seconds: float | None
    back_seconds: float | None
    at_zero_seconds: float
    blind_seconds: float
    evicted: int
    evicted_range: CountRange
    collected: int
    moves: int
    pending: list[PendingPod]
    stuck: list[str]
    not_started: list[PendingPod]
    held_up: list[PendingPod]
    at_risk: AtRisk
    series: list[Point]
    low: PlayExtreme
    high: PlayExtreme
    without_acts: OtherCourse
    with_settings_of_today: OtherCourse | None = None


class ServiceFuture(_Document, frozen=True):
    """The course of a Service's ready endpoints; it has none between `from_seconds` and
    `to_seconds`, which is None where it has none at the end.
    """

    namespace: str
    name: str
    endpoints_before: int
    lowest: int
    blind_seconds: float
    without_endpoints_seconds: float
    from_seconds: float | None
    to_seconds: float | None


class BudgetFuture(_Document, frozen=True):
    """The course of a budget: as it was at t=0, and the `points` since. `at_zero_seconds`: how long
    it allows no disruption; `below_seconds`: how long fewer pods are healthy than it asks for."""

    namespace: str
    name: str
    rule: str
    expected: int
    desired: int
    healthy: int
    allowed: int
    lowest: int
    points: list[BudgetPoint]
    at_zero_seconds: float
    below_seconds: float

    @property
    def falls_below(self) -> bool:
        """True if fewer pods are healthy than it asks for, and at t=0 there were not."""
        return self.below_seconds > 0 and self.healthy >= self.desired


class InstantRange(_Document, frozen=True):
    """Between which instants something happens, where upstream leaves that to chance; the latest is
    None where it may not happen at all."""

    earliest_seconds: float
    latest_seconds: float | None

    @property
    def width_s(self) -> float:
        """How much of it is chance, seconds."""
        latest = inf if self.latest_seconds is None else self.latest_seconds
        return latest - self.earliest_seconds


class NodeFuture(_Document, frozen=True):
    """The course of a node: when it is lost, called Unknown, tainted, loses pods, is Ready again.

    `ranges`: of those instants, by the names of their fields, where they are not exact;
    `evicted_range`: where pods may get another node, or the node may be tainted or not. `at_risk`:
    pods on it at the end, if it is silent then; `because`: why it is called Unknown.
    """

    name: str
    zone: str
    lost_seconds: float | None = None
    unknown_seconds: float | None = None
    tainted_seconds: float | None = None
    first_deletion_seconds: float | None = None
    last_deletion_seconds: float | None = None
    back_seconds: float | None = None
    evicted: int = 0
    evicted_range: CountRange = CountRange()
    pods: int = 0
    at_risk: AtRisk = AtRisk()
    because: str = ""
    ranges: dict[str, InstantRange] = {}


class ZoneChange(_Document, frozen=True):
    """A zone's state since an instant; `rate`: nodes a second that are tainted."""

    at: float
    state: str
    rate: float
    not_ready: int
    nodes: int
    because: str


class Span(_Document, frozen=True):
    """From an instant to another; None: to the end."""

    from_seconds: float
    to_seconds: float | None


class ZoneFuture(_Document, frozen=True):
    """A zone whose state changes; the first of `states` is that of t=0. `held_nodes`, `held_pods`:
    at the end on nodes that wait because it stopped; `all_dark`: when no zone had a ready node.
    `pass_seconds`: how long the pass takes that finds its nodes lost and brings its next state;
    `tainted_before`: how many of them are tainted until it ends."""

    name: str
    states: list[ZoneChange]
    held_nodes: list[str]
    held_pods: int
    all_dark: list[Span]
    pass_seconds: float = 0.0
    tainted_before: int = 0

    @property
    def sentence(self) -> str:
        """How late its next state comes, "" where it comes at once."""
        takes_ns = round(self.pass_seconds * SECOND_NS)
        until = pass_in_words(Range(takes_ns, takes_ns), self.states[0].state, self.tainted_before)
        return f"zone {self.name}: {until}{self.states[1].state}" if until else ""


class DrainFuture(_Document, frozen=True):
    """What becomes of a drain's turn at a node. `ended`: `drained`, `refused`, `failed`, or `waits`
    where it is not over at the end; `because`: what kubectl or the API server says."""

    node: str
    ended: str
    at_seconds: float | None = None
    because: str = ""


class Difference(_Document, frozen=True, kw_only=True, omit_defaults=True):
    """A record that only one of the two plays has; `act`: the index of the act that led to it."""

    play: str = msgspec.field(name="in")
    at: float
    controller: str
    action: str
    object: Any
    detail: Mapping[str, Any]
    reason: str
    error: str = ""
    act: int | None = None


class PendingEvents(_Document, frozen=True):
    """Actions of one kind that were due after the horizon: how many, and when the first one is."""

    action: str
    count: int
    first_seconds: float


class Horizon(_Document, frozen=True):
    """How far was looked. `ended`: `quiet` where nothing was to happen after `ended_seconds`."""

    until_seconds: float
    ended_seconds: float
    ended: str
    pending_events: list[PendingEvents]


class WriteSpan(_Document, frozen=True):
    """How many writes there are in a play; seconds until the first and the last, None where there
    are none."""

    count: int = 0
    first_seconds: float | None = None
    last_seconds: float | None = None


class WriteSpans(_Document, frozen=True):
    """The writes of one kind, with today's settings and with the others."""

    write: str
    baseline: WriteSpan
    future: WriteSpan


class WhatIf(_Document, frozen=True, kw_only=True):
    """The whole answer. `truncated`: how many further differences there are; `ignored`: how many
    workloads were left out of the verdict; `writes`: where settings differ, when those of the
    controllers begin and end."""

    api_version: str = "nodelife.dev/v1alpha1"
    kind: str = "WhatIf"
    source: dict[str, Any]
    moment: dict[str, str]
    profile: str
    settings: dict[str, dict[str, str]]
    acts: list[Act]
    horizon: Horizon
    verdict: Verdict
    workloads: list[WorkloadFuture]
    services: list[ServiceFuture]
    zones: list[ZoneFuture]
    nodes: list[NodeFuture]
    budgets: list[BudgetFuture]
    writes: list[WriteSpans]
    already_down: list[str]
    repeats: list[PodLoop]
    drains: list[DrainFuture]
    ignored: int
    why: list[WhyChanged]
    differences: list[Difference]
    truncated: int
    not_evaluated: list[UnreadKind]
    assumed: list[str]
    warnings: list[str]
