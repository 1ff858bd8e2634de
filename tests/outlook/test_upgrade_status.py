"""`upgrade status`: what annotations and the Lease alone tell of a run."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.commands.upgrade.resume import _names, resume
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    RunDocument,
    RunPhase,
    Step,
    StepNode,
    UpgradeRequest,
    Verb,
    encode_document,
)
from kubectl_nodelife.controllers.upgrade.leader import (
    ANNOTATION_REPORT,
    LeaderReport,
    encode_report,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    NodeMark,
    NodeState,
    WorkMark,
    encode_mark,
)
from kubectl_nodelife.controllers.upgrade.policy import policy_from, policy_mapping
from kubectl_nodelife.errors import NotFound
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time, format_time, parse_time
from kubectl_nodelife.outlook.upgrade_status import CheckEvidence, has_trouble, upgrade_status
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.upgrade_status import StatusFollower, UpgradeStatusPage
from kubectl_nodelife.upgrade.forecast import within

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
    run: RunDocument | str | None,
    request: UpgradeRequest | None = None,
    holder: str = "me",
    age_s: int = 5,
    said: LeaderReport | None = None,
) -> Lease:
    text = encode_document(run) if isinstance(run, RunDocument) else run
    notes = {ANNOTATION_RUN: text} if text is not None else {}
    notes |= {ANNOTATION_REQUEST: encode_document(request)} if request is not None else {}
    notes |= {ANNOTATION_REPORT: encode_report(said)} if said is not None else {}
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


ASKED = {"maxUnavailable": "10%", "selector": "pool=blue", "target": ["bootID=changed"]}


def run(phase: RunPhase = RunPhase.RUNNING, **more: Any) -> RunDocument:
    spec = policy_mapping(policy_from({**ASKED, "work": {"mode": "wait"}}))
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
    row = answer["nodes"][0]
    assert (row["name"], row["pool"], row["zone"], row["state"]) == ("b0", "blue", "a", "Draining")
    assert (row["sinceSeconds"], row["deadlineSeconds"]) == (90, 810)
    assert row["because"] == "2 pods are left"
    assert answer["counts"] == {"Draining": 1, "Waiting": 9}
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
    assert "No leader: me last renewed 10m ago" in text(old)
    assert "No leader" in text(status(TEN, lease(run(), holder="")))


def test_a_pause_is_a_gate_and_trouble() -> None:
    answer = status(TEN, lease(run(RunPhase.PAUSED, because="2 nodes failed")))
    told = {"gate": "paused", "because": "2 nodes failed", "toldSecondsAgo": None}
    assert answer["gates"] == [told]
    assert has_trouble(answer) and not has_trouble(status(TEN, lease(run())))


def test_a_failed_node_is_trouble() -> None:
    mark = NodeMark(run="r1", state=NodeState.FAILED, reason="flaps")
    answer = status([node("b0", mark), *TEN[1:]], lease(run(failed=("b0",))))
    assert has_trouble(answer) and answer["failures"] == ["b0"]


def test_a_mark_of_an_epoch_that_the_lease_has_not_come_to_is_shown_as_held() -> None:
    forged = replace(DRAINING, epoch=4)
    answer = status([node("b0", mark=forged)], lease(run()), "b0")
    (row,) = answer["nodes"]
    assert row["state"] == "Held" and has_trouble(answer)
    assert row["because"] == (
        "forged, or foreign: its annotation has epoch 4, and the run's Lease is at 3"
    )
    (row,) = status([node("b0", mark=replace(forged, epoch=3))], lease(run()), "b0")["nodes"]
    assert row["state"] == "Draining"


def test_a_node_of_another_run_is_left_alone_while_this_one_is_under_way() -> None:
    """It is neither trouble of this run nor in flight, as its controller has it."""
    nodes = [node("b0", NodeMark(run="r0", state=NodeState.FAILED, since=at(-30))), *TEN[1:]]
    answer = status(nodes, lease(run()))
    row = answer["nodes"][0]
    assert (row["state"], row["run"]) == ("Skipped", "r0")
    assert row["because"] == "Failed in run r0; this run leaves it alone"
    assert not has_trouble(answer) and answer["counts"] == {"Skipped": 1, "Waiting": 9}
    working = NodeMark(run="r0", state=NodeState.WORKING, since=at(-30))
    (pool,) = [
        budget
        for budget in status([node("b0", working), *TEN[1:]], lease(run()))["budgets"]
        if budget["scope"] == "pool blue"
    ]
    assert pool["available"] == 10, "another run's node counts as what its conditions say"
    over = status(nodes, lease(run(RunPhase.FINISHED)))
    assert over["nodes"][0]["state"] == "Failed", "with no run under way it is shown as it is"


def test_what_is_asked_of_the_leader_is_told_until_it_is_struck() -> None:
    answer = status(TEN, lease(run(), UpgradeRequest(Verb.PAUSE, because="lunch")))
    assert answer["request"] == {"verb": "pause", "because": "lunch"}
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
    row = next(row for row in answer["nodes"] if row["name"] == "b3")
    assert (row["state"], row["because"]) == ("Skipped", "pdb web allows 0")


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


def test_the_document_has_the_fields_that_programs_read() -> None:
    answer = status([node("b0", DRAINING), *TEN[1:]], lease(run()))
    fields = "run phase because leader step budgets gates counts nodes estimate lowest failures"
    assert set(fields.split()) | {"notEvaluated", "warnings"} <= answer.keys()
    of_node = "name pool zone state sinceSeconds deadlineSeconds because checks"
    assert all(set(of_node.split()) <= row.keys() for row in answer["nodes"])


def test_a_name_that_no_node_has_is_not_found() -> None:
    with pytest.raises(NotFound, match='nodes "b99" not found'):
        status(TEN, lease(run()), "b99")


def test_a_node_that_waits_its_turn_is_told_with_what_holds_it() -> None:
    said = LeaderReport(run="r1", at=at(-5), holds={"b3": "zone: 1 of 5 nodes would be down"})
    answer = status(TEN, lease(run(), said=said), "b3")
    (row,) = answer["nodes"]
    assert (row["state"], row["because"]) == ("Waiting", "zone: 1 of 5 nodes would be down")


def test_low_points_are_those_that_the_leaders_saw_and_outlive_the_run() -> None:
    low = {"cluster": (8, at(-300)), "pool/blue/": (8, at(-300)), "zone/blue/r1/a": (3, at(-200))}
    for phase in (RunPhase.RUNNING, RunPhase.FINISHED):
        answer = status(TEN, lease(run(phase), said=LeaderReport(run="r1", lowest=low)))
        assert answer["lowest"]["all"] == 8
        assert answer["lowest"]["byZone"] == {"blue/r1/a": {"available": 3, "at": at(-200)}}
    other = status(TEN, lease(run(), said=LeaderReport(run="r0", lowest=low)))
    assert other["lowest"]["byPool"] == {}


def done(name: str, drain_s: int, work_s: int) -> Node:
    begun, ended = at(-3600 + drain_s), at(-3600 + drain_s + work_s)
    work = WorkMark(started=begun, ended=ended)
    return node(name, NodeMark(run="r1", state=NodeState.DONE, claimed=at(-3600), work=work))


def test_what_is_left_rests_on_the_median_of_what_the_run_took() -> None:
    ended = [done("b0", 60, 240), done("b1", 60, 200), done("b2", 60, 900)]
    grown = Step(pool="blue", k=9, window=0)
    answer = status([*ended, *TEN[3:]], lease(run(step=grown)))
    estimate = answer["estimate"]
    assert estimate["nodes"] == 7 and estimate["from"] == "now"
    assert estimate["assumptions"][0] == "the work takes 240s (the median of 3 nodes of this run)"
    # one at a time: drain 60 s, work 240 s, Ready for 60 s, some 13 s of proof, and soaks once
    assert abs(estimate["expectedSeconds"] - (7 * (60 + 240 + 60 + 13) + 60)) < 7 * 2
    assert estimate["lowSeconds"] < estimate["expectedSeconds"] < estimate["highSeconds"]
    assert "Left: 7 nodes, about 44m (" in text(answer)


def test_the_play_of_the_rest_minds_no_marks_but_the_runs_own() -> None:
    others = NodeMark(run="r0", state=NodeState.WORKING, since=at(-30))
    nodes = [node("b0", "{"), node("b1", others), node("b2", DRAINING), *TEN[3:]]
    answer = status(nodes, lease(run()))
    assert answer["estimate"]["expectedSeconds"] > 60 and not answer["failures"]


def test_a_play_that_takes_too_long_is_given_up_and_that_is_said() -> None:
    clock = iter(range(1000))
    progress = within(5.0, lambda: next(clock), lambda done: None)
    answer = upgrade_status(TEN, lease(run()), NOW, {"kind": "direct"}, progress=progress)
    assert answer["estimate"] is None
    why = "how long the run still takes is not evaluated: its play took longer than 5s"
    assert why in answer["warnings"]
    quiet = upgrade_status(TEN, lease(run()), NOW, {"kind": "direct"}, progress=None)
    assert quiet["estimate"] is None and not quiet["warnings"]


def test_a_run_without_a_leader_says_from_when_the_time_counts() -> None:
    answer = status(TEN, lease(run(), holder=""))
    assert answer["estimate"]["from"] == "when a leader goes on"
    assert any("no leader answers" in text for text in answer["notEvaluated"])
    assert status(TEN, lease(run(RunPhase.FINISHED)))["estimate"] is None


def test_checks_are_told_for_a_node_that_comes_back() -> None:
    mark = NodeMark(run="r1", state=NodeState.SETTLING, since=at(-30), deadline=at(870))
    evidence = CheckEvidence(unread={"CSINode": "forbidden"})
    found = [node("b0", mark), *TEN[1:]]
    for each in found:
        evidence.cache.set("Node", each.key, each)
    answer = upgrade_status(found, lease(run()), NOW, {"kind": "direct"}, ["b0"], evidence)
    (row,) = answer["nodes"]
    results = {check["check"]: check["result"] for check in row["checks"]}
    assert results["S1"] == "passed" and results["S2"] == results["S8"] == "not evaluated"
    assert "checks that need CSINode: forbidden" in answer["notEvaluated"]
    assert "S8      not evaluated" in render(UpgradeStatusPage(answer, named=True), "table")


def test_held_nodes_are_told_with_what_a_person_may_type() -> None:
    mark = NodeMark(run="r1", state=NodeState.HELD, reason="unknown whether it ran")
    told = text(status([node("b0", mark), *TEN[1:]], lease(run())))
    assert "Decide on b0: kubectl nodelife upgrade resume --retry b0" in told


def test_the_command_that_is_offered_for_two_failed_nodes_retries_both() -> None:
    """`resume` is called with the very words that the status prints."""
    marks = [NodeMark(run="r1", state=NodeState.FAILED, reason="flaps") for _ in range(2)]
    nodes = [node(name, mark) for name, mark in zip(("b7", "b8"), marks, strict=True)]
    told = text(status([*nodes, *TEN[:7]], lease(run())))
    (line,) = [line for line in told.splitlines() if line.startswith("Decide on ")]
    words = shlex.split(line.split("upgrade resume ")[1].split(" (")[0])
    assert _names(resume.make_context("resume", words).params["retry"]) == ("b7", "b8")


def test_of_many_failed_nodes_all_are_offered() -> None:
    mark = NodeMark(run="r1", state=NodeState.FAILED, reason="flaps")
    told = text(status([node(f"b{number}", mark) for number in range(9)], lease(run())))
    assert "upgrade resume --retry all (or" in told


def test_names_given_one_by_one_count_as_those_with_commas() -> None:
    words = ["--retry", "b7", "--retry", "b8,b9"]
    assert _names(resume.make_context("resume", words).params["retry"]) == ("b7", "b8", "b9")


def test_what_a_leader_that_went_said_of_gates_is_not_taken_for_now() -> None:
    said = LeaderReport(
        run="r1",
        at=at(-5),
        gates={"zone": "a is sick"},
        holds={"b3": "zone: a"},
        waits={"b0": "S4: Ready"},
    )
    nodes = [node("b0", DRAINING), *TEN[1:]]
    now = status(nodes, lease(run(), said=said))
    assert [g["gate"] for g in now["gates"]] == ["zone"]
    assert "Held by gate zone (reported 5s ago): a is sick" in text(now)
    dead = status(nodes, lease(run(), said=said, age_s=600))
    assert not dead["gates"] and not dead["holds"]
    assert dead["nodes"][0]["because"] == "before its leader went: S4: Ready"


def test_what_the_leader_said_of_the_state_before_is_not_taken_for_this_one() -> None:
    mark = NodeMark(run="r1", state=NodeState.PROVING, since=at(-5), reason="opened")
    for told_s, because in ((-5, "opened"), (-4, "P3: waits")):
        said = LeaderReport(run="r1", at=at(told_s), waits={"b0": "P3: waits"})
        answer = status([node("b0", mark), *TEN[1:]], lease(run(), said=said))
        assert answer["nodes"][0]["because"] == because


def test_work_of_less_than_a_second_is_not_taken_for_work_of_which_nothing_is_known() -> None:
    grown = Step(pool="blue", k=9, window=0)
    estimate = status([done("b0", 60, 0), *TEN[1:]], lease(run(step=grown)))["estimate"]
    assert estimate["assumptions"][0].startswith("the work takes 0s (the median of 1 node")
    assert estimate["expectedSeconds"] < 30 * 60


def test_a_proof_alone_has_no_steps() -> None:
    answer = status(TEN, lease(run(proof_only=True)))
    assert answer["step"] is None and answer["estimate"] is None
    assert "A proof alone" in text(answer)


def test_watching_tells_what_is_new_and_nothing_that_changes_by_time_alone() -> None:
    follower = StatusFollower(status(TEN, lease(run())), wide=False)
    assert follower.news(status(TEN, lease(run(), age_s=9))) == ""
    claimed = [node("b0", DRAINING), *TEN[1:]]
    told = follower.news(status(claimed, lease(run(step=Step(pool="blue", window=1)))))
    assert told.splitlines()[0] == "Step 0 of pool blue takes 1 node: none was chosen yet"
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["NODE", "b0"]
    told = follower.news(status(claimed, lease(run(step=Step(pool="blue", window=1)), age_s=600)))
    assert told.startswith("No leader: me renews no more.") and "NODE" not in told
