"""A play to its end, and what is read of it: how workloads and Services fared, and what was done to
nodes and pods.

A node's instants are those of the first records about it; a pod is at risk that stands, at the end,
on a node that is lost and is not being deleted.

Of two plays the courses of zones are given, and which act led to what.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, eviction_rate
from kubectl_nodelife.engine.actions import SetZoneState
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.node import Taint, zone_display, zone_key
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_mirror_pod
from kubectl_nodelife.kube.taints import tolerates
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.kube.workload import PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import (
    BudgetMoment,
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
)
from kubectl_nodelife.sim.pod_loops import Place, PodLoop, pod_loops
from kubectl_nodelife.sim.timeline import Record, Timeline
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger


class DueThing(NamedTuple):
    """Something that was still to happen when a play ended: whose, and when, ns."""

    at_ns: int
    whose: str


class Played(msgspec.Struct, frozen=True):
    """A play to its end: the cluster as it is then, what happened, and what served when.

    `end_ns`: the horizon; `ended_ns`: when nothing was to happen any more, the horizon where that
    was not so: then `due` is what was to come. `silent`: the nodes whose kubelets are silent at the
    end, and their last sign of life; `last_signs`: between which instants that of each node came
    before it first fell silent, where that is known; `no_room`: why pods have no node then;
    `volume_on`: which node has a volume for which a pod that is bound waits; `not_made`: in
    whose place a StatefulSet makes no pod, and why. `budgets`: those whose status changed, as it
    went.
    """

    start_ns: int
    end_ns: int
    ended_ns: int
    cluster: Cache
    timeline: Timeline
    failures: list[Outcome]
    records: list[Record]
    levels: ServiceLevels
    silent: dict[str, int | None]
    last_signs: dict[str, tuple[int, int]]
    no_room: dict[Key, str]
    volume_on: dict[Key, str]
    not_made: list[tuple[Pod, str]]
    budgets: dict[Key, BudgetLedger]
    due: list[DueThing]
    waited_ns: int = 0
    """The longest that a request of kube-controller-manager's waited for its client's token."""

    @property
    def is_quiet(self) -> bool:
        """True if nothing was to happen any more."""
        return self.ended_ns < self.end_ns


def span_seconds(span_ns: int) -> float:
    """A span of time as seconds, to the ms."""
    return round(span_ns / SECOND_NS, 3)


def seconds(at_ns: int | None, start_ns: int) -> float | None:
    """An instant as seconds after the question, to the ms."""
    return None if at_ns is None else span_seconds(at_ns - start_ns)


_DRAIN_ENDS: Final = {"DrainRefused": "refused", "DrainFailed": "failed", "Drained": "drained"}
_LOSSES: Final = frozenset({"MachineLost", "LinkLost"})


class BudgetCourse(msgspec.Struct, frozen=True):
    """A budget as its status went in a play: at t=0, and the points since."""

    spec: PodDisruptionBudgetSpec
    status: PodDisruptionBudgetStatus
    points: list[BudgetMoment]
    at_zero_seconds: float
    below_seconds: float

    @classmethod
    def of(cls, ledger: BudgetLedger, played: Played) -> BudgetCourse:
        """Of that ledger at the end of the play."""
        entries, end_ns = ledger.entries, played.end_ns - played.start_ns
        at_zero_ns = below_ns = 0
        for entry, ends_ns in zip(entries, [*(e.at_ns for e in entries[1:]), end_ns], strict=True):
            lasts_ns = ends_ns - entry.at_ns
            at_zero_ns += lasts_ns * (entry.allowed == 0)
            below_ns += lasts_ns * (entry.healthy < entry.desired)
        points = [
            BudgetMoment(
                at=seconds(e.at_ns, 0) or 0.0,
                healthy=e.healthy,
                desired=e.desired,
                allowed=e.allowed,
            )
            for e in entries
        ]
        budget = ledger.budget
        zero_s, below_s = map(span_seconds, (at_zero_ns, below_ns))
        return cls(budget.spec, budget.status, points, zero_s, below_s)


class PlayReading:
    """How workloads, Services, nodes and pods fared in a play.

    By workload: `evicted`, `collected`, `pending`, `stuck`, `at_risk` (by the
    field of AtRisk); `nodes`: the instants of each node, by the fields of NodeFuture; `gone`: when
    Node objects were deleted; `held`: pods that a zone's brake keeps, by zone; `on_node`: as
    `at_risk`, by node; `budgets`: those whose status changed. What `ignores` says is left out, and
    counted in `ignored`.
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
        self.evicted: Counter[ServedObject] = Counter()
        self.collected: Counter[ServedObject] = Counter()
        self.nodes: dict[str, dict[str, Any]] = {}
        self.gone: dict[str, float] = {}
        self._asked_to_go: dict[str, Key] = {}
        self._count_deletions()
        self.pending: dict[ServedObject, list[PendingPod]] = {}
        self.stuck: dict[ServedObject, list[str]] = {}
        self.not_started: dict[ServedObject, list[PendingPod]] = {}
        self.held_up: dict[ServedObject, list[PendingPod]] = {}
        self.at_risk: defaultdict[ServedObject, Counter[str]] = defaultdict(Counter)
        self.on_node: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.held: Counter[str] = Counter()
        self.budgets = dict(self._changed_budgets())
        self._look_at_end()

    def _is_ignored(self, counted: ServedObject) -> bool:
        found = counted in self.ignored or self._ignores(counted)
        if found:
            self.ignored.add(counted)
        return found

    def _changed_budgets(self) -> Iterator[tuple[Key, BudgetCourse]]:
        for key, ledger in self.played.budgets.items():
            if len(ledger.entries) > 1:
                yield key, BudgetCourse.of(ledger, self.played)

    def seconds(self, at_ns: int | None) -> float | None:
        """An instant as seconds after the question."""
        return seconds(at_ns, self.played.start_ns)

    def zone_of(self, node: str) -> str:
        """The node's zone, as people write it."""
        found = self.played.cluster.nodes.get(node)
        if found is None:
            return ""
        return zone_display(zone_key(found.metadata.labels, beta_only=self.beta_only))

    def outage(self, counted: ServedObject) -> Outage:
        """How a workload or a Service fared."""
        found = self.outages.get(counted)
        if found is None:
            found = outage_of(self.played.levels.series(counted), self.played.end_ns)
        return found

    def workloads(self) -> list[ServedObject]:
        """The workloads of which anything is to be reported, in their order."""
        found = (self.outages, self.evicted, self.collected, self.pending, self.stuck, self.at_risk)
        return sorted({c for each in found for c in each if c.kind != SERVICE})

    def _count_deletions(self) -> None:
        for record in self.played.records:
            if record.error or record.object.kind not in ("Pod", "Node"):
                continue
            if record.object.kind == "Node":
                self._note_node(record)
            elif is_eviction(record) and record.object.uid not in self._asked_to_go:
                self._asked_to_go[record.object.uid] = (record.object.namespace, record.object.name)
                workload = self.played.levels.workload_of(record.object)
                if workload is None or self._is_ignored(workload):
                    continue
                by_collector = record.controller == "pod-gc"
                (self.collected if by_collector else self.evicted)[workload] += 1

    def _note_node(self, record: Record) -> None:
        entry = self.nodes.setdefault(record.object.name, {})
        detail, at = record.detail, record.at
        if record.node_ready == "Unknown":
            entry.setdefault("unknown_seconds", at)
            entry.setdefault("because", record.reason)
            entry.pop("back_seconds", None)
        elif record.node_ready == "True" and "unknown_seconds" in entry:
            entry.setdefault("back_seconds", at)
        elif record.action == "RecordEvent" and detail.get("reason") in _LOSSES:
            entry.setdefault("lost_seconds", at)
        elif record.action == "RecordEvent" and detail.get("reason") == "Deleted":
            self.gone.setdefault(record.object.name, at)
        elif record.action == "AddTaint" and detail["effect"] == "NoExecute":
            entry.setdefault("tainted_seconds", at)

    def repeats(self) -> list[PodLoop]:
        """Workloads whose new pods were evicted over and over, each time on the same node."""
        return pod_loops(self.played.records, self._place_of)

    def _place_of(self, made: Record, deleted: Record) -> Place:
        levels = self.played.levels
        workload, node = levels.workload_of(deleted.object), levels.node_of(deleted.object)
        assert workload is not None
        return workload.kind, workload.namespace, workload.name, node

    def drains(self) -> list[DrainFuture]:
        """What became of each drain, by its node."""
        turns: dict[str, DrainFuture] = {}
        refusals: dict[str, Record] = {}
        for record in self.played.records:
            if record.action != "RecordEvent":
                continue
            reason = record.detail.get("reason", "")
            if record.object.kind == "Pod" and reason == "EvictionRefused":
                refusals[self.played.levels.node_of(record.object)] = record
            elif reason == "DrainStarted":
                turns[record.object.name] = DrainFuture(node=record.object.name, ended="waits")
            elif reason in _DRAIN_ENDS and record.object.name in turns:
                turns[record.object.name] = DrainFuture(
                    record.object.name, _DRAIN_ENDS[reason], record.at, record.reason
                )
        return [
            turn if turn.ended != "waits" else self._waiting(turn.node, refusals)
            for _, turn in sorted(turns.items())
        ]

    def _waiting(self, node: str, refusals: Mapping[str, Record]) -> DrainFuture:
        """A drain that is not over, and the pod that it waits for."""
        refusal = refusals.get(node)
        if refusal is not None:
            asked = refusal.object
            pod = self.played.cluster.pod(asked.namespace, asked.name)
            if pod is not None and pod.uid == asked.uid:
                because = f"{'/'.join(pod.key)}: {refusal.reason}"
                return DrainFuture(node, "waits", because=because)
        on_node = sorted(self.played.cluster.pods_on(node), key=lambda pod: pod.key)
        leaving = [pod for pod in on_node if pod.metadata.deletion_timestamp is not None]
        if leaving:
            return DrainFuture(node, "waits", because=f"{'/'.join(leaving[0].key)} does not go")
        return DrainFuture(node, "waits", because="its turn has not come")

    def _look_at_end(self) -> None:
        rates = {
            record.object.name: record.detail["rate"]
            for record in self.played.records
            if record.action == "SetZoneState"
        }
        cluster, workload_of = self.played.cluster, self.played.levels.workload_of
        for key, why in self.played.no_room.items():
            pod = cluster.pods[key]
            workload = workload_of(pod)
            if workload is None or self._is_ignored(workload):
                continue
            if pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL_PHASES:
                pending = PendingPod(pod="/".join(key), why=why)
                self.pending.setdefault(workload, []).append(pending)
        for key, holder in sorted(self.played.volume_on.items()):
            waits = PendingPod(pod="/".join(key), why=f"volume attached to {holder}")
            if (workload := workload_of(cluster.pods[key])) is not None:
                self.not_started.setdefault(workload, []).append(waits)
        for pod, why in self._held_up():
            held_up = PendingPod(pod="/".join(pod.key), why=why)
            if (workload := workload_of(pod)) is not None:
                self.held_up.setdefault(workload, []).append(held_up)
        for node in sorted(self.played.silent):
            zone, found = self.zone_of(node), cluster.nodes.get(node)
            taints = [t for t in found.spec.taints if t.effect == NO_EXECUTE] if found else []
            stopped = rates.get(zone) == 0
            for pod in sorted(cluster.pods_on(node), key=lambda pod: pod.key):
                workload = workload_of(pod)
                if workload is None or pod.status.phase in TERMINAL_PHASES:
                    continue
                if self._is_ignored(workload):
                    continue
                if pod.metadata.deletion_timestamp is not None:
                    self.stuck.setdefault(workload, []).append("/".join(pod.key))
                    continue
                kept_by = _kept_by(pod, taints, stopped)
                self.at_risk[workload][kept_by] += 1
                self.on_node[node][kept_by] += 1
                self.held[zone] += kept_by == "brake"

    def _held_up(self) -> Iterator[tuple[Pod, str]]:
        """The pods that are not made again, and those that were asked to go and do not: why."""
        played = self.played
        yield from played.not_made
        for key in sorted(self._asked_to_go.values()):
            pod = played.cluster.pod(*key)
            if pod is None or not pod.metadata.finalizers or pod.uid not in self._asked_to_go:
                continue
            deleted_ns = pod.metadata.deletion_timestamp
            runs_on = pod.spec.node_name in played.silent
            is_over = deleted_ns is not None and deleted_ns <= played.end_ns
            if is_over and (not runs_on or pod.status.phase in TERMINAL_PHASES):
                yield pod, f"held by a finalizer: {', '.join(pod.metadata.finalizers)}"


