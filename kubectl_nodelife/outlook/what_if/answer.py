"""Makes the answer to a question: what the future has that the baseline has not.

Everything is read off the two plays from outside: levels of workloads and Services, records, and
the clusters at their ends. Only what differs is listed. Seconds count from the question, to the ms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from kubectl_nodelife.drain.results import DEGRADED, FULL, NONE, OUTAGE_ORDER
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.times import SECOND_NS, in_seconds
from kubectl_nodelife.kube.workload import ReplicationControllerSpec, ScaleSpec
from kubectl_nodelife.outlook.what_if.acts import Act
from kubectl_nodelife.outlook.what_if.document import (
    AtRisk,
    Both,
    CountRange,
    Difference,
    Horizon,
    NodeFuture,
    OtherCourse,
    PendingEvents,
    Point,
    ServiceFuture,
    Verdict,
    WhatIf,
    WhyChanged,
    WorkloadFuture,
    WriteSpan,
    WriteSpans,
)
from kubectl_nodelife.outlook.what_if.node_futures import node_futures
from kubectl_nodelife.outlook.what_if.play_reading import PlayReading, act_of_each, zone_futures
from kubectl_nodelife.outlook.what_if.question import Plays, given_flags
from kubectl_nodelife.outlook.what_if.sentences import (
    DRAINED,
    OutcomeFacts,
    act_words,
    outcome_words,
)
from kubectl_nodelife.outlook.what_if.service_levels import (
    SERVICE,
    Level,
    Outage,
    ServedObject,
    outage_of,
)
from kubectl_nodelife.sim.present import Present
from kubectl_nodelife.sim.reading import Courses, Happened, pod_loops
from kubectl_nodelife.sim.timeline import Record

ASSUMED: Final = (
    "no node is added, and nothing scales a workload",
    "containers start as fast as before, and their images are there",
)
MOST_DIFFERENCES: Final = 10_000
_NAMED: Final = 3
_SAME_NS: Final = 5 * SECOND_NS
"""Two plays that have the same within this time, a monitor period, do not differ by it."""

_WRITERS: Final = frozenset({"node-lifecycle", "taint-eviction"})


def make_answer(
    plays: Plays,
    acts: Sequence[Act],
    now: Settings,
    *,
    source: dict[str, Any],
    moment: dict[str, str],
    warnings: Sequence[str],
    ignores: Callable[[ServedObject], bool] = lambda served: False,
    why: Sequence[WhyChanged] = (),
) -> WhatIf:
    """The document. `now`: today's settings; `ignores`: which workloads are left out."""
    before = PlayReading(plays.baseline, now, ignores)
    without = before
    if plays.without_acts is not plays.baseline:
        without = PlayReading(plays.without_acts, now, ignores)
    after = PlayReading(plays.future, plays.settings, ignores)
    workloads = _workloads(without, before, after, plays)
    services = list(_services(without, after))
    zones = list(zone_futures(without, after, plays.present.setting.cluster))
    drains, elsewhere = after.drains(), (plays.fast.deleted, plays.slow.deleted)
    nodes = node_futures(before, after, acts, elsewhere)
    facts = OutcomeFacts(acts, drains, workloads, services, zones)
    differences = _differences(plays, acts)
    return WhatIf(
        source=source,
        moment=moment,
        profile=now.profile.name,
        settings={"baseline": _changed(now), "future": _changed(plays.settings)},
        acts=list(acts),
        horizon=_horizon(after),
        verdict=_verdict((without, before, after), facts),
        workloads=workloads,
        services=services,
        zones=zones,
        nodes=nodes,
        budgets=[b for key, b in sorted(after.budgets.items()) if b != before.budgets.get(key)],
        writes=_writes(plays, acts),
        already_down=["/".join(each) for each in sorted(before.played.levels.at_zero_before())],
        repeats=pod_loops(after.played.courses),
        drains=drains,
        ignored=len(after.ignored),
        why=list(why),
        differences=differences[:MOST_DIFFERENCES],
        truncated=max(0, len(differences) - MOST_DIFFERENCES),
        not_evaluated=list(plays.present.unread),
        assumed=[*plays.assumed, *_unknown_orders(nodes), *ASSUMED],
        warnings=[*warnings, *act_warnings(acts, before, plays.present)],
    )


