"""The plan of small clusters: decisions, order, estimate, findings, the document and the page."""

from itertools import pairwise
from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube import codec
from kubectl_nodelife.outlook.upgrade_plan import upgrade_plan_document
from kubectl_nodelife.report.formats import render
from kubectl_nodelife.report.upgrade_plan import headline, html_page, upgrade_plan_page
from kubectl_nodelife.upgrade.findings import UpgradePlan
from kubectl_nodelife.upgrade.plan import make_upgrade_plan
from tests.drain.build import (
    Json,
    budget,
    namespace,
    node,
    pod,
    replica_set,
    snapshot,
    stateful_set,
)

SETTINGS = make_settings("v1.36")
NAMES = [f"{zone}{number}" for zone in "abc" for number in (1, 2, 3, 4)]


def blue(*names: str, **more: Any) -> list[Json]:
    labels = {"metadata": {"labels": {"pool": "blue"}}}
    return [obj for name in names for obj in node(name, zone=name[0], **{**labels, **more})]


def plan(*objects: Json | list[Json], **policy: Any) -> UpgradePlan:
    made = snapshot(namespace(), namespace("nodelife"), *objects)
    return make_upgrade_plan(made, policy_from({"selector": "pool=blue", **policy}), SETTINGS)


def reasons(of: UpgradePlan) -> dict[str, str]:
    return {node.name: node.reason for node in of.nodes if node.reason}


def order(of: UpgradePlan) -> list[list[str]]:
    return [step.names for step in of.course.steps]


