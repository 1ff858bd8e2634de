"""One node's turn in a drain: list, filter, evict all at once, wait until the pods are gone.

Follows kubectl's pkg/drain/drain.go in filters, order, retries and time limit. What differs: an
eviction carries the uid of the pod that was listed, so that a successor of the same name is never
evicted; all pods are looked at by one list a second instead of a GET each; a node that somebody
uncordons meanwhile is left alone (`Overtaken`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from kubectl_nodelife.acts.carrier import HELD, Carrier, LiveCarrier, ServerDryRun
from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.engine.actions import DeletePod, EvictPod
from kubectl_nodelife.engine.calls import Answer, Get, Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND, TOO_MANY_REQUESTS
from kubectl_nodelife.engine.token_bucket import TokenBucket
from kubectl_nodelife.errors import Failed, NodelifeError
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.client import BURST, QPS
from kubectl_nodelife.sim.kubectl.filters import (
    DELETE,
    REFUSE,
    Decision,
    decide,
    is_daemon_set,
    skips_deleted,
)
from kubectl_nodelife.sim.kubectl.options import DrainOptions

DRAIN: Final = "drain"
LOOK_S: Final = 1.0
NODE_LOOKS: Final = 5
BLIND_S: Final = 30.0
"""So long the pods may stay unreadable."""

EVICTING, WAITING = "evicting", "waiting"
GONE, SKIPPED, FAILED = "gone", "skipped", "failed"


class Overtaken(Exception):
    """The cluster is no longer as the plan took it to be; nothing more is evicted."""


class PodTurn:
    """One pod that is to go. `told`: why an eviction was refused last."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.state = EVICTING
        self.told = ""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in (GONE, SKIPPED, FAILED)


