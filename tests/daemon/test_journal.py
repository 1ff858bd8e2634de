"""The journal: what was told is kept, whatever happens to the process or to the disk."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.daemon import journal as journal_module
from kubectl_nodelife.daemon.changes import document
from kubectl_nodelife.daemon.journal import Journal, TooSlow, open_journal
from kubectl_nodelife.daemon.sight import journal_warnings
from kubectl_nodelife.daemon.store import Store, Wanted, read_only
from kubectl_nodelife.engine.actions import (
    AddTaints,
    CancelEviction,
    DeletePod,
    QueueNode,
    RecordEvent,
    ScheduleEviction,
    SetNodeConditions,
    SetZoneState,
)
from kubectl_nodelife.kube.node import NodeCondition
from tests.daemon.lab import SECOND, T0, make_lab, run, unreachable

HOUR = 3600 * SECOND


def lost(name: str = "n1") -> SetNodeConditions:
    return SetNodeConditions(
        controller="node-lifecycle",
        because="silent",
        node=name,
        node_uid=f"uid-{name}",
        conditions=(NodeCondition("Ready", "Unknown", "NodeStatusUnknown"),),
    )


def tainted(cause: Any = None, name: str = "n1") -> AddTaints:
    return AddTaints(
        controller="node-lifecycle",
        because="lost",
        cause=cause,
        node=name,
        node_uid=f"uid-{name}",
        taints=(unreachable("NoSchedule"), unreachable()),
    )


def scheduled(cause: Any = None, due_s: int = 300) -> ScheduleEviction:
    return ScheduleEviction(
        controller="taint-eviction",
        because="tainted",
        cause=cause,
        namespace="default",
        pod="p1",
        pod_uid="uid-p1",
        due_ns=T0 + due_s * SECOND,
        toleration_seconds=300,
    )


def deleted(cause: Any = None) -> DeletePod:
    return DeletePod(
        controller="taint-eviction",
        because="its time is over",
        cause=cause,
        namespace="default",
        pod="p1",
        pod_uid="uid-p1",
    )


def event(cause: Any) -> RecordEvent:
    return RecordEvent(
        controller="taint-eviction",
        because="x",
        cause=cause,
        kind="Pod",
        namespace="default",
        name="p1",
        reason="TaintManagerEviction",
    )


async def outcomes(journal: Journal) -> list[tuple[str, str]]:
    return [(c.action, c.outcome) for c in await journal.select(Wanted())]


# The ledger


def test_numbers_causes_and_one_record_a_taint(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(str(tmp_path / "j.db"))
        loss = lost()
        queued = QueueNode(controller="x", because="x", cause=loss, node="n1", zone="z")
        journal.ledger.note(loss, T0, "n1", "")
        journal.ledger.note(queued, T0, "n1", "")
        journal.ledger.note(tainted(queued), T0, "n1", "")
        found = await journal.select(Wanted())
        assert [(c.id, c.action, c.cause) for c in found] == [
            (0, "SetNodeCondition", None),
            (1, "QueueNode", 0),
            (2, "AddTaint", 1),
            (3, "AddTaint", 1),
        ]

    run(story())


def test_what_nobody_can_see_ends_with_the_write_that_led_to_it(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())


def test_a_decision_ends_with_the_write_that_it_led_to(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())


def test_a_newer_decision_takes_the_place_of_the_one_that_stood(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(str(tmp_path / "j.db"))
        journal.ledger.note(scheduled(), T0, "n1", "")
        cancel = CancelEviction(
            controller="taint-eviction",
            because="the taint is gone",
            namespace="default",
            pod="p1",
            pod_uid="uid-p1",
            due_ns=T0,
        )
        journal.ledger.note(cancel, T0, "n1", "")
        journal.ledger.note(event(cancel), T0, "n1", "")
        for to in ("PartialDisruption", "Normal"):
            zone = SetZoneState(
                controller="node-lifecycle", because=to, zone="z", from_="x", to=to, rate=0.1
            )
            journal.ledger.note(zone, T0, "", "")
        assert await outcomes(journal) == [
            ("ScheduleEviction", "superseded"),
            ("CancelEviction", "superseded"),
            ("RecordEvent", "superseded"),
            ("SetZoneState", "superseded"),
            ("SetZoneState", "would"),
        ]

    run(story())


def test_the_document_is_the_contracts_change(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(str(tmp_path / "j.db"))
        schedule = scheduled()
        journal.ledger.note(schedule, T0 + 5_000_000, "n1", '{"method":"DELETE"}')
        journal.ledger.settle(schedule, "superseded", T0 + SECOND, "the taint is gone")
        (change,) = await journal.select(Wanted())
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

    run(story())


# Choosing


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        pytest.param(Wanted(), [0, 1, 2, 3], id="all"),
        pytest.param(Wanted(node="n1"), [0, 3], id="a-node-and-its-pods"),
        pytest.param(Wanted(node="n2"), [1, 2], id="another-node"),
        pytest.param(Wanted(pod=("default", "p1")), [3], id="a-pod"),
        pytest.param(Wanted(pod=("other", "p1")), [], id="a-pod-elsewhere"),
        pytest.param(Wanted(outcome="confirmed"), [0], id="by-outcome"),
        pytest.param(Wanted(since_ns=T0 + 5), [1, 2, 3], id="since"),
        pytest.param(Wanted(after_id=1), [2, 3], id="after"),
    ],
)
def test_choosing(tmp_path: Path, wanted: Wanted, ids: list[int]) -> None:
    async def story() -> None:
        journal = open_journal(str(tmp_path / "j.db"))
        loss = lost("n1")
        journal.ledger.note(loss, T0, "n1", "")
        journal.ledger.settle(loss, "confirmed", T0, "seen")
        journal.ledger.note(tainted(None, "n2"), T0 + 5, "n2", "")
        journal.ledger.note(deleted(), T0 + 6, "n1", "")
        found = await journal.select(wanted)
        assert [c.id for c in found] == ids
        assert [c.id for c in await journal.select(Wanted()) if wanted.takes(c)] == ids

    run(story())


def test_listeners_are_told_what_comes_and_how_it_ends(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(str(tmp_path / "j.db"))
        listener = journal.listen()
        loss = lost()
        journal.ledger.note(loss, T0, "n1", "")
        await journal.flush()
        following = journal.follow(listener, Wanted())
        assert [(c.id, c.outcome) for c in await anext(following)] == [(0, "would")]
        journal.ledger.settle(loss, "confirmed", T0, "seen")
        await journal.flush()
        assert [(c.id, c.outcome) for c in await anext(following)] == [(0, "confirmed")]

    run(story())


def test_a_listener_that_does_not_read_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(journal_module, "_LISTENER_QUEUE", 3)
        journal = open_journal(str(tmp_path / "j.db"))
        listener = journal.listen()
        for number in range(5):
            journal.ledger.note(lost(f"n{number}"), T0, "", "")
            await journal.flush()
        with pytest.raises(TooSlow, match="more changes came than were read"):
            await anext(journal.follow(listener, Wanted()))

    run(story())


# What happens to the process and the disk

WRITER = """
import asyncio, sys
sys.path[:0] = [{root!r}]
from kubectl_nodelife.daemon.journal import open_journal
from tests.daemon.test_journal import lost
from tests.daemon.lab import T0

