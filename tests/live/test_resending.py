"""What has to wait right before it is sent, for the server or for credentials, is sent only while
writing is allowed.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kubectl_nodelife.engine.calls import Answer, Delete, Request
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.target import find_target
from kubectl_nodelife.live.writer import Withheld, Writer, WritingSession
from tests.live.test_auth import plugin, wanting
from tests.raw_server import raw_server


class Busy(Writer):
    """The server says: later."""

    def __init__(self) -> None:
        super().__init__(cast(WritingSession, None), "test", lambda: 0)
        self.sent = 0

    async def _send_once(
        self, request: Request, kind: str, timeout_s: float, may_send: Callable[[], bool]
    ) -> tuple[Answer, float]:
        self.sent += 1
        return Answer(429), 0.01


class Failing(Writer):
    """To a server that fails, and to which nothing may be sent after that."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._answers = iter([(Answer(503), 0.01)])

    async def _send_once(self, *_: Any) -> tuple[Answer, float]:
        for answer in self._answers:
            return answer
        raise Withheld


def sent(**how: Any) -> int:
    writer = Busy()
    answer = asyncio.run(writer.call(Delete("Pod", ("d", "p")), **how))
    assert answer.code == 429
    return writer.sent


def test_ten_times_and_not_once_the_gate_has_closed() -> None:
    assert sent() == 11
    open_for = iter([True, True, False])
    assert sent(may_send=lambda: next(open_for)) == 3


async def test_a_try_that_may_have_written_is_what_the_answer_tells() -> None:
    """Though it was not allowed to be made again once there were new credentials."""
    writer = Failing(cast(WritingSession, None), "test", lambda: 0)
    answer = await writer.call(Delete("Pod", ("d", "p")))
    assert answer.code == 503 and answer.is_ambiguous


@pytest.mark.parametrize("refused", [False, True], ids=["the-first-ones", "others-after-a-401"])
async def test_what_waited_for_credentials_is_not_sent_once_the_gate_has_closed(
    refused: bool, tmp_path: Path
) -> None:
    """A plugin may take a minute: by then another may hold the Lease."""
    token, asked = tmp_path / "token", list[bool]()
    token.write_text("old")

    def may_send() -> bool:
        asked.append(refused and len(asked) == 0)
        return asked[-1]

    async with raw_server(tls=True) as server:
        server.sickness = wanting("new")
        path = server.kubeconfig(tmp_path, {"exec": plugin(str(token))})
        session = WritingSession(find_target(Connection(kubeconfig=path), {}), {})
        writer = Writer(session, "test", lambda: 0)
        answer = await writer.call(Delete("Pod", ("d", "p")), may_send=may_send)
        await writer.close()
    assert answer.code == NOT_SENT and not answer.is_ambiguous
    assert len(server.writes) == refused and len(asked) == 1 + refused
