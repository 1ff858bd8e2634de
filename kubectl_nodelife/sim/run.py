"""A run of a scenario until its end, on one virtual clock, and its summary: records with their
causes, the end state, and what was lost when.

The losses are nodes that were lost, with what became of their pods, and workloads that lost pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.engine.loop import Tick, drive
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node, zone_display, zone_key
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.pod_loops import Place, PodLoop, pod_loops
from kubectl_nodelife.sim.present import Branch
from kubectl_nodelife.sim.scenario import API_VERSION, Setting
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS as PASS_DRIFT_NS  # of a run's controllers
from kubectl_nodelife.sim.timeline import Record, Timeline, without_collector
from kubectl_nodelife.sim.upgrade_course import PlayedRun
from kubectl_nodelife.sim.upgrade_run import MakeDecider, VirtualUpgrades
from kubectl_nodelife.sim.world import Faults

_OWNERS: Final = ("DaemonSet", "ReplicaSet", "StatefulSet", "ReplicationController", "Job")


class NodeLoss(msgspec.Struct):
    """A node that was not Ready for a while. Instants are seconds since t=0, None for never.

    `silent_at`: its kubelet fell silent; `lost_at`: Ready was no longer True; `tainted_at`: it got
    a NoExecute taint; `back_at`: Ready was True again. `pods`: on it when it was lost; `deleted` of
    them by controllers between `first_deleted_at` and `last_deleted_at`; `finished`: gone since.
    """

    name: str
    zone: str
    ready: str
    silent_at: float | None
    lost_at: float
    tainted_at: float | None = None
    back_at: float | None = None
    pods: int = 0
    marked: int = 0
    deleted: int = 0
    first_deleted_at: float | None = None
    last_deleted_at: float | None = None
    finished: int = 0


class WorkloadLoss(msgspec.Struct):
    """A workload that lost pods: how many of how many, when, and how many new ones it has got
    since.
    """

    kind: str
    namespace: str
    name: str
    pods: int = 0
    deleted: int = 0
    first_deleted_at: float | None = None
    last_deleted_at: float | None = None
    replaced: int = 0


def node_losses(
    records: Iterable[Record], before: Cache, zones: Mapping[str, str]
) -> list[NodeLoss]:
    """The nodes in the order in which they were lost. `before`: the cluster at t=0."""
    tally = _Nodes(before, zones)
    for record in records:
        if not record.error:
            tally.take(record)
    return tally.losses


class _Nodes:
    """Goes through the records, and keeps track of where each pod is."""

    def __init__(self, before: Cache, zones: Mapping[str, str]) -> None:
        self.losses: list[NodeLoss] = []
        self._zones = zones
        self._open: dict[str, NodeLoss] = {}
        self._silent: dict[str, float] = {}
        self._node = {key: pod.spec.node_name for key, pod in before.pods.items()}
        self._on = Counter(self._node.values())
        self._deleted: set[Key] = set()

    def take(self, record: Record) -> None:
        """Process the next record."""
        obj = record.object
        if obj.kind == "Node":
            self._take_node(record, obj.name)
        elif obj.kind == "Pod":
            self._take_pod(record, (obj.namespace, obj.name))

    def _take_node(self, record: Record, name: str) -> None:
        loss = self._open.get(name)
        if (status := record.node_ready) is not None:
            if status != "True" and loss is None:
                self._lose(name, status, record.at)
            elif status == "True" and loss is not None:
                loss.back_at = record.at
                del self._open[name]
            elif loss is not None:
                loss.ready = status
        elif record.action == "RecordEvent" and record.controller == CLUSTER:
            if record.detail["reason"] == "HeartbeatsStopped":
                self._silent[name] = record.at
            elif record.detail["reason"] == "HeartbeatsStarted":
                self._silent.pop(name, None)
        elif (
            record.action == "AddTaint"
            and record.detail["effect"] == "NoExecute"
            and loss is not None
            and loss.tainted_at is None
        ):
            loss.tainted_at = record.at

    def _lose(self, name: str, status: str, at: float) -> None:
        zone = self._zones.get(name, "")
        loss = NodeLoss(name, zone, status, self._silent.get(name), at)
        loss.pods = self._on[name]
        self._open[name] = loss
        self.losses.append(loss)

    def _take_pod(self, record: Record, key: Key) -> None:
        node = self._node.get(key, "")
        if record.action == "CreatePod":
            self._node[key] = record.detail["node"]
            self._on[record.detail["node"]] += 1
            self._deleted.discard(key)
            return
        loss = self._open.get(node)
        if loss is not None and record.action == "MarkPodNotReady":
            loss.marked += 1
        elif loss is not None and record.action == "DeletePod":
            if record.controller != CLUSTER and key not in self._deleted:
                self._deleted.add(key)
                _count_deletion(loss, record.at)
            loss.finished += record.ends_pod and key in self._deleted
        if record.ends_pod and self._node.pop(key, None) is not None:
            self._on[node] -= 1


def workload_losses(records: Iterable[Record], before: Cache) -> list[WorkloadLoss]:
    """The workloads of which pods were evicted or collected, those that lost most first.

    `before`: the cluster as it was at t=0; pods that came later are known from their records.
    """
    losses: dict[Key, WorkloadLoss] = {}
    owners: dict[Key, Key] = {}
    deleted: set[tuple[str, str, str]] = set()
    for record in records:
        obj = record.object
        if obj.kind != "Pod" or record.error:
            continue
        key = (obj.namespace, obj.name)
        if record.action == "CreatePod":
            owners[key] = (obj.namespace, record.detail["owner"])
            if owners[key] in losses:
                losses[owners[key]].replaced += 1
        elif record.action == "DeletePod" and record.controller not in (CLUSTER, "daemonset"):
            if (*key, obj.uid) in deleted:
                continue
            deleted.add((*key, obj.uid))
            _count_deletion(_loss_of(key, owners, losses, before), record.at)
    return sorted(losses.values(), key=lambda w: (-w.deleted, w.namespace, w.name))


def _count_deletion(loss: NodeLoss | WorkloadLoss, at: float) -> None:
    loss.deleted += 1
    loss.last_deleted_at = at
    if loss.first_deleted_at is None:
        loss.first_deleted_at = at


def _loss_of(
    pod: Key, owners: dict[Key, Key], losses: dict[Key, WorkloadLoss], before: Cache
) -> WorkloadLoss:
    """The entry of the pod's owner; of the pod itself where nothing owns it."""
    present = before.pods.get(pod)
    owner = controller_of(present.metadata) if present is not None else None
    key = owners.get(pod) or ((pod[0], owner.name) if owner is not None else pod)
    loss = losses.get(key)
    if loss is None:
        kind = owner.kind if owner is not None else "Pod"
        loss = losses[key] = WorkloadLoss(kind, *key)
        loss.pods = len(before.pods_of(owner.uid)) if owner is not None else 1
    return loss


