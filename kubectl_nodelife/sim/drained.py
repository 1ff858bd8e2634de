"""`kubectl drain` in the virtual cluster: answers its requests, and writes records of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, SetPodCondition
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import whole_seconds
from kubectl_nodelife.kube.wellknown import EVICTION_BY_EVICTION_API
from kubectl_nodelife.sim.api import CLUSTER, Api, deletion, event_record
from kubectl_nodelife.sim.kubectl.conversation import (
    ACCEPTED,
    CONFLICT,
    FAILED,
    GONE,
    MISSING,
    SKIPPED,
    Answer,
    DrainedPod,
    NodeRun,
    Say,
)
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain
from kubectl_nodelife.sim.kubectl.options import REFUSE, DrainOptions
from kubectl_nodelife.sim.timeline import SCRIPT
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.budgets import EvictionRefused
from kubectl_nodelife.workloads.owners import OwnerLookup


class ListedPod:
    """A pod that kubectl has listed; a later one of the same name is another pod, until kubectl
    reads the pod again before it asks once more: then it goes on with what it finds.
    """

    __slots__ = ("_api", "_key", "_last", "goes_ns", "refusal")

    def __init__(self, api: Api, pod: Pod) -> None:
        self._api = api
        self._key: Key = pod.key
        self._last = pod
        self.goes_ns: int | None = None
        self.refusal = ""

    def fork(self, api: Api) -> ListedPod:
        """The same pod in a fork of the world."""
        other = copy(self)
        other._api = api
        return other

    @property
    def pod(self) -> Pod:
        """The object as it is, or as it last was."""
        found = self._api.store.pods.get(self._key)
        if found is not None and found.uid == self._last.uid:
            self._last = found
        return self._last

    def read_again(self) -> None:
        """GET by name: take what has that name now; nothing, and it stays the pod that it was."""
        self._last = self._api.store.pods.get(self._key, self._last)

    @property
    def going(self) -> bool:
        """True if it is marked deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def gone(self) -> bool:
        """True if the object is gone."""
        found = self._api.store.pods.get(self._key)
        return found is None or found.uid != self._last.uid


class AskedPod(DrainedPod, Protocol):
    """A pod that kubectl has asked for; `refusal`: why it was last refused."""

    refusal: str


