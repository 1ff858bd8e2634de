"""Credentials over TLS: what is sent, when it is renewed, and that nothing goes anonymously.

The raw server notes what comes; where there is a kubectl, it must say the same.
"""

import asyncio
import base64
import functools
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.errors import Failed, NodelifeError, Unreachable
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.target import Target, find_target
from kubectl_nodelife.sandbox import tls
from kubectl_nodelife.sandbox.tls import make_certificate
from tests.loopback import KUBECTL
from tests.raw_server import RawServer, Request, Sickness, raw_server

TOLD = ("Authorization", "Impersonate-User", "Impersonate-Uid", "Impersonate-Group")


def asked(server: RawServer) -> list[Request]:
    """The requests for /x. A kubectl may ask for the server's version too, by itself and with
    other credentials."""
    return [request for request in server.requests if request.path == "/x"]


def told(server: RawServer) -> list[tuple[str, str]]:
    """The headers of the one request for /x since the last call that say who comes."""
    (request,) = asked(server)
    server.requests.clear()
    return sorted(
        (name.title(), value)
        for name, value in request.fields
        if name.title() in TOLD or name.startswith("impersonate-extra")
    )


def tokens(server: RawServer) -> list[str]:
    return [request.headers["authorization"] for request in asked(server)]


def wanting(token: str) -> Sickness:
    """Refuses all other tokens."""

    async def refuse(request: Request) -> bool:
        if request.headers.get("authorization") == f"Bearer {token}":
            return False
        await request.status(401, "Unauthorized")
        return True

    return refuse


async def ask(path: str, folder: Path, **flags: Any) -> None:
    """One request of ours."""
    target = find_target(Connection(kubeconfig=path, **flags), {})
    client = Client(Session(target, {"PATH": os.environ["PATH"]}))
    try:
        await client.read("/x")
    finally:
        await client.close()