class RunSummary(msgspec.Struct, frozen=True):
    """A run for reports. `only`: the object that it was narrowed to, such as `node/a1`."""

    name: str
    settings: Settings
    start_ns: int
    duration_ns: int
    records: list[Record]
    final: dict[str, Any]
    nodes: list[NodeLoss]
    workloads: list[WorkloadLoss]
    loops: list[PodLoop]
    only: str = ""

    def document(self) -> dict[str, Any]:
        """The contract's Timeline."""
        final = {**self.final, "loops": self.loops} if self.loops else self.final
        return {
            "apiVersion": API_VERSION,
            "kind": "Timeline",
            "metadata": {"name": self.name},
            "profile": self.settings.profile.name,
            "flags": self.settings.flags,
            "start": format_time(self.start_ns),
            "duration": self.duration_ns / SECOND_NS,
            "records": self.records,
            "final": final,
        }


def summarize_run(
    run: Run, settings: Settings, zones: Mapping[str, Mapping[str, float]] | None = None
) -> RunSummary:
    """The summary of a whole run. `zones`: the controller's metrics at the end, by zone name."""
    records = run.timeline.records(run.failures)
    return RunSummary(
        name=run.setting.scenario.name,
        settings=settings,
        start_ns=run.setting.start_ns,
        duration_ns=run.end_ns - run.setting.start_ns,
        records=records,
        final=_final(run, settings, records, zones or {}),
        nodes=node_losses(records, run.setting.cluster, _zones(run, settings)),
        workloads=workload_losses(records, run.setting.cluster),
        loops=pod_loops(records, partial(_place_of, run.cluster)),
    )


