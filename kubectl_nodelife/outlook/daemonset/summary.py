"""Counts each DaemonSet's pods, compares with the reported status, and says what is odd; explains a
set by its counts, the nodes that are not as they should be, and its update. Sets' counts, a set's
truth table, its update and its revisions are a document each.

It finds DaemonSets whose pods are made and deleted over and over on a node with a NoExecute taint:
the DaemonSet controller takes a toleration of a NoExecute taint for one, whatever its seconds
(`nodeShouldRunDaemonPod`); taint-eviction deletes a pod at once whose toleration has 0 of them.
With maxSurge a pod that is being deleted holds nothing up (docs/upstream/surge-hot-loop.md), so
that both go on as fast as their clients may write; without it each pod waits for the end of the one
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour, behaviour_of
from kubectl_nodelife.controllers.daemonset.node_status_index import (
    ROLLING_UPDATE,
    allows_surge,
    differences,
)
from kubectl_nodelife.controllers.daemonset.template import PodTemplate
from kubectl_nodelife.controllers.tainteviction.evictions import tolerated_stay
from kubectl_nodelife.document import document
from kubectl_nodelife.engine.actions import STATUS_COUNTS, camel_case
from kubectl_nodelife.engine.pace import pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.taints import no_execute_taints
from kubectl_nodelife.kube.times import human_seconds
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import RolloutError
from kubectl_nodelife.outlook.daemonset.rollout_outlook import (
    RevisionRow,
    RolloutOutlook,
    UndoOutlook,
    rollout_outlook,
)
from kubectl_nodelife.outlook.daemonset.rollout_verdict import NEVER, surge_needs_port_twice
from kubectl_nodelife.outlook.daemonset.truth_table import NodeRow, truth_table
from kubectl_nodelife.outlook.daemonset.view import (
    DaemonSets,
    Key,
    SetView,
    cache_for,
    lacking_to_count,
    other_images,
    trouble_of,
)
from kubectl_nodelife.outlook.eviction_forecast import LOST
from kubectl_nodelife.outlook.explain import ExplainedQuestion
from kubectl_nodelife.outlook.view import ClusterView

Source = dict[str, Any]

KINDS = ("Node", "Pod", "ControllerRevision", "DaemonSet")
"""The kinds that an answer about DaemonSets is made from."""

_UNKNOWN_WITHOUT = {
    "Node": "which nodes should run a pod is unknown",
    "Pod": "which nodes have a pod is unknown",
    "ControllerRevision": "revisions and rollbacks are unknown",
}

_ANY: Final = Taint(key="any-other-key", effect=NO_EXECUTE)


def hot_loops_now(view: SetView, settings: Settings) -> Iterator[str]:
    """A sentence for each node on which the set's pod goes in a circle now."""
    for name, verdict, _ in view.nodes():
        node = view.cache.nodes.get(name)
        if node is None or verdict is None or not verdict.should_run:
            continue
        for taint in _ended_at_once(view.tracked.template, no_execute_taints(node.spec.taints)):
            often = _how_often(view.daemon_set, settings)
            yield (
                f"its pod on {name} is made by daemonset and deleted by taint-eviction over and"
                f" over, {often}, until {taint} is off: {_WHY}"
            )


def hot_loops_beforehand(sets: Iterable[DaemonSet], settings: Settings) -> Iterator[str]:
    """A sentence for each set of which that would be so on a node with some NoExecute taint."""
    rules = _behaviour(settings)
    for daemon_set in sorted(sets, key=lambda each: each.key):
        try:
            taints = [*_ended_at_once(PodTemplate(daemon_set, rules), (*LOST, _ANY))]
        except InputError:
            continue
        if taints:
            keys = [f"any other key:{NO_EXECUTE}" if t is _ANY else str(t) for t in taints]
            yield (
                f"daemonset/{daemon_set.namespace}/{daemon_set.name}: on a node with"
                f" {' or '.join(keys)}, and no NoSchedule taint that keeps its pod away, daemonset"
                f" makes and taint-eviction deletes its pod over and over,"
                f" {_how_often(daemon_set, settings)}: {_WHY}; leave tolerationSeconds out of it"
            )


