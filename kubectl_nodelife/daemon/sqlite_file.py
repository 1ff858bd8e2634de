"""A SQLite file of the daemon: the changes' (`changes.py`), that of writes (`intents.py`).

No link is followed to it: whoever can put one into the folder would have it written elsewhere. It
can be read by its owner alone, and so can the log beside it, which gets the file's mode when it is
made.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from urllib.parse import quote


def open_private(
    path: str, pragmas: tuple[str, ...], make_tables: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    """The file at `path`, made where there is none; ":memory:" keeps everything in memory.

    `pragmas`: set first, in that order; then `make_tables` makes and checks what is in it. For one
    thread at a time. Raises OSError where it is a link or cannot be had, sqlite3.Error for what is
    in it, DatabaseError itself for text of it that cannot be read.
    """
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
    return sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=seconds)
