"""`kubectl nodelife upgrade`: the group, and where each of its verbs is."""

from __future__ import annotations

from typing import Final

import click

from kubectl_nodelife.commands.flags import Connection, LazyGroup, connection_flags

VERBS: Final[dict[str, tuple[str, str]]] = {
    "preview": (
        "start:preview",
        "Say what a newer release of Kubernetes changes for this cluster's nodes.",
    ),
    "plan": (
        "start:plan",
        "Show what an upgrade would do, how long it takes, and how low the cluster gets.",
    ),
    "start": ("start:start", "Show the plan, ask, and lead the run to its end."),
    "status": ("orders:status", "Show a run: leader, gates, each node's state and why."),
    "pause": ("orders:pause", "Pause a run: nothing more is taken out of service."),
    "resume": ("orders:resume", "End a pause, and forgive the failures so far."),
    "abort": ("orders:abort", "End a run in good order."),
    "prove": ("start:prove", "Prove that nodes are usable, as they are."),
    "clean": ("orders:clean", "Take off what runs have left behind."),
}
"""Verb -> where its click command is, and its line in --help. The order is the one of --help."""


@click.group(cls=LazyGroup, groups={"Commands": VERBS}, folder=__name__)
@connection_flags
def upgrade(connection: Connection) -> None:
    """Take nodes out of service, have something done to them, prove them, and give them back.

    Never below a floor of available nodes, one node first and then more; a run can be left at any
    point and gone on with on any machine, for all that it knows stands on the nodes.
    """
