"""The HTTP server of the sandbox: requests in, JSON or a stream out. On loopback only.

`read_path` parses a URL's path and method, `review` answers the reviews of a client's own rights
and identity. `Faults` are the errors that can be provoked, request by request: each fault is a
plain field that a test or the sandbox's control path sets; nothing happens by chance. Counted
faults (`fail_next`, `cut_watches`) go away as they are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from aiohttp import web

from kubectl_nodelife.sandbox import discovery, writing
from kubectl_nodelife.sandbox.deleting import Deleter, read_options
from kubectl_nodelife.sandbox.discovery import BY_PATH, ServedResource
from kubectl_nodelife.sandbox.reading import Accept, Reader, WatchPlan, table
from kubectl_nodelife.sandbox.served import ServedApi
from kubectl_nodelife.sandbox.status import (
    StatusError,
    bad_request,
    expired,
    forbidden,
    no_such_path,
)

USER = "sandbox-admin"
_AGGREGATED = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_BODY_LIMIT = 8 << 20
_PATCHES = (writing.JSON_PATCH, writing.MERGE_PATCH, writing.STRATEGIC_PATCH)

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_POSTED = ("eviction", "binding")

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class ApiServer:
    """Answers requests from one `ServedApi`.

    `token`: what a client must send, "" for none. `wake` is called after each write, so that the
    cluster reacts. `now_ns` is the clock.
    """

    def __init__(
        self,
        api: ServedApi,
        *,
        git_version: str,
        token: str = "",
        wake: Callable[[], None] = lambda: None,
        now_ns: Callable[[], int] = time.time_ns,
        bookmark_s: float = 60.0,
    ) -> None:
        self.api = api
        self.faults = Faults()
        self.requests: dict[str, int] = {}
        self.writer = writing.RequestApplier(api)
        self.deleter = Deleter(api, self.writer)
        self.reader = Reader(api.served, bookmark_s)
        self._git_version = git_version
        self._token = token
        self._wake = wake
        self._now_ns = now_ns
        self._watching: dict[int, web.Request] = {}
        self.app = web.Application(client_max_size=_BODY_LIMIT)
        self.app.router.add_route("*", "/{path:.*}", self._serve)

    def go_down(self) -> None:
        """Break all connections and answer no request, until `faults.down` is False again."""
        self.faults.down = True
        for request in self._watching.values():
            _abort(request)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        faults = self.faults
        if faults.down:
            _abort(request)
        if faults.latency_s:
            await asyncio.sleep(faults.latency_s)
        try:
            return await self._answer(request)
        except StatusError as error:
            headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else {}
            return self._json(error.document(), error.code, headers)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._authenticate(request)
        static = self._static(request)
        if static is not None:
            return self._json(static, headers=_content_type(request, static))
        if request.path.startswith(("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/")):
            return self._json(review(await self._body(request), self.faults, USER), 201)
        asked = read_path(request.method, request.path, request.query)
        target = asked.target
        self.requests[asked.verb] = self.requests.get(asked.verb, 0) + 1
        self.faults.check(asked.verb, target.resource, target.namespace, USER, request.path)
        if asked.verb == "watch":
            return await self._watch(request, target)
        if asked.verb == "list":
            return await self._list(request, target)
        if asked.verb == "get":
            return self._get(request, target)
        return await self._write(request, asked)

    def _authenticate(self, request: web.Request) -> None:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token and (given != self._token or self.faults.refuse_tokens):
            raise StatusError(401, "Unauthorized", "Unauthorized")

    def _static(self, request: web.Request) -> Any:
        path = request.path.rstrip("/")
        if request.method != "GET":
            return None
        if path in ("/healthz", "/livez", "/readyz"):
            return "ok"
        if path == "/version":
            return discovery.version(self._git_version)
        if path in ("/api", "/apis"):
            core = path == "/api"
            if _AGGREGATED in request.headers.get("Accept", ""):
                return discovery.aggregated(core=core)
            return discovery.api_versions() if core else discovery.api_groups()
        if path == "/openapi/v3":
            return discovery.openapi_index()
        for prefix in ("/openapi/v3/api/", "/openapi/v3/apis/"):
            if path.startswith(prefix):
                return discovery.openapi(path.removeprefix(prefix))
        for prefix in ("/api/", "/apis/"):
            if path.startswith(prefix):
                return discovery.resource_list(path.removeprefix(prefix))
        return None

    async def _list(self, request: web.Request, target: writing.WriteTarget) -> web.Response:
        delay = self.faults.list_latency_s.get(target.resource.plural, 0)
        if delay:
            await asyncio.sleep(delay)
        body = self.reader.list_body(
            target.resource, target.namespace, request.query, _accept(request), self._now_ns()
        )
        return self._raw(body)

    def _get(self, request: web.Request, target: writing.WriteTarget) -> web.Response:
        entry = self.writer.find(target)
        accept = _accept(request)
        if not accept.as_table:
            return self._raw(entry.raw)
        meta = {"resourceVersion": str(entry.version)}
        return self._json(table(target.resource, [entry], meta, self._now_ns(), accept.include))

    async def _watch(self, request: web.Request, target: writing.WriteTarget) -> web.StreamResponse:
        plan = self.reader.plan_watch(
            target.resource,
            target.namespace,
            request.query,
            watch_list=self.faults.watch_list,
        )
        response = web.StreamResponse(headers=self._headers({"Content-Type": "application/json"}))
        response.enable_chunked_encoding()
        await response.prepare(request)
        self._watching[id(request)] = request
        try:
            with contextlib.suppress(ConnectionError):  # the client went away
                await self._stream(request, response, plan)
        finally:
            del self._watching[id(request)]
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, plan: WatchPlan
    ) -> None:
        faults = self.faults
        async for lines in self.reader.watch(plan, _accept(request), self._now_ns):
            while plan.resource.plural in faults.hang_watches:
                await asyncio.sleep(0.02)
            if faults.cut_watches > 0:
                faults.cut_watches -= 1
                if faults.torn:
                    await response.write(lines[: len(lines) // 2])
                _abort(request)
                return
            await response.write(lines)

    async def _write(self, request: web.Request, asked: ResourceRequest) -> web.Response:
        body = await self._body(request)
        self.api.now_ns = self._now_ns()
        target, query = asked.target, request.query
        dry_run = query.get("dryRun") == "All"
        manager = writing.manager_of(query, request.headers)
        code = 200
        if asked.verb == "create":
            code = 201
            answer = self._create(target, body, query, dry_run)
        elif asked.verb == "update":
            answer = self.writer.update(target, _object(body), manager=manager, dry_run=dry_run)
        elif asked.verb == "patch":
            content_type = request.content_type
            if content_type not in _PATCHES:
                raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            answer = self.writer.patch(target, content_type, body, manager=manager, dry_run=dry_run)
        elif asked.verb == "delete":
            answer = self.deleter.delete(target, read_options(body, query))
        else:
            answer = self._delete_all(target, body, query)
        self._wake()
        return self._json(answer, code)

    def _create(
        self, target: writing.WriteTarget, body: Any, query: Any, dry_run: bool
    ) -> writing.Document:
        if target.subresource == "eviction":
            return self.deleter.evict(target, _object(body), query)
        if target.subresource == "binding":
            return self._bind(target, _object(body))
        if target.subresource:
            raise no_such_path()
        return self.writer.create(target, _object(body), dry_run=dry_run)

    def _bind(self, target: writing.WriteTarget, body: writing.Document) -> writing.Document:
        """POST pods/NAME/binding: the scheduler's choice of a node for the pod."""
        node = (body.get("target") or {}).get("name")
        entry = self.writer.find(target)
        document = entry.document()
        spec = document.setdefault("spec", {})
        if not node:
            raise bad_request("target.name is required")
        if spec.get("nodeName"):
            why = f"pod {target.name} is already assigned to node {spec['nodeName']!r}"
            raise StatusError(409, "Conflict", why)
        spec["nodeName"] = node
        self.api.write(target.resource, document)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _delete_all(self, target: writing.WriteTarget, body: Any, query: Any) -> writing.Document:
        entries, _ = self.reader.select(target.resource, target.namespace, query)
        options = read_options(body, query)
        for entry in entries:
            if self.api.served.get(target.resource.kind, entry.obj.key) is not None:
                self.deleter.delete(writing.WriteTarget(target.resource, *entry.obj.key), options)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    async def _body(self, request: web.Request) -> Any:
        text = await request.read()
        if not text:
            return None
        try:
            return msgspec.json.decode(text)
        except msgspec.MsgspecError:
            if text[:1] in b"{[":
                raise bad_request("the body is not JSON") from None
            why = "the body of the request was in an unknown format: JSON is what is taken"
            raise StatusError(415, "UnsupportedMediaType", why) from None

    def _json(
        self, document: Any, code: int = 200, headers: dict[str, str] | None = None
    ) -> web.Response:
        return self._raw(msgspec.json.encode(document), code, headers)

    def _raw(
        self, body: bytes, code: int = 200, headers: dict[str, str] | None = None
    ) -> web.Response:
        all_headers = self._headers({"Content-Type": "application/json", **(headers or {})})
        return web.Response(body=body, status=code, headers=all_headers)

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        if self.faults.clock_skew_s:
            headers["Date"] = formatdate(time.time() + self.faults.clock_skew_s, usegmt=True)
        return headers


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _content_type(request: web.Request, document: Any) -> dict[str, str]:
    """Clients recognise aggregated discovery by its content type alone."""
    if isinstance(document, dict) and document.get("kind") == "APIGroupDiscoveryList":
        return {"Content-Type": f"application/json;{_AGGREGATED}"}
    return {}


