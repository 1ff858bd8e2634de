"""Compares a list of a kind with the objects shown so far, and makes events of the differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kubectl_nodelife.daemon.controller_host import same_version
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import Gone, Put, Unreadable
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.unreadable import NAMELESS
from kubectl_nodelife.live.loop import TimeSlices
from kubectl_nodelife.live.news import ListNews


class ShownObjects(Protocol):
    """The objects as the cluster has shown them so far."""

    def shown(self, kind: str, key: Key) -> KubeObject | None:
        """The object, or None."""

    def shown_keys(self, kind: str) -> Iterator[Key]:
        """The keys of all objects of a kind."""


Event = Put | Gone | Unreadable


async def events_of(listed: ListNews, before: ShownObjects, slices: TimeSlices) -> list[Event]:
    """The list as events. What is missing in it is gone; but where it holds an object without a
    name, that may be the one, and it is set aside instead.
    """
    kind = listed.kind
    events: list[Event] = []
    keys = {found.key for found in listed.unreadable}  # there all the same
    for obj in listed.objects:
        keys.add(obj.key)
        known = before.shown(kind, obj.key)
        if known is None or not same_version(known, obj):
            events.append(Put(kind, obj))
        await slices.pause()
    why = "it may be the one that the list does not name"
    for key in before.shown_keys(kind):
        if key not in keys:
            events.append(Unreadable(kind, key, why) if NAMELESS in keys else Gone(kind, key))
    return events