def _place_of(cluster: Cache, created: Record, deleted: Record) -> Place:
    namespace, owner = created.object.namespace, created.detail["owner"]
    kinds = (kind for kind in _OWNERS if cluster.get(kind, (namespace, owner)) is not None)
    return next(kinds, ""), namespace, owner, created.detail["node"]


def narrowed(summary: RunSummary, run: Run, kind: str, key: Key) -> RunSummary | None:
    """The summary for one node with its pods, or for one pod; with the causes. None if it never
    existed.
    """
    homes = _homes(run, summary.records)
    nodes = [loss for loss in summary.nodes if kind == "Node" and loss.name == key[1]]
    if kind == "Node":
        about = {("Node", key), *(("Pod", pod) for pod, on in homes.items() if key[1] in on)}
        is_there = key[1] in run.setting.cluster.nodes
    else:
        about = {("Pod", key)}
        is_there = key in run.setting.cluster.pods
    chosen = [i for i, record in enumerate(summary.records) if _about(record) in about]
    if not chosen and not is_there:
        return None
    records = _with_causes(summary.records, chosen)
    only = f"{kind.lower()}/{'/'.join(filter(None, key))}"
    return msgspec.structs.replace(summary, records=records, nodes=nodes, workloads=[], only=only)


def _about(record: Record) -> tuple[str, Key]:
    return (record.object.kind, (record.object.namespace, record.object.name))


def _with_causes(records: list[Record], chosen: Iterable[int]) -> list[Record]:
    """These records and all that led to them, with causes as indexes among them."""
    wanted: set[int] = set()
    for index in chosen:
        at: int | None = index
        while at is not None and at not in wanted:
            wanted.add(at)
            at = records[at].cause
    order = sorted(wanted)
    place = {old: new for new, old in enumerate(order)}
    return [
        msgspec.structs.replace(r, cause=None if r.cause is None else place[r.cause])
        for r in (records[i] for i in order)
    ]


def _homes(run: Run, records: Iterable[Record]) -> dict[Key, list[str]]:
    """Pod -> the nodes that it was on; a StatefulSet's pod may have been on several."""
    homes: dict[Key, list[str]] = {}
    for key, pod in run.setting.cluster.pods.items():
        if pod.spec.node_name:
            homes[key] = [pod.spec.node_name]
    for record in records:
        if record.action == "CreatePod" and record.detail["node"]:
            key = (record.object.namespace, record.object.name)
            homes.setdefault(key, []).append(record.detail["node"])
    for key, pod in run.cluster.pods.items():
        node = pod.spec.node_name
        if node and node not in homes.setdefault(key, []):
            homes[key].append(node)  # it had to wait for one
    return homes


def _zones(run: Run, settings: Settings) -> dict[str, str]:
    """Node -> its zone as users write it."""
    nodes = {**run.setting.cluster.nodes, **run.cluster.nodes}
    return {name: _zone(node, settings) for name, node in nodes.items()}


def _zone(node: Node, settings: Settings) -> str:
    beta_only = settings.profile.has("beta_zone_labels_only")
    return zone_display(zone_key(node.metadata.labels, beta_only=beta_only))


