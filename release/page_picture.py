"""Takes a picture of the live page with a Chromium of this machine, for the demo's story of it.

`python -m release.page_picture FILE`, with the page's address on standard input: it holds a token,
which arguments would show to other users. Exit code 1, and a line, where there is no Chromium.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60.0
SIZE = {"width": 1280, "height": 1100, "deviceScaleFactor": 1, "mobile": False}
SHOWN = "document.querySelectorAll('.zone').length > 0"
LISTENING = "DevTools listening on "


class Tab:
    """A tab of a browser, by the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str = "") -> None:
        self._socket = socket
        self._number = 0
        self._session = session

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events are skipped."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(
            asked | ({"sessionId": self._session} if self._session else {})
        )
        while (told := await self._socket.receive_json()).get("id") != self._number:
            pass
        result: dict[str, Any] = told["result"]
        return result

    async def attached(self) -> Tab:
        """A new tab."""
        made = await self.command("Target.createTarget", url="about:blank")
        target = await self.command("Target.attachToTarget", flatten=True, **made)
        return Tab(self._socket, target["sessionId"])


async def take(program: str, address: str) -> bytes:
    """The page as a PNG, a second and a half after its nodes are there."""
    # A short path: Chromium makes a socket in it.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        flags = ("--headless=new", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        process = await asyncio.create_subprocess_exec(
            program, *flags, *root, f"--user-data-dir={folder}", start_new_session=True,
            env=os.environ | {"TMPDIR": folder},
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                return await _of_browser(process, address)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _of_browser(process: asyncio.subprocess.Process, address: str) -> bytes:
    assert process.stderr is not None
    while LISTENING not in (line := (await process.stderr.readline()).decode()):
        if not line:
            raise OSError("Chromium ended at once")
    url = line.partition(LISTENING)[2].strip()
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, max_msg_size=0) as socket,
    ):
        tab = await Tab(socket).attached()
        await tab.command("Emulation.setDeviceMetricsOverride", **SIZE)
        await tab.command("Page.navigate", url=address)
        shown = False
        while not shown:
            await asyncio.sleep(0.2)
            found = await tab.command("Runtime.evaluate", expression=SHOWN)
            shown = found["result"].get("value") is True
        await asyncio.sleep(1.5)
        picture = await tab.command("Page.captureScreenshot")
        return base64.b64decode(picture["data"])


def main() -> int:
    """The picture that the first argument names."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        print("there is no Chromium on this machine", file=sys.stderr)
        return 1
    try:
        picture = asyncio.run(take(program, sys.stdin.readline().strip()))
    except (OSError, TimeoutError, aiohttp.ClientError) as error:
        print(f"Chromium took no picture: {error or 'it took too long'}", file=sys.stderr)
        return 1
    Path(sys.argv[1]).write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
