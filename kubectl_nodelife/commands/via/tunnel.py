"""Makes plain sockets of streams to a pod, so that the daemon's client knows of nothing else.

A thread runs the event loop of the connections; each `connect` is a WebSocket of its own and one
end of a pair of sockets, whose other end the loop carries to the pod and back. What goes wrong on
the way before anything came back is said to the client as a daemon says its errors.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kubectl_nodelife.daemon.server import error_document
from kubectl_nodelife.errors import Failed, NodelifeError, Unreachable
from kubectl_nodelife.live.port_forward import PortForward

T = TypeVar("T")

_CHUNK: Final = 1 << 16
_END_SECONDS: Final = 3.0


class Tunnel:
    """See the module. `open_stream`, and `close` at the end of the process, run on the loop."""

    def __init__(
        self,
        open_stream: Callable[[], Awaitable[PortForward]],
        close: Callable[[], Awaitable[None]],
        name: str,
    ) -> None:
        self._open = open_stream
        self._close = close
        self._name = name
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
        self._running: set[asyncio.Task[None]] = set()
        atexit.register(self._end)

    def __str__(self) -> str:
        return self._name

    def connect(self, seconds: float) -> socket.socket:
        """A connection to the daemon. Raises NodelifeError; Unreachable after so many seconds."""
        stream = self.run(self._open(), seconds)
        ours, theirs = socket.socketpair()
        ours.settimeout(seconds)
        theirs.setblocking(False)
        self._loop.call_soon_threadsafe(self._carry, theirs, stream)
        return ours

    def run(self, work: Awaitable[T], seconds: float) -> T:
        """The result of something that is done on the loop. Raises as it does, and Unreachable."""

        async def done() -> T:
            async with asyncio.timeout(seconds):
                return await work

        try:
            return _result(asyncio.run_coroutine_threadsafe(done(), self._loop))
        except TimeoutError:
            raise Unreachable("no answer in time", on=self._name) from None

    def _end(self) -> None:
        async def close() -> None:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            await self._close()

        with contextlib.suppress(NodelifeError):
            self.run(close(), _END_SECONDS)

    def _carry(self, end: socket.socket, stream: PortForward) -> None:
        task = self._loop.create_task(_carry(end, stream))
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def _result(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _carry(end: socket.socket, stream: PortForward) -> None:
    """Until the client is gone. A half-close of its side would end the answer: none is passed on.

    Its side is read to the end also after an answer, or a client that has not yet written its
    question would meet a broken pipe and never see what went wrong.
    """
    loop = asyncio.get_running_loop()
    back = asyncio.create_task(_back(end, stream))
    there = asyncio.create_task(_there(end, stream))
    try:
        await asyncio.wait([back, there], return_when=asyncio.FIRST_COMPLETED)
        if there.done() and there.exception() is None:
            return
        await asyncio.wait([back], timeout=_END_SECONDS)
        there.cancel()
        await asyncio.gather(there, return_exceptions=True)
        end.shutdown(socket.SHUT_WR)
        while await loop.sock_recv(end, _CHUNK):
            pass
    except OSError:
        pass  # the client is gone
    finally:
        for task in (back, there):
            task.cancel()
        await asyncio.gather(back, there, return_exceptions=True)
        end.close()
        await stream.close()


async def _there(end: socket.socket, stream: PortForward) -> None:
    loop = asyncio.get_running_loop()
    while content := await loop.sock_recv(end, _CHUNK):
        await stream.send(content)


async def _back(end: socket.socket, stream: PortForward) -> None:
    loop = asyncio.get_running_loop()
    began = False
    try:
        while content := await stream.receive():
            began = True
            await loop.sock_sendall(end, content)
        error: NodelifeError | None = None if began else Failed("no answer came", on="daemon")
    except NodelifeError as failed:
        failed.remedy = failed.remedy or "its daemon must run with --serve-answers"
        error = failed
    if error is not None and not began:
        await loop.sock_sendall(end, _as_answer(error))


def _as_answer(error: NodelifeError) -> bytes:
    body = json.dumps({"error": error_document(error)}).encode()
    return b"HTTP/1.0 502 Bad Gateway\r\nContent-Type: application/json\r\n\r\n" + body
