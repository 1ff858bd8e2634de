"""The program's entrance, and its quick way: plain `status` through the daemon, without click.

To parse flags click takes longer than everything else that `status` does, so that the few forms in
which it is mostly typed are recognised here. Whatever is not, and whatever a running daemon does
not answer at once, goes the whole way through `cli`, which does the same in more time; a test holds
the two against one another. What asks a daemon is imported where one is asked: `--help` asks none.
"""

from __future__ import annotations

import os
import sys

OUTPUTS = ("table", "wide", "json", "yaml", "name", "markdown")

# flag -> what it is called here; all of them take a value
_WITH_VALUE = {
    "-o": "output",
    "--output": "output",
    "-l": "selector",
    "--selector": "selector",
    "--context": "context",
    "--kubeconfig": "kubeconfig",
}
_SWITCHES = {"--no-headers": "no_headers", "--exit-code": "exit_code"}


class Flags:
    """The connection flags as `known` reads them; those that the quick way does not take are
    empty.
    """

    def __init__(self, given: dict[str, str]) -> None:
        from kubectl_nodelife.daemon.paths import FIELDS

        for field in FIELDS:
            setattr(self, field, given.get(field))


def main() -> int:
    """Run the command line and return its exit code."""
    arguments = sys.argv[1:]
    given = parse(arguments) if arguments[:1] == ["status"] else None
    if given is not None:
        from kubectl_nodelife.commands import ask
        from kubectl_nodelife.report import terminal

        try:
            terminal.prepare()
            _lead(given[0])
            answer = _ask(*given)
            if answer is not None:
                code = ask.show(answer, exit_code="exit_code" in given[0])
                terminal.flush()
                return code
        except BaseException as error:
            from kubectl_nodelife import cli

            return cli.report_error(error, arguments)
    from kubectl_nodelife import cli

    if arguments[:1] == ["__complete"]:
        return _complete(arguments[1:])
    return cli.main(arguments)


def _lead(given: dict[str, str]) -> None:
    """Let commands in the answer lead to the cluster that the flags name."""
    from kubectl_nodelife.report import terminal

    words = [f"--{name}={given[name]}" for name in ("kubeconfig", "context") if name in given]
    terminal.choose_leading_flags(terminal.LeadingFlags(words, words))


def complete() -> int:
    """The program `kubectl_complete-nodelife`, which kubectl runs for a TAB; the exit code."""
    return _complete(sys.argv[1:])


def _complete(words: list[str]) -> int:
    from kubectl_nodelife import cli
    from kubectl_nodelife.commands.completion import complete

    return complete(cli.nodelife, words)


def parse(arguments: list[str]) -> tuple[dict[str, str], list[str]] | None:
    """(flags, nodes) of `status ...`; None: not one of the quick forms."""
    given: dict[str, str] = {}
    nodes: list[str] = []
    words = iter(arguments[1:])
    for word in words:
        name, equals, value = word.partition("=")
        if word in _SWITCHES:
            given[_SWITCHES[word]] = "true"
        elif name in _WITH_VALUE:
            given_value = value if equals else next(words, "")
            if not given_value or given_value.startswith("-"):
                return None
            given[_WITH_VALUE[name]] = given_value
        elif word.startswith("-") or not word:
            return None
        else:
            nodes.append(word)
    if given.get("output", "table") not in OUTPUTS or (nodes and "selector" in given):
        return None
    return given, nodes


def _ask(given: dict[str, str], nodes: list[str]) -> dict[str, object] | None:
    """The daemon's answer; None: none runs, or something must be looked into first."""
    from kubectl_nodelife.commands.ask import on_this_screen
    from kubectl_nodelife.daemon import client
    from kubectl_nodelife.daemon.paths import folder_of_sockets, recall, socket_path

    runtime = folder_of_sockets(os.environ)
    if not runtime:
        return None
    cached = recall(runtime, Flags(given), os.environ)
    if cached is None:
        return None
    try:
        answer = client.ask(
            socket_path(runtime, cached.identity),
            "status",
            node=nodes,
            selector=given.get("selector"),
            output=given.get("output", "table"),
            headers="no_headers" not in given,
            **on_this_screen(),
        )
    except (client.NotRunning, client.OtherProtocol):
        return None
    return answer if answer.get("server") == cached.server else None
