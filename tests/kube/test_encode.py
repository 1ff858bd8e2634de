"""Slices and the API's JSON: the same names both ways, nothing invented."""

import json
from typing import Any

import pytest

from kubectl_nodelife.kube.codec import decode, decode_json, encode
from kubectl_nodelife.kube.kinds import kind_named, kind_of
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node, Taint

AT = "2026-01-01T00:00:00Z"
META = {"name": "x", "uid": "u", "resourceVersion": "7", "creationTimestamp": AT}
STATUS = {
    "name": "c",
    "ready": True,
    "started": False,
    "state": {"terminated": {"exitCode": 1, "finishedAt": AT, "containerID": "containerd://1"}},
    "restartCount": 3,
    "containerID": "containerd://2",
}

# Everything in these objects is read by some slice, so it must all come back.
OBJECTS: dict[str, dict[str, Any]] = {
    "Node": {
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": AT}],
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": AT}],
            "allocatable": {"cpu": "8", "pods": 110},
            "nodeInfo": {"kubeletVersion": "v1.36.0", "bootID": "b"},
        },
    },
    "Pod": {
        "spec": {
            "nodeName": "n",
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 0}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "containers": [
                {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "::"}]}
            ],
            "hostNetwork": True,
        },
        "status": {
            "phase": "Running",
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "qosClass": "Burstable",
            "containerStatuses": [STATUS],
            "initContainerStatuses": [],
        },
    },
    "Lease": {
        "spec": {
            "holderIdentity": "n",
            "leaseDurationSeconds": 40,
            "renewTime": "2026-01-01T00:00:00.123456Z",
        }
    },
    "DaemonSet": {
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"hostPID": True, "containers": [{"env": [{"name": "A"}]}]}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        }
    },
    "PodDisruptionBudget": {
        "spec": {"minAvailable": 0, "selector": {}},
        "status": {"disruptedPods": {"p": AT}, "disruptionsAllowed": 1},
    },
    "ReplicationController": {"spec": {"replicas": 0, "selector": {"a": "b"}}},
}


@pytest.mark.parametrize(("kind", "body"), OBJECTS.items(), ids=OBJECTS)
def test_objects_come_back_as_they_were(kind: str, body: dict[str, Any]) -> None:
    raw = {"apiVersion": kind_named(kind).api_version, "kind": kind, "metadata": META, **body}
    from_plain = decode(kind, raw)
    assert kind_of(from_plain) == kind
    assert decode_json(kind_named(kind).type, json.dumps(raw).encode()) == from_plain
    encoded = encode(from_plain)
    assert encoded == raw
    assert list(encoded)[:2] == ["apiVersion", "kind"]


def test_a_part_of_an_object_has_no_kind() -> None:
    taint = Taint("k", "NoExecute", time_added=Time(1_999_999_999))
    assert encode(taint) == {
        "key": "k",
        "effect": "NoExecute",
        "timeAdded": "1970-01-01T00:00:01Z",
    }


def test_zero_values_are_left_out() -> None:
    assert encode(Node()) == {"apiVersion": "v1", "kind": "Node"}
    assert encode(Taint("k", "NoExecute", value="")) == {"key": "k", "effect": "NoExecute"}
