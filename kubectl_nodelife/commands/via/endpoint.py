"""The daemon in the cluster, as `ask` sees it: found once a command, asked through the API server.

An answer is taken from a daemon of the same cluster only, told by the UID of kube-system as both
sides read it: addresses say nothing, since a pod has another one for its API server than we have.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from kubectl_nodelife.commands.daemon_endpoint import DaemonEndpoint, resolve
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.via.pods import REMEDY, find_pods, parse_via
from kubectl_nodelife.commands.via.tunnel import Tunnel
from kubectl_nodelife.daemon.client import ANSWER_SECONDS, OtherProtocol
from kubectl_nodelife.daemon.identity_cache import CachedIdentity
from kubectl_nodelife.errors import Failed, NodelifeError
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.port_forward import PortForward, forward
from kubectl_nodelife.live.requests import PodPort
from kubectl_nodelife.live.same_cluster import cluster_uid
from kubectl_nodelife.live.target import Target, find_target

_UID: Final = "uid of namespace kube-system"


class ViaEndpoint(DaemonEndpoint):
    """See the module. `cluster_uid`: of the cluster that the kubeconfig means."""

    __slots__ = ("cluster_uid",)

    def __init__(self, tunnel: Tunnel, known: CachedIdentity, uid: str) -> None:
        super().__init__(tunnel, known)
        self.cluster_uid = uid

    def check(self, answer: dict[str, Any]) -> None:
        """Raises Failed for an answer about another cluster, or about one that is not known."""
        theirs = answer.get("clusterUid")
        if not theirs:
            raise Failed(
                f"the daemon there does not know its cluster's {_UID}",
                on=str(self.socket),
                remedy="its role must let it get that namespace",
            )
        if theirs != self.cluster_uid:
            raise Failed(
                f"the daemon there watches another cluster ({answer.get('server')})",
                on=str(self.socket),
                remedy="look at how it was started",
            )

    def replace(self, other: OtherProtocol, token: str | None) -> None:
        """Raises Failed: the daemon there is nobody's to start anew from here."""
        raise Failed(
            other.what, on=str(self.socket), remedy="use the same version here and in the image"
        )


class _Pods:
    """Finds the pods once, and again where none of them can be reached any more."""

    def __init__(self, target: Target, connection: Connection) -> None:
        self._client = Client(Session(target, os.environ))
        self._via = parse_via(connection.via or "")
        self._namespace = self._via.namespace or target.namespace
        self._found: list[PodPort] = []

    async def uid(self) -> str:
        """Of the cluster that is asked. Raises Failed where it may not be read."""
        uid = await cluster_uid(self._client)
        if not uid:
            what = f"the {_UID} cannot be read: which cluster answers would be unknown"
            raise Failed(what, on=self._client.server, remedy=REMEDY)
        return uid

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def open(self) -> PortForward:
        """A stream to the first pod that can be reached. Raises NodelifeError."""
        known = bool(self._found)
        self._found = self._found or await find_pods(self._client, self._via, self._namespace)
        failure: NodelifeError | None = None
        for pod in list(self._found):
            try:
                return await forward(self._client, pod)
            except NodelifeError as error:
                failure = failure or _told(error, pod)
                self._found.remove(pod)
        if known:
            return await self.open()
        assert failure is not None
        raise failure


def _told(error: NodelifeError, pod: PodPort) -> NodelifeError:
    if getattr(error, "code", 0) == 403:
        error.remedy = REMEDY
    error.on = f"{pod}: {error.on}"
    return error


@functools.cache
def find(connection: Connection) -> ViaEndpoint:
    """The way to the daemon that `--via` names. Raises NodelifeError."""
    direct = connection._replace(via=None)
    target = find_target(direct, os.environ)
    pods = _Pods(target, connection)
    tunnel = Tunnel(pods.open, pods.close, f"daemon via {connection.via}")
    uid = tunnel.run(pods.uid(), ANSWER_SECONDS)
    return ViaEndpoint(tunnel, resolve(direct), uid)
