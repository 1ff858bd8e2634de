"""Which writes are overdue: a row for each thing that may excuse one, or not."""

from typing import Any, NamedTuple

import pytest

from kubectl_nodelife.outlook.diverge.observations import ExpectedWrite, UnwatchedSpan
from tests.diverge.rows import UNREADABLE, at, judged, kinds, span, write


class Row(NamedTuple):
    """At `now`, of these writes, these findings are made."""

    about: str
    now: float
    parts: tuple[ExpectedWrite | UnwatchedSpan, ...]
    found: list[str]
    more: dict[str, Any] = {}


TAINT, EVICT, MARK = "AddTaint", "DeletePod", "MarkPodNotReady"
CHAIN = (
    write(1, 0),
    write(2, 0, TAINT, cause=1),
    write(3, 0, MARK, pod="p1", cause=1),
    write(4, 300, EVICT, pod="p1", cause=2),
)

DISRUPT = "SetPodCondition"
DISRUPTED = (
    write(1, 0, TAINT, came=0),
    write(2, 300, DISRUPT, pod="p1", cause=1, controller="taint-eviction"),
)

ROWS = (
    Row("nothing was due", 100, (), []),
    Row("just decided", 1, (write(1, 0),), []),
    Row("within a period, 1 % and the watch", 8.4, (write(1, 0),), []),
    Row("past them", 8.6, (write(1, 0),), ["missing"]),
    Row("it came within them", 100, (write(1, 0, came=8.4),), []),
    Row("it came late", 100, (write(1, 0, came=9),), ["late"]),
    Row("it came before ours was due", 100, (write(1, 0, came=0, first=True),), []),
    Row(
        "it ended because the kubelet is back, in time",
        100,
        (write(1, 0, came=5, outcome="superseded"),),
        [],
    ),
    Row(
        "it ended because the kubelet is back, too late",
        100,
        (write(1, 0, came=20, outcome="superseded"),),
        ["missing"],
    ),
    Row(
        "a pod's DisruptionTarget goes with its deletion",
        330,
        (*DISRUPTED, write(3, 300, EVICT, pod="p1", cause=1)),
        ["missing"],
    ),
    Row("one alone is told", 330, DISRUPTED, ["missing"]),
    Row(
        "or with a deletion that came late",
        400,
        (
            write(1, 0, TAINT, came=0),
            write(2, 300, DISRUPT, pod="p1", cause=1, controller="taint-eviction", came=329.9),
            write(3, 300, EVICT, pod="p1", cause=1, came=330),
        ),
        ["late"],
    ),
    Row("what hangs on a missing write is not told besides", 20, CHAIN, ["missing"]),
    Row(
        "of another controller, which is not judged",
        100,
        (write(1, 0, controller="daemonset"),),
        [],
    ),
    Row(
        "of a controller that is not looked at", 100, (write(1, 0),), [], {"evaluated": ("pod-gc",)}
    ),
    Row(
        "pod-gc looks every 20 s, and waits for 40",
        60,
        (write(1, 0, EVICT, pod="p", controller="pod-gc"),),
        [],
    ),
    Row("pod-gc, past that", 75, (write(1, 0, EVICT, pod="p", controller="pod-gc"),), ["missing"]),
    Row(
        "an eviction is due as long after its taint as ours",
        325,
        (
            write(1, 0, came=3),
            write(2, 0, TAINT, came=17, cause=1),
            write(3, 300, EVICT, pod="p", cause=2),
        ),
        [],
    ),
    Row(
        "and past that",
        325,
        (
            write(1, 0, came=3),
            write(2, 0, TAINT, came=3, cause=1),
            write(3, 300, EVICT, pod="p", cause=2),
        ),
        ["missing"],
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.about)
def test_which_writes_are_overdue(row: Row) -> None:
    assert kinds(judged(row.now, *row.parts, **row.more)) == row.found


OLD = (
    Row("under a taint from before, the clock may have begun later", 300, CHAIN[3:], []),
    Row("and longer after", 620, CHAIN[3:], ["disabled", "missing"]),
)


@pytest.mark.parametrize("row", OLD, ids=lambda row: row.about)
def test_evictions_under_a_taint_that_nobody_saw_coming(row: Row) -> None:
    assert kinds(judged(row.now, *row.parts, **row.more)) == row.found


BLIND = (
    Row("cold now", 100, (write(1, 0), span(-10, None)), []),
    Row("cold until a moment ago", 100, (write(1, 0), span(-10, 95)), []),
    Row("cold until longer ago", 100, (write(1, 0), span(-10, 80)), ["missing"]),
    Row("it came late, but nobody watched", 100, (write(1, 0, came=50), span(20, 40)), []),
    Row("it came late, before nobody watched", 100, (write(1, 0, came=50), span(60, 70)), ["late"]),
    Row(
        "another leader began, and is given its time",
        60,
        (write(1, 0),),
        ["restarted"],
        {"leaders": ((at(20), "cm-2"),)},
    ),
    Row(
        "another leader, and its time is over",
        80,
        (write(1, 0),),
        ["missing", "restarted"],
        {"leaders": ((at(20), "cm-2"),)},
    ),
    Row(
        "another leader came between",
        100,
        (write(1, 0, came=50),),
        ["restarted"],
        {"leaders": ((at(20), "cm-2"),)},
    ),
    Row(
        "another leader came right before, with clocks of its own",
        100,
        (write(1, 25, came=60),),
        ["restarted"],
        {"leaders": ((at(20), "cm-2"),)},
    ),
    Row(
        "another leader came long before",
        300,
        (write(1, 120, came=160),),
        ["late", "restarted"],
        {"leaders": ((at(20), "cm-2"),)},
    ),
)


@pytest.mark.parametrize("row", BLIND, ids=lambda row: row.about)
def test_what_was_not_watched_is_not_judged(row: Row) -> None:
    assert kinds(judged(row.now, *row.parts, **row.more)) == row.found


def zone(*came: float | None, every: float = 10) -> tuple[ExpectedWrite, ...]:
    """Nodes of one zone that our copy taints every so many seconds; when the cluster did."""
    return tuple(
        write(
            n, n * every, TAINT, on=f"n{n}", came=when, first=when is not None and when < n * every
        )
        for n, when in enumerate(came)
    )


TOKENS = (
    Row("as ours", 60, zone(0, 10, 20), []),
    Row("in another order", 60, zone(20, 10, 0.5), []),
    Row("the first waits for a token that another had", 14, zone(None, 1), []),
    Row("one in two is missing", 60, zone(0, None, 20, None), ["missing", "missing"]),
    Row("each a little later than the one before", 200, zone(0, 19, 38, 57, 76), ["late", "late"]),
    Row(
        "a node came back before its turn",
        60,
        (*zone(0, 10), write(9, 20, TAINT, came=21, outcome="superseded")),
        [],
    ),
)


@pytest.mark.parametrize("row", TOKENS, ids=lambda row: row.about)
def test_taints_of_one_zone_answer_for_one_another(row: Row) -> None:
    assert kinds(judged(row.now, *row.parts)) == row.found


def marks(count: int, came_of: int, each: float) -> list[ExpectedWrite]:
    """So many pods marked at once, of which the first came, one after the other."""
    return [
        write(n + 1, 0, MARK, pod=f"p{n}", came=1 + n * each if n < came_of else None)
        for n in range(count)
    ]


def test_thousands_of_writes_take_their_time_while_they_come() -> None:
    busy = marks(2_000, 1_000, 0.05)
    assert kinds(judged(52, *busy)) == []
    assert kinds(judged(70, *busy)) == ["missing"]  # it has not gone on for a while
    found = judged(70, *busy).findings[0]
    assert (found.count, found.node) == (1_000, "n1")
    assert found.message.startswith("MarkPodNotReady on 1000 pods of n1 is due for 1m")


def test_what_hangs_on_a_missing_write_is_counted() -> None:
    (found,) = judged(20, *CHAIN).findings
    assert found.message.endswith("is due for 20s and has not come; 3 more depend on it")
    assert (found.expected_ns, found.because) == (at(0), "silent for too long")


def test_four_conditions_are_one_write() -> None:
    four = [
        write(n, 0, what=f"{type_}=Unknown") for n, type_ in enumerate(("Ready", "A", "B", "C"))
    ]
    (found,) = judged(20, *four, lease=UNREADABLE, last_write_ns=at(5)).findings
    assert (found.kind, found.detail, found.count) == ("missing", "Ready=Unknown", 1)


def test_what_was_before_is_not_told() -> None:
    parts = (write(1, 0, came=9),)
    assert kinds(judged(100, *parts, since_ns=at(8))) == ["late"]
    assert kinds(judged(100, *parts, since_ns=at(10))) == []
