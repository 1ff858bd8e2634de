"""The simulated cluster in real time: its parts and our controllers, driven by the live loop.

The parts are the simulator's, over the API server's store. To the loop (`live.loop`) the cluster is
source and executor in one: it waits until something is due or a client wrote, lets it happen, and
carries out what the engine decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.events import Event, Heartbeats, Put
from kubectl_nodelife.engine.loop import EngineHost, Tick
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.workload import Namespace, NamespaceStatus
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.live.loop import TimeSlices, drive
from kubectl_nodelife.sandbox.deleting import Deleter
from kubectl_nodelife.sandbox.heartbeats import LeaseRenewals
from kubectl_nodelife.sandbox.resources import BY_KIND
from kubectl_nodelife.sandbox.served import ServedApi
from kubectl_nodelife.sandbox.store import ObjectStore
from kubectl_nodelife.sandbox.writing import RequestApplier
from kubectl_nodelife.sim.machines import read_reboot
from kubectl_nodelife.sim.scenario import Setting
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.world import World

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system", "nodelife")
HEARTBEATS = "sandbox.nodelife.dev/heartbeats"
"""Annotation of a node: `stop` silences its kubelet, `start` starts it again."""
REBOOT = "sandbox.nodelife.dev/reboot"
"""Annotation of a node: `20s` or `20s,kubeletVersion=v1.37.0` reboots its machine, which is down
for so long and may come back with another kubelet. It is taken off as the machine goes down."""

_FOR_EVER_NS = 1 << 62


class SandboxCluster:
    """A running simulated cluster. `now_ns` is its clock."""

    def __init__(
        self,
        setting: Setting,
        controllers: Sequence[Controller],
        *,
        documents: Iterable[tuple[str, dict[str, object]]] = (),
        now_ns: Callable[[], int] = time.time_ns,
        store: ObjectStore | None = None,
        status_rules: StatusRules | None = None,
    ) -> None:
        """`documents`: whole objects, as (kind, document), that stand in for the setting's slices
        of the same names; other objects come from the slices. `status_rules`: of the kubelets'
        status managers; None: they have none.
        """
        self.clock = now_ns
        start_ns = now_ns()
        self.api = ServedApi(store or ObjectStore(), start_ns)
        self.api.admission = setting.admission
        self.deleter = Deleter(self.api, RequestApplier(self.api))
        gc.disable()  # a first fill makes only objects that stay
        self._fill(documents, setting.objects)
        gc.freeze()
        gc.enable()
        self.world = World(
            self.api,
            setting.scenario.kubelet,
            end_ns=_FOR_EVER_NS,
            kinds_read=frozenset(BY_KIND),
            status_rules=status_rules,
            scoring=setting.scoring,
        )
        self.api.bind = self.world.scheduler.bind
        Script(self.world, setting.scenario.events, setting.profile)
        self._renewals = LeaseRenewals(self.api)
        kinds = sorted({kind for c in controllers for kind in c.watches})
        self.api.pending = []  # what was there at the beginning is listed, not news
        listed = self.world.begin(kinds)
        self.engine = Engine(controllers, listed, join=setting.scenario.join, kinds=kinds)
        self._wake = asyncio.Event()
        self._heartbeats: dict[str, str] = {}

    def wake(self) -> None:
        """A client wrote: react now."""
        self._wake.set()

    async def run(self) -> None:
        """Live until cancelled."""
        await drive(self, EngineHost(self.engine, self), TimeSlices())

    async def next(self, due_ns: int | None) -> Iterable[Tick]:
        """Wait until a client wrote or something is due, let it happen, and tell the engine."""
        if not self.api.pending:
            await self._wait(due_ns)
        self._wake.clear()
        now_ns = self.clock()
        _, events = self.world.advance(now_ns)
        self._renewals.run(now_ns)
        events = [*events, *self.api.pending]
        self.api.pending = []
        return [(now_ns, list(self._react(events)))]

    async def _wait(self, due_ns: int | None) -> None:
        """Until a client wrote or something is due."""
        parts = (self.world.agenda.next_at(), self._renewals.next_due())
        due = [at_ns for at_ns in (due_ns, *parts) if at_ns is not None]
        wait_s = max(0.0, (min(due) - self.clock()) / 1e9) if due else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    def _react(self, events: Iterable[Event]) -> Iterable[Event]:
        """The events for the engine; schedules become writes, and what left dependents is noted."""
        for event in events:
            if isinstance(event, Heartbeats):
                self._renewals.follow(event)
                continue
            if isinstance(event, Put) and event.kind == "Node":
                self._obey(event.obj.name, event.obj.metadata.annotations or {})
                self._reboot(event.obj.name)
            yield event

    def _obey(self, node: str, annotations: dict[str, str]) -> None:
        """A node's annotation stops or starts its kubelet, once for each change of it."""
        word = annotations.get(HEARTBEATS, "")
        if word == self._heartbeats.get(node, ""):
            return
        self._heartbeats[node] = word
        if word == "stop":
            self.world.kubelets.stop(node, None)
        elif word == "start":
            self.world.kubelets.start(node, None)

    def _reboot(self, name: str) -> None:
        """A node's annotation reboots its machine; one that cannot be read is left as it is."""
        node = self.api.store.nodes.get(name)
        annotations = dict((node.metadata.annotations if node is not None else None) or {})
        reboot = read_reboot(annotations.pop(REBOOT, ""))
        if node is None or reboot is None:
            return
        down_ns, back = reboot
        meta = replace(node.metadata, annotations=annotations)
        self.api.put("Node", replace(node, metadata=meta))
        self.world.machines.reboot(name, down_ns, back, None)

    def start_all(self, actions: Iterable[Action], now_ns: int) -> None:
        """Carry out what was decided together against the served API."""
        for action in actions:
            if isinstance(action, RecordEvent):
                self.api.events.record(action, now_ns)
            else:
                self.world.start(action, now_ns)

    def _fill(
        self, documents: Iterable[tuple[str, dict[str, object]]], objects: Iterable[KubeObject]
    ) -> None:
        for kind, document in documents:
            self.api.write(BY_KIND[kind], document)
        for obj in objects:
            kind = kind_of(obj)
            if self.api.served.get(kind, obj.key) is None:
                self.api.load(kind, obj)
        used = {key[0] for kind in BY_KIND for key in self.api.served.collections[kind].entries}
        for name in sorted(used.union(NAMESPACES) - {""}):
            if self.api.served.get("Namespace", ("", name)) is None:
                namespace = Namespace(
                    metadata=ObjectMeta(name=name), status=NamespaceStatus(phase="Active")
                )
                self.api.put("Namespace", namespace)
        for lease in list(self.api.store.all("Lease")):
            self.api.store.apply(Put("Lease", lease), self.api.now_ns)  # its heartbeat, too
