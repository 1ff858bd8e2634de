"""Asks several clusters at once, a thread each, until all have answered or the time is up.

A thread runs the verb itself; what that writes goes into its answer (`screen.sink`). Reads end at
the moment of `answer_by`, with the credential plugins that they wait for; what cannot be ended, a
name that is looked up or a plan that is played, is left, and the process ends without it (`leave`).
Of contexts of one cluster the next is asked only where the server does not take the credentials of
the one before: a server that cannot be reached is not tried again.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import click

from kubectl_nodelife.commands.flags import answer_by
from kubectl_nodelife.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NO,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    NodelifeError,
    Unreachable,
)
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.clusters import ClusterAnswer
from kubectl_nodelife.report.live_line import progress_bar
from kubectl_nodelife.report.terminal import Sink, sink

_GRACE_S: Final = 0.5
"""What ends at the moment still has to say so."""

Verb = Callable[[str], object]
"""Answers for the context of that name; what it returns, if a number, is the exit code."""


class AskedCluster(NamedTuple):
    """A cluster: the contexts that mean it, in the order in which they are tried. `error`: why its
    context leads nowhere."""

    names: tuple[str, ...]
    error: NodelifeError | None = None

    @property
    def name(self) -> str:
        """Those names as one."""
        return ", ".join(self.names)


class WrittenText(NamedTuple):
    """What a cluster's verb wrote to stdout, or `on_stderr` a line of it."""

    cluster: AskedCluster
    text: str
    on_stderr: bool = False


def ask_all(
    clusters: Sequence[AskedCluster], verb: Verb, parallel: int, seconds: float
) -> list[ClusterAnswer]:
    """The clusters' answers, in their order; so many are asked at once, and all in `seconds`."""
    by = time.monotonic() + seconds
    late = f"no answer within {seconds:g}s"
    waiting, answered = deque(enumerate(clusters)), SimpleQueue[tuple[int, ClusterAnswer]]()

    def work() -> None:
        answer_by.set(by)
        while waiting:
            try:
                index, cluster = waiting.popleft()
            except IndexError:
                return
            answer = _answer(cluster, verb)
            if answer.code == EXIT_UNREACHABLE and time.monotonic() >= by:
                answer = _late(cluster, late)
            answered.put((index, answer))

    for _ in range(min(parallel, len(clusters))):
        threading.Thread(target=work, daemon=True).start()
    answers: dict[int, ClusterAnswer] = {}
    with progress_bar("asking clusters", len(clusters)) as step:
        while len(answers) < len(clusters):
            try:
                index, answer = answered.get(timeout=max(0.0, by + _GRACE_S - time.monotonic()))
            except Empty:
                break
            answers[index] = answer
            step(len(answers))
    waiting.clear()
    return [answers.get(i) or _late(cluster, late) for i, cluster in enumerate(clusters)]


def watch_all(
    clusters: Sequence[AskedCluster], verb: Verb
) -> Iterator[WrittenText | ClusterAnswer]:
    """What the verbs of the clusters write, as it comes, and how each ended, until all have."""
    written = SimpleQueue[WrittenText | ClusterAnswer]()

    def follow(cluster: AskedCluster) -> None:
        written.put(_answer(cluster, verb, written.put))

    for cluster in clusters:
        threading.Thread(target=follow, args=(cluster,), daemon=True).start()
    going_on = len(clusters)
    while going_on:
        news = written.get()
        going_on -= isinstance(news, ClusterAnswer)
        yield news


def notes_of(answers: Iterable[ClusterAnswer]) -> Iterable[str]:
    """The lines that the clusters' answers put on stderr: each once, with whose it is."""
    contexts: dict[str, list[str]] = {}
    for answer in answers:
        for line in answer.notes:
            contexts.setdefault(line, []).append(answer.context)
    return [f"{', '.join(named)}: {line}" for line, named in contexts.items()]


def leave(code: int) -> int:
    """The exit code; where something is left that cannot be ended, the process ends here, since the
    interpreter would wait for it. Raises OSError."""
    if threading.active_count() > 1:
        terminal.flush()
        os._exit(code)
    return code


def _answer(
    cluster: AskedCluster, verb: Verb, write: Callable[[WrittenText], None] | None = None
) -> ClusterAnswer:
    """The answer by the first of the cluster's contexts that gives one, else the first's error.

    `write`: what the verb writes goes there as it comes, and not into the answer.
    """
    if cluster.error is not None:
        return _failed(cluster, cluster.error)
    first = None
    for context in cluster.names:
        texts, notes = list[str](), list[str]()
        sink.set(Sink(texts.append, notes.append))
        if write is not None:
            sink.set(
                Sink(
                    lambda text: write(WrittenText(cluster, text)),
                    lambda line: write(WrittenText(cluster, line, on_stderr=True)),
                )
            )
        answer = _run(cluster, verb, context)._replace(text="".join(texts), notes=tuple(notes))
        if not answer.error:
            return answer
        first = first or answer
        if answer.code == EXIT_UNREACHABLE:
            break
    assert first is not None
    return first._replace(text="", notes=())


def _run(cluster: AskedCluster, verb: Verb, context: str) -> ClusterAnswer:
    """How the verb ended for that context."""
    try:
        code = verb(context)
    except NodelifeError as error:
        return _failed(cluster, error)
    except click.ClickException as error:
        message = error.format_message()
        return ClusterAnswer(cluster.name, EXIT_USAGE, "", message, cause=message)
    except Exception as error:
        from kubectl_nodelife.report.bug import report_bug

        report_bug(error, ())
        what = f"a bug of this program ({type(error).__name__})"
        return ClusterAnswer(cluster.name, EXIT_FAILED, "", what, cause=what)
    code = code if isinstance(code, int) else EXIT_DONE
    failed = "" if code in (EXIT_DONE, EXIT_NO) else f"it ended with exit code {code}"
    return ClusterAnswer(cluster.name, code, "", failed)


def _failed(cluster: AskedCluster, error: NodelifeError) -> ClusterAnswer:
    place = f"{error.on}: " if error.on and "://" not in error.on else ""
    return ClusterAnswer(
        cluster.name,
        error.exit_code,
        "",
        str(error),
        cause=f"{place}{error.what}",
        remedy=error.remedy,
    )


def _late(cluster: AskedCluster, what: str) -> ClusterAnswer:
    return _failed(cluster, Unreachable(what, remedy="give them longer by --cluster-timeout"))
