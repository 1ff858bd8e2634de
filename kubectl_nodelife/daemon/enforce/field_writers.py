"""Who made a write that was seen, by managedFields, where no Event and no name in it tells.

What the API server notes of an object's fields is exact where our own memory is not: it knows our
writes of before a restart, and a second writer that does the same as we a moment later. Times there
have whole seconds; of two writers in one second it tells nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.engine.actions import Action, AddTaints, SetNodeConditions
from kubectl_nodelife.engine.calls import Answer, Get
from kubectl_nodelife.engine.guard import Guard
from kubectl_nodelife.kube.field_managers import TAINTS, condition_field, manager_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.wellknown import CONTROLLER_MANAGERS

OURS, A_PERSON, A_MANAGER, NOT_TOLD = "ours", "a person", "a manager", ""
_OUR_PREFIX: Final = "kubectl-nodelife-"
_KUBELET: Final = "kubelet"

MADE: Final = ("f:metadata", "f:ownerReferences")
"""The fields that the maker of a pod owns."""

Path = tuple[str, ...]
ReadObject = Callable[[Get], Awaitable[Answer]]
Target = tuple[str, tuple[str, str]]


def writer_of(action: Action, node: Node) -> tuple[str, str]:
    """(which of the four, the field manager's name) of what was seen to be done to a node."""
    if isinstance(action, SetNodeConditions):
        fields = frozenset(condition_field(c.type) for c in action.conditions)
    elif isinstance(action, AddTaints):
        fields = frozenset((TAINTS,))
    else:
        return NOT_TOLD, ""
    entries = [e for e in node.managers.entries if e.fields & fields and e.name != _KUBELET]
    newest_ns = max((e.time_ns for e in entries), default=0)
    names = sorted({e.name for e in entries if e.time_ns == newest_ns})
    if len(names) != 1:
        return NOT_TOLD, " or ".join(names)
    return kind_of_writer(names[0]), names[0]


def kind_of_writer(name: str) -> str:
    """Which of the four a field manager is; another program is not told apart from a controller."""
    if name.startswith(_OUR_PREFIX):
        return OURS
    if name == "kubectl" or name.startswith("kubectl-"):
        return A_PERSON
    return A_MANAGER if name in CONTROLLER_MANAGERS else NOT_TOLD


class WriterLookup:
    """Names who wrote a pod, whose managedFields no watch keeps: by a read, into open breakers."""

    def __init__(self, read: ReadObject, guard: Guard, told: Callable[[], None]) -> None:
        """`told` is called once a breaker says more than it did."""
        self._read = read
        self._guard = guard
        self._told = told
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, rule: str, target: Target, path: Path) -> None:
        """Say in the breaker of that rule who owns the field."""
        task = asyncio.get_running_loop().create_task(self._look(rule, target, path))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, rule: str, target: Target, path: Path) -> None:
        answer = await self._read(Get(*target))
        meta = (answer.raw or {}).get("metadata") or {}
        if answer.ok and (name := manager_of(meta.get("managedFields"), path)):
            self._guard.add_to(rule, f"written by field manager {name}")
            log.warning("%s %s: written by field manager %s", target[0], "/".join(target[1]), name)
            self._told()
