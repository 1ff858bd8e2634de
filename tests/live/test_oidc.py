"""The auth-provider `oidc` against an issuer on loopback: rows after client-go's and oauth2's code.

client-go: `idTokenExpired`, `idToken`, `tokenEndpoint`. oauth2: `RetrieveToken`, whose client names
itself by HTTP Basic first and in the form where that is refused.
"""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.live.auth import OidcProvider, Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.kubeconfig import AuthProvider
from kubectl_nodelife.live.target import find_target
from kubectl_nodelife.sandbox.tls import make_certificate
from tests.raw_server import RawServer, Request, raw_server

SECRET = "the/secret of+the client"


def encoded(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def jwt(exp: object) -> str:
    """A token with that `exp`; None: without any."""
    claims = {"sub": "me"} if exp is None else {"exp": exp}
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}.signature"


def lasting(seconds: float) -> str:
    return jwt(int(time.time() + seconds))


class Issuer:
    """An identity provider. `answer`: of the token endpoint; `metadata`: of the discovery."""

    def __init__(self, server: RawServer) -> None:
        self.url, self.authority = server.url, server.authority
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.clients: list[str] = []
        self.takes_basic = True
        self.status = 200
        self.answer: Any = {"access_token": "a", "id_token": lasting(3600)}
        self.metadata: Any = None
        self.redirect = ""

    async def handle(self, request: Request) -> bool:
        """Each request."""
        self.asked.append(f"{request.method} {request.path}")
        if self.redirect:
            await request.reply(b"", 307, {"Location": self.redirect})
        elif request.path.endswith("/.well-known/openid-configuration"):
            await _reply(request, self.metadata or {"token_endpoint": f"{self.url}/token"})
        else:
            await self._token(request)
        return True

    async def _token(self, request: Request) -> None:
        self.forms.append(dict(parse_qsl(request.body.decode(), keep_blank_values=True)))
        basic = request.headers.get("authorization", "").removeprefix("Basic ")
        self.clients.append(base64.b64decode(basic).decode())
        if basic and not self.takes_basic:
            await request.reply({"error": "invalid_client"}, 401)
        else:
            await _reply(request, self.answer, self.status)

    def provider(self, **config: str) -> OidcProvider:
        """A user's, with an expired token; `config` with _ for - changes it, "" leaves it out."""
        given = {
            "idp-issuer-url": self.url,
            "client-id": "me",
            "client-secret": SECRET,
            "id-token": lasting(-60),
            "refresh-token": "refresh-1",
            "idp-certificate-authority-data": self.authority,
            **{key.replace("_", "-"): value for key, value in config.items()},
        }
        kept = {key: value for key, value in given.items() if value}
        return OidcProvider(AuthProvider("oidc", kept), {})


async def _reply(request: Request, body: Any, status: int = 200) -> None:
    if isinstance(body, str):
        await request.reply(body.encode(), status, {"Content-Type": "text/html"})
    else:
        await request.reply(body, status)


@contextlib.asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    async with raw_server(tls=True) as server:
        found = Issuer(server)
        server.sickness = found.handle
        yield found


REFRESHED, KEPT = "refreshed", "kept"


@pytest.mark.parametrize(
    "token, expected",
    [
        pytest.param(lambda: lasting(3600), KEPT, id="valid"),
        pytest.param(lambda: lasting(30), KEPT, id="longer-than-ten-seconds"),
        pytest.param(lambda: lasting(9), REFRESHED, id="within-ten-seconds"),
        pytest.param(lambda: lasting(-60), REFRESHED, id="expired"),
        pytest.param(lambda: jwt(time.time() + 3600.5), KEPT, id="a-fraction"),
        pytest.param(lambda: jwt(str(int(time.time()) + 3600)), KEPT, id="a-number-as-text"),
        pytest.param(lambda: jwt(1e300), KEPT, id="beyond-the-calendar"),
        pytest.param(lambda: jwt(None), REFRESHED, id="no-exp"),
        pytest.param(lambda: "", REFRESHED, id="no-token"),
        pytest.param(lambda: "abc", "not a valid JWT", id="not-an-id-token"),
        pytest.param(lambda: "a.b.c.d", "not a valid JWT", id="four-parts"),
        pytest.param(lambda: jwt("soon"), "not a valid JWT", id="bad-exp-claim"),
        pytest.param(lambda: f"x.{encoded([1])}.y", "not a valid JWT", id="claims-that-are-none"),
    ],
)
async def test_when_a_token_is_refreshed(tmp_path: Path, token: Any, expected: str) -> None:
    """One that cannot be read is an error even where there is a refresh-token, as in client-go."""
    async with issuer() as idp:
        given = token()
        provider = idp.provider(id_token=given)
        if expected in (KEPT, REFRESHED):
            found = await provider.id_token()
            assert found == (given if expected == KEPT else idp.answer["id_token"])
            assert provider.expires_ns > time.time_ns()
            assert bool(idp.asked) == (expected == REFRESHED)
        else:
            with pytest.raises(NodelifeError, match=expected):
                await provider.id_token()
            assert idp.asked == []


async def test_without_a_refresh_token_nobody_is_asked(tmp_path: Path) -> None:
    async with issuer() as idp:
        with pytest.raises(NodelifeError, match="no valid id-token, and no refresh-token"):
            await idp.provider(refresh_token="").id_token()
        assert idp.asked == []


