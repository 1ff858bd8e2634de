"""Reports a drain as conditions of the node, for whoever asks who took it out of service and why.

Follows KEP-5683 (kubernetes/enhancements#5683) and what #6309 proposes for kubectl drain: opt-in
and best effort. DrainInProgress is True from before the first eviction; Drained is True once all
pods are gone. Whoever ends the maintenance clears them. A write that fails is told, and the drain
goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubectl_nodelife.acts.carrier import make_carrier
from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.engine.actions import SetNodeConditions
from kubectl_nodelife.engine.calls import Get, Result
from kubectl_nodelife.engine.calls.call import CONFLICT
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Node, NodeCondition
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    ADMIN_REQUESTED,
    DRAIN_COMPLETED,
    DRAIN_IN_PROGRESS,
    DRAINED,
    FALSE,
    TRUE,
)

DRAIN_FAILED: Final = "DrainFailed"
DRAIN_INTERRUPTED: Final = "DrainInterrupted"
WRITES: Final = 2
"""So many writes a node."""

_TRIES: Final = 5
"""A kubelet may write the same status meanwhile."""


class DrainConditions:
    """See the module. `because`: a person's words; `controller`: in whose name it is written."""

    def __init__(
        self, session: ActSession, controller: str, because: str, warn: Callable[[str], None]
    ) -> None:
        self._session = session
        self._controller = controller
        self._because = because
        self._warn = warn

    async def begun(self, node: Node) -> None:
        """Its pods are evicted from now on."""
        await self._set(node, ADMIN_REQUESTED, in_progress=True, drained=False)

    async def drained(self, node: Node) -> None:
        """All pods that had to go are gone."""
        await self._set(node, DRAIN_COMPLETED, in_progress=False, drained=True)

    async def failed(self, node: Node, reason: str = DRAIN_FAILED) -> None:
        """It was given up; what was evicted stays evicted."""
        await self._set(node, reason, in_progress=False, drained=False)

    async def _set(self, node: Node, reason: str, *, in_progress: bool, drained: bool) -> None:
        result = Result(CONFLICT)
        carrier = make_carrier(self._session)
        for _ in range(_TRIES):
            answer = await self._session.reader.call(Get("Node", ("", node.name)))
            found = answer.obj
            if not isinstance(found, Node) or found.uid != node.uid:
                result = Result(answer.code, answer.message or "it is another node now")
                break
            told = {DRAIN_IN_PROGRESS: in_progress, DRAINED: drained}
            result = await carrier.carry_out(self._action(found, reason, told), found)
            if result.code != CONFLICT:
                break
        await carrier.stop()
        if not result.ok:
            self._warn(f"node {node.name}: its conditions could not be set: {result.message}")

    def _action(self, node: Node, reason: str, told: dict[str, bool]) -> SetNodeConditions:
        now = Time(self._session.now_ns() // SECOND_NS * SECOND_NS)
        conditions = []
        for type_, holds in told.items():
            status = TRUE if holds else FALSE
            before = node.status.condition(type_)
            same = before is not None and before.status == status
            since = before.last_transition_time if before is not None and same else now
            conditions.append(NodeCondition(type_, status, reason, self._because, now, since))
        return SetNodeConditions(
            controller=self._controller,
            because=self._because,
            node=node.name,
            node_uid=node.uid,
            conditions=tuple(conditions),
        )
