"""Remembers which cluster the connection flags mean, so that the daemon is found without YAML.

A private file maps (flags, KUBECONFIG) to the resolved identity, valid while the kubeconfig files
and the CA file keep their inode, size and modification time. A miss takes the slow path; a file
that cannot be read or written is a miss, never an error. Each answer carries the server, which must
be the one remembered here.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FILE = "known.json"

_MOST = 200

# What decides which cluster and user it is; secrets and the namespace do not.
FIELDS = (
    "kubeconfig",
    "context",
    "cluster",
    "user",
    "server",
    "tls_server_name",
    "insecure_skip_tls_verify",
    "certificate_authority",
    "impersonate",
    "impersonate_uid",
    "impersonate_groups",
    "impersonate_user_extra",
)


class CachedIdentity:
    """A cluster as seen by one user: the daemon's name for it, and what an answer must say."""

    __slots__ = ("context", "identity", "namespace", "server")

    def __init__(self, identity: str, server: str, context: str, namespace: str) -> None:
        self.identity = identity
        self.server = server
        self.context = context
        self.namespace = namespace


def recall(folder: str, flags: Any, environ: Mapping[str, str]) -> CachedIdentity | None:
    """The cluster that these flags meant the last time, if nothing that decides it has changed."""
    entry = _read(folder).get(_key(flags, environ))
    try:
        if entry is None or any(_stamp(path) != stamp for path, stamp in entry["files"]):
            return None
        return CachedIdentity(
            entry["identity"], entry["server"], entry["context"], entry["namespace"]
        )
    except (KeyError, TypeError, ValueError):
        return None


def remember(
    folder: str,
    flags: Any,
    environ: Mapping[str, str],
    known: CachedIdentity,
    files: tuple[str, ...],
) -> None:
    """Note what the flags mean. `files`: all that decided it, those that do not exist included."""
    entries = _read(folder)
    key = _key(flags, environ)
    entries.pop(key, None)
    entries[key] = {
        "identity": known.identity,
        "server": known.server,
        "context": known.context,
        "namespace": known.namespace,
        "files": [[os.path.abspath(path), _stamp(path)] for path in files],
    }
    while len(entries) > _MOST:
        del entries[next(iter(entries))]
    path = os.path.join(folder, FILE)
    draft = f"{path}.{os.getpid()}"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(entries, file)
        os.replace(draft, path)
    except OSError:
        return


def _read(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            entries = json.load(file)
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _key(flags: Any, environ: Mapping[str, str]) -> str:
    given = {name: getattr(flags, name) for name in FIELDS if getattr(flags, name)}
    if "kubeconfig" not in given:
        given["KUBECONFIG"] = environ.get("KUBECONFIG", "")
        given["HOME"] = environ.get("HOME", "")
    if any(not os.path.isabs(path) for path in _paths(given)):
        given["cwd"] = os.getcwd()
    return json.dumps(given, sort_keys=True)


def _paths(given: Mapping[str, Any]) -> list[str]:
    """The paths among the flags: relative ones mean another file elsewhere."""
    paths = (
        [given["kubeconfig"]] if "kubeconfig" in given else given["KUBECONFIG"].split(os.pathsep)
    )
    paths.append(given.get("certificate_authority", ""))
    return [path for path in paths if path]


def _stamp(path: str) -> list[int] | None:
    """Device, inode, size and time of a file, which change when it does; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
