"""The plan of an upgrade against the run itself, played by the controller in the virtual cluster.

What `plan` says beforehand of the time, the lowest point and the nodes must hold what the run then
takes. The work takes what it is expected to take.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.controllers.upgrade.counts import pool_scope
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.run import PASS_DRIFT_NS, run
from kubectl_nodelife.sim.scenario import Setting, assemble
from kubectl_nodelife.sim.scenario_document import parse_scenario
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from kubectl_nodelife.upgrade.plan_values import UpgradePlan
from kubectl_nodelife.upgrade.simulated import decider_for
from tests.sim.documents import Json, document
from tests.upgrade.fleet_objects import fleet_objects

POLICY: Json = {
    "target": ["bootID=changed"],
    "lowWater": 0,
    "expectWork": "3m",
    "work": {"mode": "run", "command": "-", "rerunSafe": True},
}
WORK: Json = {"duration": "3m", "down": "40s", "daemonPods": "10s"}
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


def setting_of(policy: Json) -> Setting:
    spec = {key: value for key, value in policy.items() if key != "work"}
    mode = "replace" if policy["work"]["mode"] == "replace" else "reboot"
    act = {"selector": "pool=blue", "policy": spec, "work": {"mode": mode, **WORK}}
    events = [{"at": "1s", "upgrade": act}]
    content = json.dumps(
        document(objects=nodes_otherwise(policy), events=events, duration="96h")
    ).encode()
    return assemble(parse_scenario(content, "fleet.yaml"))


def plan_of(setting: Setting, policy: Json) -> UpgradePlan:
    cluster = setting.cluster
    objects = [*cluster.nodes.values(), *cluster.pods.values()]
    objects += [obj for kind, store in cluster.objects.items() for obj in store.values()
                if kind != "Lease"]  # fmt: skip
    made = policy_from({**policy, "selector": "pool=blue"})
    settings = make_settings(setting.profile, {})
    return make_upgrade_plan(PlanSnapshot(objects, setting.start_ns), made, settings)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param({"maxUnavailable": "10%"}, id="one-after-another"),
        pytest.param({"maxUnavailable": 3, "soak": "1m", "zones": 0}, id="three-at-once"),
        pytest.param({"maxUnavailable": "25%", "minAvailable": "80%", "canary": 2}, id="a-floor"),
        pytest.param({"maxUnavailable": 6, "maxParallel": 2, "zones": 0}, id="two-in-flight"),
        pytest.param({"maxUnavailable": 6, "maxPerZone": 1, "zones": 0}, id="one-of-a-zone"),
        pytest.param(
            {"maxUnavailable": 3, "canary": 3, "zones": 0, "window": ["02:00-02:15"]},
            id="some-each-night",
        ),
        pytest.param({"maxUnavailable": "25%", "window": ["02:00-02:40"]}, id="zones-by-night"),
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
def test_the_plan_holds_what_the_run_takes(policy: Json) -> None:
    policy = {**POLICY, **policy}
    setting = setting_of(policy)
    planned = plan_of(setting, policy)
    settings = make_settings(setting.profile, {})
    controllers = make_controllers(
        settings, setting.scenario.controllers, pass_drift_ns=PASS_DRIFT_NS
    )
    decider = decider_for(settings)
    came = run(setting, controllers, make_decider=decider, until_upgraded=True)
    result: dict[str, Any] = came.upgrade or {}
    assert planned.estimate is not None and len(planned.done) == 12, planned.nodes
    assert len(result["done"]) == 12
    assert planned.estimate.low <= result["seconds"] <= planned.estimate.high
    lowest = planned.course.lowest[pool_scope("blue")].available
    assert result["lowestAvailable"]["byPool"]["blue"] == lowest
    expected = planned.estimate.cold + planned.course.end_ns / SECOND_NS
    assert abs(result["seconds"] - expected) < 0.05 * expected, "and the middle is a good guess"
