"""`kubectl nodelife version`, and how this program came here: by krew, as an archive, a wheel, or a
checkout; from which commit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple

import click

from kubectl_nodelife import __version__
from kubectl_nodelife.build_info import COMMIT
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.document import API_VERSION
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block


class VersionPage(NamedTuple):
    """This program's version, what runs it, and how it came here."""

    version: str
    python: str
    platform: str
    commit: str
    installed_by: str
    folder: str

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        yield f"Client Version: {self.version}"
        if wide:
            yield (
                f"Commit: {self.commit or '<unknown>'}\nPython Version: {self.python}\n"
                f"Platform: {self.platform}\nInstalled By: {self.installed_by} ({self.folder})"
            )

    def document(self) -> object:
        return {
            "apiVersion": API_VERSION,
            "kind": "Version",
            "clientVersion": {
                "version": self.version,
                "commit": self.commit,
                "python": self.python,
                "platform": self.platform,
                "installedBy": self.installed_by,
                "folder": self.folder,
            },
        }

    def names(self) -> Iterable[str]:
        yield f"version/{self.version}"


@click.command()
@output_flags("table", "wide", "json", "yaml")
def version(output: Output) -> None:
    """Show the version of this program; with -o wide, its commit, Python, and how it came here.

    \b
    Examples:
      kubectl nodelife version
      kubectl nodelife version -o json
    """
    if output.format == "table":
        terminal.write(f"Client Version: v{__version__}\n")  # alone, it imports next to nothing
        return
    import platform

    found = installation()
    answer = VersionPage(
        version=f"v{__version__}",
        python=platform.python_version(),
        platform=f"{platform.system().lower()}/{platform.machine()}",
        commit=found.commit,
        installed_by=found.by,
        folder=found.folder,
    )
    output.show(answer)


class Installation(NamedTuple):
    """`by`: krew, archive, pipx, uv, pip or checkout. `commit` is empty where it is unknown."""

    by: str
    folder: str
    commit: str


def installation() -> Installation:
    """The way of installation, as the package's place shows."""
    from pathlib import Path

    folder = Path(__file__).parents[2]
    if (folder.parent / "kubectl-nodelife").is_file() and folder.name == "lib":
        home = folder.parent
        by = "krew" if "store" in home.parts and home.parts[-3:-2] == ("nodelife",) else "archive"
        return Installation(by, str(home), COMMIT)
    if (folder / ".git").exists():
        return Installation("checkout", str(folder), COMMIT or _git_head(str(folder)))
    where = Path(sys.prefix).parts
    by = "pipx" if "pipx" in where else "uv" if {"uv", "tools"} <= set(where) else "pip"
    return Installation(by, sys.prefix, COMMIT)


def _git_head(folder: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            ["git", "-C", folder, "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