class KubectlRequests:
    """The virtual API server's side of kubectl's requests.

    `causes`: node -> the record that began its drain.
    """

    def __init__(self, world: World, causes: dict[str, Action]) -> None:
        self._world = world
        self._api = world.api
        self._causes = causes
        self._judged: dict[Key, Pod] = {}
        """Pods as they were when their evictions met a conflict."""

    @property
    def version(self) -> int:
        """Counts changes."""
        return self._api.changes

    def time_ns(self) -> int:
        """The present instant."""
        return self._api.now_ns

    def to_cordon(self, names: Sequence[str]) -> list[str]:
        """Those of the nodes that are not cordoned yet."""
        nodes = self._api.store.nodes
        return [name for name in names if name in nodes and not nodes[name].spec.unschedulable]

    def cordon(self, *names: str) -> None:
        """Set spec.unschedulable."""
        for name in self.to_cordon(names):
            node = self._api.store.nodes[name]
            why, cause = "kubectl drain cordons all its nodes first", self._causes.get(name)
            done = self._api.note(event_record(node, "Cordoned", why, cause=cause))
            spec = replace(node.spec, unschedulable=True)
            self._api.put("Node", replace(node, spec=spec), done)

    def refuses_eviction(self, pod: Pod) -> EvictionRefused | None:
        """The refusal of an eviction by admission; None where it lets it through."""
        return self._api.admission.refuses_eviction(pod)

    def refuses_deletion(self, pod: Pod) -> EvictionRefused | None:
        """The refusal of a deletion by admission; None where it lets it through."""
        return self._api.admission.refuses_deletion(pod)

    def evict(
        self, target: AskedPod, requested_grace: int | None, *, again: bool = False
    ) -> Answer:
        """POST pods/eviction: admission is asked once, however often the API server itself tries
        `again` (`EvictionREST.Create`), and so is the pod: what it has become meanwhile does not
        count. The budgets decide, then the pod is marked and deleted.
        """
        pod = self._addressed(target)
        if pod is None:
            return MISSING
        refused = None if again else self.refuses_eviction(pod)
        judged = self._judged.get(pod.key, pod) if again else pod
        answer = refused or self._world.disruption.evict(judged, again=again)
        if answer is None:
            self._judged[pod.key] = pod
            return CONFLICT
        if isinstance(answer, EvictionRefused):
            self._record_refusal(target, answer)
            return answer
        cause = self._set_disruption_target(pod)
        self._delete(pod, requested_grace, "kubectl drain evicts it", cause)
        return ACCEPTED

    def delete(self, target: AskedPod, requested_grace: int | None) -> Answer:
        """DELETE of the pod (--disable-eviction)."""
        pod = self._addressed(target)
        if pod is None:
            return MISSING
        refused = self.refuses_deletion(pod)
        if refused is not None:
            return refused
        self._delete(pod, requested_grace, "kubectl drain deletes it", self._cause_of(pod))
        return ACCEPTED

    def _addressed(self, target: AskedPod) -> Pod | None:
        """The pod that a request for the target meets: kubectl names no uid."""
        return self._api.store.pods.get(target.pod.key)

    def read_again(self, target: AskedPod) -> None:
        """GET of a pod whose eviction was refused."""
        if isinstance(target, ListedPod):
            target.read_again()

    def _record_refusal(self, target: AskedPod, refusal: EvictionRefused) -> None:
        """Write a record, unless the last try got the same refusal."""
        why = refusal.cause or refusal.message
        if why != target.refusal:
            target.refusal = why
            pod = target.pod
            because = f"{refusal.code}: {why}"
            refused = event_record(
                pod, "EvictionRefused", because, cause=self._cause_of(pod), warning=True
            )
            self._api.note(refused)

    def _set_disruption_target(self, pod: Pod) -> Action | None:
        marked = SetPodCondition(
            controller=CLUSTER,
            because="the Eviction API lets it go",
            cause=self._cause_of(pod),
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            condition=PodCondition(
                type="DisruptionTarget",
                status="True",
                reason=EVICTION_BY_EVICTION_API,
                message="Eviction API: evicting",
                last_transition_time=Time(whole_seconds(self._api.now_ns)),
            ),
        )
        self._api.note(marked)
        self._world.start(marked, self._api.now_ns)
        return marked

    def _delete(self, pod: Pod, grace: int | None, because: str, cause: Action | None) -> None:
        delete = deletion(pod, because, cause, grace)
        self._api.note(delete)
        self._world.start(delete, self._api.now_ns)

    def _cause_of(self, pod: Pod) -> Action | None:
        return self._causes.get(pod.spec.node_name)


class WorldUnderDrain(KubectlRequests):
    """The world for its `number`-th kubectl process, and that process's clock."""

    def __init__(
        self, world: World, number: int, options: DrainOptions, causes: dict[str, Action]
    ) -> None:
        super().__init__(world, causes)
        self._number = number
        self._options = options
        self.owners: OwnerLookup = world.api.store

    def fork(self, world: World) -> WorldUnderDrain:
        """A fork of the world, for the same process."""
        other = WorldUnderDrain(world, self._number, self._options, self._causes)
        other._judged = dict(self._judged)
        return other

    @property
    def clock(self) -> WorldUnderDrain:
        """Itself: its calls are in the world's agenda."""
        return self

    @property
    def now_ns(self) -> int:
        """The present instant, nanoseconds since the epoch."""
        return self._api.now_ns

    def at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make one of the process's own calls at that instant."""
        processes = kubectl_of(self._world)
        place = processes.put_down(self._number, call, arguments)
        at_ns = max(instant_ns, self._api.now_ns)
        self._world.agenda.add(at_ns, SCRIPT, processes.go_on, place)

    def ask_again_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call that only asks."""
        self._ask(instant_ns, call, arguments, waits=True)

    def alarm_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """The same, at that very instant."""
        self._ask(instant_ns, call, arguments, waits=False)

    def _ask(
        self, instant_ns: int, call: Callable[..., None], arguments: tuple[Any, ...], *, waits: bool
    ) -> None:
        processes = kubectl_of(self._world)
        place = processes.put_down(self._number, call, arguments)
        at_ns = max(instant_ns, self._api.now_ns)
        self._world.agenda.ask(at_ns, processes.go_on, place, waits=waits)

    def pods_on(self, node: str) -> list[ListedPod]:
        """The pods that a list call for the node returns now."""
        pods = sorted(self._api.store.pods_on(node), key=lambda pod: pod.key)
        return [ListedPod(self._api, pod) for pod in pods]

    def record_end(self, run: NodeRun[ListedPod]) -> None:
        """Write a record of a node's turn that has ended."""
        reason, because, warning = _end_of(run, self._options)
        about = self._api.store.nodes.get(run.name) or ("Node", "", run.name)
        cause = self._causes[run.name]
        self._api.note(event_record(about, reason, because, cause=cause, warning=warning))


