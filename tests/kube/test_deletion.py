"""DELETE of a pod, case by case as the branches of upstream's `BeforeDelete` come.

pkg/registry/rest/delete.go, pkg/registry/core/pod/strategy.go and the store's
`updateForGracefulDeletionAndFinalizers`, v1.36.3. Instants are seconds; the DELETE comes half a
second after NOW, and deletionTimestamp has whole seconds.
"""

from typing import Any

import pytest

from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import ObjectMeta, Time
from kubectl_nodelife.kube.pod import Pod, PodSpec, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS

NOW = 1_000_000
NOW_NS = NOW * SECOND_NS + SECOND_NS // 2

GONE = None
SAME = "same"
"""The DELETE changes nothing."""


def pod(grace: int | None = 30, *, node: str = "n1", phase: str = "Running", **meta: Any) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="d", **meta),
        spec=PodSpec(node_name=node, termination_grace_period_seconds=grace),
        status=PodStatus(phase=phase),
    )


def going(ends: int, grace: int | None, phase: str = "Running", **meta: Any) -> Pod:
    """A pod that terminates; `ends`: its deletionTimestamp, seconds after NOW."""
    at = Time((NOW + ends) * SECOND_NS)
    return pod(phase=phase, deletion_timestamp=at, deletion_grace_period_seconds=grace, **meta)


HELD = {"finalizers": ("example.com/hold",)}

CASES = [
    # CheckGracefulDelete: the first DELETE.
    pytest.param(pod(), None, (30, 30), id="the-pods-own-grace"),
    pytest.param(pod(grace=None), None, (30, 30), id="the-default-grace"),
    pytest.param(pod(grace=0), None, GONE, id="own-grace-0"),
    pytest.param(pod(grace=-5), None, (1, 1), id="own-grace-negative-is-1"),
    pytest.param(pod(), 5, (5, 5), id="requested"),
    pytest.param(pod(), 3600, (3600, 3600), id="requested-longer"),
    pytest.param(pod(), -7, (1, 1), id="requested-negative-is-1"),
    pytest.param(pod(), 0, GONE, id="requested-0"),
    pytest.param(pod(node=""), 5, GONE, id="on-no-node"),
    pytest.param(pod(phase="Succeeded"), None, GONE, id="succeeded"),
    pytest.param(pod(phase="Failed"), 5, GONE, id="failed"),
    pytest.param(pod(phase="Pending"), None, (30, 30), id="pending-on-a-node"),
    pytest.param(pod(**HELD), 0, (0, 0), id="a-finalizer-keeps-it"),
    pytest.param(pod(node="", **HELD), None, (0, 0), id="a-finalizer-keeps-it-on-no-node"),
    pytest.param(pod(**HELD), None, (30, 30), id="a-finalizer-changes-no-grace"),
    # Terminating, with no grace left: the object goes now, whatever is asked for.
    pytest.param(going(20, None), None, GONE, id="grace-never-set"),
    pytest.param(going(-9, 0), 30, GONE, id="grace-0"),
    pytest.param(going(-9, 0, **HELD), 0, SAME, id="grace-0-held"),
    pytest.param(going(20, 0, **HELD), None, (0, 0), id="grace-0-held-ends-no-later-than-now"),
    # Terminating, with grace: only a shorter one that is named counts, from when it began.
    pytest.param(going(20, 30), None, SAME, id="again"),
    pytest.param(going(20, 30), 30, SAME, id="again-same-grace"),
    pytest.param(going(20, 30), 60, SAME, id="longer"),
    pytest.param(going(20, 30), 12, (2, 12), id="shorter"),
    pytest.param(going(20, 30), 0, GONE, id="at-once"),
    pytest.param(going(20, 30, **HELD), 0, (0, 0), id="at-once-held"),
    pytest.param(going(20, 30), -1, (0, 1), id="negative-is-1"),
    pytest.param(going(20, -3), 0, GONE, id="recorded-negative-is-1"),
    pytest.param(going(20, -3), 1, SAME, id="recorded-negative-is-not-shortened-by-1"),
    # Shortened into the past: it ends now, and stays graceful with one second.
    pytest.param(going(20, 30), 5, (0, 1), id="shortened-into-the-past"),
    pytest.param(going(-40, 30), 29, (0, 1), id="overdue"),
    # CheckGracefulDelete is not asked a second time: that the pod has ended counts no more.
    pytest.param(going(20, 30, "Succeeded"), None, SAME, id="ended-again"),
    pytest.param(going(20, 30, "Succeeded"), 12, (2, 12), id="ended-shorter"),
    pytest.param(going(20, 30, "Failed"), 0, GONE, id="ended-at-once"),
]


@pytest.mark.parametrize(("before", "requested", "after"), CASES)
def test_delete(before: Pod, requested: int | None, after: Any) -> None:
    """(seconds from NOW to deletionTimestamp, deletionGracePeriodSeconds) after the DELETE."""
    left = delete_pod(before, NOW_NS, requested)
    if after is GONE:
        assert left is None
    elif after is SAME:
        assert left is before
    else:
        assert left is not None and left.metadata.deletion_timestamp is not None
        ends_ns = left.metadata.deletion_timestamp - NOW * SECOND_NS
        assert (ends_ns / SECOND_NS, left.metadata.deletion_grace_period_seconds) == after


def test_the_generation_grows_once() -> None:
    """`BeforeDelete` and `markAsDeleting` bump it on the first DELETE, where there is one."""
    first = delete_pod(pod(generation=3), NOW_NS)
    assert first is not None and first.metadata.generation == 4
    again = delete_pod(first, NOW_NS, 5)
    assert again is not None and again.metadata.generation == 4
    without = delete_pod(pod(), NOW_NS)
    assert without is not None and without.metadata.generation == 0
