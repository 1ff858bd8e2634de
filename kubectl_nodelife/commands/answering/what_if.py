"""Answers `what-if`: the cluster of the view is played on with and without the acts; and ranks what
an act does to each target (`--each`).

The daemon does the first in a forked child (`daemon/forked_answers`). What is played side by side
is played in forked processes, as many as there are cores; where forks are unsafe (macOS) one
process plays. A child that works beside an answer (`in_children`) has no more time than this
process has left (`ITIMER_REAL`). What it makes comes back pickled through a pipe, all at its end.
Where it cannot begin, or ends without having made it, its works are done here instead, so that
whatever goes wrong with them is raised here.

A ranking is in the order of the targets, whatever the number of processes. Ctrl-C ends the plays
that are under way and keeps what is there.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

from msgspec.structs import replace

from kubectl_nodelife.commands import answering
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.errors import BadInput, Failed
from kubectl_nodelife.kube.kinds import DRAIN_KINDS
from kubectl_nodelife.kube.times import SECOND_NS, format_duration
from kubectl_nodelife.outlook.situation import on_nodes_steps
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.what_if import CONDITIONS
from kubectl_nodelife.outlook.what_if.acts import (
    Act,
    Narrowing,
    acts_of_file,
    enforced_act,
    narrowing,
    read_acts,
    split_words,
)
from kubectl_nodelife.outlook.what_if.answer import ASSUMED, make_answer
from kubectl_nodelife.outlook.what_if.document import Both
from kubectl_nodelife.outlook.what_if.play_reading import chains
from kubectl_nodelife.outlook.what_if.question import (
    Question,
    Works,
    afterwards,
    play,
    run_summary_of,
)
from kubectl_nodelife.outlook.what_if.ranking import (
    PAIR_OF,
    Ranker,
    WhatIfRanking,
    act_on,
    group_by,
    horizon_ns,
    ranked,
    targets_of,
    words_on,
)
from kubectl_nodelife.outlook.what_if.service_levels import ServedObject, named_workloads
from kubectl_nodelife.report.live_line import progress_bar
from kubectl_nodelife.report.narration import narration_page
from kubectl_nodelife.report.what_if import html_page, what_if_page

if TYPE_CHECKING:
    from multiprocessing import connection

KINDS: Final = (*DRAIN_KINDS, "ControllerRevision")
TIMELINE: Final = "timeline"
HTML: Final = "html"

_PLAYS: Final = (
    "plays on without the acts",
    "plays on with them",
    "plays on with what takes shortest",
    "plays on with what takes longest",
    "puts the answer together",
)
"""What is done after so many plays."""

_MANY_PODS: Final = 2000
"""From so many on a play takes longer than another process to begin."""

_HOUR_NS: Final = 3600 * SECOND_NS


def reading(query: answering.Query) -> KindsToRead:
    """The kinds of objects that a play needs. Raises BadInput for what is no act on any cluster."""
    if words := query.get("word", ()):
        list(split_words(words))
    return KindsToRead(KINDS, needed=("Node", "Pod"))


def first_steps(view: ClusterView, query: answering.Query) -> Generator[None, None, str]:
    """Who is on the nodes of the acts, in words, before anything is played; "" where the acts are
    about no nodes. Raises BadInput, NotFound.
    """
    nodes = dict.fromkeys(name for act in _acts(view, query) for name in act.nodes)
    return (yield from on_nodes_steps(view.cache, list(nodes)))


def answer(
    view: ClusterView, query: answering.Query, says: Callable[[str], None] = lambda what: None
) -> answering.Response:
    """The changes that the acts make. `says`: what is being done. Raises BadInput, NotFound."""
    asked = answering.flags_of(query, answering.QuestionFlags)
    acts = _acts(view, query)
    ignores = ignored(asked.ignored, view)
    question = question_of(view, acts, asked.until_ns() or _HOUR_NS, asked)
    with progress_bar("playing", len(_PLAYS) - 1) as step:

        def progress(done: int) -> None:
            step(done)
            says(_PLAYS[done])

        large = len(view.cache.pods) >= _MANY_PODS
        plays = play(question, progress, in_children if large else afterwards)
    what_if = make_answer(
        plays,
        acts,
        view.settings,
        source=view.source,
        moment=view.moment,
        warnings=view.warnings,
        ignores=ignores,
        why=[chains(plays.future, each) for each in asked.why],
    )
    output = answering.word(query, "output")
    if output == HTML:
        text = html_page(what_if)
    elif output == TIMELINE:
        text = answering.output_of({**query, "output": ["json"]}).render(
            narration_page(run_summary_of(plays))
        )
    else:
        text = answering.output_of(query).render(what_if_page(what_if))
    verdict = what_if.verdict
    failed = exceeds(asked.conditions(), [lambda figure: getattr(verdict, figure)])
    return {"text": text, "warnings": what_if.warnings, "inTrouble": failed}


def _acts(view: ClusterView, query: answering.Query) -> list[Act]:
    """The acts of the words, then those of files. Raises BadInput, NotFound."""
    acts: list[Act] = []
    words = query.get("word", ())
    if words:
        acts = read_acts(words, view.cache, beta_zone_labels_only=beta_only(view))
    files = (answering.ActsFile(*json.loads(each)) for each in query.get("acts", ()))
    acts += [acts_of_file(each.name, each.events, view.cache) for each in files]
    if answering.flags_of(query, answering.QuestionFlags).enforced:
        acts.insert(0, enforced_act())
    return [replace(act, index=index) for index, act in enumerate(acts)]


def question_of(
    view: ClusterView, acts: Sequence[Act], until_ns: int, asked: answering.QuestionFlags
) -> Question:
    """The question about the view, with a horizon."""
    if not view.nodes_listed:
        raise BadInput(
            "one node was read, not a list: what the others take, and what becomes of its zone, is "
            "not known",
            on="what-if",
            remedy="kubectl get nodes,pods,leases -A -o yaml",
        )
    read = frozenset(kind for kind in KINDS if kind not in view.unread)
    return Question(
        *(view.cache, view.settings, view.now_ns, read, acts, until_ns),
        late_renew=asked.late == "renews",
        next_pass_ns=view.outlook.next_pass_ns if view.watched else None,
    )


def beta_only(view: ClusterView) -> bool:
    """True if zones are identified by the beta labels alone."""
    return view.settings.profile.has("beta_zone_labels_only")


def ignored(texts: Iterable[str], view: ClusterView) -> Callable[[ServedObject], bool]:
    """Which workloads --ignore names. Raises BadInput."""
    return frozenset(w for text in texts for w in named_workloads(text, view.cache)).__contains__


def exceeds(conditions: Sequence[str], verdicts: Iterable[Callable[[str], Both]]) -> bool:
    """True if in some verdict the future has more of something to fail on than without acts."""
    figures = [figure for condition in conditions for figure in CONDITIONS[condition]]
    return any(figure_of(figure).rises() for figure_of in verdicts for figure in figures)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@contextmanager
def in_children(works: Works) -> Iterator[Callable[[], list[Any]]]:
    """Begin them; the function waits for what they return. At the end no child is left. Works are
    done when they are asked for where there is one core, or forks are unsafe (macOS).
    """
    children = min(len(works), cores() - 1) if sys.platform == "linux" else 0
    begun = [(works[n::children], *_begun(works[n::children])) for n in range(children)]
    try:
        yield lambda: _made_by_all(works, begun)
    finally:
        for _, readable, child in begun:
            if child:
                os.close(readable)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _made_by_all(works: Works, begun: Sequence[tuple[Works, int, int]]) -> list[Any]:
    """What the works return, in their order: of N children each has every Nth."""
    shares = [_made(readable) or [work() for work in own] for own, readable, _ in begun]
    if not shares:
        return [work() for work in works]
    return [shares[n % len(shares)][n // len(shares)] for n in range(len(works))]


def _begun(works: Works) -> tuple[int, int]:
    """(where what they return can be read, the child); -1 and 0 where there is none."""
    readable, writable = os.pipe()
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    try:
        child = os.fork()
    except OSError:
        os.close(readable)
        readable, child = -1, 0
    else:
        if child == 0:
            _work(works, writable, left_s)
    os.close(writable)
    return readable, child


def _work(works: Works, writable: int, left_s: float) -> NoReturn:
    """All of the child: it ends without this process's own ending, and says nothing."""
    try:
        signal.setitimer(signal.ITIMER_REAL, left_s)
        results = pickle.dumps([work() for work in works])
        with os.fdopen(writable, "wb") as pipe:
            pipe.write(results)
    finally:
        os._exit(0)


