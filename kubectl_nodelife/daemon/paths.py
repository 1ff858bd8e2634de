"""The paths of the daemon's files, the check that their folders belong to this user alone, how its
SQLite files are opened (the changes' and that of writes), and the cluster that the connection flags
mean, so that its daemon is found without YAML.

Runtime files (socket, lock, card) live in a folder that goes with the login, state (journal, log)
in one that stays. The runtime folder must be the same from a terminal, from cron and over ssh, so
/run/user/UID counts whether or not XDG_RUNTIME_DIR is set: else two daemons would run beside one
another.

A private file maps (flags, KUBECONFIG) to the resolved identity, valid while the kubeconfig files
and the CA file keep their inode, size and modification time (`remember`, `recall`). A miss takes
the slow path; a file that cannot be read or written is a miss, never an error. Each answer carries
the server, which must be the one remembered here.

No link is followed to a SQLite file: whoever can put one into the folder would have it written
elsewhere. It can be read by its owner alone, and so can the log beside it, which gets the file's
mode when it is made.

Loaded by the quick commands: `json`, `os` and `stat` only.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import namedtuple

from kubectl_nodelife.errors import Failed

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping
    from typing import Any

FOLDER = "nodelife"

# sun_path of sockaddr_un, without the final zero
SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107

_SOCKET_NAME_BYTES = 32  # an identity, a slash and `.sock`, with some room


def runtime_folder(environ: os._Environ[str] | dict[str, str]) -> str:
    """The folder of sockets, which may not exist yet.

    `NODELIFE_RUNTIME_DIR`, /run/user/UID, `XDG_RUNTIME_DIR`, the state folder; /tmp/nodelife-UID
    where the path would be too long for a socket.
    """
    own = environ.get("NODELIFE_RUNTIME_DIR")
    login = f"/run/user/{os.geteuid()}"
    if own:
        folder = os.path.abspath(own)
    elif os.path.isdir(login):
        folder = f"{login}/{FOLDER}"
    elif given := _xdg(environ, "XDG_RUNTIME_DIR"):
        folder = os.path.join(given, FOLDER)
    else:
        folder = os.path.join(state_folder(environ), "run")
        if not _can_be_made(folder):
            folder = f"/tmp/{FOLDER}-{os.geteuid()}"
    if len(os.fsencode(folder)) + _SOCKET_NAME_BYTES > SOCKET_PATH_BYTES:
        return f"/tmp/{FOLDER}-{os.geteuid()}"
    return folder


def state_folder(environ: os._Environ[str] | dict[str, str]) -> str:
    """The folder of journals and logs: `NODELIFE_STATE_DIR`, else below `XDG_STATE_HOME`."""
    own = environ.get("NODELIFE_STATE_DIR")
    if own:
        return os.path.abspath(own)
    base = _xdg(environ, "XDG_STATE_HOME") or os.path.join(_home(environ), ".local", "state")
    return os.path.join(base, FOLDER)


def config_file(environ: os._Environ[str] | dict[str, str]) -> str:
    """The user's config: `NODELIFE_CONFIG`, else below `XDG_CONFIG_HOME`."""
    own = environ.get("NODELIFE_CONFIG")
    if own:
        return os.path.abspath(own)
    base = _xdg(environ, "XDG_CONFIG_HOME") or os.path.join(_home(environ), ".config")
    return os.path.join(base, FOLDER, "config.yaml")


def socket_path(runtime: str, identity: str) -> str:
    """The socket of the daemon of that cluster identity."""
    return f"{runtime}/{identity}.sock"


def journal_path(environ: dict[str, str], identity: str) -> str:
    """The journal of that cluster's daemon; ":memory:" where no file can be made."""
    return _state_file(environ, identity, "journal.db", ":memory:")


def page_port_path(environ: dict[str, str], identity: str) -> str:
    """Where the port of that cluster's live page is kept; "" where no file can be made."""
    return _state_file(environ, identity, "page-port", "")


def log_path(environ: dict[str, str], runtime: str, identity: str) -> str:
    """The log of that cluster's daemon; beside the socket where the state folder cannot be made."""
    return _state_file(environ, identity, "daemon.log", f"{runtime}/{identity}.log")


def _state_file(environ: dict[str, str], identity: str, name: str, otherwise: str) -> str:
    try:
        return f"{folder_of_cluster(environ, identity)}/{name}"
    except Failed:
        return otherwise


def folder_of_cluster(environ: dict[str, str], identity: str) -> str:
    """The folder of its state, through the link that leads to it once the cluster is known; it is
    made where there is none. Raises Failed where it is not this user's alone.
    """
    folder = os.path.realpath(f"{make_private(state_folder(environ))}/{identity}")
    make_private(folder)
    if not os.access(folder, os.W_OK):
        raise Failed("cannot be written to", on=folder)
    return folder


def make_private(folder: str) -> str:
    """Make the folder with mode 0700 if need be, and return it.

    Raises Failed as `check_private`.
    """
    try:
        _make(folder)
    except OSError as error:
        raise Failed(
            f"cannot make the folder: {error.strerror}",
            on=folder,
            remedy="set NODELIFE_RUNTIME_DIR or NODELIFE_STATE_DIR to a folder of yours",
        ) from None
    check_private(folder)
    return folder


