"""`kubectl nodelife what-if`: what would happen if nodes, a zone or the link were lost, and the
like.

With `--each` the act is played on each target, in as many processes as there are cores. These are
forked from one that holds the present. What comes back is in the order of the targets, whatever the
number of processes. Ctrl-C ends the plays that are under way and keeps what is there. Where forks
are unsafe (macOS) one process plays.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing import connection, get_context
from typing import Final, TypeVar

import click

from kubectl_nodelife.commands import ask
from kubectl_nodelife.commands.answering.what_if import beta_only, ignored, question_of
from kubectl_nodelife.commands.cluster.where import Where, where_flags
from kubectl_nodelife.commands.flags import Output, output_flags
from kubectl_nodelife.commands.what_if_flags import QuestionFlags, acts_and_dumps, question_flags
from kubectl_nodelife.errors import EXIT_INTERRUPTED, EXIT_NO, BadInput, Failed
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.what_if.acts import narrowing
from kubectl_nodelife.outlook.what_if.answer import ASSUMED
from kubectl_nodelife.outlook.what_if.ranking import (
    PAIR_OF,
    Ranker,
    WhatIfRanking,
    act_on,
    horizon_ns,
    ranked,
    targets_of,
    words_on,
)
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS
from kubectl_nodelife.report.live_line import progress_bar

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
      kubectl nodelife what-if --each node
      kubectl nodelife what-if --each node -l pool=blue --zone eu-1a
      kubectl nodelife what-if --each zone lose link --for 5m
      kubectl nodelife what-if --each pair-of zone --for 20m
    """
    files = acts_and_dumps(where.filename)
    if not words and asked.each is None and not files.acts:
        from kubectl_nodelife.outlook.what_if.acts import FORMS

        raise BadInput("which act?", on="what-if", remedy=f"one of: {'; '.join(FORMS)}")
    asked.conditions()
    asked.until_ns()
    where = where._replace(filename=files.dumps)
    where.check()
    if asked.each is not None:
        if files.acts:
            raise BadInput("is not for --each", on="-f", remedy="give the act in words")
        if output.format in _OF_ONE_QUESTION:
            remedy = "ask about one target"
            raise BadInput("is not for --each", on=f"-o {output.format}", remedy=remedy)
        return _rank(where, words, asked, output)
    query = {
        "word": words,
        "acts": [json.dumps(each) for each in files.acts],
        **asked.query(),
        **output.query(),
    }
    return ask.forked_answer(where, _QUESTION, query, exit_code=True)


def _rank(where: Where, words: tuple[str, ...], asked: QuestionFlags, output: Output) -> int:
    """Play the act on each target, and show the ranking; the exit code. Raises BadInput.

    Not the daemon's work: it may take minutes on all cores, and shows how far it is.
    """
    from kubectl_nodelife.commands.answering.what_if import exceeds, reading
    from kubectl_nodelife.commands.cluster.look import look
    from kubectl_nodelife.report.what_if import RankingPage

    if not where.filename:
        ask.say_first_look("a first look: what was not seen is taken from the objects")
    view = look(where, reading({}))
    for warning in view.warnings:
        terminal.warn(warning)
    answer = rank(view, words, asked)
    output.show(RankingPage(answer))
    if answer.partial:
        return EXIT_INTERRUPTED
    failed = exceeds(asked.conditions(), [item.verdict.__getitem__ for item in answer.items])
    return EXIT_NO if failed else 0


_ENDS_S: Final = 5.0
T = TypeVar("T")


def rank(view: ClusterView, words: Sequence[str], asked: QuestionFlags) -> WhatIfRanking:
    """The targets, the worst first, or those that were played before Ctrl-C. Raises BadInput."""
    each, beta = asked.each or "", beta_only(view)
    among, words = narrowing(words)
    if each == PAIR_OF:
        each, words = f"{PAIR_OF} {' '.join(words[:1])}", words[1:]
    targets, without = targets_of(each, view.cache, among, beta_zone_labels_only=beta)
    acts = {
        target.name: act_on(words, target, view.cache, beta_zone_labels_only=beta)
        for target in targets
    }
    until_ns = horizon_ns(each, asked.until_ns())
    ranker = Ranker(question_of(view, (), until_ns, asked), acts, ignored(asked.ignored, view))
    found, partial = play_all(ranker.outcome, list(acts), asked.jobs)
    return WhatIfRanking(
        source=view.source,
        moment=view.moment,
        profile=view.settings.profile.name,
        each=each,
        act=" ".join(words_on(words, ())),
        horizon={"untilSeconds": until_ns / SECOND_NS},
        without_group=without,
        assumed=list(ASSUMED),
        warnings=view.warnings,
        partial=partial,
        **ranked(found, targets, words),
    )


def play_all(
    play: Callable[[str], T], targets: Sequence[str], jobs: int | None
) -> tuple[list[T], bool]:
    """(what `play` says of each target, whether it was interrupted). Raises what `play` raises."""
    processes = min(jobs or _cores(), len(targets))
    found: dict[int, T] = {}
    with progress_bar("playing", len(targets)) as step:
        try:
            if processes > 1 and sys.platform == "linux":
                _play_in_processes(play, targets, processes, found, step)
            else:
                for number, target in enumerate(targets):
                    found[number] = play(target)
                    step(len(found))
        except KeyboardInterrupt:
            return [found[number] for number in sorted(found)], True
    return [found[number] for number in sorted(found)], False


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _play_in_processes(
    play: Callable[[str], T],
    targets: Sequence[str],
    processes: int,
    found: dict[int, T],
    step: Callable[[int], None],
) -> None:
    context = get_context("fork")
    begun = []
    for first in range(processes):
        ours, theirs = context.Pipe(duplex=False)
        numbers = range(first, len(targets), processes)
        process = context.Process(target=_play_some, args=(play, targets, numbers, theirs))
        process.start()
        theirs.close()
        begun.append((process, ours))
    try:
        waiting = {pipe for _, pipe in begun}
        while waiting:
            for ready in connection.wait(list(waiting)):
                assert isinstance(ready, connection.Connection)
                try:
                    number, outcome, error = ready.recv()
                except EOFError:
                    waiting.discard(ready)
                    continue
                if error is not None:
                    raise error
                found[number] = outcome
                step(len(found))
    finally:
        for process, pipe in begun:
            pipe.close()
            process.join(0 if len(found) < len(targets) else _ENDS_S)
            if process.is_alive():
                process.terminate()
                process.join(_ENDS_S)
    if len(found) < len(targets):
        ended = [str(process.exitcode) for process, _ in begun if process.exitcode]
        raise Failed(f"a process that plays has ended ({', '.join(ended)})", on="--jobs")


def _play_some(
    play: Callable[[str], T],
    targets: Sequence[str],
    numbers: Sequence[int],
    pipe: connection.Connection,
) -> None:
    """The work of one of the processes."""
    try:
        for number in numbers:
            pipe.send((number, play(targets[number]), None))
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)
    except Exception as error:
        pipe.send((0, None, error))
    finally:
        pipe.close()
