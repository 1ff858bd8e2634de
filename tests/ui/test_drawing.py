"""The page draws only what shows something else: in Chromium, on a stream made here."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import pytest

from bench.ui import DarkZone, Told
from kubectl_nodelife.daemon.server import Answer, Stream
from kubectl_nodelife.outlook.node_verdict import Option
from kubectl_nodelife.outlook.situation import Situation
from tests.ui.browser import DOWN, Browser, browser, needs_chromium

pytestmark = needs_chromium

NODES = 3_000

COUNT = """
  window.calls = {};
  for (const name of ['drawImage', 'fillRect', 'clearRect']) {
    const called = CanvasRenderingContext2D.prototype[name];
    CanvasRenderingContext2D.prototype[name] = function (...given) {
      window.calls[name] = (window.calls[name] ?? 0) + 1;
      return called.apply(this, given);
    };
  }
"""
LEGEND = "return document.querySelector('#legend').innerText"


@contextlib.asynccontextmanager
async def shown(
    nodes: int,
    answers: Mapping[str, Answer] | None = None,
    streams: Mapping[str, Stream] | None = None,
) -> AsyncIterator[tuple[Browser, Told]]:
    """A page of so many nodes in three zones, drawn, and who tells it."""
    told = Told(DarkZone(nodes, nodes * 30), answers, streams)
    async with told.served() as url, browser() as window:
        await window.look(1280, 900)
        await window.devtools("Page.addScriptToEvaluateOnNewDocument", source=COUNT)
        await window.go(url)
        await window.until(f"{LEGEND}.includes('healthy {nodes}')")
        await settled(window)
        yield window, told


async def explain(query: Any) -> dict[str, Any]:
    """Nothing is said of any object."""
    return {"answers": []}


async def settled(window: Browser) -> dict[str, int]:
    """What was called to draw, once a second passes without."""
    before: dict[str, Any] = {}
    while (found := await window.run("return { ...window.calls }")) != before:
        before = found
        await asyncio.sleep(1.0)
    await window.run("window.calls = {}")
    return before


async def test_a_node_that_changes_is_drawn_and_the_others_are_not() -> None:
    async with shown(NODES) as (window, told):
        told.tell_row(name="node-00004", state="cordoned")
        await window.until(f"{LEGEND}.includes('cordoned 1')")
        drawn = await settled(window)
        assert 1 <= drawn.get("fillRect", 0) <= 3, drawn  # its dot, where it is and was
        assert "drawImage" not in drawn


async def test_many_lost_nodes_are_drawn_from_few_pictures() -> None:
    """All nodes of the zone have a ring; rings of the same length are one picture."""
    nodes = 900
    async with shown(nodes) as (window, told):
        made = """
              const { transferToImageBitmap: made } = OffscreenCanvas.prototype;
              window.pictures = 0;
              OffscreenCanvas.prototype.transferToImageBitmap = function () {
                window.pictures += 1;
                return made.apply(this);
              };
            """
        await window.run(made)
        told.tell_frame(dark_s=30.0)
        await window.until(f"{LEGEND}.includes('unreachable {nodes // 3}')")
        await window.until("return window.calls.drawImage >= arguments[0]", nodes // 3)
        assert await window.run("return window.pictures") <= 20


async def test_a_zone_of_many_nodes_has_one_height_and_says_what_comes_soonest() -> None:
    """What comes next is beside it, where there is room; nodes lost are as many squares."""
    heights = "return [...document.querySelectorAll('.zone')].map((zone) => zone.offsetHeight)"
    first = "return [...document.querySelector('.soonest').children].map((row) => row.innerText)"
    async with shown(NODES) as (window, told):
        quiet = await window.run(heights)
        assert len(set(quiet)) == 1 and quiet[0] < 320
        assert "Nothing comes" in await window.run(
            "return getComputedStyle(document.querySelector('.soonest'), '::after').content"
        )
        for step in range(1, 60):
            told.tell_frame(dark_s=step / 2)
        await window.until(f"{LEGEND}.includes('unreachable {NODES // 3}')")
        await window.until("return window.calls.fillRect >= arguments[0]", NODES // 3)
        await window.until(f"return ({first.removeprefix('return ')}).length === 10")
        rows = await window.run(first)
        names = [row.split()[0] for row in rows]
        assert names == [f"node-{3 * at:05}" for at in range(10)]  # those first silent
        assert all("30 pods leave in 4m" in row for row in rows), rows
        assert await window.run(heights) == quiet
        tops = "return ['nodes', 'next'].map((id) => document.getElementById(id).offsetTop)"
        nodes, beside = await window.run(tops)
        assert nodes == beside
        await window.run("document.querySelector('.soonest button').click()")
        assert await window.run("return location.hash") == f"#/node/{names[0]}"


async def test_the_same_of_several_nodes_is_one_row_of_what_came_true() -> None:
    async with shown(30) as (window, told):
        told.tell_frame(dark_s=0.0, changes=1)
        await window.until(
            "return document.getElementById('next-list').innerText"
            ".includes('TaintNode on 10 Nodes')"
        )


async def test_rows_of_what_happened_stay() -> None:
    async with shown(30) as (window, told):
        told.tell_frame(dark_s=0.0, changes=1)
        rows = "return document.querySelectorAll('#happened-list li').length"
        await window.until(f"{rows} === 20")
        await window.run("document.querySelector('[data-change=\"30\"]').mark = 'kept'")
        told.tell_frame(dark_s=0.0, changes=2)
        await window.until(f"{rows} === 40")
        kept = "return document.querySelector('[data-change=\"30\"]').mark"
        assert await window.run(kept) == "kept"
        every = "return [...document.querySelectorAll('#happened-list li')]"
        found = await window.run(f"{every}.map((row) => Number(row.dataset.change))")
        assert found == sorted(found, reverse=True)


HIT = {
    "namespace": "default", "wanted": 3, "readyBefore": 2, "lowestReady": 1, "backSeconds": 300.0
}  # fmt: skip
WHAT_IF = {
    "verdict": {"text": "what if node node-00001 is lost"},
    "acts": [{"act": "lose node", "targets": ["node-00001"]}],
    "horizon": {"untilSeconds": 3600, "endedSeconds": 600.0, "ended": "quiet"},
    "workloads": [
        {**HIT, "name": "web", "outage": "degraded", "firstSeconds": 60.0},
        {
            **HIT,
            "name": "db",
            "outage": "full",
            "firstSeconds": 120.0,
            "backSeconds": None,
            "lowestReady": 0,
        },
        {**HIT, "name": "far", "outage": "none", "firstSeconds": None},
    ],
    "services": [
        {
            "namespace": "default",
            "name": "db",
            "fromSeconds": 120.0,
            "toSeconds": 240.0,
            "endpointsBefore": 2,
            "lowest": 0,
        },
        {
            "namespace": "default",
            "name": "web",
            "fromSeconds": None,
            "toSeconds": None,
            "endpointsBefore": 2,
            "lowest": 2,
        },
    ],
}
ACTS = "return document.getElementById('what-if-acts')"
ANSWER = "return document.getElementById('what-if-answer').innerText"
PLAY = "document.getElementById('what-if-form').requestSubmit()"
BANDS = """
  return [...document.querySelectorAll('.bands .track')].map((track) => [
    track.parentElement.querySelector('b').textContent, track.classList.contains('full'),
    parseFloat(track.firstChild.style.left), parseFloat(track.firstChild.style.width),
  ]);
