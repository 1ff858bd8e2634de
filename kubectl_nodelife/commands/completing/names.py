"""Names for completion: of objects from a daemon that runs, of contexts from the kubeconfig.

Everything heavy is imported where it is needed. A daemon has 200 ms to answer, and none is started.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kubectl_nodelife.errors import NodelifeError

if TYPE_CHECKING:
    from kubectl_nodelife.commands.flags import Connection
    from kubectl_nodelife.live.kubeconfig import KubeConfig

SECONDS = 0.2

Candidate = tuple[str, str]


def ask(
    connection: Connection, kind: str, prefix: str, *, everywhere: bool = False
) -> list[Candidate]:
    """The names of that kind that begin so, with descriptions; none where no daemon tells them."""
    from kubectl_nodelife.commands.ask import find
    from kubectl_nodelife.daemon import client

    try:
        endpoint = find(connection)
        if endpoint is None:
            return []
        namespace = connection.namespace or endpoint.known.namespace
        answer = client.ask(
            endpoint.socket,
            "names",
            seconds=SECONDS,
            kind=kind,
            prefix=prefix,
            namespace="" if everywhere else namespace,
        )
    except NodelifeError:
        return []
    if answer.get("server") != endpoint.known.server:
        return []
    return [(str(name), str(said)) for name, said in answer.get("items", ())]


def contexts(connection: Connection) -> Iterable[Candidate]:
    """The kubeconfig's contexts, with their clusters."""
    config = _kubeconfig(connection)
    return [(name, config.contexts[name].cluster) for name in sorted(config.contexts)]


def clusters(connection: Connection) -> Iterable[Candidate]:
    """The kubeconfig's clusters, with their servers."""
    config = _kubeconfig(connection)
    return [(name, config.clusters[name].server) for name in sorted(config.clusters)]


def users(connection: Connection) -> Iterable[Candidate]:
    """The kubeconfig's users."""
    return [(name, "") for name in sorted(_kubeconfig(connection).users)]


def settings() -> Iterable[Candidate]:
    """What --set takes, as `flag=`, each with its newest default."""
    from kubectl_nodelife.engine.settings import FLAGS

    return [(f"{flag.name}=", f"default {flag.defaults[-1][1]}") for flag in FLAGS.values()]


def profiles() -> Iterable[Candidate]:
    """The Kubernetes releases whose behaviour can be followed, newest first."""
    from kubectl_nodelife.engine.profiles import NEWEST, OLDEST

    newest, oldest = (int(profile.removeprefix("v1.")) for profile in (NEWEST, OLDEST))
    return [(f"v1.{minor}", "") for minor in range(newest, oldest - 1, -1)]


def _kubeconfig(connection: Connection) -> KubeConfig:
    from kubectl_nodelife.live.kubeconfig import kubeconfig_files, load_kubeconfig

    return load_kubeconfig(kubeconfig_files(connection.kubeconfig, os.environ))
