"""`upgrade status`: what annotations and the Lease alone tell of a run."""

import shlex
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.commands.upgrade.orders import _names, resume
from kubectl_nodelife.controllers.upgrade.claims import ClaimHold
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
from kubectl_nodelife.controllers.upgrade.marks import ANNOTATION, NodeMark, NodeState, encode_mark
from kubectl_nodelife.controllers.upgrade.policy import policy_from, policy_mapping
from kubectl_nodelife.controllers.upgrade.report import (
    ANNOTATION_REPORT,
    LeaderReport,
    TimeLeft,
    encode_report,
)
from kubectl_nodelife.errors import NotFound
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.selectors import label_selector
from kubectl_nodelife.kube.times import SECOND_NS, format_time, parse_time
from kubectl_nodelife.outlook.upgrade_status import has_trouble, upgrade_status
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.upgrade import StatusFollower, upgrade_status_page
from tests.objects import lease, node, typed

NOW = parse_time("2026-11-22T12:00:00Z")


def at(seconds: int) -> str:
    return format_time(NOW + seconds * SECOND_NS)


def blue(name: str, mark: NodeMark | str | None = None, ready: str = "True") -> Node:
    """A node of the pool blue with that mark."""
    text = encode_mark(mark) if isinstance(mark, NodeMark) else mark
    notes = {"annotations": {ANNOTATION: text} if text is not None else {}}
    return typed(node(name, ready, zone="a", labels={"pool": "blue"}, metadata=notes))


