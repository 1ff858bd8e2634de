"""A group of commands that are imported when they are called, so that --help imports none."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.pflag import in_click_spelling

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
