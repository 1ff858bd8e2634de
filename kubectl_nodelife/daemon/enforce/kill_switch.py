"""The kill switch: the ConfigMap kube-system/nodelife-stop, which stops all writers of a cluster.

All writers stop within five seconds, regardless of who made the ConfigMap; a failure to read it
counts as its being there. `KillSwitch` reads it with a client of its own, which shares no rate
limit; `change_kill_switch` makes and removes it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from kubectl_nodelife.daemon.permissions import STOP
from kubectl_nodelife.engine.calls import Answer, Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.writer import Writer, WritingSession

_CONFIGMAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
KILL_SWITCH_PATH: Final = f"{_CONFIGMAPS}/{STOP}"
LOOK_SECONDS: Final = 2.0
_READ_SECONDS: Final = 5.0


class KillSwitch:
    """`absent_ns`: when it was last known not to be there, by a clock that nobody can set.

    A machine may be halted together with its clocks: where the API server's says that more time has
    passed, that counts.
    """

    def __init__(
        self,
        writer: Writer,
        now_ns: Callable[[], int],
        server_ns: Callable[[], int] | None = None,
    ) -> None:
        """`server_ns`: the API server's clock, None where another part looks at it."""
        self.absent_ns = 0
        self._absent_by_server_ns = 0
        self._server_ns = server_ns or now_ns
        self.present = False
        self.error = ""
        self._writer = writer
        self._now_ns = now_ns

    def surely_absent_ns(self) -> int:
        """`absent_ns`, or earlier by what the server's clock has gone on more since then."""
        more_ns = self._server_ns() - self._absent_by_server_ns - (self._now_ns() - self.absent_ns)
        return self.absent_ns - max(0, more_ns)

    async def look(self) -> None:
        """Look once."""
        asked_ns, server_ns = self._now_ns(), self._server_ns()
        request = Request("GET", KILL_SWITCH_PATH, "", {})
        answer = await self._writer.send(request, "ConfigMap", timeout_s=_READ_SECONDS, retry=False)
        if answer.code == NOT_FOUND:
            self.absent_ns, self.present, self.error = asked_ns, False, ""
            self._absent_by_server_ns = server_ns
        elif answer.ok:
            self.present = True
        else:
            self.error = answer.message

    async def run(self) -> None:
        """Look every two seconds until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)


async def change_kill_switch(target: Target, environ: Mapping[str, str], *, make: bool) -> Answer:
    """One request, and its answer."""
    writer = Writer(WritingSession(target, environ), "kill-switch", time.time_ns)
    if make:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STOP}}
        request = Request("POST", _CONFIGMAPS, "application/json", body)
    else:
        request = Request("DELETE", KILL_SWITCH_PATH, "application/json", {})
    try:
        return await writer.send(request, "ConfigMap")
    finally:
        await writer.close()
