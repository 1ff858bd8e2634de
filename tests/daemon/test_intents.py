"""The journal of writes fails closed: where it cannot be trusted, nothing is sent."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.changes import ChangeFilter, Store
from kubectl_nodelife.daemon.enforce.enforcement import Enforcement, make_enforcement
from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.daemon.intents import APPLIED, SENT, Intent, Intents
from kubectl_nodelife.daemon.journal import Journal, open_journal
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.live.target import Cluster, Target, User
from tests.daemon.lab import T0, run
from tests.planned import lost

INTENT = Intent(T0, "node-lifecycle", "{}", "Node", "", "n1", "u1", "7", "", 1)


async def refused(intents: Intents) -> bool:
    """True if an intent does not come to the disk."""
    try:
        await intents.begin(INTENT)
    except OSError:
        return True
    return False


def rows(path: str) -> list[tuple[int, str]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT id, state FROM writes ORDER BY id").fetchall()


def take_the_next_id(path: str) -> None:
    """Somebody else writes into our file."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        columns = ", ".join(("id", "state", *Intent._fields))
        marks = ", ".join("?" * (len(Intent._fields) + 2))
        db.execute(f"INSERT INTO writes ({columns}) VALUES ({marks})", (2, SENT, *INTENT))


def delete(path: str) -> None:
    os.unlink(path)


def replace_by_a_copy(path: str) -> None:
    Path(path + ".new").write_bytes(Path(path).read_bytes())
    os.replace(path + ".new", path)


@pytest.mark.parametrize("harm", [take_the_next_id, delete, replace_by_a_copy])
async def test_a_journal_that_is_not_ours_any_more_stops_all_writes_for_good(
    tmp_path: Path, harm: Callable[[str], None]
) -> None:
    """Nothing is moved aside, and no later success opens the gate again."""
    path = str(tmp_path / "journal.writes.db")
    intents = Intents(path)
    number = await intents.begin(INTENT)
    harm(path)
    assert await refused(intents) and intents.error
    intents.note(number, APPLIED)
    await intents.flush()
    assert intents.error and await refused(intents)
    await intents.close()
    assert not list(tmp_path.glob("*.broken-*"))
    if harm is not delete:
        assert rows(path)[0][0] == number, "what was about to be written is still known"


def test_a_link_is_not_followed_to_a_journal_of_writes(tmp_path: Path) -> None:
    """Or a file that somebody else has chosen would be written, and its rows be settled."""
    elsewhere = tmp_path / "elsewhere.db"
    elsewhere.touch(mode=0o644)
    link = tmp_path / "enforce.writes.db"
    link.symlink_to(elsewhere)
    with pytest.raises(Refused, match=r"cannot be used: .*symbolic links"):
        Intents(str(link))
    link.unlink()
    link.symlink_to(tmp_path / "not-there.db")
    with pytest.raises(Refused, match=r"cannot be used: .*symbolic links"):
        Intents(str(link))
    assert elsewhere.stat().st_size == 0 and elsewhere.stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "not-there.db").exists()
    link.unlink()
    run(Intents(str(link)).close())  # neither of them kept the lock


@pytest.mark.parametrize("of", [Intents, Store])
def test_a_journal_and_its_log_are_for_their_owner_alone(
    of: Callable[[str], Intents | Store], tmp_path: Path
) -> None:
    path = tmp_path / "j.writes.db"
    path.touch(mode=0o644)
    journal = of(str(path))
    modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.glob("j.writes.db*")}
    assert modes.keys() >= {"j.writes.db", "j.writes.db-wal"}
    assert set(modes.values()) == {0o600}
    if (closing := journal.close()) is not None:
        run(closing)


