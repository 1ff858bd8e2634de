"""The only code that can send anything but GET to a cluster.

A writer belongs to one server and one controller, whose name is in the User-Agent and the field
manager of all that it sends. Redirects are never followed (`transport.py`). As under client-go, an
answer 429 or 5xx with a Retry-After is waited for and sent again, ten times and for a minute at
most; a broken connection is not tried again, since the outcome of the request is unknown. A 404
counts as absence only where it is a Status of reason NotFound; anything else with that code, a
proxy's page, is an error of the way. A 2xx counts only where it is the object that was asked for,
or a Status of it: a login page, a captive portal or a proxy may say 200 to anything, with a page of
its own or with another object. Such an answer counts as none, and the object is read before
anything follows from it.

`tests/test_layers.py` names the modules that may import this one.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import unquote

import aiohttp
import msgspec

from kubectl_nodelife import __version__
from kubectl_nodelife.build_info import COMMIT
from kubectl_nodelife.engine.calls import Answer, Read, Request, Write, request_of_call
from kubectl_nodelife.engine.calls.call import NO_ANSWER, Body, as_dry_run
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.kube.codec import decode_json
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Status, StatusDetails, with_causes
from kubectl_nodelife.live.clock import ServerClock, steady_ns
from kubectl_nodelife.live.transport import read_body

MAX_RETRIES: Final = 10
MOST_WAIT_S: Final = 60.0
REQUEST_SECONDS: Final = 30.0
LONG_NAMES: Final[Mapping[str, str]] = {
    "node-lifecycle": "node-lifecycle-controller",
    "taint-eviction": "taint-eviction-controller",
    "pod-gc": "pod-garbage-collector-controller",
    "daemonset": "daemonset-controller",
}
"""Controller -> its name in kube-controller-manager."""

_MOST_BYTES: Final = 64 << 20
_MANAGED: Final = frozenset({"POST", "PUT", "PATCH"})

_STATUS: Final = "Status"


class Withheld(Exception):
    """It may not be sent any more, and was not."""


class WritingSession(Session):
    """A session that can send every verb."""

    async def send(
        self,
        method: str,
        url: str,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        may_send: Callable[[], bool],
    ) -> tuple[aiohttp.ClientResponse, int]:
        """Send one request below the server's URL; the answer, and the credentials' number.

        Raises Withheld where it may not be sent by the time that there are credentials: a plugin
        may take a minute, in which another writer may have taken over.
        """
        transport = await self._ready()
        if not may_send():
            raise Withheld
        serial = self.serial
        all_headers = self._headers()
        all_headers.update(headers)
        url = self.target.server + url
        answer = await transport.request(
            method, url, headers=all_headers, timeout=timeout, data=content
        )
        return answer, serial


class ReadJudge(Protocol):
    """Compares what is read from the API server's own store with what was known before."""

    def known(self, kind: str, key: tuple[str, str]) -> KubeObject | None:
        """What is known of it before the request is sent."""

    def judge(self, read: KubeObject, held: KubeObject | None) -> None:
        """It was read."""


