"""The plan of an upgrade against the run itself, played by the controller in the virtual cluster.

A plan names the same nodes in the same order at the same instants. The work takes what it is
expected to take.
"""

import json
import random
from collections import Counter
from typing import Any

import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.counts import NodeScope
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.actions import EvictPod, NodeMarkPatch, RecordEvent, UpdateRun
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.upgrade_plan import upgrade_plan_document
from kubectl_nodelife.sim.run import Run, run
from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, Setting, assemble, parse_scenario
from kubectl_nodelife.upgrade.answers import decider_for
from kubectl_nodelife.upgrade.findings import UpgradePlan
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from tests.deep import first_few
from tests.objects import budget
from tests.sim.documents import Json, document
from tests.upgrade.fleet_objects import fleet_objects

POLICY: Json = {
    "target": ["bootID=changed"],
    "lowWater": 0,
    "expectWork": "3m",
    "work": {"mode": "run", "command": "-", "rerunSafe": True},
}
WORK: Json = {"duration": "3m"}
REPLACE: Json = {"target": [], "work": {"mode": "replace"}}


CORDONED = ("b2", "c1")
CONTROL_PLANE = ("a1", "b1", "c1")


def nodes_otherwise(policy: Json) -> list[Json]:
    """The fleet; with two pools, persons' cordons or a control plane where the policy speaks of
    them.
    """
    objects = fleet_objects(True)
    for node in (obj for obj in objects if obj["kind"] == "Node"):
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        if "pools" in policy:
            labels["cloud.google.com/gke-nodepool"] = "green" if name[1] in "12" else "blue"
        if policy.get("includeCordoned") and name in CORDONED:
            node["spec"]["unschedulable"] = True
        if policy.get("includeControlPlane") and name in CONTROL_PLANE:
            labels["node-role.kubernetes.io/control-plane"] = ""
    return objects


def setting_of(policy: Json, *, at: str = "0s", **more: Any) -> Setting:
    spec = {key: value for key, value in policy.items() if key != "work"}
    mode = "replace" if policy["work"]["mode"] == "replace" else "reboot"
    act = {"selector": "pool=blue", "policy": spec, "work": {"mode": mode, **WORK}}
    events = [{"at": at, "upgrade": act}]
    more = {"objects": nodes_otherwise(policy), **more}
    content = json.dumps(document(events=events, duration="96h", **more)).encode()
    return assemble(parse_scenario(content, "fleet.yaml"))


def plan_of(setting: Setting, policy: Json) -> UpgradePlan:
    cluster = setting.cluster
    objects = [*cluster.nodes.values(), *cluster.pods.values()]
    objects += [obj for kind, store in cluster.objects.items() for obj in store.values()
                if kind != "Lease"]  # fmt: skip
    made = policy_from({**policy, "selector": "pool=blue"})
    settings = make_settings(setting.profile, {})
    return make_upgrade_plan(PlanSnapshot(objects, setting.start_ns), made, settings)


def run_of(setting: Setting) -> Run:
    settings = make_settings(setting.profile, {})
    names = setting.scenario.controllers
    controllers = make_controllers(settings, names, pass_drift_ns=PASS_DRIFT_NS)
    return run(
        setting, controllers, make_decider=decider_for(settings), until_upgraded=lambda done: None
    )


Told = list[tuple[str, str, float]]


def told_by(plan: UpgradePlan) -> Told:
    """(what, node, seconds since the start) of all claims and releases that the plan tells of."""
    cold = plan.estimate.cold if plan.estimate is not None else 0.0
    told = []
    for turn in plan.course.turns.values():
        for what in ("claimed", "released"):
            if what in turn.at:
                told.append((what, turn.name, round(cold + turn.at[what] / SECOND_NS, 3)))
    return sorted(told, key=lambda one: (one[2], one))


def done_by(came: Run) -> Told:
    """The same as the run did it, as its records have it."""
    refused = {outcome.action.id for outcome in came.failures}
    done, old = [], {}
    for at_ns, action in came.timeline.entries:
        if isinstance(action, NodeMarkPatch) and action.id not in refused:
            text = action.annotations.get("nodelife.dev/upgrade")
            before = json.loads(text).get("for") if text else None
            if before:
                old[action.node] = before
            name = old.get(action.node, action.node)
            words = {"ClaimNode": "claimed", "ReleaseNode": "released"}
            if action.word in words:
                seconds = round((at_ns - came.setting.start_ns) / SECOND_NS, 3)
                done.append((words[action.word], name, seconds))
    return sorted(done, key=lambda one: (one[2], one))


