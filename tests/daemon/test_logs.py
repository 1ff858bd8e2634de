"""The log: what happens too often does not push out what happened before."""

import asyncio
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from kubectl_nodelife.daemon.logs import _Storms, begin_log, log

SECRET = "hunter2-in-a-text"


def test_a_storm_is_cut_and_counted() -> None:
    storms = _Storms()

    def written(at_s: float, text: str) -> str:
        record = logging.makeLogRecord({"name": "asyncio", "msg": text, "args": ()})
        record.created = at_s
        if not storms.filter(record):
            return ""
        left_out = getattr(record, "left_out", 0)
        return f"{text} ({left_out} more)" if left_out else text

    lines = [
        written(number * 0.001, "socket.accept() out of system resource") for number in range(5_000)
    ]
    assert len([line for line in lines if line]) == 10
    assert written(1, "began") == "began"
    assert written(70, "socket.accept() out of system resource") == (
        "socket.accept() out of system resource (4990 more)"
    )


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Path]:
    """The log of a daemon in this process; what it replaces is put back."""
    root, level = logging.getLogger(), logging.getLogger().level
    handlers, own = root.handlers, (log.level, log.propagate)
    hooks = threading.excepthook, sys.unraisablehook
    try:
        begin_log(str(tmp_path / "daemon.log"), to_terminal=False)
        yield tmp_path / "daemon.log"
    finally:
        logging.captureWarnings(False)
        root.handlers = handlers
        root.setLevel(level)
        log.setLevel(own[0])
        log.propagate = own[1]
        threading.excepthook, sys.unraisablehook = hooks


async def test_a_flood_of_bad_requests_fills_no_disk(
    logged: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """aiohttp logs a traceback for each: 18,000 of another user were 11.8 MB in 14 s."""

    async def fails(request: web.Request) -> web.Response:
        raise ValueError(SECRET)

    app = web.Application()
    app.router.add_get("/", fails)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        for text in ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", f"{SECRET} \0 HTTP/9\r\n\r\n") * 100:
            reader, writer = await asyncio.open_connection(*runner.addresses[0])
            writer.write(text.encode())
            await reader.readline()
            writer.close()
    finally:
        await runner.cleanup()
    lines = logged.read_text().splitlines()
    assert 0 < len(lines) <= 30 and all("aiohttp.server" in line for line in lines)
    assert any("ValueError at" in line for line in lines), "the kind is said, and where"
    assert SECRET not in logged.read_text() + "".join(capfd.readouterr())


def test_what_ends_a_thread_or_warns_is_a_line_without_its_text(
    logged: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise KeyError(SECRET)

    class Fails:
        def __del__(self) -> None:
            raise OSError(SECRET)

    thread = threading.Thread(target=fails)
    thread.start()
    thread.join()
    Fails()
    logging.getLogger("some.package").error("it failed: %s", SECRET)
    logging.getLogger("some.package").warning("no\n%s", SECRET)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(SECRET, UserWarning, stacklevel=1)
    text = logged.read_text()
    assert "a thread ended: KeyError at" in text and "OSError at" in text
    assert "some.package: it failed\n" in text and "some.package: no\n" in text
    assert "py.warnings: " in text
    assert SECRET not in text + "".join(capfd.readouterr())


def test_what_this_program_says_stands_as_it_is(logged: Path) -> None:
    log.info("began: %s", "here")
    assert logged.read_text().endswith("Z INFO began: here\n")
