"""`kubectl nodelife version`, and how this program came here: by krew, as an archive, a wheel, or a
checkout; from which commit. And `options`: the connection flags, also those that --help does not
list, or a release's own flags with their defaults.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import click

from kubectl_nodelife import __version__
from kubectl_nodelife.build_info import COMMIT
from kubectl_nodelife.commands.flags import CONNECTION_FLAGS, DeclaredFlag, Output, output_flags
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, Page


def version_page(installed: Installation) -> Page:
    """This program's version, what runs it, and how it came here."""
    import platform

    version = {
        "version": f"v{__version__}",
        "commit": installed.commit,
        "python": platform.python_version(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
        "installedBy": installed.by,
        "folder": installed.folder,
    }

    def blocks(*, wide: bool) -> Iterator[Block]:
        yield f"Client Version: {version['version']}"
        if wide:
            yield (
                f"Commit: {installed.commit or '<unknown>'}\nPython Version: {version['python']}\n"
                f"Platform: {version['platform']}\n"
                f"Installed By: {installed.by} ({installed.folder})"
            )

    return Page(
        blocks,
        lambda: document("Version", clientVersion=version),
        lambda: [f"version/{version['version']}"],
    )


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
    output.show(version_page(installation()))


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


@click.command()
@click.option("--profile", metavar="v1.N", help="The flags and feature gates of that release.")
@output_flags("table", "wide", "json", "yaml", "name", "markdown")
def options(profile: str | None, output: Output) -> None:
    """List the connection flags that all verbs take; or Kubernetes' own, with their defaults.

    They mean what they mean to kubectl, and may stand between `nodelife` and the verb or behind it.
    --profile lists the flags and feature gates of a release that --set takes.

    \b
    Examples:
      kubectl nodelife options
      kubectl nodelife options --profile v1.37
    """
    if profile is not None:
        from kubectl_nodelife.engine.settings import parse_profile
        from kubectl_nodelife.report.upgrade import defaults_page

        try:
            output.show(defaults_page(parse_profile(profile)))
        except ValueError as error:
            raise BadInput(str(error), on="--profile") from None
        return
    if output.format not in ("table", "wide"):
        raise BadInput("is for --profile", on="--output", remedy="name a release with --profile")
    formatter = click.HelpFormatter(max_width=100)
    formatter.write_text("These flags can be given to every verb that talks to a cluster:")
    with formatter.indentation():
        formatter.write_dl([_row(flag) for flag in CONNECTION_FLAGS], col_max=34)
    terminal.write(formatter.getvalue())


def _row(flag: DeclaredFlag) -> tuple[str, str]:
    spellings = ", ".join(sorted(flag.spellings, key=len))
    return (f"{spellings} {flag.value}" if flag.value else spellings), flag.help
