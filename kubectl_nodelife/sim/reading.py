"""What became of each node, pod and zone in a play: the one reading of what happened in it.

A play's timeline has what was done, as actions with their instants. They are read once, in order,
into the *courses* of nodes, pods and zones; what the API server refused did not happen. On these
stand *losses*, of nodes with their pods and of workloads, and *loops*, pods that one controller
makes and another one deletes over and over. Summaries, forecasts and measures ask here.

An owner puts a pod where taint-eviction deletes it, and makes the next one: as fast as the clients
of both may write, where the pod is not tolerated for a second and nothing waits for its end, or
with the seconds tolerated between two. Such a loop ends when the node's taint goes.

Instants are seconds since t=0, to the ms; None: never.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from statistics import median
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache, Key
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, controller_of
from kubectl_nodelife.kube.node import Taint, zone_display
from kubectl_nodelife.kube.times import MILLISECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.sim.api import CLUSTER, BindPod, MakePod
from kubectl_nodelife.sim.timeline import Timeline

_LEAST: Final = 3
"""So many new pods are deleted in turn before it is called a loop."""
_PAUSES: Final = 10
"""Where the next pod goes after so many times the usual span, another loop begins."""
_TAINT_EVICTION: Final = "taint-eviction"
_DAEMON_SETS: Final = "daemonset"

_Done = TypeVar("_Done", bound=actions.Action)


class Happened(NamedTuple, Generic[_Done]):
    """Something that was done: its place among all that was, when, and what."""

    order: int
    at: float
    action: _Done


class PodCourse(msgspec.Struct, eq=False):
    """What became of a pod. `workload`: (namespace, kind, name) of its controller, or itself;
    `node`: the last one on which it was, "" for none; `created`: None where it was there.

    `marked`: as not ready, by node-lifecycle; `due_at`: when taint-eviction was to delete it, as it
    said last; `deletions`: who asked that it go, its kubelet aside; `bound`: to a node for which it
    had to wait; `ready_at`: when it was Ready first in the play; `ended_at`: it is gone.
    """

    namespace: str
    name: str
    uid: str
    workload: tuple[str, str, str]
    node: str
    created: Happened[MakePod | actions.CreatePod] | None = None
    marked: list[Happened[actions.MarkPodNotReady]] = []
    deletions: list[Happened[actions.DeletePod | actions.EvictPod]] = []
    due_at: float | None = None
    bound: Happened[BindPod] | None = None
    ready_at: float | None = None
    events: list[Happened[actions.RecordEvent]] = []
    ended_at: float | None = None

    @property
    def key(self) -> Key:
        """(namespace, name)"""
        return self.namespace, self.name

    @property
    def evictions(self) -> list[Happened[actions.DeletePod | actions.EvictPod]]:
        """The deletions, but for what a DaemonSet does to its own pods."""
        return [done for done in self.deletions if done.action.controller != _DAEMON_SETS]

    def deleted(self, *by: str) -> Happened[actions.DeletePod | actions.EvictPod] | None:
        """Its first DELETE by one of these controllers; by any controller but its DaemonSet's where
        none is named.
        """
        for done in self.deletions:
            controller = done.action.controller
            named = controller in by if by else controller not in (CLUSTER, _DAEMON_SETS)
            if named and isinstance(done.action, actions.DeletePod):
                return done
        return None


class NodeCourse(msgspec.Struct, eq=False):
    """What came to a node. `unknown`: whenever its Ready was written so; `back_at`: when it was
    True again after the last of these; `tainted`, `untainted`: with NoExecute.
    """

    unknown: list[Happened[actions.SetNodeConditions]] = []
    back_at: float | None = None
    tainted: list[Happened[actions.AddTaints]] = []
    untainted: list[Happened[actions.RemoveTaints]] = []
    events: list[Happened[actions.RecordEvent]] = []

    def event_at(self, *reasons: str) -> float | None:
        """When the first Event of these reasons was about it."""
        return next((done.at for done in self.events if done.action.reason in reasons), None)


class NodeLoss(msgspec.Struct):
    """A node that was not Ready for a while. Instants are seconds since t=0, None for never.

    `silent_at`: its kubelet fell silent; `lost_at`: Ready was no longer True; `tainted_at`: it got
    a NoExecute taint; `back_at`: Ready was True again. `pods`: on it when it was lost; `deleted` of
    them by controllers between `first_deleted_at` and `last_deleted_at`; `finished`: gone since.
    """

    name: str
    zone: str
    ready: str
    silent_at: float | None
    lost_at: float
    tainted_at: float | None = None
    back_at: float | None = None
    pods: int = 0
    marked: int = 0
    deleted: int = 0
    first_deleted_at: float | None = None
    last_deleted_at: float | None = None
    finished: int = 0


class WorkloadLoss(msgspec.Struct):
    """A workload that lost pods: how many of how many, when, and how many new ones it has got
    since.
    """

    kind: str
    namespace: str
    name: str
    pods: int = 0
    deleted: int = 0
    first_deleted_at: float | None = None
    last_deleted_at: float | None = None
    replaced: int = 0


class Courses:
    """The courses of all that a play touched. `before`: the cluster as it was at t=0.

    `nodes`: by name; `pods`: in the order in which they were touched first; `zones`: the states
    that each took, by its name; `losses`: of nodes, in the order in which they were
    lost.
    """

    def __init__(self, timeline: Timeline, failures: Iterable[Outcome], before: Cache) -> None:
        self.nodes: defaultdict[str, NodeCourse] = defaultdict(NodeCourse)
        self.pods: list[PodCourse] = []
        self.zones: defaultdict[str, list[Happened[actions.SetZoneState]]] = defaultdict(list)
        self.losses: list[NodeLoss] = []
        self._before = before
        self._last_named: dict[Key, PodCourse] = {}
        self._open: dict[str, NodeLoss] = {}
        self._on: Counter[str] = Counter()
        self._lost: set[int] = set()
        self._seconds = timeline.seconds
        failed = {outcome.action.id for outcome in failures}
        last_ns, at = timeline.start_ns, 0.0
        for order, (at_ns, action) in enumerate(timeline.entries):
            if action.id not in failed:
                if at_ns != last_ns:
                    last_ns, at = at_ns, timeline.seconds(at_ns)
                self._read(Happened(order, at, action))

    @cached_property
    def evicted(self) -> list[tuple[Happened[actions.DeletePod | actions.EvictPod], PodCourse]]:
        """When each pod is first asked to go (`PodCourse.evictions`), in that order."""
        first = [(each[0], pod) for pod in self.pods if (each := pod.evictions)]
        return sorted(first, key=lambda each: each[0].order)

    def workload_losses(self) -> list[WorkloadLoss]:
        """The workloads of which pods were evicted or collected, those that lost most first."""
        losses: dict[tuple[str, str, str], WorkloadLoss] = {}
        deleted = [(done, pod) for pod in self.pods if (done := pod.deleted()) is not None]
        for done, pod in sorted(deleted, key=lambda each: each[0].order):
            if pod.workload not in losses:
                losses[pod.workload] = self._workload_loss(pod)
            _count_deletion(losses[pod.workload], done.at)
        for pod in self.pods:
            loss = losses.get(pod.workload)
            if loss is not None and pod.created is not None:
                loss.replaced += pod.created.at >= (loss.first_deleted_at or 0.0)
        return sorted(losses.values(), key=lambda w: (-w.deleted, w.namespace, w.name))

    def _workload_loss(self, pod: PodCourse) -> WorkloadLoss:
        namespace, kind, name = pod.workload
        owner: OwnerReference | KubeObject | None = self._owner_at_start(pod.key)
        if owner is None and kind != "Pod":
            owner = self._before.get(kind, (namespace, name))
        pods = len(self._before.pods_of(owner.uid)) if owner is not None else int(kind == "Pod")
        return WorkloadLoss(kind, namespace, name, pods)

    def _owner_at_start(self, pod: Key) -> OwnerReference | None:
        at_start = self._before.pods.get(pod)
        return controller_of(at_start.metadata) if at_start is not None else None

    # --- reading ---------------------------------------------------------------------------------

    def _pod(self, action: actions.Action) -> PodCourse:
        """The course of the action's pod. Of one that a DaemonSet makes the uid shows later."""
        key = namespace, name = action.target[1]
        pod = self._last_named.get(key)
        if pod is None or (action.uid and pod.uid and action.uid != pod.uid):
            at_start, owner = self._before.pods.get(key), self._owner_at_start(key)
            kind, of = (owner.kind, owner.name) if owner is not None else ("Pod", name)
            node = at_start.spec.node_name if at_start is not None else ""
            pod = self._begin(PodCourse(namespace, name, action.uid, (namespace, kind, of), node))
        pod.uid = pod.uid or action.uid
        return pod

    def _begin(self, pod: PodCourse) -> PodCourse:
        self.pods.append(pod)
        self._last_named[pod.key] = pod
        return pod

    def _read(self, done: Happened[Any]) -> None:
        match done.action:
            case BindPod(node=node):
                pod = self._pod(done.action)
                self._on[pod.node] -= 1
                self._on[node] += 1
                pod.bound, pod.node = done, node
            case actions.RecordEvent(kind=kind, name=name):
                if kind == "Pod":
                    self._pod(done.action).events.append(done)
                elif kind == "Node":
                    self.nodes[name].events.append(done)
            case actions.SetPodCondition(condition=condition):
                if (condition.type, condition.status) == ("Ready", "True"):
                    pod = self._pod(done.action)
                    pod.ready_at = done.at if pod.ready_at is None else pod.ready_at
            case MakePod() | actions.CreatePod():
                self._created(done)
            case actions.MarkPodNotReady():
                pod = self._pod(done.action)
                pod.marked.append(done)
                if (loss := self._open.get(pod.node)) is not None:
                    loss.marked += 1
            case actions.ScheduleEviction(due_ns=due_ns):
                pod = self._pod(done.action)
                pod.due_at = pod.due_at if pod.deletions else self._seconds(due_ns)
            case actions.DeletePod() | actions.EvictPod():
                self._deleted(done)
            case actions.SetNodeConditions(node=node, conditions=conditions):
                ready = next((c.status for c in conditions if c.type == "Ready"), None)
                if ready is not None:
                    self._ready_written(node, ready, done)
            case actions.AddTaints(node=node, taints=taints) if _no_execute(taints):
                self.nodes[node].tainted.append(done)
                loss = self._open.get(node)
                if loss is not None and loss.tainted_at is None:
                    loss.tainted_at = done.at
            case actions.RemoveTaints(node=node, taints=taints) if _no_execute(taints):
                self.nodes[node].untainted.append(done)
            case actions.SetZoneState(zone=zone):
                self.zones[zone_display(zone)].append(done)

    def _created(self, done: Happened[MakePod | actions.CreatePod]) -> None:
        action = done.action
        namespace, name = action.namespace, action.pod
        kind = action.owner_kind if isinstance(action, MakePod) else "DaemonSet"
        workload = (namespace, kind, action.owner) if kind else (namespace, "Pod", name)
        self._begin(PodCourse(namespace, name, action.uid, workload, action.node, done))
        self._on[action.node] += 1

    def _deleted(self, done: Happened[actions.DeletePod | actions.EvictPod]) -> None:
        pod, action = self._pod(done.action), done.action
        ends = isinstance(action, actions.DeletePod) and action.grace_period_seconds == 0
        if not (ends and action.controller == CLUSTER):
            pod.deletions.append(done)
        loss = self._open.get(pod.node) if pod.ended_at is None else None
        if loss is not None and isinstance(action, actions.DeletePod):
            if action.controller != CLUSTER and id(pod) not in self._lost:
                self._lost.add(id(pod))
                _count_deletion(loss, done.at)
            loss.finished += ends and id(pod) in self._lost
        if ends and pod.ended_at is None:
            pod.ended_at = done.at
            self._on[pod.node] -= 1

    def _ready_written(
        self, name: str, status: str, done: Happened[actions.SetNodeConditions]
    ) -> None:
        node, loss = self.nodes[name], self._open.get(name)
        if status == "Unknown":
            node.unknown.append(done)
            node.back_at = None
        elif status == "True" and node.unknown and node.back_at is None:
            node.back_at = done.at
        if status == "True" and loss is not None:
            self._open.pop(name).back_at = done.at
        elif loss is not None:
            loss.ready = status
        elif status != "True":
            self._open[name] = loss = NodeLoss(name, "", status, _silent_at(node), done.at)
            loss.pods = self._before.count_on(name) + self._on[name]
            self.losses.append(loss)


