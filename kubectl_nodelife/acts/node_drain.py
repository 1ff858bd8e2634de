"""Plays one node's turn of `kubectl drain` on a real cluster.

What kubectl does and prints is `sim/kubectl/conversation.py`; here its requests are sent. What
differs: an eviction carries the uid of the pod that was listed, so that a successor of the same
name is never evicted; all pods are looked at by one list a second instead of a GET each; a refusal
like the one before is not printed again; --timeout ends a try that waits for its turn as well; a
node that is uncordoned meanwhile is left alone (`Overtaken`), and one to which a pod of the same
name came back is not drained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from kubectl_nodelife.acts.session import ActSession, Carrier, make_carrier
from kubectl_nodelife.engine.actions import DeletePod, EvictPod, of_pod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Get, Request
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.engine.calls.pod_calls import ASK_AGAIN, NAMESPACE_TERMINATING, after_eviction
from kubectl_nodelife.engine.events import NOT_SENT
from kubectl_nodelife.errors import Failed, NodelifeError
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.unreadable import InputError
from kubectl_nodelife.sim.kubectl import conversation
from kubectl_nodelife.sim.kubectl.options import DrainOptions, asked_daemon_set

DRAIN: Final = "drain"
LOOK_S: Final = conversation.LOOK_NS / SECOND_NS
NODE_LOOKS: Final = 5
ENDLESS: Final = (
    "kubectl drain would now wait for these pods, which nobody deletes in a dry run, until "
    "--timeout; from v1.37 on it does not"
)
BLIND_S: Final = 30.0
"""So long the pods may stay unreadable."""


class Overtaken(Exception):
    """The cluster is no longer as the plan took it to be; nothing more is evicted."""


class SeenPod:
    """A pod that was listed, as the last look showed it. `gone`: that look did not show it."""

    goes_ns: int | None = None

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.gone = False

    @property
    def going(self) -> bool:
        """True if it is marked deleted."""
        return self.pod.metadata.deletion_timestamp is not None


Target = conversation.PodDeletion[SeenPod]


class NodeDrain:
    """Plays one node's turn of `kubectl drain` on a real cluster.

    `show` receives lines for people, `warn` warnings and errors.
    """

    def __init__(
        self,
        session: ActSession,
        node: Node,
        options: DrainOptions,
        show: Callable[[str], None],
        warn: Callable[[str], None],
        chunk_size: int = 500,
    ) -> None:
        self.name = node.name
        self._session = session
        self._node = node
        self._options = options
        self._show = show
        self._warn = warn
        self._chunk_size = chunk_size
        self._held = ""
        self._refusals: dict[str, str] = {}
        self._turn: conversation.NodeRun[SeenPod] = conversation.NodeRun(
            node.name, options, say=self._show_line, dry_run=session.order.dry_run
        )

    @property
    def pods(self) -> Sequence[Target]:
        """The pods that are to go."""
        return self._turn.targets

    def _show_line(self, line: str, is_error: bool) -> None:
        (self._warn if is_error else self._show)(line)

    async def run(self) -> str:
        """Drain the node: "" where it is drained, else why it is not. Raises Overtaken."""
        try:
            await self._choose()
        except NodelifeError as error:
            return str(error)
        if self._turn.refused:
            return self._error()
        carrier = make_carrier(self._session, self._note_held, self._note_answer)
        try:
            if self._session.order.dry_run:
                await asyncio.gather(*(self._remove(carrier, target) for target in self.pods))
                if self._turn.waits:
                    self._warn(ENDLESS)
            else:
                await self._remove_all(carrier)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await asyncio.shield(carrier.stop())
        return self._error()

    def _error(self) -> str:
        errors = self._turn.errors()
        if not errors:
            return ""
        if not self._session.order.dry_run:
            self._turn.say_left(errors)
        return conversation.aggregate(errors)

    async def _remove_all(self, carrier: Carrier) -> None:
        seconds = self._options.timeout_ns / SECOND_NS or None
        try:
            if self._options.disable_eviction:
                for target in self.pods:  # one after another; the first hard error ends the node
                    await self._remove(carrier, target)
                    if target.outcome == conversation.FAILED:
                        return
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_until_gone())
                if not self._options.disable_eviction:
                    for target in self.pods:
                        tasks.create_task(self._remove(carrier, target))
        except TimeoutError:
            for target in self.pods:
                self._turn.finish(target, conversation.TIMED_OUT)

    # Which pods

    async def _choose(self) -> None:
        """List the pods, and let kubectl's filters decide on them. Raises Failed."""
        pods = await self._list()
        owners = await self._daemon_sets(pods)
        self._turn.listed([SeenPod(pod) for pod in pods], owners, self._session.now_ns())

    async def _list(self) -> list[Pod]:
        """The node's pods as they are now. Raises Failed."""
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        if self._options.pod_selector:
            query["labelSelector"] = self._options.pod_selector
        if self._chunk_size:
            query["limit"] = str(self._chunk_size)
        pods: list[Pod] = []
        while True:
            path = f"/api/v1/pods?{urlencode(query)}"
            answer = await self._session.reader.send(Request("GET", path, "", {}), "PodList")
            if not answer.ok or answer.raw is None:
                raise Failed(f"its pods cannot be listed: {answer.message}")
            try:
                pods += [_pod(item) for item in answer.raw.get("items") or ()]
            except InputError as error:
                raise Failed(f"a pod cannot be read, so that none is touched: {error}") from None
            token = (answer.raw.get("metadata") or {}).get("continue")
            if not token:
                return pods
            query["continue"] = token

    async def _daemon_sets(self, pods: Sequence[Pod]) -> Cache:
        """The DaemonSets that own some of the pods. Raises Failed where one cannot be read."""
        found = Cache()
        found.kinds_read = frozenset({"DaemonSet"})
        names = ((pod.namespace, asked_daemon_set(pod, self._options)) for pod in pods)
        for key in dict.fromkeys(key for key in names if key[1]):
            answer = await self._session.reader.call(Get("DaemonSet", key))
            if not answer.ok and answer.code != NOT_FOUND:
                raise Failed(f"daemonset {'/'.join(key)} cannot be read: {answer.message}")
            found.set("DaemonSet", key, answer.obj)
        return found

    # One pod

    async def _remove(self, carrier: Carrier, target: Target) -> None:
        pod, turn, action = target.actor.pod, self._turn, self._action(target.actor.pod)
        if self._options.disable_eviction:
            self._show(f"deleting pod {pod.namespace}/{pod.name}{turn.suffix}")
        elif not turn.may_try(target, self._session.monotonic_ns()):
            return
        result = await carrier.carry_out(action, pod)
        while result.code == NOT_SENT and not self._is_spent():
            await asyncio.sleep(LOOK_S)
            result = await carrier.carry_out(action, pod)
        code, now_ns = result.code, self._session.monotonic_ns()
        if self._options.disable_eviction:
            turn.deleted(target, code, result.message, now_ns)
        elif turn.evicted(target, code, result.message, now_ns) == ASK_AGAIN:
            turn.finish(target, conversation.FAILED, result.message)  # a dry run asks once

    def _action(self, pod: Pod) -> EvictPod | DeletePod:
        kind = DeletePod if self._options.disable_eviction else EvictPod
        return kind(
            controller=DRAIN,
            because=f"drain of node {self.name}",
            **of_pod(pod),
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
        terminating = NAMESPACE_TERMINATING in answer.causes
        then = after_eviction(answer.code, terminating=terminating, going=False)
        if then != ASK_AGAIN or self._refusals.get(action.pod_uid) == answer.message:
            return
        self._refusals[action.pod_uid] = answer.message
        for target in self.pods:
            if target.actor.pod.uid == action.pod_uid:
                self._turn.say_refusal(target, answer.message, terminating=terminating)

    # Waiting

    async def _look_until_gone(self) -> None:
        """Look every second. Raises Overtaken, Failed."""
        looks, blind_s = 0, 0.0
        while self._turn.left:
            await asyncio.sleep(LOOK_S)
            looks += 1
            if looks % NODE_LOOKS == 0:
                await self._check_node()
            try:
                there = {(pod.namespace, pod.name): pod for pod in await self._list()}
            except Failed:
                blind_s += LOOK_S
                if blind_s > BLIND_S:
                    raise
                continue
            blind_s = 0.0
            for target in self.pods:
                if target.waits_ns is not None:
                    self._see(target, there.get(target.actor.pod.key))

    def _see(self, target: Target, pod: Pod | None) -> None:
        """`pod`: what the node has under that name now. Another one there, of a new uid, means that
        the node is not empty: kubectl says drained.
        """
        actor = target.actor
        if pod is not None and pod.uid != actor.pod.uid:
            actor.gone = True
            because = "it is gone, and another pod has come in its place"
            self._turn.finish(target, conversation.FAILED, because)
            return
        if pod is None:
            actor.gone = True
        else:
            actor.pod = pod
        self._turn.seen(target, self._session.monotonic_ns())

    async def _check_node(self) -> None:
        answer = await self._session.reader.call(Get("Node", ("", self.name)))
        node = answer.obj
        if answer.code == NOT_FOUND or (node is not None and node.uid != self._node.uid):
            raise Overtaken("the node is gone")
        if isinstance(node, Node) and not node.spec.unschedulable:
            raise Overtaken("another client uncordoned it")


def _pod(item: dict[str, object]) -> Pod:
    pod = decode("Pod", item)
    assert isinstance(pod, Pod)
    return pod
