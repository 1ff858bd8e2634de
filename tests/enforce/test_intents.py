"""The journal of writes: durable before a byte is sent, settled after a crash, locked."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.enforce.pausing import Pause
from kubectl_nodelife.daemon.enforce.settling import settle_unsettled
from kubectl_nodelife.daemon.intents import Intent, Intents
from kubectl_nodelife.engine.calls import Answer, Get
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


def test_begun_means_on_the_disk_and_many_come_in_one_batch(path: Path) -> None:
    async def run() -> None:
        intents = Intents(str(path))
        numbers = await asyncio.gather(*(intents.begin(INTENT) for _ in range(50)))
        assert numbers == list(range(1, 51))
        assert states(path) == ["intent"] * 50
        intents.note(1, "applied", 200, version="6")
        await intents.close()
        assert states(path)[:2] == ["applied", "intent"]

    asyncio.run(run())


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


def test_one_process_at_a_time(path: Path) -> None:
    async def run() -> None:
        first = Intents(str(path))
        with pytest.raises(Refused, match="another process"):
            Intents(str(path))
        await first.close()
        await Intents(str(path)).close()

    asyncio.run(run())


def test_a_journal_that_cannot_be_written_stops_enforcing(path: Path) -> None:
    async def run() -> None:
        intents = Intents(str(path))
        intents._db.execute("DROP TABLE writes")
        with pytest.raises(OSError, match="no such table"):
            await intents.begin(INTENT)
        assert intents.error

    asyncio.run(run())


def test_another_version_is_refused_in_one_line(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(Refused, match="its version is 99"):
        Intents(str(path))


def test_a_pause_survives_a_restart(path: Path) -> None:
    async def run() -> None:
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

    asyncio.run(run())


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
def test_settled_by_reading_never_by_sending(
    path: Path, kind: str, found: str | None, state: str
) -> None:
    class Reader:
        async def call(self, call: Any, **_: Any) -> Answer:
            assert isinstance(call, Get)
            if found is None:
                return Answer(404, reason="NotFound")
            return Answer(200, Pod(ObjectMeta(name="p", namespace="d", resource_version=found)))

    async def run() -> None:
        intents = Intents(str(path))
        await intents.begin(INTENT._replace(action=f'{{"type":"{kind}"}}'))
        await settle_unsettled(intents, cast(Any, Reader()))
        assert states(path) == [state] and intents.unsettled() == []
        await intents.close()

    asyncio.run(run())
