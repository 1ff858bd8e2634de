"""A run of a scenario until its end, on one virtual clock, and its summary: records with their
causes, the end state, and what was lost when (`sim/reading.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.document import document
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Tick, drive
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node, zone_display, zone_key
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_time
from kubectl_nodelife.sim.present import Branch
from kubectl_nodelife.sim.reading import Courses, NodeLoss, PodLoop, WorkloadLoss, pod_loops
from kubectl_nodelife.sim.scenario import Setting
from kubectl_nodelife.sim.timeline import Record, Timeline, without_collector
from kubectl_nodelife.sim.upgrade_course import PlayedRun
from kubectl_nodelife.sim.upgrade_run import MakeDecider, VirtualUpgrades
from kubectl_nodelife.sim.world import Faults


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
    course: PlayedRun | None = None
    only: str = ""

    def document(self) -> dict[str, Any]:
        """The contract's Timeline."""
        final = {**self.final, "loops": self.loops} if self.loops else self.final
        return document(
            "Timeline",
            metadata={"name": self.name},
            profile=self.settings.profile.name,
            flags=self.settings.flags,
            start=format_time(self.start_ns),
            duration=self.duration_ns / SECOND_NS,
            records=self.records,
            final=final,
        )


def summarize_run(
    run: Run, settings: Settings, zones: Mapping[str, Mapping[str, float]] | None = None
) -> RunSummary:
    """The summary of a whole run. `zones`: the controller's metrics at the end, by zone name."""
    records, courses = run.timeline.records(run.failures), run.courses
    zones_of = _zones(run, settings)
    nodes = [replace(loss, zone=zones_of.get(loss.name, "")) for loss in courses.losses]
    return RunSummary(
        name=run.setting.scenario.name,
        settings=settings,
        start_ns=run.setting.start_ns,
        duration_ns=run.end_ns - run.setting.start_ns,
        records=records,
        final=_final(run, settings, zones or {}),
        nodes=nodes,
        workloads=courses.workload_losses(),
        loops=pod_loops(courses),
        course=run.course,
    )


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
    return replace(summary, records=records, nodes=nodes, workloads=[], course=None, only=only)


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
        replace(r, cause=None if r.cause is None else place[r.cause])
        for r in (records[i] for i in order)
    ]


def _homes(run: Run, records: Iterable[Record]) -> dict[Key, set[str]]:
    """Pod -> the nodes that it was on, or was to be made for; a StatefulSet's pod may have been on
    several.
    """
    homes: defaultdict[Key, set[str]] = defaultdict(set)
    for key, pod in chain(run.setting.cluster.pods.items(), run.cluster.pods.items()):
        homes[key].add(pod.spec.node_name)
    for record in records:
        if record.action == "CreatePod":
            homes[record.object.namespace, record.object.name].add(record.detail["node"])
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
    metrics: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """The contract's `final`. Zones count as the controller does, where there is one."""
    cluster = run.cluster
    states = {zone: taken[-1].action for zone, taken in run.courses.zones.items()}
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
        state = states.get(zone)
        judged = {"name": zone, "state": state and state.to, "rate": state and state.rate}
        counts = zones.setdefault(zone, {**judged, "nodes": 0, "notReady": 0})
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


class Run(msgspec.Struct, frozen=True, dict=True):
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

    @cached_property
    def courses(self) -> Courses:
        """What became of its nodes, pods and zones."""
        return Courses(self.timeline, self.failures, self.setting.cluster)


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
        world.disruption.count_all()
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
        upgrade, course = None, upgrades.course(timeline) if upgrades is not None else None
        if upgrades is not None and upgrades.watch is not None and course is not None:
            course.by_chance = bool(placement.equals)
            upgrade = upgrades.watch.document(course)
        world.end()
    end_ns = setting.start_ns + duration_ns
    return Run(setting, end_ns, timeline, world.api.store, world.failures, upgrade, course)
