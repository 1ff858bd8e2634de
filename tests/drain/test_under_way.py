"""What is under way at the plan's moment goes on: deletions of pods and of namespaces."""

from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.results import DrainPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.dumps.dump import load
from kubectl_nodelife.report.drain import outage_length
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import (
    Json,
    budget,
    merged,
    namespace,
    node,
    plan,
    pods_of,
    replica_set,
    stateful_set,
)

NODES = [*node("a1"), *node("a2"), *node("a3")]
GOING = {"deletionTimestamp": "2026-01-01T01:00:08Z", "deletionGracePeriodSeconds": 10}


def deleted(at: str) -> Json:
    """The default namespace, being deleted since then."""
    return merged(namespace(phase="Terminating"), {"metadata": {"deletionTimestamp": at}})


@pytest.mark.parametrize(
    ("since", "gone"),
    [
        pytest.param("2026-01-01T00:59:57Z", 4, id="in-two-seconds"),
        pytest.param("2026-01-01T00:59:50Z", 2, id="any-moment"),
    ],
)
def test_a_namespace_takes_its_pods_along_after_five_seconds(since: str, gone: float) -> None:
    answer = plan(NODES, replica_set("web", "a1"), deleted(since))
    web = pods_of(answer)["web-0"]
    assert (web.verdict, web.gate, web.start) == ("slow", "namespace-terminating", None)
    assert web.gone == pytest.approx(gone, abs=0.5) and web.landing == []
    assert answer.estimate is not None


def test_a_namespace_deleted_after_the_last_sign_of_life_was_deleted_by_now() -> None:
    """A dump's moment is its newest sign of life, a second older than what else the dump shows."""
    objects = (NODES, replica_set("web", "a1"))
    late, now = (plan(*objects, deleted(f"2026-01-01T01:00:0{s}Z")).estimate for s in (1, 0))
    assert late == now
    assert now is not None and now.low < 5  # kubectl's second look, after 5 s, finds them marked


def test_a_namespace_that_has_not_for_minutes_never_will() -> None:
    answer = plan(NODES, replica_set("web", "a1"), deleted("2026-01-01T00:55:00Z"))
    assert answer.verdict == "never"


def test_a_finalizer_holds_a_pod_of_a_namespace_that_goes() -> None:
    """kubectl waits because of the namespace, for ever because of the finalizer."""
    held = {**GOING, "finalizers": ["example.com/hold"]}
    objects = (NODES, replica_set("web", "a1", metadata=held), deleted("2026-01-01T00:59:50Z"))
    web = pods_of(plan(*objects))["web-0"]
    assert (web.verdict, web.gate, web.start) == ("never", "namespace-terminating", None)
    assert "example.com/hold" in web.reason
    assert web.remedy is not None and "finalizers" in web.remedy.change


def test_a_pod_that_goes_already_comes_back_and_refills_the_budget() -> None:
    guard = budget("db", "db", healthy=1, desired=1, expected=2, maxUnavailable=1)
    objects = stateful_set("db", "a1", "a1")
    objects[1] = merged(objects[1], {"metadata": GOING})
    found = pods_of(plan(NODES, objects, guard))
    assert (found["db-0"].verdict, found["db-1"].verdict) == ("ready", "slow")
    assert found["db-0"].end is not None and 9 < found["db-0"].end < 12
    assert found["db-1"].start is not None and 10 < found["db-1"].start < 17


def test_a_pod_too_many_that_goes_does_not_come_back() -> None:
    """Scaled down to one: nothing takes the place of the second."""
    objects = stateful_set("db", "a1", "a1")
    objects[0]["spec"]["replicas"] = 1
    objects[2] = merged(objects[2], {"metadata": GOING})
    found = pods_of(plan(NODES, objects))
    assert found["db-1"].gone is not None and found["db-1"].end is None
    assert found["db-0"].end is not None


