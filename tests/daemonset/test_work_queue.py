"""The queue of sets: delays, and failures that wait longer each time."""

from kubectl_nodelife.controllers.daemonset.handlers import RateLimiter, WorkQueue
from kubectl_nodelife.kube.times import SECOND_NS

KEY = ("default", "agent")


def test_the_rate_limiter_waits_longer_each_time_and_for_the_bucket() -> None:
    limiter = RateLimiter()
    milliseconds = [limiter.when(("a", "b"), 0) / 1e6 for _ in range(5)]
    assert milliseconds == [5, 10, 20, 40, 80]
    for i in range(95):
        assert limiter.when(("a", str(i)), 0) == 5_000_000
    assert limiter.when(("a", "over"), 0) == 100_000_000  # a tenth of a second for the next token
    limiter.forget(("a", "b"))
    assert limiter.failures(("a", "b")) == 0


def test_the_queue_keeps_the_earlier_of_two_delays() -> None:
    queue = WorkQueue()
    queue.add_after(KEY, 20)
    queue.add_after(KEY, 30)
    queue.add_after(KEY, 10)
    assert queue.next_due() == 10
    assert queue.pop(9) == []
    assert queue.pop(10) == [(KEY, None)]
    assert queue.next_due() is None


def test_a_queue_that_enforces_keeps_the_later_one_too_by_the_second() -> None:
    queue = WorkQueue()
    queue.keeps_later = True
    for at_ms in (2_000, 5_200, 5_900, 1_000, 9_000):
        queue.add_after(KEY, at_ms * 1_000_000)
    woken = []
    while (due := queue.next_due()) is not None:
        woken.append(due / SECOND_NS)
        assert queue.pop(due) == [(KEY, None)]
    assert woken == [1, 2, 6, 9]
