"""What client-go does below kubectl: the rate limit, and the repetitions after Retry-After."""

import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.conversation import client_bucket, noticed_ns
from tests.drain.build import budget, node, plan, replica_set

NODES = [*node("a1"), *node("a2"), *node("a3")]


def test_ten_at_once_and_then_five_a_second() -> None:
    bucket = client_bucket()
    sent = [bucket.reserve(0) / SECOND_NS for _ in range(13)]
    assert sent == pytest.approx([0] * 10 + [0.2, 0.4, 0.6])
    assert bucket.reserve(60 * SECOND_NS) == 60 * SECOND_NS
    again = [bucket.reserve(60 * SECOND_NS) / SECOND_NS for _ in range(10)]
    assert again == pytest.approx([60.0] * 9 + [60.2])


@pytest.mark.parametrize(
    ("last", "deadline", "retry_after", "answers", "noticed"),
    [
        pytest.param(0, 3, 0, 1, 5, id="before-the-next-try"),
        pytest.param(0, 5, 0, 1, 5, id="at-the-deadline-is-over"),
        pytest.param(0, 12, 0, 1, 15, id="not-before-the-third-try"),
        pytest.param(20, 12, 0, 5, 25, id="over-already"),
        pytest.param(0, 3, 10, 1, 105, id="the-client-repeats-first"),
        pytest.param(70, 3, 10, 8, 105, id="three-repetitions-are-left"),
        pytest.param(0, 106, 10, 1, 210, id="and-all-over-again"),
    ],
)
def test_when_the_deadline_is_noticed(
    last: int, deadline: int, retry_after: int, answers: int, noticed: int
) -> None:
    at_ns = noticed_ns(last * SECOND_NS, deadline * SECOND_NS, 5 * SECOND_NS, retry_after, answers)
    assert at_ns == noticed * SECOND_NS


@pytest.mark.parametrize(
    ("generation", "begins"),
    [
        pytest.param(1, (10, 11), id="refused-by-the-numbers"),
        pytest.param(2, (105, 108), id="refused-as-stale"),
    ],
)
def test_the_next_node_waits_until_the_timeout_is_noticed(
    generation: int, begins: tuple[int, int]
) -> None:
    """A stale budget names a Retry-After, and the client keeps the refusals to itself."""
    guard = budget("web", "web", healthy=1, desired=1, expected=1, minAvailable=1)
    guard["metadata"]["generation"] = generation
    guard["status"]["observedGeneration"] = 1
    objects = [replica_set("web", "a1"), replica_set("api", "a2"), guard]
    answer = plan(NODES, *objects, nodes=("a1", "a2"), timeout_ns=8 * SECOND_NS)
    second = answer.nodes[1]
    assert (answer.nodes[0].verdict, second.verdict) == ("never", "ready")
    assert second.start is not None and begins[0] < second.start < begins[1]
