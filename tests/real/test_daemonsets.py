"""The same DaemonSets under the real controller and under ours, in a simulation: the same outcome.

Set-ups live side by side, each in a namespace of its own, on the same nodes. Step by step both
clusters change; at the end each set must have the same pods of the same template on the same
nodes, the same revisions by number and content, and the same counts in its status. Set-ups where
upstream leaves to chance which node is next are not among them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.load import load_objects
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.outlook.daemonset.summary import counts, summarize
from kubectl_nodelife.outlook.daemonset.view import DaemonSets
from kubectl_nodelife.sim.run import Run, run
from kubectl_nodelife.sim.scenario import assemble, parse_scenario
from tests.real.control_plane import Api, ControlPlane, Refused, control_plane
from tests.real.kubelets import Kubelets

Json = dict[str, Any]

SECONDS_A_STEP = 120
STABLE_FOR_S = 7.0
TIMEOUT_S = 90.0
NODES: dict[str, Json] = {
    "n1": {"pool": "blue", "rank": "1"},
    "n2": {"pool": "blue", "rank": "2"},
    "n3": {"pool": "green", "rank": "3"},
    "n4": {"pool": "green", "rank": "4"},
    "n5": {"pool": "blue", "rank": "5"},
}
COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberMisscheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "observedGeneration",
)


def agent(namespace: str, image: int = 1, **fields: Any) -> Json:
    """A set called agent. `pod` goes into the pod spec, all else into the set's."""
    labels = {"app": "agent"}
    pod = {
        "containers": [{"name": "c", "image": f"agent:{image}"}],
        "terminationGracePeriodSeconds": 1,
        **fields.pop("pod", {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **fields,
        },
    }


def rolling(**numbers: Any) -> Json:
    """An update strategy."""
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": numbers}}


def affinity(**term: Any) -> Json:
    """A pod spec with one required node affinity term."""
    required = {"nodeSelectorTerms": [term]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"pod": {"affinity": {"nodeAffinity": node}}}


def expression(key: str, operator: str, *values: str) -> Json:
    """A requirement on a label or field."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


TOLERATES = {"pod": {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}

# namespace -> what is applied at each of the steps; None: nothing
SETUPS: dict[str, list[Json | None]] = {
    "plain": [agent("plain")],
    "selector": [agent("selector", pod={"nodeSelector": {"pool": "blue"}})],
    "expressions": [
        agent("expressions", **affinity(matchExpressions=[expression("rank", "Gt", "2")]))
    ],
    "fields": [
        agent("fields", **affinity(matchFields=[expression("metadata.name", "NotIn", "n2")]))
    ],
    "tolerates": [agent("tolerates", **TOLERATES)],
    "named": [agent("named", pod={"nodeName": "n2"})],
    "update": [
        agent("update", **rolling(maxUnavailable=2)),
        agent("update", 2, **rolling(maxUnavailable=2)),
    ],
    "percent": [
        agent("percent", **rolling(maxUnavailable="40%")),
        None,
        agent("percent", 2, **rolling(maxUnavailable="40%")),
    ],
    "surge": [
        agent("surge", **rolling(maxSurge=1, maxUnavailable=0)),
        agent("surge", 2, **rolling(maxSurge=1, maxUnavailable=0)),
    ],
    "surge-slowly": [
        agent("surge-slowly", minReadySeconds=1, **rolling(maxSurge="40%", maxUnavailable=0)),
        None,
        agent("surge-slowly", 2, minReadySeconds=1, **rolling(maxSurge="40%", maxUnavailable=0)),
    ],
    "on-delete": [
        agent("on-delete", updateStrategy={"type": "OnDelete"}),
        agent("on-delete", 2, updateStrategy={"type": "OnDelete"}),
    ],
    "rollback": [agent("rollback"), agent("rollback", 2), agent("rollback", 1)],
    "history": [
        agent("history", revisionHistoryLimit=1),
        agent("history", 2, revisionHistoryLimit=1),
        agent("history", 3, revisionHistoryLimit=1),
    ],
    "never-available": [
        agent("never-available", **rolling(maxUnavailable=1)),
        agent("never-available", 2, minReadySeconds=3600, **rolling(maxUnavailable=1)),
    ],
    "moves": [
        agent("moves", pod={"nodeSelector": {"pool": "blue"}}),
        agent("moves", pod={"nodeSelector": {"pool": "green"}}),
    ],
}
STEPS = max(len(steps) for steps in SETUPS.values()) + 1


def node_event(step: int) -> Json | None:
    """What happens to a node at that step, as a scenario's event."""
    events: dict[int, Json] = {
        1: {"taint": {"nodes": ["n3"], "add": ["dedicated=x:NoSchedule"]}},
        2: {"taint": {"nodes": ["n5"], "add": ["evict=x:NoExecute"]}},
        3: {"apply": {"apiVersion": "v1", "kind": "Node", **_labels("n4", {"pool": "blue"})}},
    }
    return events.get(step)


def _labels(name: str, labels: Json) -> Json:
    return {"metadata": {"name": name, "labels": labels}}


# --- ours ----------------------------------------------------------------------------------------


def scenario() -> Json:
    """The same story for the simulation."""
    ready = [{"type": "Ready", "status": "True"}]
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "status": {"conditions": ready, "allocatable": {"pods": "110", "cpu": "8"}},
        }
        for name, labels in NODES.items()
    ]
    events: list[Json] = []
    for step in range(STEPS):
        at = f"{1 + step * SECONDS_A_STEP}s"
        happens = node_event(step)
        if happens is not None:
            events.append({"at": at, **happens})
        for steps in SETUPS.values():
            wanted = steps[step] if step < len(steps) else None
            if wanted is not None:
                events.append({"at": at, "apply": wanted})
    return {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "daemonsets"},
        "spec": {
            "profile": "v1.36",
            "controllers": ["node-lifecycle", "taint-eviction", "daemonset", "pod-gc"],
            "duration": f"{(STEPS + 1) * SECONDS_A_STEP}s",
            "kubelet": {"podStartDuration": "1s", "podStopDuration": "1s"},
            "objects": objects,
            "events": events,
        },
    }


