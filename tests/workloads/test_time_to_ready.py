"""Times to Ready, learnt from the pods that are."""

import pytest

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.timing import learn, sample
from tests import objects
from tests.objects import condition, typed


def pod(made: str, bound: str | None, ready: str, *, is_bound: str = "True") -> Pod:
    """Made, bound and Ready at those minutes and seconds."""
    ready, made = f"2026-01-01T12:{ready}Z", f"2026-01-01T12:{made}Z"
    bind = [condition("PodScheduled", is_bound, changed=f"2026-01-01T12:{bound}Z")]
    about = {"namespace": "shop", "created": made, "conditions": bind if bound else ()}
    return typed(objects.pod(ready=True, since=ready, **about))


@pytest.mark.parametrize(
    "made, bound, ready, took_s",
    [
        pytest.param("00:00", "00:00", "00:03", 3, id="at-once"),
        pytest.param("00:00", "06:18", "07:29", 71, id="it-waited-for-a-node"),
        pytest.param("00:00", None, "00:09", 9, id="not-read"),
        pytest.param("00:00", "00:03", "00:03", 0.5, id="within-a-second"),
        pytest.param("00:00", "00:30", "00:29", None, id="ready-before-it-was-bound"),
    ],
)
def test_a_sample_begins_when_the_pod_has_a_node(
    made: str, bound: str | None, ready: str, took_s: float | None
) -> None:
    expected = None if took_s is None else took_s * SECOND_NS
    assert sample(pod(made, bound, ready)) == expected


def test_the_estimate_of_pods_that_waited_for_a_node() -> None:
    pods = [pod("00:00", f"04:0{n}", f"04:0{n + 3}") for n in range(3)]
    found = learn(pods, "ReplicaSet web")
    assert found is not None and found.middle_ns // SECOND_NS == 3
