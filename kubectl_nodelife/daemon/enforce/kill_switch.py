"""Reads the kill switch: the ConfigMap kube-system/nodelife-stop, which stops all writers.

Whoever made it, all writers stop within five seconds; a failure to read it counts as its being
there. It is read by a client of its own, which waits for nobody's tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kubectl_nodelife.engine.calls import Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.live.writer import Writer

KILL_SWITCH: Final = "nodelife-stop"
KILL_SWITCH_PATH: Final = f"/api/v1/namespaces/kube-system/configmaps/{KILL_SWITCH}"
LOOK_SECONDS: Final = 2.0
_READ_SECONDS: Final = 5.0


class KillSwitch:
    """`absent_ns`: when it was last known not to be there."""

    def __init__(self, writer: Writer, now_ns: Callable[[], int]) -> None:
        self.absent_ns = 0
        self.present = False
        self.error = ""
        self._writer = writer
        self._now_ns = now_ns

    async def look(self) -> None:
        """Look once."""
        asked_ns = self._now_ns()
        request = Request("GET", KILL_SWITCH_PATH, "", {})
        answer = await self._writer.send(request, "ConfigMap", timeout_s=_READ_SECONDS, retry=False)
        if answer.code == NOT_FOUND:
            self.absent_ns, self.present, self.error = asked_ns, False, ""
        elif answer.ok:
            self.present = True
        else:
            self.error = answer.message

    async def run(self) -> None:
        """Look every two seconds until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)
