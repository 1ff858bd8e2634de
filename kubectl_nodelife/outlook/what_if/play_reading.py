"""A play to its end, and how workloads and Services, nodes and zones fared in it: what became of
each is read by `sim/reading.py`, and is summed up here by workload, as the document has it.

A pod is at risk that stands, at the end, on a node that is lost and is not being deleted.

Of two plays the courses of zones are given, and which act led to what.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, eviction_rate
from kubectl_nodelife.drain.results import BudgetPoint
from kubectl_nodelife.engine.actions import SetZoneState
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.node import Taint, zone_display, zone_key
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_mirror_pod
from kubectl_nodelife.kube.taints import tolerates
from kubectl_nodelife.kube.times import SECOND_NS, in_seconds
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import (
    BudgetFuture,
    CausedChange,
    DrainFuture,
    PendingPod,
    Span,
    WhyChanged,
    ZoneChange,
    ZoneFuture,
)
from kubectl_nodelife.outlook.what_if.service_levels import (
    SERVICE,
    Outage,
    ServedObject,
    ServiceLevels,
    outage_of,
    workload_of,
)
from kubectl_nodelife.sim.disruption import BudgetLedger
from kubectl_nodelife.sim.reading import Courses, Happened, NodeCourse
from kubectl_nodelife.sim.timeline import Record, Timeline
from kubectl_nodelife.workloads.budgets import rule_of


class Played(msgspec.Struct, frozen=True, dict=True):
    """A play to its end: the cluster as it is then, what happened, and what served when.

    `end_ns`: the horizon; `ended_ns`: when nothing was to happen any more, the horizon where that
    was not so: then `due` is what was to come, when (ns) and whose. `silent`: the nodes whose
    kubelets are silent at the end, and their last sign of life; `last_signs`: between which
    instants that of each node came before it first fell silent, where that is known; `no_room`: why
    pods have no node then; `volume_on`: which node has a volume for which a pod that is bound
    waits; `not_made`: in whose place a StatefulSet makes no pod, and why. `budgets`: those whose
    status changed, as it went.
    """

    start_ns: int
    end_ns: int
    ended_ns: int
    cluster: Cache
    timeline: Timeline
    failures: list[Outcome]
    levels: ServiceLevels
    silent: dict[str, int | None]
    last_signs: dict[str, tuple[int, int]]
    no_room: dict[Key, str]
    volume_on: dict[Key, str]
    not_made: list[tuple[Pod, str]]
    budgets: dict[Key, BudgetLedger]
    due: list[tuple[int, str]]
    waited_ns: int = 0
    """The longest that a request of kube-controller-manager's waited for its client's token."""

    @property
    def is_quiet(self) -> bool:
        """True if nothing was to happen any more."""
        return self.ended_ns < self.end_ns

    @cached_property
    def records(self) -> list[Record]:
        """The records of all that happened."""
        return self.timeline.records(self.failures)

    def workloads(self) -> set[ServedObject]:
        """All workloads that ever had pods."""
        made_in_play = {ServedObject(*pod.workload) for pod in self.courses.pods}
        return made_in_play.union(map(workload_of, self.levels.start.cluster.pods.values()))

    @cached_property
    def courses(self) -> Courses:
        """What became of its nodes, pods and zones."""
        return Courses(self.timeline, self.failures, self.levels.start.cluster)


def seconds(at_ns: int | None, start_ns: int) -> float | None:
    """An instant as seconds after the question, to the ms."""
    return None if at_ns is None else in_seconds(at_ns - start_ns)


_DRAIN_ENDS: Final = {"DrainRefused": "refused", "DrainFailed": "failed", "Drained": "drained"}


class WorkloadCourse(msgspec.Struct, eq=False):
    """What became of a workload's pods, as `WorkloadFuture` has it; `at_risk`: by the field of
    AtRisk."""

    moves: int = 0
    evicted: int = 0
    collected: int = 0
    pending: list[PendingPod] = []
    stuck: list[str] = []
    not_started: list[PendingPod] = []
    held_up: list[PendingPod] = []
    at_risk: Counter[str] = msgspec.field(default_factory=Counter)


class PlayReading:
    """How workloads, Services, nodes and pods fared in a play.

    `courses`: of the pods of each workload; `nodes`: the instants of each node, by the fields of
    NodeFuture; `on_node`: `WorkloadCourse.at_risk`, by node; `budgets`: those whose status changed.
    What `ignores` says is left out, and counted in `ignored`.
    """

    def __init__(
        self,
        played: Played,
        settings: Settings,
        ignores: Callable[[ServedObject], bool] = lambda served: False,
    ) -> None:
        self.played, self.settings = played, settings
        self._ignores = ignores
        self.ignored: set[ServedObject] = set()
        self.beta_only = settings.profile.has("beta_zone_labels_only")
        levels = played.levels
        self.outages = {
            counted: outage_of(levels.series(counted), played.end_ns)
            for counted in levels.changed
            if not self._is_ignored(counted)
        }
        self.courses: defaultdict[ServedObject, WorkloadCourse] = defaultdict(WorkloadCourse)
        self.nodes = {name: _instants(node) for name, node in played.courses.nodes.items()}
        self.on_node: defaultdict[str, Counter[str]] = defaultdict(Counter)
        end_ns = played.end_ns - played.start_ns
        self.budgets = {
            key: _budget_future(ledger, end_ns)
            for key, ledger in played.budgets.items()
            if len(ledger.entries) > 1
        }
        self._count_pods()
        self._look_at_end()

    def _is_ignored(self, counted: ServedObject) -> bool:
        is_ignored = counted in self.ignored or self._ignores(counted)
        if is_ignored:
            self.ignored.add(counted)
        return is_ignored

    def seconds(self, at_ns: int | None) -> float | None:
        """An instant as seconds after the question."""
        return seconds(at_ns, self.played.start_ns)

    def zone_of(self, node: str) -> str:
        """The node's zone, as people write it."""
        its_node = self.played.cluster.nodes.get(node)
        if its_node is None:
            return ""
        return zone_display(zone_key(its_node.metadata.labels, beta_only=self.beta_only))

    def outage(self, counted: ServedObject) -> Outage:
        """How a workload or a Service fared."""
        outage = self.outages.get(counted)
        if outage is None:
            outage = outage_of(self.played.levels.series(counted), self.played.end_ns)
        return outage

    def workloads(self) -> list[ServedObject]:
        """The workloads of which anything is to be reported, in their order."""
        every = {*self.outages, *self.courses}
        return sorted(c for c in every if c.kind != SERVICE and not self._ignores(c))

    def _count_pods(self) -> None:
        for pod in self.played.courses.pods:
            self.courses[ServedObject(*pod.workload)].moves += pod.created is not None
        for done, pod in self.played.courses.evicted:
            if not self._is_ignored(workload := ServedObject(*pod.workload)):
                by_collector = done.action.controller == "pod-gc"
                self.courses[workload].collected += by_collector
                self.courses[workload].evicted += not by_collector

    def drains(self) -> list[DrainFuture]:
        """What became of each drain, by its node."""
        turns: dict[str, DrainFuture | None] = {}
        for node, course in sorted(self.played.courses.nodes.items()):
            for done in course.events:
                reason, because = done.action.reason, done.action.because
                if reason == "DrainStarted":
                    turns[node] = None
                elif reason in _DRAIN_ENDS and node in turns:
                    turns[node] = DrainFuture(node, _DRAIN_ENDS[reason], done.at, because)
        return [turn or self._waiting(node) for node, turn in turns.items()]

    def _waiting(self, node: str) -> DrainFuture:
        """A drain that is not over, and the pod that it waits for."""
        refusals = (
            (done, asked)
            for asked in self.played.courses.pods
            for done in asked.events
            if done.action.reason == "EvictionRefused" and asked.node == node
        )
        done, asked = max(refusals, key=lambda each: each[0].order, default=(None, None))
        if done is not None and asked is not None:
            pod = self.played.cluster.pod(*asked.key)
            if pod is not None and pod.uid == asked.uid:
                because = f"{'/'.join(pod.key)}: {done.action.because}"
                return DrainFuture(node, "waits", because=because)
        on_node = sorted(self.played.cluster.pods_on(node), key=lambda pod: pod.key)
        leaving = [pod for pod in on_node if pod.metadata.deletion_timestamp is not None]
        because = f"{'/'.join(leaving[0].key)} does not go" if leaving else "its turn has not come"
        return DrainFuture(node, "waits", because=because)

    def _look_at_end(self) -> None:
        rates = {zone: states[-1].action.rate for zone, states in self.played.courses.zones.items()}
        cluster = self.played.cluster
        for key, why in self.played.no_room.items():
            pod = cluster.pods[key]
            if self._is_ignored(workload := workload_of(pod)):
                continue
            if pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL_PHASES:
                pending = PendingPod(pod="/".join(key), why=why)
                self.courses[workload].pending.append(pending)
        for key, holder in sorted(self.played.volume_on.items()):
            waits = PendingPod(pod="/".join(key), why=f"volume attached to {holder}")
            self.courses[workload_of(cluster.pods[key])].not_started.append(waits)
        for pod, why in self._held_up():
            held_up = PendingPod(pod="/".join(pod.key), why=why)
            self.courses[workload_of(pod)].held_up.append(held_up)
        for node in sorted(self.played.silent):
            its_node = cluster.nodes.get(node)
            taints = [t for t in its_node.spec.taints if t.effect == NO_EXECUTE] if its_node else []
            stopped = rates.get(self.zone_of(node)) == 0
            for pod in sorted(cluster.pods_on(node), key=lambda pod: pod.key):
                workload = workload_of(pod)
                if pod.status.phase in TERMINAL_PHASES or self._is_ignored(workload):
                    continue
                if pod.metadata.deletion_timestamp is not None:
                    self.courses[workload].stuck.append("/".join(pod.key))
                    continue
                kept_by = _kept_by(pod, taints, stopped)
                self.courses[workload].at_risk[kept_by] += 1
                self.on_node[node][kept_by] += 1

    def _held_up(self) -> Iterator[tuple[Pod, str]]:
        """The pods that are not made again, and those that were asked to go and do not: why."""
        played = self.played
        yield from played.not_made
        for key, uid in sorted((asked.key, asked.uid) for _, asked in played.courses.evicted):
            pod = played.cluster.pod(*key)
            if pod is None or not pod.metadata.finalizers or pod.uid != uid:
                continue
            deleted_ns = pod.metadata.deletion_timestamp
            runs_on = pod.spec.node_name in played.silent
            is_over = deleted_ns is not None and deleted_ns <= played.end_ns
            if is_over and (not runs_on or pod.status.phase in TERMINAL_PHASES):
                yield pod, f"held by a finalizer: {', '.join(pod.metadata.finalizers)}"


