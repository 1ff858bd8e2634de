"""The static pages in Chromium: no text is cut or leaves the page, at the width of a screen, of a
telephone and of A4."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kubectl_nodelife.outlook.replay.replay_line import Actor, ReplayLine
from kubectl_nodelife.report import drain, narration, replay, sweep, what_if
from kubectl_nodelife.report.replay import Replay
from tests.drain.build import budget, node, plan, replica_set
from tests.report.test_sweep_page import answer as study
from tests.report.test_what_if_page import answer
from tests.sim import documents
from tests.ui.browser import Browser, browser, needs_chromium

pytestmark = needs_chromium

LONG: Final = "a-node-with-a-name-as-long-as-those-of-clouds.eu-central-1.compute.internal"
A4_WITHOUT_MARGINS: Final = 703
WIDTHS: Final = ((1280, "screen"), (390, "screen"), (A4_WITHOUT_MARGINS, "print"))
CUT: Final = """
const page = document.documentElement, found = [];
if (page.scrollWidth > page.clientWidth) found.push(`the page is ${page.scrollWidth} wide`);
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode, holder = text.parentElement;
  if (!text.data.trim() || holder.closest("title, style, details:not([open])")) continue;
  if (matchMedia("screen").matches && holder.closest(".scroll")) continue;  // it can be scrolled
  const range = document.createRange();
  range.selectNodeContents(text);
  const frame = holder.closest("svg") ?? page, outer = frame.getBoundingClientRect();
  for (const box of range.getClientRects())
    if (box.right > outer.right + 1 || box.left < outer.left - 1) found.push(text.data.trim());
}
return found;
"""
"""Texts of which a part is outside of what holds them."""


def drained() -> str:
    pods = [*replica_set("web", LONG, "a2"), *replica_set("solo", LONG)]
    held = budget("solo", "solo", healthy=1, desired=1, expected=1, minAvailable=1)
    return drain.html_page(plan(node(LONG), node("a2"), *pods, held, nodes=(LONG,)), {})


def replayed() -> str:
    first_ns = 1_790_000_000 * 10**9
    actor = Actor("controller", "node-lifecycle")
    identity = ("taint", LONG, "node.kubernetes.io/unreachable", "NoExecute")
    what = (first_ns, actor, "AddTaint", "Node", "", LONG, identity, ("journal",))
    end_ns = first_ns + 3599 * 10**9
    page = Replay([ReplayLine(*what)], {"server": "s"}, first_ns, end_ns, [])
    return replay.html_page(page, "")


def simulated() -> str:
    owned = documents.pod("web-1", LONG, owner=("ReplicaSet", LONG), tolerates=60)
    nodes = [documents.node(LONG), documents.node("b1", "b")]
    objects = [*nodes, documents.owner("ReplicaSet", LONG), owned]
    events = [documents.stop("10s", LONG)]
    return narration.html_page(documents.story(duration="8m", objects=objects, events=events))


PAGES: Final[dict[str, Callable[[], str]]] = {
    "drain-plan": drained,
    "what-if": lambda: what_if.html_page(answer()),
    "replay": replayed,
    "simulate": simulated,
    "sweep": lambda: sweep.html_page(study(name=LONG)),
}


async def look(one: Browser, width: int, media: str) -> None:
    await one.look(width, 900)
    await one.devtools("Emulation.setEmulatedMedia", media=media)


@pytest.mark.parametrize("name", PAGES)
async def test_no_text_is_cut(name: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGES[name]())
    async with browser() as one:
        await one.go(path.as_uri())
        for width, media in WIDTHS:
            await look(one, width, media)
            assert await one.run(CUT) == [], (width, media)
            wide = await one.run(
                "return [...document.querySelectorAll('.lane .track')]"
                ".map((track) => track.getBoundingClientRect().width)"
            )
            assert wide and min(wide) > 150, (width, media)


async def test_a_text_that_is_cut_is_found(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        '<svg width="100%"><text x="99%" y="20">never: kubelet-unreachable</text></svg>'
    )
    async with browser() as one:
        await one.go(path.as_uri())
        assert await one.run(CUT) == ["never: kubelet-unreachable"]
