"""The states of nodes and zones as spans of time, and as bars on a screen."""

from typing import Any

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.replay.timeline import ReplaySources, StateSpan, state_spans, timeline
from kubectl_nodelife.report.formats import Table
from kubectl_nodelife.report.replay import MOST, lanes
from tests.replay.told import ALL, NOON, UNREACHABLE, at, change, event, node, wrote


def spans(**sources: Any) -> list[str]:
    """`a1 NotReady 10 to 60` in seconds after noon; no end where it goes on."""
    found = state_spans(timeline(ReplaySources(**sources), ALL))
    return [
        " ".join(
            word
            for word in (
                span.name,
                span.state,
                span.what,
                f"{(span.begin_ns - NOON) // SECOND_NS} to",
                "" if span.end_ns is None else str((span.end_ns - NOON) // SECOND_NS),
            )
            if word
        )
        for span in found
    ]


def test_a_node_that_was_lost_and_came_back() -> None:
    changes = [
        change(1, 10, "SetNodeCondition", "node/a1", type="Ready", status="Unknown"),
        change(2, 15, "AddTaint", "node/a1", key=UNREACHABLE, effect="NoExecute"),
        change(3, 60, "SetNodeCondition", "node/a1", type="Ready", status="True"),
        change(4, 61, "RemoveTaint", "node/a1", key=UNREACHABLE, effect="NoExecute"),
    ]
    taint = f"{UNREACHABLE}:NoExecute"
    assert spans(changes=changes) == ["a1 NotReady 10 to 60", f"a1 tainted {taint} 15 to 61"]


def test_a_cordon_goes_on_until_somebody_says_otherwise() -> None:
    """Its own taint is the cordon once more, and no bar of its own."""
    mirror = ("node.kubernetes.io/unschedulable", "NoSchedule", 6)
    cordoned = node("a1", wrote("kubectl", 5, "unschedulable"), cordoned=True, taints=(mirror,))
    assert spans(nodes=[cordoned]) == ["a1 cordoned 5 to"]
    ended = event(40, "node/a1", "NodeSchedulable", by="kubelet", host="a1")
    assert spans(nodes=[cordoned], events=[ended]) == ["a1 cordoned 5 to 40"]


def test_taints_by_hand_go_on_from_the_last_write_of_the_list() -> None:
    tainted = node("a1", wrote("kubectl-taint", 7, "taints"), taints=(("x", "NoSchedule", None),))
    assert spans(nodes=[tainted]) == ["a1 tainted x:NoSchedule 7 to"]
    assert spans(nodes=[node("a1", wrote("kubectl-taint", 7, "taints"))]) == []


def test_what_was_only_planned_and_what_nobody_saw_begin_is_not_drawn() -> None:
    planned = change(
        1, 10, "AddTaint", "node/a1", outcome="would", key=UNREACHABLE, effect="NoExecute"
    )
    back = change(2, 20, "SetNodeCondition", "node/a1", type="Ready", status="True")
    assert spans(changes=[planned, back]) == []


def test_a_zone_under_the_brake() -> None:
    def turned(number: int, seconds: float, before: str, after: str) -> Any:
        detail = {"from": before, "to": after, "rate": 0.0}
        return change(number, seconds, "SetZoneState", "zone/eu-1a", **detail)

    changes = [
        turned(1, 0, "Initial", "Normal"),
        turned(2, 10, "Normal", "PartialDisruption"),
        turned(3, 20, "PartialDisruption", "FullDisruption"),
        turned(4, 50, "FullDisruption", "Normal"),
    ]
    assert spans(changes=changes) == [
        "eu-1a zone braked PartialDisruption 10 to 20",
        "eu-1a zone braked FullDisruption 20 to 50",
    ]


def test_the_bars_stand_on_one_axis() -> None:
    drawn = lanes(
        [
            StateSpan("a1", "NotReady", "", at(25), at(50)),
            StateSpan("a1", "cordoned", "", at(100), None),
        ],
        at(0),
        at(100),
    )
    (table,) = drawn
    assert isinstance(table, Table)
    rows = [list(row) for row in table.rows]
    assert rows[0][2:4] == ["." * 10 + "=" * 10 + "." * 20, "25s"]
    assert rows[1][2:4] == ["." * 39 + "=", "0s, goes on"]


def test_more_bars_than_a_screen_holds_are_counted() -> None:
    many = [StateSpan(f"n{i:02d}", "NotReady", "", at(0), at(1)) for i in range(MOST + 1)]
    assert lanes(many, at(0), at(2))[1] == "and 1 more bar (-o html has all)"
    assert lanes([], at(0), at(2)) == []


def test_a_state_that_the_node_no_longer_shows_does_not_go_on() -> None:
    """The Event of its end was not seen, or is gone."""
    begun = event(5, "node/a1", "NodeNotSchedulable", by="kubelet", host="a1")
    tainted = change(1, 10, "AddTaint", "node/a1", key=UNREACHABLE, effect="NoExecute")
    sources = ReplaySources(changes=[tainted], events=[begun])
    now = [node("a1")]
    found = state_spans(timeline(sources, ALL), now)
    assert [(s.state, s.is_over) for s in found] == [("tainted", True), ("cordoned", True)]
    (table,) = lanes(found, at(0), at(60))
    assert isinstance(table, Table)
    assert [row[3] for row in table.rows] == ["50s at most", "55s at most"]
    still = state_spans(timeline(sources, ALL), [node("a1", cordoned=True)])
    assert [(s.state, s.is_over) for s in still] == [("tainted", True), ("cordoned", False)]
