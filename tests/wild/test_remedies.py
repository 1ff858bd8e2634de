"""A remedy is named only where the play of the whole plan is better with it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.wild.reports import FOLDER, Report

Capture = pytest.CaptureFixture[str]


def test_the_first_of_two_domains_finishes_without_its_replacement(capsys: Capture) -> None:
    """Recorded: the drain of a1 ends, and web's replacement stays Pending."""
    report = Report("drain-05-spread-counts-cordoned", capsys)
    told = report.ask("drain-plan", "a1", "-o", "json", dump="cluster.json", now=False)
    (web,) = (w for w in told.document["workloads"] if w["name"].startswith("web-"))
    assert told.document["verdict"] == "ready" and web["seconds"] is None
    assert "1 replacement would stay Pending" in told.err


@pytest.mark.parametrize("dump", ["cluster.json", "plus-node-b.json"])
def test_a_node_more_does_not_help_where_a_cordoned_domain_counts_as_empty(
    capsys: Capture, dump: str
) -> None:
    """Recorded: with a node like b1 added the drain of b1 is still refused for 25 s, and after
    `kubectl uncordon a1` it is done in 6 s."""
    report = Report("drain-05-spread-counts-cordoned", capsys)
    words = ("drain-plan", "a1", "b1", "-o", "json")
    plan = report.ask(*words, dump=dump, now=False).document
    assert plan["verdict"] == "never"
    stuck = [p for wave in plan["waves"] for p in wave["pods"] if p["verdict"] == "never"]
    (change,) = {pod["unblock"]["change"] for pod in stuck}
    first, second = change.split(", or ")
    assert first == "kubectl uncordon a1 once drained, before b1 is"
    assert second.startswith("nodeTaintsPolicy: Honor in the topologySpreadConstraints of deploy")


def test_a_cordoned_node_is_opened_for_pods_of_the_budget_that_are_on_no_node(
    capsys: Capture,
) -> None:
    """Recorded: refused for 15 s; after `kubectl uncordon a1` the drain of a2 ends in 1.3 s."""
    report = Report("drain-23-hostport-deployment", capsys)
    plan = report.ask("drain-plan", "a2", "-o", "json", dump="after-a1.json", now=False).document
    (stuck,) = [pod for wave in plan["waves"] for pod in wave["pods"]]
    assert (stuck["verdict"], stuck["gate"]) == ("never", "pdb")
    assert stuck["unblock"]["change"].startswith("kubectl uncordon a1, for ingress-6fbc87688-z4jbd")


BUDGETS = "drain-08-default-budgets"


def test_all_budgets_of_a_node_are_named_and_patching_them_opens_it(
    tmp_path: Path, capsys: Capture
) -> None:
    right = json.loads((FOLDER / BUDGETS / "right.json").read_text())["upgradePlan"]
    words = ("upgrade", "plan", "-l", "agentpool=work", "--nothing", "-o", "json")
    plan = Report(BUDGETS, capsys).ask(*words, dump="cluster.json").document
    changes = {
        node["name"]: [remedy["change"] for remedy in node["drain"]["unblockAll"]]
        for node in plan["nodes"]
    }
    for name in ("w1", "w2"):
        budgets = {f"{line[5]}/{line[3]}" for line in map(shlex.split, changes[name])}
        assert budgets == set(right[name])
    assert right["w3"] == ["istio-system/istiod"] and "istiod" in changes["w3"][0]
    cluster = json.loads((FOLDER / BUDGETS / "cluster.json").read_text())
    for line in {*changes["w1"], *changes["w2"]}:
        _patch(cluster, shlex.split(line))
    dump = tmp_path / "cluster.json"
    dump.write_text(json.dumps(cluster))
    main(["drain-plan", "w1", "w2", "-f", str(dump), "-o", "json"])
    assert json.loads(capsys.readouterr().out)["verdict"] in ("ready", "slow")


def _patch(cluster: Any, line: list[str]) -> None:
    """`kubectl patch pdb NAME -n NAMESPACE --type merge -p PATCH`, before the controller's sync."""
    key = line[5], line[3]
    (budget,) = [
        item
        for item in cluster["items"]
        if item["kind"] == "PodDisruptionBudget"
        and (item["metadata"]["namespace"], item["metadata"]["name"]) == key
    ]
    spec = {**budget["spec"], **json.loads(line[-1])["spec"]}
    budget["spec"] = {field: value for field, value in spec.items() if value is not None}
    budget["metadata"]["generation"], budget["status"] = 0, {}


def test_nodes_behind_a_blocked_one_are_judged_by_themselves(capsys: Capture) -> None:
    words = ("drain-plan", "w1", "w2", "w3", "-o", "json")
    plan = Report(BUDGETS, capsys).ask(*words, dump="cluster.json").document
    behind = [pod for wave in plan["waves"][1:] for pod in wave["pods"]]
    assert len(behind) == 3
    for pod in behind:
        assert f"kubectl never comes to {pod['node']}: draining w1 does not end" in pod["reason"]
        assert "by itself never (pdb): budget" in pod["reason"]
        assert pod["unblock"] is not None


@pytest.mark.parametrize("dump", ["hours-later.json", "always-allow.json"])
def test_an_unready_pod_that_may_go_is_made_anew(capsys: Capture, dump: str) -> None:
    """Recorded: the healthy one's node is refused for 20 s, the other one's is done in 1.3 s."""
    report = Report("drain-21-one-unready-replica", capsys)
    plan = report.ask("drain-plan", "a3", "-o", "json", dump=dump, now=False).document
    (stuck,) = [pod for wave in plan["waves"] for pod in wave["pods"]]
    assert (stuck["verdict"], stuck["gate"]) == ("never", "pdb")
    delete = "kubectl delete pod dns-5d5c456555-8cdz4 -n default, whose eviction is allowed already"
    assert stuck["unblock"]["change"] == f"{delete}, or drain a1 first"
    plan = report.ask("drain-plan", "a1", "-o", "json", dump=dump, now=False).document
    assert plan["verdict"] == "ready"
    (budget,) = report.ask("budgets", "-A", "-o", "json", dump=dump, now=False).document["items"]
    assert budget["undrainable"] == ["a3"]
    said = report.ask("budgets", "-A", dump=dump, now=False).out
    assert "kubectl delete pod dns-5d5c456555-8cdz4 -n default" in said
    assert "AlwaysAllow" not in said


def test_a_budget_is_measured_by_the_scale_of_a_custom_resource(capsys: Capture) -> None:
    """Recorded: of six pods, whose owner's scale says three, four are evicted at once."""
    report = Report("drain-15-custom-resource-scale", capsys)
    odd = "it guards 6 pods, and the scale of their owner CacheCluster/cache says 3: it lets 4 go"
    said = report.ask("budgets", "-A", dump="cluster.json", now=False).out
    assert f"{odd} at once, not 1" in said.splitlines()[0]
    assert "use an integer minAvailable, 5 for so many pods" in said
    assert odd[3:] in report.ask("explain", "budget", "cache", dump="cluster.json", now=False).out
    plan = report.ask("drain-plan", "a1", "-o", "json", dump="cluster.json", now=False).document
    pods = [pod for wave in plan["waves"] for pod in wave["pods"]]
    assert len(pods) == 4 and all(pod["tries"] == 1 for pod in pods)
