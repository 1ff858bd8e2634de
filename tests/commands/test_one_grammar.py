"""One grammar: each flag that says which cluster, which objects and how long is the same wherever
it is, as kubectl spells it, and stands with every command for which it means something."""

from collections.abc import Iterator

import click
import pytest

from kubectl_nodelife.cli import nodelife


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Each command with its words, those of groups included."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(nodelife))
OPTIONS = {
    words: [param for param in command.params if isinstance(param, click.Option)]
    for words, command in COMMANDS.items()
}

# What asks no cluster: it plays a scenario, or prints what the program holds.
WITHOUT_CLUSTER = {
    *("simulate", "sweep", "sandbox", "rbac", "version", "options"),
    *(words for words in COMMANDS if words.startswith(("completion ", "metrics "))),
}
CONNECTION = {"--context", "--kubeconfig", "-n", "--request-timeout", "-v"}
OF_SEVERAL = {"status", "audit", "budgets", "diverge", "changes", "drain-plan", "what-if"}

# Flag -> the commands for which it means something.
MEANING = {
    "-l": {
        *("status", "drain-plan", "drain", "upgrade plan", "upgrade start", "budgets"),
        *("audit", "repair", "daemonset show", "upgrade status"),
    },
    "--field-selector": {"status"},
    "-A": {"daemonset show", "audit", "budgets", "repair"},
    # A drain's, as kubectl drain has it; and that of kubectl rollout status.
    "--timeout": {"drain", "drain-plan", "daemonset status"},
    "--contexts": OF_SEVERAL,
    "--cluster-timeout": OF_SEVERAL,
}
LONG_OF = {
    "-n": "--namespace",
    "-l": "--selector",
    "-A": "--all-namespaces",
    "-o": "--output",
    "-v": "--v",
    "-w": "--watch",
    "-f": "--filename",
}
# As kubectl logs has it.
OTHERWISE = {("daemon logs", "-f"): "--follow"}


def with_flag(flag: str) -> set[str]:
    return {
        words
        for words, options in OPTIONS.items()
        if any(flag in (*option.opts, *option.secondary_opts) for option in options)
    }


@pytest.mark.parametrize("flag", sorted(CONNECTION))
def test_whatever_asks_a_cluster_takes_every_flag_of_the_connection(flag: str) -> None:
    assert COMMANDS.keys() - with_flag(flag) <= WITHOUT_CLUSTER
    assert COMMANDS.keys() - with_flag("--context") == WITHOUT_CLUSTER


@pytest.mark.parametrize("flag", MEANING)
def test_a_flag_stands_where_it_means_something_and_nowhere_else(flag: str) -> None:
    assert with_flag(flag) == MEANING[flag]


@pytest.mark.parametrize("flag", LONG_OF)
def test_a_short_flag_is_short_for_the_same_everywhere(flag: str) -> None:
    for words, options in OPTIONS.items():
        for option in options:
            if flag in option.opts:
                assert OTHERWISE.get((words, flag), LONG_OF[flag]) in option.opts, words


def test_a_level_of_words_is_a_number_as_in_kubectl() -> None:
    for words in with_flag("-v"):
        (option,) = (option for option in OPTIONS[words] if "-v" in option.opts)
        assert isinstance(option.type, click.IntRange) and option.type.min == 0, words
        assert option.metavar == "LEVEL" and not option.is_flag and option.nargs == 1, words


def test_a_limit_names_what_it_limits() -> None:
    """A bare --timeout is the drain's or the rollout's; each other one says whose it is."""
    for words, options in OPTIONS.items():
        for option in options:
            for name in option.opts:
                if "timeout" in name and words not in MEANING["--timeout"]:
                    assert name != "--timeout" and name.endswith("-timeout"), (words, name)
