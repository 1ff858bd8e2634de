"""`kubectl nodelife version`."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import NamedTuple

import click

from kubectl_nodelife import __version__
from kubectl_nodelife.answers.api import API_VERSION
from kubectl_nodelife.commands.flags import output_flags
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, render


class VersionPage(NamedTuple):
    """This program's version and what runs it."""

    version: str
    python: str
    platform: str

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        yield f"Client Version: {self.version}"
        if wide:
            yield f"Python Version: {self.python}\nPlatform: {self.platform}"

    def document(self) -> object:
        return {
            "apiVersion": API_VERSION,
            "kind": "Version",
            "clientVersion": self._asdict(),
        }

    def names(self) -> Iterable[str]:
        yield f"version/{self.version}"


@click.command()
@output_flags("table", "wide", "json", "yaml")
def version(output: str, no_headers: bool) -> None:
    """Show the version of this program; with -o wide, also of the Python that runs it.

    \b
    Examples:
      kubectl nodelife version
      kubectl nodelife version -o json
    """
    answer = VersionPage(
        version=f"v{__version__}",
        python=platform.python_version(),
        platform=f"{platform.system().lower()}/{platform.machine()}",
    )
    terminal.write(render(answer, output, headers=not no_headers))
