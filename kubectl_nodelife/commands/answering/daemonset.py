"""Answers `daemonset`: counts, truth table, rollout status, history and undo.

The work is done in a thread, on immutable objects, so that the daemon's loop goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, NamedTuple

from kubectl_nodelife.commands.answering import (
    HISTORY,
    NODES,
    STATUS,
    SUMMARY,
    UNDO,
    Query,
    Response,
    SetQuestion,
    flags_of,
    output_of,
)
from kubectl_nodelife.commands.answering import QUESTION as QUESTION
from kubectl_nodelife.commands.cluster.look import KindsToRead, none_found
from kubectl_nodelife.errors import BadInput, Failed, NotFound, Unreachable
from kubectl_nodelife.kube.selectors import label_selector
from kubectl_nodelife.outlook.daemonset import kubectl_rollout, summary
from kubectl_nodelife.outlook.daemonset.rollout_outlook import (
    RolloutOutlook,
    UndoOutlook,
    history_rows,
    rollout_outlook,
    undo_outlook,
)
from kubectl_nodelife.outlook.daemonset.truth_table import truth_table
from kubectl_nodelife.outlook.daemonset.view import DaemonSets, SetView, lacking_to_count
from kubectl_nodelife.outlook.view import WARMING_UP, ClusterView
from kubectl_nodelife.report import daemonset
from kubectl_nodelife.report.formats import Output, Page

WATCH_SECONDS: Final = 1.0
_DELETED: Final = "object has been deleted"
_PAGES: Final = ("table", "wide")


class NoSuchSet(NotFound):
    """There is no set of that name."""


class DaemonSetsView(NamedTuple):
    """The sets as they were at one moment, where they are from, and what is to be said of that.

    `names`: NAMESPACE/NAME of each set that there is, of which `sets` may hold the one asked for.
    """

    sets: DaemonSets
    source: dict[str, Any]
    warnings: list[str]
    names: list[str] = []


def reading(query: Query) -> KindsToRead:
    """The sets of one namespace or all, with what they depend on. Without -A only the one namespace
    is read, but for the nodes: a user who may not read more gets an answer too.
    """
    return KindsToRead(
        summary.KINDS,
        needed=("DaemonSet",),
        missing_parts=summary.missing_parts,
        namespace=flags_of(query, SetQuestion).namespace,
        pods_everywhere=summary.pods_take_room,
    )


def answer(view: ClusterView, query: Query) -> Response:
    """The answer at once. Raises NodelifeError."""
    return prepare(view, query)()


def prepare(view: ClusterView, query: Query) -> Callable[[], Response]:
    """The function that makes the answer, in a thread if that is better.

    Raises BadInput, Failed, Unreachable where the sets are not to be had.
    """
    question, output = _question_of(query), output_of(query)
    looking = _looking(view, question)
    return lambda: _answer_from(looking(), question, output)


def _question_of(query: Query) -> SetQuestion:
    """The question that is asked. Raises BadInput."""
    question = flags_of(query, SetQuestion)
    if question.about not in _ANSWERS:
        raise BadInput(f"the daemon has no answer about {question.about!r} of DaemonSets")
    label_selector(question.selector)
    return question


def _looking(view: ClusterView, question: SetQuestion) -> Callable[[], DaemonSetsView]:
    if view.watched and "DaemonSet" in view.unread:
        error = view.unread["DaemonSet"]
        if error:
            raise Failed(error, on="daemonsets.apps", remedy="see 'kubectl nodelife rbac'")
        remedy = "try again in a moment, or look directly with --no-daemon"
        raise Unreachable("the daemon has not read the DaemonSets yet", remedy=remedy)
    sets = summary.daemon_sets(view, question.namespace or None, question.name)
    warnings = [
        w for w in view.warnings if not w.startswith(WARMING_UP)
    ]  # sets do not depend on that
    names = set_names(view)
    return lambda: DaemonSetsView(sets(), view.source, warnings, names)


def set_names(view: ClusterView) -> list[str]:
    """NAMESPACE/NAME of each DaemonSet."""
    return [f"{obj.namespace}/{obj.name}" for obj in view.cache.all("DaemonSet")]


def _answer_from(look: DaemonSetsView, question: SetQuestion, output: Output) -> Response:
    return {"warnings": look.warnings, **_ANSWERS[question.about](look, question, output)}


def _summary(look: DaemonSetsView, question: SetQuestion, output: Output) -> Response:
    sets = look.sets
    keys = [_find(look, question)] if question.name else _chosen(sets, question)
    everywhere = not question.namespace
    summaries = [summary.summarize(sets, key) for key in keys]
    sections = list(summary.set_sections(sets, summaries[0])) if question.name else []
    page = daemonset.summary_page(
        summaries, look.source, sets.now_ns, everywhere, look.warnings, sections
    )
    where = "" if everywhere else f" in {question.namespace} namespace"
    if not keys and output.format in (*_PAGES, "name", "markdown"):
        return {"note": f"No resources found{where}"}
    note = "" if keys else f"No resources found{where}"
    return {"text": output.render(page), "note": note}


def _nodes(look: DaemonSetsView, question: SetQuestion, output: Output) -> Response:
    """The truth table of one set, or of each, below its name."""
    if question.name:
        return {"text": output.render(_truth_table(look, _find(look, question)))}
    keys = _chosen(look.sets, question)
    tables = (output.render(_truth_table(look, key)) for key in keys)
    text = "\n".join(f"{_on(key)}\n{table}" for key, table in zip(keys, tables, strict=True))
    return {"text": text, "note": "" if keys else none_found(question.namespace or None)}


def _chosen(sets: DaemonSets, question: SetQuestion) -> list[tuple[str, str]]:
    """The keys of the sets of the namespace, or of all, which have the labels asked for."""
    return sets.set_keys(question.namespace or None, label_selector(question.selector))


def _truth_table(look: DaemonSetsView, key: tuple[str, str]) -> Page:
    sets = look.sets
    lacking = lacking_to_count(sets.unread)
    if lacking:
        raise Failed(f"no {lacking} were read, so that no node can be judged", on=_on(key))
    view = _view(sets, key)
    return daemonset.truth_table_page(summary.summarize(sets, key), truth_table(view), look.source)


def _status(look: DaemonSetsView, question: SetQuestion, output: Output) -> Response:
    return {
        "text": output.render(daemonset.rollout_page(_rollout_outlook(look, question), look.source))
    }


def _rollout_outlook(look: DaemonSetsView, question: SetQuestion) -> RolloutOutlook:
    key = _find(look, question)
    try:
        return rollout_outlook(_view(look.sets, key))
    except kubectl_rollout.RolloutError as error:
        raise Failed(str(error), on=_on(key)) from None


def _history(look: DaemonSetsView, question: SetQuestion, output: Output) -> Response:
    view, number = _view_with_revisions(look, question), question.revision
    if number:
        try:
            kubectl_rollout.revision_of_number(view.revisions, number)
        except kubectl_rollout.RolloutError as error:
            raise Failed(str(error), on=_on(view.daemon_set.key)) from None
    rows = history_rows(view)
    if not rows and output.format in _PAGES:
        return {"text": f"{kubectl_rollout.NO_HISTORY}\n"}
    namespace, name = view.daemon_set.key
    page = daemonset.history_page(namespace, name, rows, look.source, view.now_ns, number)
    return {"text": output.render(page)}


def _undo(look: DaemonSetsView, question: SetQuestion, output: Output) -> Response:
    outlook = undo_of(look, question)
    return {"text": output.render(daemonset.undo_page(outlook, look.source))}


def undo_of(look: DaemonSetsView, question: SetQuestion) -> UndoOutlook:
    """Going back, as `daemonset undo` shows it. Raises Failed."""
    view = _view_with_revisions(look, question)
    try:
        return undo_outlook(view, question.revision)
    except kubectl_rollout.RolloutError as error:
        raise Failed(str(error), on=_on(view.daemon_set.key)) from None


_ANSWERS: Final[dict[str, Callable[[DaemonSetsView, SetQuestion, Output], Response]]] = {
    SUMMARY: _summary,
    NODES: _nodes,
    STATUS: _status,
    HISTORY: _history,
    UNDO: _undo,
}


async def watch(look: Callable[[], ClusterView], query: Query) -> AsyncGenerator[Response]:
    """`daemonset status` each time that there is something to say, until the update is over."""
    import asyncio

    question, output = _question_of(query), output_of(query)
    ends = time.monotonic() + question.timeout
    on = _on((question.namespace, question.name))
    last_fingerprint: object = None
    uid = ""
    warned: set[str] = set()
    while True:
        looking = _looking(look(), question)
        try:
            outlook, text, warnings = await asyncio.to_thread(_glance, looking, question, output)
        except NoSuchSet:
            if not uid:
                raise
            raise Failed(_DELETED, on=on) from None
        if uid not in ("", outlook.view.daemon_set.uid):
            raise Failed(_DELETED, on=on)
        uid = outlook.view.daemon_set.uid
        if outlook.fingerprint() != last_fingerprint:
            last_fingerprint = outlook.fingerprint()
            yield {"text": text, "warnings": [w for w in warnings if _same(w) not in warned]}
            warned.update(map(_same, warnings))
        if outlook.state.done:
            return
        if question.timeout and time.monotonic() > ends:
            raise Failed("timed out waiting for the condition", on=on)
        await asyncio.sleep(WATCH_SECONDS)


def _glance(
    looking: Callable[[], DaemonSetsView], question: SetQuestion, output: Output
) -> tuple[RolloutOutlook, str, list[str]]:
    look = looking()
    outlook = _rollout_outlook(look, question)
    if output.format in _PAGES:
        return outlook, daemonset.rollout_news(outlook), look.warnings
    return outlook, output.render(daemonset.rollout_page(outlook, look.source)), look.warnings


def _same(warning: str) -> str:
    """The warning without its numbers, which differ each time."""
    return re.sub(r"\d+", "#", warning)


def _find(look: DaemonSetsView, question: SetQuestion) -> tuple[str, str]:
    """The key of the set that is asked for. Raises Failed."""
    sets, name, namespace = look.sets, question.name, question.namespace
    keys = [key for key in sets.set_keys(namespace or None) if key[1] == name]
    if not keys:
        elsewhere = [key[0] for key in sets.set_keys() if key[1] == name]
        if "DaemonSet" in sets.unread:
            remedy = "add what 'kubectl get daemonsets,controllerrevisions -A -o json' prints"
            remedy = f"no DaemonSets were read: {remedy}"
            raise NoSuchSet("daemonsets.apps", name, remedy=remedy)
        remedy = "check the name, and the namespace with -n"
        if elsewhere:
            remedy = f"it is in namespace {elsewhere[0]}: use -n"
            raise NoSuchSet("daemonsets.apps", name, remedy=remedy)
        meant, there = f"{namespace}/{name}", look.names
        if not namespace:
            meant, there = name, [each.rpartition("/")[2] for each in there]
        raise NoSuchSet("daemonsets.apps", meant, remedy=remedy, among=there)
    return keys[0]


def _view(sets: DaemonSets, key: tuple[str, str]) -> SetView:
    """The view of a set. Raises Failed where its template cannot be read."""
    view = sets.view(key)
    if view is None:
        raise Failed(f"its template cannot be read: {sets.fault(key)}", on=_on(key))
    return view


def _view_with_revisions(look: DaemonSetsView, question: SetQuestion) -> SetView:
    key = _find(look, question)
    if "ControllerRevision" in look.sets.unread:
        raise Failed("no ControllerRevisions were read, and they are the history", on=_on(key))
    return _view(look.sets, key)


def _on(key: tuple[str, str]) -> str:
    return f"daemonset {key[0]}/{key[1]}"
