"""The Deployment on a real API server: its objects are accepted, and its rights are enough.

There is no kubelet that could run the pod: its part is played by a process with exactly the token
of its ServiceAccount, and with the arguments of its container.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.daemon.user import User, user
from tests.metrics.test_endpoint import free_port
from tests.real.control_plane import ControlPlane, control_plane

_PRINT = ("daemon", "install", "--print", "--kind", "deployment", "--image", "image:1")


def printed() -> str:
    command = [sys.executable, "-P", "-m", "kubectl_nodelife", *_PRINT]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def as_the_pod(plane: ControlPlane) -> Path:
    """A kubeconfig of the ServiceAccount, TLS verified."""
    token = plane.kubectl("create", "token", "kubectl-nodelife", "-n", "nodelife").strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {
        "server": plane.api.server,
        "certificate-authority": str(plane.folder / "certificates" / "apiserver.crt"),
    }
    config["users"][0]["user"] = {"token": token}
    path = plane.folder / "pod.kubeconfig"
    path.touch(0o600)
    path.write_text(json.dumps(config))
    return path


def test_the_server_takes_it_and_its_rights_are_enough() -> None:
    with control_plane() as plane:
        objects = plane.folder / "deployment.yaml"
        objects.write_text(printed())
        said = plane.kubectl("apply", "-f", str(objects))
        assert len(said.splitlines()) == 8 and "Warning" not in said
        again = plane.kubectl("apply", "--dry-run=server", "-f", str(objects))
        assert all("unchanged" in line or "configured" in line for line in again.splitlines())
        can = ("auth", "can-i", "--as=system:serviceaccount:nodelife:kubectl-nodelife")
        for verb, what in (("delete", "pods"), ("patch", "nodes"), ("get", "secrets")):
            assert "no" in plane.kubectl(*can, verb, what, check=False)
        asyncio.run(_watches(str(as_the_pod(plane)), yaml.safe_load_all(objects.read_text())))


async def _watches(kubeconfig: str, objects: Any) -> None:
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    port = free_port()
    words = [word.replace("$(POD_IP):9876", f"127.0.0.1:{port}") for word in container["args"]]
    async with user(kubeconfig) as one, aiohttp.ClientSession() as session:
        process = await one.start(*words)
        try:
            await one.until(lambda: _answers(session, port, "readyz"))
            await asyncio.sleep(3)  # budgets are read, and the manager's Lease
            text = await _answers(session, port, "metrics")
            assert 'nodelife_watch_up{kind="ControllerRevision"} 1.0' in text
            assert "nodelife_budget_blocked_nodes 0.0" in text
            assert 'nodelife_requests_total{code="4xx"}' not in text
            await _has_warned_of_nothing(one)
        finally:
            process.terminate()
            await process.wait()


async def _answers(session: aiohttp.ClientSession, port: int, path: str) -> str:
    try:
        async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
            return await answer.text() if answer.status == 200 else ""
    except aiohttp.ClientError:
        return ""


async def _has_warned_of_nothing(one: User) -> None:
    warnings = (await one.health())["warnings"]
    assert not [word for word in warnings if "may not" in word or "forbidden" in word]
