"""Plays `what-if --each`: the act on each target, in as many processes as there are cores."""

from __future__ import annotations

from collections.abc import Sequence

from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.commands.answering.what_if import beta_only, ignored, question_of
from kubectl_nodelife.commands.parallel_plays import play_all
from kubectl_nodelife.commands.what_if_flags import QuestionFlags
from kubectl_nodelife.kube.times import SECOND_NS
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