def _instants(node: NodeCourse) -> dict[str, Any]:
    """What came to the node, and when, by the fields of NodeFuture."""
    fields: dict[str, Any] = {
        "lost_seconds": node.event_at("MachineLost", "LinkLost"),
        "tainted_seconds": node.tainted[0].at if node.tainted else None,
        "back_seconds": node.back_at,
    }
    if node.unknown:
        first = node.unknown[0]
        fields |= {"unknown_seconds": first.at, "because": first.action.because}
    return {field: value for field, value in fields.items() if value is not None}


def _budget_future(ledger: BudgetLedger, end_ns: int) -> BudgetFuture:
    """As its status went: at t=0, and the points since, until `end_ns` after it."""
    entries, status = ledger.entries, ledger.budget.status
    at_zero_ns = below_ns = 0
    for entry, ends_ns in zip(entries, [*(e.at_ns for e in entries[1:]), end_ns], strict=True):
        lasts_ns = ends_ns - entry.at_ns
        at_zero_ns += lasts_ns * (entry.allowed == 0)
        below_ns += lasts_ns * (entry.healthy < entry.desired)
    return BudgetFuture(
        *ledger.budget.key,
        rule=rule_of(ledger.budget.spec),
        expected=status.expected_pods,
        desired=entries[0].desired,
        healthy=entries[0].healthy,
        allowed=entries[0].allowed,
        lowest=min(entry.healthy for entry in entries),
        points=list(map(BudgetPoint.of, entries)),
        at_zero_seconds=in_seconds(at_zero_ns),
        below_seconds=in_seconds(below_ns),
    )


