"""Credentials are in memory and nowhere else: no file, no command line, no card, unit or log."""

import base64
import builtins
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.errors import Failed, NodelifeError
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.target import find_target
from kubectl_nodelife.sandbox.tls import make_certificate
from tests.daemon.user import user
from tests.raw_server import raw_server

TOKEN = "s3cr3t-of-the-operator"
KEYS = make_certificate()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


BY_CERTIFICATE = {
    "client-certificate-data": encoded(KEYS.certificate),
    "client-key-data": encoded(KEYS.key),
}


async def test_a_clients_key_is_written_to_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is opened for writing, and the folder for temporary files stays empty."""
    opened: list[Any] = []
    open_file, os_open = builtins.open, os.open

    def watched(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        opened.extend([path] if set(mode) & set("wax+") else [])
        return open_file(path, mode, *rest, **more)

    def os_watched(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        opened.extend([path] if flags & (os.O_WRONLY | os.O_RDWR) else [])
        return os_open(path, flags, *rest, **more)

    async with raw_server(tls=True) as server:
        path = server.kubeconfig(tmp_path, BY_CERTIFICATE)
        folder = tmp_path / "tmp"
        folder.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        monkeypatch.setattr(builtins, "open", watched)
        monkeypatch.setattr(os, "open", os_watched)
        client = Client(Session(find_target(Connection(kubeconfig=path), {}), {}))
        assert b"gitVersion" in await client.read("/version")
        assert opened == [] and list(folder.iterdir()) == []
        await client.close()


@pytest.mark.parametrize("key", ["not a key", KEYS.key.replace("BEGIN", "BEGIN ENCRYPTED"), ""])
async def test_a_key_of_no_use_is_an_error(tmp_path: Path, key: str) -> None:
    async with raw_server(tls=True) as server:
        bad = {**BY_CERTIFICATE, "client-key-data": encoded(key)}
        with pytest.raises(NodelifeError):
            path = server.kubeconfig(tmp_path, bad)
            client = Client(Session(find_target(Connection(kubeconfig=path), {}), {}))
            await client.read("/version")
        assert server.requests == []


async def test_a_token_given_to_a_daemon_stands_nowhere(tmp_path: Path) -> None:
    """Neither in its command line, nor in any file below its folders; a restart asks for it."""
    async with raw_server(tls=True) as server, user(server.kubeconfig(tmp_path)) as someone:
        await someone.ok("daemon", "start", "--token", TOKEN)
        pid = (await someone.health())["pid"]
        assert TOKEN not in Path(f"/proc/{pid}/cmdline").read_text()
        assert {r.headers.get("authorization") for r in server.requests} == {f"Bearer {TOKEN}"}
        said = await someone.run("daemon", "restart")
        assert said.code == 1 and "daemon restart --token=" in said.err
        await someone.ok("daemon", "restart", "--token", TOKEN)
        assert (await someone.health())["pid"] != pid
        files = [path for path in someone.home.rglob("*") if path.is_file()]
        assert files
        assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


async def test_install_prints_no_token(tmp_path: Path) -> None:
    async with raw_server(tls=True) as server, user(server.kubeconfig(tmp_path)) as someone:
        said = await someone.run("daemon", "install", "--print", "--token", TOKEN)
        assert said.code == 2 and TOKEN not in said.out + said.err


async def test_what_a_plugin_prints_is_for_the_person_who_asked(tmp_path: Path) -> None:
    """A direct look shows it; a daemon's errors, which are logged, do not hold it."""
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"import sys; sys.exit('no session for {TOKEN}')"],
        "interactiveMode": "Never",
    }
    async with raw_server(tls=True) as server:
        path = server.kubeconfig(tmp_path, {"exec": plugin})
        target = find_target(Connection(kubeconfig=path), {})
        with pytest.raises(Failed, match=TOKEN):
            await Client(Session(target, {})).read("/version")
        with pytest.raises(Failed, match="exit code 1") as said:
            await Client(Session(target, {}, show_plugin_stderr=False)).read("/version")
        assert TOKEN not in str(said.value) and "kubectl get --raw" in str(said.value)
