"""Scenarios: what there is at t=0, what happens, and for how long.

`scenario_document` reads one; `assemble` puts it and a snapshot together and checks the rest, such
as an event about a node that never exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.profiles import NEWEST, Profile, parse_profile
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MILLISECOND_NS, MINUTE_NS, SECOND_NS, parse_time
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for
from kubectl_nodelife.sim.api import made_uid
from kubectl_nodelife.sim.container_reading import ContainerEvent, ResourcesEvent
from kubectl_nodelife.sim.defaults import DefaultTolerationSeconds, as_created
from kubectl_nodelife.sim.events import (
    ApplyEvent,
    CordonEvent,
    DrainEvent,
    KubeletEvent,
    LoseEvent,
    ScenarioEvent,
    TaintEvent,
)
from kubectl_nodelife.sim.failing_writes import FailingWrite
from kubectl_nodelife.sim.fields import nearest
from kubectl_nodelife.sim.generate import GENERATED_KINDS, Generate, generate
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.workloads.scoring import FewestPods, HighestScore, Scoring

API_VERSION = "nodelife.dev/v1alpha1"
STATUS_MANAGERS = "pod-status"
CONTROLLER_NAMES = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc", STATUS_MANAGERS)
FEWEST_PODS = "FewestPods"
HIGHEST_SCORE = "HighestScore"
SCHEDULERS: Final[Mapping[str, Callable[[], Scoring]]] = {
    FEWEST_PODS: FewestPods,
    HIGHEST_SCORE: HighestScore,
}
PASS_DRIFT_NS = MILLISECOND_NS
"""By how much each monitor pass begins late, a period after the one before: real ones drift."""

DEFAULT_TIME_NS = int(parse_time("2026-01-01T00:00:00Z"))
DEFAULT_DURATION_NS = 20 * MINUTE_NS

_OF_STATUS_MANAGERS = (ContainerEvent, ResourcesEvent)


class Scenario(msgspec.Struct, frozen=True):
    """A scenario as written; None where it says nothing. `objects` come without the snapshot's.

    `scheduler`: how a node is chosen among those that fit, a key of SCHEDULERS; "": by the
    scheduler's scores, where some pod that is given says what it asks for.
    """

    file: str
    name: str
    profile: Profile | None = None
    join: bool = False
    flags: dict[str, object] = {}
    controllers: tuple[str, ...] = CONTROLLER_NAMES
    time_ns: int | None = None
    duration_ns: int = DEFAULT_DURATION_NS
    snapshot: str = ""
    objects: tuple[KubeObject, ...] = ()
    generate: Generate | None = None
    kubelet: KubeletTerms = KubeletTerms()
    scheduler: str = ""
    events: tuple[ScenarioEvent, ...] = ()
    failing_writes: tuple[FailingWrite, ...] = ()


class Given(NamedTuple):
    """A snapshot's part in a scenario. `kinds_read`: kinds of which it speaks."""

    objects: Iterable[KubeObject]
    kinds_read: frozenset[str] = frozenset()
    moment_ns: int | None = None
    profile: Profile | None = None


class Setting(msgspec.Struct, frozen=True):
    """A scenario ready to run: what is there at t=0, and when that is (ns since the epoch).

    `cluster` is not to be changed; a run works on a copy. `kinds_read`: kinds of which an object
    that is not there is known not to exist. `admission`: what pods get that are made from then on.
    `stamped`: what they had got that are there, if that was something else.
    `leases_count`: whether renewals are signs of life, or status posts alone.
    `late_kubelets_renew`: a kubelet that is late when it is joined is slow, and not silent.
    """

    scenario: Scenario
    profile: Profile
    start_ns: int
    cluster: Cache
    kinds_read: frozenset[str]
    admission: DefaultTolerationSeconds = DefaultTolerationSeconds()
    stamped: DefaultTolerationSeconds | None = None
    leases_count: bool = True
    late_kubelets_renew: bool = False

    def under(self, settings: Settings) -> Setting:
        """The same with kubelets and an API server that behave as those settings have it."""
        kubelet = self.scenario.kubelet.for_leases(settings.leases_count)
        admission = DefaultTolerationSeconds(*settings.default_toleration_seconds)
        scenario = replace(self.scenario, kubelet=kubelet)
        counts = settings.leases_count
        return replace(self, scenario=scenario, admission=admission, leases_count=counts)

    @property
    def scoring(self) -> Scoring:
        """How the scheduler chooses among nodes. Scores say little of pods that ask for nothing:
        scenarios without requests, and synthetic clusters, keep the order in which they are
        computed by hand.
        """
        name, pods = self.scenario.scheduler, self.cluster.pods.values()
        if not name:
            asks = self.scenario.generate is None and any(
                c.resources.requests for pod in pods for c in pod.spec.containers
            )
            name = HIGHEST_SCORE if asks else FEWEST_PODS
        return SCHEDULERS[name]()

    @property
    def status_rules(self) -> StatusRules | None:
        """The rules of the kubelets' status managers; None where none run."""
        return rules_for(self.profile) if STATUS_MANAGERS in self.scenario.controllers else None

    @property
    def objects(self) -> Iterator[KubeObject]:
        """All objects of the cluster."""
        yield from self.cluster.nodes.values()
        for store in self.cluster.objects.values():
            yield from store.values()
        yield from self.cluster.pods.values()


