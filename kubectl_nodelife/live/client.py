"""Sends one request and interprets what comes back, errors of the API included.

Reads only. As in client-go, a request answered by 429 or 5xx with a Retry-After is sent again, with
the pauses of `transport.Backoff` and for a minute at most. Everything else that fails is raised, in
our own words; the HTTP library's exceptions end here. No answer is longer than the target allows.

`PortForward` is a byte stream to a port of a pod, through the API server: `pods/portforward` by
WebSocket. It follows k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go. The first byte of
each message is its channel: 0 carries the bytes, 1 a text that says what went wrong. The first
message of each channel holds the port, two bytes. Left out on purpose: SPDY, its tunnel in a
WebSocket (v2.portforward.k8s.io), several ports in one connection; the protocol has no half-close.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import msgspec

from kubectl_nodelife.errors import Failed, Unreachable
from kubectl_nodelife.live.auth import PodPort, Session
from kubectl_nodelife.live.clock import ServerClock, steady_ns
from kubectl_nodelife.live.transport import Backoff, read_body

MAX_RETRIES = 10
RETRIES_SECONDS = 60.0
CONNECT_SECONDS = 15.0
READ_SECONDS = 120.0  # a list may take the server a minute before its first byte
WHOLE_SECONDS = 900.0  # for one answer, however slowly it drips
CLOSE_SECONDS = 2.0
_ERROR_BODY = 1 << 20
_ERROR_SECONDS = 30.0
_ERROR_SHOWN = 500
_CAUSE_SHOWN = 200
_MOST_CAUSES = 3
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_BY_ITS_DATES = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


class StatusCause(msgspec.Struct, frozen=True):
    """`metav1.StatusCause`."""

    reason: str | None = None
    message: str | None = None


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """`metav1.StatusDetails`."""

    retry_after_seconds: int | None = None
    causes: tuple[StatusCause, ...] | None = None

    def words(self) -> list[str]:
        """What each of the causes says."""
        return [cause.message or "" for cause in self.causes or ()]


class Status(msgspec.Struct, frozen=True):
    """`metav1.Status`: what the API says when something fails."""

    kind: str | None = None
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


class ApiError(Failed):
    """The API server answered, and the answer is no."""

    def __init__(
        self, code: int, message: str, *, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, on=f"API server ({code})")
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s

    @property
    def gone(self) -> bool:
        """The resource version asked for is too old: list anew."""
        return self.code == 410 or self.reason in ("Expired", "Gone")


def with_causes(code: int, message: str, causes: Sequence[str]) -> str:
    """The message of an error; a refusal (403) with its causes, which some have since v1.37. Those
    that it says itself, and more than a few, are left out. They are the server's words: bounded,
    and on one line.
    """
    if code != _FORBIDDEN:
        return message
    words = (" ".join(cause.split())[:_CAUSE_SHOWN] for cause in causes[:_MOST_CAUSES])
    more = [text for text in words if text and text not in message]
    return f"{message} ({'; '.join(more)})" if more else message


def api_error(code: int, body: bytes, retry_after_s: float | None = None) -> ApiError:
    """The error that an answer's status code and body say."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        text = " ".join(body[:200].decode(errors="replace").split())
        return ApiError(code, text or f"HTTP {code}", retry_after_s=retry_after_s)
    details = status.details or StatusDetails()
    if retry_after_s is None:
        retry_after_s = details.retry_after_seconds
    message = (status.message or f"HTTP {code}")[:_ERROR_SHOWN]
    return ApiError(
        status.code or code,
        with_causes(code, message, details.words()),
        reason=status.reason or "",
        retry_after_s=retry_after_s,
    )


