"""The command line's frame: finds the verb, and turns every way to fail into one line and a code.

At the top only click and light modules of our own are imported: a verb's module is loaded when
the verb is called, and --help reads its line from the table below. What kubectl plugins owe their
users is kept here: usage says `kubectl nodelife`, kubectl's spellings of flags are taken, an
error is `error: ...` on stderr, a reader that goes away (SIGPIPE) is no error.

click's own `main` is not used: it would treat any broken pipe, even of a connection to a cluster,
as the reader of our output gone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kubectl_nodelife import __version__, errors
from kubectl_nodelife.commands.flags import Connection, connection_flags
from kubectl_nodelife.commands.groups import LazyGroup
from kubectl_nodelife.report import terminal

PROGRAM = "kubectl nodelife"

# Verb -> where its click command is, and its line in --help. The order is the one of --help.
VERBS: dict[str, tuple[str, str]] = {
    "status": (
        "kubectl_nodelife.commands.status:status",
        "Show each node's clock and each zone's brake.",
    ),
    "ui": (
        "kubectl_nodelife.commands.ui:ui",
        "Show the same in a browser, live, with what comes next.",
    ),
    "explain": (
        "kubectl_nodelife.commands.explain:explain",
        "Explain a node, zone, pod, DaemonSet or budget, with reasons.",
    ),
    "simulate": (
        "kubectl_nodelife.commands.simulate:simulate",
        "Play a scenario on a virtual cluster, with the reasons.",
    ),
    "what-if": (
        "kubectl_nodelife.commands.what_if:what_if",
        "Say what would happen if a node, a zone or the link were lost.",
    ),
    "sweep": (
        "kubectl_nodelife.commands.sweep:sweep",
        "Play many settings and failures, and say what each buys.",
    ),
    "drain-plan": (
        "kubectl_nodelife.commands.drain_plan:drain_plan",
        "Say whether a drain will finish, when, and what stops it.",
    ),
    "drain": (
        "kubectl_nodelife.commands.drain:drain",
        "Drain nodes as planned, wave by wave, and keep time.",
    ),
    "upgrade": (
        "kubectl_nodelife.commands.upgrade:upgrade",
        "Upgrade nodes: take them out, have work done, prove them.",
    ),
    "budgets": (
        "kubectl_nodelife.commands.budgets:budgets",
        "Show budgets' arithmetic, and which nodes they hold.",
    ),
    "daemonset": (
        "kubectl_nodelife.commands.daemonset:daemonset",
        "Say why a DaemonSet has the pods it has, node by node.",
    ),
    "rollout": (
        "kubectl_nodelife.commands.rollout:rollout",
        "Say how a DaemonSet's update goes on, and undo it.",
    ),
    "changes": (
        "kubectl_nodelife.commands.changes:changes",
        "Say what controllers would change or have changed, with reasons.",
    ),
    "diverge": (
        "kubectl_nodelife.commands.diverge:diverge",
        "Say where controllers differ from our copy of their logic.",
    ),
    "replay": (
        "kubectl_nodelife.commands.replay:replay",
        "Show the last hour as one timeline, and who did what.",
    ),
    "daemon": (
        "kubectl_nodelife.commands.daemon:daemon",
        "Start, stop or look at the process that watches a cluster.",
    ),
    "metrics": (
        "kubectl_nodelife.commands.metrics:metrics",
        "Print metrics, alerting rules and a dashboard for Prometheus.",
    ),
    "audit": (
        "kubectl_nodelife.commands.audit:audit_command",
        "Find pods that are stuck or say what is not so.",
    ),
    "repair": (
        "kubectl_nodelife.commands.repair:repair",
        "Mend such pods: show the requests, ask, and send them.",
    ),
    "snapshot": (
        "kubectl_nodelife.commands.snapshot:snapshot",
        "Save a cluster to a file that gives the same answers later.",
    ),
    "sandbox": (
        "kubectl_nodelife.commands.sandbox:sandbox",
        "Serve a simulated cluster on loopback, to try things out.",
    ),
    "rbac": (
        "kubectl_nodelife.commands.rbac:rbac",
        "Print the least roles for reading, enforcing, upgrades.",
    ),
    "options": (
        "kubectl_nodelife.commands.flags:options",
        "List the connection flags that all verbs take.",
    ),
    "doctor": (
        "kubectl_nodelife.commands.doctor:doctor",
        "Check that everything is there that this program needs.",
    ),
    "completion": (
        "kubectl_nodelife.commands.completion:completion",
        "Complete verbs, flags and names in your shell.",
    ),
    "version": (
        "kubectl_nodelife.commands.version:version",
        "Show the version of this program.",
    ),
}


@click.command(
    cls=LazyGroup,
    verbs=VERBS,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    options_metavar="[flags]",
    subcommand_metavar="VERB ...",
    epilog=f"More: '{PROGRAM} help VERB', and '{PROGRAM} options' for all connection flags.",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s v%(version)s")
@connection_flags
def nodelife(connection: Connection) -> None:
    """What will Kubernetes do about my nodes, when, why, and why not yet?"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (`errors` lists them)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    terminal.prepare()
    try:
        code = _run(arguments)
        terminal.flush()
    except BaseException as error:
        return report_error(error, arguments)
    return code


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        with nodelife.make_context(PROGRAM, arguments) as ctx:
            code = nodelife.invoke(ctx)
    except click.exceptions.Exit as finished:
        return finished.exit_code
    except click.exceptions.NoArgsIsHelpError as wanted:
        terminal.write(wanted.ctx.get_help())
        return errors.EXIT_DONE
    return code if isinstance(code, int) else errors.EXIT_DONE


