"""The present: a running cluster at one moment, joined, and the branches in which forecasts play
it.

`simulate` with `start: join`, `drain-plan`, `upgrade plan` and `what-if` play it; `status` and
`explain` read the same controllers before its first tick. Periodic work is not restarted: kubelets
go on in their own phases, taints in place are done work. A kind that was not read switches its part
off instead of counting as empty, and is listed; DaemonSets whose revisions were not read count as
up to date.

How a cluster is joined follows no upstream. A kubelet that reported in time goes on, whatever it
reports; one that is late stays silent, as `status` counts it down. No node is called lost by the
age of its status alone, where its Lease was not read.

A branch is a world with its controllers, played tick by tick on virtual time, and forked between
two ticks. Every play is one: `simulate` plays a scenario's to its end, a forecast forks the
present's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.daemonset import DaemonSetController, hash_of_all
from kubectl_nodelife.controllers.daemonset.history import new_revision
from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
from kubectl_nodelife.copy_on_write import unchanging
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine, EngineHost
from kubectl_nodelife.engine.events import Synced
from kubectl_nodelife.engine.heartbeat import Heartbeat, LastSignOfLife, sign_of_life
from kubectl_nodelife.engine.pace import FASTER_QPS, pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Node, NodeMeta
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS, human_duration
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH, NAMESPACE_NODE_LEASE
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.sim.api import Api, DefaultTolerationSeconds, event_record, made_uid
from kubectl_nodelife.sim.attached_volumes import AttachedVolumes
from kubectl_nodelife.sim.events import ScenarioEvent
from kubectl_nodelife.sim.failing_writes import FailingWrites
from kubectl_nodelife.sim.kubelet_state import HeartbeatSchedule, JoinedKubelets, KubeletTerms
from kubectl_nodelife.sim.pod_admission import PodAdmission
from kubectl_nodelife.sim.preemption import Preemption
from kubectl_nodelife.sim.scenario import (
    CONTROLLER_NAMES,
    HIGHEST_SCORE,
    PASS_DRIFT_NS,
    Scenario,
    Setting,
)
from kubectl_nodelife.sim.script import Script
from kubectl_nodelife.sim.timeline import PATIENCE_NS, Asker, Record, Timeline
from kubectl_nodelife.sim.timing import (
    FAST,
    MIDDLE,
    SLOW,
    LearntTerms,
    TimesToReady,
    Timing,
    is_on_its_way,
)
from kubectl_nodelife.sim.world import Faults, World
from kubectl_nodelife.workloads.scheduling import volumes_elsewhere

_MEANS: Final = {
    "Lease": "no node is lost because its kubelet alone does not report",
    "ControllerRevision": "DaemonSets are held as up to date",
    "DaemonSet": "pods of DaemonSets are not made again",
    "PodDisruptionBudget": "no budget holds an eviction up",
    "Service": "endpoints are not followed",
    "ReplicaSet": "their pods are replaced at once",
    "StatefulSet": "their pods are replaced at once",
    "Job": "their pods are replaced at once",
    "PersistentVolumeClaim": "volumes keep no pod on a node or in a zone",
}


_TERMS: Final = KubeletTerms()


class UnreadKind(msgspec.Struct, frozen=True):
    """A kind of which nothing was read, and what the play does instead."""

    kind: str
    means: str


class Present(msgspec.Struct, frozen=True, dict=True):
    """A running cluster at one moment, joined by its controllers.

    `next_pass_ns`: when the running node-lifecycle begins its next pass; None: not known.
    """

    setting: Setting
    settings: Settings
    unread: tuple[UnreadKind, ...]
    next_pass_ns: int | None = None

    def begin(
        self,
        duration_ns: int,
        *,
        controllers: Collection[str] = CONTROLLER_NAMES,
        timing: Timing = MIDDLE,
    ) -> Branch:
        """The play of it before its first tick; forks of it may have other events of t=0."""
        scenario = replace(self.setting.scenario, kubelet=self.terms(timing))
        setting = replace(self.setting, scenario=scenario)
        running = make_controllers(self.settings, controllers, pass_drift_ns=PASS_DRIFT_NS)
        for controller in running:
            if isinstance(controller, NodeLifecycleController):
                controller.memory.joined_pass_ns = self.next_pass_ns
        return Branch.begin(setting, running, duration_ns=duration_ns, joined=self.kubelets)

    @cached_property
    def assumed(self) -> tuple[str, ...]:
        """Sentences that must be printed with what is read from it."""
        return tuple(assumed_of(self.setting))

    @cached_property
    def kubelets(self) -> JoinedKubelets:
        """The kubelets that go on."""
        return joined_kubelets(self.setting)

    def terms(self, timing: Timing) -> LearntTerms:
        """The kubelets' terms, with the times learnt from the cluster's own pods."""
        cluster, terms = self.setting.cluster, self.setting.scenario.kubelet
        unsettled = cluster.unsettled_pods()
        waiting = volumes_elsewhere(cluster.pods.values(), unsettled, cluster.get)
        return LearntTerms(
            **asdict(terms),
            times=TimesToReady(
                cluster.pods_of,
                lambda namespace: (p for p in cluster.pods.values() if p.namespace == namespace),
                cluster.pods.values(),
            ),
            timing=timing,
            start_ns=self.setting.start_ns,
            starting=frozenset(
                pod.uid
                for pod in unsettled
                if pod.spec.node_name and is_on_its_way(pod) and pod.uid not in waiting
            ),
        )


def join(
    cluster: Cache,
    settings: Settings,
    now_ns: int,
    kinds_read: Iterable[str],
    *,
    late_renew: bool = False,
    next_pass_ns: int | None = None,
    kubelet: KubeletTerms = _TERMS,
    scheduler: str = HIGHEST_SCORE,
) -> Present:
    """The present of a cluster, which is not changed. `kinds_read`: kinds of which an object that
    is not there is known not to exist. `late_renew`: a late kubelet is slow, and not silent.
    `next_pass_ns`: as of `Present`. `kubelet`: terms of kubelets that the cluster does not show;
    `scheduler`: how a node is chosen, a key of SCHEDULERS.
    """
    scenario = Scenario("", "present", join=True, kubelet=kubelet, scheduler=scheduler)
    read = frozenset(kinds_read)
    setting = Setting(
        scenario, settings.profile, now_ns, cluster, read, late_kubelets_renew=late_renew
    ).under(settings)
    unread = tuple(UnreadKind(k, means) for k, means in _MEANS.items() if k not in read)
    return Present(setting, settings, unread, next_pass_ns)


def assumed_of(setting: Setting) -> Iterator[str]:
    """Sentences on what is assumed of kubelets that are late."""
    late_renew = setting.late_kubelets_renew
    for name, node in sorted(setting.cluster.nodes.items()):
        sign = last_sign(setting, node)
        age_ns = sign.age_ns(setting.start_ns)
        ready = node.ready()
        if age_ns is None or not sign.is_late(setting.start_ns):
            continue
        if ready is None or ready.status == "Unknown":
            continue
        lives = goes_on(node, sign, setting.start_ns, late_renew=late_renew)
        then = "is taken for slow" if lives else "stays silent"
        yield f"the kubelet of {name} last reported {human_duration(age_ns)} ago and {then}"


class Branch:
    """A fork of the present in which a forecast is played.

    `timeline` is what has happened on it since t=0.
    """

    def __init__(self, world: World, engine: Engine, timeline: Timeline) -> None:
        self.world, self.engine, self.timeline = world, engine, timeline
        self.host = EngineHost(engine, world)

    @classmethod
    def begin(
        cls,
        setting: Setting,
        controllers: Sequence[Controller],
        *,
        duration_ns: int | None = None,
        faults: Faults | None = None,
        joined: JoinedKubelets | None = None,
    ) -> Branch:
        """A branch before its first tick. `controllers`: new; `duration_ns` None: the scenario's;
        `joined`: the kubelets that go on, where that is known.

        The events of t=0 are still to come, so that a fork may have others before them.
        """
        scenario, timeline = setting.scenario, Timeline(setting.start_ns)
        length_ns = scenario.duration_ns if duration_ns is None else duration_ns
        cluster = joined_cluster(setting) if scenario.join else setting.cluster.copy()
        cluster.kinds_read = setting.kinds_read
        api = Api(timeline, setting.start_ns, cluster)
        api.profile = setting.profile
        api.default_tolerations = setting.admission
        api.stamped = setting.stamped or setting.admission
        world = World(
            api,
            scenario.kubelet,
            end_ns=setting.start_ns + length_ns,
            faults=faults,
            failing=FailingWrites(w, setting.start_ns) if (w := scenario.failing_writes) else None,
            failing_reads=scenario.failing_reads,
            status_rules=setting.status_rules,
            scoring=setting.scoring,
            pace=setting.pace,
        )
        _add_parts(world, setting)
        kinds = sorted({kind for c in controllers for kind in c.watches})
        if joined is None and scenario.join:
            joined = joined_kubelets(setting)
        listed = world.begin(kinds, joined)
        engine = Engine(
            controllers,
            listed,
            join=scenario.join,
            kinds=kinds,
            numbers=api.numbers,
            awaits_writes=True,
        )
        return cls(world, engine, timeline)

    def fork(self) -> Branch:
        """Another branch at the same point. Raises NotForkableError."""
        timeline = self.timeline.fork()
        world = self.world.fork(timeline)
        return Branch(world, self.engine.fork(world.api.numbers), timeline)

    def fork_under(self, timing: Timing) -> Branch:
        """Another branch of the same present, in which things take as long as that timing says; the
        controllers' clients too, where their pace was not seen. Before the first tick, or after one
        that changed nothing. Raises NotForkableError.
        """
        branch = self.fork()
        kubelets = branch.world.kubelets
        if isinstance(kubelets.terms, LearntTerms):
            kubelets.behave(replace(kubelets.terms, timing=timing))
        branch.world.owners.job_failures = timing.job_failures
        if timing is SLOW:
            for controller in branch.engine.controllers:
                if isinstance(controller, DaemonSetController):
                    api = branch.world.api
                    controller.assume_longest_back_offs(api.store, api.now_ns)
        clients = branch.world.clients
        if timing is FAST and clients is not None and not clients.pace.is_seen:
            branch.world.restart_clients(clients.pace.at(FASTER_QPS))
        return branch

    def react_after(self, timing: Timing) -> None:
        """Owners and the disruption controller, which react at once otherwise, take as long as that
        timing says. When `fork_under` may be called.
        """
        world = self.world
        world.owners.delay_ns, world.owners.cut_ns = timing.controller_ns, timing.cut_ns
        world.disruption.take_time(timing.controller_ns)

    def prepare(self) -> None:
        """Compute once what each of many forks would compute: nodes for each class of pods."""
        self.world.scheduler.placement.prepare(self.world.api.store.pods.values())

    @property
    def script(self) -> Script:
        """The script that plays its events."""
        script = self.world.agenda.parts[Script]
        assert isinstance(script, Script)
        return script

    def add(self, events: Iterable[ScenarioEvent]) -> None:
        """Play these events too; each one's `at_ns` counts from now."""
        self.script.add(events)

    def step(self) -> bool:
        """Play one tick; True if there was one."""
        tick = self.world.next(self.host.next_due())
        if tick is not None:
            deque(self.host.step(*tick), maxlen=0)
        return tick is not None

    def restart(self, controllers: Sequence[Controller], at_ns: int, settings: Settings) -> None:
        """Play up to that instant, at which these controllers replace the running ones, with
        clients of another pace, and pods begin to get other tolerations."""
        world = self.world
        if at_ns > world.api.now_ns:
            self.play_to(at_ns - 1)
        if at_ns > world.end_ns:
            return
        kinds = sorted({kind for c in controllers for kind in c.watches})
        world.advance(at_ns)
        why = "kube-controller-manager is started anew"
        api = world.api
        api.note(event_record(("Controllers", "", "kube-controller-manager"), "Restarted", why))
        seconds = settings.default_toleration_seconds
        api.default_tolerations = DefaultTolerationSeconds(*seconds)
        world.kubelets.publish_all(None)
        api.pending.extend(Synced(kind) for kind in kinds)
        world.restart_clients(pace_of(settings))
        self.engine = Engine(
            controllers, api.store.copy(), kinds=kinds, numbers=api.numbers, awaits_writes=True
        )
        self.host = EngineHost(self.engine, world)

    def due(self) -> Iterator[tuple[int, str]]:
        """(instant, name) of all that is still to happen, except passes that look at nothing:
        controllers by name, parts of the world by their class."""
        yield from self.world.agenda.due()
        yield from ((at_ns, name) for at_ns, name, _ in self.engine.due())

    @property
    def rests(self) -> bool:
        """True if nothing happens any more: all that is due are heartbeats, and passes of
        controllers that look at nothing."""
        return self.world.rests and self.engine.rests

    def play_to(self, at_ns: int) -> None:
        """Play all that happens up to that instant, itself included."""
        world = self.world
        end_ns, world.end_ns = world.end_ns, min(world.end_ns, at_ns)
        self.play()
        world.end_ns = end_ns

    def play_until_quiet(self) -> None:
        """Play until nothing happens any more, or to the end."""
        while not self.rests and self.step():
            pass

    def play(self, ticks: int | None = None) -> int:
        """Play `ticks` ticks, or to the end; returns how many were played."""
        played = 0
        while played != ticks and self.step():
            played += 1
        return played

    def play_out(self, asker: Asker, controllers_until_ns: int) -> None:
        """Play until nothing happens any more, or the asker's questions alone are left, each with
        the answer that it had before. Controllers are woken until that instant at most; and passes
        that look at nothing are left out where nothing else happens for long.
        """
        world = self.world
        world.asker = asker
        while (tick := world.next(self._next_look(controllers_until_ns))) is not None:
            deque(self.host.step(*tick), maxlen=0)

    def _next_look(self, until_ns: int) -> int | None:
        """When the controllers are due that still have something to look at."""
        due_ns, now_ns = self.host.next_due(), self.world.api.now_ns
        if due_ns is None or due_ns > until_ns:
            return None
        next_ns = self.world.agenda.next_at()
        soon = next_ns is not None and next_ns - now_ns < PATIENCE_NS
        return due_ns if soon or not self.engine.rests else None

    def records(self) -> list[Record]:
        """The records of all that has happened so far."""
        return self.timeline.records(self.world.failures)


