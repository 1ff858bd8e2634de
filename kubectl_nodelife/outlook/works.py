"""Works in progress, as far as the cluster shows them: nodes that are emptied, DaemonSets that roll
out, an upgrade run.

Each is one line with a command that says more. An eviction that is refused leaves no trace in the
cluster: what was promised of a work when it was first seen, what is expected of it now, and what it
waits for since when, `WorkTracker` reads off the documents of `drain-plan`, `daemonset status`
and `upgrade status`, which the caller fetches and passes in (`take`).
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.marks import UnreadableMark, mark_of
from kubectl_nodelife.drain.results import KEPT, READY
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.deletion import deletion_asked_ns
from kubectl_nodelife.kube.names import counted
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, moves_off
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import DRAIN_IN_PROGRESS, TRUE
from kubectl_nodelife.kube.workload import DaemonSet

MOST_WORKS: Final = 50


MOST_WAITS: Final = 8
WorkKey = tuple[str, str, str]
"""(kind, namespace, name)."""
Json = dict[str, Any]


class Wait(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that a work waits for, and since when by the stream's clock; None: not known."""

    what: str
    because: str
    since_s: float | None = None


class WorkInProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One of them. `done` of `total`; `command` says more.

    `since_s`: since when it is known; `promised`: between which instants it should end, as was said
    then; `expected`: as it is said now. All of them by the stream's clock; None: not known.
    `budgets`: each in a line.
    """

    kind: str
    name: str
    done: int
    total: int
    sentence: str
    command: str
    namespace: str = ""
    since_s: float | None = None
    promised: tuple[float, float] | None = None
    expected: tuple[float, float] | None = None
    waits: list[Wait] = []
    budgets: list[str] = []


def works_of(cache: Cache, emptied: Collection[str] = ()) -> list[WorkInProgress]:
    """Upgrades first, then DaemonSets, then nodes; at most MOST_WORKS of each. `emptied`: nodes
    that are known to be, where the cluster does not show it now.
    """
    nodes = nodes_emptied(cache) | set(emptied)
    return [*_upgrades(cache), *_first(_roll_outs(cache)), *_first(_emptied(cache, nodes))]


def _first(works: Iterator[WorkInProgress]) -> list[WorkInProgress]:
    return sorted(works, key=lambda work: (work.namespace, work.name))[:MOST_WORKS]


def _upgrades(cache: Cache) -> list[WorkInProgress]:
    """The nodes' marks by state; the run's Lease says more than they do."""
    states: Counter[str] = Counter()
    for node in cache.nodes.values():
        try:
            mark = mark_of(node)
        except UnreadableMark:
            states["Unreadable"] += 1
            continue
        if mark is not None:
            states[str(mark.state)] += 1
    if not states:
        return []
    words = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    amount = (states["Done"], states.total(), f"marked nodes: {words}")
    return [WorkInProgress("Upgrade", "nodes", *amount, "kubectl nodelife upgrade status")]


def _roll_outs(cache: Cache) -> Iterator[WorkInProgress]:
    """DaemonSets whose controller has more to do, by their own status."""
    for obj in cache.all("DaemonSet"):
        if not isinstance(obj, DaemonSet):
            continue
        status = obj.status
        wanted = status.desired_number_scheduled
        done = min(status.updated_number_scheduled, status.number_available)
        if status.observed_generation < obj.metadata.generation:
            sentence = "its controller has not seen its latest change yet"
        elif done < wanted:
            sentence = (
                f"{status.updated_number_scheduled} of {wanted} pods are of the newest template, "
                f"{status.number_available} are available"
            )
        else:
            continue
        namespace = obj.metadata.namespace
        words = (f"daemonset/{obj.name}", "-n", namespace)
        command = f"kubectl nodelife daemonset status {shlex.join(words)}"
        yield WorkInProgress("DaemonSet", obj.name, done, wanted, sentence, command, namespace)


def nodes_emptied(cache: Cache) -> set[str]:
    """Cordoned nodes with a pod that a drain moves and that is being deleted, and those whose
    condition says so.
    """
    return {
        node.name
        for node in cache.nodes.values()
        if node.spec.unschedulable
        and (
            begun_ns(node) is not None
            or any(pod.metadata.deletion_timestamp is not None for pod in moving(cache, node.name))
        )
    }


def begun_ns(node: Node) -> int | None:
    """Since when a node's condition says that it is drained (KEP-5683); None: it does not."""
    condition = node.status.condition(DRAIN_IN_PROGRESS)
    if condition is None or condition.status != TRUE:
        return None
    return condition.last_transition_time


