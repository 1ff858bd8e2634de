"""What changes for nodes, taints, pods, DaemonSets and drains from one release to the next, and
which of that applies to a cluster.

The changes are read off the tables of releases, each with its note, and off the defaults of flags
and gates. Where a change concerns certain objects alone, a row of `_CONCERNED` finds them; else it
concerns whatever its area is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kubectl_nodelife.controllers.daemonset.behaviour import SINCE_UNTIL as DAEMON_SET_RULES
from kubectl_nodelife.document import document
from kubectl_nodelife.engine.settings import (
    BETA,
    FLAGS,
    GATES,
    OLDEST,
    SWITCHES,
    Flag,
    Gate,
    Profile,
    Settings,
    Span,
    parse_profile,
)
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.storage import VolumeAttachment
from kubectl_nodelife.kube.wellknown import NAMESPACE_NODE_LEASE
from kubectl_nodelife.kube.workload import DaemonSet, PodDisruptionBudget
from kubectl_nodelife.kubelet.releases import SINCE_UNTIL as KUBELET_RULES
from kubectl_nodelife.outlook.release_notes import (
    CONTROL_PLANE,
    DAEMON_SET,
    DAEMON_SETS,
    DRAINS,
    KUBELET,
    NODES,
    PODS,
    TAINTS,
    Note,
)
from kubectl_nodelife.workloads.budgets import budget_index
from kubectl_nodelife.workloads.scheduling import claim_names

CONTROL_PLANE_PROGRAM: Final = "control plane"
KUBELET_PROGRAM: Final = "kubelet"
KUBECTL_PROGRAM: Final = "kubectl"

KINDS: Final = ("Node", "Lease", "Pod", "PodDisruptionBudget", "DaemonSet", "VolumeAttachment")
"""What tells which changes apply."""

_OF_KUBECTL: Final = frozenset({"drains_daemon_sets_by_kind", "dry_run_ends"})
_MOST_DISRUPTED_PODS: Final = 2000
_FIRST: Final = parse_profile(OLDEST).minor

ObjectT = TypeVar("ObjectT", bound=KubeObject)


class ReleaseChange(msgspec.Struct, frozen=True):
    """One change. `program`: whose release brings it; `switch`: its row in the tables of releases,
    or the flag or gate; `of_default`: it changes what a cluster gets that does not set that."""

    release: str
    program: str
    area: str
    switch: str
    change: str
    of_default: bool = False


class Applied(msgspec.Struct, frozen=True, rename="camel"):
    """A change and what it concerns here: `all nodes`, or how many of what, and their names."""

    change: ReleaseChange
    concerns: str
    names: tuple[str, ...] = ()


class Inventory:
    """A cluster's objects by type."""

    def __init__(self, objects: Iterable[KubeObject], settings: Settings) -> None:
        self.settings = settings
        self._objects: dict[type, list[KubeObject]] = {}
        for obj in objects:
            self._objects.setdefault(type(obj), []).append(obj)

    def all(self, kind: type[ObjectT]) -> list[ObjectT]:
        """The objects of that type."""
        return self._objects.get(kind, [])  # type: ignore[return-value]


def all_changes() -> list[ReleaseChange]:
    """Every change of the tables, the oldest release first."""
    tables: tuple[tuple[str, Mapping[str, Span], Mapping[str, Note]], ...] = (
        (CONTROL_PLANE_PROGRAM, SWITCHES, CONTROL_PLANE),
        (CONTROL_PLANE_PROGRAM, DAEMON_SET_RULES, DAEMON_SET),
        (KUBELET_PROGRAM, KUBELET_RULES, KUBELET),
    )
    changes = [
        change for table in tables for name in table[1] for change in _of_rule(*table, name=name)
    ]
    changes += (change for flag in FLAGS.values() for change in _of_flag(flag))
    changes += (change for gate in GATES.values() for change in _of_gate(gate))
    return sorted(changes, key=lambda change: parse_profile(change.release).minor)


def _of_rule(
    program: str, spans: Mapping[str, Span], notes: Mapping[str, Note], name: str
) -> Iterator[ReleaseChange]:
    note, (since, until) = notes[name], spans[name]
    program = KUBECTL_PROGRAM if name in _OF_KUBECTL else program
    for minor, words in ((since, note.begins), (until, note.ends)):
        if words and minor is not None and minor > _FIRST:
            yield ReleaseChange(f"v1.{minor}", program, note.area, name, words)


