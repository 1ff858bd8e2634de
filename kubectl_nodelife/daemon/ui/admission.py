"""Which requests the live page's server answers, and with which headers: pure rules.

Loopback alone keeps no web site out: a name that is rebound to 127.0.0.1 makes a browser take the
site's scripts for our own, and then it sends no Origin. So `Host` is checked before anything else
is looked at, on every path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

MOST_HEADER_BYTES: Final = 8 * 1024
MOST_BODY_BYTES: Final = 4 * 1024

READING: Final = frozenset({"GET", "HEAD"})
POSTED: Final = frozenset({"/session", "/logout", "/api/v1/what-if"})
"""The only paths to which something may be posted."""

_SITES: Final = frozenset({"same-origin", "none"})

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": (
        "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
        "microphone=(), midi=(), payment=(), usb=()"
    ),
    "Cache-Control": "no-store",
    "Server": "nodelife",
}
"""Of every response, errors and streams included."""


def refusal(
    method: str,
    path: str,
    version: tuple[int, int],
    headers: Sequence[tuple[str, str]],
    port: int,
) -> HTTPStatus | None:
    """Why a request is refused; None: it is not. `headers`: as they came, names in any case."""
    if version != (1, 1) or not _is_ours(headers, port):
        return HTTPStatus.FORBIDDEN
    if sum(len(name) + len(value) for name, value in headers) > MOST_HEADER_BYTES:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    if method == "POST" and path in POSTED:
        return _refused_post(headers)
    return None if method in READING else HTTPStatus.METHOD_NOT_ALLOWED


def authorities(port: int) -> frozenset[str]:
    """The allowed values of `Host`."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


def _is_ours(headers: Sequence[tuple[str, str]], port: int) -> bool:
    """True if the request means this server, and comes from its own page or from no page."""
    allowed = authorities(port)
    hosts = values(headers, "host")
    if len(hosts) != 1 or hosts[0].lower() not in allowed:
        return False
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in values(headers, "origin")):
        return False
    return all(site in _SITES for site in values(headers, "sec-fetch-site"))


def _refused_post(headers: Sequence[tuple[str, str]]) -> HTTPStatus | None:
    """A form cannot send these headers, and a script of another origin may not."""
    if values(headers, "x-nodelife") != ["1"]:
        return HTTPStatus.FORBIDDEN
    if values(headers, "content-type") != ["application/json"]:
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    lengths = values(headers, "content-length")
    if len(lengths) != 1 or not lengths[0].isdecimal():
        return HTTPStatus.LENGTH_REQUIRED
    if int(lengths[0]) > MOST_BODY_BYTES:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return None


def values(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    """All values of a header."""
    return [value for key, value in headers if key.lower() == name]
