"""Builds the metrics and notifications of a daemon from its options.

prometheus_client is imported for one that serves metrics only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kubectl_nodelife.daemon.metrics.recorder import Measured, MetricsRecorder
from kubectl_nodelife.daemon.notify.notifier import Notifier
from kubectl_nodelife.daemon.options import Options

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.endpoint import MetricsEndpoint


class Metrics(NamedTuple):
    """The recorder, who serves what it keeps, and who notifies of it; None where not asked for."""

    recorder: MetricsRecorder
    endpoint: MetricsEndpoint | None
    notifier: Notifier | None


def make_metrics(options: Options, daemon: Measured) -> Metrics | None:
    """None where neither was asked for."""
    notify = options.notify
    asked = bool(notify.command or notify.webhook)
    if not options.metrics.bind_address and not asked:
        return None
    recorder = MetricsRecorder(daemon, per_node=options.metrics.per_node)
    notifier = None
    if asked:
        notifier = Notifier(recorder, notify, daemon.cluster.server, options.environ)
    if not options.metrics.bind_address:
        return Metrics(recorder, None, notifier)
    from kubectl_nodelife.daemon.metrics.endpoint import MetricsEndpoint

    return Metrics(recorder, MetricsEndpoint(recorder, options.metrics), notifier)
