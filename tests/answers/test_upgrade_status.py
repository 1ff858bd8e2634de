"""`upgrade status`: what annotations and the Lease alone tell of a run."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.answers.upgrade_status import has_trouble, upgrade_status
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_RUN,
    ANNOTATION_WISH,
    RunDocument,
    RunPhase,
    Step,
    StepNode,
    Verb,
    Wish,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, NodeMark, NodeState, encode_mark
from kubectl_nodelife.controllers.upgrade.policy import policy_from, policy_mapping
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time, format_time, parse_time
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.upgrade_status import UpgradeStatusPage

NOW = parse_time("2026-11-22T12:00:00Z")


def at(seconds: int) -> str:
    return format_time(NOW + seconds * SECOND_NS)


def node(name: str, mark: NodeMark | str | None = None, ready: str = "True") -> Node:
    text = encode_mark(mark) if isinstance(mark, NodeMark) else mark
    return decode(  # type: ignore[return-value]
        "Node",
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": {"pool": "blue", "topology.kubernetes.io/zone": "a"},
                "annotations": {ANNOTATION: text} if text is not None else {},
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        },
    )


def lease(
    run: RunDocument | str | None, wish: Wish | None = None, holder: str = "me", age_s: int = 5
) -> Lease:
    text = encode_document(run) if isinstance(run, RunDocument) else run
    notes = {ANNOTATION_RUN: text} if text is not None else {}
    notes |= {ANNOTATION_WISH: encode_document(wish)} if wish is not None else {}
    return decode(  # type: ignore[return-value]
        "Lease",
        {
            "metadata": {"name": "l", "namespace": "kube-system", "annotations": notes},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": 60,
                "leaseTransitions": 3,
                "renewTime": format_micro_time(NOW - age_s * SECOND_NS),
            },
        },
    )


def run(phase: RunPhase = RunPhase.RUNNING, **more: Any) -> RunDocument:
    spec = policy_mapping(policy_from({"maxUnavailable": "10%", "selector": "pool=blue"}))
    return RunDocument(run="r1", phase=phase, spec=spec, **more)


def status(nodes: list[Node], of: Lease | None, *names: str) -> dict[str, Any]:
    return upgrade_status(nodes, of, NOW, {"kind": "direct"}, names)


def text(answer: dict[str, Any]) -> str:
    return render(UpgradeStatusPage(answer), "table")


TEN = [node(f"b{i}") for i in range(10)]
DRAINING = NodeMark(
    run="r1", state=NodeState.DRAINING, since=at(-90), deadline=at(810), reason="2 pods are left"
)


def test_without_a_lease_there_is_no_run() -> None:
    answer = status(TEN, None)
    assert (answer["run"], answer["phase"], answer["nodes"]) == ("", "None", [])
    assert "No upgrade is under way" in text(answer)


def test_a_node_in_work_is_told_with_its_clock_and_the_reason() -> None:
    answer = status([node("b0", DRAINING), *TEN[1:]], lease(run()))
    (row,) = answer["nodes"]
    assert (row["name"], row["pool"], row["zone"], row["state"]) == ("b0", "blue", "a", "Draining")
    assert (row["sinceSeconds"], row["deadlineSeconds"]) == (90, 810)
    assert row["because"] == "2 pods are left"
    assert answer["counts"] == {"Draining": 1}
    assert "b0     blue   a      Draining   90s" in text(answer)


def test_the_budgets_are_those_of_the_leader() -> None:
    answer = status([node("b0", DRAINING), *TEN[1:]], lease(run(base_counts={})))
    pool = next(b for b in answer["budgets"] if b["scope"] == "pool blue")
    assert (pool["base"], pool["available"], pool["mostUnavailable"], pool["slots"]) == (
        10,
        9,
        1,
        0,
    )


def test_a_leader_lives_while_its_lease_is_renewed() -> None:
    assert status(TEN, lease(run()))["leader"]["alive"]
    old = status(TEN, lease(run(), age_s=600))
    assert not old["leader"]["alive"]
    assert "No leader: me was last heard 10m ago" in text(old)
    assert "No leader" in text(status(TEN, lease(run(), holder="")))


def test_a_pause_is_a_gate_and_trouble() -> None:
    answer = status(TEN, lease(run(RunPhase.PAUSED, because="2 nodes failed")))
    assert answer["gates"] == [{"gate": "paused", "because": "2 nodes failed"}]
    assert has_trouble(answer) and not has_trouble(status(TEN, lease(run())))


def test_a_failed_node_is_trouble() -> None:
    mark = NodeMark(run="r1", state=NodeState.FAILED, reason="flaps")
    answer = status([node("b0", mark), *TEN[1:]], lease(run(failed=("b0",))))
    assert has_trouble(answer) and answer["failures"] == ["b0"]


def test_what_is_asked_of_the_leader_is_told_until_it_is_struck() -> None:
    answer = status(TEN, lease(run(), Wish(Verb.PAUSE, because="lunch")))
    assert answer["wish"] == {"verb": "pause", "because": "lunch"}
    assert "Asked of the leader: pause (lunch)" in text(answer)


def test_what_cannot_be_read_is_said_and_the_rest_told() -> None:
    answer = status([node("b0", "{"), node("b1", DRAINING)], lease("not JSON"))
    assert [n["state"] for n in answer["nodes"]] == ["Unreadable", "Draining"]
    assert len(answer["warnings"]) == 2


def test_a_nodes_name_narrows_it() -> None:
    nodes = [node("b0", DRAINING), node("b1", DRAINING)]
    assert [n["name"] for n in status(nodes, lease(run()), "b1")["nodes"]] == ["b1"]


def test_a_node_that_was_given_back_is_told_with_why() -> None:
    answer = status(TEN, lease(run(given_back={"b3": "pdb web allows 0"})))
    assert answer["nodes"][0]["because"] == "pdb web allows 0"


def test_before_the_first_step_it_says_so() -> None:
    assert "Before the first step: no node was claimed yet" in text(status(TEN, lease(run())))


def test_a_step_is_told_with_its_nodes_and_its_width() -> None:
    step = Step(pool="blue", k=1, window=2, nodes={"b0": StepNode(), "b1": StepNode()})
    told = text(status(TEN, lease(run(step=step))))
    assert "Step 1 of pool blue takes 2 nodes: b0, b1" in told


def test_vanished_nodes_count_since_the_start() -> None:
    answer = status(TEN, lease(run(base_counts={"cluster": 12, "pool/blue": 12})))
    pool = next(b for b in answer["budgets"] if b["scope"] == "pool blue")
    assert (pool["base"], pool["unavailable"], pool["slots"]) == (12, 2, 0)


def test_zones_have_the_names_that_the_plan_gives_them() -> None:
    found = node("b0", DRAINING)
    labels = {**(found.metadata.labels or {}), "topology.kubernetes.io/region": "r1"}
    found = replace(found, metadata=replace(found.metadata, labels=labels))
    (row,) = status([found], lease(run()))["nodes"]
    assert row["zone"] == "r1/a"
