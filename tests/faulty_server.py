"""The sandbox's server with errors that a test provokes: each is a plain field of its `faults`."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import msgspec
from aiohttp import web

from kubectl_nodelife.kube.kinds import Kind, group_of
from kubectl_nodelife.sandbox.reading import WatchPlan
from kubectl_nodelife.sandbox.server import USER, ApiServer, ResourceRequest, abort
from kubectl_nodelife.sandbox.status import StatusError, expired, invalid

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Failure(msgspec.Struct):
    """The next `times` requests of these verbs and resources (empty: all) get this answer."""

    code: int
    times: int = 1
    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    retry_after_s: int = 0
    reason: str = ""
    message: str = "injected"

    def applies(self, verb: str, resource: Kind) -> bool:
        """True if the request is one of those."""
        if self.times <= 0 or (self.verbs and verb not in self.verbs):
            return False
        return not self.resources or resource.plural in self.resources


class Faults(msgspec.Struct):
    """All faults of a server. Seconds, and plurals of resources such as `pods`.

    `latency_s`: before each answer; `list_latency_s`: before the answer to a list, by plural.
    `hang_watches`: watches of these stay open without events. `cut_watches`: so many watches are
    cut off in the middle of their next event; `torn`: with half a line sent. `forbid`: plurals
    that RBAC refuses. `expire_watches`: the next watch of each of these plurals gets a 410.
    `watch_list` False: a server without that feature gate. `fail_writes`: every write is refused
    and recorded in `writes_seen`. `clock_skew_s`: added to the `Date` of answers. `refuse_tokens`:
    every token is refused.
    """

    latency_s: float = 0.0
    list_latency_s: dict[str, float] = {}
    failures: list[Failure] = []
    hang_watches: set[str] = set()
    cut_watches: int = 0
    torn: bool = False
    forbid: set[str] = set()
    expire_watches: set[str] = set()
    watch_list: bool = True
    fail_writes: bool = False
    writes_seen: list[str] = []
    clock_skew_s: float = 0.0
    refuse_tokens: bool = False

    def check(self, asked: ResourceRequest, path: str) -> None:
        """Raises StatusError if this request is to fail."""
        verb, resource = asked.verb, asked.target.resource
        if self.fail_writes and verb in WRITES:
            self.writes_seen.append(f"{verb} {path}")
            raise StatusError(500, "InternalError", f"writes are not allowed in this run: {verb}")
        for failure in self.failures:
            if failure.applies(verb, resource):
                failure.times -= 1
                raise StatusError(
                    failure.code,
                    failure.reason,
                    failure.message,
                    retry_after_s=failure.retry_after_s,
                )
        if resource.plural in self.forbid:
            raise forbidden(verb, resource, asked.target.namespace)
        if verb == "watch" and resource.plural in self.expire_watches:
            self.expire_watches.discard(resource.plural)
            raise expired()


def forbidden(verb: str, resource: Kind, namespace: str) -> StatusError:
    """403 by RBAC."""
    group = group_of(resource.api_version)
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    message = (
        f'{resource.resource} is forbidden: User "{USER}" cannot {verb} resource'
        f' "{resource.plural}" in API group "{group}" {where}'
    )
    details = {"group": group, "kind": resource.plural}
    return StatusError(403, "Forbidden", message, details=details)


class FaultyServer(ApiServer):
    """`requests`: how many came, by verb."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.faults = Faults()
        self.requests: Counter[str] = Counter()
        self.app.on_response_prepare.append(self._set_date)

    async def _set_date(self, request: web.Request, response: web.StreamResponse) -> None:
        if self.faults.clock_skew_s:
            at_s = time.time() + self.faults.clock_skew_s
            response.headers["Date"] = formatdate(at_s, usegmt=True)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.faults.latency_s and not self.down:
            await asyncio.sleep(self.faults.latency_s)
        return await super()._serve(request)

    def _authenticate(self, request: web.Request) -> None:
        super()._authenticate(request)
        if self.faults.refuse_tokens and request.path not in ("/healthz", "/livez", "/readyz"):
            raise StatusError(401, "Unauthorized", "Unauthorized")

    def _review(self, body: Any) -> dict[str, Any]:
        answer = super()._review(body)
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        if "allowed" in answer["status"] and asked.get("resource") in self.faults.forbid:
            answer["status"] = {"allowed": False, "reason": "refused in this run"}
        return answer

    async def _serve_resource(
        self, request: web.Request, asked: ResourceRequest
    ) -> web.StreamResponse:
        self.requests[asked.verb] += 1
        self.faults.check(asked, request.path)
        if asked.verb == "list":
            delay_s = self.faults.list_latency_s.get(asked.target.resource.plural, 0)
            await asyncio.sleep(delay_s)
        no_watch_list = asked.verb == "watch" and not self.faults.watch_list
        if no_watch_list and "sendInitialEvents" in request.query:
            why = (
                "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature"
                " gate is enabled"
            )
            raise invalid(asked.target.resource, "", "sendInitialEvents", why)
        return await super()._serve_resource(request, asked)

    async def _lines(self, request: web.Request, plan: WatchPlan) -> AsyncIterator[bytes]:
        faults = self.faults
        async for lines in super()._lines(request, plan):
            while plan.resource.plural in faults.hang_watches:
                await asyncio.sleep(0.02)
            if faults.cut_watches > 0:
                faults.cut_watches -= 1
                if faults.torn:
                    yield lines[: len(lines) // 2]
                abort(request)
                return
            yield lines