class NodeDrain:
    """See the module. `tell` is told lines for people, `warn` warnings and errors."""

    def __init__(
        self,
        session: ActSession,
        node: Node,
        options: DrainOptions,
        tell: Callable[[str], None],
        warn: Callable[[str], None],
        chunk_size: int = 500,
    ) -> None:
        self.name = node.name
        self.pods: list[PodTurn] = []
        self._session = session
        self._node = node
        self._options = options
        self._tell = tell
        self._warn = warn
        self._chunk_size = chunk_size
        self._held = ""

    async def run(self) -> str:
        """Drain the node: "" where it is drained, else why it is not. Raises Overtaken."""
        try:
            chosen = await self._choose()
        except NodelifeError as error:
            return str(error)
        self.pods = [PodTurn(pod) for pod in chosen]
        carrier = self._carrier()
        try:
            if self._session.order.dry_run:
                await asyncio.gather(*(self._remove(carrier, turn) for turn in self.pods))
                return self._failed()
            return await self._remove_all(carrier)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await asyncio.shield(carrier.stop())

    def _carrier(self) -> Carrier:
        if self._session.order.dry_run:
            return ServerDryRun(self._session)
        bucket = TokenBucket(QPS, BURST)
        return LiveCarrier(self._session, bucket, self._note_held, self._note_answer)

    async def _remove_all(self, carrier: Carrier) -> str:
        seconds = self._options.timeout_ns / SECOND_NS or None
        try:
            if self._options.disable_eviction:
                for turn in self.pods:  # one after another; the first hard error ends the node
                    await self._remove(carrier, turn)
                    if turn.state == FAILED:
                        return self._failed()
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_until_gone())
                if not self._options.disable_eviction:
                    for turn in self.pods:
                        tasks.create_task(self._remove(carrier, turn))
        except TimeoutError:
            left = [f"{t.pod.namespace}/{t.pod.name}" for t in self.pods if not t.over]
            return f"global timeout reached: {seconds:g}s; still there: {', '.join(left)}"
        return self._failed()

    def _failed(self) -> str:
        failed = [turn for turn in self.pods if turn.state == FAILED]
        return "; ".join(f"pod {t.pod.namespace}/{t.pod.name}: {t.told}" for t in failed)

    # Which pods

    async def _choose(self) -> list[Pod]:
        """The pods that kubectl would evict. Raises Failed where its filters refuse one."""
        pods = await self._list()
        owners = await self._daemon_sets(pods)
        now_ns = self._session.now_ns()
        decided = [(pod, decide(pod, self._options, owners, now_ns)) for pod in pods]
        refused = _by_message(decided, REFUSE)
        if refused:
            raise Failed("; ".join(refused))
        for line in _by_message(decided, ""):
            self._warn(f"Warning: {line}")
        return [pod for pod, decision in decided if decision.verb == DELETE]

    async def _list(self) -> list[Pod]:
        """The node's pods as they are now. Raises Failed."""
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        if self._options.pod_selector:
            query["labelSelector"] = self._options.pod_selector
        if self._chunk_size:
            query["limit"] = str(self._chunk_size)
        found: list[Pod] = []
        while True:
            path = f"/api/v1/pods?{urlencode(query)}"
            answer = await self._session.reader.send(Request("GET", path, "", {}), "")
            if not answer.ok or answer.raw is None:
                raise Failed(f"its pods cannot be listed: {answer.message}")
            try:
                found += [_pod(item) for item in answer.raw.get("items") or ()]
            except InputError as error:
                raise Failed(f"a pod cannot be read, so that none is touched: {error}") from None
            token = (answer.raw.get("metadata") or {}).get("continue")
            if not token:
                return found
            query["continue"] = token

    async def _daemon_sets(self, pods: Sequence[Pod]) -> _FoundSets:
        """The DaemonSets that own some of the pods. Raises Failed where one cannot be read."""
        found: dict[tuple[str, str], KubeObject | None] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            key = (pod.namespace, owner.name) if owner is not None else ("", "")
            if owner is None or not is_daemon_set(owner) or key in found:
                continue
            answer = await self._session.reader.call(Get("DaemonSet", key))
            if not answer.ok and answer.code != NOT_FOUND:
                raise Failed(f"daemonset {'/'.join(key)} cannot be read: {answer.message}")
            found[key] = answer.obj
        return _FoundSets(found)

    # One pod

    async def _remove(self, carrier: Carrier, turn: PodTurn) -> None:
        pod, options = turn.pod, self._options
        verb = "deleting" if options.disable_eviction else "evicting"
        suffix = " (server dry run)" if self._session.order.dry_run else ""
        self._tell(f"{verb} pod {pod.namespace}/{pod.name}{suffix}")
        action = self._action(pod)
        while True:
            result = await carrier.carry_out(action, pod)
            if result.ok:
                turn.state = WAITING if result.changed else GONE
            elif result.code == NOT_FOUND:
                turn.state = GONE
            elif result.code == HELD and not self._is_spent():
                await asyncio.sleep(LOOK_S)
                continue
            else:
                turn.state, turn.told = FAILED, result.message
            return

    def _action(self, pod: Pod) -> EvictPod | DeletePod:
        kind = DeletePod if self._options.disable_eviction else EvictPod
        return kind(
            controller=DRAIN,
            because=f"drain of node {self.name}",
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            grace_period_seconds=self._options.requested_grace,
        )

    def _is_spent(self) -> bool:
        guard = self._session.guard
        return guard.caps.total is not None and guard.sent >= guard.caps.total

    def _note_held(self, action: object, because: str) -> None:
        if because != self._held:
            self._held = because
            self._warn(f"node {self.name}: held: {because}")

    def _note_answer(self, action: object, answer: Answer) -> None:
        assert isinstance(action, (EvictPod, DeletePod))
        self._held = ""
        if answer.code != TOO_MANY_REQUESTS:
            return
        for turn in self.pods:
            if turn.pod.uid == action.pod_uid and turn.told != answer.message:
                turn.told = answer.message
                name = f"{action.namespace}/{action.pod}"
                self._warn(f"pod {name}: refused, tried again every 5s: {answer.message}")

    # Waiting

    async def _look_until_gone(self) -> None:
        """Look every second. Raises Overtaken, Failed."""
        looks, blind_s = 0, 0.0
        while not all(turn.over for turn in self.pods):
            await asyncio.sleep(LOOK_S)
            looks += 1
            if looks % NODE_LOOKS == 0:
                await self._check_node()
            try:
                there = {pod.uid: pod for pod in await self._list()}
            except Failed:
                blind_s += LOOK_S
                if blind_s > BLIND_S:
                    raise
                continue
            blind_s = 0.0
            for turn in self.pods:
                if turn.state == WAITING:
                    self._see(turn, there.get(turn.pod.uid))

    def _see(self, turn: PodTurn, pod: Pod | None) -> None:
        name = f"pod/{turn.pod.name}"
        if pod is None:
            turn.state = GONE
            self._tell(f"{name} {'deleted' if self._options.disable_eviction else 'evicted'}")
        elif skips_deleted(pod, self._options.skip_wait_seconds, self._session.now_ns()):
            turn.state = SKIPPED
            self._warn(f"{name}: not waited for any longer (--skip-wait-for-delete-timeout)")

    async def _check_node(self) -> None:
        answer = await self._session.reader.call(Get("Node", ("", self.name)))
        node = answer.obj
        if answer.code == NOT_FOUND or (node is not None and node.uid != self._node.uid):
            raise Overtaken("the node is gone")
        if isinstance(node, Node) and not node.spec.unschedulable:
            raise Overtaken("somebody uncordoned it")


class _FoundSets:
    """`OwnerLookup` over the DaemonSets that were asked for."""

    def __init__(self, found: dict[tuple[str, str], KubeObject | None]) -> None:
        self._found = found

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        return self._found.get((namespace, name)) if kind == "DaemonSet" else None

    def was_read(self, kind: str) -> bool:
        return kind == "DaemonSet"


def _pod(item: dict[str, object]) -> Pod:
    pod = decode("Pod", item)
    assert isinstance(pod, Pod)
    return pod


def _by_message(decided: Sequence[tuple[Pod, Decision]], verb: str) -> list[str]:
    """kubectl's messages with the pods that each is about; `verb` "": all but refusals."""
    found: dict[str, list[str]] = {}
    for pod, decision in decided:
        wanted = decision.verb == verb if verb else decision.verb != REFUSE
        if wanted and decision.message and decision.gate != "mirror":
            found.setdefault(decision.message, []).append(f"{pod.namespace}/{pod.name}")
    return [f"{message}: {', '.join(pods)}" for message, pods in found.items()]
