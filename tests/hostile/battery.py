"""The battery: an enforcing daemon between a true API server and somebody who lies on the way.

The server takes writes, plays the kubelets and judges each write from inside, at the instant at
which it arrives: who holds the Lease by its own store, and by `tests.enforce.observer` whether
what is written is what the truth asks for. The daemon is the real one (`tests.enforce.simulation`),
on virtual time. What somebody on the way makes of requests and answers is a `Scenario`, a row of
`scenarios.py`. A scenario is passed where no write broke a rule, and where the cluster ends as it
does without a liar: nothing was believed that should not be, and nothing was given up for it.

By hand: `python -m tests.hostile.battery --seconds 3600 --seed 1` draws scenarios and stories.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from kubectl_nodelife.daemon.flags import Orders
from kubectl_nodelife.kube.times import SECOND_NS
from tests.enforce.observer import LEASE, count_of_ours
from tests.enforce.simulated_api import Fault, Sent
from tests.enforce.simulated_daemon import Disk, Process
from tests.enforce.simulation import CONTROLLERS, FAULTS_UNTIL_S, Outcome, Run, play

STORIES = 8
STOLEN_S = 4.0
"""So long after a thief took the Lease by force a write of ours may arrive: two renewals."""
_FREE = ("/leases/", "/leases", "/events", "selfsubjectaccessreviews")


class Scenario(NamedTuple):
    """`lies` says what happens to a request, None where nothing does, given the stand and it.
    `happens`: what else goes on, and when, in seconds. `begin`: as the daemon's flag. `story`:
    another than that of the number. `allows`: how many of the rules' breaches may be of that kind,
    which the truth's own window explains. `begins_late`: the daemon may lead only after a set has
    changed, which then has a revision less. `ends_alike`: the cluster ends as without a liar.
    `resumed_from_s`: when a person comes who closes what has opened. `standby`: a second daemon
    waits for the Lease.
    """

    name: str
    lies: Callable[[Stand, Sent], Fault | None] = lambda stand, sent: None
    happens: tuple[tuple[float, Callable[[Stand], None]], ...] = ()
    begin: str = "restart"
    story: Callable[[int], bytes] | None = None
    allows: tuple[str, int] = ("", 0)
    ends_alike: bool = True
    begins_late: bool = False
    resumed_from_s: float = FAULTS_UNTIL_S
    standby: bool = False


class Stand(Run):
    """One scenario, played on a story. `judged`: writes that were judged from inside."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        super().__init__(number, told=scenario.story(number) if scenario.story else b"")
        self.scenario = scenario
        self.resumed_from_s = scenario.resumed_from_s
        self.two = scenario.standby
        self.orders = Orders(CONTROLLERS, CONTROLLERS, scenario.begin, "upstream")
        self.judged: Counter[str] = Counter()
        self.lied = self.explained = 0
        self._stolen_s = 0.0
        for at_s, happens in scenario.happens:
            at_ns = self.world.now_ns + round(at_s * SECOND_NS)
            self.world.at(at_ns, partial(happens, self))

    def steal(self, seconds: float) -> None:
        """Somebody writes himself into the Lease, without waiting for his turn, and renews it."""
        self._stolen_s = self.at_s
        self._steal(self.world.now_ns + round(seconds * SECOND_NS))

    def _made(self, disk: Disk) -> Process:
        process = super()._made(disk)
        process.network.on_arrival = partial(self._judge_inside, process)
        return process

    def _fault(self, sent: Sent) -> Fault:
        fault = self.scenario.lies(self, sent)
        if fault is not None and self._would_be_dropped(sent):
            fault = None
        self.lied += fault is not None
        return fault or Fault()

    def leads(self, process: Process) -> bool:
        """True if the server's own Lease names this daemon."""
        return self._holder() == process.enforcement.keeper.election.identity

    def _holder(self) -> str:
        lease = self.server.store.collections["Lease"].entries.get(("kube-system", LEASE))
        spec = lease.document()["spec"] if lease is not None else {}
        return str(spec.get("holderIdentity") or "")

    def _judge_inside(self, process: Process, sent: Sent) -> None:
        """A write of ours arrives: is it ours to make, by what the server itself holds?"""
        if any(word in sent.url for word in _FREE):
            return
        self.judged[sent.method] += 1
        if not self.leads(process) and self.at_s > self._stolen_s + STOLEN_S:
            holder = self._holder() or "nobody"
            what = f"{self.at_s:.3f} {sent.method} {sent.url}"
            self.broken.append(f"{what}: {holder} holds the Lease")


@lru_cache(maxsize=STORIES)
def _without_a_liar(
    number: int, begin: str, story: Callable[[int], bytes] | None = None
) -> Outcome:
    return play(Stand(Scenario("nobody lies", begin=begin, story=story), number), number)


def faults_found(scenario: Scenario, number: int = 1) -> tuple[list[str], Stand]:
    """What does not hold, and the stand that was played."""
    stand = Stand(scenario, number)
    played = play(stand, number)
    kind, most = scenario.allows
    explained = [text for text in played.broken if kind and kind in text]
    found = [text for text in played.broken if text not in explained]
    found += explained if len(explained) > most else []
    stand.explained = len(explained)
    if not scenario.ends_alike:
        return found, stand
    calm = _without_a_liar(number, scenario.begin, scenario.story)
    found += calm.broken
    for uid in sorted((played.deleted - calm.deleted) & played.first_pods):
        found.append(f"the pod of uid {uid} was deleted, and would not have been without a liar")
    for key in sorted(calm.end.keys() | played.end.keys()):
        one, other = calm.end.get(key), played.end.get(key)
        if one != other and not (scenario.begins_late and key == "revisions"):
            found.append(f"in the end {key}: {other}, without a liar {one}")
    if not count_of_ours(played.audit):
        found.append("nothing was written, so that nothing was judged")
    return found, stand


def main() -> None:
    """The soak."""
    from tests.hostile.scenarios import SCENARIOS

    parser = argparse.ArgumentParser(prog="python -m tests.hostile.battery")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    dice, ends = random.Random(given.seed), time.monotonic() + given.seconds
    counts: Counter[str] = Counter()
    broken: list[Any] = []
    while time.monotonic() < ends:
        scenario, number = dice.choice(SCENARIOS), dice.randrange(10_000)
        found, stand = faults_found(scenario, number)
        counts["scenarios"] += 1
        counts["lies"] += stand.lied
        counts["judged writes"] += stand.judged.total()
        if found:
            counts["broken"] += 1
            broken.append((scenario.name, number, found[:3]))
            print(f"{scenario.name}, story {number}: {found[:3]}", flush=True)
    print({**counts, "names": sorted({name for name, *_ in broken})})


if __name__ == "__main__":
    main()