_WHY: Final = "the first toleration that matches ends at once (tolerationSeconds 0)"


def _ended_at_once(template: PodTemplate, taints: Sequence[Taint]) -> Iterator[Taint]:
    """The taints that the template tolerates for no time at all."""
    for taint in taints:
        stay = tolerated_stay(template.trial_tolerations, (taint,), comparison_operators=False)
        if stay.toleration is not None and stay.seconds == 0:
            yield taint


def _how_often(daemon_set: DaemonSet, settings: Settings) -> str:
    rules = _behaviour(settings)
    if not (rules.surge and allows_surge(daemon_set)):
        return "each time the one before is gone"
    pace, often = pace_of(settings), "without a pause"
    if pace is not None:
        requests = f"{pace.qps:g} requests a second"
        often = f"about {pace.evictions_a_second:g} times a second at {requests}"
    return f"{often} (its maxSurge counts no pod that is being deleted)"


_SHOWN = 3


_MOST = 8


class SetSummary(msgspec.Struct, frozen=True):
    """One set. `counted` None: it cannot be counted from what was read."""

    daemon_set: DaemonSet
    counted: DaemonSetStatus | None
    updated_known: bool
    odd: list[str]

    def document(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "namespace": self.daemon_set.namespace,
            "name": self.daemon_set.name,
            "uid": self.daemon_set.uid,
            "counted": counts(self.counted, self.updated_known) if self.counted else None,
            "reported": counts(self.daemon_set.status),
            "odd": self.odd,
        }


def counts(status: DaemonSetStatus, updated_known: bool = True) -> dict[str, int | None]:
    """The counts under the API's names."""
    numbers = {camel_case(field): getattr(status, field) for field in STATUS_COUNTS}
    return numbers if updated_known else {**numbers, "updatedNumberScheduled": None}


def summarize(sets: DaemonSets, key: Key) -> SetSummary:
    """One set that is in the cache."""
    daemon_set = sets.cache.get("DaemonSet", key)
    assert isinstance(daemon_set, DaemonSet)
    view, missing = sets.view(key), lacking_to_count(sets.unread)
    if view is None or missing:
        fault = f"no {missing} were read: only reported counts"
        if view is None:
            fault = f"its template cannot be read: {sets.fault(key)}"
        return SetSummary(daemon_set, None, False, [fault])
    odd = [*oddities(view), *hot_loops_now(view, sets.settings)]
    return SetSummary(daemon_set, view.status(), view.knows_updated, odd)


def oddities(view: SetView) -> Iterator[str]:
    """Sentences on what is not as it should be with the set; none where all is. First comes what
    does not end by itself, then nodes without a pod at work, then numbers that do not agree.
    """
    daemon_set = view.daemon_set
    if view.tracked.selects_everything:
        yield "its selector is empty: the controller refuses to act on it"
        return
    if daemon_set.metadata.deletion_timestamp is not None:
        yield "it is being deleted: its pods are left to the garbage collector"
        return
    generation, observed = daemon_set.metadata.generation, daemon_set.status.observed_generation
    if observed < generation:
        yield f"the controller has not acted on generation {generation} yet (it is at {observed})"
    if ports := surge_needs_port_twice(view):
        yield ports
    update = _rollout_oddity(view)
    if update is not None and update.never:
        yield update.text
    yield from update.loses if update is not None else ()
    yield from _node_oddities(view)
    yield from other_images(view)
    if update is not None and not update.never:
        yield update.text
    yield from _count_differences(view)


def _count_differences(view: SetView) -> Iterator[str]:
    counted, reported = view.status(), view.daemon_set.status
    if not view.knows_updated:
        updated = reported.updated_number_scheduled
        counted = replace(counted, updated_number_scheduled=updated)
    apart = differences(reported, counted)
    if not apart:
        return
    yield "reported " + "; ".join(apart)
    stale = counted.desired_number_scheduled < reported.desired_number_scheduled
    if stale and view.tracked.rules.node_queue:
        yield "(this release does not count anew when a taint only keeps new pods away)"


