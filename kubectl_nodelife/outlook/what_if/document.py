"""The document `WhatIf`: what the future has that the baseline has not.

Only what differs is listed. Seconds count from the question, to the ms. `chains` finds the chain
of causes of each record about one object; `act_words` and `outcome_words` say question and outcome
in one sentence each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.drain.results import DEGRADED, FULL
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.times import SECOND_NS, human_duration
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.question import Played
from kubectl_nodelife.outlook.what_if.service_levels import ServedObject
from kubectl_nodelife.sim.timeline import Record

_NAMED: Final = 3


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


def chains(played: Played, about: str) -> WhyChanged:
    """The changes of `node/NAME` or NAMESPACE/KIND/NAME. Raises BadInput."""
    parts = about.split("/")
    if len(parts) == 2 and parts[0].lower() in ("node", "nodes"):
        found = [i for i, r in enumerate(played.records) if _is_about_node(r, parts[1])]
        known = parts[1] in played.cluster.nodes or bool(found)
    elif len(parts) == 3:
        workload = _workload(played, ServedObject(*parts))
        known = workload is not None
        uids = {uid for uid, of in played.levels.workload_of.items() if of == workload}
        found = [i for i, r in enumerate(played.records) if r.object.uid in uids]
    else:
        remedy = "write node/NAME or NAMESPACE/KIND/NAME"
        raise BadInput(f"{about!r} names nothing", on="--why", remedy=remedy)
    if not known:
        raise BadInput(f'"{about}" not found', on="--why", remedy="check the name")
    return WhyChanged(about=about, changes=[_chain(played.records, i) for i in found])


def _is_about_node(record: Record, name: str) -> bool:
    return record.object.kind == "Node" and record.object.name == name


def _workload(played: Played, asked: ServedObject) -> ServedObject | None:
    kind = asked.kind.lower()
    for workload in sorted(set(played.levels.workload_of.values())):
        same = (workload.namespace, workload.name) == (asked.namespace, asked.name)
        if same and workload.kind.lower() == kind:
            return workload
    return None


def _chain(records: list[Record], index: int | None) -> list[CausedChange]:
    chain = []
    while index is not None:
        record = records[index]
        obj = record.object
        name = "/".join(filter(None, (obj.kind.lower(), obj.namespace, obj.name)))
        chain.append(
            CausedChange(at=record.at, action=record.action, object=name, reason=record.reason)
        )
        index = record.cause
    return chain


class _Document(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A part of the document."""


class Both(_Document, frozen=True):
    """A figure in the baseline and in the future."""

    baseline: float
    future: float


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
    """A pod without a node at the end."""

    pod: str
    why: str


class PlayExtreme(_Document, frozen=True):
    """The same in the fast or in the slow play."""

    lowest_serving: int
    at_zero_seconds: float
    back_seconds: float | None


class Point(_Document, frozen=True):
    """How many pods are ready and serve, since an instant."""

    at: float
    ready: int
    serving: int


class WorkloadFuture(_Document, frozen=True):
    """The course of a workload. `back_seconds` None: not within the horizon. `not_started`: pods
    that are bound at the end and wait for a volume. `wanted`: replicas of its spec where that was
    read, else as many pods as there were (`wanted_from`).
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
    collected: int
    moves: int
    pending: list[PendingPod]
    stuck: list[str]
    not_started: list[PendingPod]
    at_risk: AtRisk
    series: list[Point]
    low: PlayExtreme
    high: PlayExtreme


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


class BudgetMoment(_Document, frozen=True):
    """A budget's status since an instant."""

    at: float
    healthy: int
    desired: int
    allowed: int


class BudgetFuture(_Document, frozen=True):
    """The course of a budget. `at_zero_seconds`: how long it allows no disruption; `below_seconds`:
    how long fewer pods are healthy than it asks for.
    """

    namespace: str
    name: str
    rule: str
    expected: int
    desired: int
    healthy: int
    allowed: int
    lowest: int
    points: list[BudgetMoment]
    at_zero_seconds: float
    below_seconds: float


class InstantRange(_Document, frozen=True):
    """Between which instants something happens, where upstream leaves that to chance."""

    earliest_seconds: float
    latest_seconds: float


class NodeFuture(_Document, frozen=True):
    """The course of a node: when it is lost, called Unknown, tainted, loses pods, is Ready again.

    `ranges`: of those instants, by the names of their fields, where they are not exact. `at_risk`:
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
    at the end on nodes that wait because it stopped; `all_dark`: when no zone had a ready node."""

    name: str
    states: list[ZoneChange]
    held_nodes: list[str]
    held_pods: int
    all_dark: list[Span]


