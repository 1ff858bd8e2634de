"""Node upgrades on a real control plane when nodes and the cluster misbehave.

Each run has many troubles at once, in places where they do not disturb one another.
"""

import math
import signal
from collections.abc import Iterator

import pytest

from tests.real.kubelets import PAUSE
from tests.real.upgrade_observer import Observer
from tests.real.upgrading import SETTINGS, Fleet, Json, Operator, fleet, is_ready, operating

HOST = "kubernetes.io/hostname"
AUTOSCALER = "ToBeDeletedByClusterAutoscaler"
AGENT = "node.cilium.io/agent-not-ready"
GPU = "nvidia.com/gpu"
CANARY = "nodelife.dev/canary"
ORDER = "c0,b1,a1,c2,b0,a0,c1,b2,a3,c3,b3,a2"
REBOOT = """case $NODE in
  b2) ;;
  c3) echo 600 > $REBOOTS/$NODE ;;
  a3) echo 15 > $REBOOTS/$NODE ;;
  *) echo 1.5 > $REBOOTS/$NODE ;;
esac"""
TIMEOUTS = (
    *("--drain-timeout", "60s", "--return-timeout", "25s", "--prove-timeout", "40s"),
    *("--ready-for", "4s", "--node-soak", "1s", "--soak", "1s"),
)
FAILED = {
    "a1": "S7: DaemonSet shop/agent",
    "b0": "flaps: Ready broke 3 times",
    "b1": "P4: the canary is not Ready: ContainerCreating",
    "b2": "no effect: did not come back in time: S3: target bootID=changed is not met",
    "c0": "cannot stop pods: its canary is still there 60 s after its deletion",
    "c1": f"S9: allocatable {GPU} is 0, before 8",
    "c3": "did not come back in time: S2: Lease renewed",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("upgrade")) as found:
        yield found


@pytest.fixture()
def operator(cluster: Fleet) -> Iterator[Operator]:
    with operating(cluster) as one:
        yield one


def test_seven_nodes_fail_each_for_its_own_reason_and_the_others_are_done(
    cluster: Fleet, operator: Operator
) -> None:
    make_ill(cluster)
    guard_pods_by_budgets(cluster)
    with Observer(cluster, floor=3) as observer:
        limits = ("--max-unavailable", "9", "--min-available", "3", "--max-failures", "7")
        wide = ("--zones", "0", "--canary", ORDER, "--retries", "0")
        target = ("--run", REBOOT, "--target", "bootID=changed")
        operator.begin(
            "start", "-l", "pool=blue", *target, *wide, *limits, *TIMEOUTS, *SETTINGS, "--yes"
        )
        cluster.await_state("c0", "Draining", "Working", "Settling", "Proving")
        cluster.taint("b3", AUTOSCALER)
        cluster.await_state("c2", "Draining", "Working", "Settling")
        cluster.taint("c2", AGENT)
        hear(cluster, observer, "a3", "budget: ")
        cluster.kubelets["a2"].ailments.starts.clear()
        hear(cluster, observer, "b3", "the cluster autoscaler is about to delete it")
        cluster.go("b3")
        hear(cluster, observer, "c2", f"S6: taint {AGENT}:NoSchedule was not there before")
        cluster.taint("c2", AGENT, off=True)
        cluster.await_state("a3", "Working", "Settling")
        cluster.go("a3")
        cluster.come("a3")  # as clouds do that register a node anew
        assert operator.end(240) == 1, operator.said()

        status = operator.ask("status")
        assert (status["phase"], status["counts"]) == ("Finished", {"Failed": 7})
        for name, because in FAILED.items():
            mark = cluster.mark(name)
            assert because in mark["reason"], operator.said()
            assert (mark["state"], mark["cordon"]) == ("Failed", "ours")
            assert cluster.node(name)["spec"]["unschedulable"] is True
        assert observer.has_heard("a0", "S7: DaemonSet shop/agent: pod agent-")
        assert observer.has_heard("a2", "two budgets match it, pair and pair-too")
        for name in ("a0", "a3", "c2"):
            assert f"node {name}: now Done" in operator.said()
        assert "takes the place of a3" in operator.said()
        left = {trace.split(":")[0] for trace in cluster.traces()}
        assert left == {*FAILED, canary_of(cluster, "c0")}, operator.said()

        make_well(cluster)
        assert operator.type("clean", "--release-failed", "--yes") == 0, operator.said()
        assert cluster.traces() == [], operator.said()
        assert observer.faults == []


def test_of_three_nodes_that_are_replaced_one_comes_late_and_one_never(
    cluster: Fleet, operator: Operator
) -> None:
    """a0 comes again under its name, for b0 comes b9, which runs a pod already, for c0 nobody."""
    with Observer(cluster, floor=9) as observer:
        asked = ("--replace", "touch $HOME/asked-$NODE", "--work-timeout", "25s")
        asked += ("--canary-image", PAUSE)  # what comes in a node's place has reported none yet
        limits = ("--max-unavailable", "3", "--max-failures", "1", "--retries", "0")
        wide = ("--zones", "0", "--canary", "3")
        operator.begin(
            "start", "a0", "b0", "c0", *asked, *limits, *wide, *TIMEOUTS, *SETTINGS, "--yes"
        )
        for name in ("a0", "b0", "c0"):
            asking = operator.folder / f"asked-{name}"
            cluster.until(f"{asking.name} is there", asking.exists)
            cluster.go(name)
        run_early_pod_on(cluster, "b9")
        cluster.come("b9")
        cluster.come("a0")
        cluster.await_state("b9", "Settling", "Proving")
        assert "cordon" not in cluster.mark("b9"), "who runs pods already is never cordoned"
        cluster.await_state("a0", "Settling", "Proving")
        assert cluster.mark("a0")["for"] == "a0"
        assert operator.end() == 1, operator.said()
        assert "c0: now Failed: its object went, and no newcomer came in time" in operator.said()
        status = operator.ask("status")
        assert (status["phase"], status["failures"]) == ("Finished", ["c0"]), operator.said()
        assert cluster.traces() == [], operator.said()
        for name in ("a0", "b9"):
            assert f"node {name}: now Done" in operator.said()
        assert observer.faults == []
    cluster.come("c0")


