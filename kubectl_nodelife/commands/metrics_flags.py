"""Flags of the metrics that a daemon serves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.options import MetricsOptions

_OPTIONS = (
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


def metrics_flags(callback: Any) -> Any:
    """The flags of `daemon start` and `daemon run`."""
    for option in reversed(_OPTIONS):
        callback = option(callback)
    return callback


def metrics_of(given: dict[str, Any]) -> MetricsOptions:
    """The flags as a value, with absolute paths. Raises BadInput."""
    from kubectl_nodelife.daemon.metrics.options import MetricsOptions

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


def metrics_arguments(given: dict[str, Any]) -> list[str]:
    """The flags as arguments of another call of this program. Raises BadInput."""
    options = metrics_of(given)
    flags = {
        "--metrics-bind-address": options.bind_address,
        "--metrics-token-file": options.token_file,
        "--metrics-tls-cert-file": options.tls_cert_file,
        "--metrics-tls-key-file": options.tls_key_file,
    }
    switches = {
        "--metrics-per-node": options.per_node,
        "--metrics-plain-zones": options.plain_zones,
    }
    words = [f"{flag}={value}" for flag, value in flags.items() if value]
    return words + [flag for flag, is_on in switches.items() if is_on]
