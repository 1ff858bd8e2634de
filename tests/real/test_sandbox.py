"""The sandbox answers as a real API server does: the same conversation with both, compared.

Compared are status codes, reasons, messages and causes, and what objects come to; not uids and
instants, which are never the same.
"""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.real.control_plane import Api, Refused, control_plane

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

CONTAINERS = [{"name": "c", "image": "registry.example/i"}]
READY = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
}


class Say(NamedTuple):
    """One request of the conversation. `see`: paths into the answer that are compared.

    `any_words`: the message of an error may be another one.
    """

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    see: tuple[str, ...] = ()
    any_words: bool = False


def pod(name: str, **meta: Any) -> dict[str, Any]:
    """A pod on node n1."""
    labels = {"app": "web"}
    spec = {"containers": CONTAINERS, "nodeName": "n1"}
    return {"metadata": {"name": name, "labels": labels, **meta}, "spec": spec}


def budget(name: str, **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}


def eviction(name: str, **options: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, **options}


OBJECTS = [
    Say("POST", NODES, {"metadata": {"name": "n1", "labels": {"a": "b"}}}, see=("metadata.name",)),
    Say("POST", NODES, {"metadata": {"name": "n1"}}),
    Say("POST", NODES, {"metadata": {}}),
    Say("GET", f"{NODES}/none"),
    Say("GET", "/api/v1/nonsense"),
    Say("GET", "/apis/apps/v1/namespaces/default/nonsense"),
    Say("PATCH", f"{NODES}/none", {"metadata": {}}, MERGE),
    Say(
        "PATCH",
        f"{NODES}/n1",
        {"spec": {"unschedulable": True}},
        STRATEGIC,
        ("spec.unschedulable",),
    ),
    Say(
        "PATCH",
        f"{NODES}/n1",
        {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
        STRATEGIC,
        ("spec.taints",),
    ),
    Say(
        "PATCH",
        f"{NODES}/n1/status",
        {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}},
        STRATEGIC,
        ("status.conditions.0.reason", "spec.unschedulable"),
    ),
    Say(
        "PATCH",
        f"{NODES}/n1/status",
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        STRATEGIC,
        ("status.conditions.0.reason", "status.conditions.0.status"),
    ),
    Say(
        "PATCH",
        f"{NODES}/n1",
        [{"op": "remove", "path": "/spec/unschedulable"}],
        JSON_PATCH,
        ("spec",),
    ),
    Say(
        "PATCH", f"{NODES}/n1", [{"op": "test", "path": "/metadata/name", "value": "x"}], JSON_PATCH
    ),
    Say("PATCH", f"{NODES}/n1", {"metadata": {"resourceVersion": "1"}}, MERGE),
    Say("PATCH", f"{NODES}/n1", {}, "application/unheard-of+json"),
    Say("DELETE", f"{NODES}/none"),
    Say("DELETE", f"{NODES}/n1", {"preconditions": {"uid": "other"}}),
]

