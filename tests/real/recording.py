"""Plays a scenario on a real control plane, and records as a Timeline what its controllers did:

    python -m tests.real.recording tests/traces/v1.37-stale-leases    # its scenario.yaml, anew

Kubelets are played by one thread, in the way that docs/scenario.md tells of them. The controllers
are those of a real controller manager, with t=0 at the first pass of its node monitor, read off its
log; or the enforcing daemon's, which says when it begins. The API server adds no tolerations and no
taints of its own, so that objects are as the scenario writes them.
"""

import contextlib
import heapq
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import yaml

from tests.enforce.fault_proxy import FaultProxy
from tests.real.audited import Json, records
from tests.real.control_plane import Api, ControlPlane, Refused, control_plane

API_SERVER = (
    "--disable-admission-plugins=DefaultTolerationSeconds,TaintNodesByCondition,Priority",
)
_CONTROLLERS = (
    "node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller,"
    "daemonset-controller"
)
_FIRST_PASS = re.compile(r"^I\d{4} (\d\d:\d\d:\d\d\.\d{6}) .*Controller observed a new Node", re.M)
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_TERMS = {
    "leaseRenewInterval": "10s",
    "nodeStatusReportInterval": "300s",
    "podStartDuration": "2s",
    "podStopDuration": "30s",
}
_EARLY_S = 1.0
_LATE_STOP_S = 0.1
_LOOK_AT_PODS_S = 0.1
_PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "DaemonSet": "/apis/apps/v1/namespaces/default/daemonsets",
    "Lease": _LEASES,
}


Prepare = Callable[[ControlPlane], object]
Begin = Callable[[ControlPlane, Json], contextlib.AbstractContextManager[float]]


@contextlib.contextmanager
def real_controllers(plane: ControlPlane, spec: Json) -> Iterator[float]:
    """A controller manager with the scenario's flags; when its node monitor first passed."""
    flags = [f"--{name}={value}" for name, value in spec["flags"].items()]
    plane.start_controller_manager(f"--controllers={_CONTROLLERS}", "-v=4", *flags)
    yield _first_pass(plane)


def record(
    scenario: Json, begin: Begin = real_controllers, prepare: Prepare = lambda plane: None
) -> Json:
    """The Timeline of what the controllers did, and `latestSeconds` of the player.

    `scenario` is given the time of the recording and its objects' creation times. `begin` starts
    the controllers and gives the time of t=0, in seconds since the epoch; `prepare` does before the
    objects are made what takes its time.
    """
    spec = scenario["spec"]
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(control_plane(api_server=API_SERVER))
        proxy = None
        if any("controllers" in event for event in spec["events"]):
            proxy = stack.enter_context(FaultProxy(plane.api.server, None, plane.folder))
            plane.route_manager_through(proxy.url)
        prepare(plane)
        for obj in spec["objects"]:
            _create(plane.api, obj)
            _stamp(plane.api, obj)
        t0 = stack.enter_context(begin(plane, spec))
        spec["time"] = datetime.fromtimestamp(t0, UTC).isoformat().replace("+00:00", "Z")
        player = Player(plane.api, scenario, t0, proxy)
        player.play()
        duration = _seconds(spec["duration"])
        return {
            "kind": "Timeline",
            "metadata": {"recordedFrom": "the API server's audit log"},
            "duration": duration,
            "latestSeconds": player.latest_s,
            "records": records(plane.audit(), t0, duration, _EARLY_S),
            "podNodes": {
                f"default/{obj['metadata']['name']}": obj["spec"]["nodeName"]
                for obj in [*spec["objects"], *_applied(spec)]
                if obj["kind"] == "Pod"
            },
        }


class Kubelet:
    """One kubelet: whether it lives, when it renews and posts next, and what it sees.

    That of a node which is not Ready at first does not live.
    """

    def __init__(self, node: Json) -> None:
        self.alive = False
        self.renews_at = self.posts_at = 0.0
        self.began = 0.0
        self.seen = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", [])}
        self.since = dict.fromkeys(self.seen, _text(time.time()))


