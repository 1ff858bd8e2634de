"""Holds the verdict of `drain-plan --timeout` over coins: a drain that is called `never` ends in no
play, one without a warning in each, and of the others some are seen to end and some to be given up.

A coin is a play as in `test_drain_widths`, with the timeout of the plan.
"""

import random
from collections.abc import Iterator

import pytest

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.play import play_kubectl
from kubectl_nodelife.drain.results import NEVER, READY, SLOW, DrainPlan
from kubectl_nodelife.drain.snapshot import Scope
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.drain import headline
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.claims.test_drain_widths import PodCoins, drain_of, drawn
from tests.drain.build import Json, budget, node, replica_set, snapshot

COINS = 6
Cluster = list[Json | list[Json]]


def one_at_a_time() -> Cluster:
    """Three pods of one node, of which the budget spares one at a time; a grace of 30 s."""
    nodes: Cluster = [node(name) for name in ("a1", "a2", "a3")]
    guard = budget("web", "web", healthy=3, desired=2, expected=3, maxUnavailable=1)
    return [*nodes, replica_set("web", "a1", "a1", "a1", grace=30), guard]


def outcomes(
    objects: Cluster, names: tuple[str, ...], timeout_s: int, coins: PodCoins
) -> Iterator[tuple[DrainPlan, bool]]:
    """The plan, and whether each of its plays empties all nodes."""
    cluster = snapshot(*objects)
    options = DrainOptions(timeout_ns=timeout_s * SECOND_NS).of_release(cluster.settings.profile)
    told = make_plan(cluster, names, options)
    for coin in range(COINS):
        coins.seed = f"timeout {timeout_s}/{coin}"
        play = play_kubectl(Scope(cluster, names), options, drawn(random.Random(coins.seed)), names)
        yield told, play.empties_all()
        play.end()


def lies(told: DrainPlan, *, emptied: bool) -> list[str]:
    may_fail = any(node.may_fail for node in told.nodes)
    found = []
    if told.verdict == NEVER and emptied:
        found.append("it ends")
    if told.verdict != NEVER and not may_fail and not emptied:
        found.append("it is given up")
    if may_fail and told.verdict == READY:
        found.append("it may fail, and is ready")
    says_so = headline(told).startswith("This drain may not finish")
    if says_so != (may_fail and told.verdict == SLOW):
        found.append(headline(told))
    return found


def test_each_timeout_near_the_end_of_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    coins, ends = PodCoins(monkeypatch), dict[int, set[bool]]()
    verdicts = dict[int, tuple[str, bool]]()
    for timeout_s in range(8, 61):
        for told, emptied in outcomes(one_at_a_time(), ("a1",), timeout_s, coins):
            assert lies(told, emptied=emptied) == [], (timeout_s, headline(told))
            ends.setdefault(timeout_s, set()).add(emptied)
            verdicts[timeout_s] = told.verdict, bool(told.nodes[0].may_fail)
    order = list(dict.fromkeys(verdicts.values()))
    assert order == [("never", False), ("slow", True), ("slow", False)]
    between = [ends[timeout_s] for timeout_s, told in verdicts.items() if told == ("slow", True)]
    assert sum(seen == {False, True} for seen in between) > len(between) / 2


def test_random_drains_and_timeouts(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    coins = PodCoins(monkeypatch)
    for seed in seeds:
        objects, names = drain_of(seed)
        timeout_s = random.Random(f"timeout of {seed}").choice((1, 3, 7, 12, 20, 35, 60))
        for told, emptied in outcomes(objects, names, timeout_s, coins):
            assert lies(told, emptied=emptied) == [], (seed, timeout_s, headline(told))
