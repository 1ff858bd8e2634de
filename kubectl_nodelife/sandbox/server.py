"""The HTTP server of the sandbox: requests in, JSON or a stream out. On loopback only.

`read_path` parses a URL's path and method. Whoever has the token may do everything, as reviews of a
client's own rights say.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from aiohttp import web

from kubectl_nodelife.kube.kinds import Kind
from kubectl_nodelife.sandbox import discovery, writing
from kubectl_nodelife.sandbox.deleting import Deleter, read_options
from kubectl_nodelife.sandbox.discovery import BY_PATH, SUBRESOURCES
from kubectl_nodelife.sandbox.reading import Accept, Reader, WatchPlan, object_form
from kubectl_nodelife.sandbox.served import ServedApi
from kubectl_nodelife.sandbox.status import StatusError, bad_request, no_such_path

USER = "sandbox-admin"
_AGGREGATED = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_BODY_LIMIT = 8 << 20
_PATCHES = (writing.JSON_PATCH, writing.MERGE_PATCH, writing.STRATEGIC_PATCH)

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_POSTED = ("eviction", "binding")


class ApiServer:
    """Answers requests from one `ServedApi`.

    `token`: what a client must send, "" for none. `wake` is called after each write, so that the
    cluster reacts. `now_ns` is the clock. `down`: no request is answered.
    """

    def __init__(
        self,
        api: ServedApi,
        *,
        git_version: str,
        token: str = "",
        wake: Callable[[], None] = lambda: None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.api = api
        self.down = False
        self.writer = writing.RequestApplier(api)
        self.deleter = Deleter(api, self.writer)
        self.reader = Reader(api.served)
        self._git_version = git_version
        self._token = token
        self._wake = wake
        self._now_ns = now_ns
        self._watching: dict[int, web.Request] = {}
        self.app = web.Application(client_max_size=_BODY_LIMIT)
        self.app.router.add_route("*", "/{path:.*}", self._serve)

    def go_down(self) -> None:
        """Break all connections and answer no request, until `down` is False again."""
        self.down = True
        for request in self._watching.values():
            abort(request)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.down:
            abort(request)
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
            return self._json(self._review(await self._body(request)), 201)
        return await self._serve_resource(
            request, read_path(request.method, request.path, request.query)
        )

    async def _serve_resource(
        self, request: web.Request, asked: ResourceRequest
    ) -> web.StreamResponse:
        if asked.verb == "watch":
            return await self._watch(request, asked.target)
        if asked.verb == "list":
            return self._list(request, asked.target)
        if asked.verb == "get":
            return self._get(request, asked.target)
        return await self._write(request, asked)

    def _review(self, body: Any) -> dict[str, Any]:
        """The review with its status filled in. Raises StatusError."""
        if not isinstance(body, dict):
            raise bad_request("the body is not an object")
        kind = body.get("kind")
        if kind == "SelfSubjectAccessReview":
            status: dict[str, Any] = {"allowed": True}
        elif kind == "SelfSubjectRulesReview":
            rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            status = {"resourceRules": [rule], "nonResourceRules": [], "incomplete": False}
        elif kind == "SelfSubjectReview":
            status = {"userInfo": {"username": USER, "groups": ["system:masters"]}}
        else:
            raise no_such_path()
        return {**body, "status": status}

    def _authenticate(self, request: web.Request) -> None:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token and given != self._token:
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

    def _list(self, request: web.Request, target: writing.WriteTarget) -> web.Response:
        body = self.reader.list_body(
            target.resource, target.namespace, request.query, _accept(request), self._now_ns()
        )
        return self._json(body)

    def _get(self, request: web.Request, target: writing.WriteTarget) -> web.Response:
        form = object_form(target.resource, _accept(request), self._now_ns)
        return self._json(form(self.writer.find(target)))

    async def _watch(self, request: web.Request, target: writing.WriteTarget) -> web.StreamResponse:
        plan = self.reader.plan_watch(target.resource, target.namespace, request.query)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self._watching[id(request)] = request
        try:
            with contextlib.suppress(ConnectionError):  # the client went away
                async for lines in self._lines(request, plan):
                    await response.write(lines)
        finally:
            del self._watching[id(request)]
        return response

    def _lines(self, request: web.Request, plan: WatchPlan) -> AsyncIterator[bytes]:
        return self.reader.watch(plan, _accept(request), self._now_ns)

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
            if self.api.served.get(target.resource.name, entry.obj.key) is not None:
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
        """`document`: bytes are JSON already."""
        body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        return web.Response(body=body, status=code, headers=all_headers)


def abort(request: web.Request) -> None:
    """Break the connection."""
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
    resource: Kind | None = BY_PATH.get((api_version, rest[0]))
    if resource is None or len(rest) > 3:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in SUBRESOURCES.get(resource.name, ()):
        raise no_such_path()
    if resource.namespaced and name and not namespace:
        raise no_such_path()
    return writing.WriteTarget(resource, namespace, name, subresource)
