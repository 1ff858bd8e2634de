"""Authentication to the API server: a target's credentials, kept fresh, as headers and TLS.

Of the credentials that a user has, the first of these counts, as in client-go: token, token file,
user name and password, credential plugin, auth-provider; a client certificate comes on top. A
failing credential plugin is an error, tokens in files are read anew every minute, and no credential
goes over plain HTTP. Credentials are kept in memory only: the official Python client writes keys to
temporary files, which a SIGKILL leaves behind, so its loader is not used.

The auth-provider `oidc` has an ID token, refreshed where it has expired. It follows
client-go/plugin/pkg/client/auth/oidc/oidc.go, and golang.org/x/oauth2 in how the client names
itself: by HTTP Basic, and where that is refused within the form. The identity provider's
certificate is always checked; the official Python client sends the client's secret without that
where no CA is named. Left out on purpose: issuers by plain HTTP, and redirects, which client-go
follows; and writing refreshed tokens back to the kubeconfig, since its files are the user's. With a
provider that makes each refresh token good for one use, that is an error kubectl would meet next;
use a credential plugin there.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus, urlsplit

import aiohttp
import msgspec
from multidict import CIMultiDict

from kubectl_nodelife import __version__
from kubectl_nodelife.errors import BadInput, Failed, NodelifeError
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.live.kubeconfig import AuthProvider, Cluster, User
from kubectl_nodelife.live.plugin import PLUGIN_SECONDS, Credential, CredentialPlugin, load_policy
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.live.transport import Backoff, KeyPair, Transport, read_body, read_file

_TOKEN_FILE_PERIOD_S = 60.0
_EXPIRY_MARGIN_NS = 10 * 1_000_000_000
_FAILED_FIRST_S, _FAILED_LAST_S = 2.0, 15.0
"""How long a failing plugin is left alone at least; up to twice as long by chance."""

_RETIRED_S = 900.0
"""Longer than any watch of ours lasts."""

_HEADER_SAFE = "!#$&'*+-.^_`|~" + "0123456789" + "abcdefghijklmnopqrstuvwxyz"

PORT_FORWARD_PROTOCOL: Final = "v4.channel.k8s.io"
"""The subprotocol that kubelets offer for port-forward; v5 of it is for exec and attach alone."""


class PodPort(NamedTuple):
    """A port of a pod."""

    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.pod}"


def port_forward_url(to: PodPort) -> str:
    """`pods/portforward`, one port."""
    namespace, pod = quote(to.namespace, safe=""), quote(to.pod, safe="")
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={to.port}"


class Session:
    """Connections to one target with valid credentials. `serial`: the number of those in use.

    Credentials that are renewed end no watch: servers go on with it, and so do we.
    """

    def __init__(
        self, target: Target, environ: Mapping[str, str], *, show_plugin_stderr: bool = True
    ) -> None:
        """`show_plugin_stderr`: a failing plugin's own words are part of the error. Not where
        errors are logged: what a plugin prints may hold secrets.
        """
        self._environ = environ
        self._show_stderr = show_plugin_stderr
        self._transport: Transport | None = None
        self._authorization = ""
        self._expires: int | None = None
        self._token_read_at = 0.0
        self.serial = 0
        self._retired: list[tuple[float, Transport]] = []
        self._connecting = asyncio.Lock()
        self._failure: NodelifeError | None = None
        self._again_at = 0.0
        self._backoff = Backoff(_FAILED_FIRST_S, _FAILED_LAST_S)
        self.take(target)

    def take(self, target: Target) -> None:
        """Go on with other credentials for the same cluster, from the next request on.

        Raises Failed where there are none in a form that is known, and goes on as before.
        """
        plugin = _plugin(target, self._environ, self._show_stderr)
        provider = _provider(target, self._environ)
        self.target, self._plugin, self._provider = target, plugin, provider
        self._failure = None
        self._retire()

    @property
    def secure(self) -> bool:
        """True if the server is spoken to over TLS. Without it no credential is sent."""
        return self.target.server.startswith("https://")

    async def request(
        self, url: str, timeout: aiohttp.ClientTimeout
    ) -> tuple[aiohttp.ClientResponse, int]:
        """GET the URL below the server's; the answer, and the number of the credentials used.

        There is no other verb: code that only has this cannot write to the cluster. Raises Failed,
        aiohttp.ClientError.
        """
        transport = await self._ready()
        serial = self.serial
        url = self.target.server + url
        answer = await transport.request("GET", url, headers=self._headers(), timeout=timeout)
        return answer, serial

    async def port_forward(
        self,
        pod: PodPort,
        refused: Callable[[aiohttp.ClientResponse], Awaitable[None]],
        timeout: aiohttp.ClientWSTimeout,
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to a port of a pod. It is a GET, too, and there is no other WebSocket.

        Raises as `Transport.websocket`.
        """
        transport = await self._ready()
        url = self.target.server + port_forward_url(pod)
        return await transport.websocket(
            url, PORT_FORWARD_PROTOCOL, refused, headers=self._headers(), timeout=timeout
        )

    def renew(self, refused: int) -> bool:
        """Have the next request fetch credentials, since the server refused those of this number.

        False: there are no others to be had.
        """
        if self._plugin is None and not self.target.user.token_file:
            return False
        if refused == self.serial:
            self._retire()
        return True

    async def close(self) -> None:
        """Close the connections, in use or not; the next request opens new ones."""
        self._retire()
        await self._close_retired(0.0)

    def _retire(self) -> None:
        if self._transport is not None:
            self._retired.append((time.monotonic(), self._transport))
            self._transport = None

    async def _close_retired(self, after_s: float) -> None:
        while self._retired and time.monotonic() >= self._retired[0][0] + after_s:
            _, transport = self._retired.pop(0)
            await transport.close()

    async def _ready(self) -> Transport:
        expires = self._expires
        if expires is not None and time.time_ns() > expires - _EXPIRY_MARGIN_NS:
            self._retire()
        async with self._connecting:
            while self._transport is None:
                await self._close_retired(_RETIRED_S)
                target, transport = self.target, await self._connect()
                self.serial += 1
                self._transport = transport
                if self.target is not target:  # others were taken meanwhile
                    self._retire()
            transport = self._transport
        path = self.target.user.token_file
        if path and self.secure and time.monotonic() > self._token_read_at + _TOKEN_FILE_PERIOD_S:
            self._authorization = f"Bearer {_read_token(path, self.target.user.token)}"
            self._token_read_at = time.monotonic()
        return transport

    async def _connect(self) -> Transport:
        """Load credentials and build the connections. Raises Failed, BadInput."""
        self._token_read_at = -_TOKEN_FILE_PERIOD_S - 1
        credential = await self._fetch() if self.secure else Credential()
        self._authorization = f"Bearer {credential.token}" if credential.token else ""
        self._expires = credential.expires
        user = self.target.user
        if self.secure and not credential.token and user.username:
            pair = f"{user.username}:{user.password}"
            self._authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        keys = _keys(user, credential) if self.secure else None
        try:
            return Transport(self.target.cluster, self._environ, keys)
        except BadInput as error:
            what = f"cannot prepare the connection: {error}"
            raise Failed(what, on=_whose(self.target)) from None

    async def _fetch(self) -> Credential:
        """The credential, with what failed a moment ago said again: all requests that wait for it
        share the answer, and a login page is not opened for each of them. Raises Failed, BadInput.
        """
        if self._failure is not None and time.monotonic() < self._again_at:
            raise self._failure.with_traceback(None)
        target = self.target
        try:
            credential = await self._credential()
        except NodelifeError as error:
            if self.target is target:
                self._failure = error
                self._again_at = time.monotonic() + self._backoff.next_s()
            raise
        self._failure = None
        self._backoff.went_well()
        return credential

    async def _credential(self) -> Credential:
        """The token in force, or what a plugin gives. Raises Failed."""
        user = self.target.user
        if user.token or user.token_file or user.username:
            return Credential(token=user.token)
        if self._plugin is not None:
            return await self._plugin.run()
        if self._provider is not None:
            token = await self._provider.id_token()
            return Credential(token=token, expires=Time(self._provider.expires_ns))
        return Credential()

    def _headers(self) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        headers["User-Agent"] = f"kubectl-nodelife/{__version__}"
        headers["Accept"] = "application/json"
        if self.target.cluster.disable_compression:
            headers["Accept-Encoding"] = "identity"
        if self._authorization and self.secure:
            headers["Authorization"] = self._authorization
        headers.extend(impersonation_headers(self.target.user))
        for name, value in headers.items():
            if _NO_HEADER.search(value) is not None:
                raise Failed(f"{name} would hold what no header can", on=_whose(self.target))
        return headers


