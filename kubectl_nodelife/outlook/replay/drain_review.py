"""Reviews a drain that is over: who, each pod's way, how long workloads and budgets were short of
pods.

It is put together from the lines of a replay (`timeline`) and from what pods and budgets show now.
The API server keeps no trace of an eviction that it refused, and Events are gone after an hour:
what cannot be known is None, never 0.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife.document import document
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time
from kubectl_nodelife.kube.wellknown import TRUE
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.replay.drains import drain_takes
from kubectl_nodelife.outlook.replay.replay_line import ReplayLine

EARLY_NS: Final = 5 * SECOND_NS
"""An owner makes the next pod when the old one is marked, which may be before it is killed."""
LATE_NS: Final = 10 * MINUTE_NS
_RANDOM: Final = re.compile(r"-[a-z0-9]{5}$|-\d+$")
"""The suffix by which a ReplicaSet, a Job or a StatefulSet names a pod."""
_LEFT: Final = frozenset({"kill", "delete"})
"""Families of lines that say that a pod goes."""
_SAME_POD_NS: Final = 2 * SECOND_NS
"""How far the time at which a pod was made may be from that of the Event that says so."""


class MadePod(NamedTuple):
    """A pod that was made at that instant, and itself where it is there now."""

    at_ns: int
    key: tuple[str, str]
    owner: str
    pod: Pod | None


class MovedPod(NamedTuple):
    """A pod that left a node. Instants in ns since the epoch, None where nothing shows them.

    `owner`: its controller's name, taken from its own where nothing says it. `replacement`,
    `node`, `ready_ns`: the pod that took its place, where, and since when it is Ready.
    """

    namespace: str
    name: str
    owner: str
    left_node: str
    left_ns: int | None
    by: str
    replacement: str = ""
    node: str = ""
    ready_ns: int | None = None

    @property
    def gap_s(self) -> float | None:
        """For how long its place was empty."""
        if self.left_ns is None or self.ready_ns is None:
            return None
        return max(0, self.ready_ns - self.left_ns) / SECOND_NS


class PodTraces:
    """What lines and the pods that are there now show of pods: whose, when made, when gone.

    `created`: every pod that was made, by owner and time: what is there now, what Events of owners
    show, and what was bound. A StatefulSet makes pods of one name again and again: each is one of
    its own. `stateful_sets`: (namespace, name) of those that own a pod or have made one.
    """

    def __init__(self, lines: Sequence[ReplayLine], pods: Sequence[Pod]) -> None:
        self.lines, self.pods = lines, pods
        self._owners = {
            (line.namespace, name): line.identity[2]
            for line in lines
            if line.family == "create"
            for name in line.names
        }
        self.stateful_sets = {
            (line.namespace, line.name)
            for line in lines
            if line.family == "create" and line.kind == "StatefulSet"
        }
        for pod in pods:
            owner = controller_of(pod.metadata)
            self._owners[pod.key] = owner.name if owner else self._owners.get(pod.key, "")
            if owner is not None and owner.kind == "StatefulSet":
                self.stateful_sets.add((pod.namespace, owner.name))
        self.created: dict[tuple[str, str], list[MadePod]] = defaultdict(list)
        for made in sorted(self._made(), key=lambda one: one.at_ns):
            self.created[made.key[0], made.owner].append(made)

    def owner_of(self, key: tuple[str, str]) -> str:
        """The owner's name, as the pod itself or the Event of its creation says it, else taken
        from its own.
        """
        return self._owners[key] if key in self._owners else _RANDOM.sub("", key[1])

    def left(self, since_ns: int) -> Iterator[MovedPod]:
        """The pods that were on a node and went since then, each at the first sign of it."""
        made_ns = {(pod.key, pod.spec.node_name): _made_ns(pod) for pod in self.pods}
        gone: set[tuple[tuple[str, str], str]] = set()
        for line in self.lines:
            place = (key := (line.namespace, line.name)), line.about_node
            went = line.kind == "Pod" and line.family in _LEFT and line.about_node != ""
            # A container of a pod that is there was stopped, unless the pod has been made since.
            is_there = line.time_ns >= made_ns.get(place, sys.maxsize)
            if went and line.time_ns >= since_ns and not is_there and place not in gone:
                gone.add(place)
                owner = self.owner_of(key)
                yield MovedPod(*key, owner, line.about_node, line.time_ns, line.actor.name)

    def gone_unseen(self, node: str) -> Iterator[MovedPod]:
        """Those bound to the node once and gone, of which nothing shows when. The last ones bound
        come first: they stayed the longest.
        """
        seen = {pod.key for pod in self.pods}
        seen |= {(line.namespace, line.name) for line in self.lines if line.family in _LEFT}
        for line in reversed(self.lines):
            key = (line.namespace, line.name)
            if line.family == "schedule" and line.about_node == node and key not in seen:
                seen.add(key)
                yield MovedPod(*key, self.owner_of(key), node, None, "")

    def _made(self) -> Iterator[MadePod]:
        by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
        for pod in self.pods:
            if made_ns := _made_ns(pod):
                by_key[pod.key].append(made_ns)
                yield MadePod(made_ns, pod.key, self.owner_of(pod.key), pod)
        created = [(li, name) for li in self.lines if li.family == "create" for name in li.names]
        bound = [(li, li.name) for li in self.lines if li.family == "schedule" and li.kind == "Pod"]
        for line, name in (*created, *bound):
            key, at_ns = (line.namespace, name), line.time_ns
            waited_ns = LATE_NS if line.family == "schedule" else _SAME_POD_NS
            if all(not -_SAME_POD_NS <= at_ns - made_ns <= waited_ns for made_ns in by_key[key]):
                by_key[key].append(at_ns)
                yield MadePod(at_ns, key, self.owner_of(key), None)


def _made_ns(pod: Pod) -> int:
    return int(pod.metadata.creation_timestamp or 0)


class ShortWorkload(msgspec.Struct, frozen=True, rename="camel"):
    """How long fewer pods of a workload were Ready than before, and how long none was."""

    namespace: str
    owner: str
    moved: int
    short_seconds: float | None
    zero_seconds: float | None


class SpentBudget(msgspec.Struct, frozen=True, rename="camel"):
    """For how long a budget allowed no disruption while pods moved."""

    namespace: str
    name: str
    desired: int
    zero_seconds: float


class DrainReview(NamedTuple):
    """One drain, as far as its traces show. `refused`: evictions refused, by our own journal.
    `is_closed`: the node is cordoned now; `still_there`: how many pods on it a drain would take."""

    node: str
    cordoned: ReplayLine | None
    pods: list[MovedPod]
    workloads: list[ShortWorkload]
    budgets: list[SpentBudget]
    refused: list[str]
    is_closed: bool
    still_there: int

    @property
    def begin_ns(self) -> int | None:
        """The cordon, or else the first pod that left."""
        return _begin_ns(self.cordoned, self.pods)

    @property
    def end_ns(self) -> int | None:
        """When the last replacement was Ready, or the last pod left."""
        times = (t for pod in self.pods for t in (pod.left_ns, pod.ready_ns) if t is not None)
        return max(times, default=None)


def drain_review(
    lines: Sequence[ReplayLine],
    pods: Sequence[Pod],
    budgets: Sequence[PodDisruptionBudget],
    node: Node,
) -> DrainReview:
    """The last drain of the node among these lines."""
    name = node.name
    cordons = [line for line in lines if line.about_node == name and line.family == "cordon"]
    cordoned = cordons[-1] if cordons else None
    since_ns = cordoned.time_ns - EARLY_NS if cordoned is not None else 0
    # Pods that left other nodes took places of their own, of the same owners'.
    traces = PodTraces(lines, pods)
    gone = [*traces.left(since_ns - LATE_NS), *traces.gone_unseen(name)]
    owners = {(pod.namespace, pod.owner) for pod in gone if pod.left_node == name}
    of_them = (pod for pod in gone if (pod.namespace, pod.owner) in owners)
    replaced = _with_replacements(of_them, traces, since_ns)
    moved = [pod for pod in replaced if pod.left_node == name and (pod.left_ns or 0) >= since_ns]
    moved.sort(key=lambda pod: pod.left_ns or 0)
    begin_ns = _begin_ns(cordoned, moved) or 0
    spans = _ready_spans(traces, begin_ns)
    return DrainReview(
        name,
        cordoned,
        moved,
        _workloads(moved, spans, begin_ns),
        _budgets(moved, spans, begin_ns, pods, budgets),
        _refusals(moved, lines),
        node.spec.unschedulable,
        sum(pod.spec.node_name == name and drain_takes(pod) for pod in pods),
    )


def _begin_ns(cordoned: ReplayLine | None, moved: Iterable[MovedPod]) -> int | None:
    times = [pod.left_ns for pod in moved if pod.left_ns is not None]
    times += [cordoned.time_ns] if cordoned is not None else []
    return min(times, default=None)


def _refusals(moved: Sequence[MovedPod], lines: Iterable[ReplayLine]) -> list[str]:
    keys = {(pod.namespace, pod.name) for pod in moved}
    failed = (line for line in lines if (line.family, line.outcome) == ("EvictPod", "failed"))
    of_pods = (line for line in failed if (line.namespace, line.name) in keys)
    return [f"{line.namespace}/{line.name}: {line.why}" for line in of_pods]


def _with_replacements(
    gone: Iterable[MovedPod], traces: PodTraces, since_ns: int
) -> Iterator[MovedPod]:
    """Each with the pod that came next of the same owner; a StatefulSet's has the same name.

    One that left at an unknown time, and was not replaced since the cordon, left before it.
    """
    by_owner: dict[tuple[str, str], list[MovedPod]] = defaultdict(list)
    for pod in sorted(gone, key=lambda pod: (pod.left_ns is None, pod.left_ns or 0)):
        by_owner[pod.namespace, pod.owner].append(pod)
    for owner, mine in by_owner.items():
        candidates = list(traces.created[owner]) if owner[1] else []
        for pod in mine:
            named = pod.name if owner in traces.stateful_sets else None
            number = _replacement(pod, named, candidates, mine, since_ns)
            if number is not None:
                pod = _replaced(pod, candidates.pop(number), traces.lines)
            if pod.left_ns is not None:
                yield pod


def _replacement(
    pod: MovedPod,
    named: str | None,
    created: Sequence[MadePod],
    gone: Sequence[MovedPod],
    since_ns: int,
) -> int | None:
    """The index of the pod, made by the same owner, that took its place, and is called so if its
    name is given. None that itself left the node later: no pod comes to a node that is cordoned.
    """
    first_ns, last_ns = _replaced_between(pod, gone, since_ns)
    for number, one in enumerate(created):
        is_next = first_ns <= one.at_ns <= last_ns and named in (None, one.key[1])
        since_closed = one.at_ns >= since_ns - EARLY_NS
        if is_next and not (since_closed and _leaves_later(pod.left_node, one, gone)):
            return number
    return None


def _replaced_between(pod: MovedPod, gone: Iterable[MovedPod], since_ns: int) -> tuple[int, int]:
    """Between which instants its owner makes the next: before one of its own name left in turn."""
    if pod.left_ns is None:
        return since_ns, sys.maxsize
    of_name = (other.left_ns or 0 for other in gone if other.name == pod.name)
    again = [left_ns for left_ns in of_name if left_ns > pod.left_ns]
    return pod.left_ns - EARLY_NS, min([pod.left_ns + LATE_NS, *again])


def _leaves_later(node: str, made: MadePod, gone: Iterable[MovedPod]) -> bool:
    alike = (pod for pod in gone if (pod.name, pod.left_node) == (made.key[1], node))
    return any(pod.left_ns is None or pod.left_ns > made.at_ns for pod in alike)


def _replaced(pod: MovedPod, created: MadePod, lines: Sequence[ReplayLine]) -> MovedPod:
    ready_ns, now = None, created.pod
    if now is not None:
        node, ready_ns = now.spec.node_name, _ready_since(now)
    else:
        bound = (li for li in lines if li.family == "schedule" and li.time_ns >= created.at_ns)
        of_pod = (li.about_node for li in bound if (li.namespace, li.name) == created.key)
        node = next(of_pod, "")
    left_ns = created.at_ns if pod.left_ns is None else pod.left_ns
    return pod._replace(left_ns=left_ns, replacement=created.key[1], node=node, ready_ns=ready_ns)


def _ready_since(pod: Pod) -> int | None:
    ready = pod.status.condition("Ready")
    if ready is None or ready.status != TRUE or ready.last_transition_time is None:
        return None
    return int(ready.last_transition_time)


# --- how many were Ready, over time ---------------------------------------------------------------


class ReadySpan(NamedTuple):
    """From when until when a pod was Ready. `since_ns`: None if that is not known, a time before
    the drain's begin if it was Ready then; `until_ns`: None if it is still.
    """

    key: tuple[str, str]
    owner: tuple[str, str]
    since_ns: int | None
    until_ns: int | None


def _ready_spans(traces: PodTraces, begin_ns: int) -> list[ReadySpan]:
    """Of all pods that are Ready now, and of those that left any node since the drain began.

    One that was made shortly before it left may not have been Ready.
    """
    spans = [
        ReadySpan(pod.key, (pod.namespace, traces.owner_of(pod.key)), ready_ns, None)
        for pod in traces.pods
        if (ready_ns := _ready_since(pod)) is not None
    ]
    for gone in traces.left(begin_ns):
        left_ns, owner = gone.left_ns or 0, (gone.namespace, gone.owner)
        alike = (made for made in traces.created[owner] if made.key[1] == gone.name)
        is_new = any(0 <= left_ns - made.at_ns < LATE_NS for made in alike)
        key = (gone.namespace, gone.name)
        spans.append(ReadySpan(key, owner, None if is_new else 0, left_ns))
    return spans


def _workloads(
    moved: Sequence[MovedPod], spans: Sequence[ReadySpan], begin_ns: int
) -> list[ShortWorkload]:
    short_ones = []
    for owner in sorted({(pod.namespace, pod.owner) for pod in moved}):
        mine = [pod for pod in moved if (pod.namespace, pod.owner) == owner]
        short = zero = None
        levels = _levels(mine, [span for span in spans if span.owner == owner], begin_ns)
        if levels is not None:
            short, zero = _time_below(levels, levels[0][1]), _time_below(levels, 1)
        short_ones.append(ShortWorkload(*owner, len(mine), short, zero))
    return short_ones


def _levels(
    moved: Sequence[MovedPod], spans: Sequence[ReadySpan], begin_ns: int
) -> list[tuple[int, int]] | None:
    """(instant, Ready pods from then on), from the drain's begin until all that moved are Ready
    again; None where an instant is not known.
    """
    begun_ns = [span.since_ns for span in spans if span.since_ns is not None]
    ready_ns = [pod.ready_ns for pod in moved if pod.ready_ns is not None]
    if len(begun_ns) < len(spans) or len(ready_ns) < len(moved):
        return None
    level = sum(at_ns < begin_ns for at_ns in begun_ns)
    changes = Counter(at_ns for at_ns in begun_ns if at_ns >= begin_ns)
    changes.subtract(span.until_ns for span in spans if span.until_ns is not None)
    levels, last_ns = [(begin_ns, level)], max([begin_ns, *ready_ns])
    for at_ns in sorted(at_ns for at_ns in changes if at_ns < last_ns):
        level += changes[at_ns]
        levels.append((at_ns, level))
    return [*levels, (last_ns, level)]


def _time_below(levels: Sequence[tuple[int, int]], least: int) -> float:
    """Seconds with fewer than `least` Ready pods."""
    spans = pairwise(levels)
    below = (until_ns - at_ns for (at_ns, level), (until_ns, _) in spans if level < least)
    return sum(below) / SECOND_NS


def _budgets(
    moved: Sequence[MovedPod],
    spans: Sequence[ReadySpan],
    begin_ns: int,
    pods: Sequence[Pod],
    budgets: Sequence[PodDisruptionBudget],
) -> list[SpentBudget]:
    """By the labels of pods that are there now; those that went had those of their owner's."""
    owners = {span.key: span.owner for span in spans}
    spent_ones = []
    for budget in budgets:
        there, selector = [p for p in pods if p.namespace == budget.namespace], budget.spec.selector
        keys = {pod.key for pod in there if matches(selector, pod.metadata.labels)}
        mine = [pod for pod in moved if (pod.namespace, pod.replacement) in keys]
        of_owners = {owners[key] for key in keys if key in owners}
        members = [
            span
            for span in spans
            if span.key in keys or (span.until_ns is not None and span.owner in of_owners)
        ]
        levels = _levels(mine, members, begin_ns) if mine else None
        if levels is not None:
            desired = budget.status.desired_healthy
            spent = _time_below(levels, desired + 1)
            spent_ones.append(SpentBudget(budget.namespace, budget.name, desired, spent))
    return spent_ones


