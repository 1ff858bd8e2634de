"""What actions do to objects, and the words of their records."""

from typing import Any

from kubectl_nodelife.engine import actions
from kubectl_nodelife.kube.meta import ObjectMeta, Time
from kubectl_nodelife.kube.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodSpec, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS

NOW = 1_000_000 * SECOND_NS + 700_000_000
WHO: dict[str, Any] = {"controller": "c", "because": "b"}


def pod(grace: int | None = 30, **fields: Any) -> Pod:
    meta = {"name": "p", "namespace": "d", **fields.pop("metadata", {})}
    status = PodStatus(phase=fields.pop("phase", "Running"), conditions=fields.pop("has", ()))
    spec = PodSpec(
        node_name=fields.pop("node", "n1"), termination_grace_period_seconds=grace, **fields
    )
    return Pod(metadata=ObjectMeta(**meta), spec=spec, status=status)


def delete(grace: int | None = None) -> actions.DeletePod:
    return actions.DeletePod(
        **WHO, namespace="d", pod="p", grace_period_seconds=grace, force=grace == 0
    )


def terminating(ends_s: int, grace: int | None, **fields: Any) -> Pod:
    meta = {
        "deletion_timestamp": Time(ends_s * SECOND_NS),
        "deletion_grace_period_seconds": grace,
        **fields.pop("metadata", {}),
    }
    return pod(metadata=meta, **fields)


def test_deleting_a_pod_is_the_api_servers() -> None:
    """The cases are those of `tests/kube/test_deletion.py`; here only that the action asks it."""
    assert delete(0).effect(pod(), NOW) is None
    marked = delete(5).effect(pod(), NOW)
    assert isinstance(marked, Pod)
    assert marked.metadata.deletion_grace_period_seconds == 5


def test_what_changes_nothing_gives_back_the_very_object() -> None:
    taint = Taint(key="k", effect="NoExecute", value="v")
    ready = NodeCondition(type="Ready", status="True")
    node = Node(
        metadata=ObjectMeta(name="n1", labels={"a": "1"}),
        spec=NodeSpec(taints=(taint,)),
        status=NodeStatus(conditions=(ready,)),
    )
    other = Taint(key="k", effect="NoSchedule")
    for action in (
        actions.AddTaints(**WHO, node="n1", taints=(taint,)),
        actions.RemoveTaints(**WHO, node="n1", taints=(other,)),
        actions.SetNodeLabels(**WHO, node="n1", labels={"a": "1"}),
        actions.SetNodeConditions(**WHO, node="n1", conditions=(ready,)),
    ):
        assert action.effect(node, NOW) is node
        assert action.effect(None, NOW) is None
    has = PodCondition(type="Ready", status="False")
    marked = pod(has=(has,))
    twice = terminating(1_000_020, 30)
    who: dict[str, Any] = {**WHO, "namespace": "d", "pod": "p"}
    assert actions.MarkPodNotReady(**who, condition=has).effect(marked, NOW) is marked
    assert actions.SetPodCondition(**who, condition=has).effect(marked, NOW) is marked
    assert actions.SetPodPhase(**who, phase="Running").effect(marked, NOW) is marked
    assert delete().effect(twice, NOW) is twice
    assert delete().effect(None, NOW) is None


def test_taints_are_replaced_by_key_and_effect() -> None:
    old = Taint(key="k", effect="NoExecute", value="v")
    new = Taint(key="k", effect="NoExecute", value="w")
    node = Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(taints=(old,)))
    added = actions.AddTaints(**WHO, node="n1", taints=(new,)).effect(node, NOW)
    assert isinstance(added, Node)
    assert added.spec.taints == (new,)
    removed = actions.RemoveTaints(**WHO, node="n1", taints=(old,)).effect(added, NOW)
    assert isinstance(removed, Node)
    assert removed.spec.taints == ()
    assert node.spec.taints == (old,)


def test_a_phase_goes_along_with_a_condition() -> None:
    condition = PodCondition(type="DisruptionTarget", status="True", reason="DeletionByPodGC")
    action = actions.SetPodCondition(
        **WHO, namespace="d", pod="p", condition=condition, phase="Failed"
    )
    after = action.effect(pod(), NOW)
    assert isinstance(after, Pod)
    assert (after.status.phase, after.status.conditions) == ("Failed", (condition,))
    (record,) = action.records()
    assert record == (
        "SetPodCondition",
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "phase": "Failed",
        },
    )


def test_a_record_for_each_taint_and_condition() -> None:
    taints = (Taint(key="a", effect="NoExecute", value="v"), Taint(key="b", effect="NoSchedule"))
    assert list(actions.AddTaints(**WHO, node="n", taints=taints).records()) == [
        ("AddTaint", {"key": "a", "effect": "NoExecute", "value": "v"}),
        ("AddTaint", {"key": "b", "effect": "NoSchedule"}),
    ]
    conditions = (NodeCondition(type="Ready", status="Unknown", reason="NodeStatusUnknown"),)
    assert list(actions.SetNodeConditions(**WHO, node="n", conditions=conditions).records()) == [
        (
            "SetNodeCondition",
            {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
        )
    ]


def test_what_writes_and_what_only_tells() -> None:
    who: dict[str, Any] = {**WHO, "namespace": "d", "pod": "p"}
    assert delete().writes
    assert not actions.ScheduleEviction(**who, due_ns=1, toleration_seconds=0).writes
    assert not actions.CancelEviction(**who, due_ns=1).writes
    assert delete().target == ("Pod", ("d", "p"))
