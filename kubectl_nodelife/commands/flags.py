"""The flags that verbs share, with kubectl's names, meanings and spellings.

Connection flags follow cli-runtime/pkg/genericclioptions/config_flags.go; they are accepted
between `nodelife` and the verb as well as behind it, and of two values the one behind the verb
wins. Values are only carried from here: kubeconfig files and durations are read where they are
used. Left out: --username and --password, which kubectl itself takes only when asked to.

kubectl parses with pflag, where a switch may carry a value (`--ignore-daemonsets=true`) and a
short flag an equals sign (`-o=json`). Scripts are full of both, and click takes neither: groups of
commands (`SpellingGroup`, `LazyGroup`) rewrite them. Left out: pflag's `--flag=false` cannot switch
off a flag given earlier on the same line by a group.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kubectl_nodelife.dumps.file_size import SIZE_GIVEN, STRICT_GIVEN
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.live.connection import Connection as Connection
from kubectl_nodelife.live.connection import DeclaredFlag, flag_table, parse_timeout
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS
from kubectl_nodelife.report.formats import Output as Output
from kubectl_nodelife.report.terminal import ALWAYS, AUTO, NEVER, choose_color, choose_verbose

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


Callback = Callable[..., Any]


CONNECTION_FLAGS = flag_table(
    [field for field in Connection._fields if field != "in_cluster"],
    """
--kubeconfig=PATH           Path to the kubeconfig file to use.
--context=NAME              The kubeconfig context to use.
--namespace -n=NAME         The namespace to look in.
--as=NAME                   User name to impersonate.
--as-group=NAME             Group to impersonate; repeatable.
--request-timeout=DURATION  How long to wait for one request, such as 1s, 2m or 3h; 0 means for
    ever.

--cluster=NAME              The kubeconfig cluster to use.
--user=NAME                 The kubeconfig user to use.
--server -s=URL             Address and port of the API server.
--token=TOKEN               Bearer token for the API server.
--as-uid=UID                UID to impersonate.
--as-user-extra=KEY=VALUE   Extra field to impersonate; repeatable.
--tls-server-name=NAME      Name to check the server's certificate against, if not the server's
    host name.
--insecure-skip-tls-verify  Do not check the server's certificate. This makes the connection
    insecure.
--certificate-authority=PATH  File with the certificate of the authority.
--client-certificate=PATH   File with the client certificate.
--client-key=PATH           File with the client's key.
--cache-dir=PATH            The folder for caches.
--disable-compression       Ask the server not to compress its answers.
--max-response-size=SIZE    The longest answer taken from the API server, decompressed, and 16
    times the longest event of a watch. Default: 512Mi.
--via=POD                   Ask the daemon in the cluster, through the API server: deploy/NAME or
    pod/NAME in the namespace of -n, or NAMESPACE/deploy/NAME.
""",
)


_NAMES: Final = {flag.field: flag.name for flag in CONNECTION_FLAGS if flag.field != "token"}
_LEADING: Final = (
    *("kubeconfig", "context", "cluster", "user", "server", "impersonate", "impersonate_groups"),
    *("impersonate_uid", "impersonate_user_extra", "tls_server_name", "insecure_skip_tls_verify"),
    *("certificate_authority", "client_certificate", "client_key"),
)
"""Those that lead to a cluster as a user; kubectl's commands name the namespace themselves."""


def connection_arguments(connection: Connection, fields: Iterable[str] = _NAMES) -> list[str]:
    """The connection flags as arguments of another call of this program; the token is left out."""
    words = []
    for field in fields:
        value, name = getattr(connection, field), _NAMES[field]
        if isinstance(value, tuple):
            words += [f"{name}={each}" for each in value]
        elif value:
            words.append(name if value is True else f"{name}={value}")
    return words


def lead_to(connection: Connection, dump: Sequence[str] = (), settings: Sequence[str] = ()) -> None:
    """Let the commands that this process prints lead to that cluster, or to that dump, with these
    settings."""
    of_kubectl = connection_arguments(connection, _LEADING)
    ours = [*of_kubectl, *connection_arguments(connection, ("namespace", "via"))]
    terminal.choose_leading_flags(terminal.LeadingFlags(of_kubectl, ours, dump, settings))


