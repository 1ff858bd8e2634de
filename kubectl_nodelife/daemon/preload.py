"""Imports all that a daemon may need, before it says that it is ready.

An upgrade may delete the folder that it was started from, and then it must still answer, and end in
good order.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Final

from kubectl_nodelife.controllers import CONTROLLERS

# Imported by name at some later moment, by the standard library or by those we stand on.
_LATE_MODULES: Final = ("encodings.idna", "stringprep", "concurrent.futures.thread", "_strptime")


def import_all() -> None:
    """Import what would else be imported when it is first needed."""
    for folder, _ in CONTROLLERS.values():
        with contextlib.suppress(ImportError):
            importlib.import_module(f"kubectl_nodelife.controllers.{folder}")
    for name in _LATE_MODULES:
        importlib.import_module(name)