def _made(readable: int) -> list[Any]:
    """What the child made; nothing where it made nothing."""
    if readable == -1:
        return []
    with os.fdopen(readable, "rb", closefd=False) as pipe:
        received = pipe.read()
    try:
        results: list[Any] = pickle.loads(received)
    except (EOFError, pickle.UnpicklingError):
        return []
    return results


_ENDS_S: Final = 5.0
T = TypeVar("T")


class EachOf(NamedTuple):
    """What is ranked: the loss of each node, zone or group `each`, of those `among` the cluster's,
    or what else the `words` say that is done to it.
    """

    each: str
    among: Narrowing
    words: list[str]


def each_of(words: Sequence[str], asked: answering.QuestionFlags) -> EachOf:
    """The ranking that is asked for. Raises BadInput for what is none on any cluster."""
    each = asked.each or ""
    among, rest = narrowing(words)
    if each == PAIR_OF:
        each, rest = f"{PAIR_OF} {' '.join(rest[:1])}", rest[1:]
    group_by(each)
    list(split_words(words_on(rest, ())))
    return EachOf(each, among, rest)


def rank(view: ClusterView, ranking: EachOf, asked: answering.QuestionFlags) -> WhatIfRanking:
    """The targets, the worst first, or those that were played before Ctrl-C. Raises BadInput."""
    (each, among, words), beta = ranking, beta_only(view)
    targets, without = targets_of(each, view.cache, among, beta_zone_labels_only=beta)
    acts = {
        target.name: act_on(words, target, view.cache, beta_zone_labels_only=beta)
        for target in targets
    }
    until_ns = horizon_ns(each, asked.until_ns())
    ranker = Ranker(question_of(view, (), until_ns, asked), acts, ignored(asked.ignored, view))
    outcomes, partial = play_all(ranker.outcome, list(acts), asked.jobs)
    return WhatIfRanking(
        source=view.source,
        moment=view.moment,
        profile=view.settings.profile.name,
        each=each,
        act=" ".join(words_on(words, ())),
        horizon={"untilSeconds": until_ns / SECOND_NS},
        without_group=without,
        assumed=list(ASSUMED),
        warnings=[*view.warnings, *ranker.warnings()],
        partial=partial,
        **ranked(outcomes, targets, words, _flags_of_each(asked, until_ns)),
    )


