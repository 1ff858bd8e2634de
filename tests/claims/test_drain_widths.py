"""Holds the estimate of `drain-plan` over coins: whatever a kubelet, an owner, kubectl and the API
server may take, each pod for itself, the drain ends between the two ends that were told.

A coin is one play of the same drain. How long a request, a conflict and a controller take is drawn
for the play; how much of its grace period a pod uses, and which of the learnt times it takes to be
Ready, for each pod. They lie between the assumptions of the fast and of the slow play, so that an
end that is told too late, or too early, is found by some seed.
"""

import random
from collections.abc import Iterator

import pytest

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.play import play_kubectl
from kubectl_nodelife.drain.results import Estimate
from kubectl_nodelife.drain.snapshot import Scope
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.kubectl.conversation import RequestTimes
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.timing import FAST, SLOW, LearntTerms, Timing
from tests.drain.build import Json, budget, node, replica_set, snapshot, stateful_set

COINS = 4
DRAWN = "drawn"


def drain_of(seed: int) -> tuple[list[Json | list[Json]], tuple[str, ...]]:
    """One to three workloads, most with a budget, and the nodes that are drained."""
    rng = random.Random(f"drain {seed}")
    objects: list[Json | list[Json]] = [node(name, cpu="64") for name in ("a1", "a2", "b1", "b2")]
    for number in range(rng.randint(1, 3)):
        name, replicas = f"w{number}", rng.choice((1, 2, 3, 4, 6, 9, 14, 28))
        places = rng.choices(["a1", "a1", "a1", "a2", "b1"], k=replicas)
        since = f"2026-01-01T00:00:{rng.choice((1, 1, 2, 5, 12)):02}Z"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        grace = {"terminationGracePeriodSeconds": rng.choice((0, 1, 2, 5, 30))}
        policy = rng.choice(("", "", "Parallel", "OrderedReady"))
        of_pod: Json = {"spec": grace, "status": {"conditions": [ready]}}
        if policy:
            objects.append(stateful_set(name, *places, pod_more=of_pod, podManagementPolicy=policy))
        else:
            objects.append(replica_set(name, *places, **of_pod))
        if rng.random() < 0.8:
            spare = rng.randint(1, max(1, replicas // 2))
            counts = {"healthy": replicas, "desired": replicas - spare, "expected": replicas}
            objects.append(budget(name, name, **counts, maxUnavailable=spare))
    return objects, ("a1", "a2")[: rng.randint(1, 2)]


def drawn(rng: random.Random) -> Timing:
    """What one play assumes."""
    requests = RequestTimes(*map(rng.randint, FAST.requests, SLOW.requests))
    reacts_ns = rng.randint(FAST.controller_ns, SLOW.controller_ns)
    cut_ns = rng.choice((FAST.cut_ns, SLOW.cut_ns, None))
    return SLOW._replace(name=DRAWN, requests=requests, controller_ns=reacts_ns, cut_ns=cut_ns)


class PodCoins:
    """What each pod takes in a play of which the assumptions are drawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seed = ""
        for name in ("stops_after", "starts_after"):
            monkeypatch.setattr(LearntTerms, name, self._drawing(getattr(LearntTerms, name)))

    def _drawing(self, plain):  # type: ignore[no-untyped-def]
        def drawn_for(terms: LearntTerms, pod: Pod, *grace: int) -> int | None:
            if terms.timing.name == DRAWN:
                terms = LearntTerms(
                    times=terms.times,
                    timing=self._timing(terms.timing, pod),
                    start_ns=terms.start_ns,
                    starting=terms.starting,
                )
            taken: int | None = plain(terms, pod, *grace)
            return taken

        return drawn_for

    def _timing(self, timing: Timing, pod: Pod) -> Timing:
        rng = random.Random(f"{self.seed} {pod.name} {pod.uid}")
        return timing._replace(
            grace_percent=rng.choice((0, 100, rng.randint(0, 100))),
            stop_extra_ns=rng.randint(FAST.stop_extra_ns, SLOW.stop_extra_ns),
            ready=rng.choice((0, 1, 2)),
        )


def ends_of(seed: int, coins: PodCoins) -> Iterator[tuple[Estimate, float | None]]:
    """What is told of the drain of that seed, and when each of its plays ends; nothing where the
    drain does not finish."""
    objects, names = drain_of(seed)
    cluster = snapshot(*objects)
    told = make_plan(cluster, names, DrainOptions()).estimate
    if told is None:
        return
    options = DrainOptions().of_release(cluster.settings.profile)
    for coin in range(COINS):
        coins.seed = f"coin {seed}/{coin}"
        play = play_kubectl(Scope(cluster, names), options, drawn(random.Random(coins.seed)), names)
        yield told, play.end_ns / SECOND_NS if play.end_ns is not None else None
        play.end()


def test_a_drain_ends_within_its_estimate_whatever_the_coins(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    coins, held = PodCoins(monkeypatch), 0
    for seed in seeds:
        for told, ended in ends_of(seed, coins):
            assert ended is not None and told.low <= ended <= told.high, (seed, told, ended)
            held += 1
    assert held


def test_the_coins_reach_both_halves_of_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    coins, sides = PodCoins(monkeypatch), set()
    for seed in range(5):
        for told, ended in ends_of(seed, coins):
            assert ended is not None
            sides.add(ended > (told.low + told.high) / 2)
    assert sides == {False, True}