def _writes(plays: Plays, acts: Sequence[Act]) -> list[WriteSpans]:
    if not any(act.is_setting for act in acts):
        return []
    was, now = _spans(plays.baseline.courses), _spans(plays.future.courses)
    return [
        WriteSpans(kind, was[kind], now[kind]) for kind in was if was[kind].count or now[kind].count
    ]


def _spans(courses: Courses) -> dict[str, WriteSpan]:
    """The writes of the controllers that a setting moves, by their kind."""
    nodes, pods = courses.nodes.values(), courses.pods
    written: dict[str, list[Happened[Any]]] = {
        "called Unknown": [done for node in nodes for done in node.unknown],
        "pods marked not ready": [done for pod in pods for done in pod.marked],
        "NoExecute taints": [done for node in nodes for done in node.tainted],
        "pods deleted": [done for pod in pods if (done := pod.deleted(*_WRITERS))],
    }
    spans = {}
    for kind, all_ in written.items():
        at = sorted(done.at for done in all_ if done.action.controller in _WRITERS)
        spans[kind] = WriteSpan(len(at), at[0], at[-1]) if at else WriteSpan()
    return spans


def _unknown_orders(nodes: Sequence[NodeFuture]) -> Iterator[str]:
    """Of nodes that wait together for the tokens of their zone any may be the first: their taints
    have a wider range than the pass that calls them Unknown.
    """
    together: dict[str, list[str]] = {}
    for node in nodes:
        unknown, tainted = (node.ranges.get(f"{each}Seconds") for each in ("unknown", "tainted"))
        if unknown and tainted and tainted.width_s > unknown.width_s + 1:
            together.setdefault(node.zone, []).append(node.name)
    for names in together.values():
        yield f"in any order: {first_names(names, _NAMED)} are tainted one after another"


def act_warnings(acts: Iterable[Act], before: PlayReading, present: Present) -> list[str]:
    """Sentences on acts that change nothing, and on those that end after the horizon."""
    acts, until_ns = list(acts), before.played.end_ns - before.played.start_ns
    lost = list(dict.fromkeys(name for act in acts for name in lost_already(act, before, present)))
    are, it = ("is", "it") if len(lost) == 1 else ("are", "them")
    names = first_names(lost, _NAMED)
    said = [f"{names} {are} lost already: losing {it} makes no difference"] if lost else []
    said += [
        f"--for of '{act.act}' ends after the horizon: give a longer --until"
        for act in acts
        if act.for_seconds is not None and act.at_seconds + act.for_seconds > until_ns / SECOND_NS
    ]
    return list(dict.fromkeys(said))


def lost_already(act: Act, before: PlayReading, present: Present) -> list[str]:
    """The nodes that the act loses at once and for good, and that are: silent, and not Ready."""
    if not act.act.startswith("lose") or act.at_seconds or act.for_seconds is not None:
        return []
    nodes, silent = present.setting.cluster.nodes, before.played.silent
    gone = silent.keys() - present.kubelets.keys()
    return [name for name in act.nodes if name in gone and not nodes[name].is_ready]


def _horizon(after: PlayReading) -> Horizon:
    played = after.played
    due: dict[str, list[float]] = {}
    for at_ns, whose in sorted(played.due):
        due.setdefault(whose, []).append(after.seconds(at_ns) or 0.0)
    return Horizon(
        until_seconds=after.seconds(played.end_ns) or 0.0,
        ended_seconds=after.seconds(played.ended_ns) or 0.0,
        ended="quiet" if played.is_quiet else "horizon",
        pending_events=[
            PendingEvents(action=whose, count=len(at), first_seconds=at[0])
            for whose, at in sorted(due.items(), key=lambda one: one[1])
        ],
    )


def _changed(settings: Settings) -> dict[str, str]:
    return {name: settings.flags[name] for name in given_flags(settings)}


def _workloads(
    without: PlayReading,
    before: PlayReading,
    after: PlayReading,
    plays: Plays,
) -> list[WorkloadFuture]:
    """Those that fare otherwise than without any act, or than in the baseline."""
    found = [
        _workload(workload, without, before, after, plays)
        for workload in {*after.workloads(), *before.workloads(), *without.workloads()}
        if any(_differs(workload, other, after) for other in dict.fromkeys((without, before)))
    ]
    found.sort(key=lambda w: (w.namespace, w.kind, w.name))
    return sorted(found, key=lambda w: (OUTAGE_ORDER[w.outage], -w.at_zero_seconds))