def _flags_of_each(asked: answering.QuestionFlags, until_ns: int) -> list[str]:
    """The flags of the question about one target that has the ranking's figures."""
    flags = ["--until", format_duration(until_ns)] if until_ns != _HOUR_NS else []
    flags += [f"--late={asked.late}"] if asked.late != "silent" else []
    return [*flags, *(f"--ignore={each}" for each in asked.ignored)]


def play_all(
    play: Callable[[str], T], targets: Sequence[str], jobs: int | None
) -> tuple[list[T], bool]:
    """(what `play` says of each target, whether it was interrupted). Raises what `play` raises."""
    processes = min(jobs or cores(), len(targets))
    outcomes: dict[int, T] = {}
    with progress_bar("playing", len(targets)) as step:
        try:
            if processes > 1 and sys.platform == "linux":
                _play_in_processes(play, targets, processes, outcomes, step)
            else:
                for number, target in enumerate(targets):
                    outcomes[number] = play(target)
                    step(len(outcomes))
        except KeyboardInterrupt:
            return [outcomes[number] for number in sorted(outcomes)], True
    return [outcomes[number] for number in sorted(outcomes)], False


def _play_in_processes(
    play: Callable[[str], T],
    targets: Sequence[str],
    processes: int,
    outcomes: dict[int, T],
    step: Callable[[int], None],
) -> None:
    from multiprocessing import connection, get_context

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
                outcomes[number] = outcome
                step(len(outcomes))
    finally:
        for process, pipe in begun:
            pipe.close()
            process.join(0 if len(outcomes) < len(targets) else _ENDS_S)
            if process.is_alive():
                process.terminate()
                process.join(_ENDS_S)
    if len(outcomes) < len(targets):
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
