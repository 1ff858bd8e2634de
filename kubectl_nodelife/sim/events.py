"""The events of a scenario: what they are, and how they are read from the document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode, policy_from
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import KINDS, Kind, find_kind, find_resource
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.taints import parse_taint, parse_taint_to_remove
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kubelet.containers import ContainerStep
from kubectl_nodelife.kubelet.machine import CALL_WORDS
from kubectl_nodelife.kubelet.reclaim import RESOURCES
from kubectl_nodelife.sim.fields import (
    FieldPath,
    Fields,
    Reader,
    count,
    describe,
    duration_ns,
    given,
    items,
    mapping,
    nearest,
    one_of,
    selector,
    struct,
    switch,
    text,
    texts,
)
from kubectl_nodelife.sim.kubectl.options import DrainOptions


class PodTargets(msgspec.Struct, frozen=True):
    """The pods that an event is about: those named, or those whose labels match."""

    namespace: str
    names: tuple[str, ...] = ()
    selector: LabelSelector | None = None

    def match(self, pod: Pod) -> bool:
        """True if the pod is one of them."""
        if pod.namespace != self.namespace:
            return False
        if self.selector is None:
            return pod.name in self.names
        return matches(self.selector, pod.metadata.labels)


class ContainerEvent(msgspec.Struct, frozen=True):
    """A prober's result (`ready`, `started`), or a container's next state (`step`)."""

    targets: PodTargets
    container: str = ""
    ready: bool | None = None
    started: bool | None = None
    step: ContainerStep | None = None


class ResourcesEvent(msgspec.Struct, frozen=True):
    """The resources of pods that a node holds from now on, stopped or not
    (`kubelet/reclaim.RESOURCES`).
    """

    targets: PodTargets
    left: tuple[str, ...]


_PODS: Final[Fields] = {
    "namespace": ("namespace", text),
    "pods": ("names", texts),
    "selector": ("selector", selector),
}
_CONTAINER: Final[Fields] = {
    "name": ("container", text),
    "ready": ("ready", switch),
    "started": ("started", switch),
}
_STEP: Final[Fields] = {
    "state": ("state", partial(one_of, words=("running", "waiting", "terminated"))),
    "reason": ("reason", text),
    "exitCode": ("exit_code", partial(count, most=255)),
    "message": ("message", text),
}


def _pod_targets(document: Mapping[str, Any], at: FieldPath) -> PodTargets:
    if ("pods" in document) == ("selector" in document):
        raise at.fault("names no pods or names them twice", "give either pods or selector")
    return PodTargets(**{"namespace": "default", **given(document, at, _PODS)})


def _read_container(value: Any, at: FieldPath) -> ContainerEvent:
    container = mapping(value, at, (*_PODS, *_CONTAINER, *_STEP))
    targets = _pod_targets(container, at)
    if len(container.keys() & {"ready", "started", "state"}) != 1:
        raise at.fault("says not what happens to the container", "give ready, started or state")
    changes = given(container, at, _CONTAINER)
    if "state" in container:
        changes["step"] = ContainerStep(**given(container, at, _STEP))
    return ContainerEvent(targets, **changes)


def _read_resources(value: Any, at: FieldPath) -> ResourcesEvent:
    resources = mapping(value, at, (*_PODS, "left"))
    left = items(resources.get("left"), at.key("left"), partial(one_of, words=RESOURCES))
    return ResourcesEvent(_pod_targets(resources, at), left)


_STATUSES = ("True", "False", "Unknown")


class Targets(msgspec.Struct, frozen=True):
    """The nodes that an event is about: those named, or those whose labels match."""

    nodes: tuple[str, ...] = ()
    selector: LabelSelector | None = None


class ReportedCondition(msgspec.Struct, frozen=True):
    """A kubelet's report of one condition; reason "": the one that a kubelet sets itself."""

    status: str
    reason: str = ""
    message: str = ""


