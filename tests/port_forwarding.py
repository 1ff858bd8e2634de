"""The far end of a port-forward as a kubelet plays it: a WebSocket whose bytes go to a port of this
machine, which stands for the pod's loopback.

Follows k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go.
"""

import asyncio
from collections.abc import Mapping

from aiohttp import WSMsgType, web

PROTOCOLS = ("v4.channel.k8s.io",)
DATA, ERROR = b"\x00", b"\x01"
FRAME = 32 * 1024


async def carry(request: web.Request, asked: int, port: int | None) -> web.WebSocketResponse:
    """Carry bytes to `port` of loopback; None: nothing listens in the pod."""
    opened = web.WebSocketResponse(protocols=PROTOCOLS)
    await opened.prepare(request)
    for channel in (DATA, ERROR):
        await opened.send_bytes(channel + asked.to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port or 1)
    except OSError as error:
        said = f"error forwarding port {asked} to pod, uid : {error.strerror or error}"
        await opened.send_bytes(ERROR + said.encode())
        await opened.close()
        return opened
    there = asyncio.create_task(_there(opened, writer))
    try:
        while content := await reader.read(FRAME):
            await opened.send_bytes(DATA + content)
    except ConnectionError:
        pass  # the asker went away
    finally:
        there.cancel()
        writer.close()
        await opened.close()
    return opened


async def _there(opened: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for message in opened:
        if message.type is WSMsgType.BINARY and message.data[:1] == DATA:
            writer.write(message.data[1:])
            await writer.drain()
    writer.close()


def kubelet(ports: Mapping[str, int], seen: list[str]) -> web.Application:
    """The application of a kubelet. `ports`: the port of this machine for each pod's name."""

    async def port_forward(request: web.Request) -> web.StreamResponse:
        seen.append(f"{request.headers.get('Upgrade', '')} {request.path_qs}")
        asked = int(request.query["port"])
        return await carry(request, asked, ports.get(request.match_info["pod"]))

    app = web.Application()
    app.router.add_get("/portForward/{namespace}/{pod}", port_forward)
    return app
