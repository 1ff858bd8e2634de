"""Notices that an upgrade has removed or replaced the program that a daemon was started from.

krew unpacks the new version beside the old one, leads its link there, and then deletes the old one;
pip puts the new one in its place. The daemon has imported all that it needs (`process.py`) and goes
on; but it is the old version, and its user believes that the new one runs: so each answer says what
to do. Without files it hands over (`hand_over.py`) to the program that is installed now.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import kubectl_nodelife
from kubectl_nodelife import __version__
from kubectl_nodelife.build_info import COMMIT

UPGRADE_SECONDS: Final = 600.0
"""For so long a daemon goes on where its program was removed and no other one is installed."""

SETTLE_SECONDS: Final = 10.0
"""For so long it goes on where another one is installed: an upgrade may still be under way."""

PROGRAM: Final = "kubectl-nodelife"

_PACKAGE: Final = os.path.dirname(os.path.abspath(kubectl_nodelife.__file__ or ""))
_REMEDY: Final = "run: kubectl nodelife daemon restart"
_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_COMMIT: Final = re.compile(r'^COMMIT = "([^"]*)"$', re.MULTILINE)


class OwnProgram:
    """The package as it is in this process, against what lies in its folder now."""

    def __init__(self, environ: Mapping[str, str], package: str = "") -> None:
        self._package = package or _PACKAGE
        self._path = environ.get("PATH")
        self._seen_at = time.monotonic()
        self._stamp: tuple[int, int] | None = None
        self._other = ""

    def seconds_gone(self) -> float:
        """For how long the program has not been there; 0 while it is."""
        return 0.0 if self._look() else time.monotonic() - self._seen_at

    def successor(self) -> str:
        """The program that is installed now, "" for none: krew's link, else the one on PATH."""
        link = installed_link(self._package)
        return link if os.access(link, os.X_OK) else shutil.which(PROGRAM, path=self._path) or ""

    def warnings(self) -> list[str]:
        """Warnings for users; none while the program is there and is the one that runs."""
        if not self._look():
            successor = self.successor()
            then = f"hands over to {successor} {SETTLE_SECONDS:.0f} seconds after that"
            if not successor:
                then = f"ends {UPGRADE_SECONDS / 60:.0f} minutes after that; {_REMEDY}"
            return [
                f"the program of this daemon (version {__version__}) was removed, as an upgrade "
                f"does, and it {then}"
            ]
        if self._other:
            return [f"this daemon is {__version__}, and {self._other} is installed now; {_REMEDY}"]
        return []

    def _look(self) -> bool:
        """True if the program is there; reads what it is where it has changed."""
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
        """The program that is installed now, if it is another version or commit; else ""."""
        version = self._read("__init__.py", _VERSION)
        if version != __version__:
            return f"version {version}" if version else "another version"
        commit = self._read("build_info.py", _COMMIT)
        return f"another build of it ({commit[:12] or 'no commit'})" if commit != COMMIT else ""

    def _read(self, name: str, pattern: re.Pattern[str]) -> str:
        with open(os.path.join(self._package, name), encoding="utf-8") as file:
            found = pattern.search(file.read())
        return found[1] if found else ""


def installed_link(package: str = _PACKAGE) -> str:
    """krew's link to the program of which this is the package, whatever its version; "" for none.

    `$KREW_ROOT/store/nodelife/VERSION/nodelife/lib/kubectl_nodelife` belongs to
    `$KREW_ROOT/bin/kubectl-nodelife`.
    """
    parents = Path(package).parents
    in_store = len(parents) > 5 and parents[3].name == "nodelife" and parents[4].name == "store"
    return str(parents[5] / "bin" / PROGRAM) if in_store else ""