def _emptied(cache: Cache, names: Collection[str]) -> Iterator[WorkInProgress]:
    """Those of the nodes that are cordoned and have pods left that a drain would move."""
    for name in names:
        node = cache.nodes.get(name)
        pods = moving(cache, name)
        if node is None or not node.spec.unschedulable or not pods:
            continue
        going = sum(pod.metadata.deletion_timestamp is not None for pod in pods)
        left = counted(len(pods) - going, "pod") if len(pods) > going else "no pod"
        are = "is" if going == 1 else "are"
        sentence = f"cordoned; {left} left to evict, {counted(going, 'pod')} {are} Terminating"
        command = f"kubectl nodelife drain-plan {shlex.quote(name)}"
        yield WorkInProgress("Node", name, 0, len(pods), sentence, command)


def moving(cache: Cache, node: str) -> list[Pod]:
    """The pods on a node that a drain would evict."""
    return [pod for pod in cache.pods_on(node) if moves_off(pod)]


class WorkDetails(msgspec.Struct, frozen=True):
    """The progress of a work, from a document. `within`: in how many seconds it ends, None: never,
    or not known. `waits`: what, why, and for how many seconds, None where it does not say.
    """

    within: tuple[float, float] | None
    waits: Sequence[tuple[str, str, float | None]]
    budgets: list[str]


class _Followed(msgspec.Struct):
    """One work. Instants in ns since the epoch."""

    since_ns: int
    most: int = 0
    promised: tuple[int, int] | None = None
    expected: tuple[int, int] | None = None
    waits: dict[str, tuple[str, int]] = {}
    budgets: list[str] = []


class WorkTracker:
    """Follows drains, roll-outs and upgrade runs from one look at the cluster to the next."""

    def __init__(self) -> None:
        self._followed: dict[WorkKey, _Followed] = {}
        self._moving: dict[str, int] = {}

    def works(
        self, cache: Cache, now_ns: int, instant: Callable[[int], float]
    ) -> list[WorkInProgress]:
        """The works as they are now. `instant`: an instant by the stream's clock."""
        followed = {name for kind, _, name in self._followed if kind == "Node"}
        works = {key_of(work): work for work in works_of(cache, followed | self._left(cache))}
        for key in self._followed.keys() - works.keys():
            del self._followed[key]
        for key, work in works.items():
            if key not in self._followed:
                self._followed[key] = _Followed(_since_ns(cache, work, now_ns))
        return [self._shown(key, work, instant) for key, work in works.items()]

    def _left(self, cache: Cache) -> set[str]:
        """Cordoned nodes that pods have left since the last look: some are gone within a second."""
        before = self._moving
        cordoned = [node.name for node in cache.nodes.values() if node.spec.unschedulable]
        self._moving = {name: len(moving(cache, name)) for name in cordoned}
        return {name for name, count in self._moving.items() if count < before.get(name, 0)}

    def take(self, key: WorkKey, details: WorkDetails, now_ns: int) -> None:
        """Take in a document's details of a work; a work that is not followed is ignored."""
        of_work = self._followed.get(key)
        if of_work is None:
            return
        of_work.expected = None
        if details.within is not None:
            low, high = (now_ns + round(seconds * SECOND_NS) for seconds in details.within)
            of_work.expected = low, high
            of_work.promised = of_work.promised or of_work.expected
        before, of_work.waits = of_work.waits, {}
        for what, because, seconds in details.waits:
            since_ns = before[what][1] if what in before else now_ns
            if seconds is not None:
                since_ns = now_ns - round(seconds * SECOND_NS)
            of_work.waits[what] = because, since_ns
        of_work.budgets = details.budgets

    def _shown(
        self, key: WorkKey, work: WorkInProgress, instant: Callable[[int], float]
    ) -> WorkInProgress:
        of_work, total = self._followed[key], work.total
        if work.kind == "Node":
            total = of_work.most = max(of_work.most, work.total)
        waits = [
            Wait(what, because, instant(since_ns))
            for what, (because, since_ns) in of_work.waits.items()
        ]
        if len(waits) > MOST_WAITS:
            more = Wait(f"{len(waits) - MOST_WAITS} more", "which the command names")
            waits = [*waits[:MOST_WAITS], more]
        return replace(
            work,
            total=total,
            done=work.done + total - work.total,
            since_s=instant(of_work.since_ns),
            promised=_instants(of_work.promised, instant),
            expected=_instants(of_work.expected, instant),
            waits=waits,
            budgets=of_work.budgets,
        )


