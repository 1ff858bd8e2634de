"""Keeps the values of all metrics in memory, so that a scrape walks over nothing.

Nodes and zones are looked at every two seconds, and less often where a look takes long, so that it
costs a twentieth of a core at most. Counters come from the journal and from what is sent and read.
Everything is called in the daemon's loop; `values` is what the text is made from: name -> (label
values, value), in the table's order.

Of labels whose values are known beforehand each has a value, 0 where there is nothing. The changes
of the journal are counted as they come and as they end (`ChangeCounts`): each once as `would`, when
it is predicted, and once for each outcome that it comes to. What an earlier process predicted
counts by its end alone. The answers that are timed are those made in child processes, of `what-if`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon.changes import ENFORCE, HELD, WOULD, ChangeRecord
from kubectl_nodelife.daemon.cluster_view import Sources
from kubectl_nodelife.daemon.divergence_recorder import KEPT_NS, DivergenceRecorder
from kubectl_nodelife.daemon.enforce.enforcement import Enforcement
from kubectl_nodelife.daemon.journal import TooSlow
from kubectl_nodelife.daemon.metrics import (
    DELETION_BUCKETS,
    DUE_WITHIN,
    ERROR_BUCKETS,
    LEASE_AGES,
    UNKNOWN_AGE,
    UNKNOWN_WITHIN,
    cluster_sample,
)
from kubectl_nodelife.daemon.notices import ConditionWords, NotedCondition, cluster_conditions
from kubectl_nodelife.daemon.server import Query, Stream
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet, PodDisruptionBudget
from kubectl_nodelife.live.loop import sliced
from kubectl_nodelife.live.news import ABSENT, REFUSED, WATCHING
from kubectl_nodelife.outlook.diverge.judgement import divergence_judgement
from kubectl_nodelife.outlook.diverge.observations import (
    DISABLED,
    EARLY,
    EVICTION,
    EXTRA,
    JUDGED,
    LATE,
    MISSING,
    OTHER_ACTOR,
    POD_GC,
    RESTARTED,
    SETTINGS,
    STALLED,
    WRITES,
    Judgement,
    Observations,
)
from kubectl_nodelife.outlook.node_verdict import WORST_FIRST

SAMPLE_SECONDS: Final = 2.0
_SHARE: Final = 20
_RUN_SECONDS: Final = 15.0
_BUDGETS_SECONDS: Final = 60.0
_JUDGE_SECONDS: Final = 5.0

FLAPPING_NS: Final = 15 * MINUTE_NS
FLAPPING_TIMES: Final = 3


class MetricsRecorder:
    """Keeps each metric's value, so that a scrape only prints."""

    def __init__(
        self,
        sources: Sources,
        divergence: DivergenceRecorder,
        enforcement: Enforcement | None,
        own: Callable[[], Values],
        *,
        per_node: bool = False,
    ) -> None:
        """`own`: values of the page and of the answers."""
        self._sources, self._decisions = sources, sources.decisions
        self._divergence, self._enforcement = divergence, enforcement
        self._own = own
        self._per_node = per_node
        self._sample: cluster_sample.ClusterSample | None = None
        self._counts = ChangeCounts(0)
        self._evictions = RisingCounts()
        self._flapping = FlappingNodes()
        self._findings: Counter[str] | None = None
        self._budgets: cluster_sample.BudgetSample | None = None
        self._run: cluster_sample.UpgradeSample | None = None

    async def run(self) -> None:
        """Keep the values up to date until cancelled."""
        self._counts = ChangeCounts(self._sources.now_ns())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._look())
            group.create_task(self._judge())
            group.create_task(self._read(cluster_sample.read_run, self.take_run, _RUN_SECONDS))
            of_budgets = (cluster_sample.read_budgets, self.take_budgets, _BUDGETS_SECONDS)
            group.create_task(self._read(*of_budgets))

    def not_ready(self) -> list[str]:
        """The reasons why the daemon cannot answer well: kinds that are not read or not watched."""
        decisions = self._decisions
        reasons = [f"{kind}: not read yet" for kind in decisions.unread()]
        for kind, state in decisions.feed.states.items():
            if state.phase not in (WATCHING, REFUSED, ABSENT) and kind in decisions.read:
                reasons.append(f"{kind}: not watched{f' ({state.error})' if state.error else ''}")
        if not reasons and not decisions.synced.is_set():
            reasons.append("the controllers begin")
        return reasons

    def values(self) -> Values:
        """All metrics as of now."""
        values: Values = {}
        if self._sample is not None:
            values |= cluster_values(self._sample, self._evictions.total, per_node=self._per_node)
            values["nodelife_nodes_flapping"] = [((), self._flapping.count(self._sample.now_ns))]
            values |= daemon_set_values(self._decisions.host.cache)
        values |= work_values(self._counts, self._findings, self._budgets, self._run)
        values |= self._own_values()
        return values

    # What is taken in

    def take_changes(self, changes: Iterable[ChangeRecord]) -> None:
        """Count changes of the journal."""
        self._counts.take(changes)

    def take_sample(self, sample: cluster_sample.ClusterSample) -> None:
        """A look at nodes and zones."""
        self._sample = sample
        self._evictions.take(sample.evictions)
        self._flapping.take(sample.unreachable, sample.now_ns)

    def take_judgement(self, judged: Judgement) -> None:
        """Where the cluster's controllers differ from our copy."""
        self._findings = Counter(finding.kind for finding in judged.findings)

    def take_run(self, lease: Lease | None) -> None:
        """The Lease of an upgrade run."""
        self._run = cluster_sample.upgrade_sample(
            lease, self._decisions.host.cache, self._sources.now_ns()
        )

    def take_budgets(self, budgets: Iterable[PodDisruptionBudget] | None) -> None:
        """All disruption budgets; None where they cannot be read."""
        cache = self._decisions.host.cache
        self._budgets = None if budgets is None else cluster_sample.budget_sample(budgets, cache)

    def conditions(self) -> dict[str, NotedCondition] | None:
        """The conditions that are worth a notification now; None while that cannot be judged."""
        decisions, enforcement = self._decisions, self._enforcement
        now_ns = self._sources.now_ns()
        if self._sample is None or decisions.is_cold(now_ns) or decisions.stands_still:
            return None
        more: list[ConditionWords] = []
        findings = self._findings or Counter()
        if findings["stalled"] or findings["disabled"]:
            sentence = "a controller of the cluster does nothing, though writes of it are due"
            more.append(("controllerStalled", "", sentence, "diverge"))
        if self._run is not None and self._run.gates - {"paused", "window"}:
            sentence = f"the upgrade is held by: {', '.join(sorted(self._run.gates))}"
            more.append(("upgradeHeld", "", sentence, "upgrade status"))
        if enforcement is not None and not enforcement.stands_by:
            breakers = enforcement.guard.breakers.values()
            why = enforcement.why_not or "; ".join(b.because for b in breakers)
            more += [("enforcementStopped", "", why, "daemon status")] if why else []
        return cluster_conditions(self._sample, more)

    def observations(self) -> tuple[Observations, int]:
        """The observations that the controllers are judged by, and the instant that they are of."""
        now_ns = self._sources.now_ns()
        return self._divergence.record(now_ns, now_ns - KEPT_NS), now_ns

    # The tasks

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(TooSlow), self._sources.journal.following() as batches:
                async for batch in batches:
                    self.take_changes(batch)

    async def _look(self) -> None:
        await self._decisions.synced.wait()
        while True:
            began = time.thread_time()
            with contextlib.suppress(NodelifeError):  # the nodes may not be read any more
                steps = cluster_sample.sample_steps(self._sources.view(), per_node=self._per_node)
                self.take_sample(await sliced(steps))
            cost_s = time.thread_time() - began
            await asyncio.sleep(max(SAMPLE_SECONDS, _SHARE * cost_s))

    async def _judge(self) -> None:
        while True:
            await asyncio.sleep(_JUDGE_SECONDS)
            self.take_judgement(await asyncio.to_thread(divergence_judgement, *self.observations()))

    async def _read(
        self, read: Callable[..., Awaitable[Any]], take: Callable[[Any], None], every_s: float
    ) -> None:
        await self._decisions.synced.wait()
        while True:
            take(await read(self._sources.client))
            await asyncio.sleep(every_s)

    # Our own state

    def _own_values(self) -> Values:
        sources = self._sources
        decisions, enforcement = self._decisions, self._enforcement
        now_ns = decisions.clock.now_ns()
        mode = "dry-run" if enforcement is None else "enforce"
        server = blake2b(sources.cluster.server.encode(), digest_size=6).hexdigest()
        info = (__version__, decisions.settings.profile.name, mode, server)
        values: Values = {
            "nodelife_info": [(info, 1)],
            "nodelife_synced": [((), int(decisions.synced.is_set()))],
            "nodelife_warming_up": [((), int(decisions.is_cold(now_ns)))],
            "nodelife_held_writes": [((), self._counts.held)],
            "nodelife_loop_stall_seconds": [((), decisions.slices.longest_s)],
            "nodelife_journal_bytes": [((), _size(sources.journal.store.path))],
            "nodelife_requests_total": [((c,), n) for c, n in sources.client.answers.items()],
            "nodelife_lease_held": [((), 0)],
            "nodelife_paused": [((), 0)],
            **self._own(),
        }
        if enforcement is not None:
            values |= _enforcement_values(enforcement, now_ns)
        return values | self._watch_values(now_ns)

    def _watch_values(self, now_ns: int) -> Values:
        up, last_seen, lists = [], [], []
        monotonic_ns = time.monotonic_ns()
        for kind, state in self._decisions.feed.states.items():
            if state.phase in (REFUSED, ABSENT):
                continue
            up.append(((kind,), int(state.phase == WATCHING)))
            lists.append(((kind,), state.lists))
            if state.last_sign_ns:
                seen_ns = now_ns - max(0, monotonic_ns - state.last_sign_ns)
                last_seen.append(((kind,), seen_ns / SECOND_NS))
        return {
            "nodelife_watch_up": up,
            "nodelife_watch_last_event_timestamp_seconds": last_seen,
            "nodelife_relists_total": lists,
        }


