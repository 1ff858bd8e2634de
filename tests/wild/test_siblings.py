"""What holds of a reported situation holds of others of its kind."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests import objects
from tests.objects import event, write_list
from tests.wild.reports import FOLDER, NOW, first_lines
from tests.wild.siblings import Cluster, Json, ago, lease, node, pod, taint, tolerated

Capture = pytest.CaptureFixture[str]
UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


def tainted(*taints: Json, **more: Any) -> list[Json]:
    """Node a with these taints, and node b."""
    return [node("a", taints=[*taints], **more), node("b"), lease("b")]


OVERDUE = {
    "not taken off": (tainted(taint(UNREACHABLE, age=9000), since=7200), "a: evicting, removal of"),
    "not exchanged": (
        tainted(taint(NOT_READY, age=9000), ready="Unknown", since=7200),
        "a: unreachable, taint unreachable:NoExecute overdue",
    ),
    "of a user": (
        [*tainted(taint("upkeep", age=7200)), pod("web-1", "a")],
        "a: evicting, deletion of default/web-1 overdue",
    ),
}


@pytest.mark.parametrize("kind", OVERDUE)
def test_what_a_controller_has_not_done_for_two_hours_is_overdue(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    objects, says = OVERDUE[kind]
    age = 7250 if kind == "not exchanged" else 5
    cluster = Cluster(tmp_path, capsys, *objects, lease("a", age))
    assert f"{says}" in first_lines(cluster.ask("status"))
    (node_a, _) = cluster.ask("status", "-o", "json").document["nodes"]
    assert node_a["verdict"]["next"]["overdueSince"] == ago(7195 if "not" in kind else 7200)
    assert "\nOverdue: the " in cluster.ask("explain", "node", "a").out


@pytest.mark.parametrize("age", [60, 7200])
def test_an_audit_finds_pods_that_a_ready_node_should_have_lost(
    tmp_path: Path, capsys: Capture, age: float
) -> None:
    """web tolerates the taint for a minute, db not at all, ever for ever; a minute is no delay."""
    pods = (
        pod("web-1", "a", tolerations=[tolerated("upkeep", 60)]),
        pod("db-0", "a", owner="StatefulSet"),
        pod("ever-1", "a", tolerations=[tolerated("upkeep")]),
    )
    cluster = Cluster(tmp_path, capsys, *tainted(taint("upkeep", age=age)), lease("a"), *pods)
    findings = cluster.ask("audit", "-A", "-o", "json").document["findings"]
    assert {f["class"] for f in findings} == ({"not-evicted"} if age > 120 else set())
    named = {f["name"] for f in findings}
    assert named == ({"web-1", "db-0"} if age > 120 else set())


CONDITION = {"status": "True", "reason": "r", "message": "m", "lastTransitionTime": ago(600)}


@pytest.mark.parametrize(
    ("condition", "state", "says"),
    [
        ("NetworkUnavailable", "no-network", "Node a is without a network: Ready, with Network"),
        ("PIDPressure", "pressure", "Node a is under pressure: Ready, with PIDPressure"),
        ("KernelDeadlock", "healthy", "Node a is healthy: Ready"),
    ],
)
def test_a_node_without_a_network_is_under_no_pressure(
    tmp_path: Path, capsys: Capture, condition: str, state: str, says: str
) -> None:
    """Only of its own three conditions a kubelet evicts pods (`eviction_manager.go`)."""
    conditions = [{"type": condition, **CONDITION}]
    cluster = Cluster(tmp_path, capsys, node("a", conditions=conditions), node("b"), lease("a"))
    (verdict, _) = (n["verdict"] for n in cluster.ask("status", "-o", "json").document["nodes"])
    assert verdict["state"] == state
    said = cluster.ask("explain", "node", "a").out
    assert said.startswith(says)
    assert ("evicts running pods" in said) == (state == "pressure")


def test_an_event_before_a_deletion_is_an_attempt(tmp_path: Path, capsys: Capture) -> None:
    """`deletePodHandler` records TaintManagerEviction, then asks for the deletion."""
    there = [*tainted(taint("upkeep", age=90)), lease("a"), pod("web-1", "a"), pod("api-1", "b")]
    events = [
        event(
            ("Pod", name),
            "TaintManagerEviction",
            f"Marking for deletion Pod default/{name}",
            when=ago(80),
            by="taint-eviction-controller",
        )
        for name in ("web-1", "gone-1")
    ]
    cluster = Cluster(tmp_path, capsys, *there, *events)
    changes = cluster.ask("changes", "--since", "1h", "-o", "json").document["items"]
    outcomes = {change["object"]["name"]: change["outcome"] for change in changes}
    assert (outcomes["web-1"], outcomes["gone-1"]) == ("attempted", "confirmed")


def test_a_forgotten_out_of_service_taint_closes_the_node(tmp_path: Path, capsys: Capture) -> None:
    mark = taint("node.kubernetes.io/out-of-service", age=18000)
    cluster = Cluster(tmp_path, capsys, *tainted(mark), lease("a"))
    assert "1 of 2 nodes is closed to new pods by a person's" in cluster.ask("status").out
    assert "out of service for 5h" in first_lines(cluster.ask("explain", "node", "a"))


def test_one_node_is_no_list_of_nodes(tmp_path: Path, capsys: Capture) -> None:
    """Whether a replacement finds a node, and what becomes of the zone, nothing read says."""
    (tmp_path / "a.json").write_text(json.dumps(node("a")))
    web = objects.workload("ReplicaSet", "web", 2, uid="web")
    items = [pod("web-1", "a"), pod("web-2", "a"), web, budget("web", "web", 2)]
    rest = write_list(tmp_path / "b.json", items)
    files = ("-f", str(tmp_path / "a.json"), "-f", rest, *NOW)
    capsys.readouterr()
    main(["drain-plan", "a", *files, "-o", "json"])
    said = capsys.readouterr()
    plan = json.loads(said.out)
    assert plan["verdict"] == "unknown" and "stay Pending" not in said.err
    assert "Node" in {lack["kind"] for lack in plan["notEvaluated"]}
    main(["drain-plan", "a", *files])
    assert "no node to land on" not in first_lines_of(capsys)
    for words in (("lose", "node", "a"), ("--each", "node")):
        assert main(["what-if", *words, *files]) == 2
        assert "one node was read, not a list" in capsys.readouterr().err


def first_lines_of(capsys: Capture) -> str:
    """The first three lines of what was printed."""
    return "\n".join(capsys.readouterr().out.splitlines()[:3])


def test_a_tainted_domain_is_honored_where_no_uncordon_helps(
    tmp_path: Path, capsys: Capture
) -> None:
    """a1, which is broken, counts as an empty domain of web's constraint: its pod stays Pending."""
    report = FOLDER / "drain-05-spread-counts-cordoned" / "cluster.json"
    cluster = json.loads(report.read_text())
    for obj in cluster["items"]:
        on_a1 = obj["kind"] == "Pod" and obj["spec"].get("nodeName") == "a1"
        if obj["kind"] == "Node" and obj["metadata"]["name"] == "a1":
            obj["spec"]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
        elif on_a1 and obj["metadata"]["name"].startswith("web-"):
            del obj["spec"]["nodeName"]
            obj["status"] = {"phase": "Pending"}
        elif obj["kind"] == "PodDisruptionBudget" and obj["metadata"]["name"] == "web":
            obj["status"] |= {"currentHealthy": 2, "disruptionsAllowed": 0}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    capsys.readouterr()
    main(["drain-plan", "b1", "-f", str(tmp_path / "cluster.json"), "-o", "json"])
    plan = json.loads(capsys.readouterr().out)
    (stuck,) = (p for w in plan["waves"] for p in w["pods"] if p["name"].startswith("web-"))
    wanted = "nodeTaintsPolicy: Honor in the topologySpreadConstraints of deployment web"
    assert (stuck["verdict"], stuck["unblock"]["change"]) == ("never", wanted)


