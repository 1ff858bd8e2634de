"""kubectl as it runs: the 5 s grid, its rate limit, its looks, its order."""

import pytest

from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import budget, merged, node, owned, plan, pod, pods_of, replica_set, workload
from tests.objects import webhook

NODES = [*node("a1"), *node("a2"), *node("a3")]


def test_more_than_ten_pods_are_evicted_at_five_a_second() -> None:
    answer = plan(NODES, replica_set("web", *["a1"] * 20))
    starts = sorted(p.start or 0 for p in answer.pods())
    assert starts[9] - starts[0] < 0.01
    assert starts[19] - starts[0] == pytest.approx(2.0, abs=0.01)
    assert answer.verdict == "ready"
    # 20 pods that are looked at every second want 20 requests a second and get 5.
    assert answer.nodes[0].end is not None and answer.nodes[0].end > 6


def test_looks_fall_on_whole_seconds_after_the_eviction() -> None:
    answer = plan(NODES, replica_set("web", "a1", spec={"terminationGracePeriodSeconds": 7}))
    web = pods_of(answer)["web-0"]
    assert web.start is not None and web.gone is not None and answer.nodes[0].end is not None
    assert web.gone - web.start == pytest.approx(7.1)
    assert answer.nodes[0].end - web.start == pytest.approx(8.01)


def test_refused_evictions_are_tried_again_every_five_seconds() -> None:
    guard = budget("web", "web", healthy=2, desired=2, expected=2, maxUnavailable=0)
    answer = plan(NODES, replica_set("web", "a1", "a2"), guard, timeout_ns=25 * SECOND_NS)
    assert pods_of(answer)["web-0"].tries == 5
    assert answer.nodes[0].end == pytest.approx(25.2, abs=0.05)


def test_two_evictions_under_one_budget_conflict() -> None:
    """The second waits half a second inside the API server, and then goes."""
    guard = budget("web", "web", healthy=4, desired=2, expected=4, maxUnavailable=2)
    answer = plan(NODES, replica_set("web", "a1", "a1", "a2", "a2"), guard)
    first, second = sorted(p.start or 0 for p in answer.pods() if p.start is not None)[:2]
    assert second - first == pytest.approx(0.54, abs=0.05)
    assert answer.verdict == "ready"


def test_reading_and_cordoning_many_nodes_takes_its_time() -> None:
    """Forty GETs and forty PATCHes of two clients: thirty of each wait for 200 ms. The second
    client's bucket is full again when the first is through.
    """
    names = [f"n{i:02d}" for i in range(40)]
    nodes = [obj for name in names for obj in node(name)]
    answer = plan(nodes, replica_set("web", "n00"), nodes=tuple(names))
    assert pods_of(answer)["web-0"].start == pytest.approx(12.3, abs=0.3)


def test_delete_path_stops_at_the_first_hard_error() -> None:
    hook = webhook(
        "pods",
        on="DELETE",
        failurePolicy="Fail",
        objectSelector={"matchLabels": {"app": "b"}},
        clientConfig={"service": {"namespace": "x", "name": "x"}},
    )
    pods = [pod(name, "a1") for name in ("a", "b", "c")]
    answer = plan(NODES, pods, hook, force=True, disable_eviction=True)
    found = pods_of(answer)
    assert [found[name].verdict for name in "abc"] == ["ready", "never", "never"]
    assert found["b"].gate == "webhook" and found["c"].start is None


def test_an_owner_that_wants_fewer_makes_no_replacement() -> None:
    pods = [owned("ReplicaSet", "web", "a1", i) for i in range(3)]
    answer = plan(NODES, workload("ReplicaSet", "web", 2), pods)
    replaced = [p for p in answer.pods() if p.landing and p.landing[0].node and p.end is not None]
    assert len(replaced) <= 2


def test_a_job_waits_before_it_tries_again() -> None:
    job = workload("Job", "batch", 0)
    answer = plan(NODES, job, owned("Job", "batch", "a1", 0))
    found = pods_of(answer)["batch-0"]
    assert found.start is not None and found.end is not None and found.end - found.start > 10


def test_history_is_learnt_from_siblings() -> None:
    later = {"conditions": [{"type": "Ready", "status": "True"}]}
    later["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:40Z"
    slow = replica_set("web", "a1", "a2", status=later)
    web = pods_of(plan(NODES, slow))["web-0"]
    assert web.start is not None and web.end is not None
    assert web.end - web.start == pytest.approx(40, abs=1)


def test_the_estimate_is_no_wider_than_agreed() -> None:
    guard = budget("web", "web", healthy=6, desired=5, expected=6, maxUnavailable=1)
    long = {"terminationGracePeriodSeconds": 60}
    answer = plan(NODES, replica_set("web", *["a1"] * 6, spec=long), guard)
    assert answer.estimate is not None
    low, high = answer.estimate.low, answer.estimate.high
    assert high - low <= max(15, low) + 60
    assert answer.nodes[0].end is not None and low <= answer.nodes[0].end <= high


def test_the_command_names_every_flag() -> None:
    options = DrainOptions(
        force=True,
        ignore_daemonsets=True,
        delete_emptydir_data=True,
        grace_period_seconds=0,
        timeout_ns=2 * MINUTE_NS,
        disable_eviction=True,
        pod_selector="app=web,tier!=x",
        skip_wait_seconds=20,
    )
    assert options.command("a1", "b 2") == (
        "kubectl drain a1 'b 2' --ignore-daemonsets --delete-emptydir-data --force"
        " --grace-period=0 --timeout=2m0s --disable-eviction --pod-selector='app=web,tier!=x'"
        " --skip-wait-for-delete-timeout=20"
    )


def test_hand_written_objects_without_status_and_uid() -> None:
    guard = budget("web", "web", healthy=0, desired=0, expected=0, maxUnavailable=1)
    del guard["status"]
    del guard["metadata"]["generation"]
    pods = [merged(p, {"metadata": {"uid": ""}}) for p in replica_set("web", "a1", "a2")[1:]]
    answer = plan(NODES, workload("ReplicaSet", "web", 2), pods, guard)
    assert answer.verdict == "ready" and len(answer.pods()) == 1
