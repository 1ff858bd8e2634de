"""What losing one more node does to its zone: a hypothetical loss is counted before it is timed."""

import shlex
from typing import Any

from tests.drain.build import node, pod
from tests.objects import toleration
from tests.outlook.asking import Ask, lost


def of_node(document: dict[str, Any], name: str) -> dict[str, Any]:
    """That node's entry in a status."""
    found: dict[str, Any] = next(n for n in document["nodes"] if n["name"] == name)
    return found


def test_the_only_node_is_never_tainted(ask: Ask) -> None:
    """No node anywhere is ready then, so that the controller stops everything."""
    cluster = [node("only")]
    said = ask(cluster, "explain", "node", "only", "-o", "json").document
    when = next(a for a in said["answers"] if "terms" in a)
    assert when["terms"][-1]["lowSeconds"] is None
    assert when["total"] == {"lowSeconds": None, "highSeconds": None}
    assert "makes all zones dark" in when["terms"][-1]["origin"]
    assert "in all                                     never      never" in (
        ask(cluster, "explain", "node", "only").out
    )
    entry = of_node(ask(cluster, "status", "-o", "json").document, "only")
    assert entry["ifLost"]["allDark"] is True and entry["ifLost"]["rate"] == 0


def test_the_third_loss_of_four_stops_the_zone(ask: Ask) -> None:
    """3 of 4 is at least 3 nodes and a share of 0.75; a zone of four is a small one: rate 0."""
    elsewhere = node("b1", zone="b")
    cluster = [node("a1"), node("a2"), lost("a3"), lost("a4"), elsewhere]
    said = ask(cluster, "explain", "node", "a1").out
    assert "Losing this node stops this zone: 3 of 4 not ready" in said
    assert "Its brake: losing 1 more node stops this zone." in said
    status = ask(cluster, "status", "-o", "json").document
    assert of_node(status, "a1")["ifLost"]["zoneState"] == "PartialDisruption"
    assert of_node(status, "a1")["ifLost"]["rate"] == 0
    # The lone node of the other zone makes it dark, and a dark zone goes on at the normal rate.
    assert of_node(status, "b1")["ifLost"]["zoneState"] == "FullDisruption"
    assert of_node(status, "b1")["ifLost"]["rate"] == 0.1


def test_a_large_zone_is_slowed(ask: Ask) -> None:
    """29 of 52 are 0.5577, 28 only 0.5385: the 29th loss engages the brake at the second rate."""
    cluster = [lost(f"a{i}") for i in range(27)] + [node(f"a{i}") for i in range(27, 52)]
    brake = ask(cluster, "status", "-o", "json").document["zones"][0]["brake"]
    assert (brake["moreLost"], brake["state"], brake["rate"]) == (2, "PartialDisruption", 0.01)


def test_what_the_brake_holds_and_what_runs_on(ask: Ask) -> None:
    """A node that waits for its taint is held; a pod whose node was tainted is not."""
    from tests.drain.build import pod

    waiting = lost("a2")
    waiting[0]["spec"]["taints"].pop()  # not yet NoExecute
    for_ten_minutes = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 900,
    }
    cluster = [node("a1"), waiting, lost("a3"), node("a4"), pod("p", "a2")]
    cluster.append(pod("q", "a3", spec={"tolerations": [for_ten_minutes]}))
    said = ask(cluster, "status", "-o", "json").document["zones"][0]["brake"]
    assert (said["heldNodes"], said["heldPods"], said["timersRunning"]) == (["a2"], 1, 1)
    assert "it holds 1 waiting node with 1 pod; the timer of 1 pod runs on" in said["because"]


def test_an_excluded_node_does_not_count(ask: Ask) -> None:
    label = {"node.kubernetes.io/exclude-disruption": "true"}
    cluster = [node("a1"), node("a2", metadata={"labels": label})]
    status = ask(cluster, "status", "-o", "json").document
    assert of_node(status, "a2")["ifLost"]["allDark"] is False
    assert of_node(status, "a1")["ifLost"]["allDark"] is True


