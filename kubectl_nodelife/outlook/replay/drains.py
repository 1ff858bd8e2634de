"""Finds drains (a node was cordoned, or evicted from, and its pods then left), and reviews one:
who, each pod's way, how long workloads and budgets were short of pods.

No object and no Event says "drain". What one leaves is a cordon, evictions by the Eviction API as
long as the pods are Terminating, and afterwards the kubelet's Events about pods that it stopped.
Where only those are left, a drain is concluded if the node has none of the pods any more that a
drain would take.

A review is put together from the lines of a replay (`timeline`) and from what pods and budgets show
now. The API server keeps no trace of an eviction that it refused, and Events are gone after an
hour: what cannot be known is None, never 0.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kubectl_nodelife.document import document
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time, human_duration
from kubectl_nodelife.kube.wellknown import TRUE
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.replay import replay_line
from kubectl_nodelife.outlook.replay.replay_line import (
    CONTROLLER,
    KUBELET,
    ORDER_OF_SOURCES,
    USER,
    Actor,
    ReplayLine,
)
from kubectl_nodelife.workloads.owners import stays_on_its_node

DRAIN: Final = "drain"
"""The family of such a line."""

_EVICTED: Final = "pods were evicted through the Eviction API"
_CONCLUDED: Final = "concluded: it was cordoned, pods were stopped, and none that can move is left"

_PAUSE_NS: Final = 15 * MINUTE_NS
"""Pods that leave so long after the one before belong to no drain, or to another."""


def drains(lines: Sequence[ReplayLine], pods: Collection[Pod]) -> Iterator[ReplayLine]:
    """One line a drain; `lines` in the order of time, each pod's with its node.

    `pods` as they are now, none where they were not read.
    """
    by_node: dict[str, list[ReplayLine]] = defaultdict(list)
    ended_otherwise = {_key(line) for line in lines if _is_by_a_controller(line)}
    for line in lines:
        if line.family in ("cordon", "uncordon"):
            by_node[line.name].append(line)
        elif _has_left(line) and _key(line) not in ended_otherwise:
            by_node[line.about_node].append(line)
    still = {pod.spec.node_name for pod in pods if _drain_takes(pod)}
    for node, of_node in by_node.items():
        for drain in _of_node(node, of_node):
            if drain.why == _EVICTED or (pods and node not in still):
                yield drain


def _of_node(node: str, lines: Sequence[ReplayLine]) -> Iterator[ReplayLine]:
    cordon: ReplayLine | None = None
    evictions: list[ReplayLine] = []
    for line in lines:
        if line.family in ("cordon", "uncordon"):
            yield from _drain(node, cordon, evictions)
            cordon, evictions = (line if line.family == "cordon" else None), []
            continue
        before = evictions[-1] if evictions else cordon
        if before is not None and line.time_ns - before.time_ns > _PAUSE_NS:
            yield from _drain(node, cordon, evictions)
            cordon, evictions = None, []
        if cordon is not None or evictions or _is_eviction(line):
            evictions.append(line)
    yield from _drain(node, cordon, evictions)


def _drain(
    node: str, cordon: ReplayLine | None, evictions: Sequence[ReplayLine]
) -> Iterator[ReplayLine]:
    if not evictions:
        return
    first, last = evictions[0], evictions[-1]
    pods = len({_key(line) for line in evictions})
    left = f"{counted(pods, 'pod')} left"
    lasted = human_duration(last.time_ns - first.time_ns)
    seen = {source for line in evictions for source in line.seen}
    yield ReplayLine(
        time_ns=first.time_ns,
        actor=_who(cordon, evictions),
        action="Drain",
        kind="Node",
        namespace="",
        name=node,
        detail=left if pods == 1 else f"{left} in {lasted}",
        seen=tuple(source for source in ORDER_OF_SOURCES if source in seen),
        identity=(DRAIN, node),
        why=_EVICTED if any(map(_is_eviction, evictions)) else _CONCLUDED,
    )


def _who(cordon: ReplayLine | None, evictions: Sequence[ReplayLine]) -> Actor:
    ordered = next((line.actor for line in evictions if line.actor.kind == USER), None)
    if ordered is not None:
        return ordered
    if cordon is not None and cordon.actor.kind != KUBELET:  # which only reports a cordon
        return cordon.actor
    return replay_line.UNKNOWN_ACTOR


def _has_left(line: ReplayLine) -> bool:
    gone = line.family in ("delete", "kill") and line.kind == "Pod" and line.about_node != ""
    return gone and _happened(line)


def _drain_takes(pod: Pod) -> bool:
    return not stays_on_its_node(pod) and pod.metadata.deletion_timestamp is None


def _is_eviction(line: ReplayLine) -> bool:
    return line.actor == replay_line.EVICTION_API or (line.action == "EvictPod" and _happened(line))


def _happened(line: ReplayLine) -> bool:
    return line.outcome in ("", "confirmed", "applied")


def _is_by_a_controller(line: ReplayLine) -> bool:
    return line.family == "delete" and line.actor.kind == CONTROLLER and _happened(line)


def _key(line: ReplayLine) -> tuple[str, str]:
    return line.namespace, line.identity[-1]


EARLY_NS: Final = 5 * SECOND_NS
"""An owner makes the next pod when the old one is marked, which may be before it is killed."""
LATE_NS: Final = 10 * MINUTE_NS
_RANDOM: Final = re.compile(r"-[a-z0-9]{5}$|-\d+$")
"""The suffix by which a ReplicaSet, a Job or a StatefulSet names a pod."""
_SAME_POD_NS: Final = 2 * SECOND_NS
"""How far the time at which a pod was made may be from that of the Event that says so."""


class MadePod(NamedTuple):
    """A pod that was made at that instant, and itself where it is there now."""

    at_ns: int
    key: tuple[str, str]
    owner: str
    pod: Pod | None


class MovedPod(NamedTuple):
    """A pod that left the node. Instants in ns since the epoch, None where nothing shows them.

    `owner`: its controller's name, taken from its own where nothing says it. `replacement`,
    `node`, `ready_ns`: the pod that took its place, where, and since when it is Ready.
    """

    namespace: str
    name: str
    owner: str
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


class ShortWorkload(NamedTuple):
    """How long fewer pods of a workload were Ready than before, and how long none was."""

    namespace: str
    owner: str
    moved: int
    short_s: float | None
    zero_s: float | None


class SpentBudget(NamedTuple):
    """For how long a budget allowed no disruption while pods moved."""

    namespace: str
    name: str
    desired: int
    zero_s: float


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
        times = [pod.left_ns for pod in self.pods if pod.left_ns is not None]
        times += [self.cordoned.time_ns] if self.cordoned is not None else []
        return min(times, default=None)

    @property
    def end_ns(self) -> int | None:
        """When the last replacement was Ready, or the last pod left."""
        return max(
            (t for pod in self.pods for t in (pod.left_ns, pod.ready_ns) if t is not None),
            default=None,
        )


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
    gone = list(_left(lines, pods, name, since_ns))
    moved = _with_replacements(gone, lines, pods, since_ns)
    return DrainReview(
        name,
        cordoned,
        moved,
        _workloads(moved, pods),
        _budgets(moved, pods, budgets),
        _refusals(moved, lines),
        node.spec.unschedulable,
        sum(pod.spec.node_name == name and _drain_takes(pod) for pod in pods),
    )


_LEFT: Final = frozenset({"kill", "delete"})


def _refusals(moved: Sequence[MovedPod], lines: Iterable[ReplayLine]) -> list[str]:
    keys = {(pod.namespace, pod.name) for pod in moved}
    return [
        f"{line.namespace}/{line.name}: {line.why}"
        for line in lines
        if line.family == "EvictPod"
        and line.outcome == "failed"
        and (line.namespace, line.name) in keys
    ]


def _left(
    lines: Sequence[ReplayLine], pods: Sequence[Pod], node: str, since_ns: int
) -> Iterable[MovedPod]:
    """The pods that were on the node and went, each at the first sign of it."""
    there = {pod.key for pod in pods if pod.spec.node_name == node}
    owners = _owners(lines, pods)
    seen: set[tuple[str, str]] = set()
    for line in lines:
        key = (line.namespace, line.name)
        ours = line.kind == "Pod" and line.about_node == node and line.time_ns >= since_ns
        if ours and line.family in _LEFT and key not in seen and key not in there:
            seen.add(key)
            yield MovedPod(*key, _owner_of(key, owners), line.time_ns, line.actor.name)
    alive = {pod.key for pod in pods}
    # Bound to the node once, and gone: when is not known. The last ones bound stayed the longest.
    for line in reversed(lines):
        key = (line.namespace, line.name)
        if line.family == "schedule" and line.about_node == node and key not in seen | alive:
            seen.add(key)
            yield MovedPod(*key, _owner_of(key, owners), None, "")


def _owners(lines: Sequence[ReplayLine], pods: Sequence[Pod]) -> dict[tuple[str, str], str]:
    """Of each pod the owner's name, as the pod itself or the Event of its creation says it."""
    owners = {
        (line.namespace, name): line.identity[2]
        for line in lines
        if line.family == "create"
        for name in line.names
    }
    for pod in pods:
        owner = controller_of(pod.metadata)
        owners[pod.key] = owner.name if owner is not None else owners.get(pod.key, "")
    return owners


