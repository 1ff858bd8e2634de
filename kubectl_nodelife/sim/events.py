"""The events of a scenario: what they are, and how they are read from the document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode, policy_from
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import KINDS, Kind, find_kind, find_resource
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject, LabelSelector
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches, parse_selector
from kubectl_nodelife.kube.taints import parse_taint, parse_taint_to_remove
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kubelet.containers import ContainerStep
from kubectl_nodelife.kubelet.machine import CALL_WORDS
from kubectl_nodelife.kubelet.reclaim import RESOURCES
from kubectl_nodelife.sim.fields import (
    FieldPath,
    count,
    describe,
    duration_ns,
    mapping,
    nearest,
    one_of,
    sequence,
    switch,
    text,
    texts,
)
from kubectl_nodelife.sim.kubectl.options import DrainOptions

_POD_TARGETS = ("namespace", "pods", "selector")
_STEP = ("state", "reason", "exitCode", "message")


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


def _pod_targets(value: dict[str, Any], at: FieldPath) -> PodTargets:
    if ("pods" in value) == ("selector" in value):
        raise at.fault("names no pods or names them twice", "give either pods or selector")
    namespace = text(value.get("namespace", "default"), at.key("namespace"))
    if "pods" in value:
        return PodTargets(namespace, texts(value["pods"], at.key("pods")))
    try:
        selector = parse_selector(text(value["selector"], at.key("selector")))
    except ValueError as error:
        raise at.key("selector").fault(str(error), "write it as for kubectl -l") from None
    return PodTargets(namespace, selector=selector)


def read_container(value: Any, at: FieldPath) -> ContainerEvent:
    """The event `container`. Raises BadInput."""
    container = mapping(value, at, (*_POD_TARGETS, "name", "ready", "started", *_STEP))
    targets = _pod_targets(container, at)
    name = text(container["name"], at.key("name")) if "name" in container else ""
    given = [key for key in ("ready", "started", "state") if key in container]
    if len(given) != 1:
        raise at.fault("says not what happens to the container", "give ready, started or state")
    if given[0] != "state":
        word = switch(container[given[0]], at.key(given[0]))
        if given[0] == "ready":
            return ContainerEvent(targets, name, ready=word)
        return ContainerEvent(targets, name, started=word)
    states = ("running", "waiting", "terminated")
    step = ContainerStep(
        one_of(container["state"], at.key("state"), states),
        text(container["reason"], at.key("reason")) if "reason" in container else "",
        count(container.get("exitCode", 0), at.key("exitCode"), most=255),
        text(container["message"], at.key("message")) if "message" in container else "",
    )
    return ContainerEvent(targets, name, step=step)


def read_resources(value: Any, at: FieldPath) -> ResourcesEvent:
    """The event `resources`. Raises BadInput."""
    resources = mapping(value, at, (*_POD_TARGETS, "left"))
    place = at.key("left")
    resizes = tuple(
        one_of(item, place.item(i), RESOURCES)
        for i, item in enumerate(sequence(resources.get("left"), place))
    )
    return ResourcesEvent(_pod_targets(resources, at), resizes)


_STATUSES = ("True", "False", "Unknown")
_KUBELET_CHANGES = ("heartbeats", "conditions", "failingCalls", "statusChannel")


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

_WORK_DURATIONS = {
    "duration": "duration_ns",
    "jitter": "jitter_ns",
    "down": "down_ns",
    "daemonPods": "daemon_pods_ns",
}
_WORK_FIELDS = ("mode", "kubeletVersion", "seed", *_WORK_DURATIONS)


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
    return tuple(_read_event(item, at.item(i)) for i, item in enumerate(sequence(value, at)))


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


def _targets(value: dict[str, Any], at: FieldPath) -> Targets:
    if ("nodes" in value) == ("selector" in value):
        raise at.fault("names no nodes or names them twice", "give either nodes or selector")
    if "nodes" in value:
        return Targets(nodes=texts(value["nodes"], at.key("nodes")))
    written = text(value["selector"], at.key("selector"))
    try:
        return Targets(selector=parse_selector(written))
    except ValueError as error:
        raise at.key("selector").fault(str(error), "write it as for kubectl -l") from None


def _read_kubelet(value: Any, at: FieldPath) -> KubeletEvent:
    kubelet = mapping(value, at, ("nodes", "selector", *_KUBELET_CHANGES))
    targets = _targets(kubelet, at)
    if not kubelet.keys() & set(_KUBELET_CHANGES):
        remedy = f"give one or more of {', '.join(_KUBELET_CHANGES)}"
        raise at.fault("nothing happens to the kubelet", remedy)
    heartbeats = ""
    if "heartbeats" in kubelet:
        heartbeats = one_of(kubelet["heartbeats"], at.key("heartbeats"), ("stop", "start"))
    place = at.key("conditions")
    conditions = {
        type_: _condition(value, place.key(type_))
        for type_, value in mapping(kubelet.get("conditions", {}), place).items()
    }
    failing, channel = None, ""
    if "failingCalls" in kubelet:
        place = at.key("failingCalls")
        failing = tuple(
            one_of(item, place.item(i), tuple(CALL_WORDS.values()))
            for i, item in enumerate(sequence(kubelet["failingCalls"], place))
        )
    if "statusChannel" in kubelet:
        channel = one_of(kubelet["statusChannel"], at.key("statusChannel"), ("full", "free"))
    return KubeletEvent(targets, heartbeats, conditions, failing, channel)


def _condition(value: Any, at: FieldPath) -> ReportedCondition:
    """A status alone, or a mapping with reason and message."""
    given = value if isinstance(value, dict) else {"status": value}
    fields = mapping(given, at, ("status", "reason", "message"))
    if "status" not in fields:
        raise at.fault("lacks the field status", f"give one of {', '.join(_STATUSES)}")
    status, place = fields["status"], at.key("status") if isinstance(value, dict) else at
    if isinstance(status, bool):  # YAML reads an unquoted True so
        status = str(status)
    words = {key: text(fields[key], at.key(key)) for key in ("reason", "message") if key in fields}
    return ReportedCondition(one_of(status, place, _STATUSES), **words)


def _read_taint(value: Any, at: FieldPath) -> TaintEvent:
    taint = mapping(value, at, ("nodes", "selector", "add", "remove"))
    targets = _targets(taint, at)
    if "add" not in taint and "remove" not in taint:
        raise at.fault("no taint is named", "give add, remove or both")
    return TaintEvent(
        targets,
        _taints(taint.get("add", []), at.key("add"), parse_taint),
        _taints(taint.get("remove", []), at.key("remove"), parse_taint_to_remove),
    )


def _taints(value: Any, at: FieldPath, parse: Callable[[str], Taint]) -> tuple[Taint, ...]:
    taints = []
    for i, item in enumerate(sequence(value, at)):
        try:
            taints.append(parse(text(item, at.item(i))))
        except ValueError as error:
            raise at.item(i).fault(str(error)) from None
    return tuple(taints)


def _read_cordon(value: Any, at: FieldPath) -> CordonEvent:
    return CordonEvent(_targets(mapping(value, at, ("nodes", "selector")), at), True)


def _read_uncordon(value: Any, at: FieldPath) -> CordonEvent:
    return CordonEvent(_targets(mapping(value, at, ("nodes", "selector")), at), False)


_DRAIN_SWITCHES = {
    "force": "force",
    "ignoreDaemonSets": "ignore_daemonsets",
    "deleteEmptyDirData": "delete_emptydir_data",
    "disableEviction": "disable_eviction",
}
_DRAIN_DURATIONS = ("gracePeriod", "timeout", "skipWaitForDeleteTimeout")


def _read_drain(value: Any, at: FieldPath) -> DrainEvent:
    """kubectl's flags, in the spelling of this document's fields."""
    fields = ("nodes", "selector", *_DRAIN_SWITCHES, *_DRAIN_DURATIONS, "podSelector")
    drain = mapping(value, at, fields)
    targets = _targets(drain, at)
    given: dict[str, Any] = {}
    for key, field in _DRAIN_SWITCHES.items():
        if key in drain:
            given[field] = switch(drain[key], at.key(key))
    if "podSelector" in drain:
        given["pod_selector"] = text(drain["podSelector"], at.key("podSelector"))
        try:
            parse_selector(given["pod_selector"])
        except ValueError as error:
            remedy = "write it as for kubectl -l"
            raise at.key("podSelector").fault(str(error), remedy) from None
    if "timeout" in drain:
        given["timeout_ns"] = duration_ns(drain["timeout"], at.key("timeout"))
    if "gracePeriod" in drain:
        grace_ns = duration_ns(drain["gracePeriod"], at.key("gracePeriod"))
        given["grace_period_seconds"] = grace_ns // SECOND_NS
    if "skipWaitForDeleteTimeout" in drain:
        key = "skipWaitForDeleteTimeout"
        given["skip_wait_seconds"] = duration_ns(drain[key], at.key(key)) // SECOND_NS
    return DrainEvent(targets, DrainOptions(**given))


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


def _read_lose(value: Any, at: FieldPath) -> LoseEvent:
    lose = mapping(value, at, ("nodes", "selector", "link", "for"))
    link = switch(lose["link"], at.key("link")) if "link" in lose else False
    for_ns = duration_ns(lose["for"], at.key("for")) if "for" in lose else None
    return LoseEvent(_targets(lose, at), link, for_ns)


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


def _read_upgrade(value: Any, at: FieldPath) -> UpgradeEvent:
    """The event `upgrade`. Raises BadInput."""
    upgrade = mapping(value, at, ("selector", "nodes", "policy", "work", "faults"))
    work = _read_work(upgrade.get("work", {}), at.key("work"))
    place = at.key("policy")
    given = dict(mapping(upgrade.get("policy", {}), place))
    if "selector" in upgrade:
        given["selector"] = text(upgrade["selector"], at.key("selector"))
    if "nodes" in upgrade:
        given["nodes"] = list(texts(upgrade["nodes"], at.key("nodes")))
    if not given.get("selector") and not given.get("nodes"):
        raise at.fault("names no nodes", "give selector or nodes")
    mode = WorkMode.REPLACE if work.mode == REPLACE else WorkMode.RUN
    given.setdefault("work", {"mode": mode.value, "command": "" if work.mode == REPLACE else "-"})
    try:
        policy = policy_from(given)
    except BadInput as error:
        raise place.fault(str(error)) from None
    faults = tuple(
        _read_work_fault(item, at.key("faults").item(i))
        for i, item in enumerate(sequence(upgrade.get("faults", []), at.key("faults")))
    )
    return UpgradeEvent(policy, work, faults)


def _read_upgrade_command(value: Any, at: FieldPath) -> UpgradeCommandEvent:
    """The event `upgradeCommand`. Raises BadInput."""
    return UpgradeCommandEvent(one_of(value, at, COMMANDS))


def _read_work(value: Any, at: FieldPath) -> WorkAssumptions:
    work = mapping(value, at, _WORK_FIELDS)
    given: dict[str, Any] = {}
    if "mode" in work:
        given["mode"] = one_of(work["mode"], at.key("mode"), (REBOOT, KUBELET, REPLACE))
    if "kubeletVersion" in work:
        given["kubelet_version"] = text(work["kubeletVersion"], at.key("kubeletVersion"))
    if "seed" in work:
        given["seed"] = count(work["seed"], at.key("seed"), most=(1 << 48) - 1)
    for key, field in _WORK_DURATIONS.items():
        if key in work:
            given[field] = duration_ns(work[key], at.key(key))
    return WorkAssumptions(**given)


def _read_work_fault(value: Any, at: FieldPath) -> WorkFault:
    fault = mapping(value, at, ("nodes", "how", "times"))
    nodes = texts(fault.get("nodes"), at.key("nodes"))
    how = one_of(fault.get("how"), at.key("how"), FAULTS)
    times = count(fault.get("times", 0), at.key("times"), most=1000)
    return WorkFault(nodes, how, times)


_READERS: dict[str, Callable[[Any, FieldPath], Happening]] = {
    "kubelet": _read_kubelet,
    "container": read_container,
    "resources": read_resources,
    "taint": _read_taint,
    "cordon": _read_cordon,
    "uncordon": _read_uncordon,
    "drain": _read_drain,
    "controllers": _read_controllers,
    "lease": _read_lease,
    "lose": _read_lose,
    "apply": _read_apply,
    "delete": _read_delete,
    "upgrade": _read_upgrade,
    "upgradeCommand": _read_upgrade_command,
}