_REVISION = "ControllerRevision"
_ON_DELETE = "OnDelete"


def joined_kubelets(setting: Setting) -> JoinedKubelets:
    """The kubelets that go on."""
    cluster, every_ns, alive = setting.cluster, {}, {}
    seen = _LeasesSeen(unchanging(cluster.heartbeats), cluster)
    for node in (*cluster.nodes.values(), *_nodes_that_are_gone(cluster)):
        sign = sign_of_life(node, seen, setting.start_ns, setting.leases_count)
        if goes_on(node, sign, setting.start_ns, late_renew=setting.late_kubelets_renew):
            name = node.name
            every_ns[name] = setting.scenario.kubelet.lease_renew_interval_ns or sign.every_ns
            alive[name] = node, sign
    return JoinedKubelets(every_ns, lambda name: _heartbeats_of(setting, *alive[name]))


class _LeasesSeen(NamedTuple):
    """The Leases of a cluster, of whose heartbeats none is copied, since none is changed here."""

    heartbeats: Mapping[str, Heartbeat]
    cluster: Cache

    def heartbeat(self, node: str) -> Heartbeat | None:
        """See `Cache`."""
        return self.heartbeats.get(node)

    def get(self, kind: str, key: tuple[str, str]) -> KubeObject | None:
        """See `Cache`."""
        return self.cluster.get(kind, key)


