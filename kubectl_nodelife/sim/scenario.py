"""Scenarios: one YAML or JSON document that says what there is at t=0, what happens, and for how
long.

The format is in docs/scenario.md. Reading checks everything that can be checked without the
snapshot; `assemble` puts scenario and snapshot together and checks the rest, such as an event about
a node that never exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.profiles import NEWEST, Profile, parse_profile
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.documents import looks_like_json, utf8, yaml_documents
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.kinds import find_kind, kind_of
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, parse_time
from kubectl_nodelife.kubelet.releases import StatusRules, rules_for
from kubectl_nodelife.sim.container_reading import ContainerEvent, ResourcesEvent
from kubectl_nodelife.sim.defaults import DefaultTolerationSeconds, as_created, refusal
from kubectl_nodelife.sim.events import (
    ApplyEvent,
    CordonEvent,
    DrainEvent,
    KubeletEvent,
    ScenarioEvent,
    TaintEvent,
    decode_at,
    read_events,
)
from kubectl_nodelife.sim.fields import (
    FieldPath,
    count,
    duration_ns,
    mapping,
    nearest,
    one_of,
    sequence,
    switch,
    text,
)
from kubectl_nodelife.sim.generate import GENERATED_KINDS, Generate, generate
from kubectl_nodelife.sim.kubelet_terms import KubeletTerms
from kubectl_nodelife.sim.names import made_uid

API_VERSION = "nodelife.dev/v1alpha1"
STATUS_MANAGERS = "pod-status"
CONTROLLER_NAMES = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc", STATUS_MANAGERS)
DEFAULT_TIME_NS = int(parse_time("2026-01-01T00:00:00Z"))
DEFAULT_DURATION_NS = 20 * MINUTE_NS

_SPEC_FIELDS = (
    "profile",
    "start",
    "flags",
    "controllers",
    "time",
    "duration",
    "snapshot",
    "objects",
    "generate",
    "kubelet",
    "events",
)
_KUBELET_FIELDS = {
    "leaseRenewInterval": "lease_renew_interval_ns",
    "leaseRenewPhase": "lease_renew_phase_ns",
    "nodeStatusReportInterval": "node_status_report_interval_ns",
    "podStartDuration": "pod_start_ns",
    "podStopDuration": "pod_stop_ns",
}
_KUBELET_SWITCHES = {
    "podsListed": "pods_listed",
    "keepTerminatedPodVolumes": "keep_terminated_pod_volumes",
    "cgroupsPerQOS": "cgroups_per_qos",
}
_PERIODS = ("leaseRenewInterval", "nodeStatusReportInterval")
# field -> (its name here, least, most)
_GENERATE_FIELDS = {
    "zones": ("zones", 1, 1000),
    "nodesPerZone": ("nodes_per_zone", 0, 100_000),
    "podsPerNode": ("pods_per_node", 0, 10_000),
    "daemonSets": ("daemon_sets", 0, 1000),
    "seed": ("seed", 0, (1 << 48) - 1),
    "tolerationSeconds": ("toleration_seconds", 0, 1_000_000_000),
}
_OF_STATUS_MANAGERS = (ContainerEvent, ResourcesEvent)
_MILLISECOND_NS = 1_000_000
_LONGEST_NS = 366 * 24 * 60 * MINUTE_NS
_MOST_GENERATED = 2_000_000


class Scenario(msgspec.Struct, frozen=True):
    """A scenario as written; None where it says nothing. `objects` come without the snapshot's."""

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
    events: tuple[ScenarioEvent, ...] = ()


class Given(NamedTuple):
    """What a snapshot gives to a scenario. `kinds_read`: kinds of which it speaks."""

    objects: Iterable[KubeObject]
    kinds_read: frozenset[str] = frozenset()
    moment_ns: int | None = None
    profile: Profile | None = None


class Setting(msgspec.Struct, frozen=True):
    """A scenario ready to run: what is there at t=0, and when that is (ns since the epoch).

    `cluster` is not to be changed; a run works on a copy. `kinds_read`: kinds of which an object
    that is not there is known not to exist. `admission`: what pods get that are made from then on.
    """

    scenario: Scenario
    profile: Profile
    start_ns: int
    cluster: Cache
    kinds_read: frozenset[str]
    admission: DefaultTolerationSeconds = DefaultTolerationSeconds()

    def under(self, settings: Settings) -> Setting:
        """The same with kubelets and an API server that behave as those settings have it."""
        kubelet = self.scenario.kubelet.for_leases(settings.leases_count)
        admission = DefaultTolerationSeconds(*settings.default_toleration_seconds)
        scenario = replace(self.scenario, kubelet=kubelet)
        return replace(self, scenario=scenario, admission=admission)

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


def parse_scenario(content: bytes, file: str) -> Scenario:
    """Read a scenario. Raises BadInput with the file, the path in the document, and the remedy."""
    top = FieldPath(file)
    document = mapping(
        _only_document(content, file), top, ("apiVersion", "kind", "metadata", "spec")
    )
    for key, wanted in (("apiVersion", API_VERSION), ("kind", "Scenario")):
        if document.get(key) != wanted:
            found = f"found {document[key]!r}" if key in document else "the field is missing"
            raise top.key(key).fault(found, f"a scenario has {key}: {wanted}")
    meta = mapping(document.get("metadata", {}), top.key("metadata"))
    name = text(meta.get("name", "scenario"), top.key("metadata").key("name"))
    at = top.key("spec")
    spec = mapping(document.get("spec", {}), at, _SPEC_FIELDS)
    return Scenario(file=file, name=name, **_read_spec(spec, at))


