"""A byte stream to a port of a pod, through the API server: `pods/portforward` by WebSocket.

Follows k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go. The first byte of each message
is its channel: 0 carries the bytes, 1 a text that says what went wrong. The first message of each
channel holds the port, two bytes. Left out on purpose: SPDY, its tunnel in a WebSocket
(v2.portforward.k8s.io), several ports in one connection; the protocol has no half-close.
"""

from __future__ import annotations

from typing import Final

import aiohttp

from kubectl_nodelife.errors import Failed, Unreachable
from kubectl_nodelife.live.client import Client, describe
from kubectl_nodelife.live.requests import PodPort

_DATA: Final = 0
_ERROR: Final = 1
_PORT_BYTES: Final = 2
_MOST_ERROR: Final = 500
_BINARY: Final = aiohttp.WSMsgType.BINARY


class PortForward:
    """See the module. One task may send, another receive."""

    def __init__(self, to: PodPort, opened: aiohttp.ClientWebSocketResponse) -> None:
        self._to = to
        self._opened = opened
        self._begun: set[int] = set()

    async def send(self, content: bytes) -> None:
        """Send bytes to the port. Raises Unreachable."""
        try:
            await self._opened.send_bytes(bytes((_DATA,)) + content)
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the connection is gone: {describe(error)}", on=str(self._to)) from (
                None
            )

    async def receive(self) -> bytes:
        """The next bytes; b"" where the other side has closed.

        Raises Failed with the kubelet's words where it cannot reach the port.
        """
        while True:
            message = await self._opened.receive()
            if message.type is not _BINARY:
                return b""
            channel, content = message.data[:1], message.data[1:]
            if channel not in (bytes((_DATA,)), bytes((_ERROR,))):
                raise Failed("what it sends is no port-forward", on=str(self._to))
            if channel[0] not in self._begun:
                self._begun.add(channel[0])
                content = content[_PORT_BYTES:]
            if not content:
                continue
            if channel[0] == _ERROR:
                text = " ".join(content[:_MOST_ERROR].decode(errors="replace").split())
                raise Failed(text, on=str(self._to))
            return bytes(content)

    async def close(self) -> None:
        """Close the connection."""
        await self._opened.close()


async def forward(client: Client, to: PodPort) -> PortForward:
    """Open a stream to the port. Raises ApiError, Unreachable, Failed."""
    return PortForward(to, await client.port_forward(to))
