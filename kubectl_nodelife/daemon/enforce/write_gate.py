"""Collects what the guard must know right before each write: Lease, pause, kill switch, zones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from msgspec.structs import replace

from kubectl_nodelife.controllers.nodelifecycle.taints import is_for_lost_node
from kubectl_nodelife.daemon.enforce.host import EnforcingTask
from kubectl_nodelife.daemon.enforce.kill_switch import KillSwitch
from kubectl_nodelife.daemon.enforce.pausing import Pause
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.guard import Guard, WriteConditions
from kubectl_nodelife.kube.zones import zone_key
from kubectl_nodelife.live.lease import LeaseKeeper


class WriteGate:
    """`quiet_until_ns`: so long nothing at all is written, to see whether somebody else writes."""

    def __init__(
        self,
        keeper: LeaseKeeper,
        pause: Pause,
        kill_switch: KillSwitch,
        intents: Intents,
        changes_fault: Callable[[], str],
        guard: Guard,
        now_ns: Callable[[], int],
    ) -> None:
        self.quiet_until_ns = 0
        self._keeper = keeper
        self._pause = pause
        self._kill_switch = kill_switch
        self._intents = intents
        self._changes_fault = changes_fault
        self._guard = guard
        self._now_ns = now_ns

    def closed_because(self) -> str:
        """Why nothing at all may be written now, "" where it may."""
        if not self._keeper.leads():
            return f"the Lease is not held ({self._keeper.error or self._keeper.state().holder})"
        if paused := self._pause.because(self._now_ns()):
            return paused
        if self._kill_switch.present:
            return "the ConfigMap kube-system/nodelife-stop is there"
        if error := self._journal_error():
            return f"the journal cannot be written: {error}"
        return ""

    def watching_because(self) -> str:
        """Why nothing is written at the beginning, "" once that is over."""
        left_ns = self.quiet_until_ns - self._now_ns()
        return "watching for other writers for one grace period first" if left_ns > 0 else ""

    def view(self, cache: Cache, task: EnforcingTask) -> WriteConditions:
        """The conditions for a write at this moment."""
        now_ns = self._now_ns()
        blind = self.watching_because() or task.stands_still
        view = WriteConditions(
            leads=self._keeper.leads(),
            synced=task.synced.is_set() or bool(task.host.engine),
            blind=blind,
            cold_until_ns=task.cold_until_ns,
            paused_because=self._pause.because(now_ns),
            kill_switch_absent_ns=self._kill_switch.absent_ns,
            kill_switch_present=self._kill_switch.present,
            journal_error=self._journal_error(),
        )
        if self._guard.caps.zone_share is None and self._guard.caps.cluster_share is None:
            return view
        return replace(view, zone_of=_ZoneOf(cache), tainted=_Tainted(cache))

    def _journal_error(self) -> str:
        return self._intents.error or self._changes_fault()


class _ZoneOf(Mapping[str, str]):
    """The zone of each node, read when it is asked for: few of the writes are about zones."""

    def __init__(self, cache: Cache) -> None:
        self._nodes = cache.nodes

    def __getitem__(self, name: str) -> str:
        return zone_key(self._nodes[name].metadata.labels)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class _Tainted(Collection[str]):
    """The nodes that bear a NoExecute taint of a lost node."""

    def __init__(self, cache: Cache) -> None:
        self._nodes = cache.nodes

    def __contains__(self, name: object) -> bool:
        return name in set(self)

    def __iter__(self) -> Iterator[str]:
        for name, node in self._nodes.items():
            if any(is_for_lost_node(t) for t in node.spec.taints):
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)