def _add_parts(world: World, setting: Setting) -> None:
    """What acts in the world beside its controllers: the scenario's events, preemption, volumes
    where there are claims, and kubelets that reject pods."""
    scenario = setting.scenario
    Script(world, scenario.events, setting.profile, joins=scenario.join)
    Preemption(world, marks=setting.profile.has("disruption_target"))
    if any(True for _ in world.api.store.all("PersistentVolumeClaim")):
        AttachedVolumes(world)
    PodAdmission(world)


def _nodes_that_are_gone(cluster: Cache) -> Iterator[Node]:
    """An empty Node for each Lease without one: a kubelet outlives its Node object, and belongs to
    a Node of the same name that is made later.
    """
    for name in cluster.heartbeats:
        key = NAMESPACE_NODE_LEASE, name
        if name not in cluster.nodes and cluster.get("Lease", key) is not None:
            yield Node(NodeMeta(name=name))


def last_sign(setting: Setting, node: Node) -> LastSignOfLife:
    """The node's last sign of life at t=0."""
    return sign_of_life(node, setting.cluster, setting.start_ns, setting.leases_count)


def goes_on(node: Node, sign: LastSignOfLife, now_ns: int, *, late_renew: bool = False) -> bool:
    """True if the node's kubelet is alive."""
    ready = node.ready()
    if sign.at_ns is None:
        return ready is not None and ready.status != "Unknown"
    if late_renew and ready is not None and ready.status != "Unknown":
        return True
    return not sign.is_late(now_ns)


