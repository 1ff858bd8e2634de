"""The auth-provider `oidc`: an ID token, refreshed where it has expired.

Follows client-go/plugin/pkg/client/auth/oidc/oidc.go, and golang.org/x/oauth2 in how the client
names itself: by HTTP Basic, and where that is refused within the form. The identity provider's
certificate is always checked; the official Python client sends the client's secret without that
where no CA is named. Left out on purpose: issuers by plain HTTP, and redirects, which client-go
follows; and writing refreshed tokens back to the kubeconfig, since its files are the user's. With a
provider that makes each refresh token good for one use, that is an error kubectl would meet next;
use a credential plugin there.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from urllib.parse import quote_plus, urlsplit

import aiohttp
import msgspec

from kubectl_nodelife.errors import Failed
from kubectl_nodelife.live.kubeconfig import AuthProvider, Cluster
from kubectl_nodelife.live.transport import Transport, read_body

_WHERE = "auth-provider oidc"
_REMEDY = "log in again"
_EXPIRY_DELTA_S = 10
_TIMEOUT = aiohttp.ClientTimeout(total=30)
_MOST_BYTES = 1 << 20
_LAST_S = float(1 << 33)  # of year 2242; what expires later never does


class _Claims(msgspec.Struct):
    exp: float = 0


class _OidcMetadata(msgspec.Struct):
    token_endpoint: str = ""


class _Tokens(msgspec.Struct):
    access_token: str = ""
    id_token: str = ""
    refresh_token: str = ""


class OidcProvider:
    """One user's ID token. `expires_ns` is when the one given last ends, ns since the epoch."""

    def __init__(self, provider: AuthProvider, environ: Mapping[str, str]) -> None:
        """Raises Failed for a provider without issuer or client."""
        self._config = dict(provider.config)
        self._environ = environ
        self._secret_in_form = False
        self.expires_ns = 0
        for key in ("idp-issuer-url", "client-id"):
            if not self._config.get(key):
                raise Failed(f"{key} is missing", on=_WHERE)

    async def id_token(self) -> str:
        """A token that is valid by this machine's clock. Raises Failed."""
        token = self._config.get("id-token", "")
        if token and _expiry_s(token) > time.time() + _EXPIRY_DELTA_S:
            self.expires_ns = round(_expiry_s(token) * 1e9)
            return token
        if not self._config.get("refresh-token"):
            raise _failed("there is no valid id-token, and no refresh-token")
        found = await self._refresh()
        for name in ("access_token", "id_token"):
            if not getattr(found, name):
                raise _failed(f"the answer to a refresh holds no {name}")
        self._config["id-token"] = found.id_token
        if found.refresh_token:
            self._config["refresh-token"] = found.refresh_token
        self.expires_ns = round(_expiry_s(found.id_token) * 1e9)
        return found.id_token

    async def _refresh(self) -> _Tokens:
        config = self._config
        issuer = config["idp-issuer-url"].rstrip("/")
        if urlsplit(issuer).scheme != "https":
            raise _failed(f"{issuer} is not an https URL")
        authority = Cluster(
            server=issuer,
            certificate_authority=config.get("idp-certificate-authority", ""),
            certificate_authority_data=config.get("idp-certificate-authority-data", ""),
        )
        transport = Transport(authority, self._environ)
        try:
            body = await _read(transport, "GET", f"{issuer}/.well-known/openid-configuration")
            endpoint = msgspec.json.decode(body, type=_OidcMetadata).token_endpoint
            if urlsplit(endpoint).scheme != "https":
                raise _failed(f"the token endpoint {endpoint!r} is not an https URL")
            body = await self._ask_for_token(transport, endpoint)
            return msgspec.json.decode(body, type=_Tokens)
        except msgspec.MsgspecError:
            raise _failed("the identity provider's answer cannot be decoded") from None
        finally:
            await transport.close()

    async def _ask_for_token(self, transport: Transport, endpoint: str) -> bytes:
        """The answer to a refresh. Follows `RetrieveToken` of oauth2 with AuthStyleAutoDetect."""
        config = self._config
        client, secret = config["client-id"], config.get("client-secret", "")
        form = {"grant_type": "refresh_token", "refresh_token": config["refresh-token"]}
        if not self._secret_in_form:
            pair = f"{quote_plus(client)}:{quote_plus(secret)}"
            headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
            try:
                return await _read(transport, "POST", endpoint, data=form, headers=headers)
            except _Refused:
                pass
        form["client_id"] = client
        if secret:
            form["client_secret"] = secret
        body = await _read(transport, "POST", endpoint, data=form)
        self._secret_in_form = True
        return body


class _Refused(Failed):
    """The identity provider answered, and not with 200."""


async def _read(transport: Transport, method: str, url: str, **options: object) -> bytes:
    """The answer's body. Raises _Refused, Failed."""
    try:
        async with await transport.request(method, url, timeout=_TIMEOUT, **options) as response:
            body = await read_body(response, _MOST_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise _failed(f"{urlsplit(url).netloc}: {error or 'no answer in time'}") from None
    if response.status != 200:
        what = f"{urlsplit(url).netloc} answers with {response.status}"
        raise _Refused(what, on=_WHERE, remedy=_REMEDY)
    return body


def _expiry_s(token: str) -> float:
    """When a JWT expires, seconds since the epoch. Raises Failed."""
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return min(msgspec.json.decode(payload, type=_Claims, strict=False).exp, _LAST_S)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise _failed("the id-token is not a valid JWT") from None


def _failed(what: str) -> Failed:
    return Failed(what, on=_WHERE, remedy=_REMEDY)