WORKLOADS = [
    Say("POST", PODS, pod("p1"), see=("status.phase", "spec.tolerations")),
    Say("POST", PODS, pod("p2")),
    Say("GET", f"{PODS}?fieldSelector=nonsense%3Dx"),
    Say("GET", f"{PODS}?labelSelector=a+in", any_words=True),
    Say("GET", f"{PODS}?continue=rubbish", any_words=True),
    Say("PATCH", f"{PODS}/p1", {"status": READY}, MERGE, ("status.phase",)),
    Say("PATCH", f"{PODS}/p1/status", {"status": READY}, MERGE, ("status.phase",)),
    Say("PATCH", f"{PODS}/p2/status", {"status": READY}, MERGE, ("status.phase",)),
    Say("POST", f"{PODS}/p1/eviction", eviction("other")),
    Say("POST", f"{PODS}/none/eviction", eviction("none")),
    Say("POST", f"{PODS}/p2/eviction?dryRun=All", eviction("p2")),
    Say("POST", BUDGETS, budget("b1", minAvailable=2), see=("spec.minAvailable",)),
    Say("POST", BUDGETS, budget("b2", minAvailable=2)),
    Say("POST", f"{PODS}/p1/eviction", eviction("p1")),
    Say("DELETE", f"{BUDGETS}/b2"),
    Say("POST", f"{PODS}/p1/eviction", eviction("p1")),
    Say("PATCH", f"{BUDGETS}/b1", {"spec": {"minAvailable": 1}}, MERGE, ("metadata.generation",)),
    Say("POST", f"{PODS}/p1/eviction", eviction("p1")),
    Say("POST", f"{PODS}/p2/eviction", eviction("p2")),
    Say("GET", f"{PODS}/p1", see=("metadata.deletionGracePeriodSeconds",)),
    Say("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0}),
    Say("GET", f"{PODS}/p1"),
    Say("POST", PODS, pod("p3", finalizers=["x.example/y"])),
    Say("DELETE", f"{PODS}/p3", see=("metadata.deletionGracePeriodSeconds",)),
    Say(
        "DELETE",
        f"{PODS}/p3",
        {"gracePeriodSeconds": 0},
        see=("metadata.deletionGracePeriodSeconds",),
    ),
    Say("PATCH", f"{PODS}/p3", {"metadata": {"finalizers": None}}, MERGE),
    Say("GET", f"{PODS}/p3"),
]


@pytest.fixture(scope="module")
def real() -> Iterator[Api]:
    """A real API server; the disruption controller keeps the budgets."""
    with control_plane(controller_manager=("--controllers=disruption",)) as plane:
        yield plane.api


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The sandbox as a user runs it, empty. Its kubelets do not start pods here."""
    scenario = tmp_path_factory.mktemp("sandbox") / "scenario.yaml"
    scenario.write_text(
        "{apiVersion: nodelife.dev/v1alpha1, kind: Scenario, metadata: {name: empty},"
        " spec: {kubelet: {podStartDuration: 1h}}}"
    )
    command = [sys.executable, "-m", "kubectl_nodelife", "sandbox", "--controllers", "none"]
    process = subprocess.Popen([*command, "-f", str(scenario)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    killer = threading.Timer(60, process.kill)
    killer.start()
    line = process.stdout.readline()
    killer.cancel()
    assert line.startswith("export KUBECONFIG="), line
    path = Path(line.partition("=")[2].strip())
    assert path.stat().st_mode & 0o777 == 0o600
    config = json.loads(path.read_text())
    try:
        yield Api(config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not path.exists()


@pytest.mark.parametrize("conversation", [OBJECTS, WORKLOADS], ids=["objects", "workloads"])
def test_both_say_the_same(real: Api, sandbox: Api, conversation: list[Say]) -> None:
    differences = []
    for say in conversation:
        theirs, ours = answer(real, say), answer(sandbox, say)
        if ours != theirs:
            differences.append(f"{say.method} {say.path}\n  real: {theirs}\n  ours: {ours}")
        settle(real, say)
        settle(sandbox, say)
    assert not differences, "\n" + "\n".join(differences)


def settle(api: Api, say: Say) -> None:
    """Let the disruption controller catch up with what was said."""
    if say.method == "GET" or "dryRun" in say.path:
        return
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        budgets = api.get(BUDGETS)["items"]
        if all(_is_settled(b) for b in budgets):
            break
        time.sleep(0.05)
    if any(word in say.path for word in ("poddisruptionbudgets", "/status", "eviction")):
        time.sleep(0.3)


def _is_settled(found: Mapping[str, Any]) -> bool:
    return bool(
        found.get("status", {}).get("observedGeneration") == found["metadata"].get("generation")
    )


def answer(api: Api, say: Say) -> Any:
    """What of an answer is compared."""
    try:
        got = api.call(say.method, say.path, say.body, say.content_type)
    except Refused as refused:
        with contextlib.suppress(ValueError):
            status = json.loads(refused.body)
            if say.any_words:
                return (refused.code, status.get("reason"))
            causes = (status.get("details") or {}).get("causes") or []
            return (
                refused.code,
                status.get("reason"),
                plain(status.get("message", "")),
                sorted(plain(cause.get("message", "")) for cause in causes),
            )
        return (refused.code, refused.body)
    return [look(got, path) for path in say.see]


def look(document: Any, path: str) -> Any:
    """The value at a dotted path, None where there is none."""
    for part in path.split("."):
        if isinstance(document, list):
            document = document[int(part)] if int(part) < len(document) else None
        else:
            document = (document or {}).get(part)
    return document


def plain(text: str) -> str:
    """A message without uids and versions."""
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b\d{1,9}\b", "#", text)