def _of_flag(flag: Flag) -> Iterator[ReleaseChange]:
    for (_, before), (since, value) in zip(flag.defaults, flag.defaults[1:], strict=False):
        words = f"--{flag.name} is {value} by default; before, {before}"
        yield ReleaseChange(f"v1.{since}", CONTROL_PLANE_PROGRAM, NODES, flag.name, words, True)
    if flag.until <= parse_profile(BETA).minor:
        words = f"--{flag.name} is gone: the {flag.origin} does not start with it"
        yield ReleaseChange(f"v1.{flag.until}", CONTROL_PLANE_PROGRAM, NODES, flag.name, words)


def _of_gate(gate: Gate) -> Iterator[ReleaseChange]:
    stages = [
        *((since, f"is {'on' if on else 'off'} by default", True) for since, on in _flips(gate)),
        (gate.locked, f"is locked {'on' if gate.stages[-1][1] else 'off'}", False),
        (gate.until, "is gone: --feature-gates may not name it", False),
    ]
    for since, words, of_default in stages:
        if _FIRST < since <= parse_profile(BETA).minor:
            text = f"the feature gate {gate.name} {words}"
            release, program = f"v1.{since}", CONTROL_PLANE_PROGRAM
            yield ReleaseChange(release, program, NODES, gate.name, text, of_default)


def _flips(gate: Gate) -> Iterator[tuple[int, bool]]:
    """The stages that change what happens; a gate that begins off changes nothing."""
    before = False
    for since, on in gate.stages:
        if on != before:
            yield since, on
        before = on


# What applies to a cluster


def applied(objects: Iterable[KubeObject], settings: Settings, target: Profile) -> list[Applied]:
    """The changes after the cluster's release, up to `target`, that concern something here."""
    here, now = Inventory(objects, settings), settings.profile.minor
    between = (
        change
        for change in all_changes()
        if now < parse_profile(change.release).minor <= target.minor
    )
    return [applied_here for change in between if (applied_here := _here(change, here)) is not None]


def _here(change: ReleaseChange, here: Inventory) -> Applied | None:
    if change.program == KUBELET_PROGRAM and not _kubelets_before(change, here):
        return None
    if change.switch in FLAGS or change.switch in GATES:
        return Applied(change, "all nodes") if _is_set_so(change, here.settings) else None
    find = _CONCERNED.get(change.switch)
    if find is None:
        noun, type_ = _OF_AREA[change.area]
        return Applied(change, f"all {noun}") if here.all(type_) else None
    names = tuple(sorted(find(here)))
    if not names:
        return None
    kind = names[0].partition("/")[0]
    if kind == "node" and len(names) == len(here.all(Node)):
        return Applied(change, "all nodes")
    return Applied(change, counted(len(names), kind), names)


_OF_AREA: Final[dict[str, tuple[str, type[KubeObject]]]] = {
    NODES: ("nodes", Node),
    TAINTS: ("nodes", Node),
    PODS: ("pods", Pod),
    DAEMON_SETS: ("DaemonSets", DaemonSet),
    DRAINS: ("pods", Pod),
}


def _is_set_so(change: ReleaseChange, settings: Settings) -> bool:
    """True if a flag or gate that changes is one that this cluster sets, or a default that it
    follows."""
    name = change.switch
    if name in GATES:
        named = name in settings.flags.get("feature-gates", "")
        return named != change.of_default
    follows = settings.origins.get(name, "").startswith("default of")
    return follows == change.of_default


def _kubelets_before(change: ReleaseChange, here: Inventory) -> bool:
    """True if a kubelet here is older than the release that changes it."""
    release = parse_profile(change.release).minor
    try:
        versions = [parse_profile(n.status.node_info.kubelet_version) for n in here.all(Node)]
    except ValueError:
        return True
    return any(version.minor < release for version in versions)


def _touched(here: Inventory) -> Iterator[str]:
    """Nodes whose Lease somebody else wrote to; all of them where there is none."""
    leases = [x for x in here.all(Lease) if x.namespace == NAMESPACE_NODE_LEASE and x.touched()]
    if leases:
        return (f"node/{lease.name}" for lease in leases)
    return (f"node/{node.name}" for node in here.all(Node))


def _odd_budgets(here: Inventory) -> Iterator[str]:
    for budget in here.all(PodDisruptionBudget):
        pending = len(budget.status.disrupted_pods or ())
        if budget.status.disruptions_allowed < 0 or pending > _MOST_DISRUPTED_PODS:
            yield f"poddisruptionbudget/{budget.namespace}/{budget.name}"