async def main():
    journal = open_journal({path!r})
    number = 0
    while True:
        for _ in range(7):
            journal.ledger.note(lost(f"n{{number}}"), T0 + number, "", "")
            number += 1
        await journal.flush()
        print(number, flush=True)  # acknowledged

asyncio.run(main())
"""


def test_kill_9_loses_no_change_that_was_told(tmp_path: Path) -> None:
    path = str(tmp_path / "j.db")
    root = str(Path(__file__).parents[2])
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER.format(root=root, path=path)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    for _ in range(40):
        acknowledged = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.communicate()[0].split()
    acknowledged = int(rest[-1]) if rest else acknowledged
    found = read_only(path, Wanted())
    assert [c.id for c in found][:acknowledged] == list(range(acknowledged))
    assert len(found) >= acknowledged

    async def story() -> None:
        again = open_journal(path)
        assert again.warning == ""
        again.ledger.note(lost("after"), T0, "", "")
        newest = (await again.select(Wanted()))[-1]
        assert newest.id == len(found)

    run(story())


def full_disk(journal: Journal) -> None:
    """From now on the file cannot grow: SQLite's own error for a full disk."""
    db = journal.store._db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_said_and_what_came_meanwhile_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(journal_module, "_RETRY_SECONDS", 0.0)
        path = str(tmp_path / "j.db")
        journal = open_journal(path)
        await journal.flush()
        full_disk(journal)
        for number in range(2_000):
            journal.ledger.note(lost(f"n{number}"), T0, f"n{number}", "x" * 100)
        await journal.flush()
        (warning,) = journal_warnings(journal)
        assert warning == (
            "the journal cannot be written (database or disk is full): 2000 changes are kept in "
            "memory, and lost if the daemon ends"
        )
        assert len(await journal.select(Wanted())) == 2_000
        assert [c.id for c in await journal.select(Wanted(node="n7"))] == [7]
        journal.store._db.execute("PRAGMA max_page_count = 1073741823")
        await journal.flush()
        assert journal_warnings(journal) == []
        assert len(read_only(path, Wanted())) == 2_000

    run(story())