class Player:
    """Kubelets, binder and the scenario's events, one after another.

    `proxy` is before the controller manager; `latest_s`: by how much something was later than it
    should have been.
    """

    def __init__(self, api: Api, scenario: Json, t0: float, proxy: FaultProxy | None) -> None:
        self._api = api
        self._proxy = proxy
        self._spec = scenario["spec"]
        self._t0 = t0
        self._terms = {k: _seconds(v) for k, v in {**_TERMS, **self._spec["kubelet"]}.items()}
        self._kubelets: dict[str, Kubelet] = {}
        self._zones: dict[str, str] = {}
        self._seen: dict[tuple[str, str], float] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.latest_s = 0.0

    def play(self) -> None:
        """From t=0 to the end."""
        for obj in self._spec["objects"]:
            if obj["kind"] == "Node":
                self._begin(obj, self._terms["leaseRenewPhase"])
        for event in self._spec["events"]:
            self._at(_seconds(event["at"]), lambda event=event: self._happen(event))
        self._at(0.0, self._look_at_pods)
        end = _seconds(self._spec["duration"])
        while self._agenda[0][0] <= end:
            at, _, act = heapq.heappop(self._agenda)
            time.sleep(max(0.0, self._t0 + at - time.time()))
            self.latest_s = max(self.latest_s, self._now() - at)
            with contextlib.suppress(Refused):
                act()
        time.sleep(max(0.0, self._t0 + end - time.time()))

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at, next(self._order), act))

    def _now(self) -> float:
        return time.time() - self._t0

    def _begin(self, node: Json, at: float) -> None:
        meta = node["metadata"]
        self._zones[meta["name"]] = meta["labels"].get("topology.kubernetes.io/zone", "")
        kubelet = self._kubelets.setdefault(meta["name"], Kubelet(node))
        if kubelet.seen.get("Ready") == "True":
            self._start(meta["name"], kubelet, at)

    def _start(self, name: str, kubelet: Kubelet, at: float) -> None:
        kubelet.alive, kubelet.began = True, at
        kubelet.renews_at = kubelet.posts_at = at
        self._at(at, lambda: self._beat(name, kubelet, at))

    def _beat(self, name: str, kubelet: Kubelet, at: float) -> None:
        """One renewal; `at` tells a chain of renewals that a later start has replaced."""
        if not kubelet.alive or kubelet.renews_at != at:
            return
        kubelet.renews_at = at + self._terms["leaseRenewInterval"]
        self._at(kubelet.renews_at, lambda: self._beat(name, kubelet, kubelet.renews_at))
        self._renew(name)
        if at >= kubelet.posts_at:
            kubelet.posts_at = at + self._terms["nodeStatusReportInterval"]
            self._post(name, kubelet)

    def _renew(self, name: str) -> None:
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
        try:
            self._api.merge(f"{_LEASES}/{name}", {"spec": spec}, "kubelet")
        except Refused as refused:
            if refused.code != 404:
                raise
            meta = {"name": name, "namespace": "kube-node-lease"}
            self._api.create(_LEASES, {"metadata": meta, "spec": spec})

    def _post(self, name: str, kubelet: Kubelet) -> None:
        now = _text(time.time())
        conditions = [
            {
                "type": type_,
                "status": status,
                "reason": "KubeletReady" if type_ == "Ready" else "KubeletHas",
                "lastHeartbeatTime": now,
                "lastTransitionTime": kubelet.since[type_],
            }
            for type_, status in kubelet.seen.items()
        ]
        path = f"/api/v1/nodes/{name}/status"
        self._api.strategic(path, {"status": {"conditions": conditions}}, "kubelet")

    def _happen(self, event: Json) -> None:
        for what, told in event.items():
            match what:
                case "kubelet":
                    for name in self._targets(told):
                        self._kubelet_event(name, told)
                case "taint":
                    for name in self._targets(told):
                        self._taint(name, told.get("add", []), told.get("remove", []))
                case "lease":
                    touch = {"metadata": {"annotations": {"touched": _text(time.time())}}}
                    for name in self._targets(told):
                        self._api.merge(f"{_LEASES}/{name}", touch)
                case "controllers":
                    assert self._proxy is not None
                    self._proxy.held = "leases" if told["leases"] == "stale" else ""
                case "cordon" | "uncordon":
                    for name in self._targets(told):
                        patch = {"spec": {"unschedulable": what == "cordon" or None}}
                        self._api.merge(f"/api/v1/nodes/{name}", patch)
                case "apply":
                    _apply(self._api, told)
                    if told["kind"] == "Node" and told["metadata"]["name"] not in self._kubelets:
                        self._begin(told, self._now())
                case "delete":
                    self._api.delete(f"{_PATHS[told['kind']]}/{told['name']}")

    def _targets(self, told: Json) -> list[str]:
        if "nodes" in told:
            return list(told["nodes"])
        zone = told["selector"].rpartition("=")[2]
        return [name for name, there in self._zones.items() if there == zone]

    def _kubelet_event(self, name: str, told: Json) -> None:
        kubelet = self._kubelets[name]
        for type_, status in told.get("conditions", {}).items():
            kubelet.seen[type_], kubelet.since[type_] = status, _text(time.time())
        if told.get("heartbeats") == "stop":
            kubelet.alive = False
        elif told.get("heartbeats") == "start":
            if not kubelet.alive:
                self._start(name, kubelet, self._now())
        elif kubelet.alive:
            self._post(name, kubelet)

    def _taint(self, name: str, add: list[str], remove: list[str]) -> None:
        taints = self._api.get(f"/api/v1/nodes/{name}")["spec"].get("taints") or []
        gone = [_taint(text) for text in remove]
        kept = [t for t in taints if not any(_same(t, g) for g in gone)]
        patch = {"spec": {"taints": [*kept, *(_taint(text) for text in add)]}}
        self._api.merge(f"/api/v1/nodes/{name}", patch)

    def _look_at_pods(self) -> None:
        now = self._now()
        self._at(now + _LOOK_AT_PODS_S, self._look_at_pods)
        for pod in self._api.get("/api/v1/pods?resourceVersion=0")["items"]:
            with contextlib.suppress(Refused):
                self._tend(pod, now)

    def _tend(self, pod: Json, now: float) -> None:
        """Bind, start or end a pod, where it is time."""
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node:
            self._bind(pod)
            return
        kubelet = self._kubelets.get(node)
        if kubelet is None or not kubelet.alive:
            if pod["metadata"].get("deletionTimestamp"):
                self._seen.setdefault((uid, "ends"), now)
            return
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
            lasts = min(grace, self._terms["podStopDuration"])
            due = self._seen.setdefault((uid, "ends"), now) + lasts
            if due < kubelet.began:
                due = kubelet.began + _LATE_STOP_S
            if now >= due:
                self._api.delete(_path(pod), {"gracePeriodSeconds": 0})
        elif pod["status"].get("phase") != "Running":
            bound = self._seen.setdefault((uid, "bound"), now)
            if now >= bound + self._terms["podStartDuration"]:
                self._api.strategic(f"{_path(pod)}/status", {"status": _running()}, "kubelet")

    def _bind(self, pod: Json) -> None:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        node = terms[0]["matchFields"][0]["values"][0]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": pod["metadata"]["name"]}, "target": target}
        self._api.create(f"{_path(pod)}/binding", body)


