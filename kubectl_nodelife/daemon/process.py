"""The daemon's process: takes the lock, opens state folder, log and journal, and runs the daemon.

Everything that may be needed is imported before the daemon says that it is ready: an upgrade may
delete the folder it was started from, and then it must still answer, and end in good order.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Final

from kubectl_nodelife.controllers import CONTROLLERS
from kubectl_nodelife.daemon.config import load_config
from kubectl_nodelife.daemon.hand_over import HandOver
from kubectl_nodelife.daemon.instance import AlreadyRuns, Instance
from kubectl_nodelife.daemon.journal import open_journal
from kubectl_nodelife.daemon.logs import begin_log
from kubectl_nodelife.daemon.options import Options, from_anywhere, with_limits
from kubectl_nodelife.daemon.ownership import claim_state, cluster_key
from kubectl_nodelife.daemon.paths import config_file, log_path, make_private, runtime_folder
from kubectl_nodelife.daemon.run import Daemon, MakeAnswers
from kubectl_nodelife.daemon.settings import (
    DetectedSettings,
    RequestedSettings,
    resolve_settings,
)
from kubectl_nodelife.daemon.spawning import tell_parent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.identity import cluster_identity
from kubectl_nodelife.live.target import Target, find_target


def run_daemon(options: Options, make_answers: MakeAnswers) -> int:
    """Become the daemon of the cluster that the options mean, and stay it. The exit code.

    Raises NodelifeError, which a waiting parent is told as well.
    """
    try:
        return _run(options, make_answers)
    except NodelifeError as error:
        word = {"error": str(error), "already": isinstance(error, AlreadyRuns)}
        tell_parent(options.ready_fd, word)
        raise


def _run(options: Options, make_answers: MakeAnswers) -> int:
    import_all()
    options = from_anywhere(options)
    environ = dict(options.environ)
    target = find_target(options.overrides, options.environ)
    config = load_config(config_file(environ))
    options = with_limits(options, config.section(target.server, target.context))
    target = find_target(options.overrides, options.environ)
    identity = cluster_identity(target)
    asked = RequestedSettings(options.profile, options.assignments, config)
    # The user's mistakes are told before anything is started.
    resolve_settings(asked, DetectedSettings(), Cache(), target.server, target.context)
    runtime = make_private(runtime_folder(environ))
    instance = Instance(runtime, identity)
    instance.take()
    about = {"pid": os.getpid(), "socket": instance.socket, "server": target.server}

    async def live() -> tuple[int, HandOver]:
        client = Client(_session(target, options.environ))
        key = await cluster_key(client)
        with claim_state(environ, identity, key, about) as folder:
            path = f"{folder}/daemon.log" if folder else log_path(environ, runtime, identity)
            begin_log(path, to_terminal=options.ready_fd is None)
            journal = open_journal(f"{folder}/journal.db" if folder else ":memory:")
            daemon = Daemon(options, client, instance, journal, make_answers)
            return await daemon.run(), daemon.departure

    sys.setswitchinterval(HAND_OVER_S)
    try:
        code, departure = asyncio.run(live())
    finally:
        instance.release()
    departure.leave()
    return code


def _session(target: Target, environ: Mapping[str, str]) -> Session:
    """Connections whose errors may be logged."""
    return Session(target, environ, show_plugin_stderr=False)


HAND_OVER_S: Final = 0.001
"""So long a thread waits for the interpreter while the event loop has it, 5 ms by default. The
journal's threads ask for it after each statement: an intent waited 20 to 40 ms for a disk of 2 ms.
"""

_LATE_MODULES: Final = ("encodings.idna", "stringprep", "concurrent.futures.thread", "_strptime")


def import_all() -> None:
    """Import what would else be imported when it is first needed."""
    for folder, _ in CONTROLLERS.values():
        with contextlib.suppress(ImportError):
            importlib.import_module(f"kubectl_nodelife.controllers.{folder}")
    for name in _LATE_MODULES:
        importlib.import_module(name)
