"""Plays, read: how workloads and Services fared, and what was done to nodes and pods.

A node's instants are those of the first records about it; a pod is at risk that stands, at the end,
on a node that is lost and is not being deleted.

Of two plays the courses of nodes and zones are given, and which act led to what. An instant that
upstream leaves to chance has a range: a node is called Unknown by the first monitor pass after its
grace period, whenever that begins; of several nodes that wait in a zone any may get the first
token; a pod is deleted so long after the taint as it tolerates it; pod-gc runs each 20 s, whenever
that is, and at the end of a quarantine its run may come first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.controllers.nodelifecycle.health import lost_after_ns
from kubectl_nodelife.controllers.nodelifecycle.zones import FULL, eviction_rate
from kubectl_nodelife.controllers.podgc import GC_CHECK_PERIOD_NS, QUARANTINE_NS
from kubectl_nodelife.engine.actions import SetZoneState
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import zone_display, zone_key
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod, is_mirror_pod
from kubectl_nodelife.kube.taints import tolerates
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.kube.workload import PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import (
    AtRisk,
    BudgetMoment,
    DrainFuture,
    InstantRange,
    NodeFuture,
    PendingPod,
    Span,
    ZoneChange,
    ZoneFuture,
)
from kubectl_nodelife.outlook.what_if.question import Played, seconds
from kubectl_nodelife.outlook.what_if.service_levels import (
    SERVICE,
    Outage,
    ServedObject,
    outage_of,
)
from kubectl_nodelife.sim.pod_loops import Place, PodLoop, pod_loops
from kubectl_nodelife.sim.timeline import Record
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger

_DRAIN_ENDS: Final = {"DrainRefused": "refused", "DrainFailed": "failed", "Drained": "drained"}
_LOSSES: Final = frozenset({"MachineLost", "LinkLost"})
_TOLERANCE_S: Final = 0.2
"""How far an instant may lie outside of its reckoned range by requests and the eviction loop."""


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
        zero_s, below_s = (round(ns / SECOND_NS, 3) for ns in (at_zero_ns, below_ns))
        return cls(budget.spec, budget.status, points, zero_s, below_s)


class PlayReading:
    """See the module. By workload: `evicted`, `collected`, `pending`, `stuck`, `at_risk` (by the
    field of AtRisk); `nodes`: the instants of each node, by the fields of NodeFuture; `gone`: when
    Node objects were deleted; `held`: pods that a zone's brake keeps, by zone; `on_node`: as
    `at_risk`, by node; `budgets`: those whose status changed. What `ignores` says is left out, and
    counted in `ignored`."""

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
        self._count_deletions()
        self.pending: dict[ServedObject, list[PendingPod]] = {}
        self.stuck: dict[ServedObject, list[str]] = {}
        self.not_started: dict[ServedObject, list[PendingPod]] = {}
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
        deleted: set[str] = set()
        for record in self.played.records:
            if record.error or record.object.kind not in ("Pod", "Node"):
                continue
            if record.object.kind == "Node":
                self._note_node(record)
            elif is_eviction(record) and record.object.uid not in deleted:
                deleted.add(record.object.uid)
                workload = self.played.levels.workload_of.get(record.object.uid)
                if workload is None or self._is_ignored(workload):
                    continue
                by_collector = record.controller == "pod-gc"
                (self.collected if by_collector else self.evicted)[workload] += 1

    def _note_node(self, record: Record) -> None:
        entry = self.nodes.setdefault(record.object.name, {})
        detail, at = record.detail, record.at
        if record.action == "SetNodeCondition" and detail["type"] == "Ready":
            if detail["status"] == "Unknown":
                entry.setdefault("unknown_seconds", at)
                entry.setdefault("because", record.reason)
                entry.pop("back_seconds", None)
            elif detail["status"] == "True" and "unknown_seconds" in entry:
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
        levels, uid = self.played.levels, deleted.object.uid
        workload = levels.workload_of[uid]
        node = levels.node_of.get(uid, "")
        return workload.kind, workload.namespace, workload.name, node

    def drains(self) -> list[DrainFuture]:
        """What became of each drain, by its node."""
        turns: dict[str, DrainFuture] = {}
        refusals: dict[str, tuple[str, str]] = {}
        for record in self.played.records:
            if record.action != "RecordEvent":
                continue
            reason = record.detail.get("reason", "")
            if record.object.kind == "Pod" and reason == "EvictionRefused":
                node = self.played.levels.node_of.get(record.object.uid, "")
                refusals[node] = (record.object.uid, record.reason)
            elif reason == "DrainStarted":
                turns[record.object.name] = DrainFuture(node=record.object.name, ended="waits")
            elif reason in _DRAIN_ENDS and record.object.name in turns:
                turns[record.object.name] = DrainFuture(
                    record.object.name, _DRAIN_ENDS[reason], record.at, record.reason
                )
        there = {pod.uid: pod for pod in self.played.cluster.pods.values()}
        return [
            turn if turn.ended != "waits" else self._waiting(turn.node, there, refusals)
            for _, turn in sorted(turns.items())
        ]

    def _waiting(
        self, node: str, there: Mapping[str, Pod], refusals: Mapping[str, tuple[str, str]]
    ) -> DrainFuture:
        """A drain that is not over, and the pod that it waits for."""
        uid, why = refusals.get(node, ("", ""))
        pod = there.get(uid)
        if pod is not None:
            return DrainFuture(node, "waits", because=f"{'/'.join(pod.key)}: {why}")
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
            if self._is_ignored(workload_of[pod.uid]):
                continue
            if pod.metadata.deletion_timestamp is None and pod.status.phase not in TERMINAL_PHASES:
                pending = PendingPod(pod="/".join(key), why=why)
                self.pending.setdefault(workload_of[pod.uid], []).append(pending)
        for key, holder in sorted(self.played.volume_on.items()):
            waits = PendingPod(pod="/".join(key), why=f"volume attached to {holder}")
            self.not_started.setdefault(workload_of[cluster.pods[key].uid], []).append(waits)
        for node in sorted(self.played.silent):
            for pod in sorted(cluster.pods_on(node), key=lambda pod: pod.key):
                workload = workload_of.get(pod.uid)
                if workload is None or pod.status.phase in TERMINAL_PHASES:
                    continue
                if self._is_ignored(workload):
                    continue
                if pod.metadata.deletion_timestamp is not None:
                    self.stuck.setdefault(workload, []).append("/".join(pod.key))
                    continue
                kept_by = _kept_by(pod, cluster, rates, self.zone_of)
                self.at_risk[workload][kept_by] += 1
                self.on_node[node][kept_by] += 1
                self.held[self.zone_of(node)] += kept_by == "brake"


def is_eviction(record: Record) -> bool:
    """True if a pod is asked to go: not its end, and not what a DaemonSet does to its own pods."""
    if record.action == "EvictPod":
        return True
    if record.action != "DeletePod" or record.controller == "daemonset":
        return False
    ends = record.detail.get("gracePeriodSeconds") == 0 and record.controller == "cluster"
    return not ends


def _kept_by(
    pod: Pod, cluster: Cache, rates: Mapping[str, float], zone_of: Callable[[str], str]
) -> str:
    """The field of AtRisk for a pod on a lost node."""
    if is_mirror_pod(pod):
        return "mirror"
    node = cluster.nodes.get(pod.spec.node_name)
    taints = [t for t in node.spec.taints if t.effect == NO_EXECUTE] if node is not None else []
    if not taints:
        return "brake" if rates.get(zone_of(pod.spec.node_name)) == 0 else "queue"
    limited = [t for t in pod.spec.tolerations if t.toleration_seconds is not None]
    return "timer" if any(tolerates(t, taint) for t in limited for taint in taints) else "for_ever"


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


def zone_futures(before: PlayReading, after: PlayReading, at_start: Cache) -> Iterator[ZoneFuture]:
    """The zones whose state changes in the future otherwise than without the acts."""
    changes, unchanged = _changes(after.played), _changes(before.played)
    counts = _counts(after, at_start)
    dark = _all_dark(counts, changes)
    came_from = {
        record.object.name: record.detail["from"]
        for record in reversed(after.played.records)
        if record.action == "SetZoneState"
    }
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
        )


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


def _changes(played: Played) -> dict[str, list[ZoneChange]]:
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
