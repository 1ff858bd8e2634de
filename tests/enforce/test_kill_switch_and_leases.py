"""The kill switch as it is read, and Leases read anew before nodes are called lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.lease_check import FEW, LeaseReread
from kubectl_nodelife.daemon.preflight import KillSwitch
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Get
from kubectl_nodelife.engine.events import NOT_SENT, Event, Put
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.lease import LeaseKeeper
from tests.engine.test_election import LeaseServer
from tests.objects import lease, node, put, typed

NOW = 1_000 * SECOND_NS
PERIOD_NS = 5 * SECOND_NS


def renewed(node: str, at_s: int) -> Lease:
    return typed(lease(node, at_s * SECOND_NS))


class Lab:
    """A cache that knows a renewal of each node at second 900, and a server that answers."""

    def __init__(self, answer: Answer) -> None:
        self.now_ns = NOW
        self.set_by_ns = 0  # by how much the API server's clock was set since
        self.asked: list[str] = []
        self.told: list[Event] = []
        self.lies = self.lists = 0
        self.listed: list[Lease] = []
        self.answer = answer
        self.cache = Cache()
        for number in range(20):
            name = f"n{number}"
            self.cache.apply(put(node(name)), NOW)
            self.cache.apply(Put("Lease", renewed(name, 900)), NOW)
        tell, now = self.told.append, lambda: self.now_ns + self.set_by_ns
        unset = lambda: self.now_ns  # noqa: E731
        one, all_of_them = self.read, self.list
        self.evidence = LeaseReread(self.cache, one, all_of_them, tell, now, unset, PERIOD_NS)
        self.evidence.watch_lies = self.lie

    def lie(self) -> None:
        self.lies += 1

    async def read(self, call: Get) -> Answer:
        self.asked.append(call.key[1])
        return self.answer

    async def list(self) -> Sequence[Lease]:
        self.lists += 1
        return self.listed

    def code(self, *nodes: str) -> list[int]:
        async def ask() -> list[int]:
            return [(await self.evidence.check_loss(node)).code for node in nodes]

        return asyncio.run(ask())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(Answer(200, renewed("n1", 900)), 200, id="nothing-newer"),
        pytest.param(Answer(404, reason="NotFound"), 200, id="no-lease:its-status-alone-counts"),
        pytest.param(Answer(502, message="a proxy's page"), 502, id="unreadable:not-lost"),
        pytest.param(Answer(0), 503, id="no-answer:not-lost"),
        pytest.param(Answer(200, renewed("n1", 995)), NOT_SENT, id="renewed-since"),
    ],
)
def test_a_node_is_lost_only_where_the_api_server_has_nothing_newer(
    answer: Answer, code: int
) -> None:
    lab = Lab(answer)
    assert lab.code("n1") == [code]
    assert bool(lab.told) == bool(lab.lies) == (code == NOT_SENT)


def test_a_watch_that_lied_is_rebuilt_once_a_period() -> None:
    lab = Lab(Answer(200, renewed("n1", 995)))
    assert lab.code("n1", "n1") == [NOT_SENT, NOT_SENT] and lab.lies == 1
    lab.now_ns += 2 * PERIOD_NS
    assert lab.code("n1") == [NOT_SENT] and lab.lies == 2


def test_many_at_once_are_one_list_a_period() -> None:
    lab = Lab(Answer(200, renewed("n0", 900)))
    lab.listed = [renewed("n12", 995)]
    codes = lab.code(*(f"n{number}" for number in range(20)))
    assert len(lab.asked) == FEW and lab.lists == 1
    assert [number for number, code in enumerate(codes) if code == NOT_SENT] == [12]


@pytest.mark.parametrize("set_by_s", [-3600, -20, 3600])
def test_a_list_of_leases_is_kept_for_a_period_whatever_the_server_s_clock_says(
    set_by_s: int,
) -> None:
    lab = Lab(Answer(200, renewed("n0", 900)))
    lab.code(*(f"n{number}" for number in range(20)))
    lab.set_by_ns = set_by_s * SECOND_NS
    lab.code(*(f"n{number}" for number in range(20)))
    assert lab.lists == 1, "the period is not over"
    lab.now_ns += PERIOD_NS + 1
    lab.code(*(f"n{number}" for number in range(20)))
    assert lab.lists == 2, "evidence is never older than a period"


def test_where_leases_do_not_count_nobody_asks() -> None:
    lab = Lab(Answer(200, renewed("n1", 995)))
    lab.evidence.leases_count = False
    assert lab.code("n1") == [200] and lab.asked == []


async def test_the_kill_switch_is_absent_only_by_the_servers_word() -> None:
    answers = [Answer(404, reason="NotFound"), Answer(503, message="down"), Answer(200)]
    now = [NOW, NOW + SECOND_NS, NOW + 2 * SECOND_NS]

    class Api:
        async def send(self, *_: Any, **__: Any) -> Answer:
            return answers.pop(0)

    switch = KillSwitch(cast(Any, Api()), lambda: now[0])
    await switch.look()
    assert (switch.absent_ns, switch.present) == (NOW, False)
    now.pop(0)
    await switch.look()
    assert (switch.absent_ns, switch.present, switch.error) == (NOW, False, "down")
    await switch.look()
    assert switch.present and switch.absent_ns == NOW


@pytest.mark.parametrize(
    ("server_s", "age_s"), [(1, 1), (30, 30), (-3600, 1)], ids=["both-go-on", "halted", "set-back"]
)
def test_the_kill_switch_was_seen_as_long_ago_as_either_clock_says(
    server_s: int, age_s: int
) -> None:
    """A machine that was halted with its clocks learns from the server that time has passed."""
    now, server = [NOW], [NOW + 7 * SECOND_NS]

    class Api:
        async def send(self, *_: Any, **__: Any) -> Answer:
            return Answer(404, reason="NotFound")

    switch = KillSwitch(cast(Any, Api()), lambda: now[0], lambda: server[0])
    asyncio.run(switch.look())
    now[0], server[0] = now[0] + SECOND_NS, server[0] + server_s * SECOND_NS
    assert now[0] - switch.surely_absent_ns() == age_s * SECOND_NS


@pytest.mark.parametrize("there", [None, ""], ids=["no-lease-there", "a-released-lease-there"])
async def test_no_lease_is_written_in_another_cluster_at_the_same_address(
    there: str | None,
) -> None:
    """The cluster behind an address was put up anew, or a VPN leads to another one."""
    sent: list[str] = []
    wrong = [""]

    class Api:
        server = LeaseServer()

        async def call(self, call: Any, **_: Any) -> Answer:
            sent.append(type(call).__name__)
            return self.server.answer(call)

    async def why() -> str:
        return wrong[0]

    keeper = LeaseKeeper(cast(Any, Api()), lambda: NOW, steady=lambda: NOW, name="lease")
    keeper.why_wrong_cluster = why
    assert await keeper.attempt() and sent == ["Get", "Post"]
    assert await keeper.attempt() and sent[2:] == ["Replace"], "a renewal asks nobody"
    sent.clear()
    Api.server = other = LeaseServer()
    if there is not None:
        meta = {"name": "kubectl-nodelife-enforce", "uid": "other"}
        other._keep({"metadata": meta, "spec": {"holderIdentity": there}})
    wrong[0] = "another cluster is behind this address"
    for _ in range(3):
        assert not await keeper.attempt()
    assert sent == ["Replace", "Get", "Get", "Get"], "one renewal, of a uid that is not there"
    assert keeper.error == wrong[0] and other.version == (there is not None)


async def test_a_lease_that_cannot_be_read_once_does_not_end_its_keeper() -> None:
    server = LeaseServer()

    class Api:
        async def call(self, call: Any, **_: Any) -> Answer:
            return server.answer(call)

    keeper = LeaseKeeper(cast(Any, Api()), lambda: NOW, steady=lambda: NOW, name="lease")
    assert await keeper.attempt()
    whole = server.lease
    assert whole is not None
    server._keep({**whole, "spec": {**server.spec, "leaseTransitions": "x"}})
    assert not await keeper.attempt() and not keeper.leads()
    assert "cannot be understood" in keeper.error
    server._keep(whole)
    assert await keeper.attempt() and keeper.leads() and not keeper.error


async def test_what_a_read_shows_was_seen_when_its_answer_came() -> None:
    """A read that the server wants later (429, Retry-After) may take a minute. Its holder has
    renewed the Lease just before the answer, and then waits for the same server.
    """
    server, now = LeaseServer(), [NOW]

    class Api:
        async def call(self, call: Any, **_: Any) -> Answer:
            return server.answer(call)

    class Slow(Api):
        waits = True

        async def call(self, call: Any, **_: Any) -> Answer:
            if self.waits:
                now[0] += 40 * SECOND_NS
                assert await holder.attempt()
            return server.answer(call)

    slow = Slow()
    holder, other = (
        LeaseKeeper(cast(Any, api), lambda: now[0], steady=lambda: now[0], name="lease")
        for api in (Api(), slow)
    )
    assert not await other.attempt() and holder.leads()
    slow.waits = False
    for _ in range(7):
        now[0] += 2 * SECOND_NS
        assert not await other.attempt(), "the holder has not had its time yet"
    assert not holder.leads() and not holder.is_over()
    now[0] += 2 * SECOND_NS
    assert holder.is_over() and await other.attempt()