async def test_a_full_disk_stops_writes_as_long_as_it_is_full(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.writes.db")
    intents = Intents(path)
    await intents.begin(INTENT)
    (pages,) = intents._db.execute("PRAGMA page_count").fetchone()
    intents._db.execute(f"PRAGMA max_page_count = {pages}")
    long = INTENT._replace(action="x" * 100_000)
    with pytest.raises(OSError, match="full"):
        await intents.begin(long)
    intents._db.execute("PRAGMA max_page_count = 1073741823")
    await intents.begin(long)
    assert intents.error == ""
    await intents.close()
    assert len(rows(path)) == 2


async def test_an_intent_that_failed_is_not_saved_by_a_later_success(tmp_path: Path) -> None:
    """Ends that come to the disk right after must not make a lost intent look kept."""
    path = str(tmp_path / "journal.writes.db")
    intents = Intents(path)
    number = await intents.begin(INTENT)
    real = intents._write

    def fails(batch: list[tuple[Any, ...]], ends: list[Any]) -> None:
        if batch:
            raise sqlite3.OperationalError("database or disk is full")
        real(batch, ends)

    intents._write = fails  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(refused(intents))
    while not waiting.done():
        intents.note(number, APPLIED)
        await intents.flush()
    assert waiting.result() and intents.error == ""
    await intents.close()
    assert [row[0] for row in rows(path)] == [number]


async def test_a_row_that_the_journal_of_changes_refuses_moves_nothing_aside(
    tmp_path: Path,
) -> None:
    """Another program took our next number: SQLite's IntegrityError is no damage of the file."""
    path = str(tmp_path / "journal.db")
    journal = open_journal(path)
    journal.ledger.note(lost("n1"), T0, "", "")
    await journal.flush()
    (kept,) = await journal.select(ChangeFilter())
    other = Store(path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE changes SET id = id + 1")
    other.close()
    journal.ledger.note(lost("n2"), T0, "", "")
    await journal.flush(insist=True)
    assert "UNIQUE" in journal.fault()
    assert not list(tmp_path.glob("*.broken-*"))
    found = [change.name for change in await journal.select(ChangeFilter())]
    assert kept.name in found
    await journal.close()


# What enforcing makes of it


def enforcement(journal: Journal) -> Enforcement:
    """Enforcement on top of that journal, before its preflight."""
    target = Target("c", "d", "c", "u", Cluster(server="http://127.0.0.1:1"), User())
    clock = SimpleNamespace(now_ns=lambda: T0, steady_ns=lambda: T0)
    sources: Any = SimpleNamespace(
        journal=journal,
        client=SimpleNamespace(clock=None, session=SimpleNamespace(target=target)),
        decisions=SimpleNamespace(clock=clock),
    )
    flags = SimpleNamespace(orders=Orders(("daemonset",)))
    options: Any = SimpleNamespace(environ={}, report=print, flags=flags)
    made = make_enforcement(options, sources, cast(Any, None), cast(Any, SimpleNamespace()))
    made.keeper.leads = lambda: True  # type: ignore[method-assign]
    made.kill_switch.present = False
    return made


@pytest.mark.parametrize("how", ["moved aside", "in memory"])
async def test_enforcing_does_not_begin_on_a_journal_that_was_lost(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "journal.db"
    if how == "moved aside":
        path.write_bytes(b"no database at all" * 1000)
        journal = open_journal(str(path))
    else:
        journal = open_journal(str(tmp_path / "none" / "journal.db"))
    with pytest.raises(Refused, match="the journal") as found:
        enforcement(journal)
    assert "start again" in (found.value.remedy or "")
    await journal.close()


async def test_enforcing_stops_while_a_journal_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = open_journal(str(path))
    made = enforcement(journal)
    assert made._gate.closed_because() == ""
    path.unlink()
    journal.ledger.note(lost("n1"), T0, "", "")
    await journal.flush()
    assert "the journal was broken" in made._gate.closed_because()
    journal.ledger.note(lost("n2"), T0, "", "")
    await journal.flush()
    assert made._gate.closed_because(), "dry-run goes on, enforcing does not"
    assert journal.error == ""
    await journal.close()
    await made.intents.close()
    await made._session.close()
    await made._side_session.close()