def simulated() -> dict[str, Json]:
    """The outcome under our controller."""
    setting = assemble(parse_scenario(msgspec.json.encode(scenario()), "real.json"))
    settings = make_settings(setting.profile, {})
    done = run(setting, make_controllers(settings, setting.scenario.controllers))
    return {namespace: _simulated_outcome(done, namespace) for namespace in SETUPS}


def _simulated_outcome(done: Run, namespace: str) -> Json:
    daemon_set = done.cluster.get("DaemonSet", (namespace, "agent"))
    assert isinstance(daemon_set, DaemonSet)
    status = msgspec.to_builtins(daemon_set.status)
    pods = [p for p in done.cluster.pods.values() if p.namespace == namespace]
    revisions = [r for r in done.cluster.all("ControllerRevision") if r.namespace == namespace]
    numbered = []
    for revision in revisions:
        assert isinstance(revision, ControllerRevision)
        numbered.append((revision.revision, _image(revision.data or {})))
    return {
        "pods": sorted(
            (p.spec.node_name, p.spec.containers[0].image, p.metadata.deletion_timestamp is None)
            for p in pods
        ),
        "revisions": sorted(numbered),
        "status": {key: status.get(key, 0) for key in COUNTS},
    }


def _image(data: Json) -> str:
    return str(data["spec"]["template"]["spec"]["containers"][0]["image"])


