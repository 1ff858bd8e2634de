"""The zone queue against a naive one, which really removes and adds at each pass."""

import random

import pytest

from kubectl_nodelife.engine import workqueue
from kubectl_nodelife.kube.times import SECOND_NS

MS = 1_000_000


class NaiveQueue:
    """Upstream's queue as a list: entries (processAt, order of pushing, value), and a set."""

    def __init__(self, limiter: workqueue.Limiter) -> None:
        self.limiter = limiter
        self.entries: list[tuple[int, int, str]] = []
        self.known: set[str] = set()
        self.pushes = 0

    def push(self, value: str, at_ns: int) -> None:
        self.pushes += 1
        self.entries.append((at_ns, self.pushes, value))
        self.entries.sort()

    def add(self, value: str, now_ns: int) -> bool:
        if value in self.known:
            return False
        self.known.add(value)
        self.push(value, now_ns)
        return True

    def take_out(self, value: str) -> bool:
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if entry[2] != value]
        return len(self.entries) < before

    def remove(self, value: str) -> bool:
        known = value in self.known
        self.known.discard(value)
        self.take_out(value)
        return known

    def put_back(self, value: str, at_ns: int) -> None:
        if value in self.known and value not in {entry[2] for entry in self.entries}:
            self.push(value, at_ns)

    def run(self, fails: set[str], now_ns: int) -> list[str]:
        acted = []
        while self.entries and self.limiter.try_accept(now_ns) and self.entries[0][0] <= now_ns:
            value = self.entries[0][2]
            acted.append(value)
            self.take_out(value)
            if value in fails:
                self.push(value, now_ns + 50 * MS + 1)
        return acted


class Pair:
    """Both queues, told the same. `standing` values lack their taint: each pass adds them anew."""

    def __init__(self, qps: float) -> None:
        self.queue = workqueue.RateLimitedTimedQueue(workqueue.TokenBucket(qps, 1))
        self.naive = NaiveQueue(workqueue.TokenBucket(qps, 1))
        self.standing: set[str] = set()
        self.done: dict[str, workqueue.TimedValue] = {}

    def monitor_pass(self, now_ns: int) -> None:
        self.queue.renew(now_ns)
        for value in sorted(self.standing):
            if not self.queue.is_waiting(value):
                self.queue.remove(value)
            self.naive.remove(value)
            self.queue.add(value, "", now_ns, standing=True)
            self.naive.add(value, now_ns)

    def try_(self, fails: set[str], now_ns: int) -> list[str]:
        acted: list[str] = []

        def act(entry: workqueue.TimedValue, at_ns: int) -> tuple[bool, int]:
            acted.append(entry.value)
            if entry.value in fails:
                return False, 50 * MS
            self.done[entry.value] = entry
            self.standing.discard(entry.value)
            return True, 0

        self.queue.try_(act, lambda: now_ns)
        assert acted == self.naive.run(fails, now_ns)
        return acted

    def taint_failed(self, value: str, now_ns: int) -> None:
        """The write of an entry that was taken for done turned out to have failed."""
        entry = self.done.pop(value)
        if entry.standing:
            self.standing.add(value)
        self.queue.put_back(entry, now_ns + 1)
        self.naive.put_back(value, now_ns + 1)

    def forget(self, value: str) -> None:
        self.standing.discard(value)
        self.done.pop(value, None)
        assert self.queue.remove(value) == self.naive.remove(value)

    def agree(self) -> None:
        assert self.queue.waiting() == [value for _, _, value in self.naive.entries]
        assert set(self.queue.remembered()) == self.naive.known
        for at_ns, _, value in self.naive.entries:
            entry = self.queue.entry(value)
            assert entry is not None
            assert self.queue.process_at(entry) == at_ns
        assert len(self.queue) == len(self.naive.entries)