def _enforcement_values(enforcement: Enforcement, now_ns: int) -> Values:
    rules = Counter(breaker.rule for breaker in enforcement.guard.breakers.values())
    return {
        "nodelife_guard_open": [((rule,), 1) for rule in rules],
        "nodelife_lease_held": [((), int(enforcement.keeper.leads()))],
        "nodelife_paused": [((), int(bool(enforcement.pause.because(now_ns))))],
        "nodelife_writes_total": list(enforcement.recorder.answers.items()),
    }


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class RisingCounts:
    """Counts that begin anew where a controller does, added up so that they never fall."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def take(self, now: Mapping[str, int]) -> None:
        """The counts as they are now."""
        for key, count in now.items():
            last = self._last.get(key, 0)
            self.total[key] += count - last if count >= last else count
        self._last = dict(now)


class FlappingNodes:
    """Nodes that are lost again and again."""

    def __init__(self) -> None:
        self._lost: Set[str] = frozenset()
        self._times: dict[str, deque[int]] = {}

    def take(self, lost: Set[str], now_ns: int) -> None:
        """The nodes that are lost now."""
        for name in lost - self._lost:
            self._times.setdefault(name, deque(maxlen=FLAPPING_TIMES)).append(now_ns)
        self._lost = frozenset(lost)
        old_ns = now_ns - FLAPPING_NS
        self._times = {name: times for name, times in self._times.items() if times[-1] > old_ns}

    def count(self, now_ns: int) -> int:
        """How many were lost so often within that time."""
        return sum(
            len(times) == FLAPPING_TIMES and times[0] > now_ns - FLAPPING_NS
            for times in self._times.values()
        )


_MOST_OPEN: Final = 200_000


class Histogram:
    """Counts by bucket, and the sum."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def copy(self) -> Histogram:
        """As it is now."""
        other = Histogram(self.bounds)
        other.counts, other.sum = list(self.counts), self.sum
        return other

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, how many values are not above it), the last without a bound."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return [(name, float(n)) for name, n in zip(names, accumulate(self.counts), strict=True)]


