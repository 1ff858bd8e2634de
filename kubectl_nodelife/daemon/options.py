"""The options of a daemon process: flags, environment, and the parent that waits for it, if any."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubectl_nodelife.daemon.flags import DaemonFlags
from kubectl_nodelife.daemon.settings import ClusterConfig
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.target import Target, cluster_identity, find_target


class Options(msgspec.Struct, frozen=True):
    """How a daemon was asked for. `ready_fd`: the pipe to its parent, None in the foreground.

    `arguments` start another one like it, apart from secrets. `report` prints the line that says
    what it enforces.
    """

    overrides: Connection
    environ: Mapping[str, str]
    flags: DaemonFlags = DaemonFlags()
    arguments: tuple[str, ...] = ()
    ready_fd: int | None = None
    report: Callable[[str], None] = len  # type: ignore[assignment]

    def secrets(self) -> dict[str, str]:
        """What another one like it needs besides `arguments`, by a pipe. It is kept nowhere."""
        token = self.overrides.token
        return self.flags.secrets() | ({"token": token} if token else {})


def from_anywhere(options: Options) -> Options:
    """The same options without relative paths: the daemon does not stay where it was started."""
    environ = dict(options.environ)
    if environ.get("KUBECONFIG"):
        paths = environ["KUBECONFIG"].split(os.pathsep)
        environ["KUBECONFIG"] = os.pathsep.join(os.path.abspath(p) for p in paths if p)
    replaced: dict[str, Any] = {}
    arguments = list(options.arguments)
    for name in ("kubeconfig", "certificate_authority", "client_certificate", "client_key"):
        path = getattr(options.overrides, name)
        if path:
            replaced[name] = os.path.abspath(path)
            flag = f"--{name.replace('_', '-')}="
            arguments = [flag + replaced[name] if a == flag + path else a for a in arguments]
    overrides = options.overrides._replace(**replaced)
    return msgspec.structs.replace(
        options, overrides=overrides, environ=environ, arguments=tuple(arguments)
    )


def with_limits(options: Options, section: ClusterConfig) -> Options:
    """The same options with the config file's limit on what is read, unless a flag gives one."""
    if options.overrides.max_response_size or not section.max_response_size:
        return options
    overrides = options.overrides._replace(max_response_size=section.max_response_size)
    return msgspec.structs.replace(options, overrides=overrides)


def target_now(options: Options, identity: str, context: str) -> Target:
    """Where the daemon of that identity, begun in that context, is led by the kubeconfig now.

    Another current context is the commands' business. Raises NodelifeError, OSError.
    """
    target = find_target(options.overrides, options.environ)
    if options.overrides.context or cluster_identity(target) == identity:
        return target
    pinned = options.overrides._replace(context=context)
    return find_target(pinned, options.environ)