def _heartbeats_of(setting: Setting, node: Node, sign: LastSignOfLife) -> HeartbeatSchedule:
    """When it renews and posts next; a phase that the scenario gives takes precedence."""
    now_ns, terms = setting.start_ns, setting.scenario.kubelet
    every_ns = terms.lease_renew_interval_ns or sign.every_ns
    if terms.lease_renew_phase_ns is not None:
        first_ns = now_ns + terms.lease_renew_phase_ns
    else:
        first_ns = _next_of(sign.at_ns, every_ns, now_ns)
    ready = node.ready()
    posted = ready.last_heartbeat_time if ready is not None else None
    if posted is None:
        return HeartbeatSchedule(first_ns, every_ns, first_ns)
    posted_ns = _uncut(int(posted), first_ns, every_ns)
    return HeartbeatSchedule(first_ns, every_ns, _next_of(posted_ns, terms.post_every_ns, now_ns))


def _uncut(posted_ns: int, first_ns: int, every_ns: int) -> int:
    """When the status was posted, of which the API keeps whole seconds: with the renewal in that
    second, if there was one.
    """
    later_ns = (first_ns - posted_ns) % every_ns
    return posted_ns + later_ns if later_ns < SECOND_NS else posted_ns


def _next_of(at_ns: int | None, every_ns: int, now_ns: int) -> int:
    """The first of at + k x every that is not before now; that of `at` has come."""
    if at_ns is None:
        return now_ns
    return at_ns + max(1, -((at_ns - now_ns) // every_ns)) * every_ns


def joined_cluster(setting: Setting) -> Cache:
    """A copy of the cluster to play on."""
    cluster = setting.cluster.fork()
    for daemon_set in list(cluster.all("DaemonSet")):
        if isinstance(daemon_set, DaemonSet) and not _makes_its_own(daemon_set):
            cluster.set("DaemonSet", daemon_set.key, None)
    if _REVISION not in setting.kinds_read:
        hold_up_to_date(cluster, setting.start_ns)
    return cluster


def _makes_its_own(daemon_set: DaemonSet) -> bool:
    """False where the template does not have the labels that the selector wants, as the API server
    asks (ValidateDaemonSetSpec): it was not read, and its pods would be made without end.
    """
    meta = daemon_set.spec.template.get("metadata") or {}
    return matches(daemon_set.spec.selector, meta.get("labels"))


def hold_up_to_date(cluster: Cache, now_ns: int) -> None:
    """Give each DaemonSet a revision, where none were read: none of their pods counts as old."""
    for daemon_set in cluster.all("DaemonSet"):
        if isinstance(daemon_set, DaemonSet):
            _hold_up_to_date(cluster, daemon_set, now_ns)


def _hold_up_to_date(cluster: Cache, daemon_set: DaemonSet, now_ns: int) -> None:
    """A DaemonSet whose revisions were not read gets one, that of its newest pod. Where its pods
    have several, it is not known which are old, and none is replaced for it.
    """
    known = hash_of_all(cluster, daemon_set)
    hashes = list(_hashes(cluster, daemon_set)) if known is None else [known]
    if not hashes:
        return
    revision = new_revision(daemon_set, 1)
    labels = {**(revision.metadata.labels or {}), LABEL_CONTROLLER_REVISION_HASH: hashes[-1]}
    meta = replace(
        revision.metadata,
        name=f"{daemon_set.name}-{hashes[-1]}",
        uid=made_uid(len(cluster.objects.get(_REVISION, ())), 0x4E5F),
        labels=labels,
        creation_timestamp=Time(daemon_set.metadata.creation_timestamp or now_ns),
    )
    held: ControllerRevision = replace(revision, metadata=meta)
    cluster.set(_REVISION, held.key, held)
    strategy = daemon_set.spec.update_strategy
    if len(set(hashes)) > 1 and strategy.type != _ON_DELETE:
        spec = replace(daemon_set.spec, update_strategy=replace(strategy, type=_ON_DELETE))
        cluster.set("DaemonSet", daemon_set.key, replace(daemon_set, spec=spec))


def _hashes(cluster: Cache, daemon_set: DaemonSet) -> Iterator[str]:
    """The revision hashes of its pods, the newest pod's last."""
    pods = cluster.pods_of(daemon_set.uid)
    for pod in sorted(pods, key=lambda p: (p.metadata.creation_timestamp or 0, p.name)):
        revision_hash = (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH)
        if revision_hash:
            yield revision_hash