class ChangeCounts:
    """Counts the journal's changes for the metrics.

    `changes`: by controller, action and outcome. `errors`: by action and sign.

    `last_act_ns`: by controller, when a write of the cluster's own was seen last.
    """

    def __init__(self, began_ns: int) -> None:
        """A prediction from before `began_ns` is of an earlier process."""
        self._began_ns = began_ns
        self._open: dict[int, str] = {}
        self.changes: Counter[tuple[str, str, str]] = Counter()
        self.errors = {  # all at once: to Prometheus the first value of a series is no increase
            (action, sign): Histogram(ERROR_BUCKETS)
            for action in sorted(WRITES)
            for sign in (LATE, EARLY)
        }
        self.last_act_ns: dict[str, int] = {}
        self.deletion_s = Histogram(DELETION_BUCKETS)

    @property
    def held(self) -> int:
        """How many writes a guard holds back now."""
        return sum(outcome == HELD for outcome in self._open.values())

    def take(self, changes: Iterable[ChangeRecord]) -> None:
        """Changes that are new, or that have another outcome."""
        for change in changes:
            outcome = self._open.get(change.id)
            if outcome is None and change.time_ns >= self._began_ns:
                self._count(change, WOULD)
                outcome = WOULD
            if change.outcome not in (outcome, WOULD):
                self._count(change, change.outcome)
            if change.settled_ns is None:
                self._open[change.id] = change.outcome
                if len(self._open) > _MOST_OPEN:
                    del self._open[next(iter(self._open))]
            else:
                self._open.pop(change.id, None)
                self._ended(change, change.settled_ns)

    def _count(self, change: ChangeRecord, outcome: str) -> None:
        self.changes[change.controller, change.action, outcome] += 1

    def _ended(self, change: ChangeRecord, settled_ns: int) -> None:
        done = change.outcome in ("confirmed", "applied")
        if done and change.action == "DeletePod" and change.controller == EVICTION:
            self.deletion_s.observe(max(0, settled_ns - change.time_ns) / SECOND_NS)
        if change.outcome != "confirmed" or change.mode == ENFORCE:
            return
        last_ns = self.last_act_ns.get(change.controller, 0)
        self.last_act_ns[change.controller] = max(last_ns, settled_ns)
        if change.controller in JUDGED and change.action in WRITES:
            error_s = _error_ns(change, settled_ns) / SECOND_NS
            sign = EARLY if error_s < 0 else LATE
            self.errors[change.action, sign].observe(abs(error_s))