def _final(
    run: Run,
    settings: Settings,
    records: Iterable[Record],
    metrics: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """The contract's `final`. Zones count as the controller does, where there is one."""
    cluster = run.cluster
    states = {r.object.name: r.detail for r in records if r.action == "SetZoneState"}
    zones: dict[str, dict[str, Any]] = {}
    nodes = []
    for name, node in sorted(cluster.nodes.items()):
        ready = node.ready()
        zone = _zone(node, settings)
        entry: dict[str, Any] = {
            "name": name,
            "ready": ready.status if ready is not None else None,
            "taints": sorted(f"{t.key}:{t.effect}" for t in node.spec.taints),
            "zone": zone,
        }
        if node.spec.unschedulable:
            entry["unschedulable"] = True
        nodes.append(entry)
        state = states.get(zone, {})
        counts = zones.setdefault(
            zone,
            {
                "name": zone,
                "state": state.get("to"),
                "rate": state.get("rate"),
                "nodes": 0,
                "notReady": 0,
            },
        )
        counts["nodes"] += 1
        counts["notReady"] += entry["ready"] != "True"
    for name, counted in metrics.items():
        if name not in zones:  # it vanished
            zones[name] = {"name": name, "state": None, "rate": None}
        if counted:
            size, unhealthy = counted["zoneSize"], counted["unhealthyNodesInZone"]
            zones[name].update(nodes=size, notReady=unhealthy, metrics=dict(counted))
    pods = _pod_counts(cluster.pods.values())
    pods["gone"] = sum(key not in cluster.pods for key in run.setting.cluster.pods)
    final = {"nodes": nodes, "zones": [zones[z] for z in sorted(zones)], "pods": pods}
    return final if run.upgrade is None else {**final, "upgrade": run.upgrade}


def _pod_counts(pods: Iterable[Pod]) -> dict[str, int]:
    counts = {"total": 0, "ready": 0, "notReady": 0, "terminating": 0, "unbound": 0}
    for pod in pods:
        counts["total"] += 1
        counts["ready" if pod.ready() else "notReady"] += 1
        counts["terminating"] += pod.metadata.deletion_timestamp is not None
        counts["unbound"] += not pod.spec.node_name
    return counts


Progress = Callable[[int], None]
"""Is called with the ns of virtual time that have passed, or with the number of nodes done."""


class Run(msgspec.Struct, frozen=True):
    """The result of a run: what was set, what happened, and the cluster at the end.

    `upgrade`: the contract's `final.upgrade`, and `course` which nodes were claimed when; None
    where there was no upgrade.
    """

    setting: Setting
    end_ns: int
    timeline: Timeline
    cluster: Cache
    failures: list[Outcome]
    upgrade: dict[str, Any] | None = None
    course: PlayedRun | None = None


def run(
    setting: Setting,
    controllers: Sequence[Controller],
    *,
    until_ns: int | None = None,
    faults: Faults | None = None,
    progress: Progress | None = None,
    make_decider: MakeDecider | None = None,
    until_upgraded: Progress | None = None,
    other_luck: bool = False,
) -> Run:
    """Play a scenario with these controllers, fresh ones. `until_ns`: end so long after t=0, if
    sooner. `make_decider`: of the scenario's upgrade, if any; `until_upgraded`: end with it; it
    is called with the number of nodes that are done so far. `other_luck`: of several nodes of the
    same score a pod gets the last, not the first.
    """
    duration_ns = setting.scenario.duration_ns
    if until_ns is not None:
        duration_ns = min(duration_ns, until_ns)
    with without_collector(stay=True):  # `World.end` removes the cycles
        branch = Branch.begin(setting, controllers, duration_ns=duration_ns, faults=faults)
        world, timeline = branch.world, branch.timeline
        placement = world.scheduler.placement
        placement.takes_last, placement.equals = other_luck, {}
        upgrades = None
        if make_decider is not None:
            upgrades = VirtualUpgrades(world, timeline, make_decider, branch.host)
            branch.script.upgrades = upgrades

        def next_tick(due_ns: int | None) -> Tick | None:
            if upgrades is not None and until_upgraded is not None:
                until_upgraded(upgrades.done)
                if upgrades.over or upgrades.stands_still:
                    return None
            tick = world.next(due_ns)
            if tick is not None and progress is not None:
                progress(tick[0] - setting.start_ns)
            return tick

        drive(next_tick, upgrades or branch.host)
        upgrade = upgrades.summary(timeline) if upgrades is not None else None
        course = upgrades.course(timeline) if upgrades is not None else None
        if course is not None:
            course.by_chance = bool(placement.equals)
        world.end()
    end_ns = setting.start_ns + duration_ns
    return Run(setting, end_ns, timeline, world.api.store, world.failures, upgrade, course)
