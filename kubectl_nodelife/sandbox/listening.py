"""Where the sandbox listens and how clients find it:

a TLS socket on 127.0.0.1, a private kubeconfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import ssl
import tempfile
from base64 import b64encode
from types import TracebackType

from aiohttp import web

from kubectl_nodelife.sandbox.certificate import ServerKeyPair, make_certificate
from kubectl_nodelife.sandbox.cluster import SandboxCluster
from kubectl_nodelife.sandbox.server import ApiServer

CONTEXT = "sandbox"
HOST = "127.0.0.1"


class Sandbox:
    """A cluster that is served. Use it as an asynchronous context manager.

    `kubeconfig` is the path of a file that is gone with the sandbox; `folder` is where it lies.
    """

    def __init__(
        self,
        cluster: SandboxCluster,
        server: ApiServer,
        token: str,
        access_log: logging.Logger | None = None,
    ) -> None:
        self._access_log = access_log
        self.cluster = cluster
        self.server = server
        self.token = token
        self.url = ""
        self.folder = ""
        self.kubeconfig = ""
        self._keys: ServerKeyPair | None = None
        self._runner: web.AppRunner | None = None
        self._task: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def faults(self) -> object:
        """The server's faults, to be set."""
        return self.server.faults

    async def __aenter__(self) -> Sandbox:
        self.folder = tempfile.mkdtemp(prefix="nodelife-sandbox-")
        self._keys = make_certificate()
        try:
            await self.listen()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.kubeconfig = os.path.join(self.folder, "kubeconfig")
        write_private(self.kubeconfig, json.dumps(self._document(), indent=2) + "\n")
        self._task = asyncio.create_task(self.cluster.run(), name="cluster")
        return self

    async def __aexit__(
        self,
        type_: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._task  # raises if the loop ended by itself
        finally:
            await self.hang_up()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def listen(self) -> None:
        """Open the socket; the same port as before, if there was one."""
        assert self._keys is not None
        self._runner = web.AppRunner(
            self.server.app, access_log=self._access_log, shutdown_timeout=0.2
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, HOST, self._port, ssl_context=_tls(self._keys, self.folder)
        )
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"https://{HOST}:{self._port}"

    async def hang_up(self) -> None:
        """Close the socket and every connection; the cluster lives on."""
        if self._runner is not None:
            self.server.go_down()
            await self._runner.cleanup()
            self._runner = None
            self.server.faults.down = False

    async def run_until(self, stopped: asyncio.Event) -> None:
        """Serve until told to stop. A bug that ends the cluster's loop is raised."""
        assert self._task is not None
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task

    def _document(self) -> dict[str, object]:
        assert self._keys is not None
        authority = b64encode(self._keys.certificate.encode()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [
                {
                    "name": CONTEXT,
                    "cluster": {
                        "server": self.url,
                        "certificate-authority-data": authority,
                        "disable-compression": True,
                    },
                }
            ],
            "users": [{"name": CONTEXT, "user": {"token": self.token}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        }


def make_sandbox(
    cluster: SandboxCluster, git_version: str, *, bookmark_s: float = 60.0, verbose: bool = False
) -> Sandbox:
    """A sandbox around the cluster, not yet listening. `verbose`: log requests to stderr."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    token = secrets.token_urlsafe(24)
    server = ApiServer(
        cluster.api,
        git_version=git_version,
        token=token,
        wake=cluster.wake,
        now_ns=cluster.clock,
        bookmark_s=bookmark_s,
    )
    log = logging.getLogger("kubectl_nodelife.sandbox") if verbose else None
    return Sandbox(cluster, server, token, log)


def write_private(path: str, text: str) -> None:
    """Write a new file that only we can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _tls(keys: ServerKeyPair, folder: str) -> ssl.SSLContext:
    """A server's context.

    The library reads keys from files only, so they are there for a moment.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    paths = [os.path.join(folder, name) for name in ("tls.crt", "tls.key")]
    try:
        for path, text in zip(paths, keys, strict=True):
            write_private(path, text)
        context.load_cert_chain(*paths)
    finally:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
    return context
