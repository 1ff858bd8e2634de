"""The flags of `daemon start` and `daemon run`, each once: a field, and its line in `_TABLE`.

That is all that a new flag takes: the command's option, `--help`, the value that the daemon finds
in `options.flags`, and the arguments by which another one like it is started all follow from it
(`flags_named` makes the options). What cannot be told from the value alone is in `check`. With the
environment, and the parent that waits for it, if any, they are the options of a daemon process
(`Options`). Nothing heavy is imported here, as each `--help` and each completion reads this file.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from kubectl_nodelife.controllers import controller_names
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.live.connection import DeclaredFlag, flag_table

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.settings import ClusterConfig
    from kubectl_nodelife.live.connection import Connection
    from kubectl_nodelife.live.target import Target

Callback = Callable[..., Any]


def _absolute(path: str, flag: str) -> str:
    """A daemon does not stay in the folder where it was started."""
    return os.path.abspath(path) if path else ""


def _words(text: str, flag: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


class Orders(NamedTuple):
    """What the daemon enforces, and with which words of the user."""

    controllers: tuple[str, ...] = ()
    assume_stopped: tuple[str, ...] = ()
    begin: str = "join"
    caps: str = ""
    single_caps: tuple[str, ...] = ()
    max_writes: int | None = None
    lease_namespace: str = "kube-system"
    wait: bool = False
    insecure: bool = False
    yes: bool = False

    def check(self) -> None:
        """Raises BadInput for what is no cap."""
        from kubectl_nodelife.engine.guard import CAP_NAMES

        for text in self.single_caps:
            name, _, value = text.partition("=")
            if name not in CAP_NAMES or not value.isdecimal():
                raise BadInput(
                    f"{text!r} is no cap",
                    on="--cap",
                    remedy=f"give one of {', '.join(CAP_NAMES)}, =, a number",
                )


class MetricsOptions(NamedTuple):
    """How metrics are served. `bind_address`: HOST:PORT, "" for no metrics at all."""

    bind_address: str = ""
    per_node: bool = False
    plain_zones: bool = False
    token_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""

    def address(self) -> tuple[str, int]:
        """Host and port. Raises BadInput."""
        host, _, port = self.bind_address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not _is_address(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadInput(
                f"{self.bind_address!r} is no address",
                on="--metrics-bind-address",
                remedy="give an IP address and a port, as in 127.0.0.1:9876 or [::1]:9876",
            )
        return host, int(port)

    def check(self) -> None:
        """Raises BadInput where the flags do not go together."""
        if not self.bind_address:
            if any(self):
                raise BadInput(
                    "it is needed for the other flags of metrics", on="--metrics-bind-address"
                )
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
        return is_loopback(self.address()[0])

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


NOTICE_EVENTS: Final = (
    "nodeWillBeLost",
    "nodeLost",
    "evictionsWillBegin",
    "zoneWillStop",
    "zoneStops",
    "allZonesDark",
    "controllerStalled",
    "drainStuck",
    "enforcementStopped",
    "upgradeHeld",
)
"""The events that notices can be of, see `daemon.notices`."""


class NotifyOptions(NamedTuple):
    """Who is notified. `command`: a program and its arguments, "" for none. `webhook`: a URL, whose
    path is its password; "" for none. `events`: those that are sent; none given: all.
    """

    command: str = ""
    webhook: str = ""
    events: tuple[str, ...] = ()

    @property
    def wanted(self) -> frozenset[str]:
        """The events that are sent."""
        return frozenset(self.events or NOTICE_EVENTS)

    def argv(self) -> list[str]:
        """The command as words, split as a shell does; no shell runs it. Raises BadInput."""
        try:
            return shlex.split(self.command)
        except ValueError as error:
            raise BadInput(str(error), on="--notify") from None

    def check(self) -> None:
        """Raises BadInput."""
        self.argv()
        if self.events:
            self._check_events()
        if self.webhook and not _may_be_sent_to(self.webhook):
            raise BadInput(
                "a webhook is https, or http on this machine",
                on="--webhook",
                remedy="give https://HOST/PATH",
            )

    def _check_events(self) -> None:
        unknown = [event for event in self.events if event not in NOTICE_EVENTS]
        if unknown:
            raise BadInput(
                f"there is no event {unknown[0]!r}",
                on="--notify-on",
                remedy=f"they are {', '.join(NOTICE_EVENTS)}",
            )
        if not (self.command or self.webhook):
            raise BadInput("no one is notified", on="--notify-on", remedy="give --webhook as well")


def _may_be_sent_to(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    return parts.scheme == "http" and (is_loopback(host))


def _is_address(host: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """True if only this machine can reach the host, a name or an IP address."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class DaemonFlags(NamedTuple):
    """All flags of a daemon but the connection's. `answer_port`: of loopback, where it answers;
    None: nowhere.
    """

    profile: str = ""
    assignments: tuple[str, ...] = ()
    orders: Orders = Orders()
    metrics: MetricsOptions = MetricsOptions()
    notify: NotifyOptions = NotifyOptions()
    answer_port: int | None = None

    def check(self) -> None:
        """Raises BadInput for values that do not go together; secrets must have come before."""
        self.orders.check()
        self.metrics.check()
        self.notify.check()

    def arguments(self, *, secrets: bool = False) -> list[str]:
        """The flags as arguments of another call of this program; `secrets` too, or not."""
        words: list[str] = []
        for flag, value in self._given():
            if flag.name in SECRETS and not secrets:
                continue
            if value is True:
                words.append(flag.name)
            elif isinstance(value, tuple) and flag.name not in READ:
                words += [f"{flag.name}={text}" for text in value]
            else:
                text = ",".join(value) if isinstance(value, tuple) else value
                words.append(f"{flag.name}={text}")
        return words

    def secrets(self, token: str | None = None) -> dict[str, str]:
        """What `arguments` leaves out, by its flag's name without dashes, and the `token` of the
        connection: who may see a daemon's command line must not see it."""
        given = {flag.name: value for flag, value in self._given() if flag.name in SECRETS}
        given |= {"token": token} if token else {}
        return {name.lstrip("-"): value for name, value in given.items()}

    def with_secrets(self, secrets: Mapping[str, str]) -> DaemonFlags:
        """The same flags with those that came by a pipe."""
        return self._replace(
            notify=self.notify._replace(webhook=secrets.get("webhook", self.notify.webhook))
        )

    def confirmed(self) -> DaemonFlags:
        """The same flags after a person's yes."""
        return self._replace(orders=self.orders._replace(yes=True))

    def _given(self) -> Iterator[tuple[DeclaredFlag, Any]]:
        """Those whose value is another than the default."""
        for group, field, flag in FLAGS:
            value = getattr(getattr(self, group) if group else self, field)
            if value != default_of(group, field):
                yield flag, value


