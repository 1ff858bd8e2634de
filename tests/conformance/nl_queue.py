"""Vectors of the queues: token bucket, rate-limited timed queue, timed workers, worker hash."""

from collections.abc import Callable
from typing import Any

import pytest

from kubectl_nodelife.controllers.tainteviction.controller import worker_of
from kubectl_nodelife.controllers.tainteviction.evictions import TimedWorkers, Work
from kubectl_nodelife.engine import workqueue
from kubectl_nodelife.engine.actions import ScheduleEviction
from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.times import MILLISECOND_NS
from tests.conformance.checks import only
from tests.conformance.world import EPOCH_NS, instant_ns

Case = dict[str, Any]
Step = dict[str, Any]


def make_limiter(given: dict[str, Any]) -> workqueue.Limiter:
    """The limiter that a vector names."""
    only(given, {"type", "qps", "burst"}, "word of a limiter")
    only([given["type"]], {"always", "never", "token_bucket"}, "limiter")
    if given["type"] == "token_bucket":
        return workqueue.TokenBucket(given["qps"], given["burst"])
    return workqueue.Always() if given["type"] == "always" else workqueue.Never()


class Queue:
    """One queue and its clock, which stands between steps or gives each read the next value."""

    def __init__(self, given: dict[str, Any]) -> None:
        only(given, {"limiter", "clock_reads_ms"}, "given")
        self.queue = workqueue.RateLimitedTimedQueue(make_limiter(given["limiter"]))
        self.now_ns = EPOCH_NS
        reads = given.get("clock_reads_ms")
        self._reads = iter(reads) if reads is not None else None

    def read_clock(self) -> int:
        """Now, in ns."""
        if self._reads is not None:
            self.now_ns = EPOCH_NS + round(next(self._reads) * MILLISECOND_NS)
        return self.now_ns

    def add(self, step: Step) -> None:
        """Add a value."""
        added = self.queue.add(step["value"], step["uid"], self.read_clock())
        assert added == step.get("returns", added)

    def remove(self, step: Step) -> None:
        """Remove a value."""
        removed = self.queue.remove(step["value"])
        assert removed == step.get("returns", removed)

    def swap_limiter(self, step: Step) -> None:
        """Change the rate."""
        self.queue.swap_limiter(step["qps"], self.now_ns)
        if "reported_qps" in step:
            assert self.queue.limiter.qps == pytest.approx(step["reported_qps"], rel=1e-6)

    def set_time(self, step: Step) -> None:
        """Move the clock."""
        self.now_ns = instant_ns(step["t"])

    def try_(self, step: Step) -> None:
        """Work through the queue; the vector answers for the action."""
        answers = {value: list(given) for value, given in step.get("callback", {}).items()}
        processed: list[str] = []
        calls = 0

        def act(entry: workqueue.TimedValue, now_ns: int) -> tuple[bool, int]:
            nonlocal calls
            calls += 1
            waiting = answers.get(entry.value)
            answer: dict[str, Any] = waiting.pop(0) if waiting else {"done": True}
            only(answer, {"done", "retry_after_ms", "removes"}, "word of an answer")
            for value in answer.get("removes", ()):
                self.queue.remove(value)
            if answer["done"]:
                processed.append(entry.value)
            return answer["done"], round(answer.get("retry_after_ms", 0) * MILLISECOND_NS)

        self.queue.try_(act, self.read_clock)
        assert processed == step.get("processed", processed)
        assert calls == step.get("callback_calls", calls)

    def check(self, expect: dict[str, Any]) -> None:
        """Hold the queue against an expectation."""
        only(expect, {"order", "set", "process_at_ms"}, "key of an expectation")
        if "order" in expect:
            assert self.queue.waiting() == expect["order"]
        if "set" in expect:
            assert sorted(self.queue.remembered()) == sorted(expect["set"])
        for value, wanted in expect.get("process_at_ms", {}).items():
            entry = self.queue.entry(value)
            assert entry is not None
            due_ms = (self.queue.process_at(entry) - EPOCH_NS) / MILLISECOND_NS
            assert due_ms == pytest.approx(wanted, abs=1e-7)


QUEUE_STEPS: dict[str, tuple[Callable[[Queue, Step], None], set[str]]] = {
    "add": (Queue.add, {"value", "uid", "returns"}),
    "remove": (Queue.remove, {"value", "uid", "returns"}),
    "clear": (lambda queue, step: queue.queue.clear(), set()),
    "set_time": (Queue.set_time, {"t"}),
    "swap_limiter": (Queue.swap_limiter, {"qps", "reported_qps"}),
    "try": (Queue.try_, {"processed", "callback", "callback_calls"}),
    "expect": (lambda queue, step: queue.check(step["expect"]), {"expect"}),
}


