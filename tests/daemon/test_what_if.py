"""`what-if` asked of a running daemon: answered by a child of it, which sends nothing."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from bench.status import dump
from kubectl_nodelife.commands.answering.for_daemon import make_answers
from kubectl_nodelife.commands.answering.what_if import KINDS
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.daemon.cluster_view import Sources
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.pod import is_daemon_pod
from kubectl_nodelife.live.listwatch import ListedOnce
from kubectl_nodelife.outlook.view import ClusterView
from tests.daemon.both_ways import ask_both_ways
from tests.daemon.user import SET

LOSE = ("what-if", "lose", "node", "a1", "--until", "30m")


async def test_a_daemon_answers_as_a_first_look_does_and_lists_what_it_does_not_watch() -> None:
    async with ask_both_ways(*LOSE, first_look=SET) as (one, before, now):
        for key in ("workloads", "services", "budgets"):
            assert _names(before[key]) == _names(now[key])
        assert now["verdict"]["podsEvicted"]["future"] > 0
        assert [n["name"] for n in now["nodes"]] == ["a1"]

        unknown = await one.run("what-if", "lose", "node", "none")
        assert (unknown.code, unknown.out) == (2, "") and "none" in unknown.err
        lost = await one.run(*LOSE, "--fail-on", "degraded")
        assert lost.code == 4 and "what if node a1 is lost" in lost.out
        many = " --and ".join(["lose node a1 --at 1m"] * 400).split()
        assert (await one.run("what-if", *many, "-o", "name")).code == 0


def _names(items: list[dict[str, str]]) -> list[str]:
    return [item["name"] for item in items]


LOST = {"word": ["lose", "node", "a1", "a2"], "output": ["json"]}


async def test_who_is_on_the_nodes_is_said_while_the_answer_is_made(tmp_path: Path) -> None:
    """From what the daemon holds; what it lists takes long here, so that words are due."""
    file = tmp_path / "dump.json"
    file.write_bytes(dump(5, 20, 1))
    view = view_of_dump(read_dump([str(file)]), KINDS)
    on_them = [pod for name in ("a1", "a2") for pod in view.cache.pods_on(name)]
    moved = [pod for pod in on_them if not is_daemon_pod(pod)]
    assert 0 < len(moved) < len(on_them)

    class Slow(Sources):
        def view(self) -> ClusterView:
            return view

        async def list_kinds(self, *wanted: object) -> ListedOnce:
            await asyncio.sleep(1.8)
            return ListedOnce([], {}, [])

        async def keep_summary(self) -> None:
            """Nothing is kept."""

    _, streams = make_answers(Slow(*[cast(Any, None)] * 4))
    *before, answer = [document async for document in streams["what_if"](LOST)]
    assert [list(document) for document in before[:2]] == [["progress"], ["progress"]]
    first = before[0]["progress"]
    assert first["first"].startswith(f"2 nodes with {len(moved)} pods of ")
    assert first["seconds"] < before[1]["progress"]["seconds"]
    assert first["says"].startswith("reads what the daemon does not watch")
    assert json.loads(answer["text"])["kind"] == "WhatIf"
    with pytest.raises(NodelifeError, match='"x" not found'):
        await anext(streams["what_if"]({"word": ["lose", "node", "x"]}))