async def ask_with_kubectl(path: str, *flags: str) -> None:
    assert KUBECTL is not None
    process = await asyncio.create_subprocess_exec(
        KUBECTL,
        *("get", "--raw", "/x", "--kubeconfig", path),
        *flags,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()


@functools.cache
def knows(flag: str) -> bool:
    """True if this machine's kubectl has the flag: `--as-user-extra` came after 1.32."""
    assert KUBECTL is not None
    options = subprocess.run([KUBECTL, "options"], capture_output=True, text=True, check=True)
    return f"{flag}=" in options.stdout


def plugin(token: str) -> dict[str, Any]:
    """A plugin that prints what the file `token` holds."""
    version = "client.authentication.k8s.io/v1"
    script = (
        "import json, sys; print(json.dumps({'kind': 'ExecCredential', 'apiVersion':"
        f" '{version}', 'status': {{'token': open({token!r}).read().strip()}}}}))"
    )
    return {
        "apiVersion": version,
        "command": sys.executable,
        "args": ["-c", script],
        "interactiveMode": "Never",
    }


SAME = [
    pytest.param({"token": "t"}, {}, id="token"),
    pytest.param({"username": "u", "password": "p:w"}, {}, id="password"),
    pytest.param({"token": "t"}, {"token": "flag"}, id="token-flag"),
    pytest.param({"tokenFile": "TOKEN"}, {}, id="token-file"),
    pytest.param({"token": "t", "tokenFile": "TOKEN"}, {}, id="token-and-file"),
    pytest.param({"exec": "PLUGIN"}, {}, id="plugin"),
    pytest.param({"exec": "PLUGIN", "token": "t"}, {}, id="token-before-plugin"),
    pytest.param({"exec": "PLUGIN"}, {"token": "flag"}, id="token-flag-before-plugin"),
    pytest.param({"token": "t", "as": "bob", "as-groups": ["g"]}, {}, id="impersonating"),
    pytest.param(
        {"token": "t", "as": "bob"},
        {
            "impersonate": "ann",
            "impersonate_groups": ("a", "b"),
            "impersonate_uid": "7",
            "impersonate_user_extra": ("Some/Key=1", "Some/Key=2"),
        },
        id="impersonation-flags",
    ),
    pytest.param({}, {}, id="nobody"),
]
# kubectl that has no credentials for a server with TLS asks for a user's name on stdin, and without
# an answer it sends nothing. There is no request to compare; the next test says what we send.
OVER = [
    pytest.param(*row.values, tls, id=f"{row.id}-{'https' if tls else 'http'}")
    for row in SAME
    for tls in (True, False)
    if not (row.id == "nobody" and tls)
]
FLAGS = {
    "token": "--token",
    "impersonate": "--as",
    "impersonate_groups": "--as-group",
    "impersonate_uid": "--as-uid",
    "impersonate_user_extra": "--as-user-extra",
}


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine to compare with")
@pytest.mark.parametrize("user, flags, tls", OVER)
async def test_we_say_who_we_are_as_kubectl_does(
    tmp_path: Path, user: dict[str, Any], flags: dict[str, Any], tls: bool
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    user = {
        key: {"TOKEN": str(tmp_path / "token"), "PLUGIN": plugin(str(tmp_path / "token"))}.get(
            value if isinstance(value, str) else "", value
        )
        for key, value in user.items()
    }
    given = []
    for name, values in flags.items():
        for value in values if isinstance(values, tuple) else (values,):
            given += [FLAGS[name], value]
    if "--as-user-extra" in given and not knows("--as-user-extra"):
        given = given[: given.index("--as-user-extra")]
        flags = {k: v for k, v in flags.items() if k != "impersonate_user_extra"}
    async with raw_server(tls=tls) as server:
        path = server.kubeconfig(tmp_path, user)
        await ask_with_kubectl(path, *given)
        theirs = told(server)
        await ask(path, tmp_path, **flags)
        assert told(server) == theirs


async def test_nobody_over_tls_sends_no_credentials_and_is_not_asked(tmp_path: Path) -> None:
    async with raw_server(tls=True) as server:
        await ask(server.kubeconfig(tmp_path, {}), tmp_path)
        assert told(server) == []


async def test_extra_fields_are_escaped(tmp_path: Path) -> None:
    async with raw_server(tls=True) as server:
        path = server.kubeconfig(tmp_path, {"token": "t"})
        extra = ("Some/Key=1", "Some/Key=2", "a%=x")
        await ask(path, tmp_path, impersonate="ann", impersonate_user_extra=extra)
        assert told(server) == [
            ("Authorization", "Bearer t"),
            ("Impersonate-Extra-A%25", "x"),
            ("Impersonate-Extra-Some%2Fkey".title(), "1"),
            ("Impersonate-Extra-Some%2Fkey".title(), "2"),
            ("Impersonate-User", "ann"),
        ]


async def test_a_failing_plugin_sends_no_request(tmp_path: Path) -> None:
    async with raw_server(tls=True) as server:
        user = {"exec": plugin(str(tmp_path / "no-such-file"))}
        with pytest.raises(Failed, match=r"exit code 1.*No such file"):
            await ask(server.kubeconfig(tmp_path, user), tmp_path)
        assert server.requests == []


async def test_a_refused_token_is_fetched_anew_once(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    async with raw_server(tls=True) as server:
        user = {"exec": plugin(str(tmp_path / "token"))}
        target = find_target(Connection(kubeconfig=server.kubeconfig(tmp_path, user)), {})
        client = Client(Session(target, {}))
        await client.read("/x")
        (tmp_path / "token").write_text("new")
        server.sickness = wanting("new")
        await client.read("/x")
        assert tokens(server) == ["Bearer old", "Bearer old", "Bearer new"]
        server.sickness = wanting("another")
        with pytest.raises(ApiError, match="Unauthorized"):
            await client.read("/x")
        assert len(asked(server)) == 5
        await client.close()


async def test_other_credentials_of_the_kubeconfig_are_taken(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("slow")
    async with raw_server(tls=True) as server:

        def found(user: dict[str, Any]) -> Target:
            path = server.kubeconfig(tmp_path, user)
            return find_target(Connection(kubeconfig=path), {})

        session = Session(found({"token": "old"}), {})
        client = Client(session)
        await client.read("/x")
        session.take(found({"token": "new"}))
        await client.read("/x")
        session.take(found({"exec": plugin(str(tmp_path / "token"))}))
        asking = asyncio.ensure_future(client.read("/x"))
        await asyncio.sleep(0.01)  # the plugin runs
        session.take(found({"token": "newest"}))
        await asking
        assert tokens(server) == ["Bearer old", "Bearer new", "Bearer newest"]
        await client.close()


async def test_many_requests_at_once_fetch_a_token_once_and_renew_it_once(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    async with raw_server(tls=True) as server:
        ran = tmp_path / "ran"
        user = {"exec": plugin(str(tmp_path / "token"))}
        user["exec"]["args"][1] += f"; open({str(ran)!r}, 'a').write('x')"
        target = find_target(Connection(kubeconfig=server.kubeconfig(tmp_path, user)), {})
        client = Client(Session(target, {}))
        await asyncio.gather(*(client.read("/x") for _ in range(5)))
        assert ran.read_text() == "x"
        (tmp_path / "token").write_text("new")
        server.sickness = wanting("new")
        await asyncio.gather(*(client.read("/x") for _ in range(5)))
        assert ran.read_text() == "xx"
        await client.close()


async def test_an_unknown_authority_is_refused_unless_checks_are_off(tmp_path: Path) -> None:
    async with raw_server(tls=True) as server:
        other = base64.b64encode(make_certificate().certificate.encode()).decode()
        path = server.kubeconfig(tmp_path, {"token": "t"}, **{"certificate-authority-data": other})
        with pytest.raises(Unreachable, match="certificate is not trusted") as said:
            await ask(path, tmp_path)
        assert "was reached" in said.value.remedy and "VPN" not in str(said.value)
        assert server.requests == []
        await ask(path, tmp_path, insecure_skip_tls_verify=True)
        assert len(asked(server)) == 1


async def test_an_expired_certificate_is_called_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_VALID", timedelta(minutes=1))  # it began five minutes ago
    async with raw_server(tls=True) as server:
        path = server.kubeconfig(tmp_path, {"token": "t"})
        with pytest.raises(Unreachable, match="not trusted: certificate has expired") as said:
            await ask(path, tmp_path)
        assert said.value.remedy == "renew the server's certificate, or set this machine's clock"


async def test_the_name_to_check_can_be_another(tmp_path: Path) -> None:
    async with raw_server(tls=True) as server:
        path = server.kubeconfig(tmp_path, {"token": "t"})
        with pytest.raises(Unreachable, match="not trusted: Hostname mismatch"):
            await ask(path, tmp_path, tls_server_name="elsewhere.example")
        await ask(path, tmp_path, tls_server_name="localhost")


async def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    async with raw_server(tls=True) as server:
        path = server.kubeconfig(tmp_path, {"tokenFile": str(tmp_path / "gone")})
        with pytest.raises(NodelifeError, match="gone: cannot read the token"):
            await ask(path, tmp_path)
        (tmp_path / "empty").write_text("\n")
        path = server.kubeconfig(tmp_path, {"tokenFile": str(tmp_path / "empty")})
        with pytest.raises(NodelifeError, match="empty"):
            await ask(path, tmp_path)
        assert server.requests == []


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    path = RawServer().kubeconfig(tmp_path, {"token": "t"}, server="https://127.0.0.1:1")
    with pytest.raises(Unreachable, match="cannot be reached"):
        await ask(path, tmp_path)