def _node_oddities(view: SetView) -> Iterator[str]:
    misscheduled, lacking, crowded, troubled, placeless = [], [], [], [], []
    rolls = view.daemon_set.spec.update_strategy.type == ROLLING_UPDATE
    lost_by_update = rolls and not view.node_index.with_old
    for node, verdict, pods in view.nodes():
        if verdict is not None and verdict.failed_placements:
            placeless.append(f"{node} ({verdict.failed_placements[0]})")
        if pods and (verdict is None or not verdict.want_to_run):
            about = "no such node" if verdict is None else verdict.subject or verdict.rule
            misscheduled.append(f"{node} ({about})")
            if verdict is None or not verdict.should_continue_running:
                lost_by_update = False  # its controller deletes it now
        elif verdict is not None and verdict.want_to_run and not pods:
            lacking.append(node)
        live = [view.revision_of(p) for p in pods if p.metadata.deletion_timestamp is None]
        if len(live) > (len(set(live)) if view.node_index.with_old else 1):
            crowded.append(node)
        for pod in pods:
            if (trouble := trouble_of(view, pod)) is not None:
                troubled.append(f"{pod.name} on {node} ({trouble.words})")
    if troubled:
        yield f"not at work: {first_names(troubled, _SHOWN)}"
    if lacking:
        yield f"no pod on {first_names(lacking, _SHOWN)}"
    if placeless:
        yield f"FailedPlacement on {first_names(placeless, _SHOWN)}"
    if misscheduled:
        goes = ": an update deletes the pod there and makes none" if lost_by_update else ""
        yield f"misscheduled on {first_names(misscheduled, _SHOWN)}{goes}"
    if crowded:
        yield f"more than one pod on {first_names(crowded, _SHOWN)}"


class _Update(NamedTuple):
    """What is said of an update that is not through. `never`: it does not end by itself; `loses`:
    pods that it takes for good.
    """

    text: str
    never: bool = False
    loses: Sequence[str] = ()


def _rollout_oddity(view: SetView) -> _Update | None:
    old = len(view.node_index.with_old) if view.knows_updated else 0
    if not old:
        return None
    have = f"{old} {'node has' if old == 1 else 'nodes have'} a pod of another revision"
    if view.daemon_set.spec.update_strategy.type != ROLLING_UPDATE:
        return _Update(f"{have}, which stays until it is deleted")
    outlook = rollout_outlook(view)
    never = outlook.verdict.verdict == NEVER
    goes = f"does not end: {outlook.verdict.because}" if never else "is under way"
    return _Update(f"an update {goes}: {have}", never, outlook.loses)


def set_sections(sets: DaemonSets, summary: SetSummary) -> Iterator[ExplainedQuestion]:
    """The sections about one set that is in the cache."""
    counts = list(_counts(summary))
    answer = "Nothing is odd about it."
    if summary.odd:
        answer = f"It is not as it should be: {summary.odd[0]}."
    yield ExplainedQuestion("How many pods should it have, and has it?", counts, answer=answer)
    odd = [text if text[0] == "(" else f"{text[0].upper()}{text[1:]}." for text in summary.odd]
    yield ExplainedQuestion("What is odd about it?", odd or ["Nothing."])
    view = sets.view(summary.daemon_set.key)
    if view is None or lacking_to_count(sets.unread):
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
    if outlook.missing_parts or outlook.error:
        yield f"{outlook.missing_parts or outlook.error}."
    if outlook.budget is not None and outlook.used:
        users = [f"{user.node} ({user.because})" for user in outlook.used]
        yield f"Its budget is used by {first_names(users, _MOST)}."
    yield from (f"It waits: {text}." for text in outlook.waits_for)
    if outlook.estimate is not None:
        low = human_seconds(outlook.estimate.low_seconds)
        high = human_seconds(outlook.estimate.high_seconds)
        yield f"It takes {low} to {high} more, by {outlook.estimate.basis}."


