"""A child that answers in the daemon's place: what it may take, and what it cannot reach."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.daemon.forked_answers import MOST_AT_ONCE, ForkedAnswers, imported
from kubectl_nodelife.errors import BadInput, Failed, NodelifeError

MIB = 1 << 20


async def nothing() -> None:
    """Nothing is to be read before."""


async def forked(make: Callable[[], dict[str, Any]], **limits: Any) -> dict[str, Any]:
    return await ForkedAnswers(**limits).answer(nothing, lambda _: make())


async def test_the_answer_is_made_in_another_process_of_which_nothing_stays() -> None:
    held: list[int] = []

    def make() -> dict[str, Any]:
        held.append(1)
        return {"pid": os.getpid(), "long": "ä" * MIB}

    answer = await forked(make)
    assert answer["pid"] != os.getpid() and answer["long"] == "ä" * MIB and held == []
    with pytest.raises(ChildProcessError):
        os.waitpid(answer["pid"], os.WNOHANG)


async def test_no_child_begins_while_a_thread_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ever for the lock of a module that nobody goes on to import in it."""
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\nVALUE = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    importing = asyncio.create_task(imported("slow_to_import"))
    await asyncio.sleep(0.1)
    value = await forked(lambda: {"of": import_module("slow_to_import").VALUE}, seconds=20.0)
    assert value == {"of": 7}
    assert await importing is sys.modules.pop("slow_to_import")


async def test_nothing_of_the_daemon_is_open_in_it() -> None:
    ours, _theirs = socket.socketpair()

    def make() -> dict[str, Any]:
        open_ = [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
        with pytest.raises(OSError):
            ours.send(b"x")
        return {"links": sorted({os.readlink(f"/proc/self/fd/{n}") for n in open_})}

    links = (await forked(make))["links"]
    assert [link for link in links if not link.startswith(("/dev/null", "pipe:"))] == []


async def test_whom_it_has_forked_ends_with_it(tmp_path: Path) -> None:
    told = tmp_path / "pid"

    def make() -> dict[str, Any]:
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        told.write_text(f"{pid}")
        time.sleep(600)
        return {}

    with pytest.raises(Failed, match="not there after"):
        await forked(make, seconds=1.0)
    status = Path(f"/proc/{told.read_text()}/status")
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("a process of the child's is left")


async def test_errors_come_back_as_they_were() -> None:
    def refuse() -> dict[str, Any]:
        raise BadInput("is none", on="--until", remedy="give one")

    with pytest.raises(NodelifeError) as raised:
        await forked(refuse)
    error = raised.value
    assert (error.what, error.on, error.remedy) == ("is none", "--until", "give one")
    assert error.exit_code == 2

    def fail() -> dict[str, Any]:
        raise ZeroDivisionError("a secret")

    with pytest.raises(NodelifeError, match="a bug of ours: ZeroDivisionError; look directly"):
        await forked(fail)
    with pytest.raises(Failed, match="has ended; look directly"):
        await forked(lambda: os._exit(7))


async def test_who_comes_later_waits_for_a_turn() -> None:
    answers = ForkedAnswers()

    def short() -> dict[str, Any]:
        time.sleep(0.1)
        return {"ok": True}

    told = await asyncio.gather(
        *(answers.answer(nothing, lambda _: short()) for _ in range(MOST_AT_ONCE + 2))
    )
    assert told == [{"ok": True}] * (MOST_AT_ONCE + 2)


async def test_it_has_bounds_of_time_and_memory_and_number() -> None:
    def long() -> dict[str, Any]:
        time.sleep(600)
        return {}

    with pytest.raises(Failed, match=r"not there after 0\.2s; look directly"):
        await forked(long, seconds=0.2)
    with pytest.raises(Failed, match="needs more than 64 MiB; look directly"):
        await forked(lambda: {"x": len(bytearray(4096 * MIB))}, most_bytes=64 * MIB)

    answers, loop_goes_on = ForkedAnswers(seconds=0.5, patience_s=0.1), 0
    under_way = [
        asyncio.ensure_future(answers.answer(nothing, lambda _: long()))
        for _ in range(MOST_AT_ONCE)
    ]
    await asyncio.sleep(0)
    with pytest.raises(Failed, match="2 questions of this kind are being answered"):
        await answers.answer(nothing, lambda _: {})
    while not all(each.done() for each in under_way):
        await asyncio.sleep(0.01)
        loop_goes_on += 1
    assert loop_goes_on > 5
    assert all(isinstance(each.exception(), Failed) for each in under_way)
    assert await answers.answer(nothing, lambda _: {"again": True}) == {"again": True}