def _apply(api: Api, obj: Json) -> None:
    """Merge-patch what is there, or create it."""
    try:
        api.merge(f"{_PATHS[obj['kind']]}/{obj['metadata']['name']}", obj)
    except Refused as refused:
        if refused.code != 404:
            raise
        _create(api, obj)


def _create(api: Api, obj: Json) -> None:
    """Create an object with its status."""
    path = _PATHS[obj["kind"]]
    api.create(path, obj)
    if obj["kind"] == "Pod":
        status = {"status": obj["status"]}
        api.strategic(f"{path}/{obj['metadata']['name']}/status", status)


def _first_pass(plane: ControlPlane) -> float:
    """When the node monitor first passed, in seconds since the epoch."""
    log = plane.folder / "kube-controller-manager.log"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = _FIRST_PASS.search(log.read_text(errors="replace"))
        if found is not None:
            today = datetime.now().strftime("%Y-%m-%d ")
            return datetime.fromisoformat(today + found[1]).timestamp()
        time.sleep(0.02)
    raise AssertionError(f"the node monitor did not pass:\n{plane.log('kube-controller-manager')}")


def _stamp(api: Api, obj: Json) -> None:
    """Let the simulation begin with objects of the same age. Each is asked for before t=0: the
    first kubelet renews soon after it.
    """
    meta = obj["metadata"]
    stored = api.get(f"{_PATHS[obj['kind']]}/{meta['name']}")["metadata"]
    meta["creationTimestamp"] = stored["creationTimestamp"]


def _applied(spec: Json) -> list[Json]:
    return [event["apply"] for event in spec["events"] if "apply" in event]


def _running() -> Json:
    now = _text(time.time())
    types = ("Initialized", "Ready", "ContainersReady")
    return {
        "phase": "Running",
        "conditions": [{"type": t, "status": "True", "lastTransitionTime": now} for t in types],
    }


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _taint(text: str) -> Json:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _same(one: Json, other: Json) -> bool:
    return all(one.get(k) == other.get(k) for k in ("key", "effect"))


def _seconds(text: str) -> float:
    """A duration as scenarios here write it."""
    if text.endswith("ms"):
        return float(text.removesuffix("ms")) / 1000
    return float(text.removesuffix("s"))


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _record_anew(folder: Path) -> None:
    """Play the folder's scenario.yaml; write it again with its times, and timeline.json."""
    path = folder / "scenario.yaml"
    scenario = yaml.safe_load(path.read_bytes())
    recording = record(scenario)
    release = f"kube-controller-manager {scenario['spec']['profile']}"
    recording["metadata"] = {"name": folder.name, "recordedFrom": release}
    lines = ",\n  ".join(json.dumps(each) for each in recording.pop("records"))
    head = json.dumps({"apiVersion": scenario["apiVersion"], **recording})
    (folder / "timeline.json").write_text(f'{head[:-1]},\n "records": [\n  {lines}]}}\n')
    path.write_text(yaml.safe_dump(scenario, sort_keys=False, default_flow_style=None, width=140))


if __name__ == "__main__":
    _record_anew(Path(sys.argv[1]))
