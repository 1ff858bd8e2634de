"""The wall as lines, and the page of the terminal that shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubectl_nodelife.commands.answering.status import finished
from kubectl_nodelife.commands.cluster.dump import read_dump
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.commands.top import top
from kubectl_nodelife.errors import BadInput, Unreachable
from kubectl_nodelife.outlook.status import status_steps
from kubectl_nodelife.outlook.wall import WALL_SORT_KEYS, Wall, WallNode, WallZone, wall
from kubectl_nodelife.report.wall_app import Size, wall_lines

DUMP = Path(__file__).parents[1] / "dumps/two-zones"
BRAKE = "losing 3 more nodes stops this zone"


def of_dump(words: str = "", sort: str = "trouble", limit: int = 100) -> Wall:
    view = view_of_dump(read_dump([str(DUMP)]), ("Node", "Lease", "Pod"))
    return wall(finished(status_steps(view)), words, sort, limit)


def made(nodes: int, zones: int = 3, due: int = 5) -> Wall:
    """A wall of any size."""
    rows = [
        WallNode(f"worker-{n}", "a", "healthy" if n >= due else "silent", 10, n >= due,
                 "SetNodeCondition Ready=Unknown" if n < due else "", 30.0 + n if n < due else None)
        for n in range(nodes)
    ]  # fmt: skip
    return Wall(
        {"context": "here"}, "v1.36", {"healthy": nodes - due, "silent": due},
        [WallZone(f"zone-{n}", "Normal", 10, 0, 0.55, 0.1, 0, "", BRAKE) for n in range(zones)],
        rows, rows[:due], [],
    )  # fmt: skip


@pytest.mark.parametrize(
    "words, expected",
    [
        ("", 6),
        ("worker-a", 3),
        ("zone=eu-1b", 3),
        ("zone=eu-1/eu-1b", 3),
        ("state=unreachable", 1),
        ("state=healthy zone=eu-1a", 2),
        ("none", 0),
    ],
)
def test_words_choose_nodes(words: str, expected: int) -> None:
    found = of_dump(words)
    assert len(found.nodes) == sum(found.counts.values()) == expected


def test_trouble_comes_first_and_the_soonest_is_next() -> None:
    found = of_dump()
    assert [node.fine for node in found.nodes] == sorted(node.fine for node in found.nodes)
    due = [node.in_seconds or 0 for node in found.next]
    assert due == sorted(due) and due
    assert of_dump(sort="name").nodes[0].name == "worker-a1"
    assert len(of_dump(limit=2).nodes) == 2 and sum(of_dump(limit=2).counts.values()) == 6
    with pytest.raises(BadInput):
        of_dump(sort="colour")


def test_at_80_by_24_there_are_three_zones_ten_nodes_and_three_changes() -> None:
    lines = wall_lines(made(40), Size(80, 24), 0.0)
    text = [line.text for line in lines]
    assert len(lines) <= 24 and all(len(line) <= 80 for line in text)
    zones, nodes = (
        next(i for i, t in enumerate(text) if t.startswith(w)) for w in ("ZONE", "NODE")
    )
    last = text.index("WHAT COMES NEXT")
    assert nodes - zones - 1 == 3 and last - nodes - 2 >= 9 and len(text) - last - 2 >= 3
    assert sum(line.node.startswith("worker-") for line in lines) >= 12


@pytest.mark.parametrize("width, height", [(60, 16), (80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("nodes", [0, 1, 5_000])
def test_no_screen_is_too_full(width: int, height: int, nodes: int) -> None:
    lines = wall_lines(made(nodes, zones=40, due=min(nodes, 60)), Size(width, height), 0.0)
    assert len(lines) <= height and all(len(line.text) <= width for line in lines)


def test_a_screen_that_is_too_small_says_so() -> None:
    said = wall_lines(made(3), Size(40, 10), 0.0)
    assert said[0].text == "The terminal is too small: 40 x 10."


def test_bars_run_down_and_stand_still_without_news() -> None:
    def bar(age_s: float) -> str:
        found = wall_lines(made(5, due=5), Size(120, 40), age_s)
        return next(line.text for line in found if line.node == "worker-4")

    assert "in 34s" in bar(0.0) and "in 32s" in bar(2.0)
    assert bar(60.0) == bar(600.0)
    stale = wall_lines(made(5), Size(120, 40), 60.0)
    assert "no news for 60s" in stale[1].text
    assert {line.tone for line in stale} <= {"dim", "head", stale[1].tone}


def test_names_of_any_kind_are_one_printable_line() -> None:
    odd = made(1)
    odd.nodes[0].name = "\x1b[31mred‮\n" + "x" * 253
    odd.nodes[0].action = "\x07\n[bold]"
    odd.zones[0] = replace(odd.zones[0], name=odd.nodes[0].action)
    for line in wall_lines(odd, Size(80, 24), 0.0):
        assert line.text.isprintable() and len(line.text) <= 80


async def until(pilot: object, is_it: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_it():
            await pilot.pause(0.05)  # type: ignore[attr-defined]


def test_the_page_shows_the_lines_and_takes_keys() -> None:
    from kubectl_nodelife.report.wall_app import TextScreen, WallApp, WallLines

    asked: list[tuple[str, str]] = []

    def ask(words: str, sort: str, limit: int) -> Wall:
        asked.append((words, sort))
        return made(40)

    async def test() -> None:
        page = WallApp(ask, lambda name: f"about {name} [not markup]", str.upper)
        async with page.run_test(size=(80, 24)) as pilot:
            wall_of = page.query_one(WallLines)
            await until(pilot, lambda: len(wall_of.lines) > 20)
            assert wall_of.size.height >= 23
            shown = [str(wall_of.render_line(y).text).rstrip() for y in range(24)]
            assert shown[0].startswith("40 nodes: 35 healthy, 5 silent")
            assert any(line.startswith("zone-2") for line in shown)
            await pilot.press("down", "down")
            assert wall_of.chosen == "worker-1"
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(page.screen, TextScreen))
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(page.screen, TextScreen))
            await pilot.press("s")
            await pilot.press("slash", *"zone", "equals_sign", "a", "enter")
            await until(pilot, lambda: ("zone=a", WALL_SORT_KEYS[1]) in asked)
            await pilot.resize_terminal(50, 10)
            await until(pilot, lambda: "too small" in wall_of.lines[0].text)
            await pilot.press("q")
        assert page.return_value == ""

    asyncio.run(test())


def test_a_daemon_that_is_gone_ends_the_page_with_its_words() -> None:
    from kubectl_nodelife.report.wall_app import WallApp

    def ask(words: str, sort: str, limit: int) -> Wall:
        raise Unreachable("the daemon has ended")

    async def test() -> None:
        page = WallApp(ask, str, str)
        async with page.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: page.return_value is not None)
        assert "the daemon has ended" in str(page.return_value)

    asyncio.run(test())


@pytest.mark.parametrize("term", ["dumb", "", "xterm"])
def test_without_a_terminal_it_names_what_to_use(
    term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    monkeypatch.setenv("TERM", term)
    with pytest.raises(BadInput, match="status -w"):
        CliRunner().invoke(top, [], catch_exceptions=False)
