"""Spellings of flags that kubectl takes and click does not.

kubectl parses with pflag, where a switch may carry a value (`--ignore-daemonsets=true`) and a
short flag an equals sign (`-o=json`). Scripts are full of both. Here they are rewritten to what
click takes. Left out: pflag's `--flag=false` cannot switch off a flag given earlier on the same
line by a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

# As Go's strconv.ParseBool.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def in_click_spelling(command: click.Command, args: Sequence[str]) -> list[str]:
    """`args` of `command`, up to `--`, rewritten; raises click.UsageError as kubectl would."""
    switches: set[str] = set()
    shorts: set[str] = set()
    for param in command.params:
        if isinstance(param, click.Option):
            if param.is_flag:
                switches.update(param.opts)
            shorts.update(name for name in param.opts if len(name) == 2)
    end = args.index("--") if "--" in args else len(args)
    rewritten = _rewritten(args[:end], switches, shorts)
    return [*rewritten, *args[end:]]


def _rewritten(args: Sequence[str], switches: set[str], shorts: set[str]) -> Iterator[str]:
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals and name in switches:
            if value not in _BOOLEANS:
                raise click.UsageError(
                    f'invalid argument "{value}" for "{name}" flag: give true or false'
                )
            if _BOOLEANS[value]:
                yield name
        elif equals and name in shorts:
            yield from (name + value,) if value else (name, "")
        else:
            yield arg


class SpellingGroup(click.Group):
    """A group whose commands take kubectl's spellings of flags."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, in_click_spelling(command, rest) if command is not None else rest