def test_twelve_nodes_go_zone_by_zone_after_a_canary() -> None:
    found = plan(blue(*NAMES))
    assert order(found) == [
        ["a1"], ["a2", "a3", "a4"], ["b1", "b2", "b3", "b4"], ["c1", "c2", "c3", "c4"],
    ]  # fmt: skip
    assert [step.soak_ns // 10**9 for step in found.course.steps] == [300, 300, 300, 0]
    assert headline(found).startswith("12 of 12 nodes are done in 4 steps, in about ")
    assert not found.undone and not found.refusals


def test_nodes_without_a_pool_are_a_pool_and_their_steps_end() -> None:
    nodes = [obj for name in ("a1", "a2", "a3") for obj in node(name)]
    found = plan(nodes, selector="kubernetes.io/hostname")
    assert [step.pool for step in found.course.steps] == ["", ""]
    assert all(step.end_ns for step in found.course.steps)


def test_at_most_max_unavailable_are_out_at_once_whoever_took_them() -> None:
    sick = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    found = plan(blue(*NAMES, "c6", "c7", "c8"), blue("c5", **sick), maxUnavailable=2)
    lowest = {s.kind: low.available for s, low in found.course.lowest.items() if s.kind == "pool"}
    assert lowest == {"pool": 14}, "15 of 16 are available, one more may go"
    assert reasons(found) == {"c5": "unhealthy before the run: Ready is Unknown"}
    assert [node.name for node in found.undone] == ["c5"], "though nothing is against its drain"


def test_what_cannot_be_drained_is_skipped_with_what_unblocks_it() -> None:
    db = budget("db", "db", healthy=1, desired=1, expected=1, minAvailable=1)
    found = plan(blue(*NAMES), stateful_set("db", "c4"), db)
    (stuck,) = found.undone
    assert (stuck.name, stuck.decision) == ("c4", "skip")
    assert "it can never spare one" in stuck.reason
    assert "--replicas=2" in stuck.remedies[0].change
    assert len(found.done) == 11


def test_what_is_not_known_is_not_called_nothing_to_do() -> None:
    """Where budgets were not read nobody knows what holds a drain, as `drain-plan` says too."""
    pods = replica_set("web", "a1", "a2", "a3")
    made = snapshot(namespace("nodelife"), blue("a1", "a2", "a3"), pods, read={"Node", "Pod"})
    found = make_upgrade_plan(made, policy_from({"selector": "pool=blue"}), SETTINGS)
    assert headline(found).startswith("0 of 3 nodes: whether 3 nodes can be drained is not known: ")
    assert "--accept-unknown" in headline(found) and "PodDisruptionBudget" in headline(found)


def test_two_nodes_of_one_budget_do_not_drain_at_once() -> None:
    web = budget("web", "web", healthy=4, desired=3, expected=4, minAvailable=3)
    slow = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    pods = replica_set("web", "a1", "a2", "a3", "a4", **slow)
    found = plan(blue(*NAMES), pods, web, maxUnavailable="50%", canary=4)
    turns = sorted((found.course.turns[f"a{i}"] for i in (1, 2, 3, 4)), key=lambda t: t.claimed_ns)
    for one, next_ in pairwise(turns):
        assert next_.claimed_ns >= one.at["drained"]


def test_two_nodes_of_one_budget_are_not_claimed_at_the_same_instant() -> None:
    web = budget("web", "web", healthy=3, desired=2, expected=3, minAvailable=2)
    pods = replica_set("web", "a1", "b1", "c1")
    found = plan(blue(*NAMES), pods, web, zones=0, canary=3, maxUnavailable="50%")
    turns = sorted((found.course.turns[n] for n in ("a1", "b1", "c1")), key=lambda t: t.claimed_ns)
    for one, next_ in pairwise(turns):
        assert next_.claimed_ns >= one.at["drained"]
    assert order(found)[0] == ["a2", "b2", "c2"], "what costs least goes first"


def test_14_room_is_kept_free_whatever_max_unavailable_says() -> None:
    def fleet(cpu: str, pod: str, each: int) -> UpgradePlan:
        names = [f"a{i}" for i in range(10)]
        containers = [{"name": "c", "resources": {"requests": {"cpu": pod}}}]
        places = [name for name in names for _ in range(each)]
        pods = replica_set("web", *places, spec={"containers": containers})
        made = blue(*names, status={"allocatable": {"cpu": cpu}})
        return plan(made, pods, maxUnavailable=5, zones=0)

    def lowest(of: UpgradePlan) -> int:
        return next(low.available for s, low in of.course.lowest.items() if s.kind == "pool")

    small = fleet("4", "100m", 32)
    assert lowest(small) == 9, "4 of 36 stay free without one, 0 of 32 without two"
    assert lowest(fleet("8", "100m", 32)) == 6, "with room enough the zone gives four"
    large = fleet("4", "3", 1)
    assert not large.course.turns
    assert "finds no node" in reasons(large)["a0"]


def test_pods_move_once_in_a_large_pool_too() -> None:
    names = [f"{zone}{i:02}" for zone in "abc" for i in range(30)]
    pods = replica_set("web", *names, *names)
    course = plan(blue(*names), pods, maxUnavailable="10%").course
    assert course.moves[0] < 1.05, "the taint `outdated` sends them to nodes that are done"


def test_13_a_zone_of_one_node_is_refused() -> None:
    found = plan(blue("a1", "b1", "b2", "b3"))
    refusal = "zone a: no Ready node of its zone's 1 would be left (--allow-dark-zone)"
    assert found.refusals == [refusal] and not found.course.turns
    assert not plan(blue("a1", "b1", "b2", "b3"), allowDarkZone=True).undone


def test_13_a_zone_with_another_node_down_holds_the_rest() -> None:
    sick = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    found = plan(blue("a1"), blue("a2", **sick), blue("b1", "b2", "b3"), maxUnavailable=3)
    assert "no Ready node of its zone's 2 would be left" in reasons(found)["a1"]


def test_a_floor_that_leaves_none_is_refused() -> None:
    found = plan(blue("a1", "a2", "a3"), minAvailable="80%")
    assert found.refusals == ["3 of 3 must be available in pool blue"]
    assert headline(found) == "No run is started: 3 of 3 must be available in pool blue"


def test_windows_hold_claims_until_they_open() -> None:
    # The cluster's moment is 2026-01-01 01:00 UTC, a Thursday.
    found = plan(blue("a1", "a2", "a3"), window=["Thu 02:00-03:00"], work={"mode": "nothing"})
    assert found.estimate is not None
    after_the_start = found.estimate.cold + found.course.turns["a1"].claimed_ns / 10**9
    assert after_the_start == pytest.approx(3600, abs=1)
    short = plan(blue("a1", "a2", "a3"), window=["Thu 02:00-02:05"], expectWork="10m",
                 work={"mode": "run", "command": "x"})  # fmt: skip
    assert any(f.check == "windows" and f.severity == "refused" for f in short.findings)
    with pytest.raises(BadInput, match="--window"):
        plan(blue("a1"), window=["nightly"])


def test_nodes_at_the_target_are_there_already() -> None:
    there = {"status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}
    work = {"mode": "run", "command": "-"}
    target = ["kubeletVersion=v1.36.3"]
    alone = pod("alone", "a4")
    found = plan(blue("a1", "a2", "a3"), blue("a4", **there), alone, target=target, work=work)
    assert reasons(found) == {"a4": "is there already (kubeletVersion=v1.36.3)"}
    assert not found.undone, "a node that is done needs nothing, whatever is against its drain"


def test_nodes_of_a_run_under_way_are_not_cordoned_by_others() -> None:
    mark = '{"run": "r1", "state": "Settling", "cordon": "ours"}'
    labels = {"pool": "blue"}
    ours = {"labels": labels, "annotations": {"nodelife.dev/upgrade": mark}}
    odd = {"labels": labels, "annotations": {"nodelife.dev/upgrade": "?"}}
    found = plan(
        blue("a1", "a2", "a3"),
        node("a4", metadata=ours, spec={"unschedulable": True}),
        node("a5", metadata=odd),
        maxUnavailable=3,
    )
    assert reasons(found) == {
        "a4": "Settling in run r1",
        "a5": "annotation nodelife.dev/upgrade cannot be read",
    }


@pytest.mark.parametrize("version, says", [("v1.37.0", "newer than"), ("v1.32.9", "3 minors")])
def test_a_target_beyond_the_version_skew_is_refused(version: str, says: str) -> None:
    found = plan(blue("a1", "a2", "a3"), target=[f"kubeletVersion={version}"])
    assert any(f.severity == "refused" and says in f.text for f in found.findings)


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("gcloud container clusters upgrade prod --node-pool blue", True),
        ("gcloud  container node-pools rollback blue", True),
        ("set -e; aws eks update-nodegroup-version --nodegroup-name blue", True),
        ("eksctl upgrade nodegroup --name blue", True),
        ("az aks nodepool upgrade -n blue", True),
        ("az aks upgrade -n prod", True),
        ("gcloud compute instances reset $NODE", False),
        ("az vm restart --ids $PROVIDER_ID", False),
    ],
)
def test_a_clouds_own_upgrade_of_a_pool_is_refused_as_work(command: str, is_refused: bool) -> None:
    found = plan(blue("a1", "a2", "a3"), work={"mode": "run", "command": command})
    texts = [f.text for f in found.findings if f.check == "managed upgrade"]
    assert bool(texts) is is_refused and all("upgrade prove" in text for text in texts)
    assert bool(found.refusals) is is_refused