def _only_document(content: bytes, file: str) -> Any:
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
        found = f"holds {len(documents)} documents" if documents else "is empty"
        raise BadInput(found, on=file, remedy="a scenario is one document")
    return documents[0]


def _read_spec(spec: dict[str, Any], at: FieldPath) -> dict[str, Any]:
    """The fields of Scenario that the document gives."""
    read: dict[str, Any] = {}
    for key, value in spec.items():
        place = at.key(key)
        match key:
            case "profile":
                read["profile"] = _profile(value, place)
            case "start":
                read["join"] = one_of(value, place, ("restart", "join")) == "join"
            case "flags":
                read["flags"] = mapping(value, place)
            case "controllers":
                read["controllers"] = _controllers(value, place)
            case "time":
                read["time_ns"] = _time(value, place)
            case "duration":
                read["duration_ns"] = duration_ns(
                    value, place, least_ns=_MILLISECOND_NS, most_ns=_LONGEST_NS
                )
            case "snapshot":
                read["snapshot"] = text(value, place)
            case "objects":
                read["objects"] = _objects(value, place)
            case "generate":
                read["generate"] = _generate(value, place)
            case "kubelet":
                read["kubelet"] = _kubelet(value, place)
            case "events":
                read["events"] = read_events(value, place)
    return read


def _profile(value: Any, at: FieldPath) -> Profile:
    try:
        return parse_profile(text(value, at))
    except ValueError as error:
        raise at.fault(str(error)) from None


def _time(value: Any, at: FieldPath) -> int:
    try:
        return int(parse_time(text(value, at)))
    except ValueError as error:
        raise at.fault(str(error)) from None


def _controllers(value: Any, at: FieldPath) -> tuple[str, ...]:
    items = sequence(value, at)
    wanted = {one_of(item, at.item(i), CONTROLLER_NAMES) for i, item in enumerate(items)}
    return tuple(name for name in CONTROLLER_NAMES if name in wanted)


def _kubelet(value: Any, at: FieldPath) -> KubeletTerms:
    terms: dict[str, Any] = {}
    for key, item in mapping(value, at, (*_KUBELET_FIELDS, *_KUBELET_SWITCHES)).items():
        if key in _KUBELET_SWITCHES:
            terms[_KUBELET_SWITCHES[key]] = switch(item, at.key(key))
            continue
        least_ns = _MILLISECOND_NS if key in _PERIODS else 0
        terms[_KUBELET_FIELDS[key]] = duration_ns(item, at.key(key), least_ns=least_ns)
    return KubeletTerms(**terms)


def _generate(value: Any, at: FieldPath) -> Generate:
    wanted = {}
    for key, item in mapping(value, at, tuple(_GENERATE_FIELDS)).items():
        field, least, most = _GENERATE_FIELDS[key]
        wanted[field] = count(item, at.key(key), least=least, most=most)
    made = Generate(**wanted)
    nodes = made.zones * made.nodes_per_zone
    if nodes * (1 + made.pods_per_node + made.daemon_sets) > _MOST_GENERATED:
        raise at.fault(
            f"{nodes} nodes with {made.pods_per_node} pods and {made.daemon_sets} DaemonSets each"
            f" are more than {_MOST_GENERATED} objects",
            "lower zones, nodesPerZone, podsPerNode or daemonSets",
        )
    return made


def _objects(value: Any, at: FieldPath) -> tuple[KubeObject, ...]:
    """Inline objects; kinds that nothing here reads are passed over, as in a snapshot."""
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
        obj = decode_at(kind.name, document, place)
        if kind.namespaced and not obj.namespace:
            obj = replace(obj, metadata=replace(obj.metadata, namespace="default"))
        why = refusal(obj)
        if why:
            raise place.fault(why, "correct one of them, as the API server would demand")
        objects.append(obj)
    return tuple(objects)


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
    cluster.fill(_completed(chain.from_iterable(sources), start_ns), start_ns)
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
            obj = as_created(
                replace(obj, metadata=replace(meta, creation_timestamp=created, uid=uid))
            )
        yield _booted(obj, number) if type(obj) is Node else obj


def _booted(node: Node, number: int) -> Node:
    """A node that says no bootID has one, as each real node."""
    info = node.status.node_info
    if info.boot_id:
        return node
    info = replace(info, boot_id=made_uid(number, 0xB007))
    return replace(node, status=replace(node.status, node_info=info))


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
        if isinstance(event.what, (KubeletEvent, TaintEvent, CordonEvent, DrainEvent)):
            for i, name in enumerate(event.what.targets.nodes):
                if name not in nodes:
                    place = event.place.key("nodes").item(i)
                    raise place.fault(f"node {name} never exists", nearest(name, sorted(nodes)))