def key_of(work: WorkInProgress) -> WorkKey:
    """By which it is known again."""
    return work.kind, work.namespace, work.name


def _instants(
    both: tuple[int, int] | None, instant: Callable[[int], float]
) -> tuple[float, float] | None:
    return None if both is None else (instant(both[0]), instant(both[1]))


def _since_ns(cache: Cache, work: WorkInProgress, now_ns: int) -> int:
    """Since when a drain is under way, by its condition or its first deletion; else now."""
    if work.kind != "Node":
        return now_ns
    began = begun_ns(cache.nodes[work.name])
    asked = (deletion_asked_ns(pod.metadata) for pod in moving(cache, work.name))
    asked_ns = [at_ns for at_ns in asked if at_ns is not None]
    return min([now_ns, *asked_ns] if began is None else [now_ns, began])


def details_of_drain(plan: Json) -> WorkDetails:
    """Of a DrainPlan of what is left; pods that never go first, then those that go last. It waits
    for none that goes at the first try."""
    every = (pod for wave in plan["waves"] for pod in wave["pods"])
    pods = [pod for pod in every if pod["verdict"] not in (KEPT, READY)]
    pods.sort(key=lambda pod: -inf if pod["goneSeconds"] is None else -pod["goneSeconds"])
    return WorkDetails(
        _within(plan["estimate"]),
        [(f"pod {p['namespace']}/{p['name']}", p["reason"], None) for p in pods if p["reason"]],
        [
            f"{b['namespace']}/{b['name']}: {b['healthy']} of {b['expected']} healthy, "
            f"{b['desired']} needed, {b['allowed']} may go now"
            for b in plan["budgets"]
        ],
    )


def details_of_roll_out(roll_out: Json) -> WorkDetails:
    """Of a DaemonSetRollout."""
    waits = [(f"node {u['node']}", u["because"], None) for u in roll_out["budgetUsedBy"]]
    waits = waits or [(what, "", None) for what in roll_out["waitsFor"]]
    budgets = []
    if (budget := roll_out["budget"]) is not None:
        most = f"maxUnavailable {budget['maxUnavailable']}, maxSurge {budget['maxSurge']}"
        budgets = [f"{most}: {budget['used']} of {budget['desired']} nodes use it"]
    return WorkDetails(_within(roll_out["estimate"]), waits, budgets)


def details_of_upgrade(status: Json) -> WorkDetails:
    """Of an UpgradeStatus."""
    waits = [(f"gate {gate['gate']}", gate["because"], None) for gate in status["gates"]]
    waits += [(hold["what"], hold["because"], None) for hold in status["holds"]]
    waits += [
        (f"node {node['name']} ({node['state']})", node["because"], node["sinceSeconds"])
        for node in status["nodes"]
        if node["state"] not in ("Waiting", "Skipped", "Done", "NotSelected")
    ]
    return WorkDetails(
        _within(status["estimate"]),
        waits,
        [
            f"{b['scope']}: {b['available']} of {b['base']} nodes available, {b['floor']} needed, "
            f"{b['slots']} more may go"
            for b in status["budgets"]
        ],
    )


def _within(estimate: Json | None) -> tuple[float, float] | None:
    return None if estimate is None else (estimate["lowSeconds"], estimate["highSeconds"])
