"""The journal of writes: durable before a byte is sent, settled after a crash, locked."""

import asyncio
import fnmatch
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.daemon import intents as intents_module
from kubectl_nodelife.daemon.changes import ACTS_PATTERN
from kubectl_nodelife.daemon.enforce.write_gate import KeptBreakers, Pause, adopt
from kubectl_nodelife.daemon.intents import (
    CLUSTER_MARK,
    Intent,
    Intents,
    moved_journals,
    settle_all,
    settle_later,
    settle_unsettled,
)
from kubectl_nodelife.daemon.process import claim_state
from kubectl_nodelife.engine.calls import Answer, Get
from kubectl_nodelife.engine.guard import UPSTREAM, Guard
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.pod import Pod

INTENT = Intent(1, "pod-gc", "{}", "Pod", "d", "p", "u", "5", "digest", 3)


def states(path: Path) -> list[str]:
    """As another process finds the file."""
    db = sqlite3.connect(path)
    try:
        return [row[0] for row in db.execute("SELECT state FROM writes ORDER BY id")]
    finally:
        db.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.writes.db"


async def test_begun_means_on_the_disk_and_many_come_in_one_batch(path: Path) -> None:
    intents = Intents(str(path))
    numbers = await asyncio.gather(*(intents.begin(INTENT) for _ in range(50)))
    assert numbers == list(range(1, 51))
    assert states(path) == ["intent"] * 50
    intents.note(1, "applied", 200, version="6")
    await intents.close()
    assert states(path)[:2] == ["applied", "intent"]


def test_what_a_killed_process_left_is_found_by_the_next(path: Path) -> None:
    async def killed() -> None:
        intents = Intents(str(path))
        await intents.begin(INTENT)
        ended = await intents.begin(INTENT)
        intents.note(ended, "failed", 409)
        await intents.flush()
        intents._db.close()  # kill -9: nothing is brought to an end
        os.close(intents._lock)

    async def after() -> None:
        intents = Intents(str(path))
        (left,) = intents.unsettled()
        assert (left.id, left.state, left.intent) == (1, "intent", INTENT)
        assert await intents.begin(INTENT) == 3, "numbers are never used twice"
        await intents.close()

    asyncio.run(killed())
    asyncio.run(after())


async def test_one_process_at_a_time(path: Path) -> None:
    first = Intents(str(path))
    with pytest.raises(Refused, match="another process"):
        Intents(str(path))
    await first.close()
    await Intents(str(path)).close()


async def test_a_journal_that_cannot_be_written_stops_enforcing(path: Path) -> None:
    intents = Intents(str(path))
    intents._db.execute("DROP TABLE writes")
    with pytest.raises(OSError, match="no such table"):
        await intents.begin(INTENT)
    assert intents.error


