"""The flags that select which cluster a verb looks at, and how."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import (
    Callback,
    Connection,
    connection_flags,
    lead_to,
    max_file_size,
    strict_files,
)
from kubectl_nodelife.errors import BadInput

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


_OPTIONS: Final[dict[str, Callable[[Callback], Callback]]] = {
    "filename": click.option(
        "-f", "--filename", multiple=True, metavar="PATH", help="A dump, not a cluster."
    ),
    "now": click.option("--now", metavar="TIME", help="The dump's moment, RFC 3339."),
    "no_daemon": click.option("--no-daemon", is_flag=True, help="Look at the cluster directly."),
    "profile": click.option(
        "--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed."
    ),
    "assignments": click.option(
        "--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting."
    ),
}
_OF_ALL: Final = ("filename", "now")


def where_flags(*fields: str) -> Callable[[Callback], Callback]:
    """Give a command the flags of a dump and of a connection; its callback gets one argument,
    `where`.

    Stands below `@click.command()`, in the place of `connection_flags`. `fields`: those of `Where`
    for which it has flags besides.
    """
    taken = tuple(field for field in _OPTIONS if field in _OF_ALL or field in fields)
    options = (*(_OPTIONS[field] for field in taken), max_file_size, strict_files)

    def decorate(callback: Callback) -> Callback:
        @functools.wraps(callback)
        def with_where(*args: Any, connection: Connection, **kwargs: Any) -> Any:
            given = {field: kwargs.pop(field) for field in taken}
            where = Where(connection, **given)
            lead_to(connection, where.dump_flags())
            return callback(*args, where=where, **kwargs)

        decorated = connection_flags(with_where)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
