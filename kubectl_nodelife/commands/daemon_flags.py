"""Flags of `daemon start`, `run` and `install`: enforce mode and the question before it begins, the
metrics that a daemon serves, how it notifies people.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from kubectl_nodelife.daemon.identity_cache import CachedIdentity
from kubectl_nodelife.errors import BadInput, Refused

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.options import MetricsOptions, NotifyOptions
    from kubectl_nodelife.daemon.preflight import Orders


NAMES: Final = {
    "node-lifecycle": "node-lifecycle",
    "node-lifecycle-controller": "node-lifecycle",
    "nodelifecycle": "node-lifecycle",
    "taint-eviction": "taint-eviction",
    "taint-eviction-controller": "taint-eviction",
    "pod-gc": "pod-gc",
    "pod-garbage-collector-controller": "pod-gc",
    "podgc": "pod-gc",
    "daemonset": "daemonset",
    "daemonset-controller": "daemonset",
}
"""Names of controllers, upstream's too -> ours."""

_ENFORCE_OPTIONS = (
    click.option("--enforce", metavar="C[,C...]", help="Controllers whose writes are sent."),
    click.option(
        "--assume-stopped", metavar="C[,C...]", help="You vouch that nothing else runs these."
    ),
    click.option(
        "--begin",
        type=click.Choice(("join", "restart")),
        default="join",
        show_default=True,
        help="Take over without disturbing, or as a restarted controller manager.",
    ),
    click.option("--caps", type=click.Choice(("upstream",)), help="Upstream's own limits only."),
    click.option("--cap", "single_caps", multiple=True, metavar="NAME=N", help="A cap of its own."),
    click.option("--max-writes", type=int, metavar="N", help="So many writes in all."),
    click.option(
        "--lease-namespace",
        default="kube-system",
        show_default=True,
        metavar="NS",
        help="Where the Lease of the one writer is.",
    ),
    click.option("--wait", is_flag=True, help="Wait for the Lease while another one holds it."),
    click.option("--insecure-enforce", is_flag=True, help="Without verified TLS; labs only."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
)


_METRICS_OPTIONS = (
    click.option(
        "--metrics-bind-address",
        metavar="HOST:PORT",
        default="",
        help="Serve /metrics, /healthz, /readyz there, as in 127.0.0.1:9876. Default: off.",
    ),
    click.option("--metrics-per-node", is_flag=True, help="Two more metrics for each node."),
    click.option("--metrics-plain-zones", is_flag=True, help="Zones as in status: REGION/ZONE."),
    click.option("--metrics-token-file", metavar="FILE", default="", help="A bearer token."),
    click.option("--metrics-tls-cert-file", metavar="FILE", default="", help="Serve by TLS."),
    click.option("--metrics-tls-key-file", metavar="FILE", default="", help="Its key."),
)
_NOTIFY_OPTIONS = (
    click.option(
        "--notify", metavar="CMD", default="", help="Run it with each notice as JSON on stdin."
    ),
    click.option(
        "--webhook", metavar="URL", default="", help="Post each notice there as JSON; https."
    ),
    click.option("--notify-on", metavar="LIST", default="", help="Only these events."),
)
_ANSWERS = click.option(
    "--serve-answers",
    type=click.IntRange(1024, 65535),
    is_flag=False,
    flag_value=9877,
    metavar="PORT",
    help="Answer at a port of 127.0.0.1 (9877), for --via. Default: off.",
)


def daemon_flags(callback: Any) -> Any:
    """The flags of `daemon start` and `daemon run`, in one dict `given`."""
    for option in reversed((*_ENFORCE_OPTIONS, *_METRICS_OPTIONS, *_NOTIFY_OPTIONS, _ANSWERS)):
        callback = option(callback)
    return callback


def orders_of(given: dict[str, Any]) -> Orders:
    """The flags as orders. Raises BadInput."""
    from kubectl_nodelife.daemon.preflight import Orders
    from kubectl_nodelife.engine.guard import CAP_NAMES

    for text in given["single_caps"]:
        name, _, value = text.partition("=")
        if name not in CAP_NAMES or not value.isdecimal():
            raise BadInput(
                f"{text!r} is no cap",
                on="--cap",
                remedy=f"give one of {', '.join(CAP_NAMES)}, =, a number",
            )
    return Orders(
        controllers=controller_names(given["enforce"], "--enforce"),
        assume_stopped=controller_names(given["assume_stopped"], "--assume-stopped"),
        begin=given["begin"],
        caps=given["caps"] or "",
        single_caps=given["single_caps"],
        max_writes=given["max_writes"],
        lease_namespace=given["lease_namespace"],
        wait=given["wait"],
        insecure=given["insecure_enforce"],
        yes=given["yes"],
    )


def confirm_enforcing(given: dict[str, Any], known: CachedIdentity) -> None:
    """Ask a person before anything is enforced. Raises Refused without an answer."""
    if given["yes"]:
        return
    if not sys.stdin.isatty():
        raise Refused(
            "there is no terminal to ask on whether this cluster may be written to",
            on=known.server,
            remedy="give --yes",
        )
    question = f"Enforce {given['enforce']} on {known.context or 'the cluster'} ({known.server})?"
    if not click.confirm(question, err=True):
        raise Refused("not confirmed", on=known.server)


def controller_names(text: str | None, flag: str) -> tuple[str, ...]:
    """Our names of the controllers in a flag's value. Raises BadInput."""
    found = []
    for word in (text or "").split(","):
        if not word:
            continue
        name = NAMES.get(word.strip())
        if name is None:
            raise BadInput(
                f"there is no controller {word!r} that can be enforced",
                on=flag,
                remedy="they are node-lifecycle, taint-eviction, pod-gc and daemonset",
            )
        if name not in found:
            found.append(name)
    return tuple(found)


def metrics_of(given: dict[str, Any]) -> MetricsOptions:
    """The flags as a value, with absolute paths. Raises BadInput."""
    from kubectl_nodelife.daemon.options import MetricsOptions

    def path(name: str) -> str:
        return os.path.abspath(given[name]) if given[name] else ""

    options = MetricsOptions(
        bind_address=given["metrics_bind_address"],
        per_node=given["metrics_per_node"],
        plain_zones=given["metrics_plain_zones"],
        token_file=path("metrics_token_file"),
        tls_cert_file=path("metrics_tls_cert_file"),
        tls_key_file=path("metrics_tls_key_file"),
    )
    options.check()
    return options


def notify_of(given: dict[str, Any]) -> NotifyOptions:
    """The flags as a value. Raises BadInput."""
    from kubectl_nodelife.daemon.options import NotifyOptions

    events = tuple(filter(None, given["notify_on"].split(",")))
    options = NotifyOptions(given["notify"], given["webhook"], events)
    options.check()
    return options


def given_arguments(options: Iterable[click.Parameter], given: dict[str, Any]) -> list[str]:
    """The flags as arguments of another call of this program, without the webhook, which goes by a
    pipe. Raises BadInput.
    """
    metrics_of(given)
    notify_of(given)
    words = []
    for option in options:
        value, flag = given.get(str(option.name)), option.opts[0]
        if value is True:
            words.append(flag)
        elif value is not False and value not in (None, "", ()) and option.name != "webhook":
            is_path = str(option.name).endswith("_file")
            values = value if isinstance(value, tuple) else (value,)
            words += [f"{flag}={os.path.abspath(one) if is_path else one}" for one in values]
    return words