@pytest.mark.parametrize("missing", ["idp_issuer_url", "client_id"])
def test_what_must_be_there(missing: str) -> None:
    with pytest.raises(NodelifeError, match=f"{missing.replace('_', '-')} is missing"):
        Issuer(RawServer()).provider(**{"idp_issuer_url": "https://x", missing: ""})


@pytest.mark.parametrize("slash", ["", "/"])
async def test_what_a_refresh_sends(tmp_path: Path, slash: str) -> None:
    """No scope; the client by Basic, each half escaped as in a query; a new token is kept."""
    async with issuer() as idp:
        provider = idp.provider(client_id="me:and/you", idp_issuer_url=idp.url + slash)
        idp.answer = {"access_token": "a", "id_token": lasting(1), "refresh_token": "refresh-2"}
        await provider.id_token()
        assert idp.asked == ["GET /.well-known/openid-configuration", "POST /token"]
        assert idp.clients == ["me%3Aand%2Fyou:the%2Fsecret+of%2Bthe+client"]
        idp.answer = {"access_token": "a", "id_token": lasting(1)}
        await provider.id_token()
        idp.answer["id_token"] = lasting(3600)
        assert await provider.id_token() == await provider.id_token()
        sent = [form.pop("refresh_token") for form in idp.forms]
        assert sent == ["refresh-1", "refresh-2", "refresh-2"]
        assert idp.forms == [{"grant_type": "refresh_token"}] * 3


@pytest.mark.parametrize("secret", [SECRET, ""])
async def test_where_basic_is_refused_the_client_stands_in_the_form(
    tmp_path: Path, secret: str
) -> None:
    async with issuer() as idp:
        idp.takes_basic = False
        idp.answer = {"access_token": "a", "id_token": lasting(1)}
        provider = idp.provider(client_secret=secret)
        await provider.id_token()
        await provider.id_token()  # and is not tried again
        assert [bool(client) for client in idp.clients] == [True, False, False]
        assert idp.forms[1]["client_id"] == "me"
        assert idp.forms[1].get("client_secret", "") == secret


@pytest.mark.parametrize(
    "change, told",
    [
        ({"status": 400, "answer": {"error": "invalid_grant"}}, "answers with 400"),
        ({"status": 500, "answer": "<html>"}, "answers with 500"),
        ({"answer": {"access_token": "a"}}, "holds no id_token"),
        ({"answer": {"id_token": lasting(60)}}, "holds no access_token"),
        ({"answer": {"access_token": "a", "id_token": "x"}}, "not a valid JWT"),
        ({"answer": "<html>"}, "cannot be decoded"),
        ({"answer": ["a"]}, "cannot be decoded"),
        ({"answer": {"access_token": "a" * (2 << 20)}}, "longer than 1 MiB"),
        ({"metadata": "<html>"}, "cannot be decoded"),
        ({"metadata": {"issuer": "me"}}, "not an https URL"),
        ({"metadata": {"token_endpoint": "http://127.0.0.1:1/token"}}, "not an https URL"),
        ({"redirect": "https://127.0.0.1:1/elsewhere"}, "127.0.0.1:1"),
    ],
)
async def test_bad_answers_are_errors_without_secrets(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    async with issuer() as idp:
        vars(idp).update(change)
        with pytest.raises(NodelifeError) as said:
            await idp.provider().id_token()
        text = f"{said.value} {said.value.remedy}"
        assert told in text
        assert "refresh-1" not in text and SECRET not in text


@pytest.mark.parametrize("authority", ["data", "file", "none", "another", "no PEM"])
async def test_the_issuers_certificate_is_always_checked(tmp_path: Path, authority: str) -> None:
    async with issuer() as idp:
        (tmp_path / "crt").write_bytes(base64.b64decode(idp.authority))
        another = base64.b64encode(make_certificate().certificate.encode()).decode()
        given = {
            "data": {},
            "file": {
                "idp_certificate_authority_data": "",
                "idp_certificate_authority": str(tmp_path / "crt"),
            },
            "none": {"idp_certificate_authority_data": ""},
            "another": {"idp_certificate_authority_data": another},
            "no PEM": {"idp_certificate_authority_data": "bm8gUEVN"},
        }[authority]
        provider = idp.provider(**given)
        if authority in ("data", "file"):
            assert await provider.id_token()
        else:
            with pytest.raises(NodelifeError):
                await provider.id_token()
            assert idp.forms == [], "no secret goes to whom nobody knows"


async def test_an_issuer_by_plain_http_is_refused() -> None:
    with pytest.raises(NodelifeError, match="not an https URL"):
        await Issuer(RawServer()).provider(idp_issuer_url="http://127.0.0.1:1").id_token()


async def test_requests_carry_the_token_and_share_one_refresh(tmp_path: Path) -> None:
    async with issuer() as idp, raw_server(tls=True) as server:
        config = idp.provider()._config
        user = {"auth-provider": {"name": "oidc", "config": config}}
        path = server.kubeconfig(tmp_path, user)
        client = Client(Session(find_target(Connection(kubeconfig=path), {}), {}))
        await asyncio.gather(*(client.read("/version") for _ in range(5)))
        sent = {request.headers["authorization"] for request in server.requests}
        assert sent == {f"Bearer {idp.answer['id_token']}"}
        assert len(idp.forms) == 1
        await client.close()
