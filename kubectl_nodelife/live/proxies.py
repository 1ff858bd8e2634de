"""Which proxy leads to the API server, chosen as kubectl chooses it.

A kubeconfig's `proxy-url` counts for every request; else `HTTPS_PROXY`, `HTTP_PROXY` and
`NO_PROXY` do, in upper or lower case. Follows golang.org/x/net/http/httpproxy (proxy.go), which
net/http and so client-go use. Left out on purpose: the refusal in a CGI program, and SOCKS, which
aiohttp cannot speak (an error says so).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from kubectl_nodelife.errors import BadInput

_PORTS = {"http": 80, "https": 443}


def proxy_for(server: str, proxy_url: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy for requests to that server; None: none.

    Raises BadInput for a proxy of a kind that cannot be used.
    """
    target = urlsplit(server)
    found = proxy_url or _from_environment(target, environ)
    if not found:
        return None
    scheme = urlsplit(found).scheme
    if scheme not in _PORTS:
        raise BadInput(
            f"a proxy by {scheme or 'no'} protocol cannot be used",
            on="proxy-url" if proxy_url else "HTTPS_PROXY or HTTP_PROXY",
            remedy="give the URL of an HTTP proxy, or list the server in NO_PROXY",
        )
    return found


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


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


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
    return host.endswith(domain) if domain.startswith(".") else _is_or_below(host, domain)


def _is_or_below(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


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