def test_memory_has_a_limit_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(journal_module, "_MOST_WAITING", 500)
        journal = open_journal(str(tmp_path / "j.db"))
        full_disk(journal)
        for number in range(2_000):
            journal.ledger.note(lost(f"n{number}"), T0, "", "x" * 100)
        await journal.flush()
        assert journal.waiting() == 500
        assert "1500 changes were dropped, because memory has a limit as well" in (
            journal_warnings(journal)
        )

    run(story())


def test_a_folder_that_cannot_be_written_means_memory(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(str(tmp_path / "none" / "j.db"))
        assert "changes are kept in memory" in journal.warning
        journal.ledger.note(lost(), T0, "", "")
        assert len(await journal.select(Wanted())) == 1

    run(story())


def test_a_broken_file_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_bytes(b"this is no database at all" * 100)

    async def story() -> None:
        journal = open_journal(str(path))
        assert journal.warning.startswith("the journal was broken and is now ")
        journal.ledger.note(lost(), T0, "", "")
        assert len(await journal.select(Wanted())) == 1

    run(story())
    (aside,) = tmp_path.glob("j.db.broken-*")
    assert aside.read_bytes().startswith(b"this is no database")


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "j.db")
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()

    async def story() -> None:
        assert "schema 99 is not ours" in open_journal(path).warning

    run(story())


# Bounds


def test_old_changes_go(tmp_path: Path) -> None:
    async def story() -> None:
        journal = open_journal(str(tmp_path / "j.db"))
        journal.ledger.note(lost("old"), T0, "", "")
        journal.ledger.note(lost("new"), T0 + 100 * HOUR, "", "")
        await journal.flush()
        assert journal.store.prune(T0 + 7 * 24 * HOUR + 1) == 1
        assert [c.name for c in await journal.select(Wanted())] == ["new"]

    run(story())


def test_the_file_stays_below_its_limit_and_numbers_go_on(tmp_path: Path) -> None:
    limit = 400_000

    async def story() -> None:
        store = Store(str(tmp_path / "j.db"), most_bytes=limit)
        journal = Journal(store)
        for number in range(6_000):
            journal.ledger.note(lost(f"n{number}"), T0, "", "x" * 200)
        await journal.flush()
        assert store.size_bytes() > limit
        while store.prune(T0):
            pass
        assert store.size_bytes() <= limit
        assert store.next_id() == 6_000

    run(story())


# A daemon after another


def test_a_restart_goes_on_with_plans_that_are_made_again_and_ends_the_others(
    tmp_path: Path,
) -> None:
    from tests.daemon.lab import lease, node

    async def first() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), node("n3"), *map(lease, ("n1", "n2", "n3")))
        await lab.after(75, "n3")
        assert {n for _, n, _ in await lab.told()} == {"n1", "n2"}
        await lab.journal.flush()  # and then it is killed

    async def second() -> None:
        lab = make_lab(tmp_path)
        taints = (unreachable("NoSchedule"), unreachable())
        gone = node("n2", "Unknown", taints=taints, reason="NodeStatusUnknown")
        await lab.begin(node("n1"), gone, node("n3"), *map(lease, ("n1", "n3")))
        count = len(await lab.told())
        await lab.after(70, "n3")
        changes = [c for c in await lab.changes() if c.action == "AddTaint"]
        assert sorted((c.name, c.outcome) for c in changes) == [
            *[("n1", "would")] * 2,
            *[("n2", "confirmed")] * 2,
        ]
        assert len(await lab.told()) == count, "a plan made again was told again"

    run(first())
    run(second())