def of_run(
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
    about = {"namespace": "kube-system", "metadata": {"annotations": notes}}
    times = {"seconds": 60, "leaseTransitions": 3}
    return typed(lease("l", NOW - age_s * SECOND_NS, holder=holder, **times, **about))


ASKED = {"maxUnavailable": "10%", "selector": "pool=blue", "target": ["bootID=changed"]}


def run(phase: RunPhase = RunPhase.RUNNING, **more: Any) -> RunDocument:
    spec = policy_mapping(policy_from({**ASKED, "work": {"mode": "wait"}}))
    return RunDocument(run="r1", phase=phase, spec=spec, **more)


def status(nodes: list[Node], of: Lease | None, *names: str) -> dict[str, Any]:
    return upgrade_status(nodes, of, NOW, {"kind": "direct"}, names)


def text(answer: dict[str, Any]) -> str:
    return render(upgrade_status_page(answer), "table")


TEN = [blue(f"b{i}") for i in range(10)]
DRAINING = NodeMark(
    run="r1", state=NodeState.DRAINING, since=at(-90), deadline=at(810), reason="2 pods are left"
)


def test_without_a_lease_there_is_no_run() -> None:
    answer = status(TEN, None)
    assert (answer["run"], answer["phase"], answer["nodes"]) == ("", "None", [])
    assert "No upgrade is under way" in text(answer)


def test_a_node_in_work_is_told_with_its_clock_and_the_reason() -> None:
    answer = status([blue("b0", DRAINING), *TEN[1:]], of_run(run()))
    row = answer["nodes"][0]
    assert (row["name"], row["pool"], row["zone"], row["state"]) == ("b0", "blue", "a", "Draining")
    assert (row["sinceSeconds"], row["deadlineSeconds"]) == (90, 810)
    assert row["because"] == "2 pods are left"
    assert answer["counts"] == {"Draining": 1, "Waiting": 9}
    assert "b0     blue   a      Draining   90s" in text(answer)


@pytest.mark.parametrize(
    ("told", "age_s", "left_s"),
    [
        pytest.param({}, 5, 810, id="the mark's"),
        pytest.param({"b0": at(300)}, 5, 300, id="its leader's"),
        pytest.param({"b0": ""}, 5, 900, id="the clock stands"),
        pytest.param({"b0": at(300)}, 600, 900, id="nobody leads"),
    ],
)
def test_the_time_of_a_node_is_over_by_its_leaders_clock(
    told: dict[str, str], age_s: int, left_s: int
) -> None:
    said = LeaderReport(run="r1", at=at(0), deadlines=told)
    answer = status([blue("b0", DRAINING), *TEN[1:]], of_run(run(), age_s=age_s, said=said))
    assert answer["nodes"][0]["deadlineSeconds"] == left_s


@pytest.mark.parametrize(
    ("selector", "names"), [("pool=blue,!old", ["b0", "b1"]), ("pool=green", []), ("old", ["b2"])]
)
def test_nodes_are_chosen_by_their_labels_and_counted_all_the_same(
    selector: str, names: list[str]
) -> None:
    b2 = blue("b2")
    b2 = replace(b2, metadata=replace(b2.metadata, labels={"pool": "blue", "old": ""}))
    nodes = [blue("b0", DRAINING), blue("b1"), b2]
    labels = label_selector(selector)
    answer = upgrade_status(nodes, of_run(run()), NOW, {"kind": "direct"}, labels=labels)
    assert [row["name"] for row in answer["nodes"]] == names
    assert answer["counts"] == {"Draining": 1, "Waiting": 2}


def test_the_budgets_are_those_of_the_leader() -> None:
    said = LeaderReport(run="r1", at=at(-5), budgets={"pool/blue/": (12, 9, 0, 4)})
    for age_s in (5, 600):  # of a leader that went the last ones
        answer = status([blue("b0", DRAINING), *TEN[1:]], of_run(run(), said=said, age_s=age_s))
        (pool,) = answer["budgets"]
        assert (pool["scope"], pool["base"], pool["unavailable"]) == ("pool blue", 12, 3)
        assert (pool["available"], pool["mostUnavailable"], pool["slots"]) == (9, 4, 1)
    assert not status(TEN, of_run(run(RunPhase.FINISHED), said=said))["budgets"]


def test_a_leader_lives_while_its_lease_is_renewed() -> None:
    assert status(TEN, of_run(run()))["leader"]["alive"]
    old = status(TEN, of_run(run(), age_s=600))
    assert not old["leader"]["alive"]
    assert "No leader: me last renewed 10m ago" in text(old)
    assert "No leader" in text(status(TEN, of_run(run(), holder="")))


def test_a_pause_is_a_gate_and_trouble() -> None:
    answer = status(TEN, of_run(run(RunPhase.PAUSED, because="2 nodes failed")))
    told = {"gate": "paused", "because": "2 nodes failed", "toldSecondsAgo": None}
    assert answer["gates"] == [told]
    assert has_trouble(answer) and not has_trouble(status(TEN, of_run(run())))


def test_a_failed_node_is_trouble() -> None:
    mark = NodeMark(run="r1", state=NodeState.FAILED, reason="flaps")
    answer = status([blue("b0", mark), *TEN[1:]], of_run(run(failed=("b0",))))
    assert has_trouble(answer) and answer["failures"] == ["b0"]


def test_no_newcomer_is_waited_for_in_the_place_of_a_node_that_failed() -> None:
    gone = StepNode(uid="u", zone="a", pool="blue", mark=replace(DRAINING, state=NodeState.WORKING))
    step = Step(pool="blue", k=1, window=2, nodes={"old": gone})
    (row, *_) = status(TEN[:1], of_run(run(step=step)), "old")["nodes"]
    assert (row["state"], row["because"]) == (
        "Gone",
        "its object is gone; waiting for its newcomer",
    )
    failed = status(TEN, of_run(run(RunPhase.PAUSED, step=step, failed=("old",))))
    assert [row for row in failed["nodes"] if row["state"] == "Gone"] == []
    assert "Failed, and not there any more: old" in text(failed)


def test_a_mark_of_an_epoch_that_the_lease_has_not_come_to_is_shown_as_held() -> None:
    forged = replace(DRAINING, epoch=4)
    answer = status([blue("b0", mark=forged)], of_run(run()), "b0")
    (row,) = answer["nodes"]
    assert row["state"] == "Held" and has_trouble(answer)
    assert row["because"] == (
        "forged, or foreign: its annotation has epoch 4, and the run's Lease is at 3"
    )
    (row,) = status([blue("b0", mark=replace(forged, epoch=3))], of_run(run()), "b0")["nodes"]
    assert row["state"] == "Draining"


def test_a_node_of_another_run_is_left_alone_while_this_one_is_under_way() -> None:
    """It is neither trouble of this run nor in flight, as its controller has it."""
    nodes = [blue("b0", NodeMark(run="r0", state=NodeState.FAILED, since=at(-30))), *TEN[1:]]
    answer = status(nodes, of_run(run()))
    row = answer["nodes"][0]
    assert (row["state"], row["run"]) == ("Skipped", "r0")
    assert row["because"] == "Failed in run r0; this run leaves it alone"
    assert not has_trouble(answer) and answer["counts"] == {"Skipped": 1, "Waiting": 9}
    over = status(nodes, of_run(run(RunPhase.FINISHED)))
    assert over["nodes"][0]["state"] == "Failed", "with no run under way it is shown as it is"


def test_what_is_asked_of_the_leader_is_told_until_it_is_struck() -> None:
    answer = status(TEN, of_run(run(), UpgradeRequest(Verb.PAUSE, because="lunch")))
    assert answer["request"] == {"verb": "pause", "because": "lunch"}
    told = "Run r1 is Running; pause is asked for, and no leader has taken it up (lunch)\n"
    assert text(answer).startswith(told)


def test_a_paused_run_that_is_to_be_aborted_says_so_and_has_no_time_left() -> None:
    """No leader has taken that up: what the last one foretold was the rest of the whole run."""
    paused, abort = run(RunPhase.PAUSED, because="b0 failed"), UpgradeRequest(Verb.ABORT)
    said = LeaderReport(run="r1", at=at(-90), left=LEFT)
    answer = status(TEN, of_run(paused, abort, holder="", said=said))
    told = "Run r1 is Paused: b0 failed; abort is asked for, and no leader has taken it up\n"
    assert text(answer).startswith(told)
    assert answer["estimate"] is None and "resumed" not in text(answer)


def test_what_cannot_be_read_is_said_and_the_rest_told() -> None:
    answer = status([blue("b0", "{"), blue("b1", DRAINING)], of_run("not JSON"))
    assert [n["state"] for n in answer["nodes"]] == ["Unreadable", "Draining"]
    assert len(answer["warnings"]) == 2


def test_a_nodes_name_narrows_it() -> None:
    nodes = [blue("b0", DRAINING), blue("b1", DRAINING)]
    assert [n["name"] for n in status(nodes, of_run(run()), "b1")["nodes"]] == ["b1"]


def test_a_node_that_was_given_back_is_told_with_why() -> None:
    answer = status(TEN, of_run(run(given_back={"b3": "pdb web allows 0"})))
    row = next(row for row in answer["nodes"] if row["name"] == "b3")
    assert (row["state"], row["because"]) == ("Skipped", "pdb web allows 0")


def test_before_the_first_step_it_says_so() -> None:
    assert "Before the first step: no node was claimed yet" in text(status(TEN, of_run(run())))


def test_a_step_is_told_with_its_nodes_and_its_width() -> None:
    step = Step(pool="blue", k=1, window=2, nodes={"b0": StepNode(), "b1": StepNode()})
    told = text(status(TEN, of_run(run(step=step))))
    assert "Step 1 of pool blue takes 2 nodes: b0, b1" in told


def test_zones_have_the_names_that_the_plan_gives_them() -> None:
    found = blue("b0", DRAINING)
    labels = {**(found.metadata.labels or {}), "topology.kubernetes.io/region": "r1"}
    found = replace(found, metadata=replace(found.metadata, labels=labels))
    (row,) = status([found], of_run(run()))["nodes"]
    assert row["zone"] == "r1/a"


def test_the_document_has_the_fields_that_programs_read() -> None:
    answer = status([blue("b0", DRAINING), *TEN[1:]], of_run(run()))
    fields = "run phase because leader step budgets gates counts nodes estimate lowest failures"
    assert set(fields.split()) | {"notEvaluated", "warnings"} <= answer.keys()
    of_node = "name pool zone state sinceSeconds deadlineSeconds because checks"
    assert all(set(of_node.split()) <= row.keys() for row in answer["nodes"])


def test_a_name_that_no_node_has_is_not_found() -> None:
    with pytest.raises(NotFound, match='nodes "b99" not found'):
        status(TEN, of_run(run()), "b99")


def test_a_node_that_waits_its_turn_is_told_with_what_holds_it() -> None:
    said = LeaderReport(
        run="r1", at=at(-5), holds={"b3": ClaimHold("zone", "1 of 5 nodes would be down")}
    )
    answer = status(TEN, of_run(run(), said=said), "b3")
    (row,) = answer["nodes"]
    assert (row["state"], row["because"]) == ("Waiting", "zone: 1 of 5 nodes would be down")


def test_low_points_are_those_that_the_leaders_saw_and_outlive_the_run() -> None:
    low = {"cluster": (8, at(-300)), "pool/blue/": (8, at(-300)), "zone/blue/r1/a": (3, at(-200))}
    for phase in (RunPhase.RUNNING, RunPhase.FINISHED):
        answer = status(TEN, of_run(run(phase), said=LeaderReport(run="r1", lowest=low)))
        assert answer["lowest"]["all"] == 8
        assert answer["lowest"]["byZone"] == {"blue/r1/a": {"available": 3, "at": at(-200)}}
    other = status(TEN, of_run(run(), said=LeaderReport(run="r0", lowest=low)))
    assert other["lowest"]["byPool"] == {}


LEFT = TimeLeft(7, 1800.4, 2640.0, 3600.0, ("the work takes 240s (--expect-work)",))


def test_what_is_left_is_what_the_leader_foretold_and_says_from_when_it_counts() -> None:
    said = LeaderReport(run="r1", at=at(-5), left=LEFT)
    answer = status(TEN, of_run(run(), said=said))
    estimate = answer["estimate"]
    assert (estimate["nodes"], estimate["lowSeconds"], estimate["from"]) == (7, 1800, "now")
    told = "Left: 7 nodes, about 44m (30m to 60m) from now; the work takes 240s (--expect-work)"
    assert told in text(answer)
    gone = status(TEN, of_run(run(), holder="", said=said))
    assert gone["estimate"]["from"] == "when a leader goes on"
    assert "(30m to 60m) from when a leader goes on (foretold 5s ago); " in text(gone)
    unknown = "not evaluated: gates and what holds a claim are unknown: no leader answers; budgets"
    assert unknown in text(gone) and "not evaluated" not in told
    paused = status(TEN, of_run(run(RunPhase.PAUSED), said=said))
    assert paused["estimate"]["from"] == "when the run is resumed"
    assert status(TEN, of_run(run(RunPhase.FINISHED), said=said))["estimate"] is None


def test_checks_are_told_for_a_node_that_comes_back() -> None:
    mark = NodeMark(run="r1", state=NodeState.SETTLING, since=at(-30), deadline=at(870))
    nodes = [blue("b0", mark), *TEN[1:]]
    said = LeaderReport(run="r1", at=at(-5), waits={"b0": "S3: target bootID=changed is not met"})
    (row,) = (answer := status(nodes, of_run(run(), said=said), "b0"))["nodes"]
    results = {check["check"]: check["result"] for check in row["checks"]}
    assert results["S1"] == results["S2"] == "passed" and results["S3"] == "waits"
    assert results["S9"] == "not reached"
    page = render(upgrade_status_page(answer, named=True), "table")
    assert "S3      waits         target bootID=changed is not met" in page
    (row,) = status(nodes, of_run(run()), "b0")["nodes"]
    assert {check["result"] for check in row["checks"]} == {"not evaluated"}


def test_held_nodes_are_told_with_what_a_person_may_type() -> None:
    mark = NodeMark(run="r1", state=NodeState.HELD, reason="unknown whether it ran")
    told = text(status([blue("b0", mark), *TEN[1:]], of_run(run())))
    assert "Decide on b0: kubectl nodelife upgrade resume --retry b0" in told


def test_the_command_that_is_offered_for_two_failed_nodes_retries_both() -> None:
    """`resume` is called with the very words that the status prints."""
    marks = [NodeMark(run="r1", state=NodeState.FAILED, reason="flaps") for _ in range(2)]
    nodes = [blue(name, mark) for name, mark in zip(("b7", "b8"), marks, strict=True)]
    told = text(status([*nodes, *TEN[:7]], of_run(run())))
    (line,) = [line for line in told.splitlines() if line.startswith("Decide on ")]
    words = shlex.split(line.split("upgrade resume ")[1].split(" (")[0])
    assert _names(resume.make_context("resume", words).params["retry"]) == ("b7", "b8")


def test_of_many_failed_nodes_all_are_offered() -> None:
    mark = NodeMark(run="r1", state=NodeState.FAILED, reason="flaps")
    told = text(status([blue(f"b{number}", mark) for number in range(9)], of_run(run())))
    assert "upgrade resume --retry all (or" in told


def test_names_given_one_by_one_count_as_those_with_commas() -> None:
    words = ["--retry", "b7", "--retry", "b8,b9"]
    assert _names(resume.make_context("resume", words).params["retry"]) == ("b7", "b8", "b9")


def test_what_a_leader_that_went_said_of_gates_is_not_taken_for_now() -> None:
    said = LeaderReport(
        run="r1",
        at=at(-5),
        gates={"zone": "a is sick"},
        holds={"b3": ClaimHold("zone", "a")},
        waits={"b0": "S4: Ready"},
    )
    nodes = [blue("b0", DRAINING), *TEN[1:]]
    now = status(nodes, of_run(run(), said=said))
    assert [g["gate"] for g in now["gates"]] == ["zone"]
    assert "Held by gate zone (reported 5s ago): a is sick" in text(now)
    dead = status(nodes, of_run(run(), said=said, age_s=600))
    assert not dead["gates"] and not dead["holds"]
    assert dead["nodes"][0]["because"] == "before its leader went: S4: Ready"


def test_what_the_leader_said_of_the_state_before_is_not_taken_for_this_one() -> None:
    mark = NodeMark(run="r1", state=NodeState.PROVING, since=at(-5), reason="opened")
    for told_s, because in ((-5, "opened"), (-4, "P3: waits")):
        said = LeaderReport(run="r1", at=at(told_s), waits={"b0": "P3: waits"})
        answer = status([blue("b0", mark), *TEN[1:]], of_run(run(), said=said))
        assert answer["nodes"][0]["because"] == because


def test_a_proof_alone_has_no_steps() -> None:
    answer = status(TEN, of_run(run(proof_only=True)))
    assert answer["step"] is None and answer["estimate"] is None
    assert "A proof alone" in text(answer)


def test_watching_tells_what_is_new_and_nothing_that_changes_by_time_alone() -> None:
    follower = StatusFollower(status(TEN, of_run(run())), wide=False)
    assert follower.news(status(TEN, of_run(run(), age_s=9))) == ""
    claimed = [blue("b0", DRAINING), *TEN[1:]]
    told = follower.news(status(claimed, of_run(run(step=Step(pool="blue", window=1)))))
    assert told.splitlines()[0] == "Step 0 of pool blue takes 1 node: none was chosen yet"
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["NODE", "b0"]
    told = follower.news(status(claimed, of_run(run(step=Step(pool="blue", window=1)), age_s=600)))
    assert told.startswith("No leader: me renews no more.") and "NODE" not in told
