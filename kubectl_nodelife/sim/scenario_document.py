"""Reads a scenario from its document, and checks everything that can be checked without the
snapshot. The format is in docs/scenario.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.profiles import Profile, parse_profile
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.documents import looks_like_json, utf8, yaml_documents
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.kinds import find_kind
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import MINUTE_NS, parse_time
from kubectl_nodelife.sim.defaults import refusal
from kubectl_nodelife.sim.events import decode_at, read_events
from kubectl_nodelife.sim.failing_writes import FailingWrite, read_failing_writes
from kubectl_nodelife.sim.fields import (
    FieldPath,
    count,
    duration_ns,
    mapping,
    one_of,
    sequence,
    switch,
    text,
)
from kubectl_nodelife.sim.generate import Generate
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.scenario import API_VERSION, CONTROLLER_NAMES, SCHEDULERS, Scenario

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
    "services": ("services", 0, 100_000),
    "budgets": ("budgets", 0, 100_000),
    "replicas": ("replicas", 0, 10_000),
}
_MILLISECOND_NS = 1_000_000
_LONGEST_NS = 366 * 24 * 60 * MINUTE_NS
_MOST_GENERATED = 2_000_000


def parse_scenario(content: bytes, file: str) -> Scenario:
    """Read a scenario. Raises BadInput with the file, the path in the document, and the remedy."""
    top = FieldPath(file)
    document = mapping(
        only_document(content, file), top, ("apiVersion", "kind", "metadata", "spec")
    )
    for key, wanted in (("apiVersion", API_VERSION), ("kind", "Scenario")):
        if document.get(key) != wanted:
            found = f"found {document[key]!r}" if key in document else "the field is missing"
            raise top.key(key).fault(found, f"a scenario has {key}: {wanted}")
    meta = mapping(document.get("metadata", {}), top.key("metadata"))
    name = text(meta.get("name", "scenario"), top.key("metadata").key("name"))
    at = top.key("spec")
    spec = mapping(document.get("spec", {}), at, tuple(_SPEC_FIELDS))
    return Scenario(file=file, name=name, **_read_spec(spec, at))


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
        found = f"holds {len(documents)} documents" if documents else "is empty"
        raise BadInput(found, on=file, remedy="a scenario is one document")
    return documents[0]


def _read_spec(spec: dict[str, Any], at: FieldPath) -> dict[str, Any]:
    """The fields of Scenario that the document gives."""
    read = {}
    for key, value in spec.items():
        field, reader = _SPEC_FIELDS[key]
        read[field] = reader(value, at.key(key))
    return read


def _profile(value: Any, at: FieldPath) -> Profile:
    try:
        return parse_profile(text(value, at))
    except ValueError as error:
        raise at.fault(str(error)) from None


def _joins(value: Any, at: FieldPath) -> bool:
    return one_of(value, at, ("restart", "join")) == "join"


def _scheduler(value: Any, at: FieldPath) -> str:
    return one_of(value, at, tuple(SCHEDULERS))


def _duration(value: Any, at: FieldPath) -> int:
    return duration_ns(value, at, least_ns=_MILLISECOND_NS, most_ns=_LONGEST_NS)


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


def read_generate(value: Any, at: FieldPath) -> Generate:
    """The recipe of a synthetic cluster. Raises BadInput."""
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


def _failing_writes(value: Any, at: FieldPath) -> tuple[FailingWrite, ...]:
    return read_failing_writes(value, at, CONTROLLER_NAMES)


# field -> (its name here, what reads it)
_SPEC_FIELDS: Final[dict[str, tuple[str, Callable[[Any, FieldPath], Any]]]] = {
    "profile": ("profile", _profile),
    "start": ("join", _joins),
    "flags": ("flags", mapping),
    "controllers": ("controllers", _controllers),
    "time": ("time_ns", _time),
    "duration": ("duration_ns", _duration),
    "snapshot": ("snapshot", text),
    "objects": ("objects", _objects),
    "generate": ("generate", read_generate),
    "kubelet": ("kubelet", _kubelet),
    "scheduler": ("scheduler", _scheduler),
    "events": ("events", read_events),
    "failingWrites": ("failing_writes", _failing_writes),
}
