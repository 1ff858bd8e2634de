"""Seeded small clusters:

the event-driven controllers and the naive model do the same, to the ms.
"""

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, assemble, parse_scenario
from tests import objects
from tests.naive.model import Case, Kubelet, Model, Pod
from tests.objects import NOT_READY, UNREACHABLE, condition, toleration
from tests.sim.documents import document

SEEDS = range(100)
Deed = tuple[int, str, str, Any]
_PREFIX = "node.kubernetes.io/"


def make_case(seed: int, *, leases: bool = True) -> Case:
    """A cluster of up to eight nodes in up to three zones, with faults at odd moments.

    Without `leases` the gate NodeLease is off, which v1.16 still has.
    """
    chance = random.Random(seed)
    zones = {
        f"n{i}": chance.choice("abc"[: chance.randint(1, 3)]) for i in range(chance.randint(2, 8))
    }
    pods = [
        Pod(f"{node}-{i}", node, chance.choice([0, 3, 7, 20, None]))
        for node in zones
        for i in range(2)
    ]
    duration = 90_000
    happenings = []
    for node in zones:
        at, alive = 0, True
        while (at := at + chance.randrange(3_013, 40_000)) < duration:
            if chance.random() < 0.25:
                what = chance.choice(["True", "False"])
            else:
                what, alive = ("stop", False) if alive else ("start", True)
            happenings.append(Kubelet(node, at - at % 10 + 7, what))
    return Case(
        minor=chance.choice([16, 29, 33, 36]) if leases else 16,
        zones=zones,
        pods=pods,
        happenings=happenings,
        period=1_000,
        grace=chance.choice([5_300, 8_500]),
        renew_every=chance.choice([1_000, 2_000, 2_500]),
        renew_phase=chance.choice([0, 300, 730]),
        report_every=chance.choice([7_000, 20_000] if leases else [2_000, 3_100, 7_000]),
        rate=chance.choice([0.2, 0.5, 1.0, 3.0]),
        secondary_rate=0.1,
        large=chance.choice([2, 5]),
        threshold=0.55,
        duration=duration,
        leases=leases,
    )


def scenario_of(case: Case) -> dict[str, Any]:
    """The case as a Scenario document."""
    return document(
        profile=f"v1.{case.minor}",
        flags={
            "node-monitor-period": f"{case.period}ms",
            "node-monitor-grace-period": f"{case.grace}ms",
            "node-eviction-rate": case.rate,
            "secondary-node-eviction-rate": case.secondary_rate,
            "large-cluster-size-threshold": case.large,
            "unhealthy-zone-threshold": case.threshold,
            **({} if case.leases else {"feature-gates": "NodeLease=false"}),
        },
        controllers=["node-lifecycle", "taint-eviction"],
        duration=f"{case.duration}ms",
        kubelet={
            "leaseRenewInterval": f"{case.renew_every}ms",
            "leaseRenewPhase": f"{case.renew_phase}ms",
            "nodeStatusReportInterval": f"{case.report_every}ms",
        },
        objects=[*map(_node, case.zones.items()), *map(_pod, case.pods)],
        events=[_event(h) for h in sorted(case.happenings, key=lambda h: (h.at_ms, h.node))],
    )


def _node(item: tuple[str, str]) -> dict[str, Any]:
    name, zone = item
    beta = "failure-domain.beta.kubernetes.io/zone"
    pressures = [condition(f"{what}Pressure", "False") for what in ("Memory", "Disk", "PID")]
    return objects.node(
        name, "True", "KubeletReady", conditions=pressures, labels={beta: zone}, uid=""
    )


def _pod(pod: Pod) -> dict[str, Any]:
    lost = [toleration(key, seconds=pod.seconds) for key in (NOT_READY, UNREACHABLE)]
    return objects.pod(pod.name, pod.node, ready=True, tolerations=lost, uid="")


def _event(h: Kubelet) -> dict[str, Any]:
    what: dict[str, Any] = {"nodes": [h.node]}
    if h.what in ("stop", "start"):
        what["heartbeats"] = h.what
    else:
        what["conditions"] = {"Ready": h.what}
    return {"at": f"{h.at_ms}ms", "kubelet": what}


def simulated(case: Case) -> list[Deed]:
    """What the real controllers did, in the model's form."""
    scenario = parse_scenario(json.dumps(scenario_of(case)).encode(), "case")
    setting = assemble(scenario)
    settings = make_settings(setting.profile, scenario.flags)
    controllers = make_controllers(settings, scenario.controllers, pass_drift_ns=PASS_DRIFT_NS)
    done = run(setting, controllers)
    seen = []
    for record in done.timeline.records(done.failures):
        told = _told(record.action, record.detail)
        if record.controller != "cluster" and told is not None:
            seen.append((round(record.at * 1000), record.action, record.object.name, told[0]))
    return seen


def _told(action: str, detail: dict[str, Any]) -> tuple[Any] | None:
    """What the model tells of such a record; None where it tells nothing."""
    if action in ("AddTaint", "RemoveTaint"):
        return (f"{detail['key'].removeprefix(_PREFIX)}:{detail['effect']}",)
    if action == "SetNodeCondition" and detail["type"] == "Ready":
        return (detail["status"],)
    if action == "SetZoneState":
        return (detail["to"],)
    return (None,) if action in ("MarkPodNotReady", "DeletePod") else None


def first_deletions(deeds: Iterable[Deed]) -> list[Deed]:
    """Without what is done to a pod after its first deletion: the model has no terminating pods."""
    kept, deleted = [], set()
    for deed in deeds:
        if deed[2] not in deleted:
            kept.append(deed)
        if deed[1] == "DeletePod":
            deleted.add(deed[2])
    return kept


@pytest.mark.parametrize("seed", SEEDS)
def test_same_deeds_at_the_same_ms(seed: int) -> None:
    case = make_case(seed)
    naive = sorted(first_deletions(Model(case).run()), key=str)
    assert naive, "a case in which nothing is done proves nothing"
    assert sorted(first_deletions(simulated(case)), key=str) == naive


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_same_deeds_where_only_status_posts_count(seed: int) -> None:
    case = make_case(seed, leases=False)
    naive = sorted(first_deletions(Model(case).run()), key=str)
    assert naive, "a case in which nothing is done proves nothing"
    assert sorted(first_deletions(simulated(case)), key=str) == naive