def assemble(scenario: Scenario, given: Given | None = None) -> Setting:
    """Put together what is there at t=0. Raises BadInput."""
    start_ns = scenario.time_ns
    if start_ns is None and given is not None:
        start_ns = given.moment_ns
    if start_ns is None:
        start_ns = DEFAULT_TIME_NS
    profile = scenario.profile or (given.profile if given is not None else None)
    profile = profile or parse_profile(NEWEST)
    sources: list[Iterable[KubeObject]] = [given.objects] if given is not None else []
    if scenario.generate is not None:
        sources.append(generate(scenario.generate, start_ns, profile.name))
    sources.append(scenario.objects)
    cluster = Cache()
    objects = _completed(chain.from_iterable(sources), start_ns)
    if not scenario.join:
        objects = (_posted(obj) if type(obj) is Node else obj for obj in objects)
    cluster.fill(objects, start_ns)
    _check_nodes(scenario, cluster.nodes)
    kinds_read = frozenset(kind_of(obj) for obj in scenario.objects)
    if given is not None:
        kinds_read |= given.kinds_read
    if scenario.generate is not None:
        kinds_read |= GENERATED_KINDS
    return Setting(scenario, profile, start_ns, cluster, kinds_read)


def _completed(objects: Iterable[KubeObject], start_ns: int) -> Iterator[KubeObject]:
    """The objects with what the API server would have given them at creation."""
    made = Time((start_ns - 2 * SECOND_NS) // SECOND_NS * SECOND_NS)
    for number, obj in enumerate(objects):
        meta = obj.metadata
        if meta.creation_timestamp is None or not meta.uid:
            created = meta.creation_timestamp or made
            uid = meta.uid or made_uid(number, 0x0B1E)
            obj = replace(obj, metadata=replace(meta, creation_timestamp=created, uid=uid))
            obj = as_created(obj)
        elif type(obj) is DaemonSet:
            obj = as_created(obj)  # a hand-written one may have a uid and lack its defaults
        yield _booted(obj, number) if type(obj) is Node else obj


def _booted(node: Node, number: int) -> Node:
    """A node that says no bootID has one, as each real node."""
    info = node.status.node_info
    if info.boot_id:
        return node
    info = replace(info, boot_id=made_uid(number, 0xB007))
    return replace(node, status=replace(node.status, node_info=info))


def _posted(node: Node) -> Node:
    """Conditions that say no lastHeartbeatTime were posted when the node was made, as a cluster's
    have been: a Node of the same name that is made later without one gives another sign of life.
    """
    conditions = node.status.conditions
    if all(condition.last_heartbeat_time is not None for condition in conditions):
        return node
    made = node.metadata.creation_timestamp
    conditions = tuple(
        c if c.last_heartbeat_time is not None else replace(c, last_heartbeat_time=made)
        for c in conditions
    )
    return replace(node, status=replace(node.status, conditions=conditions))


def _check_nodes(scenario: Scenario, present: Iterable[str]) -> None:
    """An event may only name nodes that exist at some time."""
    for event in scenario.events:
        if isinstance(event.what, _OF_STATUS_MANAGERS) and (
            STATUS_MANAGERS not in scenario.controllers
        ):
            what = f"the kubelets' status managers ({STATUS_MANAGERS}) do not run"
            raise event.place.fault(what, f"add {STATUS_MANAGERS} to controllers")
    nodes = set(present)
    for event in scenario.events:
        if isinstance(event.what, ApplyEvent) and event.what.kind.name == "Node":
            nodes.add(event.what.name)
    for event in scenario.events:
        if isinstance(event.what, (KubeletEvent, TaintEvent, CordonEvent, DrainEvent, LoseEvent)):
            for i, name in enumerate(event.what.targets.nodes):
                if name not in nodes:
                    place = event.place.key("nodes").item(i)
                    raise place.fault(f"node {name} never exists", nearest(name, sorted(nodes)))