class KubeletEvent(msgspec.Struct, frozen=True):
    """Kubelets fall silent ("stop"), start again ("start"), or report other conditions from now.

    `failing_calls`: which API calls of their status managers fail from now; None: as before.
    `status_channel`: "full" or "free"; "": as before.
    """

    targets: Targets
    heartbeats: str = ""
    conditions: dict[str, ReportedCondition] = {}
    failing_calls: tuple[str, ...] | None = None
    status_channel: str = ""


class TaintEvent(msgspec.Struct, frozen=True):
    """A user adds and removes taints."""

    targets: Targets
    add: tuple[Taint, ...] = ()
    remove: tuple[Taint, ...] = ()


class CordonEvent(msgspec.Struct, frozen=True):
    """A user sets or clears spec.unschedulable."""

    targets: Targets
    unschedulable: bool


class DrainEvent(msgspec.Struct, frozen=True):
    """A user runs `kubectl drain`."""

    targets: Targets
    options: DrainOptions


class ConnectionEvent(msgspec.Struct, frozen=True):
    """The controllers lose their connection to the API server, or regain it."""

    lost: bool


class LeaseViewEvent(msgspec.Struct, frozen=True):
    """The controllers' watch of Leases stands still, or shows again what there is."""

    stale: bool


class LeaseTouchEvent(msgspec.Struct, frozen=True):
    """A client writes to the Leases of nodes without moving renewTime, as kubectl annotate does."""

    targets: Targets


class LoseEvent(msgspec.Struct, frozen=True):
    """Machines go off, or with `link` their connection is cut, which leaves their pods serving.

    `for_ns`: they are back after so long; None: never.
    """

    targets: Targets
    link: bool = False
    for_ns: int | None = None


class ApplyEvent(msgspec.Struct, frozen=True):
    """A user creates an object, or merge-patches the one that exists."""

    kind: Kind
    namespace: str
    name: str
    document: dict[str, Any]


class DeleteEvent(msgspec.Struct, frozen=True):
    """A user deletes an object."""

    kind: Kind
    namespace: str
    name: str


REBOOT, KUBELET, REPLACE = "reboot", "kubelet", "replace"
NEVER_RETURNS, NO_EFFECT, FLAPS, NO_NETWORK = "never-returns", "no-effect", "flaps", "cni"
NO_DRIVERS, LESS_GPU = "no-csi", "less-gpu"
CANARY_HANGS, DRAIN_NEVER = "canary-hangs", "drain-never"
FAULTS = (
    NEVER_RETURNS,
    NO_EFFECT,
    FLAPS,
    NO_NETWORK,
    NO_DRIVERS,
    LESS_GPU,
    CANARY_HANGS,
    DRAIN_NEVER,
)
COMMANDS = ("pause", "resume", "abort", "leader-dies")

_WORK: Final[Fields] = {
    "mode": ("mode", partial(one_of, words=(REBOOT, KUBELET, REPLACE))),
    "kubeletVersion": ("kubelet_version", text),
    "seed": ("seed", partial(count, most=(1 << 48) - 1)),
    "duration": ("duration_ns", duration_ns),
    "jitter": ("jitter_ns", duration_ns),
    "down": ("down_ns", duration_ns),
    "daemonPods": ("daemon_pods_ns", duration_ns),
}


class WorkAssumptions(msgspec.Struct, frozen=True):
    """The assumed work on a node, in ns: it lasts `duration_ns`, plus or minus `jitter_ns`.

    `reboot`: the machine is down for the last `down_ns` of it. `kubelet`: it ends with an exchanged
    kubelet, of `kubelet_version`, that of the target, or the next minor version. `replace`: another
    node comes so long after this one went. `daemon_pods_ns`: how long after the machine's return
    its pods are Ready.
    """

    mode: str = REBOOT
    duration_ns: int = 8 * MINUTE_NS
    jitter_ns: int = 0
    down_ns: int = 3 * MINUTE_NS
    daemon_pods_ns: int = 20 * SECOND_NS
    kubelet_version: str = ""
    seed: int = 0