def _kept_by(pod: Pod, taints: Sequence[Taint], stopped: bool) -> str:
    """The field of AtRisk for a pod on a lost node, which has these NoExecute taints. `stopped`: no
    node of its zone is tainted any more."""
    if is_mirror_pod(pod):
        return "mirror"
    if not taints:
        return "brake" if stopped else "queue"
    limited = [t for t in pod.spec.tolerations if t.toleration_seconds is not None]
    return "timer" if any(tolerates(t, taint) for t in limited for taint in taints) else "for_ever"


def zone_futures(before: PlayReading, after: PlayReading, at_start: Cache) -> Iterator[ZoneFuture]:
    """The zones whose state changes in the future otherwise than without the acts."""
    changes, unchanged = zone_changes(after.played), zone_changes(before.played)
    counts = _counts(after, at_start)
    dark = _all_dark(counts, changes)
    for name, states in sorted(changes.items()):
        if states == unchanged.get(name):
            continue
        silent = (node for node in sorted(after.played.silent) if after.zone_of(node) == name)
        held = [node for node in silent if after.on_node[node]["brake"]]
        came_from = after.played.courses.zones[name][0].action.from_ or "Normal"
        first = _at_zero(after, came_from, counts.get(name, (0, 0)))
        yield ZoneFuture(
            name=name,
            states=[first, *states],
            held_nodes=held,
            held_pods=sum(after.on_node[node]["brake"] for node in held),
            all_dark=dark,
            **_pass_before(after, name, states[0].at),
        )