@pytest.mark.parametrize("seed", range(150))
def test_standing_entries_are_as_if_removed_and_added(seed: int) -> None:
    chance = random.Random(seed)
    pair = Pair(chance.choice([0.3, 1.0, 5.0, 1000.0]))
    names = [f"n{i}" for i in range(chance.randint(2, 9))]
    for tenth in range(150):
        now_ns = tenth * 100 * MS
        if tenth % 10 == 0:
            pair.monitor_pass(now_ns)
        now_ns += 7 * MS  # never the instant of a pass: there, the order is chance upstream
        name = chance.choice(names)
        dice = chance.random()
        if dice < 0.12:
            pair.forget(name)
            pair.standing.add(name)
        elif dice < 0.2:
            pair.forget(name)
            if chance.random() < 0.5:
                assert pair.queue.add(name, "", now_ns) == pair.naive.add(name, now_ns)
        elif dice < 0.25 and name in pair.standing and name not in pair.queue:
            pair.queue.add(name, "", now_ns, standing=True)
            pair.naive.add(name, now_ns)
        elif dice < 0.35 and name in pair.done:
            pair.taint_failed(name, now_ns)
        elif dice < 0.4:
            qps = chance.choice([0.3, 1.0, 5.0])
            pair.queue.swap_limiter(qps, now_ns)
            pair.naive.limiter = workqueue.TokenBucket(qps, 1)
            pair.queue.limiter = workqueue.TokenBucket(qps, 1)
        fails = set(chance.sample(names, chance.randint(0, 2)))
        pair.try_(fails, now_ns + 3 * MS)
        pair.agree()


def test_an_entry_added_between_passes_does_not_hold_up_the_others() -> None:
    queue = workqueue.RateLimitedTimedQueue(workqueue.Always())
    queue.renew(10)
    queue.add("a", "", 10, standing=True)
    queue.add("b", "", 15, standing=True)
    entry = queue.entry("a")
    assert entry is not None
    assert queue.process_at(entry) == 10
    assert queue.waiting() == ["a", "b"]


def test_a_failed_entry_goes_behind_until_the_next_pass() -> None:
    queue = workqueue.RateLimitedTimedQueue(workqueue.Always())
    queue.renew(10)
    for name in ("a", "b"):
        queue.add(name, "", 10, standing=True)
    taken: list[str] = []

    def act(entry: workqueue.TimedValue, now_ns: int) -> tuple[bool, int]:
        taken.append(entry.value)
        return False, 50

    queue.try_(act, lambda: 10)
    assert taken == ["a", "b"]
    entry = queue.entry("a")
    assert entry is not None
    assert queue.process_at(entry) == 61
    queue.renew(20)
    assert queue.process_at(entry) == 20
    assert queue.waiting() == ["a", "b"]


def test_what_changed_keeps_its_place_before_those_that_are_added_anew() -> None:
    queue = workqueue.RateLimitedTimedQueue(workqueue.Always())
    queue.renew(10)
    for name in ("a", "b", "c"):
        queue.add(name, "", 10, standing=True)
    queue.renew(20, apart_from=["b", "c", "unknown"])
    assert queue.waiting() == ["b", "c", "a"]
    queue.remove("c")
    queue.add("c", "", 20, standing=True)
    queue.renew(30)
    assert queue.waiting() == ["b", "a", "c"]
    entry = queue.entry("b")
    assert entry is not None
    assert queue.process_at(entry) == 10


def test_swapping_takes_over_whether_a_token_was_there() -> None:
    idle = workqueue.RateLimitedTimedQueue(workqueue.TokenBucket(0.1, 1))
    idle.swap_limiter(0.01, 0)
    assert idle.limiter.try_accept(0)
    used = workqueue.RateLimitedTimedQueue(workqueue.TokenBucket(0.1, 1))
    assert used.limiter.try_accept(0)
    used.swap_limiter(0.01, 0)
    assert not used.limiter.try_accept(SECOND_NS)


def test_a_stopped_queue_ignores_a_rate_of_1() -> None:
    queue = workqueue.RateLimitedTimedQueue(workqueue.TokenBucket(1, 1))
    queue.swap_limiter(0, 0)
    queue.swap_limiter(1.0, 0)
    assert isinstance(queue.limiter, workqueue.Never)
    queue.swap_limiter(0.5, 0)
    assert isinstance(queue.limiter, workqueue.TokenBucket)


def test_what_was_processed_is_remembered_until_it_is_removed() -> None:
    queue = workqueue.RateLimitedTimedQueue(workqueue.Always())
    assert queue.add("a", "", 0)
    assert not queue.add("a", "", 1)
    queue.try_(lambda entry, now_ns: (True, 0), lambda: 1)
    assert not queue.add("a", "", 2)
    assert queue.remove("a")
    assert queue.add("a", "", 3)


def test_clear_forgets_everything() -> None:
    queue = workqueue.RateLimitedTimedQueue(workqueue.Always())
    queue.add("a", "", 0)
    queue.add("b", "", 0, standing=True)
    queue.clear()
    assert (queue.waiting(), queue.remembered(), queue.head()) == ([], [], None)
    assert queue.add("a", "", 1)