class KubectlProcesses:
    """The processes that drain nodes of a world, and their calls that are due."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: list[tuple[WorldUnderDrain, KubectlDrain[ListedPod]]] = []
        self._calls: dict[int, tuple[int, Callable[..., None], tuple[Any, ...]]] = {}
        self._put_down = 0

    def fork(self, world: World) -> KubectlProcesses:
        """The same processes in a fork of the world."""
        other = KubectlProcesses(world)
        other._put_down = self._put_down
        moved: dict[object, object] = {}
        for under, process in self._running:
            forked = under.fork(world)
            listed = partial(ListedPod.fork, api=world.api)
            other._running.append((forked, process.fork(forked, listed, forked.record_end, moved)))
        for place, (number, call, arguments) in self._calls.items():
            other._calls[place] = (number, call, tuple(_moved(a, moved) for a in arguments))
        return other

    def start(self, nodes: Sequence[Node], options: DrainOptions, say: Say | None = None) -> None:
        """A user runs `kubectl drain` for these nodes now; `say` takes what it prints."""
        causes: dict[str, Action] = {}
        names = tuple(node.name for node in nodes)
        for node in nodes:
            why = f"a user runs {options.command(*names)}"
            causes[node.name] = self._world.api.note(event_record(node, "DrainStarted", why))
        under = WorldUnderDrain(self._world, len(self._running), options, causes)
        process: KubectlDrain[ListedPod]
        process = KubectlDrain(under, options, names, on_node=under.record_end, say=say)
        self._running.append((under, process))
        process.start(self._world.api.now_ns)

    def put_down(self, number: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> int:
        """Note a call that a process will make of its own; returns the number of the call."""
        self._put_down += 1
        function = call.__func__  # type: ignore[attr-defined]
        self._calls[self._put_down] = (number, function, arguments)
        return self._put_down

    def go_on(self, place: int, at_ns: int = 0) -> None:
        """Make the call of that number."""
        number, call, arguments = self._calls.pop(place)
        call(self._running[number][1], *arguments)

    def settled(self) -> bool:
        """True if no process makes progress by itself any more. Each is asked: one whose deadline
        is far away is brought to its end by the question."""
        settled = True
        for _, process in self._running:
            settled = process.settled() and settled
        return settled

    def answered(self) -> bool:
        """True if all only ask what was answered before."""
        return all(process.answered() for _, process in self._running)


def kubectl_of(world: World) -> KubectlProcesses:
    """The kubectl processes of a world."""
    found = world.agenda.parts.get(KubectlProcesses)
    if not isinstance(found, KubectlProcesses):
        found = world.asker = KubectlProcesses(world)
        world.join(found)
    return found


def _moved(argument: Any, moved: dict[object, object]) -> Any:
    """The argument of a call, as it is in the fork."""
    if isinstance(argument, list):
        return [_moved(item, moved) for item in argument]
    return moved.get(argument, argument)


def _end_of(run: NodeRun[ListedPod], options: DrainOptions) -> tuple[str, str, bool]:
    """(reason, sentence, whether it is a warning) of a node's turn that has ended."""
    if run.refused:
        messages = dict.fromkeys(d.message for _, d in run.decisions if d.verb == REFUSE)
        return "DrainRefused", f"kubectl touches nothing there: {'; '.join(messages)}", True
    count = len(run.targets)
    if run.drained:
        return (
            "Drained",
            f"kubectl drain is through: {count} pod{'s' * (count != 1)} removed",
            False,
        )
    left = [t.actor.pod for t in run.targets if t.outcome not in (GONE, SKIPPED)]
    names = first_names([f"{pod.namespace}/{pod.name}" for pod in left], 5)
    said = dict.fromkeys(
        t.refusal.message for t in run.targets if t.outcome == FAILED and t.refusal is not None
    )
    why = f": {first_names(list(said), 1)}" if said else ""
    return "DrainFailed", f"kubectl drain gives up on {names}{why}", True