def _error_ns(change: ChangeRecord, settled_ns: int) -> int:
    """How far the write was outside of the time that was predicted; negative: before it."""
    low_ns, high_ns = change.time_ns, change.time_ns
    if change.earliest_ns is not None and change.latest_ns is not None:
        low_ns, high_ns = change.earliest_ns, change.latest_ns
    return min(0, settled_ns - low_ns) or max(0, settled_ns - high_ns)


def timed(stream: Stream, times: Histogram) -> Stream:
    """The same, of which is kept how long it took, also where it ends in an error."""

    async def with_time(query: Query) -> AsyncGenerator[dict[str, Any]]:
        began = time.monotonic()
        try:
            async with aclosing(stream(query)) as told:
                async for document in told:
                    yield document
        finally:
            times.observe(time.monotonic() - began)

    return with_time


Labels = tuple[str, ...]
Values = dict[str, Sequence[tuple[Labels, float | Histogram]]]

FINDINGS = (STALLED, DISABLED, SETTINGS, MISSING, LATE, EARLY, EXTRA, RESTARTED, OTHER_ACTOR)


def cluster_values(
    sample: cluster_sample.ClusterSample, evictions: Mapping[str, int], *, per_node: bool
) -> Values:
    """The values of a look at the cluster. `evictions`: by zone, since the process began."""
    due_ns = sample.next_eviction_ns
    values: Values = {
        "node_collector_evictions_total": [((z,), n) for z, n in sorted(evictions.items())],
        "nodelife_nodes_by_lease_age": _each(sample.lease_ages, (*LEASE_AGES, UNKNOWN_AGE)),
        "nodelife_nodes_unknown_within": _each(sample.unknown_within, UNKNOWN_WITHIN),
        "nodelife_pods_due": _each(sample.pods_due, DUE_WITHIN),
        "nodelife_next_eviction_timestamp_seconds": [((), due_ns / SECOND_NS)],
        "nodelife_pods_stranded": _each(sample.stranded, cluster_sample.STRANDED),
        "nodelife_drain_wait_seconds": _each(sample.drain_waits, cluster_sample.DRAIN_GATES),
        "nodelife_sample_timestamp_seconds": [((), sample.now_ns / SECOND_NS)],
    }
    if per_node:
        values["nodelife_series_dropped"] = [((), sample.dropped)]
        values["nodelife_node_pods_due"] = [((n.name,), n.pods_due) for n in sample.nodes]
        values["nodelife_node_unknown_in_seconds"] = [
            ((n.name,), n.unknown_in_s) for n in sample.nodes if n.unknown_in_s is not None
        ]
    return values | _zone_values(sample)


