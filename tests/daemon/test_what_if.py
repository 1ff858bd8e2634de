"""`what-if` asked of a running daemon: answered by a child of it, which sends nothing."""

from __future__ import annotations

from tests.daemon.both_ways import ask_both_ways
from tests.daemon.user import SET
from tests.loopback import play

LOSE = ("what-if", "lose", "node", "a1", "--until", "30m")


def test_a_daemon_answers_as_a_first_look_does_and_lists_what_it_does_not_watch() -> None:
    async def test() -> None:
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

    play(test)


def _names(items: list[dict[str, str]]) -> list[str]:
    return [item["name"] for item in items]
