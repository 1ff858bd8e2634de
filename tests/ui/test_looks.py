"""How the page looks: all its parts at three widths, light and dark, compared with kept pictures.

Pictures are compared by the mean colours of small squares, so that another machine's fonts do not
matter and a part that is missing, has another colour or lies elsewhere does. `pytest
--update-golden` makes them anew.
"""

import asyncio
import base64
from pathlib import Path

import pytest

from bench.ui import Told
from kubectl_nodelife.outlook.works import Wait, WorkInProgress
from tests.ui.browser import Browser, needs_chromium
from tests.ui.test_drawing import shown

pytestmark = needs_chromium

LOOKS = Path(__file__).parent / "looks"
WIDTHS = {360: 3600, 1280: 2000, 1920: 1900}
"""To each width the height in which the whole page has room."""

SQUARE = 8
"""Pixels of a kept picture's side that are one pixel in it."""

TOLERATED = 0.02
"""The share of squares that may look otherwise."""

SMALLER = """
  const [picture, square] = arguments;
  return fetch(`data:image/png;base64,${picture}`).then((got) => got.blob()).then(createImageBitmap)
    .then((whole) => {
      const [width, height] = [Math.floor(whole.width / square), Math.floor(whole.height / square)];
      const canvas = Object.assign(document.createElement("canvas"), { width, height });
      const context = canvas.getContext("2d");
      context.imageSmoothingQuality = "high";
      context.drawImage(whole, 0, 0, width, height);
      return canvas.toDataURL("image/png").split(",")[1];
    });
"""
DIFFERENT = """
  const pixels = (picture) => fetch(`data:image/png;base64,${picture}`).then((got) => got.blob())
    .then(createImageBitmap).then((whole) => {
      const canvas = Object.assign(document.createElement("canvas"), whole);
      canvas.width = whole.width; canvas.height = whole.height;
      const context = canvas.getContext("2d");
      context.drawImage(whole, 0, 0);
      return context.getImageData(0, 0, whole.width, whole.height);
    });
  return Promise.all([...arguments].map(pixels)).then(([one, other]) => {
    if (one.width !== other.width || one.height !== other.height) return 1;
    let found = 0;
    for (let at = 0; at < one.data.length; at += 4) {
      const far = [0, 1, 2].some((c) => Math.abs(one.data[at + c] - other.data[at + c]) > 24);
      found += far ? 1 : 0;
    }
    return found / (one.data.length / 4);
  });
"""
"""The share of pixels that differ."""


def works(now_s: float) -> list[WorkInProgress]:
    """A drain that is stuck and a roll-out that goes on."""
    budget = "shop/web: 2 of 3 healthy, 2 needed, 0 may go now"
    wait = Wait("pod shop/web-1", "budget web can spare none", now_s - 95)
    return [
        WorkInProgress(
            *("DaemonSet", "agent", 3, 6, "3 of 6 pods are of the newest template"),
            *("kubectl nodelife daemonset status daemonset/agent -n kube-system", "kube-system"),
            *(now_s - 60, (now_s + 30, now_s + 60), (now_s + 40, now_s + 90)),
        ),
        WorkInProgress(
            *("Node", "node-00001", 2, 5, "cordoned; 2 pods left to evict, 1 pod is Terminating"),
            *("kubectl nodelife drain-plan node-00001", ""),
            *(now_s - 125, (now_s - 30, now_s - 20), None, [wait], [budget]),
        ),
    ]


async def told_all(window: Browser, told: Told) -> None:
    """A zone that goes dark, with what happened and what is in progress; then time stands still."""
    told.tell_frame(dark_s=20.0, changes=1)
    now_s = told.zone.now_s
    told.broadcast.publish("delta", {"now": now_s, "works": works(now_s)})
    await window.until("return document.getElementById('works-list').children.length === 2")
    await window.until("return document.querySelectorAll('#happened-list li').length === 20")


async def stand_still(told: Told) -> None:
    """Say again and again that it is that instant."""
    while True:
        told.broadcast.whisper("tick", {"now": told.zone.now_s})
        await asyncio.sleep(0.2)


async def test_it_looks_as_it_did(pytestconfig: pytest.Config) -> None:
    async with shown(30) as (window, told), asyncio.TaskGroup() as group:
        await window.devtools("Emulation.setTimezoneOverride", timezoneId="UTC")
        await told_all(window, told)
        still = group.create_task(stand_still(told))
        first = await window.command("GET", "window")
        painter = await window.command("POST", "window/new", type="tab")
        found = await all_pictured(window, first, painter["handle"], "", WIDTHS)
        await window.command("POST", "window", handle=painter["handle"])
        assert await far_from_kept(window, found, pytestconfig) == {}
        assert await window.run(DIFFERENT, found["360-light"], found["360-dark"]) > 0.5
        await window.command("POST", "window", handle=first)
        await window.run("document.getElementById('works').remove()")
        height = WIDTHS[1280]
        without = await pictured(window, first, painter["handle"], 1280, height, "light")
        await window.command("POST", "window", handle=painter["handle"])
        assert await window.run(DIFFERENT, found["1280-light"], without) > TOLERATED
        still.cancel()


async def far_from_kept(
    window: Browser, found: dict[str, str], pytestconfig: pytest.Config
) -> dict[str, float]:
    """Of pictures by name, those that look otherwise than the kept ones, and by what share."""
    if pytestconfig.getoption("--update-golden"):
        LOOKS.mkdir(exist_ok=True)
        for name, picture in found.items():
            (LOOKS / f"{name}.png").write_bytes(base64.b64decode(picture))
    far = {}
    for name, picture in found.items():
        kept = base64.b64encode((LOOKS / f"{name}.png").read_bytes()).decode()
        share = await window.run(DIFFERENT, kept, picture)
        if share > TOLERATED:
            far[name] = round(share, 3)
    return far


async def all_pictured(
    window: Browser, page: str, painter: str, of: str, heights: dict[int, int]
) -> dict[str, str]:
    """Small pictures by name, at each width with its height, light and dark."""
    return {
        f"{of}{width}-{scheme}": await pictured(window, page, painter, width, height, scheme)
        for width, height in heights.items()
        for scheme in ("light", "dark")
    }


async def pictured(
    window: Browser, page: str, painter: str, width: int, height: int, scheme: str
) -> str:
    """A small picture of the page, made smaller in another tab."""
    await window.command("POST", "window", handle=page)
    await window.look(width, height, scheme)
    await window.run("document.activeElement.blur(); scrollTo(0, 0)")
    await window.run(
        "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    whole = await window.command("GET", "screenshot")
    await window.command("POST", "window", handle=painter)
    made: str = await window.run(SMALLER, whole, SQUARE)
    return made
