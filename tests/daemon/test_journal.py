"""The journal: what was told is kept, whatever happens to the process or to the disk."""

import sqlite3
from pathlib import Path

import pytest

from kubectl_nodelife.daemon import journal as journal_module
from kubectl_nodelife.daemon.changes import ChangeFilter, document
from kubectl_nodelife.daemon.journal import TooSlow, open_journal
from kubectl_nodelife.daemon.ledger import planned_action
from kubectl_nodelife.engine.actions import CancelEviction, QueueNode
from tests.daemon.lab import SECOND, T0
from tests.daemon.plans import deleted, event, outcomes, scheduled, tainted, zone_state
from tests.planned import lost, on_pod


async def test_numbers_causes_and_one_record_a_taint(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    loss = lost()
    queued = QueueNode(controller="x", because="x", cause=loss, node="n1", zone="z")
    journal.ledger.note(loss, T0, "n1", "")
    journal.ledger.note(queued, T0, "n1", "")
    journal.ledger.note(tainted(queued), T0, "n1", "")
    found = await journal.select(ChangeFilter())
    assert [(c.id, c.action, c.cause) for c in found] == [
        (0, "SetNodeCondition", None),
        (1, "QueueNode", 0),
        (2, "AddTaint", 1),
        (3, "AddTaint", 1),
    ]


async def test_what_nobody_can_see_ends_with_the_write_that_led_to_it(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    ledger = journal.ledger
    taint = tainted()
    schedule = scheduled(taint)
    delete = deleted(schedule)
    ledger.note(taint, T0, "n1", "")
    ledger.note(schedule, T0, "n1", "")
    ledger.settle(taint, "confirmed", T0, "seen")
    assert await outcomes(journal) == [
        ("AddTaint", "confirmed"),
        ("AddTaint", "confirmed"),
        ("ScheduleEviction", "confirmed"),
    ]
    ledger.note(event(schedule), T0 + 300 * SECOND, "n1", "")
    ledger.note(delete, T0 + 300 * SECOND, "n1", "")
    assert (await outcomes(journal))[-2:] == [("RecordEvent", "would"), ("DeletePod", "would")]
    ledger.settle(delete, "confirmed", T0 + 301 * SECOND, "gone")
    assert (await outcomes(journal))[-2:] == [
        ("RecordEvent", "confirmed"),
        ("DeletePod", "confirmed"),
    ]
    assert ledger.open_count() == 0


async def test_a_decision_ends_with_the_write_that_it_led_to(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    schedule = scheduled()  # joined: nobody knows what led to it
    delete = deleted(schedule)
    journal.ledger.note(schedule, T0, "n1", "")
    journal.ledger.note(delete, T0, "n1", "")
    journal.ledger.settle(delete, "confirmed", T0, "gone")
    assert await outcomes(journal) == [
        ("ScheduleEviction", "confirmed"),
        ("DeletePod", "confirmed"),
    ]


async def test_a_decision_is_told_as_decided_and_chosen_as_such(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    taint = tainted()
    for action in (taint, scheduled(taint)):
        journal.ledger.note(action, T0, "n1", "")
    journal.ledger.settle(taint, "confirmed", T0, "seen")

    async def told(outcome: str) -> list[tuple[str, str]]:
        found = await journal.select(ChangeFilter(outcome=outcome))
        assert all(ChangeFilter(outcome=outcome).takes(change) for change in found)
        return [(d["action"], d["outcome"]) for d in map(document, found)]

    assert await told("confirmed") == [("AddTaint", "confirmed")] * 2
    assert await told("decided") == [("ScheduleEviction", "decided")]


async def test_a_newer_decision_takes_the_place_of_the_one_that_stood(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    journal.ledger.note(scheduled(), T0, "n1", "")
    cancel = on_pod(CancelEviction, "p1", because="the taint is gone", due_ns=T0)
    journal.ledger.note(cancel, T0, "n1", "")
    journal.ledger.note(event(cancel), T0, "n1", "")
    loss = lost()
    journal.ledger.note(loss, T0, "n1", "")
    for to in ("PartialDisruption", "Normal"):
        journal.ledger.note(zone_state(to, loss), T0, "", "")
    assert await outcomes(journal) == [
        ("ScheduleEviction", "superseded"),
        ("CancelEviction", "superseded"),
        ("RecordEvent", "superseded"),
        ("SetNodeCondition", "would"),
        ("SetZoneState", "superseded"),
        ("SetZoneState", "would"),
    ]


async def test_what_is_only_said_of_what_the_cluster_shows_is_over_with_that(
    tmp_path: Path,
) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    registered = event(None)
    journal.ledger.note(registered, T0, "n1", "")
    journal.ledger.note(zone_state("FullDisruption", None), T0, "", "")
    assert await outcomes(journal) == [
        ("RecordEvent", "superseded"),
        ("SetZoneState", "superseded"),
    ]
    assert journal.ledger.open_count() == 0


async def test_a_decision_after_which_nothing_was_left_to_do_is_over(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    ledger = journal.ledger
    schedule = scheduled()
    ledger.note(schedule, T0, "n1", "")
    ledger.note(event(schedule), T0, "n1", "")
    ledger.settle(deleted(schedule), "superseded", T0, "nothing was left to change")
    assert await outcomes(journal) == [
        ("ScheduleEviction", "superseded"),
        ("RecordEvent", "superseded"),
    ]
    again = scheduled(due_s=10)
    ledger.note(again, T0, "n1", "")
    first = deleted(again)
    ledger.note(first, T0, "n1", "")
    ledger.settle(first, "confirmed", T0, "already done by another controller")
    ledger.note(event(again), T0, "n1", "")  # our own timer ends after the other one's
    ledger.settle(deleted(again), "superseded", T0, "nothing was left to change")
    assert (await outcomes(journal))[2:] == [
        ("ScheduleEviction", "confirmed"),
        ("DeletePod", "confirmed"),
        ("RecordEvent", "confirmed"),
    ]


async def test_the_document_is_the_contracts_change(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    schedule = scheduled()
    journal.ledger.note(schedule, T0 + 5_000_000, "n1", '{"method":"DELETE"}')
    journal.ledger.settle(schedule, "superseded", T0 + SECOND, "the taint is gone")
    (change,) = await journal.select(ChangeFilter())
    assert document(change) == {
        "id": 0,
        "time": "2026-01-01T00:00:00.005000Z",
        "controller": "taint-eviction",
        "action": "ScheduleEviction",
        "object": {"kind": "Pod", "namespace": "default", "name": "p1", "uid": "uid-p1"},
        "detail": {"due": "2026-01-01T00:05:00.000000Z", "tolerationSeconds": 300},
        "reason": "tainted",
        "cause": None,
        "mode": "dry-run",
        "outcome": "superseded",
        "node": "n1",
        "settledTime": "2026-01-01T00:00:01.000000Z",
        "settledBecause": "the taint is gone",
        "patch": {"method": "DELETE"},
    }


# Choosing


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        pytest.param(ChangeFilter(), [0, 1, 2, 3], id="all"),
        pytest.param(ChangeFilter(node="n1"), [0, 3], id="a-node-and-its-pods"),
        pytest.param(ChangeFilter(node="n2"), [1, 2], id="another-node"),
        pytest.param(ChangeFilter(pod=("default", "p1")), [3], id="a-pod"),
        pytest.param(ChangeFilter(pod=("other", "p1")), [], id="a-pod-elsewhere"),
        pytest.param(ChangeFilter(outcome="confirmed"), [0], id="by-outcome"),
        pytest.param(ChangeFilter(since_ns=T0 + 5), [1, 2, 3], id="since"),
    ],
)
async def test_choosing(tmp_path: Path, wanted: ChangeFilter, ids: list[int]) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    loss = lost("n1")
    journal.ledger.note(loss, T0, "n1", "")
    journal.ledger.settle(loss, "confirmed", T0, "seen")
    journal.ledger.note(tainted(None, "n2"), T0 + 5, "n2", "")
    journal.ledger.note(deleted(), T0 + 6, "n1", "")
    found = await journal.select(wanted)
    assert [c.id for c in found] == ids
    assert [c.id for c in await journal.select(ChangeFilter()) if wanted.takes(c)] == ids


async def test_listeners_are_told_what_comes_and_how_it_ends(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    with journal.following() as following:
        loss = lost()
        journal.ledger.note(loss, T0, "n1", "")
        await journal.flush()
        assert [(c.id, c.outcome) for c in await anext(following)] == [(0, "would")]
        journal.ledger.settle(loss, "confirmed", T0, "seen")
        await journal.flush()
        assert [(c.id, c.outcome) for c in await anext(following)] == [(0, "confirmed")]


async def test_texts_that_nobody_decides_by_are_in_the_file_and_not_in_memory(
    tmp_path: Path,
) -> None:
    """A plan that is open, one that is held and one that ends, with listeners and a restart."""
    journal = open_journal(str(tmp_path / "j.db"))
    with journal.following() as following:
        plans = [lost(f"n{number}") for number in range(3)]
        for number, plan in enumerate(plans):
            journal.ledger.note(plan, T0, plan.node, f'{{"to":{number}}}')
        await journal.flush()
        first = await anext(following)
        assert [(c.patch, c.data) for c in first] == [("", "")] * 3
        wholes = await journal.with_requests(first)
        assert [c.patch for c in wholes] == ['{"to":0}', '{"to":1}', '{"to":2}']
        journal.ledger.hold(plans[1], "the guard", T0 + SECOND)
        journal.ledger.settle(plans[2], "confirmed", T0 + SECOND, "seen")
        await journal.flush()
        told = await journal.with_requests(await anext(following))
        assert [(c.outcome, c.patch) for c in told] == [
            ("held", '{"to":1}'),
            ("confirmed", '{"to":2}'),
        ]
        await journal.close()
        again = open_journal(str(tmp_path / "j.db"))
        inherited = list(again.ledger.inherited())
        assert [planned_action(change) for change in inherited] == plans[:2]
        await again.close()


async def test_a_request_that_could_not_be_written_is_told_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    with journal.following() as following:

        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(journal.store, "write", full)
        journal.ledger.note(lost(), T0, "n1", '{"to":1}')
        await journal.flush()
        batch = await anext(following)
        assert [c.patch for c in await journal.with_requests(batch)] == ['{"to":1}']


async def test_a_listener_that_does_not_read_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_LISTENER_QUEUE", 3)
    journal = open_journal(str(tmp_path / "j.db"))
    with journal.following() as following:
        for number in range(5):
            journal.ledger.note(lost(f"n{number}"), T0, "", "")
            await journal.flush()
        with pytest.raises(TooSlow, match="more changes came than were read"):
            await anext(following)


# What happens to the process and the disk