def with_options(callback: Callback, options: Sequence[Callable[[Callback], Callback]]) -> Callback:
    """The callback with these options, which stand in this order in its --help."""
    for option in reversed(options):
        callback = option(callback)
    return callback


def gathered_flags(
    argument: str, values: type[NamedTuple], table: str, **more: Mapping[str, Any]
) -> Callable[[Callback], Callback]:
    """A decorator that gives a command these flags; its callback gets one argument with them.

    `values` holds them, with their defaults; `table`: a line for each field, see `flag_table`;
    `more`: by field, what click is told besides.
    """
    defaults: Mapping[str, Any] = values._field_defaults
    options = [
        _click_option(flag, defaults.get(flag.field), **more.get(flag.field, {}))
        for flag in flag_table(values._fields, table)
    ]

    def decorate(callback: Callback) -> Callback:
        @functools.wraps(callback)
        def with_flags(*args: Any, **kwargs: Any) -> Any:
            given = values._make(kwargs.pop(name) for name in values._fields)
            return callback(*args, **{argument: given}, **kwargs)

        return with_options(with_flags, options)

    return decorate


def connection_flags(callback: Callback) -> Callback:
    """Give a command or a group the connection flags; its callback gets one argument, `connection`.

    Stands below `@click.command()`. What is given to a group holds for the commands in it.
    """

    @click.pass_context
    @functools.wraps(callback)
    def with_connection(ctx: click.Context, *args: Any, **kwargs: Any) -> Any:
        given = Connection(**{flag.field: kwargs.pop(flag.field) for flag in CONNECTION_FLAGS})
        outer = ctx.find_object(Connection) or Connection()
        ctx.obj = outer.overridden_by(given)
        parse_timeout(given.request_timeout)  # where a daemon answers nobody else reads it
        lead_to(ctx.obj)
        return ctx.invoke(callback, *args, connection=ctx.obj, **kwargs)

    defaults = Connection._field_defaults
    options = (_click_option(flag, defaults[flag.field]) for flag in CONNECTION_FLAGS)
    return with_options(with_connection, (_VERBOSE, *options))


def _choose_verbose(ctx: click.Context, option: click.Parameter, level: int) -> None:
    if level:
        choose_verbose()


_VERBOSE = click.option(
    "-v",
    "--v",
    type=click.IntRange(0),
    default=0,
    metavar="LEVEL",
    expose_value=False,
    callback=_choose_verbose,
    help="As kubectl's; from 1 on warnings are shown in full.",
)


def _click_option(flag: DeclaredFlag, default: Any, **more: Any) -> Callable[[Callback], Callback]:
    kind: dict[str, Any] = {"is_flag": True}
    if flag.choices:
        kind = {"type": click.Choice(flag.choices)}
    elif flag.value:
        kind = {"metavar": flag.value, "multiple": isinstance(default, tuple)}
    if flag.value and default not in (None, ()):
        kind["default"] = default
    kind |= {"help": flag.help, "hidden": not flag.common, **more}
    return click.option(*flag.spellings, flag.field, **kind)


def output_flags(*formats: str) -> Callable[[Callback], Callback]:
    """Give a command `-o` and `--no-headers`; it gets one argument, `output` (an `Output`).

    Stands below `@click.command()`. `formats` are the keys of FORMATTERS allowed here, by default
    all; the first one is what is shown without `-o`.
    """
    allowed = formats or tuple(FORMATTERS)

    def check(ctx: click.Context, option: click.Parameter, value: str) -> str:
        if value in allowed:
            return value
        raise click.UsageError(
            f'unable to match a printer suitable for the output format "{value}", '
            f"allowed formats are: {','.join(sorted(allowed))}",
            ctx,
        )

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return [each for each in allowed if each.startswith(incomplete)]

    output = click.option(
        "-o",
        "--output",
        metavar="FORMAT",
        default=allowed[0],
        callback=check,
        shell_complete=complete,
        help=f"Output format, one of: {', '.join(allowed)}.",
    )
    no_headers = click.option(
        "--no-headers", is_flag=True, help="Leave the header row of tables out."
    )
    color = click.option(
        "--color",
        type=click.Choice([AUTO, ALWAYS, NEVER]),
        default=AUTO,
        expose_value=False,
        callback=lambda ctx, option, value: choose_color(value),
        help="Show verdicts in colour; auto: on a terminal, unless NO_COLOR is set.",
    )

    def decorate(callback: Callback) -> Callback:
        @functools.wraps(callback)
        def with_output(*args: Any, output: str, no_headers: bool, **kwargs: Any) -> Any:
            return callback(*args, output=Output(output, not no_headers), **kwargs)

        return output(no_headers(color(with_output)))

    return decorate


