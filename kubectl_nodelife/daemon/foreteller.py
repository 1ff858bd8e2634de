"""Plays the present for the daemon's own answers: what zones and waiting nodes come to.

It is played in a child of the daemon, so that the loop goes on: only while so many nodes are silent
that a zone's state changes, when nodes have fallen silent, come to wait or gone on since the last
play, and so seldom that it costs a tenth of a core at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, Final

import msgspec

from kubectl_nodelife.daemon.forked_answers import ForkedAnswers
from kubectl_nodelife.daemon.server import sliced
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.outlook.foretold import Foretold
from kubectl_nodelife.outlook.node import Outlook
from kubectl_nodelife.outlook.view import ClusterView

_EVERY_S: Final = 1.0
_SHARE: Final = 10
_STEP: Final = 64


class Foreteller:
    """Plays the present for the daemon's answers, again when that may say something else.

    `foretold`: what was last read off a play; None while no zone changes, or
    is not seen.
    """

    def __init__(self, look: Callable[[], ClusterView]) -> None:
        self.foretold: Foretold | None = None
        self.plays = 0
        self._look = look
        self._forked = ForkedAnswers()
        self._played: object = None

    async def run(self) -> None:
        """Play as things change, until cancelled."""
        while True:
            began = time.perf_counter()
            with contextlib.suppress(NodelifeError):  # not read yet; or a child has ended
                await self.take()
            await asyncio.sleep(max(_EVERY_S, _SHARE * (time.perf_counter() - began)))

    async def take(self) -> None:
        """Play once more, if something has changed since the last play."""
        view = self._look()
        under_way = await sliced(_under_way(view.outlook)) if view.foretells else None
        if under_way is None:
            self.foretold = self._played = None
        elif under_way != self._played:
            self._played = under_way
            self.plays += 1
            answer = await self._forked.of_memory(self._play)
            self.foretold = msgspec.convert(answer["foretold"], Foretold | None)

    def _play(self) -> dict[str, Any]:
        return {"foretold": msgspec.to_builtins(self._look().outlook.foretell())}


def _under_way(outlook: Outlook) -> Generator[None, None, object]:
    """Which nodes are silent, come back or wait, and the zones' states; None: none changes."""
    silent: dict[str, str] = {}
    coming_back: dict[str, str] = {}
    for number, node in enumerate(list(outlook.cache.nodes.values())):
        if outlook.is_silent(node):
            silent[node.name] = outlook.zone_of(node)
        elif outlook.comes_back(node):
            coming_back[node.name] = outlook.zone_of(node)
        if number % _STEP == 0:
            yield
    if not outlook.zones_change(Counter(silent.values()), Counter(coming_back.values())):
        return None
    zones = outlook.memory.zones
    waiting = {name for queue in zones.queues.values() for name in queue.waiting()}
    return silent, coming_back, waiting, dict(zones.states)