def rate_limited_queue(case: Case) -> None:
    """rate-limited-queue."""
    queue = Queue(case["given"])
    for step in case["steps"]:
        only([step["op"]], QUEUE_STEPS, "op")
        play, words = QUEUE_STEPS[step["op"]]
        only(step, {"op", "note", *words}, f"word of step {step['op']}")
        play(queue, step)
    queue.check(case["expect"])
    queue.check(case.get("expect_derived", {}))


def token_bucket(case: Case) -> None:
    """token-bucket."""
    only(case["given"], {"limiter"}, "given")
    limiter = make_limiter(case["given"]["limiter"])
    now_ns = EPOCH_NS
    for step in case["steps"]:
        only([step["op"]], {"set_time", "try_accept"}, "op")
        if step["op"] == "set_time":
            now_ns = instant_ns(step["t"])
        else:
            expected_at = limiter.next_accept(now_ns)
            accepted = limiter.try_accept(now_ns)
            assert accepted == step["returns"]
            assert accepted == (expected_at == now_ns)
    only({**case["expect"], **case.get("expect_derived", {})}, (), "key of an expectation")


class Workers:
    """Timed workers whose handler only counts its runs, and fails when it is told to."""

    def __init__(self, case: Case) -> None:
        only(case["given"], (), "given")
        profile = parse_profile("current" if case["profile"] == "any" else case["profile"])
        self.workers = TimedWorkers(sticky_keys=profile.has("sticky_timer_keys"))
        self.now_ns = EPOCH_NS
        self.runs = 0
        self.failing = 0
        self._timers: list[int] = []

    def add(self, step: Step) -> None:
        """Add work."""
        created_ns = instant_ns(step["created"])
        # `createWorker` waits for fire - created; the controller only adds work that is created now
        due_ns = self.now_ns + max(0, instant_ns(step["fire"]) - created_ns)
        key = ("default", step["key"])
        schedule = ScheduleEviction(
            controller="",
            because="",
            namespace=key[0],
            pod=key[1],
            due_ns=due_ns,
            toleration_seconds=0,
        )
        work = Work(key, "node", due_ns, schedule, "")
        if self.workers.add(work, self.now_ns):
            self._run(work)
        elif due_ns > self.now_ns:
            self._timers.append(due_ns)

    def cancel(self, step: Step) -> None:
        """Cancel work."""
        cancelled = self.workers.cancel(("default", step["key"])) is not None
        assert cancelled == step.get("returns", cancelled)

    def set_time(self, step: Step) -> None:
        """Move the clock on, through all timers on the way."""
        end_ns = instant_ns(step["t"])
        for due_ns in sorted(set(self._timers)):
            if due_ns <= end_ns:
                self.now_ns = due_ns
                for work in self.workers.take_due(due_ns):
                    self._run(work)
        self.now_ns = end_ns

    def handler_fails(self, step: Step) -> None:
        """Let the next runs fail."""
        self.failing = step.get("times", 1)

    def check(self, expect: dict[str, Any]) -> None:
        """Hold the workers against an expectation."""
        only(expect, {"runs"}, "key of an expectation")
        assert self.runs == expect.get("runs", self.runs)

    def _run(self, work: Work) -> None:
        self.runs += 1
        if self.failing:
            self.failing -= 1
            self.workers.fail(work.key)
        else:
            self.workers.finish(work.key)


WORKER_STEPS: dict[str, tuple[Callable[[Workers, Step], None], set[str]]] = {
    "add": (Workers.add, {"key", "created", "fire"}),
    "cancel": (Workers.cancel, {"key", "returns"}),
    "set_time": (Workers.set_time, {"t"}),
    "handler_fails": (Workers.handler_fails, {"times"}),
    "expect": (lambda workers, step: workers.check(step["expect"]), {"expect"}),
}


def timed_workers(case: Case) -> None:
    """timed-workers."""
    workers = Workers(case)
    for step in case["steps"]:
        only([step["op"]], WORKER_STEPS, "op")
        play, words = WORKER_STEPS[step["op"]]
        only(step, {"op", "note", *words}, f"word of step {step['op']}")
        play(workers, step)
    workers.check(case["expect"])
    workers.check(case.get("expect_derived", {}))


def worker_hash(case: Case) -> None:
    """worker-hash."""
    only(case["given"], {"node_name", "workers"}, "given")
    only(case["expect"], {"worker"}, "key of an expectation")
    worker = worker_of(case["given"]["node_name"], case["given"]["workers"])
    assert worker == case["expect"]["worker"]


TOPICS = {
    "rate-limited-queue": rate_limited_queue,
    "token-bucket": token_bucket,
    "timed-workers": timed_workers,
    "worker-hash": worker_hash,
}