def test_another_version_is_refused_in_one_line(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(Refused, match="its version is 99"):
        Intents(str(path))


async def test_a_pause_survives_a_restart(path: Path) -> None:
    intents = Intents(str(path))
    assert Pause(intents).because(0) == ""
    Pause(intents).begin()
    await intents.close()
    again = Intents(str(path))
    pause = Pause(again)
    assert pause.because(0) == "paused by `daemon pause`"
    pause.begin(until_ns=5)
    assert pause.because(4) and not pause.because(5)
    pause.end()
    assert not Pause(again).because(0)
    await again.close()


@pytest.mark.parametrize(
    "kind, found, state",
    [
        pytest.param("DeletePod", None, "applied", id="deleted-and-gone"),
        pytest.param("CreatePod", None, "failed", id="never-made"),
        pytest.param("CreatePod", "1", "applied", id="made"),
        pytest.param("MarkPodNotReady", "5", "failed", id="as-it-was"),
        pytest.param("MarkPodNotReady", "6", "applied", id="changed-since"),
    ],
)
async def test_settled_by_reading_never_by_sending(
    path: Path, kind: str, found: str | None, state: str
) -> None:
    class Reader:
        async def call(self, call: Any, **_: Any) -> Answer:
            assert isinstance(call, Get)
            if found is None:
                return Answer(404, reason="NotFound")
            return Answer(200, Pod(ObjectMeta(name="p", namespace="d", resource_version=found)))

    intents = Intents(str(path))
    number = await intents.begin(INTENT._replace(action=f'{{"type":"{kind}"}}'))
    intents.note(number, "unknown")
    await intents.flush()
    await settle_unsettled(intents, Reader().call)
    assert states(path) == [state] and intents.unsettled() == []
    await intents.close()


class Reads:
    """A reader that finds each pod as it was."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def call(self, call: Get) -> Answer:
        self.asked.append(call.key)
        meta = ObjectMeta(name=call.key[1], namespace="d", uid="u", resource_version="6")
        return Answer(200, Pod(meta))


async def test_what_cannot_be_read_at_first_is_settled_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents_module, "AGAIN_S", 0.01)
    reads: list[Get] = []

    class Late:
        async def call(self, call: Get) -> Answer:
            reads.append(call)
            assert intents.has_unsettled, "while it is being read it is open"
            return Answer(503) if len(reads) < 3 else Answer(404, reason="NotFound")

    intents = Intents(str(path))
    intents.note(await intents.begin(INTENT), "unknown")
    in_flight = await intents.begin(INTENT)
    intents.note(in_flight, "sent")
    later = asyncio.ensure_future(settle_later(intents, Late().call))
    while intents.has_unsettled:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    later.cancel()
    assert len(reads) == 3, "what is on its way is left alone, and what is settled too"
    await intents.close()
    assert states(path) == ["failed", "sent"]


def left_open(folder: Path, cluster: str, **marks: str) -> None:
    """What an enforcing daemon leaves that was killed before it knew its cluster's key."""

    async def run() -> None:
        intents = Intents(str(folder / "journal.writes.db"))
        await intents.begin(INTENT)
        for name, value in {CLUSTER_MARK: cluster, **marks}.items():
            intents.mark(name, value)
        await intents.close()

    asyncio.run(run())


def claimed(root: Path, key: str) -> Path:
    with claim_state({"NODELIFE_STATE_DIR": str(root)}, "way", key, {"pid": 1}) as folder:
        return Path(folder)


def moved_state(root: Path, cluster: str = "uid", **marks: str) -> Path:
    """The cluster's folder, into which an unsettled journal was moved."""
    left_open(claimed(root, ""), cluster, **marks)
    (root / "key").mkdir(mode=0o700)
    (root / "key" / "journal.writes.db").touch(mode=0o600)
    return claimed(root, "key")


@pytest.mark.parametrize("cluster, settled", [("uid", True), ("another", False)])
def test_a_journal_that_was_moved_is_settled_by_the_next(
    tmp_path: Path, cluster: str, settled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = moved_state(tmp_path, cluster)
    moved = folder / "journal.way.writes.db"
    assert states(moved) == ["intent"]

    async def run() -> None:
        own, reads = Intents(str(folder / "journal.writes.db")), Reads()
        own.mark(CLUSTER_MARK, "uid")
        await settle_all(own, moved_journals(own.path), reads.call)
        assert reads.asked == ([("d", "p")] if settled else [])
        await own.close()

    asyncio.run(run())
    assert states(moved) == (["applied"] if settled else ["intent"])
    assert ("the outcome of 1 writes is unknown" in caplog.text) is not settled


def test_nothing_is_enforced_where_a_moved_journal_cannot_be_looked_into(tmp_path: Path) -> None:
    folder = moved_state(tmp_path)
    (folder / "journal.way.writes.db").write_bytes(b"damaged" * 1000)
    with pytest.raises(Refused, match="cannot be used"):
        moved_journals(str(folder / "journal.writes.db"))


def test_a_pause_and_a_breaker_move_with_it(tmp_path: Path) -> None:
    open_one = '[{"rule":"surprise","because":"b","since_ns":1}]'
    folder = moved_state(tmp_path, paused="0", breakers=open_one)

    async def run() -> None:
        own = Intents(str(folder / "journal.writes.db"))
        (moved,) = moved_journals(own.path)
        adopt(own, moved)
        pause, guard = Pause(own), Guard(UPSTREAM)
        KeptBreakers(guard, own)
        assert pause.because(0) and list(guard.breakers) == [("surprise", "")]
        pause.end()
        adopt(own, moved)
        assert not Pause(own).because(0), "once is enough"
        await moved.close()
        await own.close()

    asyncio.run(run())


def test_journals_of_acts_keep_a_name_by_which_they_are_found(tmp_path: Path) -> None:
    before = claimed(tmp_path, "")
    for name in ("acts-1.writes.db", "acts-1.writes.db-wal", "journal.db"):
        (before / name).touch()
    (tmp_path / "key").mkdir(mode=0o700)
    (tmp_path / "key" / "way-journal.db").touch()  # an earlier one is not written over
    found = {path.name for path in claimed(tmp_path, "key").iterdir()}
    assert {"acts-1.way-2.writes.db", "acts-1.way-2.writes.db-wal", "way-2-journal.db"} <= found
    assert fnmatch.filter(found, ACTS_PATTERN)


async def test_a_pause_that_cannot_be_kept_holds_all_the_same(path: Path) -> None:
    intents = Intents(str(path))
    pause = Pause(intents)
    intents._db.execute("PRAGMA query_only = 1")
    said = pause.begin()
    assert pause.because(0)
    assert said.startswith("writing is paused, until the daemon ends: a restart will not know")
    assert "cannot be kept (" in said
    await intents.close()