def test_control_plane_nodes_go_last_and_one_at_a_time() -> None:
    role = {"node-role.kubernetes.io/control-plane": "", "pool": "blue"}
    masters = [obj for i in (1, 2, 3) for obj in node(f"m{i}", metadata={"labels": role})]
    assert len(plan(blue("a1", "a2", "a3"), masters).nodes) == 3
    found = plan(blue("a1", "a2", "a3"), masters, includeControlPlane=True, zones=0)
    assert order(found)[-2:] == [["m1"], ["m2", "m3"]]
    assert found.course.turns["m3"].claimed_ns >= found.course.turns["m2"].at["done"]
    two = plan(blue("a1", "a2", "a3"), masters[:4], includeControlPlane=True)
    assert "of 2 control-plane nodes none" in reasons(two)["m1"]


def test_the_estimate_covers_the_course_and_the_work_that_was_told() -> None:
    work = {"mode": "run", "command": "x"}
    found = plan(blue("a1", "a2", "a3"), work=work, expectWork="3m")
    guessed = plan(blue("a1", "a2", "a3"), work=work)
    assert found.estimate is not None and guessed.estimate is not None
    expected = found.estimate.cold + found.course.end_ns / 1e9
    assert found.estimate.low <= expected <= found.estimate.high < guessed.estimate.high
    assert "the work takes 3m0s (--expect-work)" in found.assumptions
    assert "the work takes 10m0s (assumed: give --expect-work)" in guessed.assumptions


def test_the_document_holds_every_write_of_a_node() -> None:
    found = plan(blue("a1", "a2", "a3"), replica_set("web", "a1", "a2"))
    document = upgrade_plan_document(found, {"kind": "dump"})
    assert (document["kind"], document["counts"]["claim"]) == ("UpgradePlan", 3)
    writes = document["nodes"][0]["writes"]
    assert [f"{w['verb']} {w['resource']}" for w in writes] == [
        "patch nodes", "patch nodes", "create pods/eviction", "patch nodes", "patch nodes",
        "patch nodes", "create pods", "delete pods", "patch nodes", "patch nodes", "patch nodes",
    ]  # fmt: skip
    claim = writes[1]["sets"]
    assert claim[0] == "spec.unschedulable=true" and "karpenter.sh/do-not-disrupt=true" in claim
    assert document["lowest"]["byPool"]["blue"]["available"] == 2
    assert document["policy"]["selector"] == "pool=blue"


def test_the_page_names_what_is_not_done() -> None:
    db = budget("db", "db", healthy=1, desired=1, expected=1, minAvailable=1)
    found = plan(blue(*NAMES), stateful_set("db", "c4"), db)
    text = render(upgrade_plan_page(found, {}), "table")
    assert "to do c4: " in text and "lowest: 11 of 12 available in pool blue" in text
    assert render(upgrade_plan_page(found, {}), "name").splitlines()[0] == "node/a1"
    markup = html_page(found, {})
    assert markup.count('class="plot"') == 1 and "<script" not in markup


def test_names_are_escaped_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "is_dns_subdomain", lambda name: True)
    found = plan(blue("a<b>", "a2", "a3"))
    assert "a<b>" not in html_page(found, {}) and "a&lt;b&gt;" in html_page(found, {})


def test_progress_counts_the_nodes_that_are_done_in_the_play() -> None:
    told: list[int] = []
    made = snapshot(namespace(), namespace("nodelife"), blue(*NAMES))
    policy = policy_from({"selector": "pool=blue"})
    make_upgrade_plan(made, policy, SETTINGS, progress=told.append)
    assert told == sorted(told) and (told[0], told[-1]) == (0, len(NAMES))