class WorkFault(msgspec.Struct, frozen=True):
    """A fault of the work on some nodes, the first `times` times; 0: always."""

    nodes: tuple[str, ...]
    how: str
    times: int = 0


class UpgradeEvent(msgspec.Struct, frozen=True):
    """A user runs `upgrade start`, with that policy.

    `work`: what the work on a node does to its machine, and how long it takes.
    """

    policy: UpgradePolicy
    work: WorkAssumptions = WorkAssumptions()
    faults: tuple[WorkFault, ...] = ()


class UpgradeCommandEvent(msgspec.Struct, frozen=True):
    """A user runs `upgrade pause`, `resume` or `abort`; or the leader's process dies."""

    command: str


Happening = (
    KubeletEvent
    | TaintEvent
    | CordonEvent
    | DrainEvent
    | LoseEvent
    | ApplyEvent
    | DeleteEvent
    | ConnectionEvent
    | LeaseViewEvent
    | LeaseTouchEvent
    | ContainerEvent
    | ResourcesEvent
    | UpgradeEvent
    | UpgradeCommandEvent
)


class ScenarioEvent(msgspec.Struct, frozen=True):
    """An event at `at_ns` after t=0; `place` is for messages about it."""

    at_ns: int
    what: Happening
    place: FieldPath


def read_events(value: Any, at: FieldPath) -> tuple[ScenarioEvent, ...]:
    """The list of events. Raises BadInput."""
    return items(value, at, _read_event)


def decode_at(kind: str, document: dict[str, Any], at: FieldPath) -> KubeObject:
    """The document as a typed object. Raises BadInput with the place of what is wrong."""
    try:
        return decode(kind, document)
    except InputError as error:
        place = FieldPath(at.file, f"{at.path}.{error.path}" if error.path else at.path)
        raise place.fault(error.what, error.remedy) from None


def _read_event(value: Any, at: FieldPath) -> ScenarioEvent:
    event = mapping(value, at, ("at", *_READERS))
    if "at" not in event:
        raise at.fault("lacks the field at", "say when it happens, such as at: 60s")
    verbs = [key for key in event if key != "at"]
    if len(verbs) != 1:
        problem = f"has {' and '.join(verbs)}" if verbs else "names nothing that happens"
        raise at.fault(problem, f"give exactly one of {', '.join(_READERS)}")
    place = at.key(verbs[0])
    what = _READERS[verbs[0]](event[verbs[0]], place)
    return ScenarioEvent(duration_ns(event["at"], at.key("at")), what, place)


_NODES: Final[Fields] = {"nodes": ("nodes", texts), "selector": ("selector", selector)}


def _targets(document: Mapping[str, Any], at: FieldPath) -> Targets:
    if ("nodes" in document) == ("selector" in document):
        raise at.fault("names no nodes or names them twice", "give either nodes or selector")
    return Targets(**given(document, at, _NODES))


def _of_nodes(
    value: Any,
    at: FieldPath,
    *,
    event: Callable[..., Happening],
    fields: Fields,
    lack: tuple[str, str] | None = None,
) -> Happening:
    """An event of nodes with these fields. `lack`: the fault where it has none of them."""
    document = mapping(value, at, (*_NODES, *fields))
    targets = _targets(document, at)
    if lack is not None and not document.keys() & fields.keys():
        raise at.fault(*lack)
    return event(targets, **given(document, at, fields))


def _conditions(value: Any, at: FieldPath) -> dict[str, ReportedCondition]:
    return {type_: _condition(item, at.key(type_)) for type_, item in mapping(value, at).items()}


