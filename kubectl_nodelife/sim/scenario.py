"""Scenarios: what there is at t=0, what happens, and for how long.

`parse_scenario` reads one; `assemble` puts it and a snapshot together and checks the rest, such as
an event about a node that never exists.

Reads a scenario from its document, and checks everything that can be checked without the snapshot.
The format is in docs/scenario.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.pace import Pace, pace_of
from kubectl_nodelife.engine.settings import NEWEST, Profile, Settings, parse_profile
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.codec import mended
from kubectl_nodelife.kube.documents import looks_like_json, utf8, yaml_documents
from kubectl_nodelife.kube.kinds import find_kind, kind_of
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MILLISECOND_NS, MINUTE_NS, SECOND_NS, parse_time
from kubectl_nodelife.kube.unreadable import InputError, Unreadable
from kubectl_nodelife.kube.workload import DaemonSet
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for
from kubectl_nodelife.sim.api import DefaultTolerationSeconds, as_created, made_uid, refusal
from kubectl_nodelife.sim.clients import FailingRead, read_failing_reads
from kubectl_nodelife.sim.events import (
    ApplyEvent,
    ContainerEvent,
    CordonEvent,
    DrainEvent,
    KubeletEvent,
    LeaseTouchEvent,
    LoseEvent,
    ResourcesEvent,
    ScenarioEvent,
    TaintEvent,
    decode_at,
    read_events,
)
from kubectl_nodelife.sim.failing_writes import FailingWrite, read_failing_writes
from kubectl_nodelife.sim.fields import (
    FieldPath,
    Fields,
    count,
    duration_ns,
    mapping,
    nearest,
    one_of,
    sequence,
    some_of,
    struct,
    switch,
    text,
)
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
"""How late each monitor pass begins, one period after the one before: real ones drift."""

DEFAULT_TIME_NS = int(parse_time("2026-01-01T00:00:00Z"))
DEFAULT_DURATION_NS = 20 * MINUTE_NS

_OF_STATUS_MANAGERS = (ContainerEvent, ResourcesEvent)
_OF_NODES = (KubeletEvent, TaintEvent, CordonEvent, DrainEvent, LoseEvent, LeaseTouchEvent)


class Scenario(msgspec.Struct, frozen=True):
    """A scenario as written; None for fields not given. `objects` come without the snapshot's.

    `scheduler`: how a node is chosen among those that fit, a key of SCHEDULERS; "": by the
    scheduler's scores, where some pod that is given has requests.
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
    failing_reads: tuple[FailingRead, ...] = ()


class Given(NamedTuple):
    """A snapshot's part in a scenario. `kinds_read`: the kinds that it covers; `unreadable`: what
    is there and cannot be read, or may be there: nothing is decided on it."""

    objects: Iterable[KubeObject]
    kinds_read: frozenset[str] = frozenset()
    moment_ns: int | None = None
    profile: Profile | None = None
    unreadable: tuple[Unreadable, ...] = ()


class Setting(msgspec.Struct, frozen=True):
    """A scenario ready to run: what is there at t=0, and when that is (ns since the epoch).

    `cluster` is not to be changed; a run works on a copy. `kinds_read`: kinds of which an object
    that is not there is known not to exist. `admission`: what pods get that are made from then on.
    `stamped`: what the existing pods had got, if that was something else.
    `leases_count`: whether renewals are signs of life, or status posts alone.
    `pace`: of the controllers' clients; None: no limit.
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
    pace: Pace | None = None

    def under(self, settings: Settings) -> Setting:
        """The same with kubelets and an API server that behave as those settings have it."""
        kubelet = self.scenario.kubelet.for_leases(settings.leases_count)
        admission = DefaultTolerationSeconds(*settings.default_toleration_seconds)
        return replace(
            self,
            scenario=replace(self.scenario, kubelet=kubelet),
            admission=admission,
            leases_count=settings.leases_count,
            pace=pace_of(settings),
        )

    @property
    def scoring(self) -> Scoring:
        """How the scheduler chooses among nodes. Scores mean little for pods without requests:
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
        return self.cluster.everything()


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
    cluster.fill(objects, start_ns, given.unreadable if given is not None else ())
    _check_nodes(scenario, cluster.nodes)
    kinds_read = frozenset(kind_of(obj) for obj in scenario.objects)
    if given is not None:
        kinds_read |= given.kinds_read
    if scenario.generate is not None:
        kinds_read |= GENERATED_KINDS
    cluster.kinds_read = kinds_read
    return Setting(scenario, profile, start_ns, cluster, kinds_read)


