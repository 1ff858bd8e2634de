"""What is said of a `WhatIf` in words: the question, and the outcome in one sentence.

All of it is a function of the document's facts. The worst comes first: drains that do not end, then
what goes down, then what has fewer pods; what gets better comes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, takewhile
from typing import Final, NamedTuple

from kubectl_nodelife.drain.results import DEGRADED, FULL
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import human_seconds
from kubectl_nodelife.outlook.what_if.acts import ENFORCED, Act
from kubectl_nodelife.outlook.what_if.document import (
    DrainFuture,
    OtherCourse,
    ServiceFuture,
    WorkloadFuture,
    ZoneFuture,
)

DRAINED: Final = "drained"
_NAMED: Final = 3
_SAME_S: Final = 5.0
_CIRCLE: Final = 3
"""So often a workload is down anew before it is said when it is back each time."""


def act_words(act: Act) -> str:
    """The act as a person says it: `zone a is lost for 20m (6 nodes)`."""
    names = first_names(act.targets or act.nodes, _NAMED)
    nodes = first_names(act.nodes, _NAMED)
    node = f"node {nodes} is" if len(act.nodes) == 1 else f"nodes {nodes} are"
    off = f"is taken off node{'s' * (len(act.nodes) != 1)} {nodes}"
    zones = f"zones {names}" if len(act.targets) > 1 else f"zone {names}"
    pods = f"pods {names} are" if len(act.targets) > 1 else f"pod {names} is"
    phrases = {
        "lose node": f"{node} lost",
        "lose nodes": f"{nodes} {'are' if len(act.nodes) != 1 else 'is'} lost",
        "lose zone": f"{zones} {'are' if len(act.targets) > 1 else 'is'} lost",
        "lose link node": f"the link of node{'s' * (len(act.nodes) != 1)} {nodes} is lost",
        "lose link": "the link of all nodes is lost",
        "lose link nodes": f"the link of {nodes} is lost",
        "lose link zone": f"the link of {zones} is lost",
        "taint": f"{node} tainted {names}",
        "untaint": f"{names} {off}",
        "cordon": f"{node} cordoned",
        "uncordon": f"{node} uncordoned",
        "drain": f"{node} drained",
        "delete node": f"{node} deleted",
        "delete pod": f"{pods} deleted",
        "set": _settings_words(act),
        ENFORCED: f"our daemon enforces ({', '.join(act.targets)}; its caps aside)",
        "file": f"the events of {names} happen",
    }
    lasts = f" for {human_seconds(act.for_seconds)}" if act.for_seconds is not None else ""
    at = f" at {human_seconds(act.at_seconds)}" if act.at_seconds else ""
    many = f" ({len(act.nodes)} nodes)" if len(act.nodes) > 1 else ""
    return f"{phrases[act.act]}{lasts}{at}{many}"


def _settings_words(act: Act) -> str:
    given = ", ".join(act.targets)
    stamps = ", also for pods that are there" if act.restamp else ""
    if not act.restart:
        return f"the settings are {given}{stamps}"
    return f"the controllers are started anew{f' with {given}' * bool(given)}{stamps}"


class OutcomeFacts(NamedTuple):
    """The parts of the document of which its sentence is made."""

    acts: Sequence[Act]
    drains: Sequence[DrainFuture]
    workloads: Sequence[WorkloadFuture]
    services: Sequence[ServiceFuture]
    zones: Sequence[ZoneFuture]


def outcome_words(facts: OutcomeFacts) -> str:
    """The outcome in one sentence, the worst first."""
    parts = chain(
        *(_drain_words(facts.drains), _loss_words(facts), _service_words(facts.services)),
        *(_pending_words(facts.workloads), _gain_words(facts.workloads), _zone_words(facts.zones)),
    )
    unharmed = "no workload loses a pod that serves" if facts.workloads else "no workload notices"
    return "; ".join(parts) or unharmed


def why_not_back(workloads: Sequence[WorkloadFuture]) -> list[str]:
    """Why pods are not where they should be at the end: a sentence for each of the first causes."""
    pods_of: dict[str, list[str]] = {}
    for workload in workloads:
        pending = workload.pending if len(workload.pending) > workload.without_acts.pending else ()
        for each in (*workload.held_up, *workload.not_started, *pending):
            pods_of.setdefault(each.why, []).append(each.pod)
    lines = [f"{first_names(pods, _NAMED)}: {why}" for why, pods in pods_of.items()]
    return lines[:_NAMED]


def _drain_words(drains: Sequence[DrainFuture]) -> Iterator[str]:
    """The drains that do not end, by how."""
    says = {
        "refused": ("{} is not drained", "{} are not drained"),
        "failed": ("the drain of {} fails", "the drains of {} fail"),
        "waits": ("the drain of {} does not end", "the drains of {} do not end"),
    }
    for ended, sentences in says.items():
        of_these = [drain for drain in drains if drain.ended == ended]
        if of_these:
            several = len(of_these) > 1
            names = first_names([drain.node for drain in of_these], _NAMED)
            first = f"{of_these[0].node}: " * several
            yield f"{sentences[several].format(names)}: {first}{of_these[0].because}"


def _loss_words(facts: OutcomeFacts) -> Iterator[str]:
    """What the acts do to workloads; what happens without them all the same is no news."""
    changed = [w for w in facts.workloads if not w.without_acts.is_same]
    down = [w for w in changed if w.outage == FULL]
    degraded = [w for w in changed if w.outage == DEGRADED]
    sets = any(act.is_setting for act in facts.acts)
    without = "with today's settings" if sets else "without it"
    if down:
        some = f"{len(down)} workloads are" if len(down) > 1 else f"{down[0].name} is"
        yield f"{some} down, {_how_long(down)}{_otherwise(down, without, sets)}"
    saved = [w for w in changed if w.outage != FULL and compared(w).down]
    if saved:
        some = f"{len(saved)} workloads stay" if len(saved) > 1 else f"{saved[0].name} stays"
        yield f"{some} up, which {'go' if len(saved) > 1 else 'goes'} down {without}"
    if degraded:
        some = f"{len(degraded)} workloads have" if len(degraded) > 1 else f"{degraded[0].name} has"
        stay = sum(w.back_seconds is None for w in degraded)
        yield f"{some} fewer pods {_while(len(degraded), stay)}"


def _how_long(down: Sequence[WorkloadFuture]) -> str:
    stay = sum(map(stays_down, down))
    if stay == len(down):
        return "to the end"
    if len(down) == 1:
        return down_words(down[0])
    longest = f"longest {human_seconds(max(w.at_zero_seconds for w in down))}"
    return f"{longest}, {stay} of them to the end" if stay else longest


def down_words(workload: WorkloadFuture) -> str:
    """For how long no pod of it serves, and how often that begins."""
    if stays_down(workload):
        return "to the end"
    times = len(zero_spans(workload))
    span = human_seconds(workload.at_zero_seconds)
    return f"{span} in all, {times} times" if times > 1 else span


def back_each_time(workload: WorkloadFuture) -> str:
    """After how long a pod of it serves again, where that begins anew and anew; "" elsewhere."""
    spans = zero_spans(workload)
    if len(spans) < _CIRCLE or workload.outage != FULL:
        return ""
    return f"{human_seconds(max(end - begin for begin, end in spans if end is not None))} each"


def _otherwise(down: Sequence[WorkloadFuture], without: str, sets: bool) -> str:
    """How the same workloads fare in the play that this one is compared with."""
    also = [w for w in down if compared(w).down]
    if not also:
        return f" ({without} {'none' if len(down) > 1 else 'not'})" if sets else ""
    longest_s = max(compared(w).at_zero_seconds for w in also)
    ours_s = max(w.at_zero_seconds for w in down)
    same = len(also) == len(down) and abs(longest_s - ours_s) <= _SAME_S
    some = f"{len(also)} of them, " * (1 < len(down) != len(also))
    longest = f"{'longest ' * (len(also) > 1)}{human_seconds(longest_s)}"
    return f" ({without} {some}{'as long' if same else longest})"


def _service_words(services: Sequence[ServiceFuture]) -> Iterator[str]:
    empty = [s for s in services if s.lowest == 0 and s.endpoints_before]
    if empty:
        some = f"{len(empty)} Services have" if len(empty) > 1 else f"Service {empty[0].name} has"
        stay = sum(s.to_seconds is None for s in empty)
        yield f"{some} no endpoints {_while(len(empty), stay)}"


def _while(count: int, stay: int) -> str:
    """How long something lasts that lasts to the end for some of so many."""
    if stay == count:
        return "to the end"
    return f"for a while, {stay} of them to the end" if stay else "for a while"


def _pending_words(workloads: Sequence[WorkloadFuture]) -> Iterator[str]:
    """Pods that are without a node at the end because of the acts, and those that are not."""
    more = [len(w.pending) - w.without_acts.pending for w in workloads]
    pending, placed = sum(n for n in more if n > 0), -sum(n for n in more if n < 0)
    if pending:
        yield f"{pending} pods find no place" if pending > 1 else "1 pod finds no place"
    if placed:
        still = sum(map(len, (w.pending for w in workloads))) - pending
        none = f", {still} still {'find' if still > 1 else 'finds'} none" * (still > 0)
        yield (f"{placed} pods find a node" if placed > 1 else "1 pod finds a node") + none


def gained(workload: WorkloadFuture) -> int:
    """How many more of its pods serve at the end than without the acts."""
    return max(0, workload.series[-1].serving - workload.without_acts.ready_at_end)


def gained_at(workload: WorkloadFuture) -> float:
    """Since when as many serve as at the end, seconds."""
    last = workload.series[-1].serving
    as_many = takewhile(lambda point: point.serving >= last, reversed(workload.series))
    return min(point.at for point in as_many)


def _gain_words(workloads: Sequence[WorkloadFuture]) -> Iterator[str]:
    gaining = [w for w in workloads if gained(w)]
    again = [w for w in gaining if not w.without_acts.ready_at_end]
    others = [w for w in gaining if w.without_acts.ready_at_end and gained_at(w)]
    keeping = [w for w in gaining if w.without_acts.ready_at_end and not gained_at(w)]
    if again:
        some = f"{len(again)} workloads are" if len(again) > 1 else f"{again[0].name} is"
        yield f"{some} up at the end, {_since(again)}, and not without it"
    if others:
        count = sum(map(gained, others))
        some = f"{len(others)} workloads have" if len(others) > 1 else f"{others[0].name} has"
        pods = f"{count} more pods" if count > 1 else "1 more pod"
        yield f"{some} {pods} than without it, {_since(others)}"
    if keeping:
        count = sum(map(gained, keeping))
        several = len(keeping) > 1
        some = f"{len(keeping)} workloads keep" if several else f"{keeping[0].name} keeps"
        lose = f"{'they lose' if several else 'it loses'} without it"
        yield f"{some} {count} pods that {lose}" if count > 1 else f"{some} 1 pod that {lose}"


def _since(workloads: Sequence[WorkloadFuture]) -> str:
    at = human_seconds(max(map(gained_at, workloads)))
    return f"the last from {at} on" if len(workloads) > 1 else f"from {at} on"


def _zone_words(zones: Sequence[ZoneFuture]) -> Iterator[str]:
    stopped = [z for z in zones if any(a.rate and not b.rate for a, b in pairwise(z.states))]
    if stopped:
        whose = [f"zone {z.name}" if z.name else "the zone without a name" for z in stopped]
        names = first_names(whose, _NAMED, " and ")
        pods, nodes = (sum(z.held_pods for z in stopped), sum(len(z.held_nodes) for z in stopped))
        held = f" ({counted(pods, 'pod')} held back on {counted(nodes, 'node')})" * (pods > 0)
        yield f"{names} {'stop' if len(stopped) > 1 else 'stops'} evicting{held}"


def compared(workload: WorkloadFuture) -> OtherCourse:
    """Its course in the play with which the future is compared: with today's settings where others
    are asked about, else without the acts."""
    return workload.with_settings_of_today or workload.without_acts


def stays_down(workload: WorkloadFuture) -> bool:
    """True if from some instant on no pod of it serves, to the end, and there was none such before.
    A workload that goes in a circle is not down to the end, whatever it is at the end."""
    spans = zero_spans(workload)
    return workload.outage == FULL and len(spans) == 1 and spans[0][1] is None


def zero_spans(workload: WorkloadFuture) -> list[tuple[float, float | None]]:
    """From when to when no pod of it serves; None: to the end."""
    spans: list[tuple[float, float | None]] = []
    for point in workload.series:
        is_open = bool(spans) and spans[-1][1] is None
        if point.serving == 0 and not is_open:
            spans.append((point.at, None))
        elif point.serving and is_open:
            spans[-1] = (spans[-1][0], point.at)
    return spans
