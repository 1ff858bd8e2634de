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
    """A group that imports a command's module when it is called, and lists commands in sections.

    `groups`: heading -> name -> `MODULE:COMMAND` below `folder`, and the line in --help; `also`:
    names that are not listed -> those that they stand for.
    """

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, Mapping[str, tuple[str, str]]],
        folder: str,
        also: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.groups, self.folder, self.also = groups, folder, also or {}
        self.verbs = {name: verb for verbs in groups.values() for name, verb in verbs.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(self.also.get(cmd_name, cmd_name))
        if verb is None:
            return None
        module, _, name = verb[0].partition(":")
        command = getattr(importlib.import_module(f"{self.folder}.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, self.verbs))
        for heading, verbs in self.groups.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(verb.ljust(widest), line) for verb, (_, line) in verbs.items()]
                )

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
    switches: dict[str, str] = {}
    shorts: set[str] = set()
    for param in command.params:
        if isinstance(param, click.Option):
            if param.is_flag:
                off = (*param.secondary_opts, "")[0]
                switches.update(dict.fromkeys(param.opts, off))
            shorts.update(name for name in param.opts if len(name) == 2)
    end = args.index("--") if "--" in args else len(args)
    rewritten = _rewritten(args[:end], switches, shorts)
    return [*rewritten, *args[end:]]


def _rewritten(args: Sequence[str], switches: Mapping[str, str], shorts: set[str]) -> Iterator[str]:
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals and name in switches:
            if value not in _BOOLEANS:
                raise click.UsageError(
                    f'invalid argument "{value}" for "{name}" flag: give true or false'
                )
            if chosen := name if _BOOLEANS[value] else switches[name]:
                yield chosen
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


class DefaultGroup(SpellingGroup):
    """Such a group that without the name of a command runs one of them, with all arguments.

    `default`: its name. The group's options may stand before a command's name, as everywhere.
    """

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": False, **kwargs})
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # To complete the first word, the group stands for itself and for its default.
        undecided = ctx.resilient_parsing if not args else args[0] in ctx.help_option_names
        if not undecided and self._first_word(args) not in self.commands:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def _first_word(self, args: Sequence[str]) -> str | None:
        """The first argument that is neither an option of the group nor the value of one."""
        with_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        }
        words = iter(args)
        for word in words:
            if not word.startswith("-"):
                return word
            if word in with_value:
                next(words, None)
        return None
