"""Manual pages from the help texts, by click-man: `python -m release.manual DIR VERSION DATE`.

Run with the commit's own code on PYTHONPATH. click-man supports neither groups whose verbs are
loaded when they are called nor examples that must keep their lines, and cuts long names; that is
added here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
from click_man.core import generate_man_page

from kubectl_nodelife import cli


def pages(version: str, date: str) -> Iterator[tuple[str, str]]:
    """(file name, text) of each command's page, groups included."""
    yield from _pages(click.Context(cli.nodelife, info_name=cli.PROGRAM), version, date)


def _pages(ctx: click.Context, version: str, date: str) -> Iterator[tuple[str, str]]:
    # click-man would cut the line that man -k searches.
    ctx.command.short_help = ctx.command.get_short_help_str(limit=1000)
    text = _with_examples(generate_man_page(ctx, version=version, date=date))
    name = ctx.command_path.replace(" ", "-")
    if isinstance(ctx.command, click.Group):
        text += ".SH COMMANDS\n"
        for verb in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, verb)
            if command is not None and not command.hidden:
                said = command.get_short_help_str(limit=1000)
                text += f".TP\n.BR {name}-{verb} (1)\n{said}\n".replace("-", "\\-")
                inner = click.Context(command, parent=ctx, info_name=verb)
                yield from _pages(inner, version, date)
    yield f"{name}.1", text


def _with_examples(text: str) -> str:
    """The page with its indented lines as they stand, under a heading of their own."""
    lines = []
    for indented, group in groupby(text.splitlines(), key=lambda line: line.startswith("  ")):
        if indented:
            shown = [line[2:].replace("\\", "\\e").replace("-", "\\-") for line in group]
            lines += [".nf", *shown, ".fi"]
        else:
            lines += [
                ".SH EXAMPLES" if line in ("Example:", "Examples:") else line
                for line in group
                if line.strip()
            ]
    return "\n".join(lines) + "\n"


def main(folder: str, version: str, date: str) -> None:
    """Write all pages into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in pages(version, date):
        Path(folder, name).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