def writes_told(plan: UpgradePlan) -> Counter[tuple[str, str]]:
    """How often the plan's document tells of a write to a node: (node, resource). Evictions, which
    are told of the pods that a node has now, are left out.
    """
    nodes = upgrade_plan_document(plan, {})["nodes"]
    told = Counter((node["name"], write["resource"]) for node in nodes for write in node["writes"])
    return Counter({key: many for key, many in told.items() if key[1] != "pods/eviction"})


def writes_made(came: Run) -> Counter[tuple[str, str]]:
    """The same as the run made them: all that its leader writes but evictions, Lease, Events."""
    refused = {outcome.action.id for outcome in came.failures}
    made: Counter[tuple[str, str]] = Counter()
    for _, action in came.timeline.entries:
        if action.controller != "upgrade" or not action.writes or action.id in refused:
            continue
        if not isinstance(action, (EvictPod, UpdateRun, RecordEvent)):
            made[getattr(action, "node", ""), kind_named(action.target[0]).plural] += 1
    return made


def windows(minutes: int) -> list[str]:
    """One of so many minutes each other hour."""
    return [f"{hour:02}:00-{hour:02}:{minutes}" for hour in range(2, 24, 2)]


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"maxUnavailable": "10%"}, id="one-after-another"),
        pytest.param({"maxUnavailable": 3, "soak": "1m", "zones": 0}, id="three-at-once"),
        pytest.param({"maxUnavailable": "25%", "minAvailable": "80%", "canary": 2}, id="a-floor"),
        pytest.param({"maxUnavailable": 6, "maxParallel": 2, "zones": 0}, id="two-in-flight"),
        pytest.param({"maxUnavailable": 6, "maxPerZone": 1, "zones": 0}, id="one-of-a-zone"),
        pytest.param(
            {"maxUnavailable": 3, "canary": 3, "zones": 0, "window": windows(15)},
            id="some-in-each-window",
            marks=pytest.mark.deep("hours of windows"),
        ),
        pytest.param(
            {"maxUnavailable": "25%", "window": windows(40)},
            id="zones-by-windows",
            marks=pytest.mark.deep("hours of windows"),
        ),
        pytest.param({"maxUnavailable": 4, "canaryNodes": ["a2", "c3"]}, id="named-canaries"),
        pytest.param(
            {"maxUnavailable": 4, "zones": 0, "includeCordoned": True}, id="cordoned-nodes"
        ),
        pytest.param({"maxUnavailable": "50%", "pools": ["green", "blue"]}, id="two-pools"),
        pytest.param(
            {"maxUnavailable": "50%", "includeControlPlane": True}, id="the-control-plane-last"
        ),
        pytest.param({"maxUnavailable": "25%", **REPLACE}, id="newcomers"),
        pytest.param({"maxUnavailable": 4, "zones": 0, **REPLACE}, id="newcomers-of-all-zones"),
    ],
)
def test_the_plan_is_the_run(policy: Json) -> None:
    policy = {**POLICY, **policy}
    setting = setting_of(policy)
    planned, came = plan_of(setting, policy), run_of(setting)
    assert told_by(planned) == done_by(came)
    result: dict[str, Any] = came.upgrade or {}
    assert planned.estimate is not None and len(planned.done) == 12, planned.nodes
    assert len(result["done"]) == 12
    assert planned.estimate.low <= result["seconds"] <= planned.estimate.high
    assert planned.estimate is not None
    assert abs(result["seconds"] - planned.estimate.expected) < 0.01
    lowest = planned.course.lowest[NodeScope("pool", "blue")].available
    assert result["lowestAvailable"]["byPool"]["blue"] == lowest
    assert result["evictions"] == planned.course.evictions


