"""Holds the measures of `sweep` against a naive count of the same run's records: random clusters in
which machines are off for a while, links are cut, and kubelets are late.

Needless evictions and the most writes in a second are not counted here.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sweep import runs
from kubectl_nodelife.sweep.failures import FIXED, Flap, Law, MachineOutage, Model, Trace
from tests.claims.naive_play import Course, courses
from tests.claims.test_what_if import random_question
from tests.sweep.stand import base, plan

Document = dict[str, Any]
END = 3600.0


class Run(NamedTuple):
    """The objects, the records of the play, and what was measured."""

    items: list[Document]
    records: list[Document]
    measured: dict[str, float]


def random_failures(rng: random.Random, nodes: list[str]) -> list[Model]:
    """Machines that are off at one time or another, and links that are cut."""
    outages = []
    for name in rng.sample(nodes, rng.randint(1, len(nodes))):
        begins = rng.uniform(1, 2000)
        lasts = rng.choice([30, 90, 400, 900, 5000])
        span = round(begins * SECOND_NS), round((begins + lasts) * SECOND_NS)
        outages.append(MachineOutage(name, *span))
    models: list[Model] = [Trace(tuple(outages), by_name=True)]
    if rng.random() < 0.4:
        at, lasts = (Law(FIXED, rng.randint(*span) * SECOND_NS) for span in ((50, 900), (20, 600)))
        models.append(Flap(at, lasts))
    return models


def played(seed: int) -> Run:
    """The run of that seed."""
    rng = random.Random(f"sweep {seed}")
    items = random_question(seed).items
    nodes = sorted(o["metadata"]["name"] for o in items if o["kind"] == "Node")
    of = plan(base(items, ()), *random_failures(rng, nodes))
    found: list[Document] = []
    with pytest.MonkeyPatch.context() as patch:
        measured = runs.measured

        def noted(reading: Any, *more: Any) -> dict[str, float]:
            found.extend(msgspec.to_builtins(each) for each in reading.played.timeline.records())
            return measured(reading, *more)

        patch.setattr(runs, "measured", noted)
        told = runs.PointPlays(of, {}).measure(seed)
    return Run(items, found, told)


def spans_of(changes: Iterable[tuple[float, str, bool]]) -> dict[str, list[tuple[float, float]]]:
    """From when to when it is so of each name, by changes in their order."""
    begun: dict[str, float] = {}
    spans: dict[str, list[tuple[float, float]]] = {}
    for at, name, is_so in changes:
        if is_so:
            begun.setdefault(name, at)
        elif name in begun:
            spans.setdefault(name, []).append((begun.pop(name), at))
    for name, at in begun.items():
        spans.setdefault(name, []).append((at, END))
    return spans


def total(spans: dict[str, list[tuple[float, float]]]) -> float:
    return sum(to - since for each in spans.values() for since, to in each)


def not_ready(run: Run) -> Iterator[tuple[float, str, bool]]:
    for record in run.records:
        if record["action"] == "SetNodeCondition" and record["detail"]["type"] == "Ready":
            is_lost = record["detail"]["status"] != "True"
            yield record["at"], record["object"]["name"], is_lost


def off(run: Run) -> Iterator[tuple[float, str, bool]]:
    for record in run.records:
        reason = record["detail"]["reason"] if record["action"] == "RecordEvent" else ""
        if reason in ("MachineLost", "KubeletStarted"):
            yield record["at"], record["object"]["name"], reason == "MachineLost"


def homeless(run: Run) -> Iterator[tuple[float, str, bool]]:
    """Pods without a node."""
    for record in run.records:
        name, detail, act = record["object"]["name"], record["detail"], record["action"]
        reason = detail["reason"] if act == "RecordEvent" else ""
        if act == "CreatePod":
            yield record["at"], name, not detail.get("node")
        elif reason in ("Scheduled", "FailedScheduling"):
            yield record["at"], name, reason == "FailedScheduling"
        elif act in ("DeletePod", "EvictPod") and not record.get("error"):
            yield record["at"], name, False


def naive(run: Run) -> dict[str, float]:
    """The measures, counted anew, to the minute's thousandth."""
    lost, machines_off = spans_of(not_ready(run)), spans_of(off(run))
    needless = total(lost) - sum(
        max(0.0, min(to, end) - max(since, begin))
        for name, spans in lost.items()
        for since, to in spans
        for begin, end in machines_off.get(name, ())
    )
    serve, shown = courses(run.items, run.records), courses(run.items, run.records, in_api=True)
    were_up = [course for course in serve.values() if course.first]
    budgets = {
        o["metadata"]["name"]: o["spec"]["minAvailable"]
        for o in run.items
        if o["kind"] == "PodDisruptionBudget"
    }
    acts = [record["action"] for record in run.records if not record.get("error")]
    deleted = [r for r in run.records if r["action"] == "DeletePod" and not r.get("error")]
    pods = sum(o["kind"] == "Pod" for o in run.items)
    brakes = (
        (r["at"], r["detail"]["zone"], r["detail"]["rate"] == 0)
        for r in run.records
        if r["action"] == "SetZoneState"
    )
    seconds = {
        "nodeMinutesLost": total(lost),
        "needlessNodeMinutes": needless,
        "unavailablePodMinutes": sum(map(missing, serve.values())),
        "atZeroMinutes": sum(b - a for c in were_up for a, b in c.zero_spans(END)),
        "belowBudgetMinutes": sum(below(shown[app], least) for app, least in budgets.items()),
        "pendingPodMinutes": total(spans_of(homeless(run))),
        "brakeMinutes": total(spans_of(brakes)),
    }
    return {
        **{name: value / 60 for name, value in seconds.items()},
        "evictions": sum(r["controller"] == "taint-eviction" for r in deleted),
        "workloadsAtZero": sum(course.goes_down() for course in were_up),
        "movesPerPod": acts.count("CreatePod") / pods,
    }


def lasting(course: Course) -> Iterator[tuple[int, float]]:
    """(how many, for how long)"""
    ends = [*(at for at, _ in course.points[1:]), END]
    for (at, count), until in zip(course.points, ends, strict=True):
        yield count, until - at


def missing(course: Course) -> float:
    return sum(max(0, course.first - count) * span for count, span in lasting(course))


def below(course: Course, least: int) -> float:
    return sum(span for count, span in lasting(course) if count < least)


def lies_of_measures(run: Run) -> list[str]:
    """What is measured and is not so; figures are rounded to a thousandth. A budget is measured by
    its status, which follows its pods 0.03 s later: it may be that far behind at the start of a run
    and at its end."""
    budgets = sum(o["kind"] == "PodDisruptionBudget" for o in run.items)
    slack = {"belowBudgetMinutes": 2 * 0.03 / 60 * budgets}
    return [
        f"{name}: {run.measured[name]}, and {value}"
        for name, value in naive(run).items()
        if abs(run.measured[name] - value) > 0.002 + slack.get(name, 0)
    ]


def test_measures_are_so(seeds: range) -> None:
    for seed in range(2 * seeds.start, 2 * seeds.stop):
        run = played(seed)
        assert lies_of_measures(run) == [], seed


def test_a_wrong_measure_is_caught() -> None:
    run = played(0)
    for name in naive(run):
        false = {**run.measured, name: run.measured[name] + 0.1}
        assert lies_of_measures(run._replace(measured=false)), name
