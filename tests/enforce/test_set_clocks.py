"""What must have been within the last seconds is counted by a clock that nobody can set.

The real `Enforcement` on a simulated API server whose clock, as its answers show it, is set while
the daemon runs: an hour back, a minute back, twenty seconds back, an hour on, or again and again.
"""

import asyncio
import random
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.engine.actions import EvictPod
from kubectl_nodelife.engine.calls import Answer, Get
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live import action_sender
from kubectl_nodelife.live.clock import MonotonicClock
from tests.deep import one_of
from tests.enforce.audit import on_the_true_clock
from tests.enforce.observer import LEASE, Rules, broken_rules
from tests.enforce.simulated_api import MOST_DELAY_S, Fault, Sent
from tests.enforce.simulation import CONTROLLERS, GRACE_S, Run, play, story
from tests.enforce.test_executor import NOW, Lab, pod
from tests.enforce.virtual_time import EPOCH_NS
from tests.planned import on_pod

Json = dict[str, Any]
SET_BY_S: dict[str, list[tuple[float, float]]] = {
    "an-hour-back": [(12, -3600)],
    "a-minute-back": [(12, -60)],
    "twenty-seconds-back": [(12, -20)],
    "an-hour-on": [(12, 3600)],
    "again-and-again": [(11 + n * 1.7, random.Random(n).uniform(-90, 90)) for n in range(40)],
    "never": [],
}
"""When the server's clock is set (seconds since the beginning), and how far from the true time."""

FROM_S = 10
_FREE = frozenset({"leases", "events", "selfsubjectaccessreviews"})


def busy_story(toleration_s: int) -> bytes:
    """A cluster in which something is to be written all the time, to 60 s at least."""
    told = msgspec.json.decode(story(1))
    told["spec"]["generate"]["tolerationSeconds"] = toleration_s
    nodes = ("a1", "b1", "a2", "b2")
    changes = [*((node, "stop") for node in nodes), *((node, "start") for node in nodes)]
    told["spec"]["events"] = [
        {"at": f"{4 + 7 * number}s", "kubelet": {"nodes": [node], "heartbeats": word}}
        for number, (node, word) in enumerate(changes)
    ]
    return msgspec.json.encode(told)


class SetClocks(Run):
    """A play in which the server's clock is set. `unanswered`: from the 10th second on no request
    is answered whose address has it. `single_caps`: the guard's.
    """

    def __init__(
        self,
        set_by_s: list[tuple[float, float]],
        unanswered: str = "",
        *single_caps: str,
        toleration_s: int = 4,
    ) -> None:
        super().__init__(1, told=busy_story(toleration_s))
        self.orders = self.orders._replace(
            begin="restart",
            caps="upstream",
            single_caps=single_caps,
            assume_stopped=CONTROLLERS,
        )
        self._unanswered = unanswered
        for at_s, by_s in set_by_s:
            self.world.at(EPOCH_NS + round(at_s * SECOND_NS), partial(self._set, by_s))

    def _set(self, by_s: float) -> None:
        self.world.server_ahead_ns = round(by_s * SECOND_NS)
        self.world.server_set_ns = self.world.now_ns + self.world.server_ahead_ns

    def _fault(self, sent: Sent) -> Fault:
        if self._unanswered and self._unanswered in sent.url and self.at_s > FROM_S:
            return Fault(reaches=False, answered=False)
        return super()._fault(sent)

    def writes(self) -> list[tuple[float, Json]]:
        """(seconds since the beginning, audit entry) of each write of the controllers."""
        play(self, 1)
        return [
            (_at_s(entry), entry)
            for entry in self.server.audit
            if entry["userAgent"].startswith("kubectl-nodelife/")
            and entry["objectRef"]["resource"] not in _FREE
        ]


def _at_s(entry: Json) -> float:
    at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
    return at - EPOCH_NS / SECOND_NS


by_clock = pytest.mark.parametrize("set_by_s", one_of(6, SET_BY_S.values()), ids=SET_BY_S)


@by_clock
@pytest.mark.parametrize(
    ("unanswered", "within_s"),
    [
        pytest.param("nodelife-stop", 5, id="the-kill-switch"),
        pytest.param(LEASE, 10, id="the-lease"),
    ],
)
def test_nothing_is_written_once_it_has_not_been_seen_for_so_long(
    unanswered: str, within_s: float, set_by_s: list[tuple[float, float]]
) -> None:
    on_its_way_s = 2
    late = [at for at, _ in SetClocks(set_by_s, unanswered).writes() if at > FROM_S]
    assert max(late, default=0) < FROM_S + within_s + on_its_way_s


def test_without_that_it_would_be_written() -> None:
    late = [at for at, _ in SetClocks([]).writes() if at > FROM_S + 15]
    assert len(late) > 20


@pytest.mark.parametrize("by_s", one_of(4, [-3600, -20, 20, 3600]))
def test_no_pod_goes_before_its_seconds_are_over(by_s: float) -> None:
    """They were counted from the date of a taint, which another clock may have given."""
    run = SetClocks([(22, by_s)], toleration_s=20)
    assert any(at < 22 for at, entry in run.writes() if "taints" in str(entry["requestObject"]))
    rules = Rules(grace_s=GRACE_S, delay_s=MOST_DELAY_S / 2)
    assert broken_rules(on_the_true_clock(run.server.audit), rules) == []


@by_clock
def test_a_cap_is_kept_in_each_minute(set_by_s: list[tuple[float, float]]) -> None:
    run = SetClocks(set_by_s, "", "deletions-per-minute=2")
    deletions = [
        at
        for at, entry in run.writes()
        if entry["verb"] == "delete" and entry["objectRef"]["resource"] == "pods"
    ]
    if len(set_by_s) < 2:  # else it never sees a whole grace period
        assert len(deletions) >= 2
    for first, third in zip(deletions, deletions[2:], strict=False):
        assert third - first > 59, "a clock that is set makes no new minute"


def test_the_clock_of_limits_goes_on_however_the_other_is_set() -> None:
    times = {"server": NOW, "steady": 5}
    clock = MonotonicClock(lambda: times["server"], lambda: times["steady"])
    assert clock.now_ns() == NOW
    times.update(server=NOW - 3600 * SECOND_NS, steady=6)
    assert clock.now_ns() == NOW + 1


@pytest.mark.parametrize("set_by_s", [-3600, 3600])
def test_an_eviction_is_asked_for_again_after_five_seconds(
    set_by_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause within a conversation is neither one of an hour nor left out."""
    asked: list[int] = []

    def answer(call: Any) -> Answer:
        if isinstance(call, Get):
            return Answer(200, pod("p"), now_ns=lab.now_ns)
        asked.append(lab.now_ns)
        lab.set_by_ns = set_by_s * SECOND_NS
        return Answer(429 if len(asked) == 1 else 200, now_ns=lab.now_ns)

    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    lab = Lab(answer)
    monkeypatch.setattr(action_sender.asyncio, "sleep", sleep)
    lab.play(on_pod(EvictPod))
    assert len(asked) == 2
    assert max(slept) == pytest.approx(5, abs=0.1)