class Writer:
    """Sends calls in one controller's name. `now_ns` is the clock of decisions."""

    def __init__(
        self,
        session: WritingSession,
        controller: str,
        now_ns: Callable[[], int],
        clock: ServerClock | None = None,
        *,
        dry_run: bool = False,
        request_s: float = REQUEST_SECONDS,
    ) -> None:
        """`dry_run`: writes are sent as server-side dry runs, which store nothing.

        `request_s`: so long a request may take where nothing else is asked for.
        """
        self.session = session
        self.clock = clock or ServerClock()
        self._now_ns = now_ns
        self._dry_run = dry_run
        self._request_s = request_s
        self.judge: ReadJudge | None = None
        self._agent = user_agent(controller)
        self._manager = f"kubectl-nodelife-{controller}"

    async def call(
        self,
        call: Read | Write,
        *,
        timeout_s: float | None = None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Send one call and wait for its answer. Never raises for what a server or network does.

        `may_send` is asked once there are credentials, and again before what the server wants to
        have later is sent again. Where it is False before anything was sent that the server has
        taken up, the answer's code is NOT_SENT.
        """
        request, judge = request_of_call(call), self.judge
        key = getattr(call, "key", ("", ""))  # a list has none
        held = judge.known(call.kind, key) if judge is not None else None
        answer = await self.send(request, call.kind, timeout_s=timeout_s, may_send=may_send)
        if judge is not None and answer.obj is not None and "resourceVersion=" not in request.path:
            judge.judge(answer.obj, held)
        return answer

    async def send(
        self,
        request: Request,
        kind: str,
        *,
        timeout_s: float | None = None,
        retry: bool = True,
        may_send: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Send one request about an object of that kind, or for a list of `PodList` or the like.

        "": any JSON object will do as its answer.
        """
        if self._dry_run and request.method != "GET":
            request = as_dry_run(request)
        gives_up = time.monotonic() + MOST_WAIT_S
        withheld = "writing was not allowed any more once there were credentials"
        answer = Answer(NOT_SENT, message=withheld, now_ns=self._now_ns())
        for attempt in range(MAX_RETRIES + 1):
            limit_s = timeout_s or self._request_s
            try:
                answer, retry_after_s = await self._send_once(request, kind, limit_s, may_send)
            except Withheld:
                return answer  # of the try before it, which may have written
            resend = answer.code == 429 or answer.code >= 500
            last = attempt == MAX_RETRIES or time.monotonic() + retry_after_s > gives_up
            if not resend or not retry_after_s or last or not retry:
                return answer
            await asyncio.sleep(retry_after_s)
            if not may_send():
                return answer
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the connections."""
        await self.session.close()

    async def _send_once(
        self, request: Request, kind: str, timeout_s: float, may_send: Callable[[], bool]
    ) -> tuple[Answer, float]:
        path, content = request.path, None
        headers = {"User-Agent": self._agent}
        if request.method != "GET":
            content = request.content()
            headers["Content-Type"] = request.content_type
        if request.method in _MANAGED:
            path += f"{'&' if '?' in path else '?'}fieldManager={self._manager}"
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        renewed = False
        while True:
            sent_ns = steady_ns()
            try:
                response, serial = await self.session.send(
                    request.method, path, content, headers, timeout, may_send
                )
                async with response:
                    body = await read_body(response, _MOST_BYTES)
            except (aiohttp.ClientError, TimeoutError, OSError, NodelifeError) as error:
                text = "no answer in time" if isinstance(error, TimeoutError) else str(error)
                return Answer(0, message=text, now_ns=self._now_ns()), 0.0
            self.clock.observe(response.headers.get("Date"), sent_ns, steady_ns())
            if response.status == 401 and not renewed and self.session.renew(serial):
                renewed = True
                continue
            seconds = response.headers.get("Retry-After", "")
            wait_s = float(seconds) if seconds.isdecimal() else 0.0
            return self._answer(request, response.status, body, kind), wait_s

    def _answer(self, request: Request, code: int, body: bytes, kind: str) -> Answer:
        now_ns = self._now_ns()
        if 200 <= code < 300:
            return _success(request, code, body, kind, now_ns)
        try:
            status = msgspec.json.decode(body, type=Status)
        except msgspec.MsgspecError:
            status = Status()
        details = status.details or StatusDetails()
        causes = tuple(cause.reason or "" for cause in details.causes or ())
        message = (status.message or f"HTTP {code}")[:500]
        message = with_causes(code, message, details.words())
        reason = status.reason or ("Unknown" if status.message else "")
        if code == 404 and (status.kind != "Status" or status.reason != "NotFound"):
            return Answer(502, message=f"a 404 that is not the API server's: {message}")
        return Answer(code, None, None, reason, message, causes, now_ns)


def user_agent(controller: str) -> str:
    """In the form of client-go's `DefaultKubernetesUserAgent`, the controller's name last."""
    system = platform.system().lower()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = LONG_NAMES.get(controller, controller)
    commit = COMMIT[:7] or __version__  # as much of it as client-go gives
    return f"kubectl-nodelife/{__version__} ({system}/{machine}) nodelife/{commit}/{name}"


def _success(request: Request, code: int, body: bytes, kind: str, now_ns: int) -> Answer:
    """The object of an answer; other documents (a Status, an Eviction) are kept raw only."""
    try:
        raw = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        raw = None
    if why := why_no_answer(request, kind, raw):
        message = f"a {code} that is not the API server's: {why}"
        return Answer(NO_ANSWER, message=message, now_ns=now_ns)
    obj = None
    if kind and raw["kind"] == kind:
        try:
            obj = decode_json(kind_named(kind).type, body)
        except (InputError, KeyError):
            obj = None
    return Answer(code, obj, raw, now_ns=now_ns)


def why_no_answer(request: Request, kind: str, raw: Any) -> str:
    """Why the document is no answer to the request, "" where it is one.

    `kind`: of the object that the request is about, such as `Pod` or, of a list, `PodList`; ""
    where any document will do. `raw`: the decoded body of the answer, None where it is no JSON.
    """
    if not isinstance(raw, dict):
        return "it is no JSON object"
    if not kind:
        return ""
    namespace, name, subresource = _asked(request)
    sent = request.body
    if subresource == "eviction" and raw.get("kind") in (_STATUS, "Eviction"):
        return "" if raw.get("status", "Success") == "Success" else "its Status is no Success"
    if request.method == "DELETE" and raw.get("kind") == _STATUS:
        details = _part(raw, "details")
        uid = _part(sent, "preconditions").get("uid")
        same = details.get("name") == name and uid in (None, details.get("uid", uid))
        return "" if raw.get("status") == "Success" and same else "its Status is of something else"
    if raw.get("kind") != kind:
        return f"it is no {kind}"
    wanted = dict(_wanted(request.method, namespace, name, sent))
    meta = _part(raw, "metadata")
    if request.method == "POST" and wanted and not meta.get("uid"):
        return "it has no uid: it is what was sent, and not what was stored"
    other = [key for key, value in wanted.items() if meta.get(key) != value]
    return f"it is a {kind} of another {other[0]}" if other else ""


def _wanted(method: str, namespace: str, name: str, sent: Body) -> Iterator[tuple[str, str]]:
    """The metadata that the answer must have."""
    meta = _part(sent, "preconditions" if method == "DELETE" else "metadata")
    name = name or str(meta.get("name", "") if method == "POST" else "")
    for key, value in (("namespace", namespace), ("name", name), ("uid", meta.get("uid"))):
        if value and (key != "namespace" or name):
            yield key, str(value)


def _asked(request: Request) -> tuple[str, str, str]:
    """(namespace, name, subresource) of the request's path, "" for what it does not say."""
    parts = [unquote(part) for part in request.path.partition("?")[0].strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    _, name, subresource = (*parts, "", "", "")[:3]
    return namespace, name, subresource


def _part(body: Any, key: str) -> Body:
    """A member that is an object, {} where there is none."""
    part = body.get(key) if isinstance(body, dict) else None
    return part if isinstance(part, dict) else {}
