"""How people are to be notified: the flags as a value, checked."""

from __future__ import annotations

import ipaddress
import shlex
from urllib.parse import urlsplit

import msgspec

from kubectl_nodelife.daemon.notify.notices import EVENTS
from kubectl_nodelife.errors import BadInput


class NotifyOptions(msgspec.Struct, frozen=True):
    """`command`: a program and its arguments, "" for none. `webhook`: a URL, "" for none.

    `events`: those that are sent; none given: all.
    """

    command: str = ""
    webhook: str = ""
    events: tuple[str, ...] = ()

    @property
    def wanted(self) -> frozenset[str]:
        """The events that are sent."""
        return frozenset(self.events or EVENTS)

    def argv(self) -> list[str]:
        """The command as words, split as a shell does; no shell runs it. Raises BadInput."""
        try:
            return shlex.split(self.command)
        except ValueError as error:
            raise BadInput(str(error), on="--notify") from None

    def check(self) -> None:
        """Raises BadInput."""
        self.argv()
        unknown = [event for event in self.events if event not in EVENTS]
        if unknown:
            raise BadInput(
                f"there is no event {unknown[0]!r}",
                on="--notify-on",
                remedy=f"they are {', '.join(EVENTS)}",
            )
        if self.events and not (self.command or self.webhook):
            raise BadInput("nobody is notified", on="--notify-on", remedy="give --webhook as well")
        if self.webhook and not _may_be_sent_to(self.webhook):
            raise BadInput(
                "a webhook is https, or http on this machine",
                on="--webhook",
                remedy="give https://HOST/PATH",
            )


def where(url: str) -> str:
    """The URL without what may be secret: user, password, path, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


def _may_be_sent_to(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    return parts.scheme == "http" and (host == "localhost" or _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
