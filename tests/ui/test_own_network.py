"""The page needs nobody else: a browser that can reach no other name asks for none."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from bench.ui import DarkZone, Told
from tests.ui.browser import browser, needs_chromium
from tests.ui.test_drawing import LEGEND

NOBODY = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"


URL = re.compile(r'"initiator":"([^"]*)".*"url":"((?:https?|wss?)://[^"]*)"')
"""Of a request in Chromium's log: the origin that made it, and what it asked for. Chromium itself
asks its makers too, for itself."""


@needs_chromium
async def test_it_asks_loopback_alone(tmp_path: Path) -> None:
    log = tmp_path / "net.json"

    told = Told(DarkZone(3, 90))
    async with told.served() as url, browser(NOBODY, f"--log-net-log={log}") as window:
        await window.go(url)
        await window.until(f"{LEGEND}.includes('healthy 3')")
        told.tell_frame(dark_s=20.0, changes=1)
        await window.until(f"{LEGEND}.includes('unreachable 1')")
        assert await window.log() == []
    found = URL.findall(log.read_text())
    asked = {url for initiator, url in found if initiator.startswith("http://127.0.0.1:")}
    assert any(url.endswith("/main.js") for url in asked)
    assert any(url.endswith("/api/v1/stream") for url in asked)
    assert {urlsplit(url).hostname for url in asked} == {"127.0.0.1"}, sorted(asked)
