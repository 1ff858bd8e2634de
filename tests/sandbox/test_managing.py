"""Who wrote a node's taints, cordon and lifecycle conditions, as the sandbox keeps it."""

from typing import Any

from kubectl_nodelife.kube.field_managers import (
    TAINTS,
    UNSCHEDULABLE,
    condition_field,
    read_field_managers,
)
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sandbox.writing import manager_of, with_writer

NODE: dict[str, Any] = {"metadata": {"name": "a1"}, "spec": {}, "status": {}}
TAINT = {"key": "dedicated", "effect": "NoSchedule"}


def wrote(before: dict[str, Any], manager: str, seconds: int, **parts: Any) -> dict[str, Any]:
    return with_writer(before, {**before, **parts}, manager, seconds * SECOND_NS)


def writers(node: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Field -> its manager, and when in seconds."""
    managers = read_field_managers(node["metadata"].get("managedFields"))
    return {
        field: (entry.name, entry.time_ns // SECOND_NS)
        for entry in managers.entries
        for field in entry.fields
    }


def test_a_cordon_and_a_taint_by_two_people_and_what_is_undone() -> None:
    cordoned = wrote(NODE, "kubectl", 5, spec={"unschedulable": True})
    assert writers(cordoned) == {UNSCHEDULABLE: ("kubectl", 5)}
    tainted = wrote(cordoned, "kubectl-taint", 9, spec={"unschedulable": True, "taints": [TAINT]})
    assert writers(tainted) == {UNSCHEDULABLE: ("kubectl", 5), TAINTS: ("kubectl-taint", 9)}
    back = wrote(tainted, "kubectl", 12, spec={"taints": [TAINT]})
    assert writers(back) == {TAINTS: ("kubectl-taint", 9)}
    assert "managedFields" not in wrote(back, "kubectl-taint", 13, spec={})["metadata"]


def test_a_lifecycle_condition_is_its_writers_and_ready_is_not_noted() -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Drained", "status": "True"}]
    drained = wrote(NODE, "kubectl-nodelife-drain", 7, status={"conditions": conditions})
    assert writers(drained) == {condition_field("Drained"): ("kubectl-nodelife-drain", 7)}


def test_the_name_is_that_of_the_request_else_of_the_program() -> None:
    agent = {"User-Agent": "kubectl/v1.36.3 (linux/amd64) kubernetes/abc"}
    assert manager_of({"fieldManager": "kubectl-taint"}, agent) == "kubectl-taint"
    assert manager_of({}, agent) == "kubectl"
    assert manager_of({}, {}) == "unknown"
