"""Answers `what-if`: the cluster of the view is played on with and without the acts.

The daemon does it in a forked child (`daemon/forked_answers`), after it has listed the kinds that
it does not watch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.commands.answering.beside import in_children
from kubectl_nodelife.commands.answering.query import Query, Response, flags_of, output_of, word
from kubectl_nodelife.commands.cluster.drain import KINDS as DRAIN_KINDS
from kubectl_nodelife.commands.cluster.look import KindsToRead
from kubectl_nodelife.commands.what_if_flags import ActsFile, QuestionFlags
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.situation import on_nodes_steps
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.outlook.what_if import CONDITIONS
from kubectl_nodelife.outlook.what_if.acts import Act, acts_of_file, enforced_act, read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.document import Both
from kubectl_nodelife.outlook.what_if.play_reading import chains
from kubectl_nodelife.outlook.what_if.question import Question, afterwards, play, run_summary_of
from kubectl_nodelife.outlook.what_if.service_levels import ServedObject, named_workloads
from kubectl_nodelife.report.live_line import progress_bar
from kubectl_nodelife.report.narration import NarrationPage
from kubectl_nodelife.report.what_if import WhatIfPage, html_page

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


def reading(query: Query) -> KindsToRead:
    """The kinds of objects that a play needs."""
    return KindsToRead(KINDS, needed=("Node", "Pod"))


def first_steps(view: ClusterView, query: Query) -> Generator[None, None, str]:
    """Who is on the nodes of the acts, in words, before anything is played; "" where the acts are
    about no nodes. Raises BadInput, NotFound.
    """
    nodes = dict.fromkeys(name for act in _acts(view, query) for name in act.nodes)
    return (yield from on_nodes_steps(view.cache, list(nodes)))


def answer(
    view: ClusterView, query: Query, says: Callable[[str], None] = lambda what: None
) -> Response:
    """The changes that the acts make. `says`: what is being done. Raises BadInput, NotFound."""
    asked = flags_of(query, QuestionFlags)
    acts = _acts(view, query)
    ignores = ignored(asked.ignored, view)
    question = question_of(view, acts, asked.until_ns() or _HOUR_NS, asked)
    with progress_bar("playing", len(_PLAYS) - 1) as step:

        def progress(done: int) -> None:
            step(done)
            says(_PLAYS[done])

        large = len(view.cache.pods) >= _MANY_PODS
        plays = play(question, progress, in_children if large else afterwards)
    found = make_answer(
        plays,
        acts,
        view.settings,
        source=view.source,
        moment=view.moment,
        warnings=view.warnings,
        ignores=ignores,
        why=[chains(plays.future, each) for each in asked.why],
    )
    output = word(query, "output")
    if output == HTML:
        text = html_page(found)
    elif output == TIMELINE:
        text = output_of({**query, "output": ["json"]}).render(NarrationPage(run_summary_of(plays)))
    else:
        text = output_of(query).render(WhatIfPage(found))
    verdict = found.verdict
    failed = exceeds(asked.conditions(), [lambda figure: getattr(verdict, figure)])
    return {"text": text, "warnings": found.warnings, "inTrouble": failed}


def _acts(view: ClusterView, query: Query) -> list[Act]:
    """The acts of the words, then those of files. Raises BadInput, NotFound."""
    found: list[Act] = []
    words = query.get("word", ())
    if words:
        found = read_acts(words, view.cache, beta_zone_labels_only=beta_only(view))
    files = (ActsFile(*json.loads(each)) for each in query.get("acts", ()))
    found += [acts_of_file(each.name, each.events, view.cache) for each in files]
    if flags_of(query, QuestionFlags).enforced:
        found.insert(0, enforced_act())
    return [replace(act, index=index) for index, act in enumerate(found)]


def question_of(
    view: ClusterView, acts: Sequence[Act], until_ns: int, asked: QuestionFlags
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
