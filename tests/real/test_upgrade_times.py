"""What `upgrade plan` foretells of time and of the lowest point, held against `upgrade start`.

Three upgrades on a real control plane: reboots in two batches, Jobs on nodes whose pods' budget
makes them wait for one another, and an agent's work, zone after zone.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.objects import manifest
from tests.real.upgrade_observer import Observer
from tests.real.upgrading import LEASE, SETTINGS, Fleet, Operator, fleet

PACE = ("--ready-for", "2s", "--node-soak", "1s", "--soak", "3s")
BUDGET = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web"
GRACE = SETTINGS[:4]
WORDS = ("--yes", *SETTINGS[4:])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("times")) as found:
        yield found


def hold(cluster: Fleet, *words: str) -> dict[str, Any]:
    """Plan the upgrade, start it, and hold what it takes against the plan; the plan."""
    operator = Operator(cluster, "one")
    plan = operator.ask("plan", *words, *PACE, *GRACE)
    estimate, lowest = plan["estimate"], plan["lowest"]["all"]
    began = time.monotonic()
    with Observer(cluster, floor=lowest) as observer:
        code = operator.type("start", *words, *PACE, *GRACE, *WORDS)
    took = time.monotonic() - began
    low, high = estimate["lowSeconds"], estimate["highSeconds"]
    assert code == 0, operator.said()
    assert low <= took <= high, operator.said()
    assert high <= 8 * low, "a range that holds everything says nothing, even of a minute"
    assert observer.lowest == lowest, operator.said()
    assert observer.faults == []
    assert cluster.traces() == [], operator.said()
    cluster.api.delete(LEASE)
    return plan


def test_reboots_of_six_nodes_in_three_zones(cluster: Fleet) -> None:
    nodes = ("a0", "a1", "b0", "b1", "c0", "c1")
    cluster.api.merge(BUDGET, {"spec": {"maxUnavailable": 6}})
    reboot = 'echo 2 > "$REBOOTS/$NODE"; sleep 3'
    work = ("--run", reboot, "--target", "bootID=changed", "--expect-work", "3s")
    plan = hold(cluster, *nodes, *work, "--max-unavailable", "4", "--canary", "2", "--zones", "0")
    assert [len(step["nodes"]) for step in plan["steps"]] == [2, 4]
    cluster.api.merge(BUDGET, {"spec": {"maxUnavailable": 1}})


def test_jobs_on_nodes_that_wait_for_a_budget(cluster: Fleet) -> None:
    container = {"name": "work", "image": "tool", "args": ["$(NODE)"]}
    template = {
        "metadata": {"labels": {"ends": "Succeeded", "start": "2"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    path = cluster.plane.folder / "job.yaml"
    path.write_text(
        yaml.safe_dump(manifest("Job", "work", spec={"backoffLimit": 0, "template": template}))
    )
    on_nodes = cluster.api.get("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb")["items"]
    nodes = sorted({pod["spec"]["nodeName"] for pod in on_nodes})[:2]
    assert len(nodes) == 2
    limits = ("--max-unavailable", "2", "--canary", "2", "--zones", "0")
    plan = hold(cluster, *nodes, "--job", str(path), "--expect-work", "3s", *limits)
    claimed = {node["name"]: node["times"]["claimed"] for node in plan["nodes"]}
    assert len(set(claimed.values())) > 1, "the budget lets them go one after another"


def test_an_agents_work_zone_after_zone(cluster: Fleet) -> None:
    nodes, end = ("a2", "b2"), threading.Event()

    def work() -> None:
        done: set[str] = set()
        while not end.wait(0.3):
            for name in set(nodes) - done:
                if cluster.state(name) == "Working":
                    end.wait(2)
                    patch = {"metadata": {"labels": {"upgraded": "yes"}}}
                    cluster.api.merge(f"/api/v1/nodes/{name}", patch)
                    done.add(name)

    agent = threading.Thread(target=work, daemon=True)
    agent.start()
    try:
        wait = ("--wait", "--target", "label:upgraded=yes", "--expect-work", "3s")
        plan = hold(cluster, *nodes, *wait, "--max-unavailable", "2")
        assert [step["zones"] for step in plan["steps"]] == [["a"], ["b"]]
    finally:
        end.set()
        agent.join(10)
