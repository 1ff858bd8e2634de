"""Says that an answer is of a first look, once a minute at most: nobody needs it with each line.

The moment is kept as the age of an empty file beside the daemons' sockets; where there can be none,
it is said each time.
"""

from __future__ import annotations

import os
import time

from kubectl_nodelife.daemon.paths import make_private, runtime_folder
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.report import terminal

EVERY_SECONDS = 60
_FILE = "first-look"


def say_first_look(text: str) -> None:
    """Put the line on stderr, unless it was put there within the last minute."""
    path = os.path.join(runtime_folder(os.environ), _FILE)
    if not _said_lately(path):
        terminal.note(text)


def _said_lately(path: str) -> bool:
    folder = os.path.dirname(path)
    try:
        make_private(folder)
        age = time.time() - os.stat(path).st_mtime if os.path.exists(path) else None
        if age is not None and 0 <= age < EVERY_SECONDS:
            return True
        with open(path, "w"):
            os.utime(path)
    except (OSError, NodelifeError):
        pass
    return False
