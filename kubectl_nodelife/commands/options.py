"""`kubectl nodelife options`: the connection flags, those that --help does not list included."""

from __future__ import annotations

import click

from kubectl_nodelife.commands.flags import CONNECTION_FLAGS, ConnectionFlag
from kubectl_nodelife.report import terminal


@click.command()
def options() -> None:
    """List the connection flags that all verbs take.

    They mean what they mean to kubectl, and may stand between `nodelife` and the verb or behind it.

    \b
    Example:
      kubectl nodelife options
    """
    formatter = click.HelpFormatter(max_width=100)
    formatter.write_text("These flags can be given to every verb that talks to a cluster:")
    with formatter.indentation():
        formatter.write_dl([_row(flag) for flag in CONNECTION_FLAGS], col_max=34)
    terminal.write(formatter.getvalue())


def _row(flag: ConnectionFlag) -> tuple[str, str]:
    spellings = ", ".join(sorted(flag.spellings, key=len))
    return (f"{spellings} {flag.value}" if flag.value else spellings), flag.help