def _differs(workload: ServedObject, before: PlayReading, after: PlayReading) -> bool:
    was, now = before.courses[workload], after.courses[workload]
    return (
        before.outage(workload) != after.outage(workload)
        or _differ(before.played.levels.series(workload), after.played.levels.series(workload))
        or (was.evicted, was.collected) != (now.evicted, now.collected)
        or was.at_risk != now.at_risk
        or len(was.pending) != len(now.pending)
    )


def _differ(before: Sequence[Level], after: Sequence[Level]) -> bool:
    """True if two series have other levels, or have them at other times."""
    if len(before) != len(after):
        return True
    return any(
        was[1:] != now[1:] or abs(was.at_ns - now.at_ns) > _SAME_NS
        for was, now in zip(before, after, strict=True)
    )


def _serving(series: Sequence[Level]) -> list[Level]:
    """The series of how many serve, and nothing else."""
    levels = [series[0]._replace(ready=0, blind=0)]
    for level in series[1:]:
        if level.serving != levels[-1].serving:
            levels.append(level._replace(ready=0, blind=0))
    return levels


def _workload(
    workload: ServedObject,
    without: PlayReading,
    before: PlayReading,
    reading: PlayReading,
    plays: Plays,
) -> WorkloadFuture:
    outage = reading.outage(workload)
    levels = reading.played.levels
    unchanged = outage_of([levels.start.level(workload)], reading.played.end_ns)
    extremes = (plays.fast, plays.slow)
    low, high = (extreme.of_workload(workload, unchanged) for extreme in extremes)
    course = reading.courses[workload]
    evicted = [course.evicted, *(each.evicted.get(workload, 0) for each in extremes)]
    replicas, top_owner = _owner_of(workload, plays.present)
    return WorkloadFuture(
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        top_owner=top_owner,
        wanted=levels.pods_at_start(workload) if replicas is None else replicas,
        wanted_from="pods" if replicas is None else "spec",
        outage=_word(outage),
        ready_before=outage.before.ready,
        lowest_ready=outage.lowest_ready,
        lowest_serving=outage.lowest_serving,
        first_seconds=reading.seconds(outage.first_ns),
        back_seconds=reading.seconds(outage.back_ns),
        at_zero_seconds=in_seconds(outage.at_zero_ns),
        blind_seconds=in_seconds(outage.blind_ns),
        evicted_range=CountRange(fewest=min(evicted), most=max(evicted)),
        series=[
            Point(at=reading.seconds(level.at_ns) or 0.0, ready=level.ready, serving=level.serving)
            for level in levels.series(workload)
        ],
        low=low,
        high=high,
        without_acts=_other(without, workload, reading),
        with_settings_of_today=None if before is without else _other(before, workload, reading),
        **{**asdict(course), "at_risk": AtRisk(**course.at_risk)},
    )


def _other(reading: PlayReading, workload: ServedObject, future: PlayReading) -> OtherCourse:
    outage = reading.outage(workload)
    series, in_future = (each.played.levels.series(workload) for each in (reading, future))
    return OtherCourse(
        is_same=not _differ(_serving(series), _serving(in_future)),
        down=_word(outage) == FULL,
        at_zero_seconds=in_seconds(outage.at_zero_ns),
        ready_at_end=reading.played.levels.series(workload)[-1].serving,
        pending=len(reading.courses[workload].pending),
    )


def _owner_of(workload: ServedObject, present: Present) -> tuple[int | None, str]:
    """A workload's replicas, where its spec was read, and what owns it in the end, at t=0."""
    key, top = (workload.namespace, workload.name), f"{workload.kind}/{workload.name}"
    owner = present.setting.cluster.get(workload.kind, key)
    above = controller_of(owner.metadata) if owner is not None else None
    if above is not None:
        top = f"{above.kind}/{above.name}"
    spec = getattr(owner, "spec", None)
    if not isinstance(spec, (ScaleSpec, ReplicationControllerSpec)):
        return None, top
    return 1 if spec.replicas is None else spec.replicas, top


def _word(outage: Outage) -> str:
    if outage.before.serving == 0 or outage.lowest_serving >= outage.before.serving:
        return NONE
    return DEGRADED if outage.lowest_serving else FULL


