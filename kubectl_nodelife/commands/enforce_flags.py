"""Flags of enforce mode, and the question before it begins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from kubectl_nodelife.daemon.identity_cache import CachedIdentity
from kubectl_nodelife.errors import BadInput, Refused

if TYPE_CHECKING:
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

_OPTIONS = (
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


def enforce_flags(callback: Any) -> Any:
    """The flags of `daemon start` and `daemon run`."""
    for option in reversed(_OPTIONS):
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


def as_arguments(given: dict[str, Any]) -> list[str]:
    """The flags as arguments of another call of this program; none where nothing is enforced."""
    if not given["enforce"]:
        return []
    words = [f"--enforce={given['enforce']}", f"--begin={given['begin']}"]
    words += [f"--assume-stopped={given['assume_stopped']}"] if given["assume_stopped"] else []
    words += [f"--caps={given['caps']}"] if given["caps"] else []
    words += [f"--cap={cap}" for cap in given["single_caps"]]
    words += [f"--max-writes={given['max_writes']}"] if given["max_writes"] is not None else []
    words += [f"--lease-namespace={given['lease_namespace']}"]
    flags = {"wait": "--wait", "insecure_enforce": "--insecure-enforce", "yes": "--yes"}
    return words + [flag for name, flag in flags.items() if given[name]]


def confirm(given: dict[str, Any], known: CachedIdentity) -> None:
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