def is_eviction(record: Record) -> bool:
    """True if a pod is asked to go: not its end, and not what a DaemonSet does to its own pods."""
    if record.action == "EvictPod":
        return True
    if record.action != "DeletePod" or record.controller == "daemonset":
        return False
    return not (record.ends_pod and record.controller == "cluster")


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
    came_from = {
        record.object.name: record.detail["from"]
        for record in reversed(after.played.records)
        if record.action == "SetZoneState"
    }
    written = sorted(
        record.at
        for record in after.played.records
        if record.action in ("SetNodeCondition", "MarkPodNotReady")
        and record.controller == "node-lifecycle"
    )
    for name, states in sorted(changes.items()):
        if states == unchanged.get(name):
            continue
        held = [
            node
            for node in sorted(after.played.silent)
            if after.zone_of(node) == name and after.on_node[node]["brake"]
        ]
        first = _at_zero(after, came_from[name] or "Normal", counts.get(name, (0, 0)))
        yield ZoneFuture(
            name=name,
            states=[first, *states],
            held_nodes=held,
            held_pods=after.held[name],
            all_dark=dark,
            **_pass_before(after, name, states[0].at, written),
        )


def _pass_before(
    after: PlayReading, zone: str, at: float, written: Sequence[float]
) -> dict[str, Any]:
    """Of the pass that ends then, if it calls nodes of the zone Unknown; see `ZoneFuture`.
    `written`: when passes wrote to nodes and pods; between two of them is a period at least."""
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
        found = counts.get(zone, (0, 0))
        counts[zone] = (found[0] + node.is_ready, found[1] + (not node.is_ready))
    return counts