def test_a_budget_whose_sync_fails_from_the_beginning_says_so() -> None:
    failure = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": "jobs.batch does not implement the scale subresource",
    }
    never = {"observedGeneration": 0, "disruptionsAllowed": 0, "conditions": [failure]}
    guard = budget("web", "web", healthy=0, desired=0, expected=0, status=never, maxUnavailable=1)
    web = pods_of(plan(NODES, replica_set("web", "a1"), guard))["web-0"]
    assert (web.verdict, web.gate) == ("never", "pdb-stale")
    assert "jobs.batch" in web.reason


# --- what the cluster's own controllers had begun ------------------------------------------------

TWO_ZONES = Path(__file__).parents[1] / "dumps" / "two-zones"


def plan_of_two_zones() -> DrainPlan:
    dump = load((str(TWO_ZONES),), None, None)
    snapshot = PlanSnapshot(dump.objects, dump.moment_ns)  # as if all kinds had been read
    options = DrainOptions(ignore_daemonsets=True, delete_emptydir_data=True, force=True)
    return make_plan(snapshot, ["worker-a3"], options)


def test_a_drain_waits_for_evictions_by_the_taint_manager() -> None:
    """Budget web has a pod on worker-a2, which is lost and is deleted in 2m42s, and one on
    worker-b2, which was not heard of for 20 s: Unknown at 30 s, its pod is deleted at 5m30s. The
    low end is that of a kubelet which was only slow.
    """
    answer = plan_of_two_zones()
    assert answer.verdict == "slow"
    web = pods_of(answer)["web-787768cc7c-prmbl"]
    assert web.reason == (
        "waits 5m36s for budget web: taint-eviction deletes web-787768cc7c-fkqf9 at 2m42s,"
        " taint-eviction deletes web-787768cc7c-g999x at 5m30s"
    )
    assert answer.estimate is not None
    assert 150 < answer.estimate.low < 210 and 365 < answer.estimate.high < 400


def test_what_stays_and_what_is_not_known() -> None:
    """A StatefulSet's pod on a lost node is stuck for as long as its kubelet does not report."""
    found = {f"{w.kind}/{w.name}": w for w in plan_of_two_zones().workloads}
    assert found["StatefulSet/db"].seconds is None
    assert outage_length(found["StatefulSet/db"]) == "does not end by itself"


def test_explain_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "pod", "web-787768cc7c-prmbl", "-n", "shop", "-f", str(TWO_ZONES)])
    said = " ".join(capsys.readouterr().out.split())
    assert "waits 5m36s for budget web: taint-eviction deletes" in said
    assert "It never goes" not in said


def restarted(name: str, on: str, ago: str, state: Json | None = None) -> Json:
    """A pod whose only container began anew then, and is not ready yet."""
    running = state or {"running": {"startedAt": ago}}
    container = {"name": "c", "ready": False, "restartCount": 3, "state": running}
    return merged(
        replica_set("web", on)[1],
        {
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [container],
            },
        },
    )


@pytest.mark.parametrize(
    ("ago", "state", "verdict"),
    [
        pytest.param("2026-01-01T01:00:00Z", None, "slow", id="just now"),
        pytest.param("2026-01-01T00:30:00Z", None, "never", id="half an hour ago"),
        pytest.param("", {"waiting": {"reason": "CrashLoopBackOff"}}, "never", id="backs off"),
    ],
)
def test_a_budget_refills_once_a_restart_has_ended(
    ago: str, state: Json | None, verdict: str
) -> None:
    """A container that has run for longer than its like took to be ready is held to stay so."""
    guard = budget("web", "web", healthy=2, desired=2, expected=3, minAvailable=2)
    answer = plan(
        NODES, replica_set("web", "a1", "a2"), restarted("web-9", "a3", ago, state), guard
    )
    assert answer.verdict == verdict
    if verdict == "slow":
        web = pods_of(answer)["web-0"]
        assert web.gate == "pdb" and web.tries > 1
