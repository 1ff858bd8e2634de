"""The simulated cluster in real time: its parts and our controllers, driven by the live loop.

The parts are the simulator's, over the API server's store. To the loop (`live.loop`) the cluster is
source and executor in one: it waits until something is due or a client wrote, advances the cluster,
and carries out what the engine decides.

The simulator only gives the schedule on which a kubelet renews (`Heartbeats`), because on virtual
time that is enough. Here clients watch: each renewal is a write of the node's Lease, and each
status post one of the Node (`LeaseRenewals`). Kubelets that begin together renew together once and
then each at its own phase, as the jitter of real ones spreads them.

The initial objects of a sandbox are those of a scenario, or of a dump of a whole cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine, EngineHost, Tick
from kubectl_nodelife.engine.events import Event, Heartbeats, Put
from kubectl_nodelife.engine.settings import Profile, parse_profile
from kubectl_nodelife.engine.workqueue import Timers
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.documents import looks_like_json, utf8, yaml_documents
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import load_objects
from kubectl_nodelife.kube.meta import KubeObject, ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.workload import Namespace, NamespaceStatus
from kubectl_nodelife.kubelet.releases import StatusRules
from kubectl_nodelife.live.loop import TimeSlices, drive
from kubectl_nodelife.sandbox.discovery import BY_KIND, BY_KIND_AND_VERSION
from kubectl_nodelife.sandbox.served import ServedApi, renewed_lease
from kubectl_nodelife.sandbox.store import ObjectStore
from kubectl_nodelife.sim.machines import read_reboot
from kubectl_nodelife.sim.scenario import (
    API_VERSION,
    Given,
    Scenario,
    Setting,
    assemble,
    parse_scenario,
)
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.world import World

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system", "nodelife")
HEARTBEATS = "sandbox.nodelife.dev/heartbeats"
"""Annotation of a node: `stop` stops its kubelet, `start` starts it again."""
REBOOT = "sandbox.nodelife.dev/reboot"
"""Annotation of a node: `20s` or `20s,kubeletVersion=v1.37.0` reboots its machine, which is down
for so long and may come back with another kubelet. It is taken off as the machine goes down."""

_FOR_EVER_NS = 1 << 62

_LEASE, _STATUS = "lease", "status"


class SandboxCluster:
    """A running simulated cluster. `now_ns` is its clock."""

    def __init__(
        self,
        setting: Setting,
        controllers: Sequence[Controller],
        *,
        documents: Iterable[tuple[str, dict[str, object]]] = (),
        now_ns: Callable[[], int] = time.time_ns,
        status_rules: StatusRules | None = None,
    ) -> None:
        """`documents`: whole objects, as (kind, document), that stand in for the setting's slices
        of the same names; other objects come from the slices. `status_rules`: of the kubelets'
        status managers; None: they have none.
        """
        self.clock = now_ns
        start_ns = now_ns()
        self.api = ServedApi(ObjectStore(), start_ns)
        self.api.profile = setting.profile
        self.api.default_tolerations = setting.admission
        self.api.store.kinds_read = frozenset(BY_KIND)
        gc.disable()  # a first fill makes only objects that stay
        self._fill(documents, setting.objects)
        gc.freeze()
        gc.enable()
        self.world = World(
            self.api,
            setting.scenario.kubelet,
            end_ns=_FOR_EVER_NS,
            status_rules=status_rules,
            scoring=setting.scoring,
            pace=setting.pace,
        )
        self.api.bind = self.world.scheduler.bind
        Script(self.world, setting.scenario.events, setting.profile)
        self._renewals = LeaseRenewals(self.api)
        kinds = sorted({kind for c in controllers for kind in c.watches})
        self.api.pending = []  # initial objects are listed, not sent as events
        listed = self.world.begin(kinds)
        self.engine = Engine(controllers, listed, join=setting.scenario.join, kinds=kinds)
        self._wake = asyncio.Event()
        self._heartbeats: dict[str, str] = {}

    def wake(self) -> None:
        """A client wrote: react now."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await drive(self, EngineHost(self.engine, self.world), TimeSlices())

    async def next(self, due_ns: int | None) -> Iterable[Tick]:
        """Wait until a client wrote or something is due; returns the events for the engine."""
        if not self.world.has_news:
            await self._wait(due_ns)
        self._wake.clear()
        now_ns = self.clock()
        _, events = self.world.advance(now_ns)
        self.world.ask_until(now_ns)
        self._renewals.run(now_ns)
        events = [*events, *self.api.pending]
        self.api.pending = []
        return [(now_ns, list(self._react(events)))]

    async def _wait(self, due_ns: int | None) -> None:
        """Wait until a client wrote or something is due."""
        agenda = self.world.agenda
        asked = (question[0] for question in agenda.questions[:1])
        parts = (agenda.next_at(), self._renewals.next_due(), *asked)
        due = [at_ns for at_ns in (due_ns, *parts) if at_ns is not None]
        wait_s = max(0.0, (min(due) - self.clock()) / 1e9) if due else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    def _react(self, events: Iterable[Event]) -> Iterable[Event]:
        """The events for the engine; schedules become writes, and nodes' annotations are obeyed."""
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
        """A node's annotation reboots its machine; an unreadable annotation is left as it is."""
        node = self.api.store.nodes.get(name)
        annotations = dict((node.metadata.annotations if node is not None else None) or {})
        reboot = read_reboot(annotations.pop(REBOOT, ""))
        if node is None or reboot is None:
            return
        down_ns, back = reboot
        meta = replace(node.metadata, annotations=annotations)
        self.api.put("Node", replace(node, metadata=meta))
        self.world.machines.reboot(name, down_ns, back, None)

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


