"""A bug of ours: a report that can be pasted into an issue, in place of a bare traceback.

Left out on purpose: the values of variables and of the environment, any bearer token, and the text
of the exception, which may quote whatever it stumbled over.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence

from kubectl_nodelife import __version__
from kubectl_nodelife.kube.unreadable import places_raised
from kubectl_nodelife.report.terminal import printable, printable_text


def bug_report(error: BaseException, arguments: Sequence[str]) -> str:
    """The report: versions, the command line without its token, and the traceback."""
    return printable_text(
        f"kubectl nodelife {__version__}, Python {platform.python_version()}, "
        f"{platform.platform()}\n"
        f"command: kubectl nodelife {' '.join(_without_token(arguments))}\n\n"
        f"{places_raised(error)}"
    )


def bug_line(error: BaseException, where_to_find: str) -> str:
    """The one line for stderr: what broke, and where its report is."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    what = type(error).__name__
    return printable(
        f"error: a bug in kubectl nodelife{place}: {what}; please report it with {where_to_find}"
    )


def save_report(report: str) -> str | None:
    """The path of a new file with the report, readable by the user alone; None if impossible."""
    try:
        handle, path = tempfile.mkstemp(prefix="kubectl-nodelife-bug-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report)
    except OSError:
        return None
    return path


def report_bug(error: BaseException, arguments: Sequence[str]) -> None:
    """Report on stderr: one line if the report could be saved, else the report behind it."""
    report = bug_report(error, arguments)
    path = save_report(report)
    if sys.stderr is None:
        return
    print(bug_line(error, path or "the lines below"), file=sys.stderr)
    if path is None:
        print(report, file=sys.stderr)


def _without_token(arguments: Sequence[str]) -> list[str]:
    shown: list[str] = []
    for argument in arguments:
        if shown and shown[-1] == "--token":
            argument = "***"
        elif argument.startswith("--token="):
            argument = "--token=***"
        shown.append(argument)
    return shown
