"""Waits between two waves until the pods that take the place of evicted ones are Ready.

As the plan's waves do: those that no node has room for, and those of owners none of whose evicted
pods was Ready, are not waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.engine.calls import Request
from kubectl_nodelife.engine.calls.call import collection_path
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.errors import InputError
from kubectl_nodelife.kube.meta import OwnerReference, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import FALSE, TRUE

LOOK_S: Final = 1.0
LOOKS_AT_LEAST: Final = 2
"""Owners take a moment to make successors."""
TOLD_AFTER: Final = 30


async def await_replacements(
    session: ActSession, evicted: Sequence[Pod], warn: Callable[[str], None]
) -> None:
    """Look every second until none is waited for; who is, is told after half a minute."""
    owners = {owner.uid for pod in evicted if _is(pod, "Ready", TRUE) and (owner := _owner(pod))}
    namespaces = sorted({pod.namespace for pod in evicted})
    looks = 0
    while owners:
        await asyncio.sleep(LOOK_S)
        looks += 1
        waited = [
            pod
            for namespace in namespaces
            for pod in await _pods(session, namespace)
            if (owner := _owner(pod)) and owner.uid in owners and _is_waited_for(pod)
        ]
        if not waited and looks >= LOOKS_AT_LEAST:
            return
        if looks == TOLD_AFTER:
            names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in waited)
            warn(f"held before the next wave: replacements are not Ready: {names}")


def _owner(pod: Pod) -> OwnerReference | None:
    return controller_of(pod.metadata)


def _is_waited_for(pod: Pod) -> bool:
    over = pod.status.phase in ("Succeeded", "Failed")
    if over or pod.metadata.deletion_timestamp is not None or _is(pod, "Ready", TRUE):
        return False
    return bool(pod.spec.node_name) or not _is(pod, "PodScheduled", FALSE)


def _is(pod: Pod, type_: str, status: str) -> bool:
    condition = pod.status.condition(type_)
    return condition is not None and condition.status == status


async def _pods(session: ActSession, namespace: str) -> list[Pod]:
    """The namespace's pods; none where they cannot be read now, for they are asked for again."""
    request = Request("GET", collection_path("Pod", namespace), "", {})
    answer = await session.reader.send(request, "PodList")
    found = []
    for item in (answer.raw or {}).get("items") or ():
        try:
            pod = decode("Pod", item)
        except InputError:
            continue
        assert isinstance(pod, Pod)
        found.append(pod)
    return found
