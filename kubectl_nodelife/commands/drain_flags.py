"""The flags that `drain-plan` and `drain` share: kubectl drain's, and those of our own waves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.flags import waiting_ns
from kubectl_nodelife.drain.options import CORDON_BY_WAVE, CORDON_FIRST, WaveOptions
from kubectl_nodelife.errors import BadInput

if TYPE_CHECKING:  # `--help` needs neither selectors nor msgspec
    from kubectl_nodelife.sim.kubectl.options import DrainOptions

_OPTIONS = (
    click.option("--force", is_flag=True, help="As kubectl drain: pods without a controller too."),
    click.option("--ignore-daemonsets", is_flag=True, help="As kubectl drain."),
    click.option("--delete-emptydir-data", is_flag=True, help="As kubectl drain."),
    click.option(
        "--grace-period", type=int, default=-1, metavar="SECONDS", help="As kubectl drain."
    ),
    click.option("--timeout", default="0s", metavar="DURATION", help="As kubectl drain: per node."),
    click.option("--disable-eviction", is_flag=True, help="As kubectl drain: delete, no budgets."),
    click.option("--pod-selector", default="", metavar="SELECTOR", help="As kubectl drain."),
    click.option(
        "--skip-wait-for-delete-timeout",
        type=int,
        default=0,
        metavar="SECONDS",
        help="As kubectl drain.",
    ),
    click.option(
        "--max-parallel", type=int, metavar="N", help="Waves of our own, of up to N nodes."
    ),
    click.option(
        "--max-per-zone", type=int, metavar="N", help="With waves: up to N nodes of a zone."
    ),
    click.option(
        "--low-water", type=float, metavar="PERCENT", help="With waves: free capacity to keep."
    ),
    click.option(
        "--cordon",
        type=click.Choice((CORDON_FIRST, CORDON_BY_WAVE)),
        help="With waves: all nodes first, or those of a wave when it begins; else the better.",
    ),
    click.option(
        "--maintenance", default="0s", metavar="DURATION", help="With waves: a node's time out."
    ),
)


def drain_flags(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these flags."""
    for option in reversed(_OPTIONS):
        callback = option(callback)
    return callback


def drain_options(flags: dict[str, Any]) -> DrainOptions:
    """kubectl drain's flags. Raises BadInput."""
    from kubectl_nodelife.kube.selectors import parse_selector
    from kubectl_nodelife.sim.kubectl.options import DrainOptions

    try:
        parse_selector(flags["pod_selector"])
    except ValueError as error:
        raise BadInput(
            f"--pod-selector=<pod_selector> must be a valid label selector: {error}",
            on="--pod-selector",
        ) from None
    return DrainOptions(
        force=flags["force"],
        ignore_daemonsets=flags["ignore_daemonsets"],
        delete_emptydir_data=flags["delete_emptydir_data"],
        grace_period_seconds=flags["grace_period"],
        timeout_ns=waiting_ns(flags["timeout"], "--timeout"),
        disable_eviction=flags["disable_eviction"],
        pod_selector=flags["pod_selector"],
        skip_wait_seconds=flags["skip_wait_for_delete_timeout"],
    )


def wave_options(flags: dict[str, Any]) -> WaveOptions | None:
    """The options of our own waves, None without --max-parallel. Raises BadInput."""
    maintenance_ns = waiting_ns(flags["maintenance"], "--maintenance")
    if flags["max_parallel"] is None:
        for flag in ("max_per_zone", "low_water", "cordon"):
            if flags[flag] is not None:
                name = "--" + flag.replace("_", "-")
                raise BadInput("is about waves", on=name, remedy="give --max-parallel N too")
        if maintenance_ns:
            raise BadInput("is about waves", on="--maintenance", remedy="give --max-parallel N too")
        return None
    for flag in ("max_parallel", "max_per_zone"):
        if flags[flag] is not None and flags[flag] < 1:
            raise BadInput("must be at least 1", on="--" + flag.replace("_", "-"))
    low_water = flags["low_water"]
    if low_water is not None and not 0 <= low_water < 100:
        raise BadInput("is a percentage from 0 to 100", on="--low-water")
    return WaveOptions(
        flags["max_parallel"], flags["max_per_zone"], low_water, maintenance_ns, flags["cordon"]
    )