def _pass_before(after: PlayReading, zone: str, at: float) -> dict[str, Any]:
    """Of the pass that ends then, if it calls nodes of the zone Unknown; see `ZoneFuture`. Between
    two passes is a period at least."""
    courses = after.played.courses
    unknown = (done.at for node in courses.nodes.values() for done in node.unknown)
    marked = (done.at for pod in courses.pods for done in pod.marked)
    written = sorted((*unknown, *marked))
    begins, period_s = at, after.settings.node_monitor_period_ns / SECOND_NS
    for before in reversed(written[: bisect_right(written, at)]):
        if begins - before >= period_s:
            break
        begins = before
    lost = [
        instants
        for node, instants in after.nodes.items()
        if begins <= instants.get("unknown_seconds", -1.0) <= at and after.zone_of(node) == zone
    ]
    if not lost:
        return {}
    tainted = sum(begins <= each.get("tainted_seconds", -1.0) < at for each in lost)
    return {"pass_seconds": round(at - begins, 3), "tainted_before": tainted}


def _counts(after: PlayReading, cluster: Cache) -> dict[str, tuple[int, int]]:
    """Of each zone how many nodes are ready, and how many are not."""
    counts: dict[str, tuple[int, int]] = {}
    for node in cluster.nodes.values():
        zone = zone_display(zone_key(node.metadata.labels, beta_only=after.beta_only))
        before = counts.get(zone, (0, 0))
        counts[zone] = (before[0] + node.is_ready, before[1] + (not node.is_ready))
    return counts


def _at_zero(after: PlayReading, state: str, count: tuple[int, int]) -> ZoneChange:
    """A zone's state at t=0."""
    ready, not_ready = count
    size = ready + not_ready
    rate, because = (
        eviction_rate(state, size, after.settings),
        f"{not_ready} of {size} nodes not ready",
    )
    return ZoneChange(0.0, state, rate, not_ready, size, because)


