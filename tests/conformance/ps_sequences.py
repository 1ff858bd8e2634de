"""Pod status vectors that play a kubelet: a status manager, its pod manager and an API server.

The API server is a dict that applies patches; the watch is instantaneous, that is, before each
batch the pod manager takes over what the API server holds.
"""

from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.pod import Container, Pod, PodStatus, VolumeHealthCondition
from kubectl_nodelife.kube.times import format_time, parse_time
from kubectl_nodelife.kubelet.containers import (
    ContainerStep,
    generated,
    stepped,
    with_container_statuses,
)
from kubectl_nodelife.kubelet.machine import (
    Answer,
    ApiCall,
    CachedStatus,
    Calls,
    DeletePodCall,
    GetPodCall,
    PatchPodStatusCall,
    PodStatusMachine,
    drive,
    is_static_pod,
)
from kubectl_nodelife.kubelet.releases import StatusRules
from tests.conformance.ps_functions import NOW_NS, Case, read

CALL_WORDS = {GetPodCall: "get", PatchPodStatusCall: "patch", DeletePodCall: "delete"}

# Stands for the pod of a cached status that the pod manager no longer knows (`"pod": null`).
UNKNOWN_POD = Pod(metadata=ObjectMeta(namespace="default", name="unknown", uid="unknown"))


