"""The options of a daemon process: flags, environment, and the parent that waits for it, if any.

How metrics are served and people notified are values of their own, checked.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubectl_nodelife.daemon.notices import EVENTS
from kubectl_nodelife.daemon.preflight import Orders
from kubectl_nodelife.daemon.settings import ClusterConfig
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.target import Target, cluster_identity, find_target

_FLAG = "--metrics-bind-address"


class MetricsOptions(msgspec.Struct, frozen=True):
    """`bind_address`: HOST:PORT, "" for no metrics at all."""

    bind_address: str = ""
    per_node: bool = False
    plain_zones: bool = False
    token_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""

    def address(self) -> tuple[str, int]:
        """Host and port. Raises BadInput."""
        host, colon, port = self.bind_address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            colon = ""
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadInput(
                f"{self.bind_address!r} is no address",
                on=_FLAG,
                remedy="give an IP address and a port, as in 127.0.0.1:9876 or [::1]:9876",
            )
        return host, int(port)

    def check(self) -> None:
        """Raises BadInput where the flags do not go together."""
        given = (self.per_node, self.plain_zones, self.token_file, self.tls_cert_file)
        if not self.bind_address:
            if any(given) or self.tls_key_file:
                raise BadInput("it is needed for the other flags of metrics", on=_FLAG)
            return
        self.address()
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise BadInput(
                "a certificate and its key go together",
                on="--metrics-tls-cert-file, --metrics-tls-key-file",
            )

    @property
    def is_local(self) -> bool:
        """True if only this machine can ask."""
        return ipaddress.ip_address(self.address()[0]).is_loopback

    @property
    def url(self) -> str:
        """Where to scrape."""
        return f"http{'s' if self.tls_cert_file else ''}://{self.bind_address}/metrics"

    def warnings(self) -> list[str]:
        """The warning for an address that others can reach."""
        if self.is_local:
            return []
        warning = f"metrics can be read from other machines at {self.bind_address}"
        if not self.tls_cert_file:
            warning += ", unencrypted: names of zones among them"
        return [warning if self.token_file else f"{warning}, by all who reach it"]


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
            raise BadInput("no one is notified", on="--notify-on", remedy="give --webhook as well")
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


class Options(msgspec.Struct, frozen=True):
    """How a daemon was asked for. `ready_fd`: the pipe to its parent, None in the foreground.

    `arguments` start another one like it, apart from secrets. `orders`: what it enforces; `report`:
    prints the line that says so. `metrics`: what it serves to scrapers; `notify`: what it notifies.
    `answer_port`: of loopback, where it answers; 0: nowhere.
    """

    overrides: Connection
    environ: Mapping[str, str]
    profile: str = ""
    assignments: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    ready_fd: int | None = None
    orders: Orders = Orders()
    metrics: MetricsOptions = MetricsOptions()
    notify: NotifyOptions = NotifyOptions()
    answer_port: int = 0
    report: Callable[[str], None] = len  # type: ignore[assignment]

    def secrets(self) -> dict[str, str]:
        """What another one like it needs besides `arguments`, by a pipe. It is kept nowhere."""
        found = {"token": self.overrides.token or "", "webhook": self.notify.webhook}
        return {name: value for name, value in found.items() if value}


def from_anywhere(options: Options) -> Options:
    """The same options without relative paths: the daemon does not stay where it was started."""
    environ = dict(options.environ)
    if environ.get("KUBECONFIG"):
        paths = environ["KUBECONFIG"].split(os.pathsep)
        environ["KUBECONFIG"] = os.pathsep.join(os.path.abspath(p) for p in paths if p)
    replaced: dict[str, Any] = {}
    arguments = list(options.arguments)
    for name in ("kubeconfig", "certificate_authority", "client_certificate", "client_key"):
        path = getattr(options.overrides, name)
        if path:
            replaced[name] = os.path.abspath(path)
            flag = f"--{name.replace('_', '-')}="
            arguments = [flag + replaced[name] if a == flag + path else a for a in arguments]
    overrides = options.overrides._replace(**replaced)
    return msgspec.structs.replace(
        options, overrides=overrides, environ=environ, arguments=tuple(arguments)
    )


def with_limits(options: Options, section: ClusterConfig) -> Options:
    """The same options with the config file's limit on what is read, unless a flag gives one."""
    if options.overrides.max_response_size or not section.max_response_size:
        return options
    overrides = options.overrides._replace(max_response_size=section.max_response_size)
    return msgspec.structs.replace(options, overrides=overrides)


def target_now(options: Options, identity: str, context: str) -> Target:
    """Where the daemon of that identity, begun in that context, is led by the kubeconfig now.

    Another current context is the commands' business. Raises NodelifeError, OSError.
    """
    target = find_target(options.overrides, options.environ)
    if options.overrides.context or cluster_identity(target) == identity:
        return target
    pinned = options.overrides._replace(context=context)
    return find_target(pinned, options.environ)
