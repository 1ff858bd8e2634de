"""The conversation of a port-forward, message by message, and that there is no other WebSocket."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiohttp
import pytest

from kubectl_nodelife.errors import Failed, Unreachable
from kubectl_nodelife.live.auth import PodPort, port_forward_url
from kubectl_nodelife.live.client import PortForward

PACKAGE = Path(__file__).parents[2] / "kubectl_nodelife"
TO = PodPort("ns", "pod", 9877)
PORT = (9877).to_bytes(2, "little")
BINARY, TEXT, CLOSED = (
    aiohttp.WSMsgType.BINARY,
    aiohttp.WSMsgType.TEXT,
    aiohttp.WSMsgType.CLOSED,
)


class Message(NamedTuple):
    type: aiohttp.WSMsgType
    data: Any = b""


class Opened:
    """A WebSocket that says these messages, then that it is closed."""

    def __init__(self, *messages: Message) -> None:
        self.messages = [*messages, Message(CLOSED)]
        self.sent: list[bytes] = []

    async def receive(self) -> Message:
        return self.messages.pop(0)

    async def send_bytes(self, content: bytes) -> None:
        if not self.messages:
            raise ConnectionResetError("Cannot write to closing transport")
        self.sent.append(content)


def binary(channel: int, content: bytes) -> Message:
    return Message(BINARY, bytes((channel,)) + content)


def received(*messages: Message) -> bytes:
    """All bytes up to the end."""

    async def read() -> bytes:
        stream, found = PortForward(TO, cast(Any, Opened(*messages))), b""
        while content := await stream.receive():
            found += content
        return found

    return asyncio.run(read())


@pytest.mark.parametrize(
    "messages, expected",
    [
        pytest.param([], b"", id="closed-at-once"),
        pytest.param([binary(0, PORT), binary(1, PORT)], b"", id="ports-alone"),
        pytest.param([binary(0, PORT), binary(0, b"ab"), binary(0, b"c")], b"abc", id="data"),
        pytest.param([binary(0, PORT + b"ab"), binary(1, PORT)], b"ab", id="port-and-data"),
        pytest.param([binary(0, PORT), binary(0, b""), binary(0, b"c")], b"c", id="empty-data"),
        pytest.param([binary(0, PORT), Message(TEXT, "x"), binary(0, b"c")], b"", id="text-ends"),
    ],
)
def test_what_comes(messages: list[Message], expected: bytes) -> None:
    assert received(*messages) == expected


@pytest.mark.parametrize(
    "messages, said",
    [
        pytest.param([binary(1, PORT), binary(1, b"no\nway")], "pod ns/pod: no way", id="error"),
        pytest.param([binary(2, b"x")], "no port-forward", id="a-channel-that-is-none"),
        pytest.param([Message(BINARY, b"")], "no port-forward", id="a-message-without-channel"),
    ],
)
def test_what_goes_wrong(messages: list[Message], said: str) -> None:
    with pytest.raises(Failed, match=said):
        received(*messages)


def test_what_is_sent_has_the_channel_in_front() -> None:
    opened = Opened()
    stream = PortForward(TO, cast(Any, opened))
    asyncio.run(stream.send(b"ab"))
    assert opened.sent == [b"\x00ab"]
    opened.messages.clear()
    with pytest.raises(Unreachable, match="pod ns/pod: the connection is gone"):
        asyncio.run(stream.send(b"ab"))


def test_names_cannot_leave_their_place_in_the_path() -> None:
    url = port_forward_url(PodPort("a/../b", "../exec?x=", 1))
    assert url == "/api/v1/namespaces/a%2F..%2Fb/pods/..%2Fexec%3Fx%3D/portforward?ports=1"


def test_there_is_no_other_websocket_to_an_api_server() -> None:
    def users(word: str) -> set[str]:
        return {
            str(path.relative_to(PACKAGE))
            for path in PACKAGE.rglob("*.py")
            if word in path.read_text()
        }

    assert users("ws_connect(") == {"live/transport.py"}
    assert users(".websocket(") == {"live/auth.py"}
    assert users("session.port_forward(") == {"live/client.py"}
    assert users(".port_forward(") <= {"live/client.py"}
