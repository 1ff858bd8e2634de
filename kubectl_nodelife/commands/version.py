"""`kubectl nodelife version`: which this is, and how it came here. And `options`: the connection
flags, also those that --help does not list, or a release's own flags with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kubectl_nodelife import __version__
from kubectl_nodelife.commands.flags import CONNECTION_FLAGS, DeclaredFlag, Output, output_flags
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import Block, Page

if TYPE_CHECKING:
    from kubectl_nodelife.commands.doctor import Installation


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
    from kubectl_nodelife.commands.doctor import installation

    output.show(version_page(installation()))


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