def _note_size(context: click.Context, _: click.Parameter, text: str | None) -> None:
    if text is None:
        return
    from kubectl_nodelife.kube.quantity import value as quantity_value

    try:
        size = quantity_value(text)
    except ValueError:
        size = 0
    if size <= 0:
        remedy = "give a number of bytes with a unit, such as 4Gi"
        raise BadInput(f'invalid size "{text}"', on="--max-file-size", remedy=remedy)
    context.meta[SIZE_GIVEN] = size


max_file_size = click.option(
    "--max-file-size",
    metavar="SIZE",
    expose_value=False,
    callback=_note_size,
    help="The longest file that -f takes, unpacked. Default: 2Gi.",
)
"""The flag, for verbs that take `-f`."""


def _note_strict(context: click.Context, _: click.Parameter, given: bool) -> None:
    context.meta[STRICT_GIVEN] = given


strict_files = click.option(
    "--strict",
    is_flag=True,
    expose_value=False,
    callback=_note_strict,
    help="Refuse a folder or archive with a file that holds no Kubernetes object.",
)
"""The flag, for verbs that take a dump."""


def duration_ns(text: str, flag: str) -> int:
    """A duration in Go's notation, in nanoseconds. Raises BadInput."""
    from kubectl_nodelife.kube.times import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(str(error), on=flag) from None


def waiting_ns(text: str, flag: str) -> int:
    """The same of one that may not be negative."""
    if (parsed := duration_ns(text, flag)) < 0:
        raise BadInput("must not be negative", on=flag)
    return parsed


def look_back_ns(text: str) -> int:
    """How far back `--since` looks, in nanoseconds. Raises BadInput."""
    if (span_ns := duration_ns(text, "--since")) <= 0:
        raise BadInput(f"{text} is not longer than zero", on="--since", remedy="write 10m or so")
    return span_ns


answer_by: ContextVar[float | None] = ContextVar("answer by", default=None)
"""When looks at a cluster must be over, in seconds of the monotonic clock; None: no limit."""


class Where(NamedTuple):
    """The flags as given. `filename`: dumps, else the cluster that `connection` means is asked."""

    connection: Connection
    filename: tuple[str, ...] = ()
    now: str | None = None
    no_daemon: bool = False
    profile: str | None = None
    assignments: tuple[str, ...] = ()

    @property
    def direct(self) -> bool:
        """True if a daemon would be of no use: it has settings of its own."""
        return self.no_daemon or bool(self.profile or self.assignments)

    def dump_flags(self) -> list[str]:
        """The flags that lead to the dump again; what came through a pipe is gone."""
        if not self.filename or "-" in self.filename:
            return []
        words = [word for path in self.filename for word in ("-f", path)]
        return [*words, "--now", self.now] if self.now else words

    def lead_here(self) -> None:
        """Let the commands that this process prints ask the same cluster or dump, by the same
        settings."""
        settings = [f"--profile={self.profile}"] if self.profile else []
        settings += [f"--set={each}" for each in self.assignments]
        lead_to(self.connection, self.dump_flags(), settings)

    def check(self) -> None:
        """Raises BadInput for flags that do not go together."""
        if self.connection.via and (self.filename or self.direct):
            what = "asks a daemon, which a dump and settings of your own are without"
            raise BadInput(what, on="--via", remedy="leave one of the two away")
        if self.now and not self.filename:
            raise BadInput("is for dumps", on="--now", remedy="name a dump with -f")

    def of_forked_answer(self) -> Where:
        """The same for a question that a daemon answers in a forked child. One of this machine can
        be forked on Linux only, and elsewhere is not asked; one in the cluster (--via) is.
        """
        if sys.platform == "linux" or self.connection.via:
            return self
        return self._replace(no_daemon=True)


_WHERE_FLAGS: Final = flag_table(
    Where._fields[1:],
    """
-f --filename=PATH  A dump, not a cluster.
--now=TIME          The dump's moment, RFC 3339.
--no-daemon         Look at the cluster directly.
--profile=v1.N      Kubernetes release whose behaviour is followed.
--set=FLAG=VALUE    A setting.
""",
)
_OF_ALL: Final = ("filename", "now")