def _owner_of(key: tuple[str, str], owners: Mapping[tuple[str, str], str]) -> str:
    return owners[key] if key in owners else _RANDOM.sub("", key[1])


def _with_replacements(
    gone: list[MovedPod], lines: Sequence[ReplayLine], pods: Sequence[Pod], since_ns: int
) -> list[MovedPod]:
    """Each with the pod that came next of the same owner.

    One that left at an unknown time, and was not replaced since the cordon, left before it.
    """
    left_ns = {(pod.namespace, pod.name): pod.left_ns for pod in gone}
    created = sorted(_made(lines, pods), key=lambda one: one.at_ns)
    replaced = []
    for pod in sorted(gone, key=lambda one: (one.left_ns is None, one.left_ns or 0)):
        for number, one in enumerate(created):
            before = one.at_ns < (since_ns if pod.left_ns is None else pod.left_ns - EARLY_NS)
            late = pod.left_ns is not None and one.at_ns > pod.left_ns + LATE_NS
            went_ns = left_ns.get(one.key, -1)
            is_of_them = went_ns is None or went_ns > one.at_ns
            same_owner = one.key[0] == pod.namespace and one.owner == pod.owner != ""
            if same_owner and not (before or late or is_of_them):
                del created[number]
                pod = _replaced(pod, one, lines)
                break
        if pod.left_ns is not None:
            replaced.append(pod)
    return replaced