def _some(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MOST else [*lines[:_MOST], f"... {len(lines) - _MOST} more."]


def daemon_sets(
    view: ClusterView, namespace: str | None = None, name: str = ""
) -> Callable[[], DaemonSets]:
    """The sets of a namespace (None: of all), or the one of that name, as their controller sees
    them.

    Only immutable objects are taken from the view here; what is returned does the work,
    in a thread if that is better.
    """
    objects = [obj for kind in KINDS for obj in view.cache.all(kind)]
    settings, now_ns, unread = view.settings, view.now_ns, view.unread
    pods = tuple(view.cache.pods.values())
    annotations = {n.name: n.metadata.annotations or {} for n in view.cache.all("Namespace")}

    def made() -> DaemonSets:
        cache = cache_for(objects, namespace, _behaviour(settings), name)
        return DaemonSets(cache, settings, now_ns, unread, pods, annotations)

    return made


def pods_take_room(settings: Settings) -> bool:
    """True if this release's controller looks at the room that all pods of a node take."""
    return _behaviour(settings).suspends


def _behaviour(settings: Settings) -> Behaviour:
    return behaviour_of((1, settings.profile.minor), settings.gates)


def missing_parts(view: ClusterView) -> Iterator[str]:
    """Sentences on what stays unknown of DaemonSets because a kind was not read."""
    for kind, what in _UNKNOWN_WITHOUT.items():
        if kind in view.unread:
            error = view.unread[kind]
            lacks = f"{kind} cannot be read ({error})" if error else f"no {kind}s were read"
            yield f"{lacks}: {what}"
    if "DaemonSet" in view.unread:
        yield "no DaemonSets were read"


def summaries_document(
    summaries: Sequence[SetSummary], source: Source, warnings: Sequence[str]
) -> dict[str, Any]:
    """The DaemonSetSummaryList: each set's counts, reported and counted, and what is odd."""
    items = [summary.document() for summary in summaries]
    return document("DaemonSetSummaryList", source=source, items=items, warnings=list(warnings))


def truth_table_document(
    summary: SetSummary, rows: Sequence[NodeRow], source: Source
) -> dict[str, Any]:
    """The DaemonSetTruthTable: a row a node, with the rule that decides."""
    return document(
        "DaemonSetTruthTable", source=source, daemonSet=summary.document(), nodes=list(rows)
    )


def rollout_document(outlook: RolloutOutlook, source: Source) -> dict[str, Any]:
    """The DaemonSetRollout: how far an update is, and what it waits for."""
    key = outlook.view.daemon_set.key
    return _document_of("DaemonSetRollout", key, source, **outlook.document())


def history_document(
    namespace: str, name: str, rows: Sequence[RevisionRow], source: Source
) -> dict[str, Any]:
    """The DaemonSetHistory: revisions, and what changed from one to the next."""
    revisions = [row.document() for row in rows]
    return _document_of("DaemonSetHistory", (namespace, name), source, revisions=revisions)


def _document_of(kind: str, key: Key, source: Source, **content: Any) -> dict[str, Any]:
    return document(kind, source=source, namespace=key[0], name=key[1], **content)


def rollback_document(
    outlook: UndoOutlook, source: Source, *, dry_run: bool = True
) -> dict[str, Any]:
    """The DaemonSetRollback: the patch that `daemonset undo` sends, and its effects."""
    return _document_of(
        *("DaemonSetRollback", outlook.view.daemon_set.key, source),
        toRevision=outlook.plan.revision.revision,
        result=outlook.plan.message,
        dryRun=dry_run,
        patchType="application/strategic-merge-patch+json",
        patch=None if outlook.plan.skipped else outlook.plan.patch,
        changes=outlook.changes,
        follows=outlook.follows,
        effects=outlook.effects,
    )