def _completed(objects: Iterable[KubeObject], start_ns: int) -> Iterator[KubeObject]:
    """The objects with what the API server would have given them at creation."""
    created_before = Time((start_ns - 2 * SECOND_NS) // SECOND_NS * SECOND_NS)
    for number, obj in enumerate(objects):
        meta = obj.metadata
        if meta.creation_timestamp is None or not meta.uid:
            created = meta.creation_timestamp or created_before
            uid = meta.uid or made_uid(number, 0x0B1E)
            obj = replace(obj, metadata=replace(meta, creation_timestamp=created, uid=uid))
            obj = as_created(obj)
        elif type(obj) is DaemonSet:
            obj = as_created(obj)  # a hand-written one may have a uid and lack its defaults
        yield _booted(obj, number) if type(obj) is Node else obj


def _booted(node: Node, number: int) -> Node:
    """A node without a bootID gets one, as each real node has."""
    info = node.status.node_info
    if info.boot_id:
        return node
    info = replace(info, boot_id=made_uid(number, 0xB007))
    return replace(node, status=replace(node.status, node_info=info))


def _posted(node: Node) -> Node:
    """Conditions without lastHeartbeatTime were posted when the node was made, as a cluster's have
    been: a Node of the same name that is made later without one gives another sign of life.
    """
    conditions = node.status.conditions
    if all(condition.last_heartbeat_time is not None for condition in conditions):
        return node
    created = node.metadata.creation_timestamp
    conditions = tuple(
        c if c.last_heartbeat_time is not None else replace(c, last_heartbeat_time=created)
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
        if isinstance(event.what, _OF_NODES):
            for i, name in enumerate(event.what.targets.nodes):
                if name not in nodes:
                    place = event.place.key("nodes").item(i)
                    raise place.fault(f"node {name} never exists", nearest(name, sorted(nodes)))


_PERIOD: Final = partial(duration_ns, least_ns=MILLISECOND_NS)
_KUBELET: Final[Fields] = {
    "leaseRenewInterval": ("lease_renew_interval_ns", _PERIOD),
    "leaseRenewPhase": ("lease_renew_phase_ns", duration_ns),
    "nodeStatusReportInterval": ("node_status_report_interval_ns", _PERIOD),
    "podStartDuration": ("pod_start_ns", duration_ns),
    "podStopDuration": ("pod_stop_ns", duration_ns),
    "podsListed": ("pods_listed", switch),
    "keepTerminatedPodVolumes": ("keep_terminated_pod_volumes", switch),
    "cgroupsPerQOS": ("cgroups_per_qos", switch),
}
_GENERATE: Final[Fields] = {
    "zones": ("zones", partial(count, least=1, most=1000)),
    "nodesPerZone": ("nodes_per_zone", partial(count, most=100_000)),
    "podsPerNode": ("pods_per_node", partial(count, most=10_000)),
    "daemonSets": ("daemon_sets", partial(count, most=1000)),
    "seed": ("seed", partial(count, most=(1 << 48) - 1)),
    "tolerationSeconds": ("toleration_seconds", partial(count, most=1_000_000_000)),
    "services": ("services", partial(count, most=100_000)),
    "budgets": ("budgets", partial(count, most=100_000)),
    "replicas": ("replicas", partial(count, most=10_000)),
}
_LONGEST_NS = 366 * 24 * 60 * MINUTE_NS
_MOST_GENERATED = 2_000_000


def parse_scenario(content: bytes, file: str) -> Scenario:
    """Read a scenario. Raises BadInput with the file, the path in the document, and the remedy."""
    meta, spec, top = read_document(content, file, "Scenario")
    name = text(meta.get("name", "scenario"), top.key("metadata").key("name"))
    return Scenario(file=file, name=name, **struct(spec, top.key("spec"), _SPEC))


def read_document(
    content: bytes, file: str, kind: str
) -> tuple[dict[str, Any], dict[str, Any], FieldPath]:
    """(metadata, spec, the place of the whole) of a file of our own kind of that name. Raises
    BadInput.
    """
    top = FieldPath(file)
    fields = ("apiVersion", "kind", "metadata", "spec")
    document = mapping(only_document(content, file), top, fields)
    for key, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        if document.get(key) != wanted:
            problem = f"found {document[key]!r}" if key in document else "the field is missing"
            raise top.key(key).fault(problem, f"a {kind.lower()} has {key}: {wanted}")
    meta, spec = (mapping(document.get(key, {}), top.key(key)) for key in ("metadata", "spec"))
    return meta, spec, top


def only_document(content: bytes, file: str) -> Any:
    """The one document of a file. Raises BadInput."""
    try:
        data = utf8(content, file)
        if looks_like_json(data):
            try:
                return msgspec.json.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # it may be YAML in flow style; if not, YAML's message names line and column
        documents = [d for d in yaml_documents(data, file) if d is not None]
    except InputError as error:
        raise BadInput(str(error)) from None
    if len(documents) != 1:
        problem = f"holds {len(documents)} documents" if documents else "is empty"
        raise BadInput(problem, on=file, remedy="a scenario is one document")
    return documents[0]


def _profile(value: Any, at: FieldPath) -> Profile:
    try:
        return parse_profile(text(value, at))
    except ValueError as error:
        raise at.fault(str(error)) from None


def _joins(value: Any, at: FieldPath) -> bool:
    return one_of(value, at, ("restart", "join")) == "join"


def _time(value: Any, at: FieldPath) -> int:
    try:
        return int(parse_time(text(value, at)))
    except ValueError as error:
        raise at.fault(str(error)) from None


def _kubelet(value: Any, at: FieldPath) -> KubeletTerms:
    return KubeletTerms(**struct(value, at, _KUBELET))


def read_generate(value: Any, at: FieldPath) -> Generate:
    """The recipe of a synthetic cluster. Raises BadInput."""
    generate = Generate(**struct(value, at, _GENERATE))
    nodes = generate.zones * generate.nodes_per_zone
    if nodes * (1 + generate.pods_per_node + generate.daemon_sets) > _MOST_GENERATED:
        raise at.fault(
            f"{nodes} nodes with {generate.pods_per_node} pods and {generate.daemon_sets} "
            f"DaemonSets each are more than {_MOST_GENERATED} objects",
            "lower zones, nodesPerZone, podsPerNode or daemonSets",
        )
    return generate


def _objects(value: Any, at: FieldPath) -> tuple[KubeObject, ...]:
    """Inline objects; kinds that nothing here reads are skipped, as in a snapshot."""
    objects = []
    for i, item in enumerate(sequence(value, at)):
        place = at.item(i)
        document = mapping(item, place)
        word = text(document.get("kind"), place.key("kind"))
        version = document.get("apiVersion", "")
        kind = find_kind(version, word) if isinstance(version, str) else None
        meta = mapping(document.get("metadata"), place.key("metadata"))
        text(meta.get("name"), place.key("metadata").key("name"))
        if kind is None:
            continue
        obj = decode_at(kind.name, mended(version, kind, document), place)
        if kind.namespaced and not obj.namespace:
            obj = replace(obj, metadata=replace(obj.metadata, namespace="default"))
        why = refusal(obj)
        if why:
            raise place.fault(why, "correct one of them, as the API server would demand")
        objects.append(obj)
    return tuple(objects)


_SPEC: Final[Fields] = {
    "profile": ("profile", _profile),
    "start": ("join", _joins),
    "flags": ("flags", mapping),
    "controllers": ("controllers", partial(some_of, words=CONTROLLER_NAMES)),
    "time": ("time_ns", _time),
    "duration": (
        "duration_ns",
        partial(duration_ns, least_ns=MILLISECOND_NS, most_ns=_LONGEST_NS),
    ),
    "snapshot": ("snapshot", text),
    "objects": ("objects", _objects),
    "generate": ("generate", read_generate),
    "kubelet": ("kubelet", _kubelet),
    "scheduler": ("scheduler", partial(one_of, words=tuple(SCHEDULERS))),
    "events": ("events", read_events),
    "failingWrites": (
        "failing_writes",
        partial(read_failing_writes, controllers=CONTROLLER_NAMES),
    ),
    "failingReads": ("failing_reads", read_failing_reads),
}
