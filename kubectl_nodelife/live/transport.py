"""HTTP connections to an API server: the one place where they are made.

What a connection does is decided by the kubeconfig, the flags and the proxy variables that kubectl
reads, and by nothing else: aiohttp's `trust_env` is off, since it would take passwords from
~/.netrc and send them in place of, or together with, the kubeconfig's credentials; `SSLKEYLOGFILE`
is not obeyed. A redirect is an error that names both hosts: followed, it would carry
`Impersonate-*` headers to another host, and show that host's data as the cluster's. Keys reach
OpenSSL through a pipe and are never in a file.

The proxy is chosen as kubectl chooses it (`proxy_for`): a kubeconfig's `proxy-url` counts for every
request; else `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` do, in upper or lower case.

Follows client-go/transport (transport.go, cache.go) and golang.org/x/net/http/httpproxy (proxy.go),
which net/http and so client-go use. Left out on purpose: HTTP/2, the refusal of a proxy in a CGI
program, and SOCKS, which aiohttp does not support (an error says so).

`Backoff` says for all of them how long to wait after one that failed. Pauses are client-go's
(tools/cache/reflector.go): from 0.8 to 30 seconds, doubled each time, and up to twice as long by
chance. What a server asks for by Retry-After is obeyed only between that pause and a minute: 0 or a
negative number would be a storm, and 999999999999 would be for ever. Other than client-go's, the
pauses begin anew once a watch has worked for a while, and not two minutes after the last one: no
decision is taken while a required watch is down.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp

from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.live.kubeconfig import Cluster

MOST_CONNECTIONS = 100
READ_BUFFER = 1 << 21
_KEY_BYTES = 1 << 16  # what a pipe holds

_PORTS = {"http": 80, "https": 443}
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class KeyPair(NamedTuple):
    """A client's certificate and key, PEM."""

    certificate: bytes
    key: bytes