class LeaseRenewals:
    """Keeps the schedule of every running kubelet, and writes what is due."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api
        self._timers = Timers()
        self._schedules: dict[str, Heartbeats] = {}

    def follow(self, schedule: Heartbeats) -> None:
        """Take over a kubelet's schedule, or end it."""
        node = schedule.node
        if schedule.stop_ns is not None:
            self._schedules.pop(node, None)
            self._timers.drop((_LEASE, node))
            self._timers.drop((_STATUS, node))
            return
        before = self._schedules.get(node)
        self._schedules[node] = schedule
        if before is None or before.first_ns != schedule.first_ns:
            self._timers.set((_LEASE, node), schedule.first_ns)
        if schedule.status_first_ns is not None:
            self._timers.set((_STATUS, node), schedule.status_first_ns)

    def next_due(self) -> int | None:
        """When the next write is due."""
        return self._timers.next_due()

    def run(self, now_ns: int) -> None:
        """Write what is due."""
        for key in self._timers.pop_due(now_ns):
            what, node = cast("tuple[str, str]", key)
            schedule = self._schedules[node]
            if what == _LEASE:
                self._renew(node, schedule, now_ns)
                self._timers.set(key, _next_renewal(schedule, now_ns))
            else:
                self._post(node, now_ns)
                every_ns = schedule.status_every_ns
                missed = (now_ns - (schedule.status_first_ns or 0)) // every_ns + 1
                self._timers.set(key, (schedule.status_first_ns or 0) + missed * every_ns)

    def _renew(self, node: str, schedule: Heartbeats, now_ns: int) -> None:
        present = self._api.served.get("Lease", ("kube-node-lease", node))
        shown = self._api.store.nodes.get(node)
        # As the kubelet's default: four renewals may be missed.
        seconds = max(1, 4 * schedule.every_ns // 1_000_000_000)
        uid = shown.uid if shown is not None else ""
        self._api.write(BY_KIND["Lease"], renewed_lease(present, node, uid, now_ns, seconds))

    def _post(self, name: str, now_ns: int) -> None:
        """A post that changes nothing but the heartbeat's time."""
        node = self._api.store.nodes.get(name)
        if not isinstance(node, Node):
            return
        now = whole_seconds(now_ns)
        conditions = tuple(replace(c, last_heartbeat_time=now) for c in node.status.conditions)
        self._api.put("Node", replace(node, status=replace(node.status, conditions=conditions)))


def _next_renewal(schedule: Heartbeats, now_ns: int) -> int:
    """The next instant of the kubelet's own phase, which its name decides."""
    every_ns = schedule.every_ns
    phase_ns = zlib.crc32(schedule.node.encode()) % 1000 * every_ns // 1000
    first_ns = schedule.first_ns + phase_ns
    if first_ns > now_ns:
        return first_ns
    return first_ns + ((now_ns - first_ns) // every_ns + 1) * every_ns


Documents = list[tuple[str, dict[str, Any]]]


class InitialObjects(NamedTuple):
    """The setting, and whole objects where they are known."""

    setting: Setting
    documents: Documents


def read_beginning(
    path: str | None, default: bytes, now_ns: int, read: Callable[[str], bytes]
) -> InitialObjects:
    """The scenario or dump in a file; without a file `default`, a scenario's text.

    t=0 is `now_ns`, whatever time the scenario has. `read` gives the bytes of a file. Raises
    BadInput.
    """
    if path is None:
        scenario = replace(parse_scenario(default, "the built-in scenario"), time_ns=now_ns)
        return InitialObjects(assemble(scenario), [])
    content = read(path)
    documents = list(_documents(content, path))
    if len(documents) == 1 and documents[0].get("apiVersion") == API_VERSION:
        scenario = replace(parse_scenario(content, path), time_ns=now_ns)
        if not scenario.snapshot:
            return InitialObjects(assemble(scenario), [])
        path = os.path.join(os.path.dirname(path), scenario.snapshot)
        content = read(path)
        documents = list(_documents(content, path))
    else:
        scenario = Scenario(file=path, name=os.path.basename(path), time_ns=now_ns)
    try:
        loaded = load_objects(content, path)
    except InputError as error:
        raise BadInput(str(error)) from None
    if loaded.unreadable:
        first = loaded.unreadable[0]
        raise BadInput(f"{first}: {first.why}", on=path, remedy="correct it or take it out")
    newest = _newest_kubelet(loaded.objects)
    given = Given(loaded.objects, frozenset(loaded.kinds_read), None, newest)
    return InitialObjects(assemble(scenario, given), list(_served(documents)))


def _documents(content: bytes, path: str) -> Iterator[dict[str, Any]]:
    """The documents of a file as plain objects."""
    try:
        data = utf8(content, path)
        if looks_like_json(data):
            try:
                documents: Iterable[Any] = [msgspec.json.decode(data)]
            except msgspec.DecodeError:
                documents = yaml_documents(data, path)
        else:
            documents = yaml_documents(data, path)
        yield from (d for d in documents if isinstance(d, dict))
    except InputError as error:
        raise BadInput(str(error)) from None


def _served(documents: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, object) of each object that the sandbox serves; Lists are opened."""
    for document in documents:
        kind, version = document.get("kind", ""), document.get("apiVersion", "")
        items = document.get("items")
        if isinstance(items, list):
            own = kind.removesuffix("List")
            for item in items:
                if isinstance(item, dict):
                    yield from _served([{"kind": own, "apiVersion": version, **item}])
            continue
        resource = BY_KIND_AND_VERSION.get((version, kind))
        meta = document.get("metadata")
        if resource is None or not isinstance(meta, dict) or not meta.get("name"):
            continue
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        else:
            meta.pop("namespace", None)
        yield resource.name, document


def _newest_kubelet(objects: Iterable[object]) -> Profile | None:
    profiles = []
    for obj in objects:
        if isinstance(obj, Node) and obj.status.node_info.kubelet_version:
            try:
                profiles.append(parse_profile(obj.status.node_info.kubelet_version))
            except ValueError:
                continue
    return max(profiles, key=lambda p: p.minor, default=None)
