"""`drain-plan` asked of a running daemon: answered by a child of it, which sends nothing."""

from typing import Any

from tests.daemon.both_ways import ask_both_ways

PLAN = ("drain-plan", "a1", "--ignore-daemonsets", "--force", "--delete-emptydir-data")


async def test_a_daemon_answers_as_a_first_look_does_and_lists_what_it_does_not_watch() -> None:
    async with ask_both_ways(*PLAN) as (one, before, now):
        assert _fingerprint(before) == _fingerprint(now)

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


DIRECT: tuple[tuple[str, ...], ...] = ((), ("--no-daemon",))


def _fingerprint(plan: dict[str, Any]) -> Any:
    """What does not move with the second in which it is asked."""
    pods = sorted(
        (p["namespace"], p["name"], p["verdict"]) for w in plan["waves"] for p in w["pods"]
    )
    return plan["verdict"], plan["flagsNeeded"], pods, [n["name"] for n in plan["nodes"]]


def _orders(script: str) -> list[str]:
    """A script's lines without its comments, which tell times."""
    return [line for line in script.splitlines() if not line.startswith("#")]
