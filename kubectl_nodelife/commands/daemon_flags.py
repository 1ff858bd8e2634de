"""The options of `daemon start`, `run` and `install` as click takes them, made of the table in
`daemon/flags.py`; and the question before a daemon enforces anything.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from kubectl_nodelife.daemon.flags import (
    DaemonFlag,
    DaemonFlags,
    default_of,
    flags_of,
    parse_flags,
)
from kubectl_nodelife.daemon.paths import CachedIdentity
from kubectl_nodelife.errors import Refused

Callback = Callable[..., Any]


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
            option = _option(flag._replace(help=text), default_of(group, field))
            decorated = option(decorated)
        return decorated

    return decorate


def _parameter(flag: DaemonFlag) -> str:
    return flag.name.removeprefix("--").replace("-", "_")


def _option(flag: DaemonFlag, default: Any) -> Callable[[Callback], Callback]:
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


def confirm_enforcing(flags: DaemonFlags, cluster: CachedIdentity) -> DaemonFlags:
    """Ask a person before anything is enforced. The flags with that yes.

    Raises Refused without an answer.
    """
    if flags.orders.yes:
        return flags
    if not sys.stdin.isatty():
        raise Refused(
            "there is no terminal to ask on whether this cluster may be written to",
            on=cluster.server,
            remedy="give --yes",
        )
    names = ",".join(flags.orders.controllers)
    question = f"Enforce {names} on {cluster.context or 'the cluster'} ({cluster.server})?"
    if not click.confirm(question, err=True):
        raise Refused("not confirmed", on=cluster.server)
    return flags.confirmed()