def budget(name: str, app: str, expected: int, *, healthy: int | None = None) -> Json:
    """A budget that spares one pod, with the status that its controller wrote."""
    now = expected if healthy is None else healthy
    allowed = max(0, now - expected + 1)
    status = {"expectedPods": expected, "currentHealthy": now, "desiredHealthy": expected - 1}
    status["disruptionsAllowed"] = allowed
    return objects.budget(name, app, status=status, maxUnavailable=1)


def test_a_budget_beside_another_lets_nothing_go(tmp_path: Path, capsys: Capture) -> None:
    """`EvictionREST.Create`: a pod with more than one budget is refused, whatever they allow."""
    pods = [pod("web-1", "a"), pod("web-2", "b"), pod("api-1", "b")]
    budgets = [budget("one", "web", 2), budget("two", "web", 2), budget("api", "api", 1)]
    cluster = Cluster(tmp_path, capsys, *tainted(), lease("a"), *pods, *budgets)
    items = {b["name"]: b for b in cluster.ask("budgets", "-o", "json").document["items"]}
    assert [items[name]["state"] for name in ("one", "two", "api")] == ["two-budgets"] * 2 + ["ok"]
    assert items["one"]["undrainable"] == ["a", "b"] and items["api"]["undrainable"] == []
    assert first_lines(cluster.ask("budgets")).startswith("2 of 3 budgets keep 2 nodes")
    assert "none may go" in first_lines(cluster.ask("explain", "pdb", "one"))


@pytest.mark.parametrize(("healthy", "state"), [(3, "ok"), (2, "blocking")])
def test_a_budget_whose_pods_were_not_read_is_not_unused(
    tmp_path: Path, capsys: Capture, healthy: int, state: str
) -> None:
    """Its status, which the Eviction API goes by, counts pods: the dump has some pods only."""
    away = budget("away", "away", 3, healthy=healthy)
    cluster = Cluster(tmp_path, capsys, *tainted(), pod("web-1", "a"), away)
    (item,) = cluster.ask("budgets", "-o", "json").document["items"]
    assert item["state"] == state
    assert "it matches no pod that was read; its status counts 3" in cluster.ask("budgets").out


@pytest.mark.parametrize("verb", ["drain-plan", "what-if drain"])
def test_a_node_that_cannot_be_read_is_not_said_to_be_missing(
    tmp_path: Path, capsys: Capture, verb: str
) -> None:
    broken = node("a")
    broken["status"]["nodeInfo"]["kubeletVersion"] = 5
    told = Cluster(tmp_path, capsys, broken, node("b"), pod("web-1", "b")).ask(*verb.split(), "a")
    assert told.code != 0 and "a cannot be read" in told.err and "not found" not in told.err


def test_zones_that_stop_are_called_zones(tmp_path: Path, capsys: Capture) -> None:
    """One has no name, and the loss of the other's node leaves no zone with a ready one."""
    lost = node("a", ready="Unknown", since=60, taints=[taint(UNREACHABLE, "NoSchedule", age=60)])
    other = node("b")
    other["metadata"]["labels"]["topology.kubernetes.io/zone"] = "z"
    leases = (lease("a", 110), lease("b"))
    cluster = Cluster(tmp_path, capsys, lost, other, *leases, pod("web-1", "a"))
    said = first_lines(cluster.ask("what-if", "lose", "node", "b"))
    assert "the zone without a name and zone z stop evicting" in said
