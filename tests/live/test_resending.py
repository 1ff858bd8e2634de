"""What the server wants to have later is sent again only while writing is allowed."""

import asyncio
from typing import Any, cast

from kubectl_nodelife.engine.calls import Answer, Delete, Request
from kubectl_nodelife.live.writer import Writer, WritingSession


class Busy(Writer):
    """The server says: later."""

    def __init__(self) -> None:
        super().__init__(cast(WritingSession, None), "test", lambda: 0)
        self.sent = 0

    async def _send_once(
        self, request: Request, kind: str, timeout_s: float
    ) -> tuple[Answer, float]:
        self.sent += 1
        return Answer(429), 0.01


def sent(**how: Any) -> int:
    writer = Busy()
    answer = asyncio.run(writer.call(Delete("Pod", ("d", "p")), **how))
    assert answer.code == 429
    return writer.sent


def test_ten_times_and_not_once_the_gate_has_closed() -> None:
    assert sent() == 11
    open_for = iter([True, True, False])
    assert sent(may_resend=lambda: next(open_for)) == 3