# --- the real thing ------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster() -> Iterator[ControlPlane]:
    """A real cluster whose kubelets make every pod Ready."""
    with (
        control_plane(controller_manager=(), scheduler=True) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        for name, labels in NODES.items():
            kubelets.add_node(name, labels)
        for namespace in SETUPS:
            plane.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield plane


def apply(api: Api, wanted: Json) -> None:
    """Create the set, or patch the one that is there."""
    namespace = wanted["metadata"]["namespace"]
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    try:
        api.merge(f"{path}/agent", wanted)
    except Refused as refused:
        if refused.code != 404:
            raise
        api.create(path, wanted)


def happen(api: Api, event: Json) -> None:
    """A scenario's node event on the real cluster."""
    if "apply" in event:
        node = event["apply"]
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        api.merge(path, {"metadata": {"labels": node["metadata"]["labels"]}})
        return
    taint = event["taint"]
    key, _, rest = taint["add"][0].partition("=")
    value, _, effect = rest.partition(":")
    path = f"/api/v1/nodes/{taint['nodes'][0]}"
    taints = api.get(path)["spec"].get("taints") or []
    added = {"key": key, "value": value, "effect": effect}
    api.merge(path, {"spec": {"taints": [*taints, added]}})


def settle(look: Callable[[], Any]) -> Any:
    """What `look` says once it has said the same for a while."""
    deadline = time.monotonic() + TIMEOUT_S
    last, since = look(), time.monotonic()
    while time.monotonic() - since < STABLE_FOR_S:
        assert time.monotonic() < deadline, f"not settled: {last}"
        time.sleep(0.5)
        now = look()
        if now != last:
            last, since = now, time.monotonic()
    return last


def real_outcome(api: Api) -> dict[str, Json]:
    """The outcome under the real controller, as of now."""
    found: dict[str, Json] = {}
    pods = api.get("/api/v1/pods")["items"]
    revisions = api.get("/apis/apps/v1/controllerrevisions")["items"]
    for raw in api.get("/apis/apps/v1/daemonsets")["items"]:
        namespace = raw["metadata"]["namespace"]
        found[namespace] = {
            "pods": sorted(
                (
                    p["spec"].get("nodeName", ""),
                    p["spec"]["containers"][0]["image"],
                    "deletionTimestamp" not in p["metadata"],
                )
                for p in pods
                if p["metadata"]["namespace"] == namespace
            ),
            "revisions": sorted(
                (r["revision"], _image(r["data"]))
                for r in revisions
                if r["metadata"]["namespace"] == namespace
            ),
            "status": {key: raw["status"].get(key, 0) for key in COUNTS},
        }
    return found


def real() -> tuple[dict[str, Json], list[bytes]]:
    """Play the story on a real cluster; its outcome, and a dump after each step."""
    dumps: list[bytes] = []
    with cluster() as plane:
        api = plane.api
        settle(lambda: [_ready(n) for n in api.get("/api/v1/nodes")["items"]])
        for step in range(STEPS):
            event = node_event(step)
            if event is not None:
                happen(api, event)
            for steps in SETUPS.values():
                wanted = steps[step] if step < len(steps) else None
                if wanted is not None:
                    apply(api, wanted)
            settle(lambda: real_outcome(api))
            dumps.append(dump(api))
        outcome: dict[str, Json] = settle(lambda: real_outcome(api))
        return outcome, dumps


def dump(api: Api) -> bytes:
    """What `kubectl get` would save of it."""
    items: list[Json] = []
    for path, kind in (
        ("/api/v1/nodes", "Node"),
        ("/api/v1/pods", "Pod"),
        ("/apis/apps/v1/daemonsets", "DaemonSet"),
        ("/apis/apps/v1/controllerrevisions", "ControllerRevision"),
    ):
        found = api.get(path)
        types = {"apiVersion": found["apiVersion"], "kind": kind}
        items += [{**types, **item} for item in found["items"]]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def _ready(node: Json) -> tuple[str, bool]:
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    tainted = any(
        t["key"] == "node.kubernetes.io/not-ready" for t in node["spec"].get("taints", [])
    )
    return node["metadata"]["name"], conditions.get("Ready") == "True" and not tainted


@pytest.fixture(scope="module")
def played() -> tuple[dict[str, Json], list[bytes]]:
    """The real outcome, and the dumps."""
    return real()


@pytest.fixture(scope="module")
def ours() -> dict[str, Json]:
    """The outcome in our simulation."""
    return simulated()


@pytest.mark.parametrize("namespace", SETUPS)
def test_the_outcome_is_the_real_ones(
    namespace: str, ours: dict[str, Json], played: tuple[dict[str, Json], list[bytes]]
) -> None:
    assert ours[namespace] == played[0][namespace]


@pytest.mark.parametrize("step", range(STEPS))
def test_a_settled_cluster_has_nothing_left_to_do(
    step: int, played: tuple[dict[str, Json], list[bytes]]
) -> None:
    cache = Cache()
    now_ns = time.time_ns()
    for obj in load_objects(played[1][step], "dump").objects:
        cache.apply(Put(type(obj).__name__, obj), now_ns)
    sets = DaemonSets(cache, make_settings("v1.36", {}), now_ns)
    assert len(sets.set_keys()) == len(SETUPS)
    for key in sets.set_keys():
        summary = summarize(sets, key)
        assert summary.counted is not None
        if step == 0:  # later a tainted node may leave the reported counts behind, from 1.33 on
            assert counts(summary.counted) == counts(summary.daemon_set.status), key
        view = sets.view(key)
        assert view is not None
        assert view.current is not None, f"{key}: the real revision is not recognized"
        step_now = view.update_step()
        assert step_now is None or (step_now.create, step_now.delete) == ([], [])
        assert not any(d.create_because or d.delete for d in view.decisions().values())
