"""Keeps the values of all metrics in memory, so that a scrape walks over nothing.

Nodes and zones are looked at every two seconds, and less often where a look takes long, so that it
costs a twentieth of a core at most. Counters come from the journal and from what is sent and read.
Everything is called in the daemon's loop; `values` is what the text is made from."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Set
from hashlib import blake2b
from typing import Final

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon.changes import ChangeRecord
from kubectl_nodelife.daemon.cluster_view import Sources
from kubectl_nodelife.daemon.divergence_recorder import KEPT_NS, DivergenceRecorder
from kubectl_nodelife.daemon.enforce.enforcement import Enforcement
from kubectl_nodelife.daemon.journal import TooSlow
from kubectl_nodelife.daemon.metrics.cluster_sample import (
    BudgetSample,
    ClusterSample,
    UpgradeSample,
    budget_sample,
    read_budgets,
    read_run,
    sample_steps,
    upgrade_sample,
)
from kubectl_nodelife.daemon.metrics.values import (
    ChangeCounts,
    Values,
    cluster_values,
    daemon_set_values,
    work_values,
)
from kubectl_nodelife.daemon.notices import NotedCondition, cluster_conditions
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.live.loop import sliced
from kubectl_nodelife.live.news import ABSENT, REFUSED, WATCHING
from kubectl_nodelife.outlook.diverge.judgement import divergence_judgement
from kubectl_nodelife.outlook.diverge.observations import Judgement, Observations

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
        self._sample: ClusterSample | None = None
        self._counts = ChangeCounts(0)
        self._evictions = RisingCounts()
        self._flapping = FlappingNodes()
        self._findings: Counter[str] | None = None
        self._budgets: BudgetSample | None = None
        self._run: UpgradeSample | None = None

    async def run(self) -> None:
        """Keep the values up to date until cancelled."""
        self._counts = ChangeCounts(self._sources.now_ns())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._look())
            group.create_task(self._judge())
            group.create_task(self._read_run())
            group.create_task(self._read_budgets())

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

    def take_sample(self, sample: ClusterSample) -> None:
        """A look at nodes and zones."""
        self._sample = sample
        self._evictions.take(sample.evictions)
        self._flapping.take(sample.unreachable, sample.now_ns)

    def take_judgement(self, judged: Judgement) -> None:
        """Where the cluster's controllers differ from our copy."""
        self._findings = Counter(finding.kind for finding in judged.findings)

    def take_run(self, lease: Lease | None) -> None:
        """The Lease of an upgrade run."""
        self._run = upgrade_sample(lease, self._decisions.host.cache, self._sources.now_ns())

    def take_budgets(self, budgets: Iterable[PodDisruptionBudget] | None) -> None:
        """All disruption budgets; None where they cannot be read."""
        cache = self._decisions.host.cache
        self._budgets = None if budgets is None else budget_sample(budgets, cache)

    def now_ns(self) -> int:
        """The instant, by the API server's clock."""
        return self._sources.now_ns()

    def conditions(self) -> dict[str, NotedCondition] | None:
        """The conditions that are worth a notification now; None while that cannot be judged."""
        decisions, enforcement = self._decisions, self._enforcement
        if self._sample is None or decisions.is_cold(self.now_ns()) or decisions.stands_still:
            return None
        conditions = cluster_conditions(self._sample)
        findings = self._findings or Counter()
        if findings["stalled"] or findings["disabled"]:
            sentence = "a controller of the cluster does nothing, though writes of it are due"
            conditions["controllerStalled"] = NotedCondition(
                "controllerStalled", sentence, "kubectl nodelife diverge"
            )
        if self._run is not None and self._run.gates - {"paused", "window"}:
            sentence = f"the upgrade is held by: {', '.join(sorted(self._run.gates))}"
            command = "kubectl nodelife upgrade status"
            conditions["upgradeHeld"] = NotedCondition("upgradeHeld", sentence, command)
        if enforcement is not None and not enforcement.stands_by:
            why = enforcement.why_not or _breakers(enforcement)
            command = "kubectl nodelife daemon status"
            if why:
                conditions["enforcementStopped"] = NotedCondition(
                    "enforcementStopped", why, command
                )
        return conditions

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
                steps = sample_steps(self._sources.view(), per_node=self._per_node)
                self.take_sample(await sliced(steps))
            cost_s = time.thread_time() - began
            await asyncio.sleep(max(SAMPLE_SECONDS, _SHARE * cost_s))

    async def _judge(self) -> None:
        while True:
            await asyncio.sleep(_JUDGE_SECONDS)
            self.take_judgement(await asyncio.to_thread(divergence_judgement, *self.observations()))

    async def _read_run(self) -> None:
        await self._decisions.synced.wait()
        while True:
            self.take_run(await read_run(self._sources.client))
            await asyncio.sleep(_RUN_SECONDS)

    async def _read_budgets(self) -> None:
        await self._decisions.synced.wait()
        while True:
            self.take_budgets(await read_budgets(self._sources.client))
            await asyncio.sleep(_BUDGETS_SECONDS)

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


def _breakers(enforcement: Enforcement) -> str:
    return "; ".join(breaker.because for breaker in enforcement.guard.breakers.values())


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