def drain_review_document(
    review: DrainReview,
    source: dict[str, Any],
    promised: Mapping[str, float] | None,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The DrainReview document. `promised`: the estimate of a plan that was kept."""
    cordoned, begin_ns, end_ns = review.cordoned, review.begin_ns, review.end_ns
    took_s = None if begin_ns is None or end_ns is None else (end_ns - begin_ns) / SECOND_NS
    return document(
        "DrainReview",
        source=source,
        node=review.node,
        cordoned=cordoned and {"time": format_time(cordoned.time_ns), "by": cordoned.actor.name},
        begin=_time(begin_ns),
        end=_time(end_ns),
        seconds=took_s,
        promised=None if promised is None else dict(promised),
        pods=[_pod(pod) for pod in review.pods],
        workloads=review.workloads,
        budgets=review.budgets,
        refused=review.refused,
        warnings=list(warnings),
    )


def _pod(pod: MovedPod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "owner": pod.owner,
        "left": _time(pod.left_ns),
        "by": pod.by or None,
        "replacement": pod.replacement or None,
        "node": pod.node or None,
        "ready": _time(pod.ready_ns),
        "gapSeconds": pod.gap_s,
    }


def _time(instant_ns: int | None) -> str | None:
    return None if instant_ns is None else format_time(instant_ns)
