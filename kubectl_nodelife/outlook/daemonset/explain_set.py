"""Explains a DaemonSet: its counts, the nodes that are not as they should be, and its update."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import RolloutError
from kubectl_nodelife.outlook.daemonset.rollout_outlook import rollout_outlook
from kubectl_nodelife.outlook.daemonset.summary import SetSummary, summarize
from kubectl_nodelife.outlook.daemonset.truth_table import NodeRow, truth_table
from kubectl_nodelife.outlook.daemonset.view import DaemonSets, Key, SetView
from kubectl_nodelife.outlook.explain import ExplainedQuestion

_MOST = 8


def set_sections(sets: DaemonSets, key: Key) -> Iterator[ExplainedQuestion]:
    """The sections about one set that is in the cache."""
    summary = summarize(sets, key)
    counts = list(_counts(summary))
    yield ExplainedQuestion("How many pods should it have, and has it?", counts)
    odd = [text if text[0] == "(" else f"{text[0].upper()}{text[1:]}." for text in summary.odd]
    yield ExplainedQuestion("What is odd about it?", odd or ["Nothing."])
    view = sets.view(key)
    if view is None or sets.read.lacking_to_count():
        return
    rows = truth_table(view)
    left_out = [row for row in rows if not row.should_run and not row.has]
    if left_out:
        yield ExplainedQuestion("Which nodes does it leave out, and why?", _by_rule(left_out))
    moving = [f"{row.node}: {row.next}." for row in rows if row.next]
    if moving:
        yield ExplainedQuestion("What comes next, node by node?", _some(moving))
    yield ExplainedQuestion("Is an update under way?", list(_update(view)))


def _counts(summary: SetSummary) -> Iterator[str]:
    reported = summary.daemon_set.status
    yield (
        f"By its status {reported.desired_number_scheduled} nodes should run it, "
        f"{reported.current_number_scheduled} do, {reported.number_ready} are ready, "
        f"{reported.number_available} available, {reported.number_misscheduled} misscheduled."
    )
    counted = summary.counted
    if counted is None:
        yield "Whether that is right cannot be seen in the objects that were read."
    else:
        yield (
            f"By the objects {counted.desired_number_scheduled} should, "
            f"{counted.current_number_scheduled} do, {counted.number_ready} are ready."
        )


def _by_rule(rows: list[NodeRow]) -> list[str]:
    """One sentence for the nodes of which the same is said."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        alike.setdefault(row.because, []).append(row.node)
    return _some([f"{first_names(nodes, _MOST)}: {because}." for because, nodes in alike.items()])


def _update(view: SetView) -> Iterator[str]:
    try:
        outlook = rollout_outlook(view)
    except RolloutError as error:
        yield f"{str(error)[0].upper()}{str(error)[1:]}."
        return
    yield outlook.state.message.strip()
    if outlook.not_told or outlook.error:
        yield f"{outlook.not_told or outlook.error}."
    if outlook.budget is not None and outlook.used:
        users = [f"{user.node} ({user.because})" for user in outlook.used]
        yield f"Its budget is used by {first_names(users, _MOST)}."
    yield from (f"It waits: {text}." for text in outlook.waits_for)
    if outlook.estimate is not None:
        low, high = outlook.estimate.low_seconds, outlook.estimate.high_seconds
        yield f"It takes {low:.0f} to {high:.0f}s more, by {outlook.estimate.basis}."


def _some(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MOST else [*lines[:_MOST], f"... {len(lines) - _MOST} more."]
