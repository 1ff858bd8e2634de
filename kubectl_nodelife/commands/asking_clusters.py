"""Asks several clusters at once, a thread each, until all have answered or the time is up; and puts
their answers on one page: what is wrong and where, then a table of each kind, CONTEXT first.

A thread runs the verb itself; what that writes goes into its answer (`terminal.sink`). Reads end at
the moment of `answer_by`, with the credential plugins that they wait for; what cannot be ended, a
name that is looked up or a plan that is played, is left, and the process ends without it (`leave`).
Of contexts of one cluster the next is asked only where the server does not take the credentials of
the one before: a server that cannot be reached is not tried again.

The first line of the page says how many of those that answered have trouble, and how many did not
answer. Clusters in trouble come first, and where those that are well are not asked for, they are
but named. Tables with the same columns become one. At the end stand the errors, folded by their
cause. The document is a List of the clusters' documents.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import click

from kubectl_nodelife import errors
from kubectl_nodelife.commands.flags import answer_by
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.times import human_seconds
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import UNKNOWN, Block, Column, Page, Table, columns
from kubectl_nodelife.report.live_line import progress_bar
from kubectl_nodelife.report.terminal import Sink, sink

_CLUSTERS = columns("context | source | age | server*")
_CONTEXT = Column("context")


class ClusterAnswer(NamedTuple):
    """The answer of one cluster. `context`: the name, or names, by which it is known; `code`: the
    exit code; `text`: what it wrote to stdout, `notes`: the lines of its stderr; `error`: why there
    is no answer, `cause` the same without what is of this cluster alone, and without `remedy`."""

    context: str
    code: int
    text: str
    error: str = ""
    notes: tuple[str, ...] = ()
    cause: str = ""
    remedy: str = ""


def clusters_page(
    answers: Sequence[ClusterAnswer],
    trouble: str = "",
    *,
    well: bool = True,
    only_trouble: bool = False,
) -> Page:
    """The answers of several clusters as one page. Their texts are parts of pages or documents.

    `trouble`: of what a cluster in trouble has some, such as "nodes in trouble"; "": nothing is
    judged. `well`: those without any are shown, and not only named. `only_trouble`: not even that.
    It gives no names: those of several clusters are shown beside their contexts.
    """

    def blocks(*, wide: bool) -> Iterable[Block]:
        """What is wrong and where; the clusters; then the tables, and what stands between them for
        each cluster; last those that are well, and those that did not answer."""
        parts = {a.context: json.loads(a.text) if a.text else {} for a in answers}
        answered = [a for a in answers if not a.error]
        answered.sort(key=lambda answer: -_troubles(parts[answer.context]))
        all_shown = well and not only_trouble
        shown = [a for a in answered if all_shown or not _is_well(parts[a.context])]
        troubled = {a.context: n for a in answered if (n := _troubles(parts[a.context]))}
        yield _headline(len(answered), len(answers) - len(answered), trouble, troubled)
        yield Table(_CLUSTERS, [_cluster_row(a, parts[a.context].get("source")) for a in shown])
        yield from _merged({a.context: parts[a.context].get("blocks", []) for a in shown})
        if (named := [a.context for a in answered if a not in shown]) and not only_trouble:
            are = "is" if len(named) == 1 else "are"
            yield f"{counted(len(named), 'cluster')} {are} well: {_listed(named)}"
        if unanswered := list(_causes(answers)):
            yield "\n".join(["No answer:", *unanswered])

    return Page(blocks, partial(_document, answers), lambda: ())


def _headline(answered: int, silent: int, trouble: str, troubled: dict[str, int]) -> str:
    """`troubled`: context -> how much is in trouble."""
    if not answered:
        return f"None of {counted(silent, 'cluster')} answered"
    rest = f"; {silent} did not answer" if silent else ""
    many = counted(answered, "answering cluster")
    if not trouble:
        return f"{counted(answered, 'cluster')} answered{rest}"
    if not troubled:
        return f"None of {many} has {trouble}{rest}"
    has = "has" if len(troubled) == 1 else "have"
    named = _listed(f"{context} ({n})" for context, n in troubled.items())
    return f"{len(troubled)} of {many} {has} {trouble}: {named}{rest}"


def _document(answers: Sequence[ClusterAnswer]) -> object:
    """A List; `source.context` says of which cluster each item is. A cluster without an answer
    stands in `unanswered`."""
    items = [with_context(json.loads(a.text), a.context) for a in answers if a.text]
    unanswered = [{"context": a.context, "error": a.error} for a in answers if a.error]
    return {"apiVersion": "v1", "kind": "List", "items": items, "unanswered": unanswered}


def _listed(clusters: Iterable[str]) -> str:
    """The clusters in prose: those with several contexts as `a = b`."""
    return ", ".join(name.replace(", ", " = ") for name in clusters)


def _troubles(parts: dict[str, Any]) -> int:
    return int(parts.get("trouble") or 0)


def _is_well(parts: dict[str, Any]) -> bool:
    """True where the cluster was seen just now, and nothing is wrong with it."""
    seen = not (parts.get("source") or {}).get("standsStill")
    return seen and parts.get("trouble") == 0


def _causes(answers: Iterable[ClusterAnswer]) -> Iterable[str]:
    """A line for each reason why clusters did not answer, the most frequent first."""
    causes: dict[str, list[ClusterAnswer]] = {}
    for answer in answers:
        if answer.error:
            causes.setdefault(answer.cause or answer.error, []).append(answer)
    for cause, ofs in sorted(causes.items(), key=lambda each: -len(each[1])):
        remedies = {answer.remedy for answer in ofs}
        advice = f"; {remedies.pop()}" if len(remedies) == 1 and all(remedies) else ""
        yield f"  {cause} ({len(ofs)}): {_listed(a.context for a in ofs)}{advice}"


def _cluster_row(answer: ClusterAnswer, source: Any) -> list[object]:
    source = source if isinstance(source, dict) else {}
    age = source.get("age")
    is_age = isinstance(age, int | float)
    return [
        answer.context,
        source.get("kind") or UNKNOWN,
        human_seconds(age) if is_age else None,
        source.get("server"),
    ]


def with_context(document: Any, context: str) -> Any:
    """The document with the context in its source."""
    if isinstance(document, dict):
        source = document.get("source")
        document["source"] = {**(source if isinstance(source, dict) else {}), "context": context}
    return document


def _merged(parts: dict[str, list[Any]]) -> Iterable[Block]:
    """Tables with the same columns as one, paragraphs below the names of their contexts; in the
    order of their first appearance."""
    rows: dict[str, list[list[object]]] = {}
    merged: dict[object, Table | list[str]] = {}
    for context, blocks in parts.items():
        place = 0
        for block in blocks:
            if isinstance(block, str):
                texts = merged.setdefault(("text", place), [])
                assert isinstance(texts, list)
                texts.append(_paragraph(context, block))
                continue
            place += 1
            table = Table.from_json(block)
            key = " | ".join(column.header for column in table.columns)
            if key not in rows:
                merged[key] = Table((_CONTEXT, *table.columns), rows.setdefault(key, []))
            rows[key] += ([context, *row] for row in table.rows)
    for block in merged.values():
        yield "\n".join(block) if isinstance(block, list) else block


def _paragraph(context: str, text: str) -> str:
    lines = text.strip("\n").splitlines()
    if len(lines) == 1:
        return f"{context}: {lines[0]}"
    return "\n".join([f"{context}:", *(f"  {line}" if line else "" for line in lines)])


_GRACE_S: Final = 0.5
"""What ends at the moment still has to say so."""

Verb = Callable[[str], object]
"""Answers for the context of that name; what it returns, if a number, is the exit code."""


class AskedCluster(NamedTuple):
    """A cluster: the contexts that mean it, in the order in which they are tried. `error`: why its
    context leads nowhere."""

    names: tuple[str, ...]
    error: errors.NodelifeError | None = None

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
            if answer.code == errors.EXIT_UNREACHABLE and time.monotonic() >= by:
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
        if answer.code == errors.EXIT_UNREACHABLE:
            break
    assert first is not None
    return first._replace(text="", notes=())


def _run(cluster: AskedCluster, verb: Verb, context: str) -> ClusterAnswer:
    """How the verb ended for that context."""
    try:
        code = verb(context)
    except errors.NodelifeError as error:
        return _failed(cluster, error)
    except click.ClickException as error:
        message = error.format_message()
        return ClusterAnswer(cluster.name, errors.EXIT_USAGE, "", message, cause=message)
    except Exception as error:
        from kubectl_nodelife.report.bug import report_bug

        report_bug(error, ())
        what = f"a bug of this program ({type(error).__name__})"
        return ClusterAnswer(cluster.name, errors.EXIT_FAILED, "", what, cause=what)
    code = code if isinstance(code, int) else errors.EXIT_DONE
    failed = "" if code in (errors.EXIT_DONE, errors.EXIT_NO) else f"it ended with exit code {code}"
    return ClusterAnswer(cluster.name, code, "", failed)


def _failed(cluster: AskedCluster, error: errors.NodelifeError) -> ClusterAnswer:
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
    return _failed(
        cluster, errors.Unreachable(what, remedy="give them longer by --cluster-timeout")
    )
