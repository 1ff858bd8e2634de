"""An Event as the call that records it. Follows `makeEvent` (client-go/tools/record/event.go).

Correlation of events that repeat is not done here but where they are sent (`live/events.py`).
"""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.calls.call import Body, Conversation, Post, write
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import format_time

COMPONENTS: Final = {
    "node-lifecycle": "node-controller",
    "taint-eviction": "taint-eviction-controller",
    "daemonset": "daemonset-controller",
    "enforce": "kubectl-nodelife",
    "upgrade": "kubectl-nodelife",
}
"""Controller -> what its events name as their source."""


def record_event(action: RecordEvent, seen: KubeObject | None, now_ns: int) -> Conversation:
    """POST of the event."""
    body = event_body(action, now_ns)
    meta = body["metadata"]
    return (yield from write(action, Post("Event", (meta["namespace"], meta["name"]), body)))


def event_body(action: RecordEvent, now_ns: int) -> Body:
    """The Event object: a Node's goes to the namespace `default`."""
    component = COMPONENTS.get(action.controller, action.controller)
    involved: Body = {
        "kind": action.kind,
        "namespace": action.namespace,
        "name": action.name,
        "uid": action.object_uid,
        "apiVersion": kind_named(action.kind).api_version,
    }
    stamp = format_time(now_ns)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{action.name}.{now_ns:x}",
            "namespace": action.namespace or "default",
        },
        "involvedObject": {k: v for k, v in involved.items() if v},
        "reason": action.reason,
        "message": action.message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "type": action.type,
    }
