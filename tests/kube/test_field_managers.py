"""Who wrote a node's taints, cordon and lifecycle conditions, read off its managedFields."""

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.kube.codec import decode, decode_json, encode
from kubectl_nodelife.kube.field_managers import (
    NOBODY,
    TAINTS,
    UNSCHEDULABLE,
    FieldManager,
    condition_field,
)
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import parse_time

# As `kubectl get node --show-managed-fields -o json` prints it, after kubectl cordon, kubectl taint
# and a patch of a lifecycle condition. The kubelet's entry has nothing that is asked for.
MANAGED: list[dict[str, Any]] = [
    {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-21T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:status": {}}}}},
        "subresource": "status",
    },
    {
        "manager": "kubectl",
        "operation": "Update",
        "time": "2026-11-21T12:00:01Z",
        "fieldsV1": {"f:spec": {"f:unschedulable": {}, "f:podCIDR": {}}},
    },
    {
        "manager": "kubectl-taint",
        "operation": "Update",
        "time": "2026-11-21T12:00:02Z",
        "fieldsV1": {"f:spec": {"f:taints": {}}},
    },
    {
        "manager": "kubectl-nodelife",
        "operation": "Update",
        "time": "2026-11-21T12:00:03Z",
        "fieldsV1": {
            "f:status": {"f:conditions": {'k:{"type":"DrainInProgress"}': {"f:status": {}}}}
        },
        "subresource": "status",
    },
]


def node(managed: object) -> Node:
    raw = {"metadata": {"name": "n1", "managedFields": managed}}
    found = decode_json(Node, msgspec.json.encode(raw))
    assert found == decode("Node", raw)  # lists and watches read JSON, dumps plain objects too
    return found


def test_each_field_has_its_last_writer() -> None:
    managers = node(MANAGED).managers
    noon = int(parse_time("2026-11-21T12:00:00Z"))
    cordon = FieldManager("kubectl", "Update", noon + 10**9, frozenset({UNSCHEDULABLE}))
    assert managers.writer_of(UNSCHEDULABLE) == cordon
    assert hash(managers) == hash(node(MANAGED).managers)
    taints, condition = (
        managers.writer_of(field) for field in (TAINTS, condition_field("DrainInProgress"))
    )
    assert taints is not None and taints.name == "kubectl-taint"
    assert condition is not None and condition.name == "kubectl-nodelife"
    assert managers.writer_of(condition_field("Drained")) is None


def test_of_two_who_have_a_field_the_later_one_wrote_it() -> None:
    later = {**MANAGED[1], "manager": "kured", "time": "2026-11-21T13:00:00Z"}
    for entries in ([*MANAGED, later], [later, *MANAGED]):
        writer = node(entries).managers.writer_of(UNSCHEDULABLE)
        assert writer is not None and writer.name == "kured"


@pytest.mark.parametrize(
    "managed",
    [
        None,
        [],
        {},
        "text",
        [None],
        [{"manager": "x"}],
        [{**MANAGED[1], "time": "soon"}],
        [{**MANAGED[1], "fieldsV1": "f:spec"}],
        [{**MANAGED[1], "fieldsV1": {"f:spec": ["f:unschedulable"]}}],
        [{**MANAGED[1], "subresource": "status"}],
        [MANAGED[0]],
    ],
)
def test_what_nobody_would_write_is_passed_over_and_the_node_stays_readable(managed: Any) -> None:
    assert node(managed).managers == NOBODY


def test_what_is_kept_is_written_as_the_api_writes_it() -> None:
    kept = node(MANAGED)
    document = encode(kept)
    names = [entry["manager"] for entry in document["metadata"]["managedFields"]]
    assert names == ["kubectl", "kubectl-taint", "kubectl-nodelife"]
    assert decode("Node", document) == kept
    assert "managedFields" not in encode(node([MANAGED[0]]))["metadata"]