def zone_changes(played: Played) -> dict[str, list[ZoneChange]]:
    """The states that zones take in a play, by the zone's name."""
    return {zone: list(map(_zone_change, its)) for zone, its in played.courses.zones.items()}


def _zone_change(done: Happened[SetZoneState]) -> ZoneChange:
    taken = done.action
    return ZoneChange(done.at, taken.to, taken.rate, taken.not_ready, taken.nodes, taken.because)


def _all_dark(
    counts: Mapping[str, tuple[int, int]], changes: Mapping[str, Sequence[ZoneChange]]
) -> list[Span]:
    """When every zone was fully disrupted."""
    state = {name: "Normal" if ready else FULL for name, (ready, _) in counts.items()}
    ordered = sorted((change.at, name, change) for name, all_ in changes.items() for change in all_)
    spans: list[Span] = []
    is_dark = False
    for at, name, change in ordered:
        state[name], was_dark = change.state, is_dark
        is_dark = all(each == FULL for each in state.values())
        if is_dark and not was_dark:
            spans.append(Span(at, None))
        elif was_dark and not is_dark:
            spans[-1] = Span(spans[-1].from_seconds, at)
    return spans


def act_of_each(played: Played, acts: Sequence[Act]) -> list[int | None]:
    """For each record the index of the act to which its chain of causes leads; None: to none."""
    begun = {(round(act.at_seconds, 3), name): act.index for act in acts for name in _about(act)}
    by_record: list[int | None] = []
    for record in played.records:
        act = None
        if record.cause is not None:
            act = by_record[record.cause] if record.cause < len(by_record) else None
        elif record.controller == "cluster":
            act = begun.get((record.at, record.object.name))
        by_record.append(act)
    return by_record


def _about(act: Act) -> Iterator[str]:
    """The names of what the act changes first."""
    yield from act.nodes
    for event in act.detail:
        gone = event.get("delete")
        if isinstance(gone, dict):
            yield str(gone.get("name", ""))
    if act.restart:
        yield "kube-controller-manager"


def chains(played: Played, about: str) -> WhyChanged:
    """The changes of `node/NAME` or NAMESPACE/KIND/NAME. Raises BadInput."""
    parts = about.split("/")
    if len(parts) == 2 and parts[0].lower() in ("node", "nodes"):
        wanted = {("Node", "", parts[1])}
        is_there = parts[1] in played.cluster.nodes
    elif len(parts) == 3:
        workload = _workload(played, ServedObject(*parts))
        is_there = workload is not None
        wanted = {("Pod", *pod.key) for pod in played.courses.pods if pod.workload == workload}
    else:
        remedy = "write node/NAME or NAMESPACE/KIND/NAME"
        raise BadInput(f"{about!r} names nothing", on="--why", remedy=remedy)
    objects = [record.object for record in played.records]
    about_it = [i for i, o in enumerate(objects) if (o.kind, o.namespace, o.name) in wanted]
    if not (is_there or (len(parts) == 2 and about_it)):
        raise BadInput(f'"{about}" not found', on="--why", remedy="check the name")
    return WhyChanged(about=about, changes=[_chain(played.records, i) for i in about_it])


def _workload(played: Played, asked: ServedObject) -> ServedObject | None:
    wanted = asked._replace(kind=asked.kind.lower())
    same = (w for w in played.workloads() if w._replace(kind=w.kind.lower()) == wanted)
    return min(same, default=None)


def _chain(records: list[Record], index: int | None) -> list[CausedChange]:
    chain = []
    while index is not None:
        record = records[index]
        obj = record.object
        name = "/".join(filter(None, (obj.kind.lower(), obj.namespace, obj.name)))
        chain.append(CausedChange(record.at, record.action, name, record.reason))
        index = record.cause
    return chain
