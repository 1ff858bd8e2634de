"""Node upgrades on a real control plane: how they end, whatever befalls nodes, people and leaders.

One cluster for all of it; each test takes nodes of its own, and ends with nothing left of them.
"""

from collections.abc import Iterator

import pytest
import yaml

from tests.real.upgrade_observer import Observer
from tests.real.upgrading import QUICK, SETTINGS, Fleet, Operator, fleet, is_ready, operating

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


def test_a_job_and_an_agent_do_the_work_though_the_leader_is_killed_meanwhile(
    cluster: Fleet, operator: Operator
) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"ends": "Succeeded", "start": "4"}},
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
        operator.begin("start", "b2", "--job", str(path), *FLAGS)
        cluster.until("its Job is there", lambda: len(jobs_of(cluster)) == 1)
        (job,) = jobs_of(cluster)
        operator.kill()
        other = Operator(cluster, "other")
        other.begin("start", "b2", "--job", str(path), *FLAGS)
        cluster.await_state("b2", "Settling", "Proving")
        assert jobs_of(cluster) == [job], "the Job of the leader that died was found again"
        assert other.end() == 0, other.said()
        assert cluster.traces() == []
        wait = ("start", "c2", "--wait", "--target", "label:upgraded=yes", *FLAGS)
        operator.begin(*wait)
        cluster.await_state("c2", "Working")
        operator.kill()
        cluster.api.merge("/api/v1/nodes/c2", {"metadata": {"labels": {"upgraded": "yes"}}})
        assert other.type(*wait) == 0, other.said()
        assert_clean(cluster, other, observer)


def jobs_of(cluster: Fleet) -> list[str]:
    """The uids of the Jobs of upgrades."""
    found = cluster.api.get("/apis/batch/v1/namespaces/nodelife/jobs")["items"]
    return [job["metadata"]["uid"] for job in found]


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
        assert operator.type("abort") == 1, operator.said()
        assert "no process leads the run" in operator.said(), operator.said()
        assert operator.type("clean", "--yes") == 0, operator.said()
        assert cluster.mark("a3")["state"] == "Failed", "it is left to a person"
        cluster.kubelets["a3"].boots_at = 0.0
        cluster.until("a3 is back", lambda: is_ready(cluster.node("a3")))
        proof = ("prove", "a3", "--ready-for", "2s", *SETTINGS, "--yes")
        assert operator.type(*proof) == 0, operator.said()
        assert "marks taken off: proven, and still cordoned" in operator.said()
        assert cluster.traces() == ["a3: cordoned"], "a person takes it off"
        cluster.api.merge("/api/v1/nodes/a3", {"spec": {"unschedulable": None}})
        assert_clean(cluster, operator, observer)
