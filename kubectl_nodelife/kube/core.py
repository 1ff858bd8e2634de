"""Slices of Event and PriorityClass, which answers mention and no decision reads."""

from __future__ import annotations

from kubectl_nodelife.kube.meta import ApiStruct, Int64, KubeObject, MicroTime, Time


class ObjectReference(ApiStruct, frozen=True):
    """`core/v1.ObjectReference`."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    field_path: str = ""


class EventSource(ApiStruct, frozen=True):
    """`core/v1.EventSource`."""

    component: str = ""
    host: str = ""


class EventSeries(ApiStruct, frozen=True):
    """`core/v1.EventSeries`."""

    count: Int64 = 0
    last_observed_time: MicroTime | None = None


class Event(KubeObject, frozen=True):
    """`core/v1.Event`. `kube.load` brings events of `events.k8s.io` into this form."""

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    count: Int64 = 0
    series: EventSeries | None = None


class PriorityClass(KubeObject, frozen=True):
    """`scheduling.k8s.io/v1.PriorityClass`."""

    value: Int64 = 0
    global_default: bool = False
    preemption_policy: str | None = None