"""


async def test_a_command_says_what_would_come_of_it() -> None:
    """It is played when a person asks, and not before."""
    asked: list[Any] = []

    async def what_if(query: Any) -> dict[str, Any]:
        asked.append(query["word"])
        return {"verdict": {"text": "db is up at the end, from 40s on, and not without it"}}

    delete = Option("kubectl delete node a1", "its pods go, after a while", "delete node a1")
    lost = Situation("gone", "a1 is unreachable.", options=[delete])

    async with shown(3, {"what_if": what_if, "explain": explain}) as (window, told):
        told.broadcast.publish("delta", {"now": told.zone.now_s, "situation": lost})
        await window.until("return document.querySelector('#now-options .plays') !== null")
        assert not asked
        await window.run("document.querySelector('#now-options .plays').click()")
        await window.until(
            "return document.querySelector('#now-options p').innerText"
            ".includes('db is up at the end, from 40s on, and not without it')"
        )
        assert asked == [["delete", "node", "a1"]]


async def test_what_would_be_hit_is_drawn_as_bands() -> None:
    """From when to when, of the time that was played; one that is not back reaches its end."""

    async def what_if(query: Any) -> dict[str, Any]:
        return WHAT_IF

    async with shown(3, {"what_if": what_if, "explain": explain}) as (window, _):
        await window.run("location.hash = '#/node/node-00001'")
        await window.until(f"{ACTS}.offsetParent !== null")
        await window.run(PLAY)
        await window.until(f"{BANDS.strip().removesuffix(';')}.length > 0")
        assert await window.run(BANDS) == [
            ["default/db", True, 20, 80],
            ["Service default/db", True, 20, 20],
            ["default/web", False, 10, 40],
        ]
        said = await window.text("#what-if-answer")
        assert "default/db 2 → 0" in said and "full, not back" in said
        assert "default/web 2 → 1" in said and "of 10m from" in said
        assert "2 workloads hit" in said and "far" not in said


async def test_whom_it_harms_is_drawn_on_the_line_of_time_of_the_nodes() -> None:
    async with shown(3) as (window, told):
        now_s = told.zone.now_s
        gone = {"says": "Unknown", "lowS": now_s + 60, "highS": now_s + 60}
        web = {"says": "1 of 3 ready", "lowS": now_s + 60, "highS": now_s + 90}
        lane = {"name": "a1", "state": "silent", "sinceS": now_s - 5, "stays": ""}
        harmed = {"name": "Service default/web", "state": "3 → 1", "sinceS": None, "stays": ""}
        situation = {
            "level": "worse", "sentence": "a1 is silent.", "sinceS": now_s - 5, "coming": [],
            "hurts": "", "advice": "", "options": [], "lanes": [{**lane, "coming": [gone]}],
            "harmed": [{**harmed, "coming": [web]}],
        }  # fmt: skip
        told.broadcast.publish("delta", {"now": now_s, "situation": situation})
        await window.until(f"{HARMED}.includes('Service default/web')")
        assert "3 → 1" in await window.text("#now-harmed")
        first = "return document.querySelector('#now-lanes li').textContent"
        lane_text = await window.run(first)
        left = """
              return ['lanes', 'harmed'].map((list) => parseFloat(
                document.querySelector(`#now-${list} .step`).style.left));
            """
        of_node, of_service = await window.run(left)
        assert 50 < of_node == pytest.approx(of_service, abs=0.5)
        await window.run("document.getElementById('now-lanes').focus()")
        await window.keys(DOWN)
        assert await window.run("return document.activeElement.textContent") == lane_text


HARMED = "return document.getElementById('now-harmed').textContent"


async def test_how_far_a_play_is_and_who_is_on_it_are_shown_meanwhile() -> None:
    goes_on = asyncio.Event()

    async def what_if(query: Any) -> AsyncGenerator[dict[str, Any]]:
        yield {"progress": {"says": "plays on", "seconds": 2.5, "first": "2 nodes with 9 pods"}}
        await goes_on.wait()
        yield WHAT_IF

    async with shown(3, {"explain": explain}, {"what_if": what_if}) as (window, _):
        await window.run("location.hash = '#/node/node-00001'")
        await window.until(f"{WORDS} === 'lose node node-00001'")
        await window.run(PLAY)
        await window.until(f"{ANSWER}.includes('2 nodes with 9 pods')")
        assert "plays on (3s)" in await window.run(ANSWER)
        goes_on.set()
        await window.until(f"{ANSWER}.includes('2 workloads hit')")


SHIFT_CLICK = """
  const [x, y, canvas] = [20, 10, document.querySelectorAll('#wall canvas')[2 * arguments[0]]];
  const { left, top } = canvas.getBoundingClientRect();
  const shift = { bubbles: true, shiftKey: true, clientX: left + x, clientY: top + y };
  canvas.dispatchEvent(new MouseEvent('click', shift));
