"""Flags by which a daemon notifies people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.notify.options import NotifyOptions

_OPTIONS = (
    click.option(
        "--notify", metavar="CMD", default="", help="Run it with each notice as JSON on stdin."
    ),
    click.option(
        "--webhook", metavar="URL", default="", help="Post each notice there as JSON; https."
    ),
    click.option("--notify-on", metavar="LIST", default="", help="Only these events."),
)


def notify_flags(callback: Any) -> Any:
    """The flags of `daemon start` and `daemon run`."""
    for option in reversed(_OPTIONS):
        callback = option(callback)
    return callback


def notify_of(given: dict[str, Any]) -> NotifyOptions:
    """The flags as a value. Raises BadInput."""
    from kubectl_nodelife.daemon.notify.options import NotifyOptions

    events = tuple(filter(None, given["notify_on"].split(",")))
    options = NotifyOptions(given["notify"], given["webhook"], events)
    options.check()
    return options


def notify_arguments(given: dict[str, Any]) -> list[str]:
    """The flags as arguments of another call of this program. Raises BadInput."""
    notify_of(given)
    flags = ("notify", "webhook", "notify_on")
    return [f"--{name.replace('_', '-')}={given[name]}" for name in flags if given[name]]
