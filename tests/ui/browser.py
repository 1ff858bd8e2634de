"""Debian's Chromium, driven through chromedriver by its HTTP protocol (WebDriver)."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="there is no chromium with a chromedriver here"
)

ENTER, ESCAPE, DOWN, RIGHT = "\ue007", "\ue00c", "\ue015", "\ue014"
DEADLINE_S = 60.0


class Browser:
    """One window. Coordinates and sizes are CSS pixels. `debugger`: where DevTools' protocol is."""

    def __init__(self, session: aiohttp.ClientSession, url: str, debugger: str = "") -> None:
        self._session = session
        self._url = url
        self.debugger = debugger

    async def command(self, method: str, path: str, **body: Any) -> Any:
        """A command of WebDriver; its value."""
        data = json.dumps(body) if method == "POST" else None
        headers = {"Content-Type": "application/json"}
        url = f"{self._url}/{path}".rstrip("/")
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            value = (await answer.json())["value"]
            assert answer.status == 200, f"{path}: {value}"
            return value

    async def go(self, url: str) -> None:
        """Open an address in this window."""
        await self.command("POST", "url", url=url)

    async def run(self, script: str, *arguments: Any) -> Any:
        """What a function's body returns in the page."""
        return await self.command("POST", "execute/sync", script=script, args=list(arguments))

    async def until(self, script: str, *arguments: Any) -> Any:
        """What it returns, as soon as that is something."""
        end = time.monotonic() + DEADLINE_S
        while not (found := await self.run(script, *arguments)):
            if time.monotonic() > end:
                shown = await self.text("body")
                raise AssertionError(f"it did not come true in time: {script}\n{shown}")
            await asyncio.sleep(0.05)
        return found

    async def text(self, selector: str) -> str:
        """The text of an element as it is shown."""
        found: str = await self.run(
            "return document.querySelector(arguments[0]).innerText", selector
        )
        return found

    async def devtools(self, method: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return await self.command("POST", "goog/cdp/execute", cmd=method, params=parameters)

    async def look(self, width: int, height: int, scheme: str = "light", **media: str) -> None:
        """Another size, and another scheme of colours."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.devtools("Emulation.setDeviceMetricsOverride", **metrics)
        features = {"prefers-color-scheme": scheme, **media}
        await self.devtools(
            "Emulation.setEmulatedMedia",
            features=[{"name": name, "value": value} for name, value in features.items()],
        )

    async def keys(self, *keys: str) -> None:
        """Press and let go of them, one after another."""
        presses = [{"type": t, "value": k} for k in keys for t in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": presses}]
        await self.command("POST", "actions", actions=actions)

    async def drag(self, selector: str, *shares: float) -> None:
        """Press at a share of an element's width, move to the next, let go at the last."""
        element, wide = await self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({ block: 'center' });"
            "return [e, e.clientWidth]",
            selector,
        )
        # from the element's middle as it lies at each move: news above it may shift it meanwhile
        moves = [
            {"type": "pointerMove", "duration": 50, "origin": element, "x": at, "y": 0}
            for at in (round((share - 0.5) * wide) for share in shares)
        ]
        down, up = ({"type": word, "button": 0} for word in ("pointerDown", "pointerUp"))
        held = [moves[0], down, *moves[1:], up]
        actions = [{"type": "pointer", "id": "mouse", "actions": held}]
        await self.command("POST", "actions", actions=actions)

    async def picture(self, path: Path) -> None:
        """The window as a PNG file."""
        path.write_bytes(base64.b64decode(await self.command("GET", "screenshot")))

    async def log(self) -> list[dict[str, Any]]:
        """What the page and the browser have said on the console since it was asked last."""
        found: list[dict[str, Any]] = await self.command("POST", "se/log", type="browser")
        return found


@contextlib.asynccontextmanager
async def browser(*flags: str) -> AsyncIterator[Browser]:
    """A headless Chromium with a profile of its own."""
    assert CHROMIUM is not None and DRIVER is not None
    folder = tempfile.mkdtemp(prefix="nlui", dir="/tmp")
    process, port = await _driver()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
            root = Browser(session, f"http://127.0.0.1:{port}")
            made = await root.command("POST", "session", capabilities=_wanted(folder, flags))
            debugger = made["capabilities"]["goog:chromeOptions"]["debuggerAddress"]
            url = f"http://127.0.0.1:{port}/session/{made['sessionId']}"
            one = Browser(session, url, debugger)
            try:
                yield one
            finally:
                with contextlib.suppress(aiohttp.ClientError, AssertionError):
                    await one.command("DELETE", "")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its browser with it
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wanted(folder: str, flags: tuple[str, ...]) -> dict[str, Any]:
    arguments = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--force-color-profile=srgb", f"--user-data-dir={folder}", *flags),
    ]
    options = {"binary": CHROMIUM, "args": arguments}
    return {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}


async def _driver() -> tuple[asyncio.subprocess.Process, int]:
    """A chromedriver and its port; one that finds its port taken by another ends at once."""
    said = ""
    for _ in range(5):
        process = await asyncio.create_subprocess_exec(
            str(DRIVER), "--port=0", start_new_session=True,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := (await process.stdout.readline()).decode():
                if "successfully on port" in line:
                    return process, int(line.rstrip().rstrip(".").rpartition(" ")[2])
                said += line
        await process.wait()
    raise AssertionError(f"chromedriver does not start: {said}")
