"""Which Services lose which endpoints in a simulation, as the EndpointSlice controller has it."""

from typing import Any

import pytest

from tests.objects import manifest
from tests.sim.documents import found, node, pod, start, stop, story


def service(name: str, **spec: Any) -> dict[str, Any]:
    """A Service that selects the pods with its name as their label app."""
    return manifest("Service", name, "default", spec={"selector": {"app": name}, **spec})


def of(name: str, app: str, on: str) -> dict[str, Any]:
    """A ready pod of the app."""
    made = pod(name, on)
    made["metadata"]["labels"] = {"app": app}
    return made


NODES = [node("a1"), node("a2"), node("a3")]


def test_pods_that_are_marked_leave_their_services_and_come_back() -> None:
    told = story(
        objects=[
            *NODES,
            service("web"),
            service("alone"),
            service("other"),
            of("web-1", "web", "a1"),
            of("web-2", "web", "a1"),
            of("web-3", "web", "a2"),
            of("alone-1", "alone", "a1"),
        ],
        controllers=["node-lifecycle", "taint-eviction", "pod-status"],
        duration="3m",
        events=[stop("10s", "a1"), start("90s", "a1")],
    )
    lost = {r.object.name: r for r in found(told, "RecordEvent", reason="EndpointsLost")}
    assert set(lost) == {"web", "alone"}
    assert "no traffic goes to web-1, web-2; ready endpoints: 1" in lost["web"].reason
    assert lost["web"].detail["type"] == "Normal"
    assert lost["alone"].detail["type"] == "Warning"  # nobody answers any more
    marked = found(told, "MarkPodNotReady")
    assert {r.at for r in lost.values()} == {r.at for r in marked}
    assert lost["web"].cause is not None and told.records[lost["web"].cause] in marked
    back = {r.object.name for r in found(told, "RecordEvent", reason="EndpointsReady")}
    assert back == {"web", "alone"}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"publishNotReadyAddresses": True}, id="publishes-not-ready-addresses"),
        pytest.param({"selector": None}, id="no-selector"),
    ],
)
def test_services_that_lose_nothing(spec: dict[str, Any]) -> None:
    told = story(
        objects=[*NODES, service("web", **spec), of("web-1", "web", "a1")],
        duration="2m",
        events=[stop("10s", "a1")],
    )
    assert found(told, "MarkPodNotReady")
    assert not found(told, "RecordEvent", reason="EndpointsLost")