def _at_zero(after: PlayReading, state: str, count: tuple[int, int]) -> ZoneChange:
    """A zone's state at t=0."""
    ready, not_ready = count
    size = ready + not_ready
    return ZoneChange(
        at=0.0,
        state=state,
        rate=eviction_rate(state, size, after.settings),
        not_ready=not_ready,
        nodes=size,
        because=f"{not_ready} of {size} nodes not ready",
    )


def zone_changes(played: Played) -> dict[str, list[ZoneChange]]:
    """The states that zones take in a play, by the zone's name."""
    changes: dict[str, list[ZoneChange]] = {}
    for at_ns, action in played.timeline.entries:
        if isinstance(action, SetZoneState):
            change = ZoneChange(
                at=played.timeline.seconds(at_ns),
                state=action.to,
                rate=action.rate,
                not_ready=action.not_ready,
                nodes=action.nodes,
                because=action.because,
            )
            changes.setdefault(zone_display(action.zone), []).append(change)
    return changes


def _all_dark(
    counts: Mapping[str, tuple[int, int]], changes: Mapping[str, Sequence[ZoneChange]]
) -> list[Span]:
    """When every zone was fully disrupted."""
    state = {name: "Normal" if ready else FULL for name, (ready, _) in counts.items()}
    ordered = sorted((change.at, name, change) for name, all_ in changes.items() for change in all_)
    dark: list[tuple[float, bool]] = []
    for at, name, change in ordered:
        state[name] = change.state
        dark.append((at, all(s == FULL for s in state.values())))
    turns = [(at, now) for (_, was), (at, now) in pairwise([(0.0, False), *dark]) if was != now]
    spans = []
    for number, (at, now) in enumerate(turns):
        if now:
            ends = turns[number + 1][0] if number + 1 < len(turns) else None
            spans.append(Span(from_seconds=at, to_seconds=ends))
    return spans


def act_of_each(played: Played, acts: Sequence[Act]) -> list[int | None]:
    """For each record the index of the act to which its chain of causes leads; None: to none."""
    begun = {(round(act.at_seconds, 3), name): act.index for act in acts for name in _about(act)}
    found: list[int | None] = []
    for record in played.records:
        if record.cause is not None:
            found.append(found[record.cause] if record.cause < len(found) else None)
            continue
        key = (record.at, record.object.name)
        found.append(begun.get(key) if record.controller == "cluster" else None)
    return found


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
        found = [i for i, r in enumerate(played.records) if _is_about_node(r, parts[1])]
        known = parts[1] in played.cluster.nodes or bool(found)
    elif len(parts) == 3:
        workload = _workload(played, ServedObject(*parts))
        known = workload is not None
        levels = played.levels
        found = [
            i
            for i, record in enumerate(played.records)
            if workload is not None and levels.workload_of(record.object) == workload
        ]
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
    for workload in sorted(played.levels.workloads()):
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
