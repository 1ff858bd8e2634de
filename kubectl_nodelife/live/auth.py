"""Who we are to the API server: a target's credentials, kept fresh, as headers and a TLS session.

TLS, proxies, certificates, OIDC and the rest come from the official client's asyncio half
(`KubeConfigLoader`, `Configuration`, `RESTClientObject`). Mended here: a failing credential plugin
is an error, tokens in files are read anew every minute as client-go does, impersonation headers
are sent, and no credential goes over plain HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.kube_config import FileOrData, KubeConfigLoader
from multidict import CIMultiDict

from kubectl_nodelife import __version__
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.live.kubeconfig import User
from kubectl_nodelife.live.plugin import Credential, CredentialPlugin, load_policy
from kubectl_nodelife.live.target import Target

_TOKEN_FILE_PERIOD_S = 60.0
_EXPIRY_MARGIN_NS = 10 * 1_000_000_000
_RETIRED_S = 900.0
"""Longer than any watch of ours lasts."""

_HEADER_SAFE = "!#$&'*+-.^_`|~" + "0123456789" + "abcdefghijklmnopqrstuvwxyz"


class _Loader(KubeConfigLoader):
    """The official loader, with the plugin run by us: its own swallows failures."""

    plugin: CredentialPlugin | None = None
    credential: Credential | None = None

    async def load_from_exec_plugin(self) -> bool:
        assert self.plugin is not None
        self.credential = await self.plugin.run()
        if self.credential.token:
            self.token = f"Bearer {self.credential.token}"
        if self.credential.certificate:
            pem = {"cert-data": self.credential.certificate, "key-data": self.credential.key}
            self.cert_file, self.key_file = (
                FileOrData(
                    pem,
                    None,
                    data_key_name=name,
                    base64_file_content=False,
                    temp_file_path=self._temp_file_path,
                ).as_file()
                for name in ("cert-data", "key-data")
            )
        return True


class Session:
    """Connections to one target with valid credentials. `secrets_folder` holds what TLS must read
    from files; None: the system's folder for temporary files.

    Credentials that are renewed end no watch: servers go on with it, and so do we.
    """

    def __init__(
        self, target: Target, environ: Mapping[str, str], secrets_folder: str | None = None
    ) -> None:
        self.target = target
        self._environ = environ
        self._secrets_folder = secrets_folder
        self._rest: RESTClientObject | None = None
        self._authorization = ""
        self._expires: int | None = None
        self._token_read_at = 0.0
        self._plugin = _plugin(target, environ)
        self._serial = 0
        self._retired: list[tuple[float, RESTClientObject]] = []
        self._connecting = asyncio.Lock()

    @property
    def secure(self) -> bool:
        """Whether the server is spoken to over TLS. Without it no credential is sent."""
        return self.target.server.startswith("https://")

    async def request(
        self, url: str, headers: Mapping[str, str], timeout: aiohttp.ClientTimeout
    ) -> tuple[aiohttp.ClientResponse, int]:
        """GET the URL below the server's; the answer, and the number of the credentials used.

        There is no other verb: whoever only has this cannot write to the cluster. Raises Failed,
        aiohttp.ClientError.
        """
        rest = await self._ready()
        serial = self._serial
        all_headers = self._headers()
        all_headers.update(headers)
        answer = await rest.request(
            "GET", self.target.server + url, headers=all_headers, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = answer.response
        return response, serial

    def renew(self, refused: int) -> bool:
        """Have the next request fetch credentials, since the server refused those of this number.

        False: there are no others to be had.
        """
        if self._plugin is None and not self.target.user.token_file:
            return False
        if refused == self._serial:
            self._retire()
        return True

    async def close(self) -> None:
        """Close the connections, in use or not; the next request opens new ones."""
        self._retire()
        await self._close_retired(0.0)

    def _retire(self) -> None:
        if self._rest is not None:
            self._retired.append((time.monotonic(), self._rest))
            self._rest = None

    async def _close_retired(self, after_s: float) -> None:
        while self._retired and time.monotonic() >= self._retired[0][0] + after_s:
            _, rest = self._retired.pop(0)
            await rest.close()

    async def _ready(self) -> RESTClientObject:
        expires = self._expires
        if expires is not None and time.time_ns() > expires - _EXPIRY_MARGIN_NS:
            self._retire()
        async with self._connecting:
            if self._rest is None:
                await self._close_retired(_RETIRED_S)
                self._rest = await self._connect()
                self._serial += 1
            rest = self._rest
        path = self.target.user.token_file
        if path and self.secure and time.monotonic() > self._token_read_at + _TOKEN_FILE_PERIOD_S:
            self._authorization = f"Bearer {_read_token(path, self.target.user.token)}"
            self._token_read_at = time.monotonic()
        return rest

    async def _connect(self) -> RESTClientObject:
        """Load credentials and build the session. Raises Failed."""
        loader = _Loader(
            _one_context(self.target, self.secure), temp_file_path=self._secrets_folder
        )
        loader.plugin = self._plugin
        configuration = Configuration()
        configuration.disable_strict_ssl_verification = True  # as kubectl: many old CAs fail it
        self._token_read_at = -_TOKEN_FILE_PERIOD_S - 1
        try:
            await loader.load_and_set(configuration)
            rest = RESTClientObject(configuration)
        except (ConfigException, ValueError, OSError) as error:
            raise Failed(
                f"cannot prepare the connection: {' '.join(str(error).split())}",
                on=f'user "{self.target.user_name}"' if self.target.user_name else "kubeconfig",
            ) from None
        self._authorization = configuration.api_key.get("BearerToken", "")
        self._expires = loader.credential.expires if loader.credential else None
        return rest

    def _headers(self) -> CIMultiDict[str]:
        headers: CIMultiDict[str] = CIMultiDict()
        headers["User-Agent"] = f"kubectl-nodelife/{__version__}"
        headers["Accept"] = "application/json"
        if self.target.cluster.disable_compression:
            headers["Accept-Encoding"] = "identity"
        if self._authorization and self.secure:
            headers["Authorization"] = self._authorization
        headers.extend(impersonation_headers(self.target.user))
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


def _plugin(target: Target, environ: Mapping[str, str]) -> CredentialPlugin | None:
    """The user's plugin, unless another credential makes it needless, as in client-go."""
    user = target.user
    certificate = user.client_certificate or user.client_certificate_data
    if user.exec is None or user.token or user.token_file or user.username or certificate:
        return None
    if not target.server.startswith("https://"):
        return None
    return CredentialPlugin(user.exec, target.cluster, environ, load_policy(environ))


def _one_context(target: Target, secure: bool) -> dict[str, Any]:
    """The target as a kubeconfig of one context, for the official loader.

    Without TLS it has no credentials. A token's file is left to `Session`, which reads it again.
    """
    cluster = msgspec.to_builtins(target.cluster)
    user = msgspec.to_builtins(target.user) if secure else {}
    if user.pop("tokenFile", ""):
        user.pop("exec", None)
    if "token" in user or "username" in user or "client-certificate" in user:
        user.pop("exec", None)
    if "client-certificate-data" in user:
        user.pop("exec", None)
    return {
        "current-context": "only",
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
        "clusters": [{"name": "only", "cluster": cluster}],
        "users": [{"name": "only", "user": user}],
    }


def _read_token(path: str, other: str) -> str:
    """The token in the file, or `other` where it cannot be read and there is one. Raises Failed."""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except OSError as error:
        if other:
            return other
        raise Failed(f"cannot read the token: {error.strerror}", on=path) from None
    if not token:
        raise Failed("the token's file is empty", on=path)
    return token
