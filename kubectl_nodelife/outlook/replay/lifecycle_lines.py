"""Makes lines of EvictionRequests, Evictions and PodGroups: who asked, who answered, what came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubectl_nodelife.kube.lifecycle import Eviction, EvictionRequest, PodGroup
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.wellknown import TRUE
from kubectl_nodelife.kube.workload import Condition
from kubectl_nodelife.outlook.replay.replay_line import CONTROLLER, OBJECT, OTHER, Actor, ReplayLine

ASKED: Final = "eviction-requested"
"""The family of requests for a pod's eviction, and of responders that begin with it."""

_OVER: Final = "eviction-over"
_CONTROLLER: Final = Actor(CONTROLLER, "evictionrequest")
_SCHEDULER: Final = Actor(CONTROLLER, "scheduler")


def of_lifecycle(obj: KubeObject) -> Iterator[ReplayLine]:
    """The lines of one object; none of another kind."""
    if isinstance(obj, (EvictionRequest, Eviction)):
        about = ("Pod", obj.spec.target.pod.name) if obj.spec.target.pod else ("", "")
    if isinstance(obj, EvictionRequest):
        who, made = Actor(OTHER, obj.spec.requester), obj.metadata.creation_timestamp
        name = f"EvictionRequest {obj.name}"
        yield from _line(obj, about, made, who, "RequestEviction", (ASKED, obj.name), name)
        yield from _conditions(obj, about, obj.status.conditions, _CONTROLLER)
    elif isinstance(obj, Eviction):
        for status in obj.status.responders:
            who = Actor(OTHER, status.name)
            begun, done = (ASKED, obj.name, status.name), (_OVER, obj.name, status.name)
            words = status.message
            yield from _line(obj, about, status.start_time, who, "BeginEviction", begun, "", words)
            yield from _line(obj, about, status.completion_time, who, "CompleteEviction", done)
    elif isinstance(obj, PodGroup):
        yield from _conditions(obj, ("PodGroup", obj.name), obj.status.conditions, _SCHEDULER)


def _conditions(
    obj: KubeObject, about: tuple[str, str], conditions: Iterable[Condition], who: Actor
) -> Iterator[ReplayLine]:
    """Those that are True: none of these types is True for long before something came of it."""
    for condition in conditions:
        if condition.status == TRUE:
            since, words = condition.last_transition_time, condition.message
            family = (_OVER, obj.name, condition.type)
            detail = f"{condition.type}=True ({condition.reason})"
            yield from _line(obj, about, since, who, "SetCondition", family, detail, words)


def _line(
    obj: KubeObject,
    about: tuple[str, str],
    time: Time | None,
    actor: Actor,
    action: str,
    identity: tuple[str, ...],
    detail: str = "",
    why: str = "",
) -> Iterator[ReplayLine]:
    if time is not None:
        yield ReplayLine(
            time_ns=int(time),
            actor=actor,
            action=action,
            kind=about[0],
            namespace=obj.namespace,
            name=about[1],
            detail=detail,
            why=why,
            seen=(OBJECT,),
            identity=identity,
        )
