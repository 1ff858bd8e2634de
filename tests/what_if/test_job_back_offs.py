"""How long a Job waits before it replaces a pod: exact where the play made all its failures itself,
from the least to the most where some were before, since the count is in its controller's memory.
"""

from typing import Any

import pytest

from kubectl_nodelife.outlook.what_if.document import WorkloadFuture
from tests.what_if.stand import Document, ask, at, of, workload

NODES = ("a1", "a2")
READY_S = 2.0
"""The stand's pods are Ready so long after they were bound."""
AROUND_S = 4.0
"""A Job is synced a second after its pods change, and its instants have whole seconds."""


def _job(status: Document, **spec: Any) -> list[Document]:
    owner, *pods = workload("batch", NODES, "Job")
    spec = {"template": owner["spec"]["template"], "parallelism": 2, **spec}
    owner |= {"apiVersion": "batch/v1", "spec": spec, "status": status}
    for pod in pods:
        pod["spec"]["restartPolicy"] = "Never"
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    return [owner, *pods]


def _lost(status: Document, pods: int = 1, **spec: Any) -> WorkloadFuture:
    names = " ".join(f"default/batch-{number}" for number in range(pods))
    return of(ask(f"delete pod {names}", _job(status, **spec)), "batch")


def _back_s(found: WorkloadFuture) -> tuple[float, float, float]:
    """Fast, shown and slow."""
    low, shown, high = found.low.back_seconds, found.back_seconds, found.high.back_seconds
    assert low is not None and shown is not None and high is not None
    return low, shown, high


def _are(found: WorkloadFuture, *back_offs_s: float) -> None:
    for back_s, back_off_s in zip(_back_s(found), back_offs_s, strict=True):
        assert back_off_s + READY_S - 1 <= back_s <= back_off_s + READY_S + AROUND_S


@pytest.mark.parametrize("status", [{}, {"succeeded": 3}])
@pytest.mark.parametrize(("pods", "back_off_s"), [(1, 10), (2, 20)])
def test_failures_of_the_play_alone_leave_nothing_open(
    status: Document, pods: int, back_off_s: float
) -> None:
    """Upstream's back-off has no jitter: 10 s, doubled with each failure. Where the Job has never
    failed before, its controller's count begins with none, whenever that was started."""
    _are(_lost(status, pods), back_off_s, back_off_s, back_off_s)


@pytest.mark.parametrize(
    ("status", "shown_s"),
    [
        pytest.param({"failed": 3}, 80, id="counted-unless-the-controller-was-started-anew"),
        pytest.param({"failed": 3, "succeeded": 1}, 10, id="forgotten-if-the-success-was-later"),
    ],
)
def test_failures_before_the_play_may_count_or_not(status: Document, shown_s: float) -> None:
    _are(_lost(status), 10, shown_s, 80)


def test_the_longest_back_off_is_ten_minutes() -> None:
    _are(_lost({"failed": 50}, backoffLimit=100), 10, 600, 600)


@pytest.mark.parametrize(("pods", "gives_up"), [(1, False), (2, True)])
def test_the_limit_counts_all_failures_in_each_play(pods: int, gives_up: bool) -> None:
    """It is compared with the Job's status (`exceedsBackoffLimit`), not with the back-off's count,
    so that no play allows more failures than another."""
    found = _lost({"failed": 3, "succeeded": 1}, pods, backoffLimit=4)
    backs = (found.low.back_seconds, found.back_seconds, found.high.back_seconds)
    assert [back is None for back in backs] == [gives_up] * 3


_IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
_COUNTS = {"rules": [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


@pytest.mark.parametrize(
    ("age_s", "back_off_s"),
    [
        pytest.param(8, 10, id="no-back-off-was-over-when-its-youngest-pod-was-made"),
        pytest.param(30, 40, id="2-failures-that-took-20s"),
        pytest.param(100, 160, id="4-failures-the-last-of-which-took-80s"),
        pytest.param(7200, 600, id="any-number"),
    ],
)
def test_ignored_failures_of_before_count_as_far_as_there_can_be_any(
    age_s: int, back_off_s: int
) -> None:
    """A pod takes the place of another only when the back-off after all failures is over, so that
    the last one was no longer than from the Job to its youngest pod. This play's failure is one
    more."""
    objects = _job({}, podFailurePolicy=_IGNORES)
    objects[0]["metadata"]["creationTimestamp"] = at(-3600 - age_s)
    found = of(ask("delete pod default/batch-0", objects), "batch")
    gone_s = 30  # it replaces a pod that has failed, not one that terminates
    low, shown, high = _back_s(found)
    assert low <= shown <= gone_s + 10 + READY_S + AROUND_S
    assert back_off_s + READY_S - 1 <= high <= gone_s + back_off_s + READY_S + AROUND_S


def test_each_pod_that_it_lacks_may_have_failed() -> None:
    objects = _job({}, podFailurePolicy=_IGNORES, parallelism=4)
    objects[0]["metadata"]["creationTimestamp"] = at(-3600)
    found = of(ask("delete pod default/batch-0", objects), "batch")
    assert 40 <= _back_s(found)[2] <= 40 + 30 + READY_S + AROUND_S


def test_a_policy_that_ignores_nothing_hides_no_failure() -> None:
    found = of(ask("delete pod default/batch-0", _job({}, podFailurePolicy=_COUNTS)), "batch")
    assert _back_s(found)[2] <= 30 + 10 + READY_S + AROUND_S