def test_the_document_tells_of_all_that_the_run_writes() -> None:
    policy = {**POLICY, "maxUnavailable": "25%"}
    setting = setting_of(policy)
    told, made = writes_told(plan_of(setting, policy)), writes_made(run_of(setting))
    assert {kind for _, kind in made} == {"nodes", "pods"} and told == made


def random_fleet(seed: int) -> tuple[Json, Json]:
    """What `generate` takes, and a policy."""
    chance = random.Random(seed)
    policy = {
        "maxUnavailable": chance.choice(["10%", "25%", 2, 5]),
        "canary": chance.choice([1, 1, 2]),
        "zones": chance.choice([0, 1, 2]),
        "soak": chance.choice(["1m", "5m"]),
        "nodeSoak": "20s",
        "drain": {"force": True, "deleteEmptydirData": True},
        "window": chance.choice([[], [], ["Thu,Fri 01:00-03:00"]]),
        "drainTimeout": chance.choice(["4m", "15m"]),
    }
    generate = {
        "zones": chance.choice([2, 3]),
        "nodesPerZone": chance.choice([3, 6]),
        "podsPerNode": chance.choice([2, 8]),
        "daemonSets": chance.choice([0, 2]),
        "seed": seed,
    }
    return generate, {**POLICY, **policy}


def budgets(chance: random.Random, setting: Setting) -> list[Json]:
    """Budgets on some of the workloads."""
    apps = sorted({(p.namespace, (p.metadata.labels or {}).get("app", ""))
                   for p in setting.cluster.pods.values()})  # fmt: skip
    return [
        budget(
            f"b{number}",
            app,
            namespace=namespace,
            uid="",
            maxUnavailable=chance.choice([1, 1, "50%"]),
        )
        for number, (namespace, app) in enumerate(chance.sample(apps, min(4, len(apps))))
    ]


@pytest.mark.parametrize("seed", first_few(range(4), 2))
def test_the_plan_of_a_random_fleet_is_its_run(seed: int) -> None:
    generate, policy = random_fleet(seed)
    policy["selector"] = "kubernetes.io/os=linux"
    spec = {key: value for key, value in policy.items() if key != "work"}
    act = {"at": "0s", "upgrade": {"policy": spec, "selector": policy["selector"],
                                   "work": {"mode": "reboot", "duration": "3m"}}}  # fmt: skip
    # A plan does not know that its objects were generated: it takes the scheduler to go by scores.
    more = {"generate": generate, "events": [act], "duration": "96h", "scheduler": "HighestScore"}

    def assembled(objects: list[Json]) -> Setting:
        content = json.dumps(document(objects=objects, **more)).encode()
        return assemble(parse_scenario(content, "random.yaml"))

    setting = assembled(budgets(random.Random(seed), assembled([])))
    objects = [obj for obj in setting.objects if type(obj).__name__ != "Lease"]
    settings = make_settings(setting.profile, {})
    snapshot = PlanSnapshot(objects, setting.start_ns)  # what is not there does not exist
    planned = make_upgrade_plan(snapshot, policy_from(policy), settings)
    assert told_by(planned) == done_by(run_of(setting))


def test_an_upgrade_at_0s_runs() -> None:
    policy = {**POLICY, "maxUnavailable": 4, "zones": 0, "soak": "1s"}
    at_once, later = (run_of(setting_of(policy, at=at)) for at in ("0s", "1s"))
    assert at_once.upgrade is not None and later.upgrade is not None
    assert at_once.upgrade["done"] == later.upgrade["done"] and len(later.upgrade["done"]) == 12


def test_no_upgrade_is_dropped_in_silence() -> None:
    """Where nobody plays it, and where there is no run to be paused."""
    setting = setting_of({**POLICY, "maxUnavailable": 4})
    with pytest.raises(BadInput, match=r"events\[0\].*upgrades cannot be played here"):
        run(setting, [])
    content = document(
        objects=fleet_objects(True), events=[{"at": "0s", "upgradeCommand": "pause"}]
    )
    paused = assemble(parse_scenario(json.dumps(content).encode(), "pause.yaml"))
    told = [record for record in run_of(paused).timeline.records() if record.detail.get("reason") ==
            "NotFound"]  # fmt: skip
    assert [record.reason for record in told] == ["no run is there to pause"]
