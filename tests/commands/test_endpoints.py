"""What `explain` and `status` say of a node that reports why it is not ready, and of Services."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.objects import write_list

NOW = "2026-11-22T12:10:00Z"
MESSAGE = "container runtime network not ready: cni plugin not initialized\n\x1b[2Jhealthy"


def obj(kind: str, name: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    """An object of the namespace shop."""
    meta = {"name": name, "uid": name, "creationTimestamp": NOW, **more.pop("metadata", {})}
    if kind != "Node":
        meta["namespace"] = "shop"
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def node(name: str, status: str, message: str = "") -> dict[str, Any]:
    """A node whose kubelet says this."""
    ready = {"type": "Ready", "status": status, "reason": "KubeletNotReady", "message": message}
    times = {"lastHeartbeatTime": NOW, "lastTransitionTime": "2026-11-22T12:09:00Z"}
    return obj("Node", name, status={"conditions": [ready | times]})


def pod(name: str, on: str, ready: str) -> dict[str, Any]:
    """A pod of the app web."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    labels = {"labels": {"app": "web"}}
    return obj("Pod", name, metadata=labels, spec={"nodeName": on}, status=status)


def endpoint(name: str, *, ready: bool) -> dict[str, Any]:
    """An endpoint that is this pod."""
    target = {"kind": "Pod", "namespace": "shop", "name": name}
    return {"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "targetRef": target}


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Two nodes, of which one says that it is not ready, and a Service with pods on both."""
    of_web = {"labels": {"kubernetes.io/service-name": "web"}}
    endpoints = [endpoint("web-1", ready=True), endpoint("web-2", ready=False)]
    objects = [
        node("well", "True", "kubelet is posting ready status"),
        node("broken", "False", MESSAGE),
        pod("web-0", "well", "True"),
        pod("web-1", "broken", "True"),
        pod("web-2", "broken", "False"),
        obj("Service", "web", spec={"selector": {"app": "web"}}),
        obj("EndpointSlice", "web-x", "discovery.k8s.io/v1", metadata=of_web, endpoints=endpoints),
    ]
    return write_list(tmp_path / "dump.json", objects)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is printed."""
    assert main([*words, "--now", NOW]) == 0
    return capsys.readouterr().out


def test_the_message_of_ready_is_shown_and_cannot_forge_lines(
    capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    for words in (
        ("explain", "node", "broken"),
        ("explain", "pod", "web-1", "-n", "shop"),
        ("status", "-o", "wide"),
    ):
        text = said(capsys, *words, "-f", dump)
        assert "cni plugin not initialized" in text
        assert "\x1b" not in text and "initialized\n" not in text
        assert "posting ready status" not in text
    document = json.loads(said(capsys, "status", "-o", "json", "-f", dump))
    assert {n["name"]: n["message"] for n in document["nodes"]} == {"broken": MESSAGE, "well": ""}


def test_explain_names_the_services_and_what_still_points_at_the_node_s_pods(
    capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    text = said(capsys, "explain", "node", "broken", "-f", dump)
    assert "Service shop/web still counts on 1 endpoint (web-1); 1 ready elsewhere." in text
    assert "EndpointSlice shop/web-x of Service web still sends traffic to web-1." in text
    text = said(capsys, "explain", "node", "well", "-f", dump)
    assert "Service shop/web loses 1 endpoint (web-0); 1 ready elsewhere." in text
    assert "EndpointSlice" not in text
    text = said(capsys, "explain", "pod", "web-2", "-n", "shop", "-f", dump)
    assert "Service shop/web is without 1 endpoint (web-2); 2 ready elsewhere." in text


def test_without_services_that_is_said(capsys: pytest.CaptureFixture[str], dump: str) -> None:
    made = json.loads(Path(dump).read_text())
    made["items"] = [o for o in made["items"] if o["kind"] in ("Node", "Pod")]
    Path(dump).write_text(json.dumps(made))
    text = said(capsys, "explain", "node", "broken", "-f", dump)
    assert "Not known: no Service was read" in text
