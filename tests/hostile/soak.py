"""A soak by hand: one daemon, one hostile API server, sicknesses in turn, for an hour.

    .venv/bin/python -m tests.hostile.soak --seconds 3600 --seed 1

Leases are renewed, pods come and go, and every few seconds the server falls sick or well.
Sicknesses come in rounds, each once in a round, in the seed's order. Each minute a line tells the
daemon's memory and how often the server was asked. It fails where the daemon ends, where its memory
grows by more than half after the first fifth of the time, where one kind is asked more than twice a
second over ten seconds, or where a write was tried. The last line is one JSON object with the
figures.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.daemon.user import User, user
from tests.hostile import sicknesses
from tests.hostile.test_evidence_of_life import alive_now, bookmarks_only
from tests.objects import lease, pod
from tests.raw_server import RawServer, Sickness, raw_server

NODES = [f"n{number}" for number in range(50)]
PODS = 500
WINDOW_S = 10.0

SICKNESSES: dict[str, Sickness | None] = {
    "410 on lists": sicknesses.gone_lists,
    "410 in watches": sicknesses.expired_watches,
    "410 after a WatchList": sicknesses.broken_after_the_first_event,
    "watches end at once": sicknesses.ending_watches,
    "503, Retry-After 0": sicknesses.failing(503, {"Retry-After": "0"}),
    "429, negative Retry-After": sicknesses.failing(429, None, {"retryAfterSeconds": -5}),
    "401": sicknesses.failing(401),
    "a login page": sicknesses.login_page,
    "an endless list": sicknesses.endless_list,
    "an endless line": sicknesses.endless_line,
    "a gzip bomb": sicknesses.gzip_bomb(600),
    "bookmarks only": bookmarks_only,
    "503, Retry-After of 30,000 years": sicknesses.failing(503, {"Retry-After": "999999999999"}),
    "connections cut": sicknesses.cut,
    "half an answer": sicknesses.half_an_answer,
    "objects that cannot be read": sicknesses.unreadable_objects,
    "a Date of year 9999": None,
}
FAR_DATE = "Fri, 31 Dec 9999 23:59:59 GMT"


def running(number: int) -> dict[str, Any]:
    """A running pod; its uid is another each time."""
    return pod(f"p{number}", NODES[number % len(NODES)], uid=f"{number}-{time.time_ns()}")


async def live(server: RawServer, dice: random.Random) -> None:
    """Renewals every ten seconds, and some pods a second."""
    while True:
        for name in NODES[:: dice.randint(1, 3)]:
            server.put(lease(name, time.time_ns()))
        for _ in range(10):
            server.put(running(dice.randrange(PODS)))
            await asyncio.sleep(1)


async def fall_sick(server: RawServer, dice: random.Random, met: Counter[str]) -> None:
    """Every sickness once in a round, for five to thirty seconds, and well in between."""
    while True:
        for name in dice.sample(sorted(SICKNESSES), len(SICKNESSES)):
            met[name] += 1
            server.sickness = SICKNESSES[name]
            server.date = FAR_DATE if "Date" in name else ""
            await asyncio.sleep(dice.uniform(5, 30))
            server.sickness, server.date = None, ""
            await asyncio.sleep(dice.uniform(2, 15))


def busiest(server: RawServer) -> float:
    """The most requests a second for one kind over any ten seconds."""
    most = 0.0
    for plural in {request.plural for request in server.requests if request.plural}:
        times = [request.at for request in server.asked(plural)]
        first = 0
        for last, at in enumerate(times):
            while at - times[first] > WINDOW_S:
                first += 1
            most = max(most, (last - first + 1) / WINDOW_S)
    return most


class Looks(NamedTuple):
    """What was seen of the daemon: its memory each time, and how often no answer came in time."""

    resident: list[int]
    unanswered: int


async def watch_daemon(someone: User, server: RawServer, seconds: float) -> Looks:
    """Look each minute, or ten times in all, and once more each second that it does not answer.

    Raises AssertionError where it runs no more.
    """
    ends, resident, unanswered = time.monotonic() + seconds, [], 0
    while time.monotonic() < ends:
        await asyncio.sleep(min(60.0, seconds / 10))
        while "residentBytes" not in (health := await someone.health()):
            assert health["running"], health
            unanswered += 1
            await asyncio.sleep(1)
        resident.append(int(health["residentBytes"]))
        print(f"{resident[-1] >> 20} MiB, {len(server.requests)} requests", flush=True)
    return Looks(resident, unanswered)


async def soak(seconds: float, seed: int) -> dict[str, Any]:
    """The figures of one soak."""
    dice, met = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        objects = [made for name in NODES for made in alive_now(name)]
        async with (
            raw_server([*objects, *map(pod, range(PODS))]) as server,
            user(server.kubeconfig(Path(folder))) as someone,
        ):
            await someone.begin()
            pid = (await someone.health())["pid"]
            tasks = [
                asyncio.create_task(live(server, dice)),
                asyncio.create_task(fall_sick(server, dice, met)),
            ]
            resident, unanswered = await watch_daemon(someone, server, seconds)
            same = (await someone.health())["pid"] == pid
            for task in tasks:
                task.cancel()
            settled = resident[len(resident) // 5]
            return {
                "seconds": seconds,
                "seed": seed,
                "sameProcess": same,
                "firstMiB": settled >> 20,
                "mostMiB": max(resident) >> 20,
                "lastMiB": resident[-1] >> 20,
                "unanswered": unanswered,
                "requests": len(server.requests),
                "mostPerKindAndSecond": round(busiest(server), 2),
                "writes": len(server.writes),
                "sicknesses": dict(met),
                "passed": same
                and resident[-1] < 1.5 * settled
                and busiest(server) <= 2
                and not server.writes,
            }


def main() -> int:
    """Run it; 0 where everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = asyncio.run(soak(given.seconds, given.seed))
    print(json.dumps(found))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
