"""Upgrades of recorded clusters: the plan says what the run comes to, and the invariants hold.

Of `tests/dumps/`, and of the folders in `NODELIFE_DUMPS`: as they were found, with sick nodes and
budgets that spare nobody, and healed. What a recording lacks is not there for either of the two.
"""

import json
import os
from pathlib import Path

import pytest

from kubectl_nodelife.controllers.upgrade.counts import CLUSTER
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.events import UpgradeEvent
from kubectl_nodelife.upgrade.findings import UpgradePlan
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from tests.sim.documents import Json
from tests.upgrade.fault_plan import Plan
from tests.upgrade.judges import mark_of
from tests.upgrade.simulation import POLICY, Fleet

MORE = os.environ.get("NODELIFE_DUMPS")
FOLDERS = [
    Path(__file__).parents[1] / "dumps" / "two-zones",
    *(sorted(path for path in Path(MORE).iterdir() if path.is_dir()) if MORE else ()),
]
ASKED = {
    "drain": {"deleteEmptydirData": True},
    "allowDarkZone": True,
    "drainTimeout": "15m",
    "includeControlPlane": True,
}


def recorded(folder: Path, *, healed: bool) -> list[Json]:
    """The objects of a recording, its nodes in the pool blue; healed: all of them Ready."""
    objects: list[Json] = []
    for path in sorted(folder.glob("*.json")):
        listed = json.loads(path.read_text())
        kind = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        objects += [{**kind, **item} for item in listed["items"]]
    for node in objects:
        if node["kind"] == "Node":
            node["metadata"].setdefault("labels", {})["pool"] = "blue"
    for obj in objects if healed else ():
        heal(obj)
    return objects


def heal(obj: Json) -> None:
    """Nothing is wrong with it any more."""
    kind, spec, status = obj["kind"], obj.get("spec", {}), obj.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    if kind == "Node":
        obj["spec"] = {k: v for k, v in spec.items() if k not in ("taints", "unschedulable")}
        for type_, condition in conditions.items():
            condition["status"] = "True" if type_ == "Ready" else "False"
    elif kind == "Pod" and status["phase"] == "Running":
        obj["metadata"].pop("deletionTimestamp", None)
        for condition in conditions.values():
            condition["status"] = "True"
    elif kind == "PodDisruptionBudget":
        status["currentHealthy"] = status["expectedPods"]
        status["disruptionsAllowed"] = status["expectedPods"] - status["desiredHealthy"]


def plan_of(fleet: Fleet) -> UpgradePlan:
    """The plan of the fleet's run, made of what its world held before the run."""
    setting = fleet.setting
    event = setting.scenario.events[0].what
    assert isinstance(event, UpgradeEvent)
    policy = policy_from({**POLICY, **ASKED, "selector": "pool=blue", "expectWork": "90s"})
    cluster = setting.cluster
    objects = [*cluster.nodes.values(), *cluster.pods.values()]
    objects += [
        o for kind, store in cluster.objects.items() if kind != "Lease" for o in store.values()
    ]
    snapshot = PlanSnapshot(objects, setting.start_ns)  # what is not there does not exist
    return make_upgrade_plan(snapshot, policy, make_settings(setting.profile, {}))


@pytest.mark.parametrize("healed", [False, True], ids=["as-found", "healed"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_plan_of_a_recorded_cluster_is_what_its_run_comes_to(
    folder: Path, healed: bool
) -> None:
    fleet = Fleet(Plan(policy=ASKED), recorded(folder, healed=healed))
    fleet.judges.persons |= {n.name for n in fleet.nodes.values() if n.spec.unschedulable}
    planned = plan_of(fleet)
    fleet.play()
    assert fleet.judges.faults == []
    assert fleet.phase() in ("Finished", "Aborted")
    course = fleet.course(fleet.timeline)
    assert fleet.watch is not None and course is not None
    came = fleet.watch.document(course)
    assert came["failed"] == came["held"] == []
    assert came["done"] == sorted(node.name for node in planned.done), planned.nodes
    held = [node.name for node in planned.nodes if node.decision == "hold"]
    assert (fleet.phase() == "Finished") == (not held), "what is held is waited for"
    assert fleet.judges.leftovers(fleet.nodes, released=True) == []
    assert not any(mark_of(node) for node in fleet.nodes.values())
    assert (planned.estimate is None) == (not came["done"])
    if planned.estimate is not None and not held:
        assert planned.estimate.low <= came["seconds"] <= planned.estimate.high
        assert came["lowestAvailable"]["all"] == planned.course.lowest[CLUSTER].available
