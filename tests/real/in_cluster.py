"""The Deployment's pods on a real control plane, played: there is no kubelet that could run them.

Each pod is a process with exactly the token of the ServiceAccount and the container's arguments,
but for ports, which all share this machine, and `--in-cluster`, whose files are a kubelet's. The
kubelet's part in a port-forward is played by `tests.port_forwarding`; the API server is real.
"""

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from kubectl_nodelife.sandbox.tls import make_certificate
from tests.daemon.user import User, user
from tests.loopback import free_port
from tests.port_forwarding import kubelet
from tests.real.control_plane import ControlPlane

NAMESPACE = "nodelife"
NAME = "kubectl-nodelife"
PROGRAM = (sys.executable, "-P", "-m", "kubectl_nodelife")
_PRINT = ("daemon", "install", "--print", "--kind", "deployment", "--image", "image:1")


def printed(*words: str) -> str:
    """The objects, by the program itself."""
    return said(*_PRINT, *words)


def said(*words: str) -> str:
    """What the program prints."""
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=True)
    return done.stdout


def apply(plane: ControlPlane, text: str, name: str) -> str:
    """Apply objects; what kubectl says."""
    path = plane.folder / name
    path.write_text(text)
    return plane.kubectl("apply", "-f", str(path))


def as_account(plane: ControlPlane, account: str, name: str) -> Path:
    """A kubeconfig of a ServiceAccount beside the Deployment."""
    path = plane.folder / f"{name}.kubeconfig"
    return plane.account_kubeconfig(account, NAMESPACE, path)


def pod_template(text: str) -> dict[str, Any]:
    """The Deployment's template among printed objects."""
    found = (each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
    template: dict[str, Any] = next(found)["spec"]["template"]
    return template


class PlayedPod:
    """One pod and its process. `answers`, `metrics`: its ports on this machine."""

    def __init__(self, plane: ControlPlane, name: str, template: Mapping[str, Any]) -> None:
        self.name = name
        self.kubeconfig = as_account(plane, NAME, name)
        self.answers, self.metrics = free_port(), free_port()
        (container,) = template["spec"]["containers"]
        self.words = [self._word(word) for word in container["args"] if word != "--in-cluster"]

    def _word(self, word: str) -> str:
        word = word.replace("$(POD_IP):9876", f"127.0.0.1:{self.metrics}")
        return word.replace("--serve-answers=9877", f"--serve-answers={self.answers}")

    @contextlib.asynccontextmanager
    async def runs(self) -> AsyncIterator[tuple[User, asyncio.subprocess.Process]]:
        """Its process, from here on; ready when all kinds are read."""
        async with user(str(self.kubeconfig)) as one, aiohttp.ClientSession() as session:
            process = await one.start(*self.words)
            try:
                await one.until(lambda: self.get(session, "readyz"))
                yield one, process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def get(self, session: aiohttp.ClientSession, path: str) -> str:
        """What its port of metrics says; "" for an error."""
        try:
            async with session.get(f"http://127.0.0.1:{self.metrics}/{path}") as answer:
                return await answer.text() if answer.status == 200 else ""
        except aiohttp.ClientError:
            return ""


@contextlib.asynccontextmanager
async def played_kubelet(
    plane: ControlPlane, node: str, ports: Mapping[str, int], seen: list[str]
) -> AsyncIterator[None]:
    """A node whose kubelet forwards ports of pods, and does nothing else."""
    port = free_port()
    plane.api.create("/api/v1/nodes", {"metadata": {"name": node}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    plane.api.merge(f"/api/v1/nodes/{node}/status", {"status": status})
    pair = make_certificate()
    path = plane.folder / f"{node}.pem"
    path.touch(0o600)
    path.write_text(pair.certificate + pair.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(path)
    runner = web.AppRunner(kubelet(ports, seen))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield
    finally:
        await runner.cleanup()


def bind(plane: ControlPlane, node: str, name: str, template: Mapping[str, Any]) -> None:
    """A pod of the Deployment on the node, as scheduler and kubelet would have it."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    spec = {**template["spec"], "nodeName": node}
    meta = {"name": name, "labels": template["metadata"]["labels"]}
    plane.api.create(pods, {"metadata": meta, "spec": spec})
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    plane.api.merge(f"{pods}/{name}/status", status)
