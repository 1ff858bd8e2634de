"""The errors that a user may meet, and the exit codes that scripts rely on.

An error says what failed, on which object, and what to do, in one line on stderr. It is raised at
the edge (reading input, talking to a cluster or to the daemon) or by a command, and only
`cli.main` turns it into text and an exit code. Other libraries' exceptions never travel further
than the module that calls the library. Everything that is not listed here counts as a bug of
ours.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_DONE = 0
EXIT_FAILED = 1  # by the cluster's or the system's word; also a bug of ours
EXIT_USAGE = 2  # wrong usage or bad input
EXIT_UNREACHABLE = 3  # the daemon or the cluster
EXIT_NO = 4  # the answer is "no", only with --exit-code
EXIT_REFUSED = 5  # for safety
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # 128 + SIGPIPE, as when `kubectl get pods | head` is cut off


class NodelifeError(Exception):
    """Something failed for a reason that the user can act on.

    `what` is a sentence without a full stop, `on` names the object, file or path in a document, and
    `remedy` says what to do. The line reads `error: ON: WHAT; REMEDY`.
    """

    exit_code = EXIT_FAILED

    def __init__(self, what: str, *, on: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.on = on
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.on}: " if self.on else ""
        advice = f"; {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{advice}"

    def document(self) -> dict[str, object]:
        """What another process of ours, or a page, is given; `error_of` makes it an error again."""
        return {
            "what": self.what,
            "on": self.on,
            "remedy": self.remedy,
            "exitCode": self.exit_code,
        }


class ErrorElsewhere(NodelifeError):
    """The error of another process of ours, with the exit code that it asks for."""

    def __init__(self, what: str, *, on: str = "", remedy: str = "", exit_code: int) -> None:
        super().__init__(what, on=on, remedy=remedy)
        self.exit_code = exit_code


def error_of(document: object) -> ErrorElsewhere:
    """The error that another process gives as its `document`; what cannot be read of it is "?"."""
    found = document if isinstance(document, dict) else {"what": document}
    what, on, remedy = (str(found.get(name) or "") for name in ("what", "on", "remedy"))
    code = found.get("exitCode")
    if not isinstance(code, int) or not 0 < code < 256:
        code = EXIT_FAILED
    return ErrorElsewhere(what or "?", on=on, remedy=remedy, exit_code=code)


class Failed(NodelifeError):
    """The cluster or the system said no: a request was denied, a disk is full."""


class NotFound(Failed):
    """There is no object of that name, said as kubectl says it: `nodes "x" not found`.

    `among`: the names that there are; one of another namespace or nearly that name is offered.
    """

    def __init__(
        self,
        resource: str,
        name: str,
        *,
        remedy: str = "check the name",
        among: Iterable[str] = (),
    ) -> None:
        meant = _nearest(name, among)
        remedy = f"did you mean {meant}?" if meant else remedy
        super().__init__(f'{resource} "{name}" not found', remedy=remedy)


def _nearest(name: str, among: Iterable[str]) -> str:
    """The name that is likely meant, "" for none: that in another namespace first."""
    from difflib import get_close_matches

    namespace, _, bare = name.rpartition("/")
    names = [one.rpartition("/") for one in sorted(among)]
    close = [bare] if any(one[2] == bare for one in names) else []
    close = close or get_close_matches(bare, [one[2] for one in names], 1)
    meant = sorted((one[0] != namespace, "".join(one)) for one in names if one[2] in close)
    return meant[0][1] if meant else ""


class BadInput(NodelifeError):
    """A file, a flag's value or a scenario is not what it should be."""

    exit_code = EXIT_USAGE


class Unreachable(NodelifeError):
    """The daemon does not run, or the cluster does not answer."""

    exit_code = EXIT_UNREACHABLE


class Refused(NodelifeError):
    """We will not do this, for the cluster's safety, until the preconditions named hold."""

    exit_code = EXIT_REFUSED