def _condition(value: Any, at: FieldPath) -> ReportedCondition:
    """A status alone, or a mapping with reason and message."""
    document = value if isinstance(value, dict) else {"status": value}
    fields = mapping(document, at, ("status", *_WORDS))
    if "status" not in fields:
        raise at.fault("lacks the field status", f"give one of {', '.join(_STATUSES)}")
    status, place = fields["status"], at.key("status") if isinstance(value, dict) else at
    if isinstance(status, bool):  # YAML reads an unquoted True so
        status = str(status)
    return ReportedCondition(one_of(status, place, _STATUSES), **given(fields, at, _WORDS))


_WORDS: Final[Fields] = {"reason": ("reason", text), "message": ("message", text)}
_KUBELET: Final[Fields] = {
    "heartbeats": ("heartbeats", partial(one_of, words=("stop", "start"))),
    "conditions": ("conditions", _conditions),
    "failingCalls": (
        "failing_calls",
        partial(items, read=partial(one_of, words=tuple(CALL_WORDS.values()))),
    ),
    "statusChannel": ("status_channel", partial(one_of, words=("full", "free"))),
}


def _taint(value: Any, at: FieldPath, parse: Callable[[str], Taint]) -> Taint:
    try:
        return parse(text(value, at))
    except ValueError as error:
        raise at.fault(str(error)) from None


_TAINTS: Final[Fields] = {
    "add": ("add", partial(items, read=partial(_taint, parse=parse_taint))),
    "remove": ("remove", partial(items, read=partial(_taint, parse=parse_taint_to_remove))),
}


def _seconds(value: Any, at: FieldPath) -> int:
    return duration_ns(value, at) // SECOND_NS


def _pod_selector(value: Any, at: FieldPath) -> str:
    selector(value, at)
    return text(value, at)


_DRAIN: Final[Fields] = {
    "force": ("force", switch),
    "ignoreDaemonSets": ("ignore_daemonsets", switch),
    "deleteEmptyDirData": ("delete_emptydir_data", switch),
    "disableEviction": ("disable_eviction", switch),
    "gracePeriod": ("grace_period_seconds", _seconds),
    "timeout": ("timeout_ns", duration_ns),
    "skipWaitForDeleteTimeout": ("skip_wait_seconds", _seconds),
    "podSelector": ("pod_selector", _pod_selector),
}
"""kubectl's flags, in the spelling of this document's fields."""


def _read_drain(value: Any, at: FieldPath) -> DrainEvent:
    drain = mapping(value, at, (*_NODES, *_DRAIN))
    return DrainEvent(_targets(drain, at), DrainOptions(**given(drain, at, _DRAIN)))


def _read_controllers(value: Any, at: FieldPath) -> ConnectionEvent | LeaseViewEvent:
    given = mapping(value, at, ("connection", "leases"))
    if len(given) != 1:
        raise at.fault("says not what the controllers lose", "give either connection or leases")
    if "leases" in given:
        word = one_of(given["leases"], at.key("leases"), ("stale", "current"))
        return LeaseViewEvent(word == "stale")
    word = one_of(given["connection"], at.key("connection"), ("lost", "restored"))
    return ConnectionEvent(word == "lost")


def _read_lease(value: Any, at: FieldPath) -> LeaseTouchEvent:
    lease = mapping(value, at, ("nodes", "selector", "touched"))
    targets = _targets(lease, at)
    if not switch(lease.get("touched"), at.key("touched")):
        raise at.key("touched").fault("nothing happens to the Lease", "give touched: true")
    return LeaseTouchEvent(targets)


_LOSE: Final[Fields] = {"link": ("link", switch), "for": ("for_ns", duration_ns)}