def report_error(error: BaseException, arguments: Sequence[str]) -> int:
    """Say on stderr what `error` means to the user, and return the exit code for it."""
    _settle_stdout()
    match error:
        case KeyboardInterrupt() | click.Abort():
            return errors.EXIT_INTERRUPTED
        case SystemExit(code=None):
            return errors.EXIT_DONE
        case SystemExit(code=int(code)):
            return code
        case BrokenPipeError() if _came_from_output(error):
            return errors.EXIT_READER_GONE
        case errors.NodelifeError():
            line, code = str(error), error.exit_code
        case click.ClickException():
            line, code = _usage_line(error), errors.EXIT_USAGE
        case MemoryError():
            line, code = "out of memory", errors.EXIT_FAILED
        case OSError() if _came_from_output(error):
            line, code = f"cannot write the output: {error.strerror}", errors.EXIT_FAILED
        case OSError(filename=str(filename)):
            line, code = f"{filename}: {error.strerror}", errors.EXIT_FAILED
        case _:
            from kubectl_nodelife.report.bug import report_bug

            report_bug(error, arguments)
            return errors.EXIT_FAILED
    terminal.note(f"error: {line}")
    return code


def _usage_line(error: click.ClickException) -> str:
    """click's complaint in kubectl's words, with a name if one is near, and where to read on."""
    from difflib import get_close_matches

    ctx = error.ctx if isinstance(error, click.UsageError) else None
    where = ctx.command_path if ctx else PROGRAM
    nearest: Sequence[str] | None = None
    match error:
        case click.NoSuchCommand():
            what = f'unknown command "{error.command_name}"'
            nearest = get_close_matches(error.command_name, error.possibilities or (), 1)
        case click.NoSuchOption():
            what, nearest = f"unknown flag: {error.option_name}", error.possibilities
        case _:
            what = error.format_message().rstrip(".")
            what = what[:1].lower() + what[1:]
    meant = f", did you mean {nearest[0]}?" if nearest else ""
    return f"{what}{meant}; see '{where} --help'"


def _came_from_output(error: OSError) -> bool:
    """True if writing to stdout failed, and not some file or connection: we or click were at it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    writers = (terminal.__name__, "click.utils")
    return trace is not None and trace.tb_frame.f_globals.get("__name__") in writers


def _settle_stdout() -> None:
    """Write out what is buffered; if that fails, stdout becomes a hole.

    Else the interpreter would try again at its end, and complain.
    """
    try:
        terminal.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
