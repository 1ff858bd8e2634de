"""`kubectl nodelife what-if`: what would happen if nodes, a zone or the link were lost, and the
like."""

from __future__ import annotations

import json

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.flags import Output, Where, output_flags, where_flags
from kubectl_nodelife.commands.several_clusters import several_clusters
from kubectl_nodelife.commands.what_if_flags import QuestionFlags, acts_and_dumps, question_flags
from kubectl_nodelife.errors import EXIT_INTERRUPTED, EXIT_NO, BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS

_QUESTION = "what_if"
_OF_ONE_QUESTION = ("timeline", "html")
"""Formats that a ranking has not."""


@click.command(
    "what-if",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, metavar="ACT [TARGET...]", type=click.UNPROCESSED)
@question_flags
@output_flags(*FORMATTERS, *_OF_ONE_QUESTION)
@where_flags("no_daemon", "profile", "assignments")
@several_clusters("workloads with an outage")
def what_if(words: tuple[str, ...], asked: QuestionFlags, output: Output, where: Where) -> int:
    """What would happen if a node, a zone or the link were lost, drained, tainted, set otherwise?

    The cluster as it is now is played on twice, with and without the acts, by the same logic that
    everything here stands on; what differs is shown. Nothing is written anywhere. --at says when an
    act happens, --for when a loss ends; --and begins the next act. --each asks the same of each
    node, zone or group, or of those of -l and --zone, and ranks them.

    Answered by the daemon where one watches the cluster, else by a first look at it, and it says
    which. --each, --profile and --set need a first look. -f names a dump, or a file of acts (kind
    Acts or Scenario), and may be given for both.

    \b
    Examples:
      kubectl nodelife what-if lose zone eu-1a --for 20m
      kubectl nodelife what-if lose node worker-1 --and drain worker-2 --ignore-daemonsets --at 1m
      kubectl nodelife what-if lose link -f dump/
      kubectl nodelife what-if set node-monitor-grace-period=20s --and lose node worker-1
      kubectl nodelife what-if taint node worker-1 maintenance=now:NoExecute -o json
      kubectl nodelife what-if lose zone eu-1a --enforced
      kubectl nodelife what-if --each node
      kubectl nodelife what-if --each zone lose link --for 5m
      kubectl nodelife what-if --each pair-of zone --for 20m
    """
    files = acts_and_dumps(where.filename)
    if not words and asked.each is None and not files.acts:
        from kubectl_nodelife.outlook.what_if.acts import FORMS

        raise BadInput("which act?", on="what-if", remedy=f"one of: {'; '.join(FORMS)}")
    asked.conditions()
    asked.until_ns()
    if where.profile:
        see = f"kubectl nodelife upgrade preview {where.profile}"
        terminal.note(f"what {where.profile} changes for what is here: {see}")
    where = where._replace(filename=files.dumps)
    where.check()
    if asked.each is not None:
        if files.acts:
            raise BadInput("is not for --each", on="-f", remedy="give the act in words")
        of_one = f"-o {output.format}" if output.format in _OF_ONE_QUESTION else ""
        if of_one := "--enforced" if asked.enforced else of_one:
            raise BadInput("is not for --each", on=of_one, remedy="ask about one target")
        return _rank(where, words, asked, output)
    query = {
        "word": words,
        "acts": [json.dumps(each) for each in files.acts],
        **asked._asdict(),
        **output.query(),
    }
    return ask.followed_answer(where, _QUESTION, query, exit_code=True)


def _rank(where: Where, words: tuple[str, ...], asked: QuestionFlags, output: Output) -> int:
    """Play the act on each target, and show the ranking; the exit code. Raises BadInput.

    Not the daemon's work: it may take minutes on all cores, and shows how far it is.
    """
    from kubectl_nodelife.commands.answering.what_if import exceeds, rank, reading
    from kubectl_nodelife.commands.cluster.look import look
    from kubectl_nodelife.report.what_if import ranking_page

    view = look(where, reading({}))
    if not where.filename:
        ask.say_first_look("a first look: what was not seen is taken from the objects")
    for warning in view.warnings:
        terminal.warn(warning)
    answer = rank(view, words, asked)
    output.show(ranking_page(answer))
    if answer.partial:
        return EXIT_INTERRUPTED
    failed = exceeds(asked.conditions(), [item.verdict.__getitem__ for item in answer.items])
    return EXIT_NO if failed else 0
