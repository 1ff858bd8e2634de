"""How owners replace what a drain takes: StatefulSets in order, Jobs after longer and longer."""

import pytest

from kubectl_nodelife.sim.run import RunSummary
from kubectl_nodelife.sim.scenario import assemble
from tests.sim.documents import Json, found, node, owner, pod, scenario, story
from tests.simulating import play

NODES = [node("a1"), node("a2"), node("a3")]


def drained(*objects: Json) -> RunSummary:
    """Two nodes are drained after ten seconds; a3 takes what they had."""
    drain = {"at": "10s", "drain": {"nodes": ["a1", "a2"], "force": True}}
    return story(duration="5m", objects=[*NODES, *objects], events=[drain])


def member(kind: str, of: str, number: int, on: str) -> Json:
    return pod(f"{of}-{number}", on, owner=(kind, of), terminationGracePeriodSeconds=2)


def created(told: RunSummary) -> list[tuple[str, float]]:
    return [(r.object.name, r.at) for r in found(told, "CreatePod")]


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_statefulset_makes_one_pod_after_another(policy: str) -> None:
    db = owner("StatefulSet", "db", 3, podManagementPolicy=policy)
    pods = [member("StatefulSet", "db", number, "a1") for number in (2, 0, 1)]
    told = drained(db, *pods)
    made, ready = created(told), found(told, "SetPodCondition", type="Ready", status="True")
    assert sorted(name for name, _ in made) == ["db-0", "db-1", "db-2"]
    if policy == "Parallel":
        assert made[-1][1] - made[0][1] < 1
        return
    assert [name for name, _ in made] == ["db-0", "db-1", "db-2"]
    assert [at for _, at in made[1:]] == [record.at for record in ready[:2]]


def test_a_pod_that_is_made_anew_is_bound_as_by_the_api_server() -> None:
    """`assignPod` of its registry sets the condition with the node."""
    gone = {"at": "10s", "delete": {"kind": "Pod", "name": "db-0"}}
    objects = [*NODES, owner("StatefulSet", "db"), member("StatefulSet", "db", 0, "a1")]
    slow = {"podStartDuration": "2m"}
    told = scenario(duration="1m", objects=objects, events=[gone], kubelet=slow)
    done = play(assemble(told))
    (made,) = done.cluster.pods.values()
    condition = made.status.condition("PodScheduled")
    assert made.spec.node_name
    assert condition is not None and condition.status == "True"


def test_a_pod_that_is_not_ready_holds_up_those_behind_it() -> None:
    objects = [
        owner("StatefulSet", "db", 2),
        pod("db-0", "a3", owner=("StatefulSet", "db"), ready=False),
        member("StatefulSet", "db", 1, "a1"),
    ]
    objects[1]["status"] = {"phase": "Running"}
    assert created(drained(*objects)) == []


def test_each_pod_that_a_job_loses_doubles_its_wait() -> None:
    """Both are lost within a second or so, and come back 20 s after the second."""
    pods = [member("Job", "batch", number, "a1") for number in range(2)]
    made = created(drained(owner("Job", "batch"), *pods))
    assert len(made) == 2
    assert all(at == pytest.approx(30, abs=1) for _, at in made)


@pytest.mark.parametrize(
    ("since", "at"),
    [pytest.param("2025-12-31T23:00:00Z", 11, id="long-ago"),
     pytest.param("2026-01-01T00:00:05Z", 15, id="since-5s")],
)  # fmt: skip
def test_a_pod_that_is_not_ready_has_failed_since_then(since: str, at: float) -> None:
    """For its Job (`getFinishTimeFromPodReadyFalseCondition`), where no container has ended."""
    lost = member("Job", "batch", 0, "a1")
    lost["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}],
    }
    ((_, made_at),) = created(drained(owner("Job", "batch"), lost))
    assert made_at == pytest.approx(at, abs=0.3)


def test_a_job_that_allows_no_more_failures_ends_its_other_pods() -> None:
    pods = [member("Job", "batch", 0, "a1"), member("Job", "batch", 1, "a3")]
    told = drained(owner("Job", "batch", backoffLimit=0), *pods)
    assert created(told) == []
    (ended,) = [r for r in found(told, "DeletePod", name="batch-1") if "has failed" in r.reason]
    assert ended.at == pytest.approx(11, abs=1)


TRACKED = ["batch.kubernetes.io/job-tracking"]


def test_a_stopped_pod_stays_until_its_job_has_counted_it() -> None:
    """One that is replaced once it has failed: a drain waits a second more for its object."""
    pods = [pod(f"{name}-0", "a1", owner=("Job", name), terminationGracePeriodSeconds=5)
            for name in ("tracked", "plain")]  # fmt: skip
    pods[0]["metadata"]["finalizers"] = TRACKED
    jobs = [owner("Job", name, podReplacementPolicy="Failed") for name in ("tracked", "plain")]
    ends = {}
    for job, each in zip(jobs, pods, strict=True):
        told = drained(job, each)
        (stopped,) = found(told, "DeletePod", name=each["metadata"]["name"], gracePeriodSeconds=0)
        (through,) = found(told, "RecordEvent", reason="Drained", name="a1")
        ends[job["metadata"]["name"]] = through.at - stopped.at
        ((_, made_at),) = created(told)
        assert made_at == pytest.approx(stopped.at + 10, abs=1)
    assert ends["plain"] < 1 <= ends["tracked"] < 2.1


@pytest.mark.parametrize(("touched", "made_at"), [(18.5, 20.5), (17.5, 20), (None, 20)])
def test_a_change_in_the_last_second_of_a_back_off_puts_the_pod_off(
    touched: float | None, made_at: float
) -> None:
    """A second after any change of its pods the Job is synced, which then waits a second at least
    (`enqueueSyncJobWithDelay`)."""
    pods = [member("Job", "batch", 0, "a1"), pod("batch-1", "a3", owner=("Job", "batch"))]
    events: list[Json] = [{"at": "10s", "drain": {"nodes": ["a1"], "force": True}}]
    if touched is not None:
        label = {**pods[1], "metadata": {**pods[1]["metadata"], "labels": {"app": "seen"}}}
        events.append({"at": f"{touched}s", "apply": label})
    told = story(duration="1m", objects=[*NODES, owner("Job", "batch"), *pods], events=events)
    ((_, at),) = created(told)
    assert at == pytest.approx(made_at, abs=0.2)