DEFAULTS: Final = DaemonFlags()
# A line for each field, in their order.
_TABLE: Final = """
--profile=v1.N             Release whose behaviour is followed.
--set=FLAG=VALUE           A setting.
--enforce=C[,C...]         Controllers whose writes are sent.
--assume-stopped=C[,C...]  You vouch that nothing else runs these.
--begin=[join|restart]     Take over without disturbing, or as a restarted controller manager.
--caps=[upstream]          Upstream's own limits only.
--cap=NAME=N               A cap of its own.
--max-writes=N             So many writes in all.
--lease-namespace=NS       Where the Lease of the one writer is.
--wait                     Wait for the Lease while another one holds it.
--insecure-enforce         Without verified TLS; labs only.
--yes -y                   Do not ask.
--metrics-bind-address=HOST:PORT  Serve /metrics, /healthz, /readyz there, as in 127.0.0.1:9876.
    Default: off.
--metrics-per-node         Two more metrics for each node.
--metrics-plain-zones      Zones as in status: REGION/ZONE.
--metrics-token-file=FILE  A bearer token.
--metrics-tls-cert-file=FILE  Serve by TLS.
--metrics-tls-key-file=FILE   Its key.
--notify=CMD               Run it with each notice as JSON on stdin.
--webhook=URL              Post each notice there as JSON; https.
--notify-on=LIST           Only these events.
--serve-answers=PORT       Answer at a port of 127.0.0.1 (9877), for --via. Default: off.
"""

READ: Final[Mapping[str, Callable[[str, str], Any]]] = {
    **dict.fromkeys(("--enforce", "--assume-stopped"), controller_names),
    **dict.fromkeys(("--metrics-token-file", "--metrics-tls-cert-file"), _absolute),
    "--metrics-tls-key-file": _absolute,
    "--notify-on": _words,
}
"""What makes the field's value of the text, and raises BadInput with the flag's name; several words
of a field are then joined by commas. A tuple that is not among these is a flag that is repeated."""

SECRETS: Final = ("--webhook",)
"""They go to another process by a pipe, never as an argument."""

_MORE: Final[Mapping[str, Mapping[str, Any]]] = {
    "--max-writes": {"type": int},
    "--serve-answers": {"type": click.IntRange(1024, 65535), "is_flag": False, "flag_value": 9877},
}
"""What click is told of a flag besides."""