def _made(lines: Sequence[ReplayLine], pods: Sequence[Pod]) -> Iterator[MadePod]:
    """Every pod that was made: what is there now, what Events of owners show, and what was bound.

    A StatefulSet makes pods of one name again and again: each is one of its own.
    """
    owners = _owners(lines, pods)
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for pod in pods:
        if pod.metadata.creation_timestamp is not None:
            made_ns = int(pod.metadata.creation_timestamp)
            by_key[pod.key].append(made_ns)
            yield MadePod(made_ns, pod.key, _owner_of(pod.key, owners), pod)
    created = [(li, name) for li in lines if li.family == "create" for name in li.names]
    bound = [(li, li.name) for li in lines if li.family == "schedule" and li.kind == "Pod"]
    for line, name in (*created, *bound):
        key, at_ns = (line.namespace, name), line.time_ns
        waited_ns = LATE_NS if line.family == "schedule" else _SAME_POD_NS
        if all(not -_SAME_POD_NS <= at_ns - made_ns <= waited_ns for made_ns in by_key[key]):
            by_key[key].append(at_ns)
            yield MadePod(at_ns, key, _owner_of(key, owners), None)


def _replaced(pod: MovedPod, created: MadePod, lines: Sequence[ReplayLine]) -> MovedPod:
    node, ready_ns, now = "", None, created.pod
    if now is not None:
        node, ready_ns = now.spec.node_name, _ready_since(now)
    else:
        bound = (li for li in lines if li.family == "schedule" and li.time_ns >= created.at_ns)
        of_pod = (li for li in bound if (li.namespace, li.name) == created.key)
        node = next((line.about_node for line in of_pod), "")
    left_ns = created.at_ns if pod.left_ns is None else pod.left_ns
    return pod._replace(left_ns=left_ns, replacement=created.key[1], node=node, ready_ns=ready_ns)