class Repeat(_Document, frozen=True):
    """A pod that is evicted, and placed on the same node again, over and over."""

    namespace: str
    kind: str
    name: str
    node: str
    times: int
    every_seconds: float


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


class UnreadKindNote(_Document, frozen=True):
    """A kind of which nothing was read, and what that means for the answer."""

    kind: str
    means: str


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


class WhatIf(_Document, frozen=True, kw_only=True):
    """The whole answer. `truncated`: how many further differences there are; `ignored`: how many
    workloads were left out of the verdict."""

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
    already_down: list[str]
    repeats: list[Repeat]
    ignored: int
    why: list[WhyChanged]
    differences: list[Difference]
    truncated: int
    not_evaluated: list[UnreadKindNote]
    assumed: list[str]
    warnings: list[str]


def act_words(act: Act) -> str:
    """The act as a person says it: `zone a is lost for 20m (6 nodes)`."""
    names = first_names(act.targets or act.nodes, _NAMED)
    nodes = first_names(act.nodes, _NAMED)
    phrases = {
        "lose node": f"node {nodes} is lost",
        "lose nodes": f"{nodes} are lost",
        "lose zone": f"zone {names} is lost",
        "lose link node": f"the link of node {nodes} is lost",
        "lose link": "the link of all nodes is lost",
        "lose link nodes": f"the link of {nodes} is lost",
        "lose link zone": f"the link of zone {names} is lost",
        "taint": f"node {nodes} is tainted {names}",
        "untaint": f"{names} is taken off node {nodes}",
        "cordon": f"node {nodes} is cordoned",
        "uncordon": f"node {nodes} is uncordoned",
        "drain": f"node {nodes} is drained",
        "delete node": f"node {nodes} is deleted",
        "delete pod": f"pod {names} is deleted",
        "set": _settings_words(act),
        "file": f"the events of {names} happen",
    }
    lasts = f" for {_human(act.for_seconds)}" if act.for_seconds is not None else ""
    at = f" at {_human(act.at_seconds)}" if act.at_seconds else ""
    many = f" ({len(act.nodes)} nodes)" if len(act.nodes) > 1 else ""
    return f"{phrases[act.act]}{lasts}{at}{many}"


def _settings_words(act: Act) -> str:
    given = ", ".join(act.targets)
    stamps = ", also for pods that are there" if act.restamp else ""
    if not act.restart:
        return f"the settings are {given}{stamps}"
    return f"the controllers are started anew{f' with {given}' * bool(given)}{stamps}"


def outcome_words(
    workloads: Sequence[WorkloadFuture],
    services: Sequence[ServiceFuture],
    zones: Sequence[ZoneFuture],
) -> str:
    """The outcome in one sentence, the worst first."""
    parts = list(_parts(workloads, services, zones))
    if parts:
        return "; ".join(parts)
    if not workloads:
        return "no workload notices"
    return "no workload loses a pod that serves"


def _parts(
    workloads: Sequence[WorkloadFuture],
    services: Sequence[ServiceFuture],
    zones: Sequence[ZoneFuture],
) -> Iterator[str]:
    down = [w for w in workloads if w.outage == FULL]
    degraded = [w for w in workloads if w.outage == DEGRADED]
    if down:
        some = f"{len(down)} workloads are" if len(down) > 1 else f"{down[0].name} is"
        longest = f"{'longest ' * (len(down) > 1)}{_human(max(w.at_zero_seconds for w in down))}"
        stay = sum(map(stays_down, down))
        some_stay = f"{longest}, {stay} of them to the end" if stay else longest
        yield f"{some} down, {'to the end' if stay == len(down) else some_stay}"
    if degraded:
        some = f"{len(degraded)} workloads have" if len(degraded) > 1 else f"{degraded[0].name} has"
        yield f"{some} fewer pods for a while"
    empty = [s for s in services if s.lowest == 0 and s.endpoints_before]
    if empty:
        some = f"{len(empty)} Services have" if len(empty) > 1 else f"Service {empty[0].name} has"
        yield f"{some} no endpoints for a while"
    pending = sum(len(w.pending) for w in workloads)
    if pending:
        yield f"{pending} pods find no place" if pending > 1 else "1 pod finds no place"
    stopped = [
        z.name or "the zone without a name"
        for z in zones
        if any(change.rate == 0 for change in z.states)
    ]
    if stopped:
        verb = "stop" if len(stopped) > 1 else "stops"
        yield f"{first_names(stopped, _NAMED)} {verb} evicting"


def stays_down(workload: WorkloadFuture) -> bool:
    """True if no pod of it serves at the end."""
    return workload.outage == FULL and workload.series[-1].serving == 0


def _human(span_s: float) -> str:
    return human_duration(round(span_s * SECOND_NS))