def _read_apply(value: Any, at: FieldPath) -> ApplyEvent:
    document = mapping(value, at)
    word = text(document.get("kind"), at.key("kind"))
    version = document.get("apiVersion") or ""
    kind = find_kind(version, word) if isinstance(version, str) else None
    if kind is None:
        near = nearest(word, (k.name for k in KINDS))
        raise at.key("kind").fault(f"{version} {word} is not a kind that is simulated", near)
    meta = mapping(document.get("metadata"), at.key("metadata"))
    name = text(meta.get("name"), at.key("metadata").key("name"))
    namespace = ""
    if kind.namespaced:
        namespace = text(meta.get("namespace", "default"), at.key("metadata").key("namespace"))
    decode_at(kind.name, document, at)  # a patch has the form of the object too
    return ApplyEvent(kind, namespace, name, document)


def _read_delete(value: Any, at: FieldPath) -> DeleteEvent:
    gone = mapping(value, at, ("kind", "name", "namespace", "apiVersion"))
    word = text(gone.get("kind"), at.key("kind"))
    kind = find_resource(word)
    if kind is None:
        near = nearest(word, (k.name for k in KINDS))
        raise at.key("kind").fault(f"{word} is not a kind that is simulated", near)
    name = text(gone.get("name"), at.key("name"))
    if "namespace" in gone and not kind.namespaced:
        found = describe(gone["namespace"])
        raise at.key("namespace").fault(f"found {found}, but a {kind.name} has no namespace")
    namespace = text(gone.get("namespace", "default"), at.key("namespace"))
    return DeleteEvent(kind, namespace if kind.namespaced else "", name)


_OF_UPGRADE: Final[Fields] = {"selector": ("selector", text), "nodes": ("nodes", texts)}


def _read_upgrade(value: Any, at: FieldPath) -> UpgradeEvent:
    """The event `upgrade`. Raises BadInput."""
    upgrade = mapping(value, at, ("selector", "nodes", "policy", "work", "faults"))
    work = WorkAssumptions(**struct(upgrade.get("work", {}), at.key("work"), _WORK))
    place = at.key("policy")
    flags = {**mapping(upgrade.get("policy", {}), place), **given(upgrade, at, _OF_UPGRADE)}
    if not flags.get("selector") and not flags.get("nodes"):
        raise at.fault("names no nodes", "give selector or nodes")
    mode = WorkMode.REPLACE if work.mode == REPLACE else WorkMode.RUN
    flags.setdefault("work", {"mode": mode.value, "command": "" if work.mode == REPLACE else "-"})
    try:
        policy = policy_from(flags)
    except BadInput as error:
        raise place.fault(str(error)) from None
    faults = items(upgrade.get("faults", []), at.key("faults"), _read_work_fault)
    return UpgradeEvent(policy, work, faults)


def _read_work_fault(value: Any, at: FieldPath) -> WorkFault:
    fault = mapping(value, at, ("nodes", "how", "times"))
    nodes = texts(fault.get("nodes"), at.key("nodes"))
    how = one_of(fault.get("how"), at.key("how"), FAULTS)
    times = count(fault.get("times", 0), at.key("times"), most=1000)
    return WorkFault(nodes, how, times)


_READERS: dict[str, Reader] = {
    "kubelet": partial(
        _of_nodes,
        event=KubeletEvent,
        fields=_KUBELET,
        lack=("nothing happens to the kubelet", f"give one or more of {', '.join(_KUBELET)}"),
    ),
    "container": _read_container,
    "resources": _read_resources,
    "taint": partial(
        _of_nodes,
        event=TaintEvent,
        fields=_TAINTS,
        lack=("no taint is named", "give add, remove or both"),
    ),
    "cordon": partial(_of_nodes, event=partial(CordonEvent, unschedulable=True), fields={}),
    "uncordon": partial(_of_nodes, event=partial(CordonEvent, unschedulable=False), fields={}),
    "drain": _read_drain,
    "controllers": _read_controllers,
    "lease": _read_lease,
    "lose": partial(_of_nodes, event=LoseEvent, fields=_LOSE),
    "apply": _read_apply,
    "delete": _read_delete,
    "upgrade": _read_upgrade,
    "upgradeCommand": lambda value, at: UpgradeCommandEvent(one_of(value, at, COMMANDS)),
}
