"""Works in progress on the page: what was promised, and what is waited for since when."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.daemon.ui import live_feed
from kubectl_nodelife.daemon.ui.live_feed import WorksFeed
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.outlook.works import WorkInProgress
from tests.loopback import KUBECTL
from tests.ui.browser import needs_chromium
from tests.ui.stuck_drain import begin_stuck_drain
from tests.ui.test_drawing import shown
from tests.ui.test_page import opened
from tests.ui.test_work_tracker import PLAN, ROLL_OUT, STATUS, S, cluster, instant

SHOWN = "return document.getElementById('works-list').innerText"


def work(kind: str, name: str, namespace: str = "") -> WorkInProgress:
    return WorkInProgress(kind, name, 0, 1, "", "", namespace)


async def test_each_kind_of_work_is_asked_for_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_feed, "_LOOK_SECONDS", 0.001)
    asked: list[tuple[str, Mapping[str, list[str]]]] = []

    def answer(name: str, told: dict[str, Any]) -> Any:
        async def answered(query: Mapping[str, list[str]]) -> dict[str, Any]:
            asked.append((name, dict(query)))
            return told

        return answered

    answers = {
        "drains": answer("drains", {"items": [PLAN]}),
        "daemonset": answer("daemonset", {"text": json.dumps(ROLL_OUT)}),
        "upgrade": answer("upgrade", STATUS),
    }

    feed = WorksFeed(answers, lambda: 100 * S)
    found = [work("Upgrade", "nodes"), work("DaemonSet", "agent", "kube"), work("Node", "a1")]
    task = asyncio.create_task(feed.run(lambda: found))
    while len(asked) < 3:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    task.cancel()
    of_set = {"about": ["status"], "namespace": ["kube"], "name": ["agent"], "output": ["json"]}
    nodes = {"node": ["a1"]}
    assert asked == [("upgrade", {}), ("daemonset", of_set), ("drains", nodes)]


async def test_an_answer_that_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feed, "_LOOK_SECONDS", 0.001)

    async def fails(query: object) -> dict[str, Any]:
        raise Failed("two questions are being answered")

    feed = WorksFeed({"drains": fails}, lambda: 100 * S)
    cache = cluster(2, going=1)
    works: Callable[[], list[WorkInProgress]] = lambda: feed.followed.works(  # noqa: E731
        cache, 100 * S, instant
    )
    task = asyncio.create_task(feed.run(works))
    while not (waits := works()[0].waits):
        await asyncio.sleep(0.001)
    task.cancel()
    assert [(wait.what, wait.because) for wait in waits] == [
        ("what it waits for is not known", "two questions are being answered")
    ]


@needs_chromium
@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl here")
async def test_a_drain_that_is_stuck_says_behind_what_and_since_when() -> None:
    async with opened() as page:
        stuck = await begin_stuck_drain(page.served, "a1")
        window = page.browser
        await window.until(f"{SHOWN}.includes('may go now')")
        said = await window.text("#works-list")
        assert f"Node a1  0 of {stuck.pods} cordoned" in said
        assert "finalizer example.com/hold keeps the object" in said
        assert "it can never spare one" in said and "no end promised" in said
        assert f"budget {stuck.budget}" in said
        since = "return document.querySelector('#works-list .since').textContent"
        first = await window.run(since)
        assert first.startswith("for ") and first.endswith("s")
        await window.until(f"{since} !== arguments[0]", first)  # it goes on
        assert await window.log() == []


@needs_chromium
async def test_promised_against_real_runs_by_the_streams_clock() -> None:
    async with shown(3) as (window, told):
        now = told.zone.now_s
        rolled = WorkInProgress(
            *("DaemonSet", "agent", 3, 6, "3 of 6 pods are of the newest template", "a command"),
            *("kube", now - 60, (now - 30, now - 20), (now + 40, now + 90)),
        )
        told.broadcast.publish("delta", {"now": now, "works": [rolled]})
        await window.until(f"{SHOWN}.includes('promised')")
        said = await window.text("#works-list")
        assert "DaemonSet kube/agent" in said and "3 of 6 " in said
        assert "for 1m" in said and "; expected in" in said
        stays = r"promised \d\d:\d\d:\d\d–\d\d:\d\d:\d\d, 2\ds late;"
        assert re.search(stays, said), said
        soon = replace(rolled, promised=(now - 5, now + 30))
        told.broadcast.publish("delta", {"now": now, "works": [soon]})
        await window.until(f"return !({SHOWN.removeprefix('return ')}).includes('s late;')")
        assert "promised" in await window.text("#works-list")