def _services(before: PlayReading, after: PlayReading) -> Iterator[ServiceFuture]:
    for counted in sorted(c for c in {*after.outages, *before.outages} if c.kind == SERVICE):
        outage = after.outage(counted)
        if outage != before.outage(counted):
            yield ServiceFuture(
                namespace=counted.namespace,
                name=counted.name,
                endpoints_before=outage.before.ready,
                lowest=outage.lowest_ready,
                blind_seconds=in_seconds(outage.blind_ns),
                without_endpoints_seconds=in_seconds(outage.no_ready_ns),
                from_seconds=after.seconds(outage.none_from_ns),
                to_seconds=after.seconds(outage.none_to_ns),
            )


def _differences(plays: Plays, acts: Sequence[Act]) -> list[Difference]:
    """Records that only one play has: of the same words and object, in their order."""
    unmatched = Counter(_key(record) for record in plays.baseline.records)
    differences, causes = list[Difference](), act_of_each(plays.future, acts)
    for record, act in zip(plays.future.records, causes, strict=True):
        key = _key(record)
        if unmatched[key]:
            unmatched[key] -= 1
        else:
            differences.append(_difference("future", record, act))
    for record in reversed(plays.baseline.records):
        key = _key(record)
        if unmatched[key]:
            unmatched[key] -= 1
            differences.append(_difference("baseline", record, None))
    return sorted(differences, key=lambda difference: difference.at)


def _key(record: Record) -> object:
    detail = {name: value for name, value in record.detail.items() if name != "due"}
    obj = record.object
    return record.controller, record.action, obj.kind, obj.namespace, obj.name, repr(detail)


def _difference(play: str, record: Record, act: int | None) -> Difference:
    told = asdict(record)
    del told["cause"]
    return Difference(play=play, **told, act=act)


def _verdict(
    readings: tuple[PlayReading, PlayReading, PlayReading], facts: OutcomeFacts
) -> Verdict:
    """Of the plays without acts, of the baseline and of the future."""
    without, was, now = map(figures_of, readings)
    is_same = readings[0] is readings[1]
    outage = min((w.outage for w in facts.workloads), key=OUTAGE_ORDER.__getitem__, default=NONE)
    asked = " and ".join(map(act_words, facts.acts))
    both = {n: Both(was[n], now[n], None if is_same else without[n]) for n in now}
    return Verdict(text=f"what if {asked}: {outcome_words(facts)}", outage=outage, **both)


def figures_of(reading: PlayReading) -> dict[str, float]:
    """The figures of the verdict, of one play, by the names of Verdict's fields. What did not
    change in the play adds nothing to any of them."""
    outages = [o for c, o in reading.outages.items() if c.kind != SERVICE]
    were_up = [o for o in outages if o.before.serving]
    services = [o for c, o in reading.outages.items() if c.kind == SERVICE and o.before.ready]
    courses = reading.courses.values()
    return {
        "workloads_at_zero": sum(o.lowest_serving == 0 for o in were_up),
        "services_without_endpoints": sum(o.lowest_ready == 0 for o in services),
        "budgets_below": sum(budget.falls_below for budget in reading.budgets.values()),
        "pods_pending": sum(len(course.pending) for course in courses),
        "pods_stuck": sum(len(course.stuck) for course in courses),
        "pods_evicted": sum(course.evicted for course in courses),
        "pods_at_risk": sum(course.at_risk.total() for course in courses),
        "unavailable_pod_seconds": in_seconds(sum(o.missing_pod_ns for o in outages)),
        "blind_seconds": in_seconds(sum(o.blind_ns for o in outages)),
        "longest_at_zero_seconds": in_seconds(max((o.at_zero_ns for o in were_up), default=0)),
        "seconds_at_zero": in_seconds(sum(o.at_zero_ns for o in were_up)),
        "drains_unfinished": sum(drain.ended != DRAINED for drain in reading.drains()),
    }


def goes_down(served: ServedObject, before: PlayReading, after: PlayReading) -> bool:
    """True if nothing of it is left at some time of the one play, and of the other there is."""
    was, now = before.outage(served), after.outage(served)
    if served.kind == SERVICE:
        return now.before.ready > 0 and now.lowest_ready == 0 and was.lowest_ready > 0
    return now.before.serving > 0 and now.lowest_serving == 0 and was.lowest_serving > 0
