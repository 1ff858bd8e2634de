"""A journal of writes that a disk, or somebody, has damaged: refused, or all open writes known."""

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.intents import APPLIED, Intent, Intents, settle_unsettled
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.live.writer import Writer

ROWS, OPEN = 400, frozenset({7, 150, 399})
SEEDS = 60


class Server:
    """An API server of which no object can be read."""

    async def call(self, call: Any) -> Answer:
        """No answer."""
        return Answer(0)


def written(path: str) -> None:
    """A journal in which the process died while three writes were open."""

    async def write() -> None:
        intents = Intents(path)
        for number in range(1, ROWS + 1):
            intent = Intent(number, "pod-gc", "{}", "Pod", "d", f"p{number}", "u", "7", "", 1)
            begun = asyncio.ensure_future(intents.begin(intent))
            if number % 50 == 0 or number == ROWS:
                await begun
            if number not in OPEN:
                intents.note(number, APPLIED)
        await intents.close()

    asyncio.run(write())


def close(intents: Intents) -> None:
    asyncio.run(intents.close())


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("journal") / "a.writes.db"
    written(str(path))
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@pytest.mark.parametrize("how", ["page", "bytes", "cut"])
def test_no_open_write_is_forgotten(how: str, journal: bytes, tmp_path: Path) -> None:
    """Truth: the writes that were open, but for rows in the very bytes that were overwritten."""
    refused = 0
    for seed in range(SEEDS):
        chance = random.Random(f"{how} {seed}")
        data = bytearray(journal)
        at = chance.randrange(4096, len(data) - 4096)
        if how == "page":
            data[at & ~4095 : (at & ~4095) + 4096] = bytes(4096)
        elif how == "cut":
            del data[at:]
        else:
            data[at : at + 4] = chance.randbytes(4)
        path = tmp_path / f"{seed}.writes.db"
        path.write_bytes(data)
        try:
            intents = Intents(str(path))
        except Refused as error:
            refused += 1
            assert "the journal of writes cannot be used" in str(error)
            continue
        found = {write.id for write in intents.unsettled()}
        close(intents)
        lost = OPEN - found
        assert not lost or (how == "bytes" and len(lost) == 1), (seed, lost)
    assert refused == SEEDS or how == "bytes"


@pytest.mark.parametrize("column", ["state", "kind", "action", "namespace"])
async def test_a_row_that_makes_no_sense_stays_open(
    column: str, journal: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.writes.db"
    path.write_bytes(journal)
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE writes SET {column} = CAST(x'ff00fe' AS TEXT) WHERE id = 9")
        if column != "state":
            db.execute("UPDATE writes SET state = 'sent' WHERE id = 9")
    intents = Intents(str(path))
    assert {write.id for write in intents.unsettled()} == {9, *OPEN}
    await settle_unsettled(intents, cast(Writer, Server()).call)
    assert intents.has_unsettled
    await intents.close()


def test_tables_whose_text_is_damaged_are_refused_with_a_line(
    tmp_path: Path, journal: bytes
) -> None:
    """SQLite quotes them in its error, which is no text then."""
    path = tmp_path / "a.writes.db"
    path.write_bytes(journal.replace(b"CREATE TABLE marks", b"CREATE \xffABLE marks"))
    with pytest.raises(Refused, match="its tables cannot be read"):
        Intents(str(path))