class World:
    """The kubelet of one case, with everything that the case says about it."""

    def __init__(self, case: Case, rules: StatusRules) -> None:
        given = case["given"]
        self.given = given
        self.now_ns: int = parse_time(given["clock"]) if "clock" in given else NOW_NS
        self.machine = PodStatusMachine(rules, self)
        self.api: dict[tuple[str, str], Pod] = {}
        self.get_error = bool(given.get("api", {}).get("getError"))
        self.frozen = "podManagerStatus" in given
        self.reconcile_before_batch: bool | None = None
        self.pods = [read(p, Pod) for p in given.get("pods", [])]
        if given.get("pod") is not None:
            self.pods.insert(0, self._complete(read(given["pod"], Pod)))
        if "staticPod" in given:
            self.pods.append(read(given["staticPod"], Pod))
        self._fill_api()
        self._fill_pod_manager()
        self._fill_cache()

    # -- what the rest of the kubelet answers

    def could_have_running_containers(self, pod: Pod) -> bool:
        return bool(self.given.get("couldHaveRunningContainers", False))

    def pod_resources_are_reclaimed(self, pod: Pod, status: PodStatus) -> bool:
        return bool(self.given.get("resourcesReclaimed", False))

    # -- the world before the first step

    def _complete(self, pod: Pod) -> Pod:
        """The vectors give the parts of a pod that matter; a pod whose status has init containers
        has them in its spec too, or no API server would have taken it."""
        status = self.given.get("cachedStatus", self.given["pod"].get("status", {}))
        if "initContainers" in self.given["pod"].get("spec", {}):
            return pod
        statuses = status.get("initContainerStatuses") or []
        containers = tuple(Container(name=status["name"]) for status in statuses)
        return replace(pod, spec=replace(pod.spec, init_containers=containers))

    def _fill_api(self) -> None:
        held = self.given.get("api", {}).get("pods")
        if held is None:
            mirrors = [self.given["mirror"]] if self.given.get("mirror") is not None else []
            held = [*(pod for pod in self.pods if not is_static_pod(pod)), *mirrors]
        for entry in held:
            self.hold(self._named(entry))

    def _named(self, entry: Any) -> Pod:
        if entry == "mirror":
            entry = self.given["mirror"]
        elif isinstance(entry, str):
            return next(pod for pod in self.pods if pod.name == entry)
        return entry if isinstance(entry, Pod) else read(entry, Pod)

    def hold(self, pod: Pod) -> None:
        """The API server holds this pod now, in the place of one of its name."""
        self.api[pod.key] = pod

    def _fill_pod_manager(self) -> None:
        known = self.given.get("podManagerKnows")
        for pod in self.pods:
            if known is None or pod.uid in known:
                self.machine.observe(pod)
        if self.given.get("mirror") is not None:
            mirror = read(self.given["mirror"], Pod)
            paired = any(is_static_pod(pod) for pod in self.pods)
            if paired if known is None else mirror.uid in known:
                self.machine.observe(mirror)
        if self.frozen:
            shown = read(self.given["podManagerStatus"], PodStatus)
            self.machine.pods.set_status(self.pods[0].uid, shown)

    def _fill_cache(self) -> None:
        machine, given = self.machine, self.given
        machine.api_versions.update(given.get("apiVersions", {}))
        if not ("cachedStatus" in given or "entryVersion" in given):
            return
        pod = self.pods[0] if self.pods else UNKNOWN_POD
        shown = read(given["cachedStatus"], PodStatus) if "cachedStatus" in given else pod.status
        machine.statuses[pod.uid] = CachedStatus(
            version=given.get("entryVersion", 1),
            namespace=pod.namespace,
            name=pod.name,
            status=shown,
            is_finished=given.get("podIsFinished", False),
        )
        if given.get("recordedVersion") is not None:
            machine.api_versions[pod.uid] = given["recordedVersion"]

    # -- the API server

    def answer(self, call: ApiCall) -> Answer:
        if isinstance(call, GetPodCall) and self.get_error:
            return None
        pod = self.api.get((call.namespace, call.name))
        if pod is None:
            return None
        if isinstance(call, PatchPodStatusCall):
            if call.uid and call.uid != pod.uid:
                return None
            pod = replace(pod, status=call.status)
            self.hold(pod)
        if isinstance(call, DeletePodCall):
            if call.uid != pod.uid:
                return None
            del self.api[pod.key]
        return pod

    def watch(self) -> None:
        """The pod manager takes over what the API server holds of the pods that it knows."""
        if self.frozen:
            self.frozen = False
            return
        mirrors = set(self.machine.pods.mirror_uids().values())
        for pod in self.api.values():
            if self.machine.pods.by_uid(pod.uid) is not None or pod.uid in mirrors:
                self.machine.observe(pod)

    def run(self, calls: Calls) -> list[str]:
        return [CALL_WORDS[type(call)] for call in drive(calls, self.answer)]

    # -- the steps

    def pod_of(self, step: Case) -> Pod:
        """The pod that a step is about, as the pod manager has it."""
        named = [p for p in self.pods if p.name == step["pod"]] if "pod" in step else self.pods
        return self.machine.pods.by_uid(named[0].uid) or named[0]

    def set_pod_status(self, step: Case) -> None:
        status = read(step["status"], PodStatus)
        self.machine.set_pod_status(self.pod_of(step), status, self.now_ns)

    def set_container_readiness(self, step: Case) -> None:
        uid, container = self.pod_of({}).uid, step["containerID"]
        self.machine.set_container_readiness(uid, container, step["ready"], self.now_ns)

    def set_container_startup(self, step: Case) -> None:
        uid, container = self.pod_of({}).uid, step["containerID"]
        self.machine.set_container_startup(uid, container, step["started"], self.now_ns)

    def set_pod_volume_health(self, step: Case) -> bool:
        conditions = read(step.get("conditions") or [], tuple[VolumeHealthCondition, ...])
        uid, volume = self.pod_of(step).uid, step["volume"]
        return self.machine.set_pod_volume_health(uid, volume, conditions, self.now_ns)

    def terminate_pod(self, step: Case) -> None:
        self.machine.terminate_pod(self.pod_of(step), self.now_ns)

    def remove_orphaned_statuses(self, step: Case) -> None:
        self.machine.remove_orphaned_statuses(set(step["keep"]))

    def sync_batch(self, step: Case) -> list[str]:
        self.watch()
        known = [pod for pod in self.pods if pod.uid in self.machine.statuses]
        if self.reconcile_before_batch is None and known:
            self.reconcile_before_batch = self.needs_reconcile({})
        batch = self.machine.sync_batch if step.get("all", True) else self.machine.sync_changed
        return self.run(batch(self.now_ns))

    def drain_wakeups(self, step: Case) -> None:
        for uid in self.machine.unsent():
            self.mark_sent({}, uid)
        self.machine.requests.clear()

    def mark_sent(self, step: Case, uid: str = "") -> None:
        uid = uid or self.pod_of({}).uid
        api_uid = self.machine.pods.mirror_uids().get(uid) or uid
        self.machine.api_versions[api_uid] = self.machine.statuses[uid].version

    def api_version(self, step: Case) -> None:
        self.machine.api_versions[self.pod_of({}).uid] += step["by"]

    def change_api(self, step: Case) -> None:
        if "pods" in step:
            self.api.clear()
            for entry in step["pods"]:
                self.hold(self._named(entry))
        if "getError" in step:
            self.get_error = bool(step["getError"])
        if "set" in step:
            pod = next(iter(self.api.values()))
            plain = to_builtins(pod, enc_hook=format_time)
            self.hold(read(with_fields(plain, step["set"]), Pod))

    def add_mirror(self, step: Case) -> None:
        mirror = read(step["pod"], Pod)
        self.hold(mirror)
        self.machine.observe(mirror)

    def replace_mirror(self, step: Case) -> None:
        old = self.machine.pods.mirror_of(self.pod_of({}))
        if old is not None:
            self.machine.forget(old)
        self.add_mirror(step)

    def set_clock(self, step: Case) -> None:
        self.now_ns = parse_time(step["to"])

    def overwrite(self, step: Case) -> None:
        self.machine.overwrite_statuses_from_cache()

    def change_kubelet(self, step: Case) -> None:
        """Other answers of the kubelet from now on."""
        self.given = {**self.given, **{k: v for k, v in step.items() if k != "op"}}

    def generate_and_set(self, step: Case) -> None:
        """generateAPIPodStatus on what the status manager has, then SetPodStatus."""
        pod = self.pod_of(step)
        cached = self.machine.statuses.get(pod.uid)
        status = with_container_statuses(pod, self.now_ns) if cached is None else cached.status
        for container in step["containers"]:
            ended = ContainerStep("terminated", exit_code=container["exitCode"])
            status = stepped(pod, status, [container["name"]], ended, self.now_ns)
        terminal = step["podIsTerminal"]
        status = generated(pod.spec, status, self.machine.rules, is_terminal=terminal)
        self.machine.set_pod_status(pod, status, self.now_ns)

    def expect(self, step: Case) -> None:
        """What the API server has now."""
        self.check_api_status(step["apiStatus"])

    def check_api_status(self, wanted: Case) -> None:
        """Hold the pod's status on the API server against these fields."""
        status = to_builtins(next(iter(self.api.values())).status, enc_hook=format_time)
        assert {key: status.get(key, "") for key in wanted} == wanted

    def needs_update(self, step: Case) -> bool:
        uid = self.pods[0].uid if self.pods else UNKNOWN_POD.uid
        return self.machine.needs_update(uid, self.machine.statuses[uid])

    def needs_reconcile(self, step: Case) -> bool:
        uid = self.pods[0].uid
        return self.machine.needs_reconcile(uid, self.machine.statuses[uid].status)