def test_a_canary_that_no_node_can_run_and_nodes_that_vanish_hold_until_a_person_has_spoken(
    cluster: Fleet, operator: Operator
) -> None:
    """An autoscaler takes c3, and holds nobody; b3 vanishes, and does."""
    for name in cluster.nodes:
        cluster.kubelets[name].ailments.waits["image=tool:none"] = "ErrImagePull"
    with Observer(cluster, floor=8) as observer:
        few = ("--max-unavailable", "1", "--canary", "a0", "--zones", "0")
        image = ("--canary-image", "tool:none")
        order = ("start", "a0", "b1", "c3", "--nothing", *few, *TIMEOUTS, *SETTINGS, "--yes")
        operator.begin(*order, *image)
        hear(cluster, observer, "proof", "a0: the canary's image cannot be pulled: ErrImagePull")
        assert Operator(cluster, "reader").type("status", "--exit-code") == 4
        cluster.taint("c3", AUTOSCALER)
        hear(cluster, observer, "c3", "the cluster autoscaler is about to delete it")
        cluster.go("c3")
        cluster.go("b3")
        operator.signal(signal.SIGINT)
        hear(cluster, observer, "paused", "")
        operator.signal(signal.SIGINT)
        assert operator.end(30) == 130, operator.said()

        other = Operator(cluster, "other")
        other.begin(*order, "--canary-image", PAUSE, "--resume")
        hear(cluster, observer, "b1", "1 vanished since the start (resume --rebase forgets them)")
        assert Operator(cluster, "third").type("resume", "--rebase") == 0
        assert other.end() == 0, other.said()
        assert "node b1: now Done" in other.said()
        assert cluster.traces() == [] and observer.faults == []
    cluster.come("b3")
    cluster.come("c3")


def make_ill(cluster: Fleet) -> None:
    """What will be wrong with each node once it was rebooted."""
    ill = {name: cluster.kubelets[name].ailments for name in cluster.nodes}
    ill["a0"].starts["app=agent"] = 8
    ill["a1"].starts["app=agent"] = math.inf
    ill["b0"].flaps = 8
    ill["b1"].waits[CANARY] = "ContainerCreating"
    ill["c0"].stops[CANARY] = math.inf
    ill["c1"].lost[GPU] = "0"
    kubelet = cluster.kubelets["c1"]
    kubelet.allocatable[GPU], kubelet.report_at = "8", 0.0
    cluster.until("c1 has GPUs", lambda: GPU in cluster.node("c1")["status"]["allocatable"])


def guard_pods_by_budgets(cluster: Fleet) -> None:
    """a2 has a pod with two budgets, and one that is not Ready; for want of it the budget of the
    pod on a3 spares none.
    """
    cluster.kubelets["a2"].ailments.starts["app=queue"] = math.inf
    cluster.deployment("pair", 1, only("a2"))
    cluster.budget("pair", {"maxUnavailable": 1})
    cluster.budget("pair-too", {"maxUnavailable": 1}, app="pair")
    cluster.deployment("queue", 2, only("a2", "a3"))
    cluster.budget("queue", {"minAvailable": 1})

    def is_so() -> bool:
        path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/queue"
        status = cluster.api.get(path).get("status") or {}
        numbers = (status.get("currentHealthy"), status.get("disruptionsAllowed"))
        return cluster.ready_pods() == 12 + 6 + 1 + 1 and numbers == (1, 0)

    cluster.until("one of the queue's pods is Ready", is_so)


def make_well(cluster: Fleet) -> None:
    """Nothing is wrong with any node any more, and b3 is back."""
    cluster.come("b3")
    for name in cluster.nodes:
        kubelet = cluster.kubelets[name]
        kubelet.ailments = type(kubelet.ailments)()
        if kubelet.boots_at is not None:
            kubelet.boots_at = 0.0
    cluster.until("all are Ready", lambda: all(is_ready(cluster.node(n)) for n in cluster.nodes))
    gone = canary_of(cluster, "c0")
    cluster.until("the canary has gone", lambda: gone not in cluster.traces())


def run_early_pod_on(cluster: Fleet, node: str) -> None:
    """An ordinary pod that is bound to a node before that is there."""
    container = {"name": "early", "image": "early"}
    pod = {"metadata": {"name": "early"}, "spec": {"nodeName": node, "containers": [container]}}
    cluster.api.create("/api/v1/namespaces/shop/pods", pod)


def hear(cluster: Fleet, observer: Observer, what: str, words: str) -> None:
    """Wait until the leader says so."""
    cluster.until(f"of {what} is said: {words}", lambda: observer.has_heard(what, words))


def only(*nodes: str) -> Json:
    """A nodeAffinity."""
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(nodes)}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def canary_of(cluster: Fleet, node: str) -> str:
    """The name of the canary that is on the node, "" for none."""
    pods = cluster.api.get("/api/v1/namespaces/nodelife/pods")["items"]
    return next((p["metadata"]["name"] for p in pods if p["spec"].get("nodeName") == node), "")
