"""Drains nodes as a plan says: cordons all of them, then evicts wave by wave, and keeps time.

Before each wave but the first the cluster is looked at again: where the rest of the plan could no
longer be carried out, the drain holds, says why, and goes on once it can be. Between two waves it
waits until the pods that take the place of evicted ones are Ready, as the plan's waves do: those
that no node has room for, and those of owners none of whose evicted pods was Ready, are not waited
for. Nothing is uncordoned on failure, as with kubectl; `uncordon` is for a drain that is broken
off. Run again, it goes on where it was: nodes that are cordoned and pods that are gone need
nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kubectl_nodelife.acts.node_drain import DRAIN, NodeDrain, Overtaken
from kubectl_nodelife.acts.session import ActSession, Show, make_carrier
from kubectl_nodelife.drain import results
from kubectl_nodelife.engine.actions import SetUnschedulable, of_node
from kubectl_nodelife.engine.calls import Get, Request
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.kube.wellknown import FALSE
from kubectl_nodelife.sim.kubectl.conversation import pending_nodes, unable
from kubectl_nodelife.sim.kubectl.options import DrainOptions

HOLD_S: Final = 5.0
LOOK_S: Final = 1.0
LOOKS_AT_LEAST: Final = 2
"""Owners take a moment to make successors."""
LOOKS_BEFORE_WARNING: Final = 30


class WaveRun(msgspec.Struct):
    """A wave that was begun: what the plan promised, and what became of it.

    `seconds` None: it has not ended. `errors`: node -> why it is not drained.
    """

    nodes: list[str]
    promised: results.Estimate | None
    pods: int = 0
    gone: int = 0
    seconds: float | None = None
    errors: dict[str, str] = {}


class DrainOrder(msgspec.Struct, frozen=True):
    """The nodes to drain, and how."""

    plan: results.DrainPlan
    options: DrainOptions
    waves: results.WaveOptions | None = None
    chunk_size: int = 500


Replan = Callable[[Sequence[str]], Awaitable[results.DrainPlan]]


@dataclass(slots=True)
class Drain:
    """Drains nodes wave by wave as a plan says. `cordoned`: nodes that this run cordoned; `runs`:
    waves that were begun, the last at `began` (s of the monotonic clock).
    """

    session: ActSession
    order: DrainOrder
    replan: Replan
    show: Show
    warn: Show
    cordoned: list[Node] = field(default_factory=list)
    drained: list[str] = field(default_factory=list)
    runs: list[WaveRun] = field(default_factory=list)
    turns: dict[str, NodeDrain] = field(default_factory=dict)
    began: float = 0.0

    @property
    def _suffix(self) -> str:
        return " (server dry run)" if self.session.order.dry_run else ""

    async def run(self) -> bool:
        """Drain everything; whether all nodes are drained. Raises NodelifeError."""
        waves = self.order.plan.waves
        nodes: dict[str, Node] = {}
        cordon = self.order.plan.cordon
        if cordon is None or cordon.when != results.CORDON_BY_WAVE:
            nodes = {name: await self._cordon(name) for wave in waves for name in wave.nodes}
        for number, wave in enumerate(waves):
            if number and not self.session.order.dry_run:
                await self._pause_between()
                await self._hold_while_overtaken([n for w in waves[number:] for n in w.nodes])
            nodes |= {name: await self._cordon(name) for name in wave.nodes if name not in nodes}
            await self._run_wave(wave, nodes)
        for line in pending_nodes(name for run in self.runs for name in run.errors):
            self.warn(line)
        return not any(run.errors for run in self.runs)

    async def uncordon(self) -> None:
        """Take back the cordon of what this run cordoned and did not drain."""
        carrier = make_carrier(self.session)
        for node in [n for n in self.cordoned if n.name not in self.drained]:
            result = await carrier.carry_out(_cordon_of(node, unschedulable=False), node)
            if result.ok:
                self.cordoned.remove(node)
                self.show(f"node/{node.name} uncordoned")
            else:
                self.warn(f"node/{node.name} could not be uncordoned: {result.message}")
        await carrier.stop()

    def progress(self) -> str:
        """One line on the wave that is under way, "" for none."""
        if not self.runs or self.runs[-1].seconds is not None:
            return ""
        run = self.runs[-1]
        self._count(run)
        text = f"wave {len(self.runs)}/{len(self.order.plan.waves)} ({', '.join(run.nodes)}): "
        text += f"{run.gone} of {run.pods} pods gone, {time.monotonic() - self.began:.0f}s"
        if run.promised is not None:
            text += f" of {run.promised.low:g}s to {run.promised.high:g}s"
        return text

    # Steps

    async def _read(self, name: str) -> Node:
        answer = await self.session.reader.call(Get("Node", ("", name)))
        if not isinstance(answer.obj, Node):
            raise Failed(f"cannot be read: {answer.message}", on=f"node {name}")
        return answer.obj

    async def _cordon(self, name: str) -> Node:
        node = await self._read(name)
        if node.spec.unschedulable:
            self.show(f"node/{name} already cordoned{self._suffix}")
            return node
        carrier = make_carrier(self.session)
        result = await carrier.carry_out(_cordon_of(node, unschedulable=True), node)
        await carrier.stop()
        if not result.ok:
            raise Failed(f"could not be cordoned: {result.message}", on=f"node {name}")
        if result.changed and not self.session.order.dry_run:
            self.cordoned.append(node)
            # Nothing is evicted from a node that still takes pods, whatever an answer said of it.
            if not (await self._read(name)).spec.unschedulable:
                raise Failed("was said to be cordoned, and is not", on=f"node {name}")
        self.show(f"node/{name} cordoned{self._suffix}")
        return node

    async def _pause_between(self) -> None:
        waves = self.order.waves
        if waves is not None and waves.maintenance_ns:
            self.show(f"maintenance: {waves.maintenance_ns // SECOND_NS}s before the next wave")
            await asyncio.sleep(waves.maintenance_ns / SECOND_NS)
            await self._await_replacements(self.runs[-1].nodes)

    async def _hold_while_overtaken(self, names: Sequence[str]) -> None:
        """Wait while what is left could not be carried out, if the plan had said it could."""
        if self.order.plan.verdict in (results.NEVER, results.REFUSED):
            return
        warned_of = ""
        while True:
            plan = await self.replan(names)
            if plan.verdict not in (results.NEVER, results.REFUSED):
                if warned_of:
                    self.show("goes on")
                return
            because = why_not(plan)
            if because != warned_of:
                warned_of = because
                self.warn(f"held before the next wave, for the plan is overtaken: {because}")
            await asyncio.sleep(HOLD_S)

    async def _run_wave(self, wave: results.WavePlan, nodes: dict[str, Node]) -> None:
        run = WaveRun(list(wave.nodes), wave.estimate)
        self.runs.append(run)
        self.began = time.monotonic()
        errors = await asyncio.gather(*(self._drain(nodes[name]) for name in wave.nodes))
        for name, error in zip(wave.nodes, errors, strict=True):
            if error:
                run.errors[name] = error
                self.warn(unable(name, error))
            else:
                self.drained.append(name)
                self.show(f"node/{name} drained{self._suffix}")
        if self.order.waves is not None and not self.session.order.dry_run:
            await self._await_replacements(wave.nodes)
        run.seconds = time.monotonic() - self.began
        self._count(run)
        if run.promised is not None and run.seconds > run.promised.high:
            self.warn(f"the wave took {run.seconds:.1f}s, longer than {run.promised.high:g}s")

    async def _await_replacements(self, nodes: Sequence[str]) -> None:
        evicted = [one.actor.pod for name in nodes for one in self.turns[name].pods]
        await await_replacements(self.session, evicted, self.warn)

    async def _drain(self, node: Node) -> str:
        while True:
            turn = NodeDrain(
                self.session,
                node,
                self.order.options,
                self.show,
                self.warn,
                self.order.chunk_size,
            )
            self.turns[node.name] = turn
            try:
                return await turn.run()
            except Overtaken as overtaken:
                self.warn(f"node {node.name}: held: {overtaken}; it goes on once it is cordoned")
            except Failed as error:
                return str(error)
            why_not = await self._until_cordoned(node)
            if why_not:
                return why_not

    async def _until_cordoned(self, node: Node) -> str:
        """Wait until the node is cordoned again; why that cannot be, "" once it is."""
        while True:
            answer = await self.session.reader.call(Get("Node", ("", node.name)))
            current = answer.obj
            if answer.code == 404 or (current is not None and current.uid != node.uid):
                return "the node is gone"
            if isinstance(current, Node) and current.spec.unschedulable:
                self.show(f"node/{node.name} is cordoned again")
                return ""
            await asyncio.sleep(HOLD_S)

    def _count(self, run: WaveRun) -> None:
        turns = [self.turns[name] for name in run.nodes if name in self.turns]
        run.pods = sum(len(turn.pods) for turn in turns)
        run.gone = sum(one.outcome is not None for turn in turns for one in turn.pods)


def why_not(plan: results.DrainPlan) -> str:
    """The reason why a plan does not go on, in one line."""
    stopped = [pod for pod in plan.pods() if pod.verdict in (results.NEVER, results.REFUSED)]
    words = [f"pod {p.namespace}/{p.name}: {p.reason or p.gate}" for p in stopped[:3]]
    more = f" and {len(stopped) - 3} pods more" if len(stopped) > 3 else ""
    return ("; ".join(words) or f"the plan says {plan.verdict}") + more


def _cordon_of(node: Node, *, unschedulable: bool) -> SetUnschedulable:
    return SetUnschedulable(
        controller=DRAIN, because="drain", **of_node(node), unschedulable=unschedulable
    )


async def await_replacements(session: ActSession, evicted: Sequence[Pod], warn: Show) -> None:
    """Look every second until none is waited for; warn of those that are after half a minute."""
    owners = {o.uid for pod in evicted if pod.ready() and (o := controller_of(pod.metadata))}
    namespaces = sorted({pod.namespace for pod in evicted})
    looks = 0
    while owners:
        await asyncio.sleep(LOOK_S)
        looks += 1
        waited = [
            pod
            for namespace in namespaces
            for pod in await _pods(session, namespace)
            if (o := controller_of(pod.metadata)) and o.uid in owners and _is_waited_for(pod)
        ]
        if not waited and looks >= LOOKS_AT_LEAST:
            return
        if looks == LOOKS_BEFORE_WARNING:
            names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in waited)
            warn(f"held before the next wave: replacements are not Ready: {names}")


def _is_waited_for(pod: Pod) -> bool:
    over = pod.status.phase in TERMINAL_PHASES
    if over or pod.metadata.deletion_timestamp is not None or pod.ready():
        return False
    scheduled = pod.status.condition("PodScheduled")
    return bool(pod.spec.node_name) or scheduled is None or scheduled.status != FALSE


async def _pods(session: ActSession, namespace: str) -> list[Pod]:
    """The namespace's pods; none where they cannot be read now, for they are asked for again."""
    request = Request("GET", kind_named("Pod").path(namespace), "", {})
    answer = await session.reader.send(request, "PodList")
    pods = []
    for item in (answer.raw or {}).get("items") or ():
        try:
            pod = decode("Pod", item)
        except InputError:
            continue
        assert isinstance(pod, Pod)
        pods.append(pod)
    return pods