OPS = {
    "setPodStatus": World.set_pod_status,
    "setContainerReadiness": World.set_container_readiness,
    "setContainerStartup": World.set_container_startup,
    "setPodVolumeHealth": World.set_pod_volume_health,
    "terminatePod": World.terminate_pod,
    "removeOrphanedStatuses": World.remove_orphaned_statuses,
    "syncBatch": World.sync_batch,
    "drainWakeups": World.drain_wakeups,
    "markSent": World.mark_sent,
    "apiVersion": World.api_version,
    "api": World.change_api,
    "kubelet": World.change_kubelet,
    "generateAndSetPodStatus": World.generate_and_set,
    "expect": World.expect,
    "addMirror": World.add_mirror,
    "replaceMirror": World.replace_mirror,
    "overwritePodManagerStatusesFromCache": World.overwrite,
    "setClock": World.set_clock,
    "needsUpdate": World.needs_update,
    "needsReconcile": World.needs_reconcile,
}


def with_fields(obj: Any, fields: Any) -> Any:
    """`obj`, plain JSON values, with `fields` merged in: objects by key, dotted paths too."""
    if not (isinstance(obj, dict) and isinstance(fields, dict)):
        return fields
    merged = dict(obj)
    for path, value in fields.items():
        key, dot, rest = path.partition(".")
        if dot:
            value = {rest: value}
        merged[key] = with_fields(merged.get(key, {} if dot else None), value)
    return merged


class Observed:
    """What a run showed, step by step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.results: list[Any] = []
        self.versions: list[int] = [0]
        self.pending: list[int] = []
        self.requests: list[int] = []
        self.statuses: list[PodStatus | None] = []
        self.ops: list[str] = []
        self.asked: dict[str, Any] = {}

    def play(self, steps: list[Case]) -> None:
        """Run the steps and note what is seen after each."""
        machine = self.world.machine
        for step in steps:
            self.results.append(OPS[step["op"]](self.world, step))
            self.ops.append(step["op"])
            self.asked[step["op"]] = self.results[-1]
            cached = [machine.statuses.get(pod.uid) for pod in self.world.pods]
            self.versions.append(sum(c.version for c in cached if c is not None))
            self.pending.append(len(machine.unsent()))
            self.requests.append(len(machine.requests))
            self.statuses.append(None if not cached or cached[0] is None else cached[0].status)

    @property
    def status(self) -> PodStatus:
        """The cached status of the first pod at the end."""
        status = self.statuses[-1]
        assert status is not None, "nothing is cached"
        return status
