"""The flags of `daemon start` and `daemon run`, each once: a field with its `DaemonFlag` beside it.

A field in one of these tuples is all that a new flag takes: the command's option, `--help`, the
value that the daemon finds in `options.flags`, and the arguments by which another one like it is
started all follow from it (`daemon_flags` makes the options). What cannot be told from the value
alone is in `check`. With the environment, and the parent that waits for it, if any, they are the
options of a daemon process (`Options`). Nothing heavy is imported here, as each `--help` and each
completion reads this file.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints
from urllib.parse import urlsplit

import click

from kubectl_nodelife.controllers import controller_names
from kubectl_nodelife.errors import BadInput

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.settings import ClusterConfig
    from kubectl_nodelife.live.connection import Connection
    from kubectl_nodelife.live.target import Target

Callback = Callable[..., Any]


class DaemonFlag(NamedTuple):
    """How a field is spelled on a command line.

    `name`, with its dashes, and a `short` one; `value` names the value in `--help`, "" for a
    switch. `read`: makes the field's value of the text, and raises BadInput with the flag's name;
    several words of a field are then joined by commas, without it the flag is repeated. `choices`:
    the texts allowed; `between`: a number, its least and greatest. `bare`: the value of a flag that
    is given without one. A `secret` goes to another process by a pipe, never as an argument.
    """

    name: str
    help: str
    value: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()
    read: Callable[[str, str], Any] | None = None
    between: tuple[int, int | None] | None = None
    bare: int | None = None
    secret: bool = False


def _absolute(path: str, flag: str) -> str:
    """A daemon does not stay in the folder where it was started."""
    return os.path.abspath(path) if path else ""


def _words(text: str, flag: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


class Orders(NamedTuple):
    """What the daemon enforces, and with which words of the user."""

    controllers: Annotated[
        tuple[str, ...],
        DaemonFlag(
            "--enforce", "Controllers whose writes are sent.", "C[,C...]", read=controller_names
        ),
    ] = ()
    assume_stopped: Annotated[
        tuple[str, ...],
        DaemonFlag(
            "--assume-stopped",
            "You vouch that nothing else runs these.",
            "C[,C...]",
            read=controller_names,
        ),
    ] = ()
    begin: Annotated[
        str,
        DaemonFlag(
            "--begin",
            "Take over without disturbing, or as a restarted controller manager.",
            choices=("join", "restart"),
        ),
    ] = "join"
    caps: Annotated[
        str, DaemonFlag("--caps", "Upstream's own limits only.", choices=("upstream",))
    ] = ""
    single_caps: Annotated[tuple[str, ...], DaemonFlag("--cap", "A cap of its own.", "NAME=N")] = ()
    max_writes: Annotated[int | None, DaemonFlag("--max-writes", "So many writes in all.", "N")] = (
        None
    )
    lease_namespace: Annotated[
        str, DaemonFlag("--lease-namespace", "Where the Lease of the one writer is.", "NS")
    ] = "kube-system"
    wait: Annotated[
        bool, DaemonFlag("--wait", "Wait for the Lease while another one holds it.")
    ] = False
    insecure: Annotated[
        bool, DaemonFlag("--insecure-enforce", "Without verified TLS; labs only.")
    ] = False
    yes: Annotated[bool, DaemonFlag("--yes", "Do not ask.", short="-y")] = False

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

    bind_address: Annotated[
        str,
        DaemonFlag(
            "--metrics-bind-address",
            "Serve /metrics, /healthz, /readyz there, as in 127.0.0.1:9876. Default: off.",
            "HOST:PORT",
        ),
    ] = ""
    per_node: Annotated[
        bool, DaemonFlag("--metrics-per-node", "Two more metrics for each node.")
    ] = False
    plain_zones: Annotated[
        bool, DaemonFlag("--metrics-plain-zones", "Zones as in status: REGION/ZONE.")
    ] = False
    token_file: Annotated[
        str, DaemonFlag("--metrics-token-file", "A bearer token.", "FILE", read=_absolute)
    ] = ""
    tls_cert_file: Annotated[
        str, DaemonFlag("--metrics-tls-cert-file", "Serve by TLS.", "FILE", read=_absolute)
    ] = ""
    tls_key_file: Annotated[
        str, DaemonFlag("--metrics-tls-key-file", "Its key.", "FILE", read=_absolute)
    ] = ""

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

    command: Annotated[
        str, DaemonFlag("--notify", "Run it with each notice as JSON on stdin.", "CMD")
    ] = ""
    webhook: Annotated[
        str, DaemonFlag("--webhook", "Post each notice there as JSON; https.", "URL", secret=True)
    ] = ""
    events: Annotated[
        tuple[str, ...], DaemonFlag("--notify-on", "Only these events.", "LIST", read=_words)
    ] = ()

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

    profile: Annotated[
        str, DaemonFlag("--profile", "Release whose behaviour is followed.", "v1.N")
    ] = ""
    assignments: Annotated[tuple[str, ...], DaemonFlag("--set", "A setting.", "FLAG=VALUE")] = ()
    orders: Orders = Orders()
    metrics: MetricsOptions = MetricsOptions()
    notify: NotifyOptions = NotifyOptions()
    answer_port: Annotated[
        int | None,
        DaemonFlag(
            "--serve-answers",
            "Answer at a port of 127.0.0.1 (9877), for --via. Default: off.",
            "PORT",
            between=(1024, 65535),
            bare=9877,
        ),
    ] = None

    def check(self) -> None:
        """Raises BadInput for values that do not go together; secrets must have come before."""
        self.orders.check()
        self.metrics.check()
        self.notify.check()

    def arguments(self, *, secrets: bool = False) -> list[str]:
        """The flags as arguments of another call of this program; `secrets` too, or not."""
        words: list[str] = []
        for flag, value in self._given():
            if flag.secret and not secrets:
                continue
            if value is True:
                words.append(flag.name)
            elif isinstance(value, tuple) and flag.read is None:
                words += [f"{flag.name}={text}" for text in value]
            else:
                text = ",".join(value) if isinstance(value, tuple) else value
                words.append(f"{flag.name}={text}")
        return words

    def secrets(self) -> dict[str, str]:
        """What `arguments` leaves out, by its flag's name without dashes."""
        return {flag.name.lstrip("-"): value for flag, value in self._given() if flag.secret}

    def with_secrets(self, secrets: Mapping[str, str]) -> DaemonFlags:
        """The same flags with those that came by a pipe."""
        return self._replace(
            notify=self.notify._replace(webhook=secrets.get("webhook", self.notify.webhook))
        )

    def confirmed(self) -> DaemonFlags:
        """The same flags after a person's yes."""
        return self._replace(orders=self.orders._replace(yes=True))

    def _given(self) -> Iterator[tuple[DaemonFlag, Any]]:
        """Those whose value is another than the default."""
        for group, field, flag in flags_of(DaemonFlags):
            value = getattr(getattr(self, group) if group else self, field)
            if value != default_of(group, field):
                yield flag, value


