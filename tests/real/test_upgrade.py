"""Node upgrades on a real control plane: how they end, whatever befalls nodes, people and leaders.

One cluster for all of it; each test takes nodes of its own, and ends with nothing left of them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
import yaml

from tests.real.upgrade_observer import Observer
from tests.real.upgrading import (
    LEASE,
    QUICK,
    SETTINGS,
    Fleet,
    Operator,
    fleet,
    is_ready,
    operating,
)

REBOOT = 'echo "1.5" > $REBOOTS/$NODE'
FLAGS = (*QUICK, *SETTINGS)
CHANGED = ("--target", "bootID=changed")
RUN = ("--run", REBOOT, *CHANGED)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("upgrade")) as found:
        yield found


@pytest.fixture()
def operator(cluster: Fleet) -> Iterator[Operator]:
    with operating(cluster) as one:
        yield one


def assert_clean(cluster: Fleet, operator: Operator, observer: Observer) -> None:
    """Nothing is left after `clean --release-failed`, and nothing forbidden was seen."""
    code = operator.type("clean", "--release-failed", "--yes")
    assert code == 0, operator.said()
    assert cluster.traces() == [], operator.said()
    assert observer.faults == []


def test_a_run_reboots_a_node_of_each_zone_and_leaves_no_trace(
    cluster: Fleet, operator: Operator
) -> None:
    nodes = ("a0", "b0", "c0")
    boots = {name: cluster.node(name)["status"]["nodeInfo"]["bootID"] for name in nodes}
    with Observer(cluster, floor=8) as observer:
        assert operator.type("start", *nodes, *RUN, *FLAGS) == 0, operator.said()
        after = {name: cluster.node(name)["status"]["nodeInfo"]["bootID"] for name in nodes}
        assert all(boots[name] != after[name] for name in nodes)
        assert cluster.traces() == [], "nothing is left even before `clean`"
        assert operator.ask("status")["phase"] == "Finished"
        assert_clean(cluster, operator, observer)


def test_a_leader_killed_at_work_and_at_the_proof_is_gone_on_with_from_another_machine(
    cluster: Fleet, operator: Operator
) -> None:
    with Observer(cluster, floor=8) as observer:
        operator.begin("start", "a1", "b1", *RUN, *FLAGS)
        kubelet = cluster.kubelets["a1"]
        cluster.until("a1 reboots", lambda: kubelet.boots_at is not None or kubelet.reboots > 0)
        operator.kill()
        other = Operator(cluster, "other")
        other.begin("start", "a1", "b1", *RUN, *FLAGS)
        cluster.await_state("a1", "Proving")
        time.sleep(1)
        other.kill()
        third = Operator(cluster, "third")
        assert third.type("start", "a1", "b1", *RUN, *FLAGS) == 0, third.said()
        lease = cluster.api.get(LEASE)
        assert lease["spec"]["leaseTransitions"] == 2 and not lease["spec"]["holderIdentity"]
        assert cluster.kubelets["a1"].reboots == 1, "the work was not done twice"
        assert_clean(cluster, third, observer)


def test_of_two_operators_one_leads_and_a_pause_is_a_word(
    cluster: Fleet, operator: Operator
) -> None:
    with Observer(cluster, floor=8) as observer:
        operator.begin("start", "a2", *RUN, *FLAGS)
        cluster.await_state("a2", "Draining", "Working", "Settling")
        other = Operator(cluster, "other")
        assert other.type("start", "a2", *RUN, *FLAGS) == 5
        assert "is alive" in other.said() or "leads the upgrade" in other.said(), other.said()
        assert other.type("start", "b2", *RUN, *FLAGS) == 5
        assert "has another order" in other.said()
        assert other.type("pause", "--because", "lunch") == 0, other.said()
        cluster.until("it is paused", lambda: other.ask("status")["phase"] == "Paused")
        cluster.await_state("a2", "Done", "Soaking")
        assert other.type("resume", "--lease-duration", "4s") == 0, other.said()
        assert operator.end() == 0, operator.said()
        assert_clean(cluster, operator, observer)


def test_a_job_does_the_work_and_an_agent_another(cluster: Fleet, operator: Operator) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"ends": "Succeeded", "start": "1"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "work", "image": "tool", "args": ["$(NODE)"]}],
                },
            },
        },
    }
    path = operator.folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    with Observer(cluster, floor=8) as observer:
        assert operator.type("start", "b2", "--job", str(path), *FLAGS) == 0, operator.said()
        assert cluster.traces() == []
        wait = ("--wait", "--target", "label:upgraded=yes")
        operator.begin("start", "c2", *wait, *FLAGS)
        cluster.await_state("c2", "Working")
        cluster.api.merge("/api/v1/nodes/c2", {"metadata": {"labels": {"upgraded": "yes"}}})
        assert operator.end() == 0, operator.said()
        assert_clean(cluster, operator, observer)


def test_a_node_that_never_returns_stops_the_run_and_stays_out_of_service(
    cluster: Fleet, operator: Operator
) -> None:
    with Observer(cluster, floor=8) as observer:
        never = ("--run", 'echo "600" > $REBOOTS/$NODE', "--return-timeout", "8s")
        code = operator.type("start", "a3", "b3", *never, *FLAGS, "--canary", "1")
        assert code == 1, operator.said()
        assert cluster.mark("a3")["state"] == "Failed"
        assert cluster.node("a3")["spec"]["unschedulable"] is True
        assert cluster.state("b3") == "", "the next one was left alone"
        status = operator.ask("status")
        assert (status["phase"], status["failures"]) == ("Paused", ["a3"])
        assert operator.type("abort", *SETTINGS, "--yes") == 1, operator.said()
        cluster.kubelets["a3"].boots_at = 0.0
        cluster.until("a3 is back", lambda: is_ready(cluster.node("a3")))
        proof = ("prove", "a3", "--ready-for", "2s", *SETTINGS, "--yes")
        assert operator.type(*proof) == 0, operator.said()
        assert "marks taken off: proven, and still cordoned" in operator.said()
        assert cluster.traces() == ["a3: cordoned"], "a person takes it off"
        cluster.api.merge("/api/v1/nodes/a3", {"spec": {"unschedulable": None}})
        assert_clean(cluster, operator, observer)


def test_people_have_the_last_word(cluster: Fleet, operator: Operator) -> None:
    with Observer(cluster, floor=8) as observer:
        cluster.api.merge("/api/v1/nodes/b0", {"spec": {"unschedulable": True}})
        observer.cordoned_by_person("b0")
        slow = ("--run", "sleep 60", "--canary", "1")
        nodes = ("b0", "c0", "c1")
        operator.begin("start", *nodes, *slow, *FLAGS[:-6], *SETTINGS)
        cluster.until("one is at work", lambda: any(cluster.state(n) == "Working" for n in nodes))
        name = next(n for n in nodes if cluster.state(n) == "Working")
        assert name != "b0", "somebody else's cordon is no candidate"
        cluster.api.merge(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
        cluster.await_state(name, "Held")
        operator.signal(signal.SIGINT)
        time.sleep(1)
        operator.signal(signal.SIGINT)
        assert operator.end(30) == 130, operator.said()
        assert operator.type("abort", "--now", *SETTINGS, "--yes") in (0, 1), operator.said()
        assert operator.type("clean", "--release-failed", "--yes") == 0, operator.said()
        assert cluster.traces() == ["b0: cordoned"]
        assert observer.faults == []
    cluster.api.merge("/api/v1/nodes/b0", {"spec": {"unschedulable": None}})