def _ready_since(pod: Pod) -> int | None:
    ready = pod.status.condition("Ready")
    if ready is None or ready.status != TRUE or ready.last_transition_time is None:
        return None
    return int(ready.last_transition_time)


# --- how many were Ready, over time ---------------------------------------------------------------


def _workloads(moved: Sequence[MovedPod], pods: Sequence[Pod]) -> list[ShortWorkload]:
    short_ones = []
    for namespace, owner in sorted({(pod.namespace, pod.owner) for pod in moved}):
        mine = [pod for pod in moved if (pod.namespace, pod.owner) == (namespace, owner)]
        stayed = sum(
            1
            for pod in pods
            if pod.namespace == namespace
            and (of := controller_of(pod.metadata)) is not None
            and of.name == owner
            and pod.ready()
            and pod.name not in {one.replacement for one in mine}
        )
        levels = _levels(mine, stayed)
        short = zero = None
        if levels is not None:
            short, zero = _time_below(levels, stayed + len(mine)), _time_below(levels, 1)
        short_ones.append(ShortWorkload(namespace, owner, len(mine), short, zero))
    return short_ones


def _levels(moved: Sequence[MovedPod], stayed: int) -> list[tuple[int, int]] | None:
    """(instant, Ready pods from then on); None where an instant is not known."""
    changes = []
    for pod in moved:
        if pod.left_ns is None or pod.ready_ns is None:
            return None
        changes += [(pod.left_ns, -1), (max(pod.ready_ns, pod.left_ns), 1)]
    level, levels = stayed + len(moved), []
    for at_ns, by in sorted(changes, key=lambda change: (change[0], -change[1])):
        level += by
        levels.append((at_ns, level))
    return levels


def _time_below(levels: Sequence[tuple[int, int]], least: int) -> float:
    """Seconds with fewer than `least` Ready pods."""
    total = 0
    for (at_ns, level), (until_ns, _) in pairwise(levels):
        if level < least:
            total += until_ns - at_ns
    return total / SECOND_NS


def _budgets(
    moved: Sequence[MovedPod], pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget]
) -> list[SpentBudget]:
    """By the replacements' labels, which are those of the pods that went."""
    spent_ones = []
    for budget in budgets:
        members = [
            pod
            for pod in pods
            if pod.namespace == budget.namespace
            and matches(budget.spec.selector, pod.metadata.labels)
        ]
        keys = {pod.key for pod in members}
        mine = [pod for pod in moved if (pod.namespace, pod.replacement) in keys]
        if not mine:
            continue
        replaced = {pod.replacement for pod in mine}
        stayed = sum(1 for pod in members if pod.ready() and pod.name not in replaced)
        levels = _levels(mine, stayed)
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
        cordoned=None
        if cordoned is None
        else {"time": format_time(cordoned.time_ns), "by": cordoned.actor.name},
        begin=_time(begin_ns),
        end=_time(end_ns),
        seconds=took_s,
        promised=None if promised is None else dict(promised),
        pods=[_pod(pod) for pod in review.pods],
        workloads=[
            {
                "namespace": workload.namespace,
                "owner": workload.owner,
                "moved": workload.moved,
                "shortSeconds": workload.short_s,
                "zeroSeconds": workload.zero_s,
            }
            for workload in review.workloads
        ],
        budgets=[
            {
                "namespace": budget.namespace,
                "name": budget.name,
                "desired": budget.desired,
                "zeroSeconds": budget.zero_s,
            }
            for budget in review.budgets
        ],
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
