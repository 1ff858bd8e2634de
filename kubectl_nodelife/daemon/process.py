"""The daemon's process: takes the lock, opens state folder, log and journal, and runs the daemon.

Everything that may be needed is imported before the daemon says that it is ready: an upgrade may
delete the folder it was started from, and then it must still answer, and end in good order.

Each cluster and user has one state folder, and one daemon at a time writes the journal in it. A
cluster is identified by the UID of its namespace kube-system, as many tools do: names of contexts
and addresses say nothing about it. Until that UID is known (the server is away, or does not let us
read it) the folder is named after the connection; from then on that name is a symbolic link to the
cluster's folder. The lock lies beside the journal, so that two daemons that differ in their runtime
folder, or in the way to the cluster, cannot write the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubectl_nodelife.controllers import CONTROLLERS
from kubectl_nodelife.daemon import paths, settings
from kubectl_nodelife.daemon.flags import Options, from_anywhere, with_limits
from kubectl_nodelife.daemon.instance import AlreadyRuns, Instance, notify_parent
from kubectl_nodelife.daemon.intents import WRITES
from kubectl_nodelife.daemon.journal import open_journal
from kubectl_nodelife.daemon.listener import raise_descriptor_limit
from kubectl_nodelife.daemon.logs import begin_log
from kubectl_nodelife.daemon.own_program import HandOver
from kubectl_nodelife.daemon.run import Daemon, MakeAnswers
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import Failed, NodelifeError
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.same_cluster import cluster_uid
from kubectl_nodelife.live.target import Target, cluster_identity, find_target, user_parts

LOCK: Final = "journal.lock"
NAMING_SECONDS: Final = 5.0
"""For so long a start waits to learn which cluster it is."""


def run_daemon(options: Options, make_answers: MakeAnswers) -> int:
    """Become the daemon of the cluster that the options mean, and stay it. The exit code.

    Raises NodelifeError, which a waiting parent receives as well.
    """
    try:
        return _run(options, make_answers)
    except NodelifeError as error:
        word = {"error": error.document(), "already": isinstance(error, AlreadyRuns)}
        notify_parent(options.ready_fd, word)
        raise


def _run(options: Options, make_answers: MakeAnswers) -> int:
    import_all()
    raise_descriptor_limit()
    options = from_anywhere(options)
    environ = dict(options.environ)
    target = find_target(options.overrides, options.environ)
    config = settings.load_config(paths.config_file(environ))
    options = with_limits(options, config.section(target.server, target.context))
    target = find_target(options.overrides, options.environ)
    identity = cluster_identity(target)
    asked = settings.RequestedSettings(options.flags.profile, options.flags.assignments, config)
    # The user's mistakes are reported before anything is started.
    settings.resolve_settings(
        asked, settings.DetectedSettings(), Cache(), target.server, target.context
    )
    runtime = paths.make_private(paths.runtime_folder(environ))
    instance = Instance(runtime, identity)
    instance.take()
    about = {"pid": os.getpid(), "socket": instance.socket, "server": target.server}

    async def live() -> tuple[int, HandOver]:
        client = Client(Session(target, options.environ, show_plugin_stderr=False))
        key = await cluster_key(client)
        with claim_state(environ, identity, key, about) as folder:
            path = f"{folder}/daemon.log" if folder else paths.log_path(environ, runtime, identity)
            begin_log(path, to_terminal=options.ready_fd is None)
            journal = open_journal(f"{folder}/journal.db" if folder else ":memory:")
            daemon = Daemon(options, client, instance, journal, make_answers)
            return await daemon.run(), daemon.hand_over

    sys.setswitchinterval(HAND_OVER_S)
    try:
        code, hand_over = asyncio.run(live())
    finally:
        instance.release()
    hand_over.leave()
    return code


HAND_OVER_S: Final = 0.001
"""So long a thread waits for the interpreter while the event loop has it, 5 ms by default. The
journal's threads ask for it after each statement: an intent waited 20 to 40 ms for a disk of 2 ms.
"""

_LATE_MODULES: Final = (
    "encodings.idna", "stringprep", "concurrent.futures.thread", "_strptime",
    "kubectl_nodelife.outlook.foretelling",
)  # fmt: skip


def import_all() -> None:
    """Import what would else be imported when it is first needed."""
    for folder, _ in CONTROLLERS.values():
        with contextlib.suppress(ImportError):
            importlib.import_module(f"kubectl_nodelife.controllers.{folder}")
    for name in _LATE_MODULES:
        importlib.import_module(name)


async def cluster_key(client: Client) -> str:
    """A name for the cluster and our user in it; "" where the server does not soon say which it is.

    The client's connections are closed afterwards.
    """
    try:
        async with asyncio.timeout(NAMING_SECONDS):
            uid = await cluster_uid(client)
    except (NodelifeError, TimeoutError):
        return ""
    finally:
        await client.close()
    return key_of(uid, client.session.target) if uid else ""


def key_of(uid: str, target: Target) -> str:
    """20 hex digits of the cluster's UID and the user."""
    text = json.dumps([uid, user_parts(target)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@contextlib.contextmanager
def claim_state(
    environ: dict[str, str], identity: str, key: str, about: Mapping[str, Any]
) -> Iterator[str]:
    """The cluster's state folder, ours meanwhile; "" where there is none to be had.

    `about` us is left in the lock for people. Where another cluster is behind the connection than
    before, its own folder is taken, and the other's stays as it is. Raises AlreadyRuns.
    """
    try:
        folder, lock = _claim(paths.make_private(paths.state_folder(environ)), identity, key, about)
    except AlreadyRuns:
        raise
    except (Failed, OSError):
        yield ""
        return
    try:
        yield folder
    finally:
        os.close(lock)


def _claim(root: str, identity: str, key: str, about: Mapping[str, Any]) -> tuple[str, int]:
    """The folder and its lock. Raises AlreadyRuns, Failed, OSError."""
    link = f"{root}/{identity}"
    before = paths.make_private(os.path.realpath(link))
    folder = f"{root}/{key}" if key else before
    if folder == before:
        return folder, _take(folder, about)
    if os.path.islink(link):  # another cluster than the last time
        lock = _take(paths.make_private(folder), about)
    elif not os.path.exists(folder):
        lock = _take(before, about)
        os.rename(before, folder)
    else:
        os.close(_take(before, about))
        lock = _take(paths.make_private(folder), about)
        _move_into(before, folder, identity)
    _link(link, key)
    return folder, lock


def _take(folder: str, about: Mapping[str, Any]) -> int:
    lock = paths.lock_file(f"{folder}/{LOCK}")
    if lock is None:
        with open(f"{folder}/{LOCK}", encoding="utf-8") as file:
            holder = file.read()
        raise AlreadyRuns(f"a daemon writes this cluster's journal already ({holder})")
    os.ftruncate(lock, 0)
    os.write(lock, ", ".join(f"{name} {value}" for name, value in about.items()).encode())
    return lock


def _move_into(before: str, folder: str, identity: str) -> None:
    """Move what was kept before the cluster's UID was known into its folder, by another name.

    Journals of writes keep a name by which the next to write finds them (`intents.py`).
    """
    there, word = " ".join(os.listdir(folder)), identity
    for number in itertools.count(2):
        if word not in there:
            break
        word = f"{identity}-{number}"
    for name in os.listdir(before):
        if name == LOCK:
            os.unlink(f"{before}/{name}")
        elif WRITES in name:
            os.replace(f"{before}/{name}", f"{folder}/{name.replace(WRITES, f'.{word}{WRITES}')}")
        else:
            os.replace(f"{before}/{name}", f"{folder}/{word}-{name}")
    os.rmdir(before)


def _link(link: str, to: str) -> None:
    draft = f"{link}.{os.getpid()}"
    os.symlink(to, draft)
    try:
        os.replace(draft, link)
    except OSError:  # a command has just made the folder; the next start links it
        with contextlib.suppress(OSError):
            os.unlink(draft)
