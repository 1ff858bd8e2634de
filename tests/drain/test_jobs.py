"""Draining a Job's pods: each counts as a failure, and the Job waits longer or gives up."""

import pytest

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.workloads.owners import JOB_TRACKING
from tests.drain.build import NOW_NS, budget, node, owned, plan, pods_of, snapshot, workload

NODES = [*node("a1"), *node("a2"), *node("a3")]


def test_one_failure_more_doubles_the_wait() -> None:
    """Two pods that go together are two failures: both come back after 20 s, not after 10."""
    pods = [owned("Job", "batch", "a1", i) for i in range(2)]
    found = pods_of(plan(NODES, workload("Job", "batch", 0), pods)).values()
    assert [pod.end is not None and 19 < pod.end < 26 for pod in found] == [True, True]


def test_failures_before_the_drain_count() -> None:
    job = workload("Job", "batch", 0) | {"status": {"failed": 2}}
    found = pods_of(plan(NODES, job, owned("Job", "batch", "a1", 0)))["batch-0"]
    assert found.end is not None and 39 < found.end < 46


def test_a_job_over_its_limit_ends_its_other_pods() -> None:
    """The budget keeps the second pod only until the Job itself deletes it, a moment later."""
    guard = budget("batch", "batch", healthy=2, desired=1, expected=2, minAvailable=1)
    pods = [owned("Job", "batch", "a1", i) for i in range(2)]
    answer = plan(NODES, workload("Job", "batch", 0, backoffLimit=0), pods, guard)
    assert answer.verdict in ("ready", "slow")
    found = pods_of(answer).values()
    assert all(pod.landing == [] and pod.end is None for pod in found)
    starts = sorted(pod.start or 0.0 for pod in found)
    assert starts[0] < 1 and starts[1] < 6


@pytest.mark.parametrize("limit", [1, 2])
def test_a_job_within_its_limit_does_not(limit: int) -> None:
    guard = budget("batch", "batch", healthy=2, desired=1, expected=2, minAvailable=1)
    pods = [owned("Job", "batch", "a1", i) for i in range(2)]
    answer = plan(NODES, workload("Job", "batch", 0, backoffLimit=limit), pods, guard)
    found = sorted(pods_of(answer).values(), key=lambda pod: pod.start or 0.0)
    assert found[1].start is not None and 10 < found[1].start < 17
    assert bool(found[1].landing) == (limit == 2)


@pytest.mark.parametrize("finalizers", [[], [JOB_TRACKING]])
@pytest.mark.parametrize("cut_ms", [0, 250, 500, 999])
def test_the_estimate_holds_in_whichever_part_of_a_second_the_command_is_typed(
    cut_ms: int, finalizers: list[str]
) -> None:
    """The back-off counts from whole seconds, those of the pod's deletion or of its Ready condition
    while it is there: kubectl's try after 10 s is in time, or in vain.
    """
    guard = budget("batch", "batch", healthy=2, desired=1, expected=2, minAvailable=1)
    kept = {"metadata": {"finalizers": finalizers}}
    pods = [owned("Job", "batch", "a1", i, **kept) for i in range(2)]
    objects = (NODES, workload("Job", "batch", 0), pods, guard)
    taken = snapshot(*objects, now_ns=NOW_NS + cut_ms * MILLISECOND_NS)
    found = make_plan(taken, ("a1",), DrainOptions()).estimate
    assert found is not None
    assert 9 < found.low < 11 and found.high > 15


def test_whether_earlier_failures_count_is_in_the_estimate() -> None:
    """The second pod waits for the first one's successor: 10 s where the Job's controller was
    started anew since pods failed, else 40 s."""
    guard = budget("batch", "batch", healthy=2, desired=1, expected=2, minAvailable=1)
    job = workload("Job", "batch", 0) | {"status": {"failed": 2}}
    pods = [owned("Job", "batch", "a1", i) for i in range(2)]
    found = make_plan(snapshot(NODES, job, pods, guard), ("a1",), DrainOptions()).estimate
    assert found is not None
    assert 9 < found.low < 16 and found.high > 40


def test_only_failed_pods_are_replaced_after_the_grace() -> None:
    job = workload("Job", "batch", 0, podReplacementPolicy="Failed")
    found = pods_of(plan(NODES, job, owned("Job", "batch", "a1", 0, grace=8)))["batch-0"]
    assert found.gone is not None and found.end is not None
    assert 9 < found.end - found.gone < 15


def test_a_pod_that_its_job_counts_as_failed_has_a_landing() -> None:
    """Its finalizer holds the object in phase Failed until then, as it was not before the drain."""
    job = workload("Job", "batch", 0, podReplacementPolicy="Failed")
    pod = owned("Job", "batch", "a1", 0, grace=2)
    pod["metadata"]["finalizers"] = [JOB_TRACKING]
    found = pods_of(plan(NODES, job, pod))["batch-0"]
    assert [place.node for place in found.landing] == ["a2", "a3"]


def test_a_finished_pod_is_not_missed() -> None:
    over = {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}
    pods = [owned("Job", "batch", "a1", 0, status=over), owned("Job", "batch", "a1", 1)]
    found = pods_of(plan(NODES, workload("Job", "batch", 0), pods))
    assert found["batch-0"].landing == [] and found["batch-1"].landing != []
