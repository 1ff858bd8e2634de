"""Plays `what-if --each`: the act on each target, in as many processes as there are cores.

The processes are forked from one that holds the present. What comes back is in the order of the
targets, whatever the number of processes. Ctrl-C ends the plays that are under way and keeps what
is there. Where forks are unsafe (macOS) one process plays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing import connection, get_context
from typing import Final, TypeVar

from kubectl_nodelife.commands.answering.beside import cores
from kubectl_nodelife.commands.answering.what_if import beta_only, ignored, question_of
from kubectl_nodelife.commands.what_if_flags import QuestionFlags
from kubectl_nodelife.errors import Failed
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
from kubectl_nodelife.report.live_line import progress_bar

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
    processes = min(jobs or cores(), len(targets))
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
