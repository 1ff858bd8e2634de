"""How much goes on at once: as many nodes, sets and pods as upstream's workers take."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kubectl_nodelife.daemon.enforce.host import JOIN, EnforcingHost
from kubectl_nodelife.engine.actions import Action, ActionNumbers, DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Get, Result
from kubectl_nodelife.engine.events import Gone
from kubectl_nodelife.engine.guard import UPSTREAM, Guard, WriteConditions
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.engine.workqueue import TokenBucket
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.executor import LiveExecutor
from kubectl_nodelife.live.executor_port import ControllerWriter, ExecutorPort
from kubectl_nodelife.live.worker_slots import Slots, WorkerSlots
from tests import objects
from tests.objects import UNREACHABLE, put
from tests.planned import create_pod, lost, not_ready, on_pod, tainted

NOW = 1_000 * SECOND_NS


NO_SCHEDULE, NO_EXECUTE = Taint(UNREACHABLE, "NoSchedule"), Taint(UNREACHABLE, "NoExecute")


def numbered(*actions: Action) -> list[Action]:
    """As the engine numbers decisions."""
    return [replace(action, id=number) for number, action in enumerate(actions, 1)]


def collect(pod: str, **more: Any) -> Action:
    return on_pod(DeletePod, pod, controller="pod-gc", **more)


class Busy:
    """A server that takes its time: which objects have a request on their way, and how many at
    most had one.
    """

    def __init__(self) -> None:
        self.now: list[Any] = []
        self.most = 0
        self.twice = False
        self.seen: list[set[Any]] = []
        self.cache = Cache()
        for number in range(30):
            self.cache.apply(put(objects.node(f"n{number}", None, version="5")), NOW)
        self.order: list[str] = []
        for name in "pq":
            self.add_pod(name, "n1")

    def add_pod(self, name: str, on: str) -> str:
        self.cache.apply(put(objects.pod(name, on, version="3")), NOW)
        return name

    def play(self, *actions: Action, syncs: int = 2) -> None:
        async def run() -> None:
            one = ControllerWriter(cast(Any, self), TokenBucket(1e6, 1_000_000), cast(Any, self))
            view = WriteConditions(kill_switch_absent_ns=NOW)
            port = ExecutorPort(
                self.cache,
                Guard(UPSTREAM),
                lambda: view,
                cast(Any, self),
                cast(Any, self),
                lambda: NOW,
                lambda: NOW,
                5 * SECOND_NS,
                cast(Any, self),
            )
            names = ("node-lifecycle", "taint-eviction", "pod-gc", "daemonset")
            slots = WorkerSlots(self.cache, syncs)
            executor = LiveExecutor(port, dict.fromkeys(names, one), slots)
            for action in actions:
                executor.start(action, NOW)
            async with asyncio.timeout(10):
                while executor.busy:
                    await asyncio.sleep(0.001)

        asyncio.run(run())

    async def call(self, call: Any, **_: Any) -> Answer:
        self.twice = self.twice or call.key in self.now
        self.now.append(call.key)
        self.most = max(self.most, len(self.now))
        self.seen.append(set(self.now))
        if not isinstance(call, Get):
            self.order.append(call.key[1])
        await asyncio.sleep(0.005)
        self.now.remove(call.key)
        return Answer(200, self.cache.get(call.kind, call.key))

    async def begin(self, *_: Any) -> int:
        return 1

    async def check_loss(self, node: str) -> Result:
        return Result(200)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None  # nobody looks at what is recorded


def test_eight_nodes_of_a_pass_and_eight_of_the_queue() -> None:
    busy = Busy()
    busy.play(*(lost(f"n{i}") for i in range(15)))
    assert busy.most == 8
    busy.play(
        *(lost(f"n{i}") for i in range(15)), *(tainted(f"n{i}", NO_SCHEDULE) for i in range(15, 30))
    )
    assert busy.most == 16


def test_no_schedule_taints_do_not_wait_for_the_pass_nor_for_pods() -> None:
    busy = Busy()
    actions: list[Action] = []
    for node in (f"n{i}" for i in range(20)):
        actions += [lost(node), *(not_ready(busy.add_pod(f"{node}-{i}", node)) for i in range(5))]
    actions += [tainted(f"n{i}", NO_SCHEDULE) for i in range(8)]
    busy.play(*numbered(*actions))
    first = busy.order[:40]
    assert all(first.count(f"n{i}") == 2 for i in range(8)), "called lost, and tainted"


def test_a_node_that_has_begun_is_ended_before_another_begins() -> None:
    busy = Busy()
    actions: list[Action] = []
    for node in (f"n{i}" for i in range(20)):
        actions += [lost(node), *(not_ready(busy.add_pod(f"{node}-{i}", node)) for i in range(4))]
    busy.play(*numbered(*actions))
    assert busy.most == 8
    ended = max(busy.order.index(f"n0-{i}") for i in range(4))
    assert ended < busy.order.index("n12"), "n0 is done long before n12's turn"


def test_four_pods_of_the_queue_of_pods() -> None:
    busy = Busy()
    pods = [busy.add_pod(f"p{i}", f"n{i % 9}") for i in range(20)]
    busy.play(*(not_ready(pod, by_pod_worker=True) for pod in pods))
    assert busy.most == 4
    beside = (lost(f"n{i}") for i in range(10, 30))
    busy.play(*beside, *(not_ready(pod, by_pod_worker=True) for pod in pods))
    assert busy.most == 12


def test_no_execute_taints_go_one_by_one_and_ahead_of_the_marks() -> None:
    busy = Busy()
    busy.play(*(tainted(f"n{i}", NO_EXECUTE) for i in range(5)))
    assert busy.most == 1
    busy = Busy()
    pods = [busy.add_pod(f"p{i}", "n3") for i in range(4)]
    busy.play(*numbered(lost("n3"), *map(not_ready, pods), tainted("n3", NO_EXECUTE)))
    assert busy.order == ["n3", "n3", *pods]


@pytest.mark.parametrize("syncs", [1, 2, 3])
def test_as_many_sets_as_concurrent_daemonset_syncs(syncs: int) -> None:
    busy = Busy()
    busy.play(*(create_pod(f"{s}-{i}", "n", s) for i in range(3) for s in "abcd"), syncs=syncs)
    assert busy.most == 3 * syncs, "all pods of a batch are made at once"
    assert max(len({name[0] for _, name in keys}) for keys in busy.seen) == syncs


def test_orphans_go_in_turn_and_terminated_pods_all_at_once() -> None:
    busy = Busy()
    busy.play(*(collect(name, if_node_gone="n99") for name in "pq"))
    assert busy.most == 1
    busy.play(*(collect(name) for name in "pq"))
    assert busy.most == 2


def test_one_write_of_an_object_at_a_time_whoever_sends_it() -> None:
    busy = Busy()
    busy.play(not_ready("p"), replace(collect("p"), controller="taint-eviction"), collect("q"))
    assert not busy.twice and busy.most == 2, "p once, and q beside it"


async def test_a_slot_is_shared_by_what_has_one_key_and_given_on() -> None:
    slots, order = Slots(1), list[str]()

    async def work(key: str, name: str) -> None:
        async with slots.taken(key):
            order.append(name)
            await asyncio.sleep(0.01)

    first, other, gone = (asyncio.ensure_future(work(*x)) for x in ("a1", "b2", "c3"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(first, other, work("b", "4"), gone, return_exceptions=True)
    assert order == ["1", "2", "4"]
    await work("d", "5")
    assert order[-1] == "5"


@pytest.mark.parametrize(("controller", "period_s"), [("node-lifecycle", 5), ("pod-gc", 20)])
def test_a_pass_begins_a_period_after_the_writes_of_the_last_have_ended(
    controller: str, period_s: int
) -> None:
    class Writing:
        sending = ()
        until_ns = 0
        now_ns = 0

        def is_in_pass(self, name: str) -> bool:
            return name == controller and self.now_ns < self.until_ns

        def start(self, action: Action, now_ns: int) -> None: ...

    host = EnforcingHost(JOIN, lambda names: None, ActionNumbers())
    host.executor = cast(Any, Writing())
    executor = cast(Writing, host.executor)
    host.join(make_settings("v1.36"), [controller])

    def step(at_ns: int) -> None:
        executor.now_ns = at_ns
        for _ in host.step(at_ns, ()):
            pass
        if host.next_due() == at_ns + 1:  # the pass has ended
            step(at_ns + 1)

    step(NOW)
    assert host.next_due() == NOW + period_s * SECOND_NS
    executor.until_ns = NOW + 33 * SECOND_NS
    for second in range(1, 34):
        step(NOW + second * SECOND_NS)
    assert host.next_due() == executor.until_ns + period_s * SECOND_NS
    step(executor.until_ns + period_s * SECOND_NS)
    assert host.next_due() == executor.until_ns + 2 * period_s * SECOND_NS


def test_what_waited_for_an_answer_is_not_lost_when_all_is_decided_anew() -> None:
    class Sending:
        sending = frozenset({("Node", ("", "n"))})

        def is_in_pass(self, name: str) -> bool:
            return False

        def drop(self) -> None: ...

        def start(self, action: Action, now_ns: int) -> None: ...

    host = EnforcingHost(JOIN, lambda names: None, ActionNumbers())
    host.executor = cast(Any, Sending())
    host.cache.apply(put(objects.node("n", None)), NOW)
    host.join(make_settings("v1.36"), ["pod-gc"])
    for _ in host.step(NOW, [Gone("Node", ("", "n"))]):
        pass
    assert host.cache.node("n") is not None, "a write of it is on its way"
    host.withdraw(NOW, "cold")
    assert host.cache.node("n") is None
