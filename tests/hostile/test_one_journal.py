"""One daemon writes one journal, and nothing that happens to its file ends the daemon."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kubectl_nodelife.daemon.changes import ChangeFilter, Store
from kubectl_nodelife.daemon.instance import AlreadyRuns
from kubectl_nodelife.daemon.journal import open_journal
from kubectl_nodelife.daemon.process import claim_state
from tests.daemon.lab import T0
from tests.daemon.user import user
from tests.objects import of_kind
from tests.planned import lost
from tests.raw_server import raw_server

KUBE_SYSTEM = of_kind("Namespace", "kube-system", uid="d1e6")


async def test_two_runtime_folders_are_no_two_daemons(tmp_path: Path) -> None:
    async with raw_server([KUBE_SYSTEM]) as server, user(server.kubeconfig(tmp_path)) as someone:
        await someone.begin()
        first = someone.environ["NODELIFE_RUNTIME_DIR"]
        someone.environ["NODELIFE_RUNTIME_DIR"] = f"{someone.home}/s"
        said = await someone.run("daemon", "start")
        assert "a daemon writes this cluster's journal already (pid " in said.err
        assert (await someone.run("daemon", "status")).code == 3
        someone.environ["NODELIFE_RUNTIME_DIR"] = first
        assert (await someone.health())["synced"]


async def test_another_way_to_the_same_cluster_is_the_same_journal(tmp_path: Path) -> None:
    """By another name of the server: the UID of kube-system tells."""
    async with raw_server([KUBE_SYSTEM]) as server, user(server.kubeconfig(tmp_path)) as someone:
        await someone.begin()
        port = server.url.rpartition(":")[2]
        other = ("--server", f"http://localhost:{port}")
        said = await someone.run("daemon", "start", *other)
        assert "a daemon writes this cluster's journal already" in said.err
        await someone.ok("daemon", "restart")  # the lock goes with the daemon
        await someone.ok("daemon", "stop")
        await someone.ok("daemon", "start", *other)
        folders = list((someone.home / ".local/state/nodelife").iterdir())
        assert len([p for p in folders if p.is_dir() and not p.is_symlink()]) == 1


def claimed(root: Path, identity: str, key: str) -> str:
    with claim_state({"NODELIFE_STATE_DIR": str(root)}, identity, key, {"pid": 1}) as folder:
        return folder


def test_a_journal_follows_the_cluster(tmp_path: Path) -> None:
    root = tmp_path / "state"
    assert claimed(root, "way", "") == f"{root}/way"  # the server does not say who it is
    (root / "way" / "journal.db").write_text("first")
    assert claimed(root, "way", "cluster") == f"{root}/cluster"
    assert (root / "way" / "journal.db").read_text() == "first"  # by a link
    assert claimed(root, "way", "") == f"{root}/cluster"  # from now on known without being asked
    assert claimed(root, "way", "rebuilt") == f"{root}/rebuilt"
    assert not (root / "way" / "journal.db").exists()
    assert claimed(root, "way", "cluster") == f"{root}/cluster"
    assert claimed(root, "other", "") == f"{root}/other"
    (root / "other" / "journal.db").write_text("second")
    assert claimed(root, "other", "cluster") == f"{root}/cluster"
    assert (root / "cluster" / "journal.db").read_text() == "first"
    assert (root / "cluster" / "other-journal.db").read_text() == "second"


@pytest.mark.parametrize("key", ["", "cluster"])
def test_a_claimed_folder_cannot_be_claimed_or_moved(tmp_path: Path, key: str) -> None:
    environ = {"NODELIFE_STATE_DIR": str(tmp_path / "state")}
    with claim_state(environ, "way", key, {"pid": 4711}):
        for again in ("", "cluster"):
            with (
                pytest.raises(AlreadyRuns, match="pid 4711"),
                claim_state(environ, "way", again, {"pid": 4712}),
            ):
                pass
    with claim_state(environ, "way", key, {"pid": 4713}) as folder:
        assert folder


def damage_detail(db: sqlite3.Connection) -> None:
    db.execute("UPDATE changes SET detail = '{', time_ns = 'noon' WHERE id = 0")


def damage_mark(db: sqlite3.Connection) -> None:
    db.execute("UPDATE marks SET value = 'many'")


def take_the_mark(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM marks")


def another_column(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE changes ADD COLUMN more TEXT")


def no_column(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE changes RENAME COLUMN patch TO request")


@pytest.mark.parametrize(
    "damage, kept",
    [
        (damage_detail, True),
        (damage_mark, False),
        (take_the_mark, True),
        (another_column, False),
        (no_column, False),
    ],
)
async def test_a_damaged_journal_is_said_and_stops_nothing(
    tmp_path: Path, damage: Callable[[sqlite3.Connection], None], kept: bool
) -> None:
    """Rows that make no sense are left out; a file that is not ours is moved aside."""
    path = str(tmp_path / "j.db")
    journal = open_journal(path)
    for name in ("n1", "n2"):
        journal.ledger.note(lost(name), T0, "", "")
    await journal.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        damage(db)
    again = open_journal(path)
    again.ledger.note(lost("n3"), T0, "", "")
    names = [change.name for change in await again.select(ChangeFilter())]
    assert names[-1] == "n3" and ("n2" in names) == kept
    assert (again.warning != "") == (damage is not take_the_mark)
    assert bool(list(tmp_path.glob("j.db.broken-*"))) != kept
    await again.close()


@pytest.mark.parametrize("replace", [False, True])
async def test_a_journal_deleted_while_it_is_written_is_begun_anew(
    tmp_path: Path, replace: bool
) -> None:
    path = str(tmp_path / "j.db")
    journal = open_journal(path)
    journal.ledger.note(lost("n1"), T0, "", "")
    await journal.flush()
    os.unlink(path)
    if replace:
        Path(path).write_bytes(b"no database" * 1000)
    journal.ledger.note(lost("n2"), T0, "", "")
    await journal.flush()
    assert journal.error == "" and "deleted, or replaced" in journal.warning
    await journal.close()
    assert [change.name for change in Store(path).select(ChangeFilter())] == ["n2"]