def test_a_zone_does_not_foretell_the_deletion_of_what_is_terminating(ask: Ask) -> None:
    """The taint manager has a timer for such a pod too; it changes nothing."""
    key = "node.kubernetes.io/unreachable"
    tolerates = {"tolerations": [{"key": key, "operator": "Exists", "tolerationSeconds": 900}]}
    gone = {"deletionTimestamp": "2026-01-01T00:40:00Z", "deletionGracePeriodSeconds": 30}
    cluster = [
        lost("a1"),
        node("a2"),
        pod("stays", "a1", spec=tolerates),
        pod("going", "a1", spec=tolerates, metadata=gone),
    ]
    told = ask(cluster, "explain", "zone", "a", "--now", "2026-01-01T01:00:00Z").out
    assert "default/stays on a1 is deleted in" in told and "default/going" not in told


def test_many_pods_are_counted_without_those_that_go_already(ask: Ask) -> None:
    """One is terminating, and of a lost node one has a timer that runs."""

    def many(seconds: int | None) -> list[Any]:
        tolerates = {"tolerations": [toleration(seconds=seconds)]}
        return [pod(f"p{number}", "a1", spec=tolerates) for number in range(13)]

    gone = {"deletionTimestamp": "2026-01-01T00:40:00Z", "deletionGracePeriodSeconds": 30}
    going = pod("going", "a1", metadata=gone)
    when = ("--now", "2026-01-01T01:00:00Z")
    told = ask([node("a1"), node("a2"), *many(300), going], "explain", "node", "a1", *when)
    assert "13 pods would be deleted 5m after the taint node.kubernetes.io/unreachable." in told.out
    timed = pod("timed", "a1", spec={"tolerations": [toleration(seconds=900)]})
    cluster = [lost("a1"), node("a2"), *many(None), going, timed]
    told = ask(cluster, "explain", "node", "a1", *when)
    assert "default/timed is deleted in 5m" in told.out
    assert "13 pods tolerating its taints for ever would stay" in told.out


def test_the_pass_over_many_pods_is_longer_than_the_brake(ask: Ask) -> None:
    """22 of 40 nodes with 20 pods each: 22 Leases are read, 462 statuses and 22 taints written."""
    cluster = [node(f"a{i}") for i in range(40)]
    cluster += [pod(f"p{i}-{j}", f"a{i}") for i in range(40) for j in range(20)]
    said = ask(cluster, "status", "-o", "json").document["zones"][0]["brake"]
    assert (said["moreLost"], said["rate"]) == (22, 0)
    assert said["passSeconds"] == 28.2
    assert said["taintedBefore"] == 3
    assert "a pass of 28s, and up to 3 nodes may be tainted before it ends" in said["because"]
    fast = ask(cluster, "status", "--set=kube-api-qps=-1", "-o", "json").document
    assert fast["zones"][0]["brake"]["taintedBefore"] == 0


def test_a_lost_node_names_the_ways_out_and_how_to_play_them(ask: Ask) -> None:
    """Those of the live page: the condition first, and the command that says what each would do."""
    question = "What can you do?"

    def ways(*objects: Any) -> list[str]:
        cluster = [*objects, node("a2"), node("a3"), pod("web-1", "a1")]
        said = ask(cluster, "explain", "node", "a1", "-o", "json").document
        return [s for a in said["answers"] if a["question"] == question for s in a["sentences"]]

    wait, taint, delete = ways(lost("a1"))
    assert wait.startswith("Wait: a node that is back keeps the pods")
    for way, act in ((taint, "taint node a1"), (delete, "delete node a1")):
        assert way.startswith(f"kubectl {act}") and "once its machine is known to be off" in way
        played = shlex.split(way.partition("; to play it: ")[2])
        assert played[:3] == ["kubectl", "nodelife", "what-if"]
        cluster = [lost("a1"), node("a2"), pod("web-1", "a1")]
        assert ask(cluster, *played[2:]).code == 0
    assert ways(node("a1")) == []
    declared = lost("a1")
    out = {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}
    declared[0]["spec"]["taints"].append(out)
    assert [way[:15] for way in ways(declared)] == [wait[:15], delete[:15]]
