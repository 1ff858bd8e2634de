"""Gives each cluster and user one state folder, and lets one daemon at a time write its journal.

A cluster is told by the UID of its namespace kube-system, as many tools do: names of contexts and
addresses say nothing about it. Until that UID is known (the server is away, or does not let us
read it) the folder is named after the connection; from then on that name is a symbolic link to the
cluster's folder. The lock lies beside the journal, so that two daemons that differ in their runtime
folder, or in the way to the cluster, cannot write the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubectl_nodelife.daemon.instance import AlreadyRuns
from kubectl_nodelife.daemon.intents import WRITES
from kubectl_nodelife.daemon.paths import make_private, state_folder
from kubectl_nodelife.errors import Failed, NodelifeError
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.identity import user_parts
from kubectl_nodelife.live.same_cluster import cluster_uid
from kubectl_nodelife.live.target import Target

LOCK: Final = "journal.lock"
NAMING_SECONDS: Final = 5.0
"""For so long a start waits to hear which cluster it is."""


async def cluster_key(client: Client) -> str:
    """A name for the cluster and our user in it; "" where the server does not soon say who it is.

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
        folder, lock = _claim(make_private(state_folder(environ)), identity, key, about)
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
    before = make_private(os.path.realpath(link))
    folder = f"{root}/{key}" if key else before
    if folder == before:
        return folder, _take(folder, about)
    if os.path.islink(link):  # another cluster than the last time
        lock = _take(make_private(folder), about)
    elif not os.path.exists(folder):
        lock = _take(before, about)
        os.rename(before, folder)
    else:
        os.close(_take(before, about))
        lock = _take(make_private(folder), about)
        _move_into(before, folder, identity)
    _link(link, key)
    return folder, lock


def _take(folder: str, about: Mapping[str, Any]) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(f"{folder}/{LOCK}", flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with open(lock, encoding="utf-8") as file:
            said = file.read()
        raise AlreadyRuns(f"a daemon writes this cluster's journal already ({said})") from None
    os.ftruncate(lock, 0)
    os.write(lock, ", ".join(f"{name} {value}" for name, value in about.items()).encode())
    return lock


def _move_into(before: str, folder: str, identity: str) -> None:
    """Move what was kept while nobody knew which cluster it was to the others, by another name.

    Journals of writes keep a name by which the next to write finds them (`enforce.settling`).
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
