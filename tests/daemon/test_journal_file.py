"""The journal's file: crashes, full disks, folders that cannot be written, age and size."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_nodelife.daemon import journal as journal_module
from kubectl_nodelife.daemon.changes import ChangeFilter, Store, read_only
from kubectl_nodelife.daemon.cluster_view import journal_warnings
from kubectl_nodelife.daemon.journal import Journal, open_journal
from kubectl_nodelife.daemon.ledger import outcome_of, planned_action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.overlay import Overlay
from tests.daemon.lab import T0, make_lab, node, run, unreachable
from tests.daemon.plans import HOUR, tainted
from tests.planned import lost

WRITER = """
import asyncio, sys
sys.path[:0] = [{root!r}]
from kubectl_nodelife.daemon.journal import open_journal
from tests.planned import lost
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


async def test_kill_9_loses_no_change_that_was_told(tmp_path: Path) -> None:
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
    found = read_only(path, ChangeFilter())
    assert [c.id for c in found][:acknowledged] == list(range(acknowledged))
    assert len(found) >= acknowledged
    again = open_journal(path)
    assert again.warning == ""
    again.ledger.note(lost("after"), T0, "", "")
    newest = (await again.select(ChangeFilter()))[-1]
    assert newest.id == len(found)


def full_disk(journal: Journal) -> None:
    """From now on the file cannot grow: SQLite's own error for a full disk."""
    db = journal.store._db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")


async def test_a_full_disk_is_said_and_what_came_meanwhile_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_RETRY_SECONDS", 0.0)
    path = str(tmp_path / "j.db")
    journal = open_journal(path)
    await journal.flush()
    full_disk(journal)
    for number in range(2_000):
        journal.ledger.note(lost(f"n{number}"), T0, f"n{number}", '"' + "x" * 100 + '"')
    await journal.flush()
    (warning,) = journal_warnings(journal)
    assert warning == (
        "the journal cannot be written (database or disk is full): 2000 changes are kept in "
        "memory, and lost if the daemon ends"
    )
    assert len(await journal.select(ChangeFilter())) == 2_000
    assert [c.id for c in await journal.select(ChangeFilter(node="n7"))] == [7]
    journal.store._db.execute("PRAGMA max_page_count = 1073741823")
    await journal.flush()
    assert journal_warnings(journal) == []
    assert len(read_only(path, ChangeFilter())) == 2_000


async def test_memory_has_a_limit_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_MOST_WAITING", 500)
    journal = open_journal(str(tmp_path / "j.db"))
    full_disk(journal)
    for number in range(2_000):
        journal.ledger.note(lost(f"n{number}"), T0, "", '"' + "x" * 100 + '"')
    await journal.flush()
    assert journal.waiting() == 500
    assert "1500 changes were dropped, because memory has a limit as well" in (
        journal_warnings(journal)
    )


async def test_a_folder_that_cannot_be_written_means_memory(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "none" / "j.db"))
    assert "changes are kept in memory" in journal.warning
    journal.ledger.note(lost(), T0, "", "")
    assert len(await journal.select(ChangeFilter())) == 1


async def test_a_broken_file_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_bytes(b"this is no database at all" * 100)
    journal = open_journal(str(path))
    assert journal.warning.startswith("the journal was broken and is now ")
    journal.ledger.note(lost(), T0, "", "")
    assert len(await journal.select(ChangeFilter())) == 1
    (aside,) = tmp_path.glob("j.db.broken-*")
    assert aside.read_bytes().startswith(b"this is no database")


async def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "j.db")
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    assert "schema 99 is not ours" in open_journal(path).warning


def test_a_file_of_the_version_before_is_read_and_its_open_plans_end(tmp_path: Path) -> None:
    path = str(tmp_path / "j.db")

    async def before() -> None:
        journal = open_journal(path)
        journal.ledger.note(lost("n1"), T0, "", "")
        await journal.close()

    async def after() -> None:
        journal = open_journal(path)
        assert journal.warning == ""
        (change,) = await journal.select(ChangeFilter())
        assert (change.name, change.data) == ("n1", "")
        fate = outcome_of(change, Overlay(Cache()))
        assert fate == ("superseded", "the daemon was restarted, and no longer plans it")
        await journal.close()

    run(before())
    db = sqlite3.connect(path)
    for name in ("data", "earliest_ns", "latest_ns", "attempts", "held_until_ns", "identity"):
        db.execute(f"ALTER TABLE changes DROP COLUMN {name}")
    db.execute("PRAGMA user_version = 1")
    db.close()
    run(after())


async def test_open_plans_are_kept_as_data_until_they_end_and_numbers_go_on(tmp_path: Path) -> None:
    path = str(tmp_path / "j.db")
    action = tainted()
    journal = open_journal(path)
    journal.ledger.note(action, T0, "", "")
    await journal.close()
    journal = open_journal(path)
    kept = await journal.select(ChangeFilter())
    assert [planned_action(c) for c in kept] == [action, action]
    assert journal.ledger.numbers.next_id > action.id
    cache = Cache()
    shown = node("n1", taints=action.taints)
    cache.set("Node", shown.key, shown)
    assert outcome_of(kept[0], Overlay(cache)) == ("confirmed", "the cluster shows it")
    journal.ledger.settle_inherited(kept[0], "confirmed", T0, "the cluster shows it")
    await journal.flush()
    assert [bool(c.data) for c in await journal.select(ChangeFilter())] == [False, True]
    await journal.close()


# Bounds


async def test_old_changes_go(tmp_path: Path) -> None:
    journal = open_journal(str(tmp_path / "j.db"))
    journal.ledger.note(lost("old"), T0, "", "")
    journal.ledger.note(lost("new"), T0 + 100 * HOUR, "", "")
    await journal.flush()
    assert journal.store.prune(T0 + 7 * 24 * HOUR + 1) == 1
    assert [c.name for c in await journal.select(ChangeFilter())] == ["new"]


async def test_the_file_stays_below_its_limit_and_numbers_go_on(tmp_path: Path) -> None:
    limit = 400_000
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
