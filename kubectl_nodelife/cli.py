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
from kubectl_nodelife.commands.flags import Connection, LazyGroup, connection_flags
from kubectl_nodelife.report import terminal

PROGRAM = "kubectl nodelife"

# From this share of letters on (difflib) a flag may be meant by another word, dashes left out.
_ALIKE = 0.7

# What one wants -> its verbs: where the click command of each is, and its line in --help.
VERB_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "status": ("status:status", "Show each node's clock and each zone's brake."),
        "explain": ("explain:explain", "Say what happens to one object, when, and why not yet."),
        "ui": ("ui:ui", "Show the same in a browser, live, with what comes next."),
        "replay": ("replay:replay", "Show the last hour as one timeline, and who did what."),
        "changes": ("changes:changes", "Show what controllers would change, or have changed."),
        "daemonset": ("daemonset:daemonset", "Show a DaemonSet's pods and update; undo it."),
        "audit": ("audit:audit_command", "Find pods that are stuck or say what is not so."),
        "diverge": ("diverge:diverge", "Show where controllers differ from what is foretold."),
    },
    "Foretell": {
        "what-if": ("what_if:what_if", "Say what the loss of a node, a zone or a link does."),
        "drain-plan": ("drain:drain_plan", "Say whether and when a drain will finish."),
        "budgets": ("budgets:budgets", "Show budgets' arithmetic, and which nodes they hold."),
    },
    "Act": {
        "drain": ("drain:drain", "Drain nodes as planned, wave by wave, and keep time."),
        "repair": ("audit:repair", "Repair what the audit finds: show, ask, and send."),
        "upgrade": ("upgrade:upgrade", "Upgrade nodes: plan it, do it, prove them."),
        "daemon": ("daemon:daemon", "Start or stop the process that watches or enforces."),
    },
    "Study": {
        "simulate": ("simulate:simulate", "Play a scenario on a virtual cluster."),
        "sweep": ("sweep:sweep", "Play many settings and failures, and compare them."),
        "sandbox": ("sandbox:sandbox", "Serve a simulated cluster on loopback."),
    },
    "Set up": {
        "doctor": ("doctor:doctor", "Check that everything is there that verbs need."),
        "completion": ("completion:completion", "Complete verbs, flags and names in your shell."),
        "rbac": ("rbac:rbac", "Print the least roles for reading, enforcing, upgrades."),
        "metrics": ("metrics:metrics", "Print metrics, alerts and a dashboard for Prometheus."),
        "snapshot": ("snapshot:snapshot", "Save a cluster to a file, to ask it later."),
        "version": ("version:version", "Show the version of this program."),
        "options": ("version:options", "List connection flags; or a release's flags."),
    },
}

VERBS = {name: verb for verbs in VERB_GROUPS.values() for name, verb in verbs.items()}

# kubectl's own verb for what `daemonset` has: fingers know it, and it is not listed.
ALSO = {"rollout": "daemonset"}


class _Verbs(LazyGroup):
    """All verbs: their help is one screen, and `options` tells the flags that they share."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)


@click.command(
    cls=_Verbs,
    groups=VERB_GROUPS,
    folder="kubectl_nodelife.commands",
    also=ALSO,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    options_metavar="[flags]",
    subcommand_metavar="VERB ...",
    epilog=f"More: '{PROGRAM} help VERB'; all flags: '{PROGRAM} options'.",
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
            what = f"unknown flag: {error.option_name}"
            names = {name.lstrip("-"): name for name in error.possibilities or ()}
            near = get_close_matches(error.option_name.lstrip("-"), names, 1, _ALIKE)
            nearest = [names[name] for name in near]
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
