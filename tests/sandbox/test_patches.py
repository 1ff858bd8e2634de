"""Patches in their three forms, rows after the RFCs' own examples and kubectl's habits."""

from typing import Any

import pytest

from kubectl_nodelife.kube.codec import merge_patch
from kubectl_nodelife.sandbox.writing import PatchError, json_patch, strategic_patch


@pytest.mark.parametrize(
    "target, patch, result",
    [
        # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@pytest.mark.parametrize(
    "target, operations, result",
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": 1}], {"foo": "bar", "baz": 1}),
        ({"foo": [1, 3]}, [{"op": "add", "path": "/foo/1", "value": 2}], {"foo": [1, 2, 3]}),
        ({"foo": [1]}, [{"op": "add", "path": "/foo/-", "value": 2}], {"foo": [1, 2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/1", "value": 9}], {"a": [1, 9]}),
        ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}),
        ({"a": {"x": 1}, "b": {}}, [{"op": "move", "from": "/a/x", "path": "/b/x"}],
         {"a": {}, "b": {"x": 1}}),
        ({"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}],
         {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ],
)  # fmt: skip
def test_json_patch(target: Any, operations: Any, result: Any) -> None:
    before = repr(target)
    assert json_patch(target, operations) == result
    assert repr(target) == before


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "remove", "path": "/b"}],
        [{"op": "replace", "path": "/b", "value": 2}],
        [{"op": "add", "path": "/a/b/c", "value": 2}],
        [{"op": "add", "path": "no-pointer", "value": 2}],
        [{"op": "add", "path": "/b"}],
        [{"op": "invent", "path": "/a"}],
        [{"path": "/a"}],
        [{"op": "replace", "path": "", "value": 3}],
    ],
)
def test_json_patch_refuses(operations: Any) -> None:
    with pytest.raises(PatchError):
        json_patch({"a": 1}, operations)


READY = {"type": "Ready", "status": "True", "reason": "x"}
DISK = {"type": "DiskPressure", "status": "False"}


@pytest.mark.parametrize(
    "target, patch, result",
    [
        pytest.param(
            {"conditions": [READY, DISK]},
            {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            {"conditions": [{**READY, "status": "Unknown"}, DISK]},
            id="conditions-merge-by-type",
        ),
        pytest.param(
            {"conditions": [READY]},
            {"conditions": [DISK], "$setElementOrder/conditions": [{"type": "Ready"}]},
            {"conditions": [READY, DISK]},
            id="a-new-condition-is-appended",
        ),
        pytest.param(
            {"conditions": [READY, DISK]},
            {"conditions": [{"type": "Ready", "$patch": "delete"}]},
            {"conditions": [DISK]},
            id="delete-a-member",
        ),
        pytest.param(
            {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
            {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}},
            {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}},
            id="taints-are-one-piece",
        ),
        pytest.param({"spec": {"a": 1}}, {"spec": {"a": None}}, {"spec": {}}, id="null-removes"),
        pytest.param(
            {"spec": {"a": 1}}, {"spec": {"$patch": "replace", "b": 2}}, {"spec": {"b": 2}},
            id="replace-an-object",
        ),
        pytest.param(
            {"finalizers": ["x", "y"]},
            {"$deleteFromPrimitiveList/finalizers": ["x"]},
            {"finalizers": ["y"]},
            id="delete-from-a-set",
        ),
        pytest.param(
            {"finalizers": ["x"]}, {"finalizers": ["y"]}, {"finalizers": ["x", "y"]},
            id="sets-grow",
        ),
        pytest.param(
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}},
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="retain-keys",
        ),
    ],
)  # fmt: skip
def test_strategic_patch(target: Any, patch: Any, result: Any) -> None:
    assert strategic_patch(target, patch) == result