def _fields() -> Iterator[tuple[str, str]]:
    for field, default in DaemonFlags._field_defaults.items():
        inner = getattr(default, "_fields", ())
        yield from ((field, each) for each in inner) if inner else [("", field)]


FLAGS: Final = tuple(
    (group, flag.field, flag)
    for (group, _), flag in zip(
        _fields(), flag_table([field for _, field in _fields()], _TABLE), strict=True
    )
)
"""The group ("" for none), the field and the flag of each, in the order of `--help`."""


def default_of(group: str, field: str) -> Any:
    """The value of the field where its flag is not given."""
    return getattr(getattr(DEFAULTS, group) if group else DEFAULTS, field)


def parse_flags(given: Mapping[str, Any]) -> DaemonFlags:
    """The flags of which click made these values, by the flag's name with its dashes; None where
    one is not given. Raises BadInput.
    """
    fields: dict[str, dict[str, Any]] = {}
    for group, field, flag in FLAGS:
        value = given.get(flag.name)
        if value is not None:
            read = READ.get(flag.name)
            value = read(value, flag.name) if read else value
            fields.setdefault(group, {})[field] = value
    flags = DaemonFlags(**fields.pop("", {}))
    groups = {name: getattr(flags, name)._replace(**values) for name, values in fields.items()}
    return flags._replace(**groups)


def flags_named(*names: str, **helps: str) -> Callable[[Callback], Callback]:
    """A decorator for these of the flags, all where none is named: in one argument `flags`, a
    DaemonFlags. `helps`: other words of help, by the flag's name without its first dashes and with
    underscores. What goes together is for the command to check, once it has the secrets too.
    """
    rows = [row for row in FLAGS if not names or row[2].name in names]

    def decorate(callback: Callback) -> Callback:
        @functools.wraps(callback)
        def with_flags(*args: Any, **kwargs: Any) -> Any:
            given = {flag.name: kwargs.pop(_parameter(flag)) for _, _, flag in rows}
            return callback(*args, flags=parse_flags(given), **kwargs)

        decorated: Callback = with_flags
        for group, field, flag in reversed(rows):
            text = helps.get(_parameter(flag), flag.help)
            option = _click_option(flag._replace(help=text), default_of(group, field))
            decorated = option(decorated)
        return decorated

    return decorate


def _parameter(flag: DeclaredFlag) -> str:
    return flag.name.removeprefix("--").replace("-", "_")


def _click_option(flag: DeclaredFlag, default: Any) -> Callable[[Callback], Callback]:
    more: dict[str, Any] = {"help": flag.help, "metavar": flag.value or None}
    if isinstance(default, bool):
        more["is_flag"] = True
    elif flag.choices:
        more |= {"type": click.Choice(flag.choices), "metavar": None}
    if default and isinstance(default, str):
        more |= {"default": default, "show_default": True}
    if isinstance(default, tuple) and flag.name not in READ:
        more["multiple"] = True
    return click.option(*flag.spellings, _parameter(flag), **more, **_MORE.get(flag.name, {}))


class Options(NamedTuple):
    """How a daemon was asked for. `ready_fd`: the pipe to its parent, None in the foreground.

    `arguments` start another one like it, apart from secrets. `report` prints the line that says
    what it enforces.
    """

    overrides: Connection
    environ: Mapping[str, str]
    flags: DaemonFlags = DaemonFlags()
    arguments: tuple[str, ...] = ()
    ready_fd: int | None = None
    report: Callable[[str], None] = len  # type: ignore[assignment]

    def secrets(self) -> dict[str, str]:
        """What another one like it needs besides `arguments`, by a pipe. It is kept nowhere."""
        return self.flags.secrets(self.overrides.token)


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
    return options._replace(overrides=overrides, environ=environ, arguments=tuple(arguments))


def with_limits(options: Options, section: ClusterConfig) -> Options:
    """The same options with the config file's limit on what is read, unless a flag gives one."""
    if options.overrides.max_response_size or not section.max_response_size:
        return options
    overrides = options.overrides._replace(max_response_size=section.max_response_size)
    return options._replace(overrides=overrides)


def target_now(options: Options, identity: str, context: str) -> Target:
    """Where the daemon of that identity, begun in that context, is led by the kubeconfig now.

    Another current context is the commands' business. Raises NodelifeError, OSError.
    """
    from kubectl_nodelife.live.target import cluster_identity, find_target

    target = find_target(options.overrides, options.environ)
    if options.overrides.context or cluster_identity(target) == identity:
        return target
    pinned = options.overrides._replace(context=context)
    return find_target(pinned, options.environ)
