"""`drain-plan` asked of a running daemon: answered by a child of it, which sends nothing."""

from __future__ import annotations

import json
from typing import Any

from tests.daemon.user import FLAGS, user
from tests.loopback import play, sandbox

PLAN = ("drain-plan", "a1", "--ignore-daemonsets", "--force", "--delete-emptydir-data")


def test_a_daemon_answers_as_a_first_look_does_and_lists_what_it_does_not_watch() -> None:
    async def test() -> None:
        seen: list[str] = []
        async with sandbox(flags=FLAGS, record=seen) as served, user(served.kubeconfig) as one:
            looked = await one.run(*PLAN, "-o", "json")
            assert looked.code == 0 and "a first look" in looked.err
            await one.watching()
            seen.clear()
            asked = await one.run(*PLAN, "-o", "json")
            assert asked.code == 0 and "a first look" not in asked.err
            listed = {path.rpartition("/")[2] for path in seen}
            assert {"poddisruptionbudgets", "services", "replicasets"} <= listed
            assert not listed & {"pods", "nodes"}
            assert served.server.faults.writes_seen == []

            before, now = json.loads(looked.out), json.loads(asked.out)
            assert (before["source"]["kind"], now["source"]["kind"]) == ("direct", "daemon")
            assert _gist(before) == _gist(now)

            printed = [await one.ok(*PLAN, "-o", "commands", *more) for more in DIRECT]
            assert "drain_all a1" in printed[0] and "--kubeconfig" not in printed[0]
            assert _orders(printed[0]) == _orders(printed[1])
            page = await one.ok(*PLAN, "-o", "html")
            assert page.startswith("<!doctype html>")

            waves = await one.run("drain-plan", "--all", "--max-parallel", "1", *PLAN[2:])
            assert waves.code == 0 and "wave" in waves.out
            unknown = await one.run("drain-plan", "none")
            assert (unknown.code, unknown.out) == (1, "") and "none" in unknown.err
            both = await one.run("drain-plan", "a1", "-l", "x=y")
            assert (both.code, both.out) == (2, "")
            for_dumps = await one.run("drain-plan", "a1", "--read", "all")
            assert for_dumps.code == 2 and "name a dump with -f" in for_dumps.err

    play(test)


DIRECT: tuple[tuple[str, ...], ...] = ((), ("--no-daemon",))


def _gist(plan: dict[str, Any]) -> Any:
    """What does not move with the second in which it is asked."""
    pods = sorted(
        (p["namespace"], p["name"], p["verdict"]) for w in plan["waves"] for p in w["pods"]
    )
    return plan["verdict"], plan["flagsNeeded"], pods, [n["name"] for n in plan["nodes"]]


def _orders(script: str) -> list[str]:
    """A script's lines without its comments, which tell times."""
    return [line for line in script.splitlines() if not line.startswith("#")]