def where_flags(*fields: str) -> Callable[[Callback], Callback]:
    """Give a command the flags of a dump and of a connection; its callback gets one argument,
    `where`. Stands below `@click.command()`, in the place of `connection_flags`. `fields`: those of
    `Where` for which it has flags besides.
    """
    taken = [flag for flag in _WHERE_FLAGS if flag.field in (*_OF_ALL, *fields)]
    own = [_click_option(flag, Where._field_defaults[flag.field]) for flag in taken]

    def decorate(callback: Callback) -> Callback:
        @functools.wraps(callback)
        def with_where(*args: Any, connection: Connection, **kwargs: Any) -> Any:
            given = {flag.field: kwargs.pop(flag.field) for flag in taken}
            where = Where(connection, **given)
            where.lead_here()
            return callback(*args, where=where, **kwargs)

        return with_options(connection_flags(with_where), (*own, max_file_size, strict_files))

    return decorate


# As Go's strconv.ParseBool.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when it is called, and lists commands in sections.

    `groups`: heading -> name -> `MODULE:COMMAND` below `folder`, and the line in --help; `also`:
    names that are not listed -> those that they stand for.
    """

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, Mapping[str, tuple[str, str]]],
        folder: str,
        also: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.groups, self.folder, self.also = groups, folder, also or {}
        self.verbs = {name: verb for verbs in groups.values() for name, verb in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(self.also.get(cmd_name, cmd_name))
        if verb is None:
            return None
        module, _, name = verb[0].partition(":")
        command = getattr(importlib.import_module(f"{self.folder}.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.verbs))
        for heading, verbs in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(verb.ljust(widest), line) for verb, (_, line) in verbs.items()]
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        # click's own imports every verb's module.
        verbs = [
            CompletionItem(verb, help=line)
            for verb, (_, line) in self.verbs.items()
            if verb.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # What stands behind the verb is for the verb to read; rewriting it twice does no harm.
        return super().parse_args(ctx, in_click_spelling(self, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        command = self.get_command(ctx, args[0])
        if command is None:
            raise click.NoSuchCommand(args[0], possibilities=self.verbs, ctx=ctx)
        return args[0], command, in_click_spelling(command, args[1:])


def in_click_spelling(command: click.Command, args: Sequence[str]) -> list[str]:
    """`args` of `command`, up to `--`, rewritten; raises click.UsageError as kubectl would."""
    switches: dict[str, str] = {}
    shorts: set[str] = set()
    for param in command.params:
        if isinstance(param, click.Option):
            if param.is_flag:
                off = (*param.secondary_opts, "")[0]
                switches.update(dict.fromkeys(param.opts, off))
            shorts.update(name for name in param.opts if len(name) == 2)
    end = args.index("--") if "--" in args else len(args)
    rewritten = _rewritten(args[:end], switches, shorts)
    return [*rewritten, *args[end:]]


def _rewritten(args: Sequence[str], switches: Mapping[str, str], shorts: set[str]) -> Iterator[str]:
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals and name in switches:
            if value not in _BOOLEANS:
                raise click.UsageError(
                    f'invalid argument "{value}" for "{name}" flag: give true or false'
                )
            if chosen := name if _BOOLEANS[value] else switches[name]:
                yield chosen
        elif equals and name in shorts:
            yield from (name + value,) if value else (name, "")
        else:
            yield arg


class SpellingGroup(click.Group):
    """A group whose commands take kubectl's spellings of flags."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, in_click_spelling(command, rest) if command is not None else rest


class DefaultGroup(SpellingGroup):
    """Such a group that without the name of a command runs one of them, with all arguments.

    `default`: its name. The group's options may stand before a command's name, as everywhere.
    """

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": False, **kwargs})
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # To complete the first word, the group stands for itself and for its default.
        undecided = ctx.resilient_parsing if not args else args[0] in ctx.help_option_names
        if not undecided and self._first_word(args) not in self.commands:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _first_word(self, args: Sequence[str]) -> str | None:
        """The first argument that is neither an option of the group nor the value of one."""
        with_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        }
        words = iter(args)
        for word in words:
            if not word.startswith("-"):
                return word
            if word in with_value:
                next(words, None)
        return None