def file_inode(path: str) -> tuple[int, int] | None:
    """Device and inode of the file at that path; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def file_stamp(path: str) -> list[int] | None:
    """Device, inode, size and time of a file, which change when it does; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]


def replace_json(path: str, document: object) -> None:
    """Put the document there in one step, for the user alone. Raises OSError."""
    draft = f"{path}.{os.getpid()}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(draft, path)


def lock_file(path: str) -> int | None:
    """The file's lock, held until its descriptor is closed; None where another holds it. No link is
    followed. Raises OSError.
    """
    import fcntl  # who only asks locks nothing

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return handle


def _make(folder: str) -> None:
    """The folder and those above it that are missing, all for the user alone."""
    if not os.path.lexists(folder):
        _make(os.path.dirname(folder))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            return


def folder_of_sockets(environ: os._Environ[str] | dict[str, str]) -> str:
    """The runtime folder; "" where there is none, so that no daemon runs. Raises Failed as
    `check_private`.
    """
    folder = runtime_folder(environ)
    if not os.path.isdir(folder):
        return ""
    check_private(folder)
    return folder


def check_private(folder: str) -> None:
    """A real folder, ours alone. Raises Failed with what to run.

    Anyone who could write there could answer in the daemon's place.
    """
    try:
        status = os.lstat(folder)
    except OSError as error:
        raise Failed(f"cannot be read: {error.strerror}", on=folder) from None
    if not stat.S_ISDIR(status.st_mode):
        raise Failed("is not a folder", on=folder, remedy=f"move it away: mv {folder} {folder}.old")
    if status.st_uid != os.geteuid():
        raise Failed(
            f"belongs to uid {status.st_uid}, not to you ({os.geteuid()})",
            on=folder,
            remedy="set NODELIFE_RUNTIME_DIR or NODELIFE_STATE_DIR to a folder of yours",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise Failed(
            f"others may enter it (mode {stat.S_IMODE(status.st_mode):04o})",
            on=folder,
            remedy=f"run: chmod 700 {folder}",
        )


def _home(environ: os._Environ[str] | dict[str, str]) -> str:
    return os.path.abspath(environ.get("HOME") or os.path.expanduser("~"))


def _xdg(environ: os._Environ[str] | dict[str, str], name: str) -> str:
    """The folder that the variable names; "" for none. One that is not absolute counts as not set,
    as the XDG base directory specification has it.
    """
    folder = environ.get(name, "")
    return folder if os.path.isabs(folder) else ""


def _can_be_made(folder: str) -> bool:
    """True if the folder is there or its nearest parent may be written to."""
    while not os.path.exists(folder):
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


CACHE_FILE = "known.json"

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


class CachedIdentity(namedtuple("CachedIdentity", ("identity", "server", "context", "namespace"))):
    """A cluster as seen by one user: the daemon's name for it, and what an answer must say."""

    __slots__ = ()


def recall(folder: str, flags: Any, environ: Mapping[str, str]) -> CachedIdentity | None:
    """The cluster that these flags meant the last time, if nothing that decides it has changed."""
    entry = _read(folder).get(_key(flags, environ))
    try:
        if entry is None or any(file_stamp(path) != stamp for path, stamp in entry["files"]):
            return None
        return CachedIdentity(*(entry[field] for field in CachedIdentity._fields))
    except (KeyError, TypeError, ValueError):
        return None


def remember(
    folder: str,
    flags: Any,
    environ: Mapping[str, str],
    cached: CachedIdentity,
    files: tuple[str, ...],
) -> None:
    """Note what the flags mean. `files`: all that decided it, those that do not exist included."""
    entries = _read(folder)
    key = _key(flags, environ)
    entries.pop(key, None)
    stamps = [[os.path.abspath(path), file_stamp(path)] for path in files]
    entries[key] = {**cached._asdict(), "files": stamps}
    while len(entries) > _MOST:
        del entries[next(iter(entries))]
    try:
        replace_json(os.path.join(folder, CACHE_FILE), entries)
    except OSError:
        return


def _read(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, CACHE_FILE), encoding="utf-8") as file:
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


def open_private(
    path: str, pragmas: tuple[str, ...], make_tables: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    """The file at `path`, made where there is none; ":memory:" keeps everything in memory.

    `pragmas`: set first, in that order; then `make_tables` makes and checks what is in it. For one
    thread at a time. Raises OSError where it is a link or cannot be had, sqlite3.Error for what is
    in it, DatabaseError itself for text of it that cannot be read.
    """
    import sqlite3

    if path != ":memory:":
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(file, 0o600)
        finally:
            os.close(file)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        for pragma in pragmas:
            db.execute(f"PRAGMA {pragma}")
        make_tables(db)
    except UnicodeDecodeError:  # an error whose text quotes bytes of the file
        db.close()
        raise sqlite3.DatabaseError("its tables cannot be read") from None
    except sqlite3.Error:
        db.close()
        raise
    return db


def open_to_read(path: str, seconds: float) -> sqlite3.Connection:
    """The file as it is, which nothing changes; waits so long for who writes. Raises
    sqlite3.Error.
    """
    import sqlite3
    from urllib.parse import quote

    return sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=seconds)
