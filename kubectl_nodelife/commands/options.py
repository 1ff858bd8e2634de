"""`kubectl nodelife options`: the connection flags, those included that --help does not list; or a
release's own flags with their defaults.
"""

from __future__ import annotations

import click

from kubectl_nodelife.commands.flags import CONNECTION_FLAGS, Flag, Output, output_flags
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal


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
        from kubectl_nodelife.report.releases import defaults_page

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


def _row(flag: Flag) -> tuple[str, str]:
    spellings = ", ".join(sorted(flag.spellings, key=len))
    return (f"{spellings} {flag.value}" if flag.value else spellings), flag.help