def impersonation_headers(user: User) -> CIMultiDict[str]:
    """The Impersonate-* headers. Follows `NewImpersonatingRoundTripper`."""
    headers: CIMultiDict[str] = CIMultiDict()
    if not user.impersonate:
        return headers
    headers["Impersonate-User"] = user.impersonate
    if user.impersonate_uid:
        headers["Impersonate-Uid"] = user.impersonate_uid
    for group in user.impersonate_groups:
        headers.add("Impersonate-Group", group)
    for key, values in user.impersonate_user_extra.items():
        for value in values:
            headers.add(f"Impersonate-Extra-{_escape(key.lower())}", value)
    return headers


def _escape(key: str) -> str:
    """A header's name from any text: bytes that may not stand there, and %, as %XX."""
    return "".join(
        chr(byte) if chr(byte) in _HEADER_SAFE else f"%{byte:02X}" for byte in key.encode()
    )


_NO_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""Follows `ValidHeaderFieldValue`: control characters; and half a surrogate pair is no text. Looked
for in a token of a thousand letters at each request."""


def _whose(target: Target) -> str:
    return f'user "{target.user_name}"' if target.user_name else "kubeconfig"


def _plugin(
    target: Target, environ: Mapping[str, str], show_stderr: bool
) -> CredentialPlugin | None:
    """The user's plugin, unless another credential makes it needless, as in client-go."""
    user = target.user
    certificate = user.client_certificate or user.client_certificate_data
    if user.exec is None or user.token or user.token_file or user.username or certificate:
        return None
    if not target.server.startswith("https://"):
        return None
    policy = load_policy(environ)
    timeout_ns = target.request_timeout_ns
    patience_s = min(PLUGIN_SECONDS, timeout_ns / 1e9) if timeout_ns else PLUGIN_SECONDS
    return CredentialPlugin(user.exec, target.cluster, environ, policy, patience_s, show_stderr)


