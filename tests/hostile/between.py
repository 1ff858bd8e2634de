"""Somebody between our program and a sandbox: he lies, or does something just before a write.

The verbs that a person runs (`drain`, `daemonset undo`, `upgrade`) are processes here, on the real
clock. `Between` sees each request before the server does, knows what the server's store holds at
that instant, and keeps what a judge says of a write as it arrives.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from kubectl_nodelife.engine.calls.call import Delete, Patch, Post
from kubectl_nodelife.live.writer import Writer, WritingSession
from kubectl_nodelife.sandbox.tls import Sandbox
from tests.hostile.scenarios import LOGIN
from tests.loopback import target_of

Json = dict[str, Any]
Judge = Callable[["Between", web.Request], Awaitable[str]]
Act = Callable[["Between", web.Request], Awaitable[web.StreamResponse | None]]
"""What he does at a request: an answer of his own, or None, and the server answers."""
_SOMEBODY = "somebody"


class Between:
    """`acts`: what he does at each request of ours. `judges`: what is wrong with a write that
    arrives, "" where nothing is. `wrote`: the writes of ours that arrived.
    """

    def __init__(self, *acts: Act, judge: Judge | None = None) -> None:
        self.acts = list(acts)
        self.judge = judge
        self.wrote: list[str] = []
        self.broken: list[str] = []
        self.lied = 0
        self.served: Sandbox | None = None

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """aiohttp's."""
        if request.headers.get("User-Agent", "").endswith(_SOMEBODY):
            return await handler(request)
        for act in self.acts:
            answer = await act(self, request)
            if answer is not None:
                self.lied += 1
                return answer
        if request.method != "GET":
            self.wrote.append(f"{request.method} {request.path}")
            wrong = await self.judge(self, request) if self.judge is not None else ""
            if wrong:
                self.broken.append(f"{self.wrote[-1]}: {wrong}")
        return await handler(request)

    def found(self, kind: str, name: str) -> Json:
        """The object as the server's store holds it now; {} for none."""
        assert self.served is not None
        entries = self.served.cluster.api.served.collections[kind].entries
        return next((e.document() for (_, n), e in entries.items() if n == name), {})

    def names(self, kind: str) -> list[str]:
        """All that the store holds of that kind."""
        assert self.served is not None
        return [name for _, name in self.served.cluster.api.served.collections[kind].entries]

    async def write(self, call: Post | Patch | Delete) -> None:
        """Somebody else writes."""
        assert self.served is not None
        writer = Writer(WritingSession(target_of(self.served), {}), _SOMEBODY, lambda: 0)
        answer = await writer.call(call)
        assert answer.ok, answer
        await writer.close()

    async def patch(self, kind: str, key: tuple[str, str], body: Json) -> None:
        """Somebody else changes an object."""
        await self.write(Patch(kind, key, body))

    async def status(self, kind: str, key: tuple[str, str], body: Json) -> None:
        """Somebody else changes an object's status."""
        await self.write(Patch(kind, key, body, subresource="status"))

    async def write_lease(self) -> None:
        """A run's Lease that nobody holds."""
        name = {"name": "kubectl-nodelife-upgrade", "namespace": "kube-system"}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": name}
        spec = {"leaseDurationSeconds": 4, "leaseTransitions": 1, "holderIdentity": ""}
        await self.write(Post("Lease", (name["namespace"], name["name"]), {**body, "spec": spec}))


def login_page() -> web.Response:
    """Swallowed, and answered by a proxy."""
    return web.Response(body=LOGIN, content_type="text/html")


def swallowing(method: str, path: str, times: int = 1_000_000) -> Act:
    """Requests of that method, whose path has this in it, never come to the server."""
    left = [times]

    async def act(between: Between, request: web.Request) -> web.StreamResponse | None:
        if request.method != method or path not in request.path or left[0] <= 0:
            return None
        left[0] -= 1
        return login_page()

    return act


def answering_after(method: str, path: str, times: int = 1) -> Act:
    """They are carried out, and the page comes back all the same."""
    left = [times]

    async def act(between: Between, request: web.Request) -> web.StreamResponse | None:
        if request.method != method or path not in request.path or left[0] <= 0:
            return None
        left[0] -= 1
        assert between.served is not None
        await between.served.server._serve(request)
        between.wrote.append(f"{request.method} {request.path}")
        return login_page()

    return act


def just_before(
    method: str, path: str, happens: Callable[[Between], Awaitable[None]], times: int = 1
) -> Act:
    """Something happens before the first such requests are served."""
    left = [times]

    async def act(between: Between, request: web.Request) -> web.StreamResponse | None:
        if request.method == method and path in request.path and left[0] > 0:
            left[0] -= 1
            await happens(between)
        return None

    return act


async def body_of(request: web.Request) -> Json:
    """What is sent."""
    found: Json = json.loads(await request.read() or b"{}")
    return found