def _no_execute(taints: Iterable[Taint]) -> bool:
    return any(taint.effect == NO_EXECUTE for taint in taints)


def _silent_at(node: NodeCourse) -> float | None:
    """Since when its kubelet is silent."""
    for done in reversed(node.events):
        if done.action.reason in ("HeartbeatsStopped", "HeartbeatsStarted"):
            return done.at if done.action.reason == "HeartbeatsStopped" else None
    return None


def _count_deletion(loss: NodeLoss | WorkloadLoss, at: float) -> None:
    loss.deleted += 1
    loss.last_deleted_at = at
    if loss.first_deleted_at is None:
        loss.first_deleted_at = at


_Place = tuple[str, str, str, str]
"""(kind, namespace and name of an owner, node of its pod)"""


class PodLoop(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of one owner on one node. Seconds count from the start of the play.

    `pods`: made and deleted again; `at_once`: so many of them in one round; `every_seconds`: the
    median from one round to the next. `because`: why the last one was deleted; `ended_by`: what
    ended the loop, "" where it went on or where nothing shows that.
    """

    kind: str
    namespace: str
    name: str
    node: str
    pods: int
    from_seconds: float
    until_seconds: float
    every_seconds: float
    made_by: str
    because: str
    ended_by: str = ""
    at_once: int = 1

    @property
    def sentence(self) -> str:
        """Who makes and deletes what, how often, since when, until when, and why."""
        spans = (self.from_seconds, self.until_seconds, self.every_seconds)
        since, until, every = map(_words, spans)
        owner = "/".join(filter(None, (self.kind.lower(), self.namespace, self.name)))
        by = "made anew" if self.made_by == CLUSTER else f"made by {self.made_by}"
        many = "one" if self.at_once == 1 else self.at_once
        ended = f"; ended by {self.ended_by}" if self.ended_by else ""
        return (
            f"{owner} goes in a circle on {self.node}: {self.pods} pods {by} and"
            f" deleted by {_TAINT_EVICTION}, from {since} to {until}, {many} each {every}:"
            f" {self.because}{ended}"
        )


def _words(seconds: float) -> str:
    return format_duration(round(seconds * 1000) * MILLISECOND_NS)


_Round = tuple[
    Happened[MakePod | actions.CreatePod], Happened[actions.DeletePod | actions.EvictPod]
]
"""(what made a pod, what deleted it)"""


def pod_loops(courses: Courses) -> list[PodLoop]:
    """The loops of a play, by owner and node."""
    deleted = [(done, pod) for pod in courses.pods if (done := pod.deleted(_TAINT_EVICTION))]
    rounds: defaultdict[_Place, list[_Round]] = defaultdict(list)
    for done, pod in sorted(deleted, key=lambda each: each[0].order):
        if pod.created is not None:
            namespace, kind, name = pod.workload
            rounds[kind, namespace, name, pod.node].append((pod.created, done))
    return [
        _pod_loop(place, loop, courses.nodes[place[3]].untainted)
        for place, each in sorted(rounds.items())
        if len(each) >= _LEAST
        for loop in _runs(each)
        if len(loop) >= _LEAST
    ]


def _at_once(rounds: Sequence[_Round]) -> int:
    """How many of the pods are usually there once new ones are made, where they go together and
    not one after the other.
    """
    steps = sorted(
        step for created, deleted in rounds for step in ((created.at, 1), (deleted.at, -1))
    )
    there, after_making = 0, dict[float, int]()
    for at_s, step in steps:
        there += step
        if step > 0:
            after_making[at_s] = there
    there = max(1, round(median(after_making.values())))
    usual_s = median(_gaps(rounds, there) or [0.0])
    together = sum(gap < usual_s / (2 * there) for gap in _gaps(rounds, 1))
    return there if 2 * there * together > (there - 1) * len(rounds) else 1


def _gaps(rounds: Sequence[_Round], at_once: int) -> list[float]:
    """From each deletion to that of the pod that came in place of it."""
    return [
        after.at - before.at
        for (_, before), (_, after) in zip(rounds, rounds[at_once:], strict=False)
    ]


def _runs(rounds: Sequence[_Round]) -> Iterator[Sequence[_Round]]:
    """The rounds, cut where the next one is far later than is usual among them."""
    usual = _gaps(rounds, _at_once(rounds)) or [0.0]
    longest = max(_PAUSES * median(usual), 1.0)
    begin = 0
    for index, gap in enumerate(_gaps(rounds, 1), 1):
        if gap > longest:
            yield rounds[begin:index]
            begin = index
    yield rounds[begin:]


def _pod_loop(
    place: _Place, rounds: Sequence[_Round], untainted: Iterable[Happened[actions.RemoveTaints]]
) -> PodLoop:
    (first, _), (created, last) = rounds[0], rounds[-1]
    at_once = _at_once(rounds)
    every_s = round(median(_gaps(rounds, at_once) or _gaps(rounds, 1)), 3)
    lasts_s = last.at - created.at + _PAUSES * every_s
    ends = (done for done in untainted if 0 <= done.at - created.at <= lasts_s)
    end = next(ends, None)
    because = last.action.because.partition(", counted from ")[0]
    ended_by = _end_words(end) if end is not None else ""
    seconds, made_by = (first.at, last.at, every_s), first.action.controller
    return PodLoop(*place, len(rounds), *seconds, made_by, because, ended_by, at_once)


def _end_words(end: Happened[actions.RemoveTaints]) -> str:
    key = next(taint.key for taint in end.action.taints if taint.effect == NO_EXECUTE)
    return f"{end.action.controller}, which removes {key}:{NO_EXECUTE} at {_words(end.at)}"