def _under_two_budgets(here: Inventory) -> Iterator[str]:
    index = budget_index(here.all(PodDisruptionBudget))
    return _pods(here, lambda pod: len(index.find(pod.namespace, pod.metadata.labels)) > 1)


def _volume_holders(here: Inventory) -> Iterator[str]:
    attachments = here.all(VolumeAttachment)
    if attachments:
        return iter({f"node/{attachment.spec.node_name}" for attachment in attachments})
    return _pods(here, lambda pod: bool(pod.spec.node_name and claim_names(pod)))


def _pods(here: Inventory, concerns: Callable[[Pod], bool]) -> Iterator[str]:
    return (f"pod/{pod.namespace}/{pod.name}" for pod in here.all(Pod) if concerns(pod))


def _spreads_emptily(pod: Pod) -> bool:
    selectors = (c.label_selector for c in pod.spec.topology_spread_constraints)
    return any(s is not None and not (s.match_labels or s.match_expressions) for s in selectors)


def _of_job_or_stateful_set(pod: Pod) -> bool:
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind in ("Job", "StatefulSet")


def _of_other_daemon_set(pod: Pod) -> bool:
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind != "DaemonSet":
        return False
    return not owner.api_version.startswith("apps/")


def _without_taints(here: Inventory) -> Iterator[str]:
    nodes = () if here.settings.taint_mode else here.all(Node)
    return (f"node/{node.name}" for node in nodes)


def _with_unwell_volumes(here: Inventory) -> Iterator[str]:
    return _pods(here, lambda pod: bool(pod.status.volume_health))


def _waits_for_ready(here: Inventory) -> Iterator[str]:
    sets = here.all(DaemonSet)
    return (f"daemonset/{s.namespace}/{s.name}" for s in sets if s.spec.min_ready_seconds)


_CONCERNED: Final[dict[str, Callable[[Inventory], Iterable[str]]]] = {
    "classic_eviction": _without_taints,
    "evicted_node_map": _without_taints,
    "drains_daemon_sets_by_kind": lambda here: _pods(here, _of_other_daemon_set),
    "lease_circuit_breaker": _touched,
    "refusals_name_budget": _odd_budgets,
    "syncs_every_budget": _under_two_budgets,
    "empty_selector_spreads": lambda here: _pods(here, _spreads_emptily),
    "waiting_for_detach": _volume_holders,
    "detach_when_node_is_gone": _volume_holders,
    "eviction_tells_version": lambda here: (),
    "dry_run_ends": lambda here: (),
    "evicted_stays_failed": lambda here: _pods(here, _of_job_or_stateful_set),
    "volume_health": _with_unwell_volumes,
    "volume_health_in_seconds": _with_unwell_volumes,
    "available_at_the_instant": _waits_for_ready,
    "requeue_for_min_ready_after_status": _waits_for_ready,
}
"""Switch -> the objects that its change concerns; a switch that is not here concerns its area."""


class ReleasePreview(NamedTuple):
    """What going from one release to another changes on a cluster."""

    before: Profile
    after: Profile
    changes: list[Applied]
    elsewhere: int

    def document(self) -> dict[str, Any]:
        """The ReleasePreview."""
        changes = [msgspec.to_builtins(each) for each in self.changes]
        return document(
            "ReleasePreview",
            **{"from": self.before.name, "to": self.after.name, "isBeta": self.after.is_beta},
            items=[{**each.pop("change"), **each} for each in changes],
            doNotApply=self.elsewhere,
        )


def preview(objects: Iterable[KubeObject], settings: Settings, target: Profile) -> ReleasePreview:
    """What going to `target` changes on this cluster."""
    before = settings.profile
    here = applied(objects, settings, target)
    releases = range(before.minor + 1, target.minor + 1)
    every = sum(parse_profile(change.release).minor in releases for change in all_changes())
    return ReleasePreview(before, target, here, every - len(here))


# Defaults


class Default(msgspec.Struct, frozen=True):
    """The default of a flag or gate; `locked`: a gate that cannot be switched."""

    name: str
    default: str
    program: str
    locked: bool = False


def defaults(profile: Profile) -> tuple[list[Default], list[Default]]:
    """The flags and the feature gates that the release knows, with their defaults."""
    minor = profile.minor
    flags = [
        Default(f"--{flag.name}", flag.default(minor), flag.origin)
        for flag in FLAGS.values()
        if minor < flag.until
    ]
    gates = [
        Default(gate.name, str(on).lower(), "feature gate", minor >= gate.locked)
        for gate in GATES.values()
        if (on := gate.default(minor)) is not None
    ]
    return flags, gates
