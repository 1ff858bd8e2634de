"""Notices that an upgrade has removed or replaced the program that a daemon was started from, and
passes its work to the program that is installed now.

krew unpacks the new version beside the old one, leads its link there, and then deletes the old one;
pip puts the new one in its place. The daemon has imported all that it needs (`process.py`) and goes
on; but it is the old version, while its user expects the new one: so each answer says what to do.

Without files it is replaced: the process becomes that program (exec), so that a service manager or
a terminal keeps its child. By then nothing is on its way, and Lease, journal, socket and lock are
released. The new program gets the same orders and begins as after a restart; but it joins, as a
restarted controller manager would strip taints that are months old.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Mapping
from typing import Final

from kubectl_nodelife import PROGRAM, __version__
from kubectl_nodelife.build_info import COMMIT
from kubectl_nodelife.daemon.flags import Options
from kubectl_nodelife.daemon.instance import PACKAGE, filled_pipe, installed_link
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.live.plugin import TooMuchOutput, run_program

UPGRADE_SECONDS: Final = 600.0
"""For so long a daemon goes on where its program was removed and no other one is installed."""

_ANSWER_SECONDS: Final = 20.0
_ASK_AGAIN_SECONDS: Final = 60.0

SETTLE_SECONDS: Final = 10.0
"""For so long it goes on where another one is installed: an upgrade may still be under way."""

_REMEDY: Final = "run: kubectl nodelife daemon restart"
_VERSION: Final = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_COMMIT: Final = re.compile(r'^COMMIT = "([^"]*)"$', re.MULTILINE)


class OwnProgram:
    """The package as it is in this process, against what lies in its folder now."""

    def __init__(self, environ: Mapping[str, str], package: str = "") -> None:
        self._package = package or PACKAGE
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
            status = os.stat(path)
            stamp = status.st_ino, status.st_mtime_ns
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
            match = pattern.search(file.read())
        return match[1] if match else ""


class HandOver:
    """Finds out if the daemon must end because what it stands on was removed, and what takes over.

    `because`: why it ends; "" while it need not. `successor`: the program that takes over.
    """

    def __init__(self, program: OwnProgram, options: Options) -> None:
        self.because = self.successor = ""
        self.program = program
        self._options = options
        self._refused, self._ask_again_at = "", 0.0

    async def look(self, *, has_socket: bool) -> None:
        """Find out. Asks the program that is installed now whether it runs."""
        gone = self.program.seconds_gone()
        if not has_socket:
            self.because = "its socket was removed"
        elif gone >= SETTLE_SECONDS:
            self.successor = await self._running(self.program.successor(), gone)
            if self.successor or gone > UPGRADE_SECONDS:
                self.because = "its program was removed"

    def leave(self) -> None:
        """Become the successor, if there is one. Otherwise raises Failed where it enforced."""
        if self.because and self.successor:
            try:
                _become(self.successor, self._options)
            except OSError as error:
                log.error("%s cannot be run: %s", self.successor, error.strerror)
        if self.because and self._options.flags.orders.controllers:
            raise Failed(
                f"ended, because {self.because}, and no other takes over: nothing is enforced any "
                "more; what it has written stays",
                on=f"daemon (pid {os.getpid()})",
                remedy="install it again, then run: " + command_of(self._options),
            )

    async def _running(self, version: str, gone: float) -> str:
        """That program, if it runs; one that did not is asked again a minute later."""
        if not version or (version == self._refused and gone < self._ask_again_at):
            return ""
        self._refused = "" if await self._runs(version) else version
        self._ask_again_at = gone + _ASK_AGAIN_SECONDS
        return "" if self._refused else version

    async def _runs(self, program: str) -> bool:
        """True if it says its version in time; if not, the log says so."""
        words, environ = [program, "version"], self._options.environ
        try:
            ended = await run_program(words, environ, seconds=_ANSWER_SECONDS)
        except TimeoutError:  # an OSError, too
            why = "no answer"
        except OSError as error:
            log.error("%s cannot be run, and does not take over: %s", program, error.strerror)
            return False
        except TooMuchOutput:
            why = "that is no version"
        else:
            if ended.code == 0:
                return True
            why = (ended.stdout + ended.stderr).decode(errors="replace").strip()
        log.error("%s does not take over: %s", program, why)
        return False


def arguments_of(options: Options) -> list[str]:
    """The arguments of the daemon that takes over: the same orders, and it joins."""
    return ["--begin=join" if a.startswith("--begin=") else a for a in options.arguments]


def command_of(options: Options) -> str:
    """The command by which a person starts a daemon like it again."""
    words = [word for word in arguments_of(options)[2:] if word != "--yes"]
    return shlex.join(["kubectl", "nodelife", "daemon", "start", *words])


def _become(program: str, options: Options) -> None:
    """Replace this process. Raises OSError where that cannot be done."""
    words = arguments_of(options)
    descriptors = []
    if secrets := options.secrets():
        descriptors.append(filled_pipe(json.dumps(secrets).encode()))
        words.append(f"--secrets-fd={descriptors[-1]}")
    if options.ready_fd is not None:  # behind the terminal: no parent waits, stderr is the log
        descriptors.append(os.open(os.devnull, os.O_WRONLY))
        words.append(f"--ready-fd={descriptors[-1]}")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    os.execve(program, [program, *words], dict(options.environ))
