"""The way to a cluster's daemon on this machine, and which cluster the flags mean.

On the quick path of every live verb: nothing heavy is imported unless the kubeconfig must be read.
"""

from __future__ import annotations

import os

from kubectl_nodelife.daemon import client
from kubectl_nodelife.daemon.paths import CachedIdentity, log_path, remember
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.report import terminal

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    from typing import Any

    from kubectl_nodelife.commands.flags import Connection


class DaemonEndpoint:
    """The way to one cluster's daemon."""

    __slots__ = ("known", "socket")

    def __init__(self, socket: str | client.Way, known: CachedIdentity) -> None:
        self.socket = socket
        self.known = known

    def check(self, answer: dict[str, Any]) -> None:
        """Raises Failed where the answer is from a daemon that watches another cluster."""
        server = answer.get("server")
        if server != self.known.server:
            raise Failed(
                f"the daemon watches {server}, but the kubeconfig means {self.known.server}",
                on=str(self.socket),
                remedy="run: kubectl nodelife daemon restart",
            )

    def replace(self, other: client.OtherProtocol, token: str | None) -> None:
        """Start the daemon anew, by the program that is here now. Raises NodelifeError."""
        from kubectl_nodelife.daemon.instance import Instance, restart

        terminal.note(f"{other.what}: it is started anew")
        runtime, identity = os.path.dirname(str(self.socket)), self.known.identity
        log = log_path(dict(os.environ), runtime, identity)
        restart(Instance(runtime, identity), log, {"token": token} if token else {})


def resolve(connection: Connection, runtime: str = "") -> CachedIdentity:
    """The slow way: read the kubeconfig. With `runtime` the finding is kept there.

    Raises BadInput.
    """
    from kubectl_nodelife.live.kubeconfig import kubeconfig_files
    from kubectl_nodelife.live.target import cluster_identity, find_target

    overrides = connection._replace(namespace=None)
    target = find_target(overrides, os.environ)
    cluster = CachedIdentity(
        cluster_identity(target), target.server, target.context, target.namespace
    )
    if target.files and runtime:
        files = kubeconfig_files(overrides.kubeconfig, os.environ)
        authority = target.cluster.certificate_authority
        remember(
            runtime, connection, os.environ, cluster, (*files, *([authority] if authority else []))
        )
    return cluster
