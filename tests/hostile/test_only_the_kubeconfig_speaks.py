"""Where a connection goes and what it carries is decided by the kubeconfig, the flags and the proxy
variables that kubectl reads: not by ~/.netrc, by a redirect, or by SSLKEYLOGFILE.
"""

from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.errors import BadInput, Failed, NodelifeError
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.target import find_target
from tests.hostile.sicknesses import redirecting
from tests.raw_server import raw_server


async def ask(path: str, environ: dict[str, str] | None = None, **flags: Any) -> bytes:
    """One request of ours."""
    client = Client(Session(find_target(Connection(kubeconfig=path, **flags), {}), environ or {}))
    try:
        return await client.read("/version")
    finally:
        await client.close()


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ~/.netrc with a password for every host of these tests."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login eve password from-netrc\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))


@pytest.mark.usefixtures("netrc")
@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("user", [{"token": "t"}, {}], ids=["token", "nobody"])
async def test_netrc_says_nothing(tmp_path: Path, tls: bool, user: dict[str, str]) -> None:
    async with raw_server(tls=tls) as server:
        await ask(server.kubeconfig(tmp_path, user))
        sent = [request.headers.get("authorization") for request in server.requests]
        assert sent == (["Bearer t"] if user and tls else [None])


@pytest.mark.parametrize("tls", [True, False])
async def test_a_redirect_is_an_error_with_both_hosts(tmp_path: Path, tls: bool) -> None:
    """To another host, over TLS or not: neither token nor impersonation goes there."""
    async with raw_server(tls=tls) as server, raw_server() as other:
        server.sickness = redirecting(other.url)
        path = server.kubeconfig(tmp_path, {"token": "t"})
        with pytest.raises(Failed) as said:
            await ask(path, impersonate="root")
        assert server.url in str(said.value) and other.url in str(said.value)
        assert len(server.requests) == 1 and other.requests == []


async def test_a_redirect_to_nowhere_is_an_error_too(tmp_path: Path) -> None:
    async with raw_server() as server:
        for location in ("", "http://[", "\x7f"):
            server.sickness = redirecting(location)
            with pytest.raises(NodelifeError):
                await ask(server.kubeconfig(tmp_path))


async def test_an_authority_together_with_no_checks_is_refused(tmp_path: Path) -> None:
    """As kubectl: "specifying a root certificates file with the insecure flag is not allowed"."""
    async with raw_server(tls=True) as server:
        path = server.kubeconfig(tmp_path, **{"insecure-skip-tls-verify": True})
        with pytest.raises(BadInput, match="certificate authority together with insecure"):
            await ask(path)
        await ask(path, insecure_skip_tls_verify=True)  # the flag takes the CA's place


async def test_the_proxy_is_the_kubeconfigs_then_the_environments(tmp_path: Path) -> None:
    """A proxy that leads nowhere: it refuses every CONNECT."""
    connect = "CONNECT nodelife.invalid:6443"
    async with raw_server() as server, raw_server() as theirs, raw_server() as ours:
        environ = {"HTTPS_PROXY": theirs.url, "HTTP_PROXY": theirs.url}
        elsewhere = {"server": "https://nodelife.invalid:6443"}
        user = {"token": "t"}
        with pytest.raises(NodelifeError):
            await ask(server.kubeconfig(tmp_path, user, **elsewhere), environ)
        assert theirs.writes == [connect]
        with pytest.raises(NodelifeError):
            path = server.kubeconfig(tmp_path, user, **elsewhere, **{"proxy-url": ours.url})
            await ask(path, {**environ, "NO_PROXY": "*"})
        assert ours.writes == [connect]
        for request in ours.requests + theirs.requests:
            assert not any("Bearer" in value for _, value in request.fields)
        await ask(server.kubeconfig(tmp_path), environ)  # loopback goes by no proxy
        assert (len(theirs.requests), len(ours.requests)) == (1, 1)


async def test_netrc_gives_a_proxy_nothing(
    tmp_path: Path, netrc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server() as server, raw_server() as theirs:
        monkeypatch.setenv("HTTPS_PROXY", theirs.url)  # of this process, as of a shell
        elsewhere = {"server": "https://nodelife.invalid:6443"}
        with pytest.raises(NodelifeError):
            environ = {"https_proxy": theirs.url}
            await ask(server.kubeconfig(tmp_path, {"token": "t"}, **elsewhere), environ)
        (request,) = theirs.requests
        assert not any("authorization" in name for name, _ in request.fields)


async def test_no_keys_of_sessions_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(tls=True) as server:
        monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
        await ask(server.kubeconfig(tmp_path, {"token": "t"}))
        assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"token": "t\n"}, id="newline"),
        pytest.param({"token": "t\r\nX-Other: y"}, id="another-header"),
        pytest.param({"token": "t", "as": "a\nb"}, id="impersonation"),
        pytest.param({"tokenFile": "TOKEN"}, id="not-UTF-8"),
    ],
)
async def test_what_no_header_can_hold_is_an_error(tmp_path: Path, user: dict[str, str]) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe\x00t")
    told = {key: str(tmp_path / "token") if key == "tokenFile" else v for key, v in user.items()}
    async with raw_server(tls=True) as server:
        with pytest.raises(Failed):
            await ask(server.kubeconfig(tmp_path, told))
        assert server.requests == []