"""
CHOOSE = """
  const acts = document.getElementById('what-if-act');
  acts.selectedIndex = [...acts.options].findIndex((option) => option.text === arguments[0]);
  acts.dispatchEvent(new Event('change'));
"""
WORDS = f"{ACTS}.value"


async def test_an_act_is_chosen_for_nodes_and_zones_and_told_in_words() -> None:
    async with shown(3, {"explain": explain}) as (window, _):
        await window.run("location.hash = '#/node/node-00001'")
        await window.until(f"{WORDS} === 'lose node node-00001'")
        await window.run(SHIFT_CLICK, 2)
        assert await window.run(WORDS) == "lose node node-00001 node-00002"
        drain = "drain node {} --ignore-daemonsets --delete-emptydir-data"
        for act, words in (
            ("lose the link", "lose link node {}"),
            ("taint", "taint node {} maintenance=now:NoExecute"),
            ("another setting, and lose", "set node-monitor-grace-period=20s --and lose node {}"),
            ("drain", drain),
        ):
            await window.run(CHOOSE, act)
            assert await window.run(WORDS) == words.format("node-00001 node-00002")
        await window.run(SHIFT_CLICK, 1)
        assert await window.run(WORDS) == drain.format("node-00002")
        await window.run("location.hash = '#/zone/r/it%27s'")
        zone = drain.replace("node {}", "zone 'r/it'\\''s'")
        await window.until(f"{WORDS} === arguments[0]", zone)
        assert await window.run("return location.hash") == "#/zone/r/it%27s"


async def test_a_play_is_given_up_when_the_choice_changes() -> None:
    """The daemon hears of it, so that the next question does not wait for this one."""
    asked, given_up = list[Any](), list[Any]()

    async def what_if(query: Any) -> dict[str, Any]:
        asked.append(query["word"])
        if len(asked) == 2:
            return WHAT_IF
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            given_up.append(query["word"])
            raise
        return {}

    async with shown(3, {"what_if": what_if, "explain": explain}) as (window, _):
        await window.run("location.hash = '#/node/node-00001'")
        await window.until(f"{WORDS} === 'lose node node-00001'")
        await window.run(PLAY)
        await window.until(f"{ANSWER}.includes('Playing')")
        while not asked:
            await asyncio.sleep(0.05)
        await window.run(CHOOSE, "lose the link")
        assert await window.run(ANSWER) == ""
        async with asyncio.timeout(10):
            while not given_up:
                await asyncio.sleep(0.05)
        await window.run(PLAY)
        await window.until(f"{ANSWER}.includes('what-if lose link node node-00001')")
    assert given_up == [["lose", "node", "node-00001"]] and len(asked) == 2


ASKED = """
  window.asked = [];
  navigator.wakeLock.request = async (kind) => { window.asked.push(kind); };
"""


async def test_a_wall_screen_stays_awake() -> None:
    """And shows the nodes alone; a page that is read does not keep its machine awake."""
    told = Told(DarkZone(3, 90))
    async with told.served() as url, browser() as window:
        await window.devtools("Page.addScriptToEvaluateOnNewDocument", source=ASKED)
        plain = url.partition("#")[0]
        for address, asked in ((url.replace("#", "?wall#"), ["screen"]), (plain, [])):
            await window.go(address)
            await window.until(f"{LEGEND}.includes('healthy 3')")
            assert await window.run("return window.asked") == asked
            shown = "return document.getElementById('next').offsetParent !== null"
            assert await window.run(shown) == (not asked)
