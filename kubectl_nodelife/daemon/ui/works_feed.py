"""Asks the daemon's own answers what works in progress wait for, while somebody looks at the page.

Plans of drains are made in a child of the daemon, roll-outs in a thread; each question is asked
again after a while, and after ten times as long as its answer took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubectl_nodelife.answers.followed_works import (
    FollowedWorks,
    WorkDetails,
    WorkKey,
    details_of_drain,
    details_of_roll_out,
    details_of_upgrade,
    key_of,
)
from kubectl_nodelife.answers.works import WorkInProgress
from kubectl_nodelife.daemon.server import Answer, Query
from kubectl_nodelife.errors import NodelifeError

EVERY_SECONDS: Final[Mapping[str, float]] = {"Upgrade": 5.0, "DaemonSet": 5.0, "Node": 15.0}
"""How often is asked, by the kind of work."""

MOST_ASKED: Final = 8
"""Works of a kind of which details are told."""

_LOOK_SECONDS: Final = 1.0
_SHARE: Final = 10


class WorksFeed:
    """See the module. `now_ns`: by the API server's clock."""

    def __init__(self, answers: Mapping[str, Answer], now_ns: Callable[[], int]) -> None:
        self.followed = FollowedWorks()
        self._answers = answers
        self._now_ns = now_ns
        self._due = dict.fromkeys(EVERY_SECONDS, 0.0)

    async def run(self, works: Callable[[], Sequence[WorkInProgress]]) -> None:
        """Ask as long as it is not cancelled. `works`: those of now."""
        while True:
            found = works()
            for kind, every_s in EVERY_SECONDS.items():
                mine = [key_of(work) for work in found if work.kind == kind][:MOST_ASKED]
                began = time.monotonic()
                if mine and began >= self._due[kind]:
                    await self._ask(kind, mine)
                    took_s = time.monotonic() - began
                    self._due[kind] = began + max(every_s, _SHARE * took_s)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _ask(self, kind: str, keys: Sequence[WorkKey]) -> None:
        if kind == "Upgrade":
            await self._take(keys, "upgrade", {}, lambda told: [details_of_upgrade(told)])
        elif kind == "Node":
            names = [name for _, _, name in keys]
            plans = {"node": names}
            await self._take(
                keys, "drains", plans, lambda told: [details_of_drain(p) for p in told["items"]]
            )
        else:
            for key in keys:
                query = {"about": ["status"], "namespace": [key[1]], "name": [key[2]]}
                query["output"] = ["json"]
                await self._take(
                    [key], "daemonset", query, lambda told: [details_of_roll_out(told)]
                )

    async def _take(
        self,
        keys: Sequence[WorkKey],
        question: str,
        query: Query,
        read: Callable[[dict[str, Any]], list[WorkDetails]],
    ) -> None:
        """Take the answer; where there is none, that is what is told of the works."""
        now_ns = self._now_ns()
        try:
            told = await self._answers[question](query)
        except NodelifeError as error:
            details = [
                WorkDetails(None, [("what it waits for is not known", str(error), None)], [])
            ]
            details *= len(keys)
        else:
            text = told.get("text")
            details = read(msgspec.json.decode(text) if isinstance(text, str) else told)
        for key, each in zip(keys, details, strict=True):
            self.followed.take(key, each, now_ns)
