"""A breaker that a person must close is open after a restart of the daemon as well."""

import asyncio
from pathlib import Path

from kubectl_nodelife.daemon.enforce.write_gate import SETTINGS, KeptBreakers
from kubectl_nodelife.daemon.intents import Intents
from kubectl_nodelife.engine.guard import UPSTREAM, Breaker, Guard

SURPRISE = Breaker("surprise", "another one is at work", 5)
ERRORS = Breaker("errors", "the server suffers", 5, "PATCH Pod", heals=True, recovery_passes=True)


def process(path: Path, *breakers: Breaker, resume: bool = False) -> list[Breaker]:
    """One process: what is open when it begins; then these open, or a person says go on."""

    async def run() -> list[Breaker]:
        intents, guard = Intents(str(path)), Guard(UPSTREAM)
        kept = KeptBreakers(guard, intents)
        guard.on_change = lambda breaker: kept.keep()
        begun = list(guard.breakers.values())
        for breaker in breakers:
            guard.open(breaker)
        if resume:
            guard.resume()
        await intents.close()
        return begun

    return asyncio.run(run())


def test_it_is_open_until_a_person_says_go_on(tmp_path: Path) -> None:
    path = tmp_path / "writes.db"
    assert process(path, SURPRISE) == []
    assert process(path) == [SURPRISE]
    assert process(path, resume=True) == [SURPRISE]
    assert process(path) == []


def test_one_that_heals_and_one_that_each_beginning_decides_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "writes.db"
    process(path, ERRORS, Breaker(SETTINGS, "--set a=1, but it runs with 2", 5))
    assert process(path) == []


def test_what_cannot_be_read_is_open(tmp_path: Path) -> None:
    path = tmp_path / "writes.db"

    async def spoil() -> None:
        intents = Intents(str(path))
        intents.mark("breakers", "[{")
        await intents.close()

    asyncio.run(spoil())
    (breaker,) = process(path)
    assert "cannot be read" in breaker.because and not breaker.heals
