"""`kubectl drain` in the virtual cluster: answers its requests, and writes records of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.api import Api, event_record
from kubectl_nodelife.sim.kubectl.conversation import FAILED, GONE, SKIPPED, NodeRun, Say
from kubectl_nodelife.sim.kubectl.drain import KubectlDrain, KubectlRequests
from kubectl_nodelife.sim.kubectl.options import REFUSE, DrainOptions
from kubectl_nodelife.sim.timeline import SCRIPT
from kubectl_nodelife.sim.world import World


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
        current = self._api.store.pods.get(self._key)
        if current is not None and current.uid == self._last.uid:
            self._last = current
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
        current = self._api.store.pods.get(self._key)
        return current is None or current.uid != self._last.uid


class WorldUnderDrain(KubectlRequests[ListedPod]):
    """The world for its `number`-th kubectl process, whose calls are forked with it. Instants are
    those of the world, nanoseconds since the epoch."""

    def __init__(
        self, world: World, number: int, options: DrainOptions, causes: dict[str, Action]
    ) -> None:
        super().__init__(world, world.api.store, causes)
        self._number = number
        self._options = options

    def fork(self, world: World) -> WorldUnderDrain:
        """A fork of the world, for the same process."""
        other = WorldUnderDrain(world, self._number, self._options, self._causes)
        other._judged = dict(self._judged)
        return other

    def at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        go_on, place = self._put_down(call, arguments)
        self._world.agenda.add(self._instant(instant_ns), SCRIPT, go_on, place)

    def ask_again_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        super().ask_again_at(instant_ns, *self._put_down(call, arguments))

    def alarm_at(self, instant_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        super().alarm_at(instant_ns, *self._put_down(call, arguments))

    def _put_down(
        self, call: Callable[..., None], arguments: tuple[Any, ...]
    ) -> tuple[Callable[..., None], int]:
        """What makes that call of the process, also in a fork: a method of the world's processes,
        and the number of the call."""
        processes = kubectl_of(self._world)
        return processes.go_on, processes.put_down(self._number, call, arguments)

    def read_again(self, target: ListedPod) -> None:
        target.read_again()

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
    kubectl = world.agenda.parts.get(KubectlProcesses)
    if not isinstance(kubectl, KubectlProcesses):
        kubectl = world.asker = KubectlProcesses(world)
        world.join(kubectl)
    return kubectl


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
            f"kubectl drain is through: {counted(count, 'pod')} removed",
            False,
        )
    remaining = [t.actor.pod for t in run.targets if t.outcome not in (GONE, SKIPPED)]
    names = first_names([f"{pod.namespace}/{pod.name}" for pod in remaining], 5)
    said = dict.fromkeys(
        t.refusal.message for t in run.targets if t.outcome == FAILED and t.refusal is not None
    )
    why = f": {first_names(list(said), 1)}" if said else ""
    return "DrainFailed", f"kubectl drain gives up on {names}{why}", True
