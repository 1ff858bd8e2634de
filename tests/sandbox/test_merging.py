"""What a slice does not hold survives a change made to the slice."""

from msgspec.structs import replace

from kubectl_nodelife.kube.codec import decode, encode
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sandbox.served import merge_back, overlay

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "u", "selfLink": "kept"},
    "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {
        "images": [{"names": ["x"]}],
        "conditions": [{"type": "Ready", "status": "True", "unknownField": 7}],
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "d"},
    "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "E"}]}]},
    "status": {"phase": "Running", "hostIPs": [{"ip": "1.2.3.4"}]},
}


def test_what_no_slice_holds_is_kept() -> None:
    node = decode("Node", NODE)
    assert isinstance(node, Node)
    ready = NodeCondition(type="Ready", status="Unknown", reason="NodeStatusUnknown")
    changed = replace(
        node,
        spec=replace(node.spec, taints=(*node.spec.taints, Taint(key="b", effect="NoExecute"))),
        status=replace(node.status, conditions=(ready,)),
    )
    merged = merge_back(NODE, encode(node), encode(changed))
    assert merged["spec"] == {
        "podCIDR": "10.0.0.0/24",
        "taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}],
    }
    assert merged["status"]["images"] == [{"names": ["x"]}]
    assert merged["status"]["conditions"] == [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "unknownField": 7,
        }
    ]
    assert merged["metadata"] == NODE["metadata"]


def test_no_change_gives_the_very_object_and_a_removed_field_goes() -> None:
    node = decode("Node", NODE)
    assert isinstance(node, Node)
    assert merge_back(NODE, encode(node), encode(node)) is NODE
    cleared = replace(node, spec=replace(node.spec, taints=()))
    assert merge_back(NODE, encode(node), encode(cleared))["spec"] == {"podCIDR": "10.0.0.0/24"}


def test_members_of_a_list_that_did_not_change_keep_what_no_slice_holds() -> None:
    pod = decode("Pod", POD)
    assert isinstance(pod, Pod)
    moved = replace(pod, spec=replace(pod.spec, node_name="n1"))
    merged = merge_back(POD, encode(pod), encode(moved))
    assert merged["spec"]["containers"] == POD["spec"]["containers"]  # type: ignore[index]
    assert merged["spec"]["nodeName"] == "n1"


def test_an_overlay_completes_a_template() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "E"}]}]}}
    made = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], "nodeName": "n"}}
    assert overlay(template, made) == {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "env": [{"name": "E"}]}],
            "nodeName": "n",
        },
    }