class Transport:
    """Connections to one server. Close it; it can be used from one event loop only."""

    def __init__(
        self, cluster: Cluster, environ: Mapping[str, str], keys: KeyPair | None = None
    ) -> None:
        """Raises BadInput for keys, CAs and proxies that cannot be used."""
        server = cluster.server.rstrip("/")
        self._options: dict[str, Any] = {
            "proxy": proxy_for(server, cluster.proxy_url, environ),
            "allow_redirects": False,
        }
        if cluster.tls_server_name:
            self._options["server_hostname"] = cluster.tls_server_name
        context = tls_context(cluster, keys) if server.startswith("https://") else False
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MOST_CONNECTIONS, ssl=context),
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER,
        )
        self._upgrading: aiohttp.ClientSession | None = None

    async def request(self, method: str, url: str, **options: Any) -> aiohttp.ClientResponse:
        """Send one request. `options` are aiohttp's: headers, timeout, data.

        Raises Failed for a redirect, aiohttp.ClientError, OSError, TimeoutError.
        """
        response = await self._http.request(method, url, **self._options, **options)
        if response.status in (301, 302, 303, 307, 308):
            response.release()
            raise redirected(url, response.headers.get("Location", ""))
        return response

    async def websocket(
        self,
        url: str,
        protocol: str,
        refused: Callable[[aiohttp.ClientResponse], Awaitable[None]],
        **options: Any,
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket of this subprotocol. `refused` is given any other answer than 101, and
        raises. `options` are aiohttp's: headers, timeout.

        Raises Failed for a redirect, what `refused` raises, aiohttp.ClientError, OSError.
        """
        if self._upgrading is None:
            connector = self._http.connector
            trace = aiohttp.TraceConfig()
            trace.on_request_redirect.append(_refuse_redirect)
            self._upgrading = aiohttp.ClientSession(
                connector=connector,
                connector_owner=False,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                raise_for_status=_unless_upgraded(refused),
                trace_configs=[trace],
            )
        same = {name: value for name, value in self._options.items() if name != "allow_redirects"}
        return await self._upgrading.ws_connect(url, protocols=(protocol,), **same, **options)

    async def close(self) -> None:
        """Close the connections, in use or not."""
        if self._upgrading is not None:
            await self._upgrading.close()
        await self._http.close()


async def _refuse_redirect(
    session: aiohttp.ClientSession, context: Any, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """aiohttp follows the redirects of a WebSocket's handshake, and has no switch for that."""
    raise redirected(str(redirect.url), redirect.response.headers.get("Location", ""))


def _unless_upgraded(
    refused: Callable[[aiohttp.ClientResponse], Awaitable[None]],
) -> Callable[[aiohttp.ClientResponse], Awaitable[None]]:
    async def check(response: aiohttp.ClientResponse) -> None:
        if response.status != 101:
            await refused(response)

    return check


async def read_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The whole body, decompressed, if it is not longer than `most` bytes.

    Raises Failed for one that is, aiohttp.ClientError, OSError, TimeoutError. Nothing beyond the
    limit is kept: a few megabytes of gzip can stand for gigabytes.
    """
    parts: list[bytes] = []
    size = 0
    while part := await response.content.readany():
        size += len(part)
        if size > most:
            response.close()
            raise Failed(
                f"an answer is longer than {most >> 20} MiB",
                on=f"{response.url.scheme}://{response.url.authority}{response.url.path}",
                remedy="if the cluster is as large as that, raise --max-response-size",
            )
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def redirected(url: str, location: str) -> Failed:
    """The error that a redirect is, with the hosts of both ends."""
    asked = urlsplit(url)
    try:
        led = urlsplit(urljoin(url, location))
        where = f"{led.scheme}://{led.netloc}"
    except ValueError:
        where = "what is no URL"
    return Failed(
        f"answers with a redirect to {where}, which is not followed",
        on=f"{asked.scheme}://{asked.netloc}",
        remedy="if that is the API server, name it in the kubeconfig; a login page or a proxy"
        " in between does this as well",
    )


def tls_context(cluster: Cluster, keys: KeyPair | None) -> ssl.SSLContext:
    """How to know the server, and who we are to it. Raises BadInput. Follows `TLSConfigFor`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as kubectl: many old CAs fail it
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority := read_authority(cluster):
        try:
            context.load_verify_locations(cadata=authority.decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError):
            raise BadInput("the certificate authority holds no certificate") from None
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if keys is not None:
        _load_keys(context, keys)
    return context


def read_authority(cluster: Cluster) -> bytes:
    """The CA's certificates, PEM; b"" where none are named. Raises BadInput."""
    if cluster.certificate_authority_data:
        return base64.b64decode(cluster.certificate_authority_data)
    return read_file(cluster.certificate_authority) if cluster.certificate_authority else b""


def read_file(path: str) -> bytes:
    """A file that the kubeconfig names. Raises BadInput."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", on=path) from None


def _load_keys(context: ssl.SSLContext, keys: KeyPair) -> None:
    """OpenSSL reads keys by a path only, so it gets the path of a pipe: they are on no disk."""
    ends = []
    try:
        for pem in keys:
            if len(pem) > _KEY_BYTES:
                raise BadInput(f"a client certificate or key of {len(pem)} bytes is too long")
            readable, writable = os.pipe()
            ends.append(readable)
            os.write(writable, pem)
            os.close(writable)
        certificate, key = (f"/dev/fd/{end}" for end in ends)
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise BadInput(f"the client certificate or its key is of no use: {reason}") from None
    finally:
        for end in ends:
            os.close(end)


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def proxy_for(server: str, proxy_url: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy for requests to that server; None: none.

    Raises BadInput for a proxy of a kind that cannot be used.
    """
    target = urlsplit(server)
    proxy = proxy_url or _from_environment(target, environ)
    if not proxy:
        return None
    scheme = urlsplit(proxy).scheme
    if scheme not in _PORTS:
        raise BadInput(
            f"a proxy by {scheme or 'no'} protocol cannot be used",
            on="proxy-url" if proxy_url else "HTTPS_PROXY or HTTP_PROXY",
            remedy="give the URL of an HTTP proxy, or list the server in NO_PROXY",
        )
    return proxy


def _from_environment(target: SplitResult, environ: Mapping[str, str]) -> str:
    name = "HTTPS_PROXY" if target.scheme == "https" else "HTTP_PROXY"
    proxy = _either_case(environ, name)
    host = (target.hostname or "").lower()
    port = target.port or _PORTS.get(target.scheme, 0)
    if not proxy or not _uses_proxy(host, port, _either_case(environ, "NO_PROXY")):
        return ""
    parsed = urlsplit(proxy)
    return proxy if parsed.scheme and parsed.netloc else f"http://{proxy}"


def _either_case(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _uses_proxy(host: str, port: int, no_proxy: str) -> bool:
    """True if requests to that host go by the proxy. Follows `useProxy`."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = (entry.strip().lower() for entry in no_proxy.split(","))
    return not any(_matches(entry, host, port, address) for entry in entries if entry)


def _matches(entry: str, host: str, port: int, address: _Address | None) -> bool:
    """True if one entry of NO_PROXY means the host: *, a CIDR, an address or a domain."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            pass
    name, entry_port = _split_port(entry)
    if not name or (entry_port and entry_port != str(port)):
        return False
    entry_address = _address(name)
    if entry_address is not None:
        return entry_address == address
    domain = name.removeprefix("*")
    return host == domain or host.endswith(domain if domain.startswith(".") else f".{domain}")


def _split_port(entry: str) -> tuple[str, str]:
    """`host:port` and `[address]:port` in two; an address with colons has no port."""
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return entry, ""
    return host.strip("[]"), port


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


FIRST_S = 0.8
LAST_S = 30.0
MOST_RETRY_AFTER_S = 60.0


class Backoff:
    """The pauses of one kind, or of one request. `failures`: since it last went well."""

    def __init__(self, first_s: float = FIRST_S, last_s: float = LAST_S) -> None:
        self.failures = 0
        self._first_s = first_s
        self._last_s = last_s

    def next_s(self, retry_after_s: float | None = None) -> float:
        """Count a failure; seconds to wait after it."""
        pause_s = min(self._first_s * 2.0 ** min(self.failures, 20), self._last_s)
        pause_s *= 1 + random.random()
        self.failures += 1
        return max(pause_s, min(retry_after_s or 0.0, MOST_RETRY_AFTER_S))

    def went_well(self) -> None:
        """The next failure is a first one."""
        self.failures = 0