def _zone_values(sample: cluster_sample.ClusterSample) -> Values:
    values: dict[str, list[tuple[Labels, float | Histogram]]] = {}

    def add(name: str, labels: Labels, value: float) -> None:
        values.setdefault(name, []).append((labels, value))

    for label, zone in sorted(sample.zones.items()):
        healthy = zone.size - zone.unhealthy
        health = 100 * healthy / zone.size if zone.size else 100.0
        add("node_collector_zone_size", (label,), zone.size)
        add("node_collector_zone_health", (label,), round(health, 3))
        add("node_collector_unhealthy_nodes_in_zone", (label,), zone.unhealthy)
        add("nodelife_zone_eviction_rate_nodes_per_second", (label,), zone.rate)
        add("nodelife_zone_queued_nodes", (label,), zone.queued)
        if zone.until_brake is not None:
            add("nodelife_zone_nodes_until_brake", (label,), zone.until_brake)
        for state in cluster_sample.ZONE_STATES:
            add("nodelife_zone_state", (label, state), int(state in zone.states))
        for verdict in WORST_FIRST:
            add("nodelife_nodes", (label, verdict), zone.verdicts[verdict])
    return dict(values)


def work_values(
    counts: ChangeCounts,
    findings: Counter[str] | None,
    budgets: cluster_sample.BudgetSample | None,
    run: cluster_sample.UpgradeSample | None,
) -> Values:
    """Changes, divergences, budgets and the upgrade run; None: not known."""
    last_act = sorted(counts.last_act_ns.items())
    evicted = counts.changes[EVICTION, "DeletePod", WOULD]
    forced, failed = (counts.changes[POD_GC, "DeletePod", outcome] for outcome in (WOULD, "failed"))
    values: Values = {
        "nodelife_predicted_changes_total": sorted(counts.changes.items()),
        "nodelife_prediction_error_seconds": [
            (labels, errors.copy()) for labels, errors in sorted(counts.errors.items())
        ],
        "nodelife_controller_last_act_timestamp_seconds": [
            ((name,), at_ns / SECOND_NS) for name, at_ns in last_act
        ],
        "taint_eviction_controller_pod_deletions_total": [((), evicted)],
        "taint_eviction_controller_pod_deletion_duration_seconds": [((), counts.deletion_s.copy())],
        "pod_gc_collector_force_delete_pods_total": [((), forced)],
        "pod_gc_collector_force_delete_pod_errors_total": [((), failed)],
    }
    if findings is not None:
        values["nodelife_divergences"] = _each(findings, FINDINGS)
    if budgets is not None:
        values["nodelife_budgets"] = _each(budgets.states, cluster_sample.BUDGET_STATES)
        values["nodelife_budget_blocked_nodes"] = [((), budgets.blocked_nodes)]
    if run is not None:
        values["nodelife_upgrade_nodes"] = [((s,), n) for s, n in sorted(run.nodes.items())]
        values["nodelife_upgrade_gate_closed"] = [((gate,), 1) for gate in sorted(run.gates)]
        values["nodelife_upgrade_held_nodes"] = [((b,), n) for b, n in sorted(run.held.items())]
        if run.lowest is not None:
            values["nodelife_upgrade_lowest_available_nodes"] = [((), run.lowest)]
    return values


def daemon_set_values(cache: Cache) -> Values:
    """The sums of the status of all DaemonSets."""
    sums: Counter[str] = Counter()
    for obj in cache.all("DaemonSet"):
        if isinstance(obj, DaemonSet):
            sums["desired"] += obj.status.desired_number_scheduled
            sums["ready"] += obj.status.number_ready
            sums["misscheduled"] += obj.status.number_misscheduled
            sums["unavailable"] += obj.status.number_unavailable
    of = ("desired", "ready", "misscheduled", "unavailable")
    return {"nodelife_daemonset_nodes": _each(sums, of)}


def _each(
    counts: Mapping[str, float], keys: Iterable[object]
) -> list[tuple[Labels, float | Histogram]]:
    return [((str(key),), counts.get(str(key), 0)) for key in keys]
