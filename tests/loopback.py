"""A sandbox for tests: served on loopback, with a kubectl that knows it, in one asyncio loop."""

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.target import Target, find_target
from kubectl_nodelife.sandbox.cluster import SandboxCluster, read_beginning
from kubectl_nodelife.sandbox.tls import Sandbox
from kubectl_nodelife.sim.scenario import STATUS_MANAGERS
from tests.faulty_server import FaultyServer
from tests.sim.documents import document

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(
    KUBECTL is None, reason="there is no kubectl on this machine to try the sandbox with"
)

SHORT_FLAGS: Mapping[str, object] = {
    "node-monitor-period": "200ms",
    "node-monitor-grace-period": "2s",
    "node-eviction-rate": "10",
}
GENERATE = {"zones": 2, "nodesPerZone": 2, "podsPerNode": 4, "daemonSets": 1}
KUBELET = {
    "leaseRenewInterval": "500ms",
    "podStartDuration": "100ms",
    "podStopDuration": "200ms",
}


def play(test: Callable[[], Awaitable[None]], seconds: float = 180.0) -> None:
    """Run a test's coroutine; one that hangs is ended. Busy machines take long."""

    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await test()

    asyncio.run(limited())


@contextlib.asynccontextmanager
async def sandbox(
    *,
    controllers: Collection[str] = (),
    flags: Mapping[str, object] = SHORT_FLAGS,
    generate: Mapping[str, object] | None = GENERATE,
    objects: Collection[Mapping[str, Any]] = (),
    events: Collection[Mapping[str, Any]] = (),
    kubelet: Mapping[str, object] = KUBELET,
    bookmark_s: float = 60.0,
    record: list[str] | None = None,
    between: Middleware | None = None,
) -> AsyncIterator[Sandbox]:
    """A running sandbox. `record` takes each request: `GET /api/v1/nodes`; `between`: who stands
    before the server and sees each request.
    """
    spec: dict[str, Any] = {"kubelet": dict(kubelet), "objects": list(objects)}
    spec["events"] = list(events)
    if generate is not None:
        spec["generate"] = dict(generate)
    content = yaml.safe_dump(document(**spec)).encode()
    beginning = read_beginning(None, content, time.time_ns(), read_named)
    settings = make_settings(beginning.setting.profile, flags)
    rules = rules_for(settings.profile) if STATUS_MANAGERS in controllers else None
    made = make_controllers(settings, controllers)
    cluster = SandboxCluster(beginning.setting.under(settings), made, status_rules=rules)
    token = secrets.token_urlsafe(24)
    server = FaultyServer(
        cluster.api,
        git_version="v1.36.0",
        token=token,
        wake=cluster.wake,
        now_ns=cluster.clock,
    )
    server.reader.bookmark_s = bookmark_s
    served = Sandbox(cluster, server, token)
    if record is not None:
        served.server.app.middlewares.append(_recorder(record))
    if between is not None:
        served.server.app.middlewares.append(between)
    async with served:
        yield served


def _recorder(record: list[str]) -> Middleware:
    @web.middleware
    async def recorded(request: web.Request, handler: Handler) -> web.StreamResponse:
        record.append(f"{request.method} {request.path}")
        return await handler(request)

    return recorded


@contextlib.contextmanager
def edited(served: Sandbox, kind: str, name: str, namespace: str = "") -> Iterator[dict[str, Any]]:
    """An object of the sandbox, which is written as the block leaves it, as if by a client."""
    collection = served.cluster.api.served.collections[kind]
    found = collection.entries[(namespace, name)].document()
    yield found
    served.cluster.api.write(collection.resource, found)


def contexts_of(served: Mapping[str, Sandbox]) -> dict[str, Any]:
    """A kubeconfig with a context for each sandbox, and no current one."""
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    made |= {"clusters": [], "users": [], "contexts": []}
    for name, each in served.items():
        theirs = yaml.safe_load(Path(each.kubeconfig).read_text())
        made["clusters"].append({"name": name, "cluster": theirs["clusters"][0]["cluster"]})
        made["users"].append({"name": name, "user": theirs["users"][0]["user"]})
        made["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    return made


def environment_of(served: Sandbox) -> dict[str, str]:
    """That of a kubectl on the sandbox."""
    own = {"HOME": served.folder, "KUBECONFIG": served.kubeconfig}
    return {"PATH": os.environ["PATH"], **own}


def target_of(served: Sandbox) -> Target:
    """The sandbox as kubeconfig has it."""
    return find_target(Connection(kubeconfig=served.kubeconfig), {})


@contextlib.asynccontextmanager
async def client(served: Sandbox) -> AsyncIterator[Client]:
    """Our client on the sandbox."""
    found = Client(Session(target_of(served), {}))
    try:
        yield found
    finally:
        await found.close()


async def kubectl(served: Sandbox, *args: str, stdin: str = "", check: bool = True) -> str:
    """Run kubectl on the sandbox; returns stdout and stderr together."""
    assert KUBECTL is not None
    process = await asyncio.create_subprocess_exec(
        KUBECTL,
        *args,
        env=environment_of(served),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await process.communicate(stdin.encode())
    except asyncio.CancelledError:
        process.kill()
        raise
    text = out.decode()
    assert not check or process.returncode == 0, f"kubectl {' '.join(args)}: {text}"
    return text


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until the condition holds; fails after so many seconds."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come true in time"
        await asyncio.sleep(0.02)
