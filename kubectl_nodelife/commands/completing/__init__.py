"""Completes a command line: what `kubectl nodelife __complete WORD...` prints for the last word.

The form is the one that kubectl asks plugins for (cobra's completions.go): a candidate a line,
with a TAB and a description, and at the end `:N`, a sum of directives. kubectl runs
`kubectl_complete-nodelife` for it, and does not filter: candidates begin with the last word here,
or with the value in it where it is `--flag=value`.
Nothing is started, waited for or said on stderr; what cannot be found out has no candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from kubectl_nodelife.commands.completing.candidates import candidates
from kubectl_nodelife.report import terminal


def complete(command: click.Command, words: Sequence[str]) -> int:
    """Print the candidates for the last of `words`, which may be empty; the exit code."""
    try:
        found, directive = candidates(command, list(words[:-1]), words[-1] if words else "")
    except Exception:  # a TAB is no place for errors
        return 1
    lines = [f"{value}\t{description}" if description else value for value, description in found]
    terminal.write("\n".join([*lines, f":{directive}"]) + "\n")
    terminal.flush()
    return 0