DEFAULTS: Final = DaemonFlags()


@functools.cache
def flags_of(kind: type) -> tuple[tuple[str, str, DaemonFlag], ...]:
    """The group ("" for none), the field and the flag of each, in the order of `--help`."""
    flags: list[tuple[str, str, DaemonFlag]] = []
    for field, hint in get_type_hints(kind, include_extras=True).items():
        for flag in getattr(hint, "__metadata__", ()):
            flags.append(("", field, flag))
        if hasattr(hint, "_fields"):
            flags += [(field, inner, flag) for _, inner, flag in flags_of(hint)]
    return tuple(flags)


def default_of(group: str, field: str) -> Any:
    """The value of the field where its flag is not given."""
    return getattr(getattr(DEFAULTS, group) if group else DEFAULTS, field)


def parse_flags(given: Mapping[str, Any]) -> DaemonFlags:
    """The flags of which click made these values, by the flag's name with its dashes; None where
    one is not given. Raises BadInput.
    """
    fields: dict[str, dict[str, Any]] = {}
    for group, field, flag in flags_of(DaemonFlags):
        value = given.get(flag.name)
        if value is not None:
            value = flag.read(value, flag.name) if flag.read else value
            fields.setdefault(group, {})[field] = value
    flags = DaemonFlags(**fields.pop("", {}))
    groups = {name: getattr(flags, name)._replace(**values) for name, values in fields.items()}
    return flags._replace(**groups)


def daemon_flags(callback: Callback) -> Callback:
    """The flags of `daemon start` and `daemon run`, in one argument `flags`: a DaemonFlags.

    What goes together is for the command to check, once it has the secrets too.
    """
    return flags_named()(callback)


def flags_named(*names: str, **helps: str) -> Callable[[Callback], Callback]:
    """A decorator for these of the flags, all where none is named; `helps`: other words of help, by
    the flag's name without its first dashes and with underscores.
    """
    rows = [row for row in flags_of(DaemonFlags) if not names or row[2].name in names]

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


def _parameter(flag: DaemonFlag) -> str:
    return flag.name.removeprefix("--").replace("-", "_")


def _click_option(flag: DaemonFlag, default: Any) -> Callable[[Callback], Callback]:
    names = [flag.name, *filter(None, (flag.short,)), _parameter(flag)]
    if isinstance(default, bool):
        return click.option(*names, is_flag=True, help=flag.help)
    more: dict[str, Any] = {"help": flag.help, "metavar": flag.value or None}
    if flag.choices:
        more["type"] = click.Choice(flag.choices)
    elif flag.between:
        more["type"] = click.IntRange(*flag.between)
    elif not isinstance(default, (str, tuple)):
        more["type"] = int
    if flag.bare is not None:
        more |= {"is_flag": False, "flag_value": flag.bare}
    if default and isinstance(default, str):
        more |= {"default": default, "show_default": True}
    if isinstance(default, tuple) and flag.read is None:
        more["multiple"] = True
    return click.option(*names, **more)


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
        token = self.overrides.token
        return self.flags.secrets() | ({"token": token} if token else {})


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
