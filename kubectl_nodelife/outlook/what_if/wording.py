"""The question and its outcome, in one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import (
    DEGRADED,
    FULL,
    ServiceFuture,
    WorkloadFuture,
    ZoneFuture,
)

_NAMED: Final = 3


def act_words(act: Act) -> str:
    """The act as a person says it: `zone a is lost for 20m (6 nodes)`."""
    names = first_names(act.targets or act.nodes, _NAMED)
    nodes = first_names(act.nodes, _NAMED)
    said = {
        "lose node": f"node {nodes} is lost",
        "lose nodes": f"{nodes} are lost",
        "lose zone": f"zone {names} is lost",
        "lose link node": f"the link of node {nodes} is lost",
        "lose link": "the link of all nodes is lost",
        "lose link nodes": f"the link of {nodes} is lost",
        "lose link zone": f"the link of zone {names} is lost",
        "taint": f"node {nodes} is tainted {names}",
        "untaint": f"{names} is taken off node {nodes}",
        "cordon": f"node {nodes} is cordoned",
        "uncordon": f"node {nodes} is uncordoned",
        "drain": f"node {nodes} is drained",
        "delete node": f"node {nodes} is deleted",
        "delete pod": f"pod {names} is deleted",
        "set": _settings_words(act),
        "file": f"the events of {names} happen",
    }
    lasts = f" for {_human(act.for_seconds)}" if act.for_seconds is not None else ""
    at = f" at {_human(act.at_seconds)}" if act.at_seconds else ""
    many = f" ({len(act.nodes)} nodes)" if len(act.nodes) > 1 else ""
    return f"{said[act.act]}{lasts}{at}{many}"


def _settings_words(act: Act) -> str:
    given = ", ".join(act.targets)
    stamps = ", also for pods that are there" if act.restamp else ""
    if not act.restart:
        return f"the settings are {given}{stamps}"
    return f"the controllers are started anew{f' with {given}' * bool(given)}{stamps}"


def outcome_words(
    workloads: Sequence[WorkloadFuture],
    services: Sequence[ServiceFuture],
    zones: Sequence[ZoneFuture],
) -> str:
    """The outcome in one sentence, the worst first."""
    parts = list(_parts(workloads, services, zones))
    if parts:
        return "; ".join(parts)
    if not workloads:
        return "no workload notices"
    return "no workload loses a pod that serves"


def _parts(
    workloads: Sequence[WorkloadFuture],
    services: Sequence[ServiceFuture],
    zones: Sequence[ZoneFuture],
) -> Iterator[str]:
    down = [w for w in workloads if w.outage == FULL]
    degraded = [w for w in workloads if w.outage == DEGRADED]
    if down:
        some = f"{len(down)} workloads are" if len(down) > 1 else f"{down[0].name} is"
        longest = f"{'longest ' * (len(down) > 1)}{_human(max(w.at_zero_seconds for w in down))}"
        yield f"{some} down, {'to the end' if any(map(stays_down, down)) else longest}"
    if degraded:
        some = f"{len(degraded)} workloads have" if len(degraded) > 1 else f"{degraded[0].name} has"
        yield f"{some} fewer pods for a while"
    empty = [s for s in services if s.lowest == 0 and s.endpoints_before]
    if empty:
        some = f"{len(empty)} Services have" if len(empty) > 1 else f"Service {empty[0].name} has"
        yield f"{some} no endpoints for a while"
    pending = sum(len(w.pending) for w in workloads)
    if pending:
        yield f"{pending} pods find no place" if pending > 1 else "1 pod finds no place"
    stopped = [z.name for z in zones if any(change.rate == 0 for change in z.states)]
    if stopped:
        verb = "stop" if len(stopped) > 1 else "stops"
        yield f"{first_names(stopped, _NAMED)} {verb} evicting"


def stays_down(workload: WorkloadFuture) -> bool:
    """True if no pod of it serves at the end."""
    return workload.outage == FULL and workload.series[-1].serving == 0


def _human(span_s: float) -> str:
    return human_duration(round(span_s * SECOND_NS))