def _accept(request: web.Request) -> Accept:
    """The form of answer that the client accepts: a table, as kubectl asks for, or objects."""
    first = request.headers.get("Accept", "").split(",")[0].replace(" ", "")
    as_table = "as=Table" in first and "g=meta.k8s.io" in first
    return Accept(as_table, request.query.get("includeObject") or "Metadata")


def _object(body: Any) -> writing.Document:
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    return body


class ResourceRequest(NamedTuple):
    """A request for a resource: the RBAC verb, and what it is about."""

    verb: str
    target: writing.WriteTarget


def read_path(method: str, path: str, query: Mapping[str, str]) -> ResourceRequest:
    """The request for a resource. Raises StatusError 404 or 405."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) >= 3:
        api_version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        api_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        raise no_such_path()
    target = _target(api_version, rest)
    if method in ("GET", "HEAD"):
        if target.name:
            return ResourceRequest("get", target)
        watching = query.get("watch") in ("true", "1")
        return ResourceRequest("watch" if watching else "list", target)
    verb = _VERBS.get(method)
    on_collection = not target.name
    if verb == "delete" and on_collection:
        verb = "deletecollection"
    elif verb is None or (verb == "create") != (on_collection or target.subresource in _POSTED):
        raise StatusError(405, "MethodNotAllowed", f"{method} is not supported here")
    return ResourceRequest(verb, target)


def _target(api_version: str, rest: list[str]) -> writing.WriteTarget:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (api_version, rest[2]) in BY_PATH:
        namespace, rest = rest[1], rest[2:]
    resource: ServedResource | None = BY_PATH.get((api_version, rest[0]))
    if resource is None or len(rest) > 3:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    if resource.namespaced and name and not namespace:
        raise no_such_path()
    return writing.WriteTarget(resource, namespace, name, subresource)


def review(body: Any, faults: Faults, user: str) -> dict[str, Any]:
    """The review with its status filled in. Raises StatusError."""
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    kind = body.get("kind")
    if kind == "SelfSubjectAccessReview":
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        allowed = asked.get("resource") not in faults.forbid
        status: dict[str, Any] = {"allowed": allowed}
        if not allowed:
            status["reason"] = "refused in this run"
    elif kind == "SelfSubjectRulesReview":
        rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        status = {"resourceRules": [rule], "nonResourceRules": [], "incomplete": False}
    elif kind == "SelfSubjectReview":
        status = {"userInfo": {"username": user, "groups": ["system:masters"]}}
    else:
        raise no_such_path()
    return {**body, "status": status}


class Failure(msgspec.Struct):
    """The next `times` requests of these verbs and resources (empty: all) get this answer."""

    code: int
    times: int = 1
    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    retry_after_s: int = 0
    reason: str = ""
    message: str = "injected"

    def applies(self, verb: str, resource: ServedResource | None) -> bool:
        """True if the request is one of those."""
        if self.times <= 0 or (self.verbs and verb not in self.verbs):
            return False
        return not self.resources or (resource is not None and resource.plural in self.resources)


class Faults(msgspec.Struct):
    """All faults of a server. Seconds, and plurals of resources such as `pods`.

    `latency_s`: before each answer; `list_latency_s`: before the answer to a list, by plural.
    `hang_watches`: watches of these stay open without events. `cut_watches`: so many watches are
    cut off in the middle of their next event; `torn`: with half a line sent. `forbid`: plurals
    that RBAC refuses. `expire_watches`: the next watch of each of these plurals gets a 410.
    `fail_writes`: every write is refused and recorded in `writes_seen`. `clock_skew_s`: added to
    the `Date` of answers. `down`: connections are closed without an answer. `refuse_tokens`:
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
    down: bool = False
    refuse_tokens: bool = False

    def check(
        self, verb: str, resource: ServedResource | None, namespace: str, user: str, path: str
    ) -> None:
        """Raises StatusError if this request is to fail."""
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
        if resource is None:
            return
        if resource.plural in self.forbid:
            raise forbidden(user, verb, resource, namespace)
        if verb == "watch" and resource.plural in self.expire_watches:
            self.expire_watches.discard(resource.plural)
            raise expired()
