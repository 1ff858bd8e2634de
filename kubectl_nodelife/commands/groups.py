"""Groups of commands that take kubectl's spellings of flags, which click does not.

kubectl parses with pflag, where a switch may carry a value (`--ignore-daemonsets=true`) and a
short flag an equals sign (`-o=json`). Scripts are full of both. Here they are rewritten to what
click takes. Left out: pflag's `--flag=false` cannot switch off a flag given earlier on the same
line by a group.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


# As Go's strconv.ParseBool.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class LazyGroup(click.Group):
    """See the module. `verbs`: name -> `MODULE:COMMAND`, and the line in --help, in its order."""

    def __init__(self, *args: Any, verbs: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        module, _, name = self.verbs[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in self.verbs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        # click's own imports every verb's module.
        verbs = [
            CompletionItem(verb, help=line)
            for verb, (_, line) in self.verbs.items()
            if verb.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # What stands behind the verb is for the verb to read; rewriting it twice does no harm.
        return super().parse_args(ctx, in_click_spelling(self, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        command = self.get_command(ctx, args[0])
        if command is None:
            raise click.NoSuchCommand(args[0], possibilities=self.verbs, ctx=ctx)
        return args[0], command, in_click_spelling(command, args[1:])


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