def _provider(target: Target, environ: Mapping[str, str]) -> OidcProvider | None:
    """The user's auth-provider. Raises Failed for one that client-go does not have either."""
    provider = target.user.auth_provider
    if provider is None or not target.server.startswith("https://"):
        return None
    if provider.name != "oidc":
        raise Failed(
            f'there is no auth-provider "{provider.name}" any more',
            on=_whose(target),
            remedy="use a credential plugin (exec), as kubectl since 1.26 asks for",
        )
    return OidcProvider(provider, environ)


def _keys(user: User, credential: Credential) -> KeyPair | None:
    """The client's certificate and key: of the kubeconfig, else of the plugin. Raises BadInput."""
    certificate = _data_or_file(user.client_certificate_data, user.client_certificate)
    if certificate:
        return KeyPair(certificate, _data_or_file(user.client_key_data, user.client_key))
    if credential.certificate:
        return KeyPair(credential.certificate.encode(), credential.key.encode())
    return None


def _data_or_file(data: str, path: str) -> bytes:
    return base64.b64decode(data) if data else read_file(path) if path else b""


def _read_token(path: str, other: str) -> str:
    """The token in the file, or `other` where it cannot be read and there is one. Raises Failed."""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        if other:
            return other
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Failed(f"cannot read the token: {why}", on=path) from None
    if not token:
        raise Failed("the token's file is empty", on=path)
    return token


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
        tokens = await self._refresh()
        for name in ("access_token", "id_token"):
            if not getattr(tokens, name):
                raise _failed(f"the answer to a refresh holds no {name}")
        self._config["id-token"] = tokens.id_token
        if tokens.refresh_token:
            self._config["refresh-token"] = tokens.refresh_token
        self.expires_ns = round(_expiry_s(tokens.id_token) * 1e9)
        return tokens.id_token

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
