"""What sources tell, in few words: changes, Events, nodes and pods at seconds after noon."""

from typing import Any

from kubectl_nodelife.kube.field_managers import TAINTS, UNSCHEDULABLE, FieldManager, FieldManagers
from kubectl_nodelife.kube.meta import ObjectMeta, Time
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time, parse_time
from kubectl_nodelife.kube.workload import Event, EventSource, ObjectReference
from kubectl_nodelife.outlook.replay.replay_line import ReplayLine
from kubectl_nodelife.outlook.replay.timeline import ReplayFilter, ReplaySources, timeline
from tests import objects

NOON = int(parse_time("2026-11-21T12:00:00Z"))
UNREACHABLE = "node.kubernetes.io/unreachable"
ALL = ReplayFilter(NOON - 3600 * SECOND_NS, NOON + 3600 * SECOND_NS)


def at(seconds: float) -> int:
    """Ns since the epoch."""
    return NOON + round(seconds * 1000) * (SECOND_NS // 1000)


def change(
    number: int,
    seconds: float,
    action: str,
    obj: str,
    *,
    by: str = "node-lifecycle",
    outcome: str = "confirmed",
    settled: float | None = None,
    cause: int | None = None,
    node: str = "",
    **detail: Any,
) -> dict[str, Any]:
    """A contract's Change. `obj`: `node/a1` or `pod/NS/NAME`."""
    made: dict[str, Any] = {
        "id": number,
        "time": format_micro_time(at(seconds)),
        "controller": by,
        "action": action,
        "object": dict(reference(obj)),
        "detail": detail,
        "reason": f"because of {number}",
        "cause": cause,
        "mode": "dry-run",
        "outcome": outcome,
        "node": node,
    }
    if settled is not None:
        made["settledTime"] = format_micro_time(at(settled))
    return made


def reference(obj: str) -> dict[str, str]:
    """The object that the words mean."""
    kind, *inside, name = obj.split("/")
    kinds = {"node": "Node", "pod": "Pod", "rs": "ReplicaSet", "ds": "DaemonSet", "zone": "Zone"}
    found = {"kind": kinds[kind], "name": name}
    return found | ({"namespace": inside[0]} if inside else {})


def event(
    seconds: float,
    obj: str,
    reason: str,
    message: str = "",
    *,
    by: str = "node-controller",
    host: str = "",
    count: int = 1,
    first: float | None = None,
) -> Event:
    """An Event at a whole second, as they are."""
    about = reference(obj)
    when = Time(at(int(seconds)))
    return Event(
        metadata=ObjectMeta(name=f"{about['name']}.{seconds}.{reason}", creation_timestamp=when),
        involved_object=ObjectReference(
            kind=about["kind"], name=about["name"], namespace=about.get("namespace", "")
        ),
        reason=reason,
        message=message,
        source=EventSource(component=by, host=host),
        first_timestamp=when if first is None else Time(at(first)),
        last_timestamp=when,
        count=count,
    )


def node(
    name: str,
    *managers: FieldManager,
    ready: tuple[str, float] | None = None,
    taints: tuple[tuple[str, str, float | None], ...] = (),
    cordoned: bool = False,
) -> Node:
    """A node as it is now, and who wrote to it."""
    status, since = ready or (None, None)
    given = [objects.taint(key, effect, added=_time(added)) for key, effect, added in taints]
    written = {"managedFields": FieldManagers(managers).document()}
    about = {"taints": given, "unschedulable": cordoned, "metadata": written}
    return objects.typed(objects.node(name, status, since=_time(since), **about))


def _time(seconds: float | None) -> int | None:
    return None if seconds is None else at(seconds)


def wrote(manager: str, seconds: float, *fields: str) -> FieldManager:
    """An entry of managedFields; `fields`: taints, unschedulable."""
    names = {"taints": TAINTS, "unschedulable": UNSCHEDULABLE}
    return FieldManager(manager, "Update", at(seconds), frozenset(names[f] for f in fields))


def pod(name: str, on: str, *, deleted: float | None = None, by: str = "", owner: str = "") -> Pod:
    """A pod, perhaps Terminating with a grace of 30 seconds."""
    target = objects.condition("DisruptionTarget", "True", by, "as said")
    return objects.typed(
        objects.pod(
            name,
            on,
            namespace="shop",
            owner=objects.owner(owner, "o") if owner else None,
            conditions=[target] if by else [],
            deleted=None if deleted is None else at(deleted + 30),
            metadata={} if deleted is None else {"deletionGracePeriodSeconds": 30},
        )
    )


def told(wanted: ReplayFilter = ALL, **sources: Any) -> list[str]:
    """The timeline in words: `#2 12:00:05 node-lifecycle AddTaint Node/a1 after #1?`."""
    found = timeline(ReplaySources(**sources), wanted)
    numbers = {id(line): number for number, line in enumerate(found, 1)}
    return [_words(line, numbers) for line in found]


def _words(line: ReplayLine, numbers: dict[int, int]) -> str:
    after = ""
    if line.cause is not None and id(line.cause) in numbers:
        after = f" after #{numbers[id(line.cause)]}{'?' if line.inferred else ''}"
    clock = format_micro_time(line.time_ns)[11:19]
    who = f"{line.outcome} by {line.actor.name}" if line.outcome != "confirmed" else line.actor.name
    who = who.removeprefix(" by ")
    inside = f"{line.namespace}/" if line.namespace else ""
    number = numbers[id(line)]
    return f"#{number} {clock} {who}: {line.action} {line.kind}/{inside}{line.name}{after}"
