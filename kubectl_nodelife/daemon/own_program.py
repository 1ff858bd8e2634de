"""Notices that an upgrade has removed or replaced the program that a daemon was started from.

krew unpacks the new version beside the old one and then deletes the old one; pip puts the new one
in its place. The daemon has imported all that it needs (`preload.py`) and goes on; but it is the
old version, and its user believes that the new one runs: so each answer says what to do.
"""

from __future__ import annotations

import os
import re
import time
from typing import Final

import kubectl_nodelife
from kubectl_nodelife import __version__
from kubectl_nodelife.build_info import COMMIT

UPGRADE_SECONDS: Final = 600.0
"""For so long a daemon goes on without its program: an upgrade may still be under way."""

_REMEDY: Final = "run: kubectl nodelife daemon restart"
_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_COMMIT: Final = re.compile(r'^COMMIT = "([^"]*)"$', re.MULTILINE)


class OwnProgram:
    """The package as it is in this process, against what lies in its folder now."""

    def __init__(self, package: str = "") -> None:
        self._package = package or os.path.dirname(os.path.abspath(kubectl_nodelife.__file__ or ""))
        self._seen_at = time.monotonic()
        self._stamp: tuple[int, int] | None = None
        self._other = ""

    def seconds_left(self) -> float:
        """Until the daemon ends because its program is gone; all of them while it is there."""
        self._look()
        return self._seen_at + UPGRADE_SECONDS - time.monotonic()

    def warnings(self) -> list[str]:
        """What a user should know: nothing while the program is there and is the one that runs."""
        if not self._look():
            return [
                f"the program of this daemon (version {__version__}) was removed, as an upgrade "
                f"does, and it ends {UPGRADE_SECONDS / 60:.0f} minutes after that; {_REMEDY}"
            ]
        if self._other:
            return [f"this daemon is {__version__}, and {self._other} is installed now; {_REMEDY}"]
        return []

    def _look(self) -> bool:
        """Whether the program is there; reads what it is where it has changed."""
        path = os.path.join(self._package, "__init__.py")
        try:
            found = os.stat(path)
            stamp = found.st_ino, found.st_mtime_ns
            if stamp != self._stamp:
                self._other = self._other_than_this()
                self._stamp = stamp
        except OSError:
            self._stamp = None
            return False
        self._seen_at = time.monotonic()
        return True

    def _other_than_this(self) -> str:
        """What is installed now, if it is another version or another commit; else ""."""
        version = self._read("__init__.py", _VERSION)
        if version != __version__:
            return f"version {version}" if version else "another version"
        commit = self._read("build_info.py", _COMMIT)
        return f"another build of it ({commit[:12] or 'no commit'})" if commit != COMMIT else ""

    def _read(self, name: str, pattern: re.Pattern[str]) -> str:
        with open(os.path.join(self._package, name), encoding="utf-8") as file:
            found = pattern.search(file.read())
        return found[1] if found else ""