class Client:
    """Reads from one API server. `clock` learns the server's time from every answer."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.clock = ServerClock()
        self.answers: Counter[str] = Counter()  # class of status -> how many
        timeout_ns = session.target.request_timeout_ns
        self._total_s = timeout_ns / 1e9 if timeout_ns else WHOLE_SECONDS

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.session.target.server

    async def read(self, url: str, *, retry: bool = True) -> bytes:
        """The whole body of an answer. `retry`: where the server says when to ask again; not for
        those who wait by themselves, and say so. Raises ApiError, Unreachable, Failed.
        """
        timeout = aiohttp.ClientTimeout(
            total=self._total_s, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
        )
        try:
            async with await self._ask(url, timeout, retry) as response:
                return await read_body(response, self.session.target.max_response_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None

    async def stream(self, url: str, silence_s: float) -> aiohttp.ClientResponse:
        """An answer whose body comes over time; silence for `silence_s` ends it with TimeoutError.

        The caller closes it. Raises ApiError, Unreachable, Failed.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_s
        )
        try:
            return await self._ask(url, timeout, retry=False)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from None

    async def port_forward(self, pod: PodPort) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket to a port of a pod; the caller closes it. `PortForward` uses it.

        Raises ApiError, Unreachable, Failed.
        """
        timeout = aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS)
        renewed = False
        while True:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await self.session.port_forward(pod, _raise_error, timeout)
            except ApiError as error:
                if error.code != _UNAUTHORIZED:
                    raise
                if renewed or not self.session.renew(self.session.serial):
                    raise self._refused(error) from None
                renewed = True
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._unreachable(error) from None

    async def close(self) -> None:
        """Close the connections."""
        await self.session.close()

    async def _ask(
        self, url: str, timeout: aiohttp.ClientTimeout, retry: bool
    ) -> aiohttp.ClientResponse:
        renewed = False
        backoff = Backoff()
        gives_up = time.monotonic() + RETRIES_SECONDS
        while True:
            sent_ns = steady_ns()
            response, credentials = await self.session.request(url, timeout)
            self.clock.observe(response.headers.get("Date"), sent_ns, steady_ns())
            self.answers[f"{response.status // 100}xx"] += 1
            if response.status == 200:
                self._check_content(response)
                return response
            error = await _read_error(response)
            if error.code == _UNAUTHORIZED and not renewed and self.session.renew(credentials):
                renewed = True
                continue
            retriable = error.retry_after_s is not None and (error.code == 429 or error.code >= 500)
            pause_s = backoff.next_s(error.retry_after_s)
            too_late = backoff.failures > MAX_RETRIES or time.monotonic() + pause_s > gives_up
            if not retry or not retriable or too_late:
                raise self._refused(error) if error.code == _UNAUTHORIZED else error
            await asyncio.sleep(pause_s)

    def _check_content(self, response: aiohttp.ClientResponse) -> None:
        """Raises Failed for a web page: what a login proxy answers with, and says 200."""
        if response.content_type == "text/html":
            response.close()
            raise Failed(
                "answers with a web page, not as a Kubernetes API",
                on=self.server,
                remedy="a login page or a proxy is in between: log in, or correct the kubeconfig",
            )

    def _refused(self, error: ApiError) -> ApiError:
        """What 401 means: which server does not take whose credentials, and what to do."""
        user = self.session.target.user_name
        whose = f"user {user}" if user else "this call"
        error.on = f"{self.server} ({error.code})"
        error.remedy = (
            f"the server does not take the credentials of {whose}: log in anew, or check "
            "--context, --user and --token"
        )
        return error

    def _unreachable(self, error: BaseException) -> Unreachable:
        cause = getattr(error, "certificate_error", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = "a proxy that intercepts TLS answers, or the kubeconfig has another cluster's"
            remedy = f"the server was reached, but {why} certificate-authority or server name"
            if cause.verify_code in _BY_ITS_DATES:
                remedy = "renew the server's certificate, or set this machine's clock"
            return Unreachable(
                f"its certificate is not trusted: {cause.verify_message or cause.reason}",
                on=self.server,
                remedy=remedy,
            )
        return Unreachable(
            f"the API server cannot be reached: {describe(error)}",
            on=self.server,
            remedy="check the network, the VPN and --context",
        )


async def _raise_error(response: aiohttp.ClientResponse) -> None:
    raise await _read_error(response)


async def _read_error(response: aiohttp.ClientResponse) -> ApiError:
    body = b""
    try:
        async with asyncio.timeout(_ERROR_SECONDS):
            while len(body) < _ERROR_BODY and (part := await response.content.readany()):
                body += part[:_ERROR_BODY]
    finally:
        response.close() if len(body) >= _ERROR_BODY else response.release()
    return api_error(response.status, body, _seconds(response.headers.get("Retry-After")))


def _seconds(header: str | None) -> float | None:
    """Retry-After as seconds; a date or nonsense counts as absent."""
    return float(header) if header and header.isdecimal() else None


def describe(error: BaseException) -> str:
    """A network error in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text: Any = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if text.startswith("Connect call failed"):  # asyncio's, with the address in it
        text = os.strerror(getattr(error, "errno", 0) or errno.ECONNREFUSED)
    return " ".join(str(text).split())


_DATA: Final = 0
_ERROR: Final = 1
_PORT_BYTES: Final = 2
_MOST_ERROR: Final = 500
_BINARY: Final = aiohttp.WSMsgType.BINARY


class PortForward:
    """A connection to a pod's port through the API server.

    One task may send, another receive.
    """

    def __init__(self, to: PodPort, opened: aiohttp.ClientWebSocketResponse) -> None:
        self._to = to
        self._opened = opened
        self._begun: set[int] = set()

    async def send(self, content: bytes) -> None:
        """Send bytes to the port. Raises Unreachable."""
        try:
            await self._opened.send_bytes(bytes((_DATA,)) + content)
        except (aiohttp.ClientError, OSError) as error:
            what = f"the connection is gone: {describe(error)}"
            raise Unreachable(what, on=str(self._to)) from None

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
