"""How the page looks where there is much: 5,000 nodes (zones are a density), and other clusters.

Compared with kept pictures as all of the page is (`test_looks`), at three widths, light and dark.
"""

import asyncio
from typing import Any

import pytest

from bench.ui import NODES
from tests.ui.browser import Browser, needs_chromium
from tests.ui.test_drawing import shown
from tests.ui.test_looks import (
    DIFFERENT,
    TOLERATED,
    all_pictured,
    far_from_kept,
    pictured,
    stand_still,
)

pytestmark = needs_chromium

MANY = {360: 2600, 1280: 1400, 1920: 1200}
TOP = {360: 900, 1280: 480, 1920: 400}
"""To each width a height: the zones and what comes soonest have room in the first; the second has
little more than the other clusters."""

HALF_DARK_S = 17.0
"""Half of the zone's nodes are silent then, the others are marked lost."""

OTHERS = [
    {
        "contexts": "prod-eu, prod-eu-admin",
        "context": "prod-eu",
        "server": "https://eu.example",
        "level": "gone",
        "sentence": "Zone r1/a is dark: 12 of 12 nodes are not ready.",
        "url": "http://127.0.0.1:65000/",
    },
    {
        "contexts": "staging",
        "context": "staging",
        "server": "https://staging.example",
        "level": "unknown",
        "sentence": "Its daemon does not answer.",
        "url": "",
    },
    {
        "contexts": "test",
        "context": "test",
        "server": "https://test.example",
        "level": "peace",
        "sentence": "None of 36 nodes is in trouble.",
        "url": "http://127.0.0.1:65001/",
    },
]


async def told_of_others(query: Any) -> dict[str, Any]:
    """Three other clusters: one in trouble, one not seen, one at peace."""
    return {"items": OTHERS}


async def tabs(window: Browser) -> tuple[str, str]:
    """The page's tab, and one in which pictures are made smaller."""
    page = await window.command("GET", "window")
    painter = await window.command("POST", "window/new", type="tab")
    await window.command("POST", "window", handle=page)
    await window.devtools("Emulation.setTimezoneOverride", timezoneId="UTC")
    return page, painter["handle"]


async def test_a_zone_of_many_nodes_looks_as_it_did(pytestconfig: pytest.Config) -> None:
    async with shown(NODES) as (window, told), asyncio.TaskGroup() as group:
        page, painter = await tabs(window)
        quiet = await pictured(window, page, painter, 1280, MANY[1280], "light")
        await window.command("POST", "window", handle=page)
        told.tell_frame(dark_s=HALF_DARK_S, changes=1, situated=True)
        still = group.create_task(stand_still(told))
        await window.until("return document.querySelectorAll('.soonest li').length === 10")
        await window.until("return document.getElementById('happened-list').children.length > 0")
        found = await all_pictured(window, page, painter, "many-", MANY)
        await window.command("POST", "window", handle=painter)
        assert await far_from_kept(window, found, pytestconfig) == {}
        assert await window.run(DIFFERENT, found["many-1280-light"], quiet) > TOLERATED
        still.cancel()


async def test_other_clusters_look_as_they_did(pytestconfig: pytest.Config) -> None:
    answers = {"clusters": told_of_others}
    async with shown(30, answers) as (window, told), asyncio.TaskGroup() as group:
        page, painter = await tabs(window)
        still = group.create_task(stand_still(told))
        await window.until("return document.querySelectorAll('#clusters li').length === 3")
        found = await all_pictured(window, page, painter, "others-", TOP)
        await window.command("POST", "window", handle=page)
        await window.run("document.getElementById('others').remove()")
        without = await pictured(window, page, painter, 1280, TOP[1280], "light")
        assert await far_from_kept(window, found, pytestconfig) == {}
        assert await window.run(DIFFERENT, found["others-1280-light"], without) > TOLERATED
        still.cancel()
