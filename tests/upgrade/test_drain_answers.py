"""What is said of a node's drain without playing it: rows 15, 16 and 19, held against the planner.

Every case is planned by `drain/plan.py` as well: the quick answer must not be better than the
planner's, which plays the drain.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict
from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.upgrade.drain_answers import DrainFacts, drain_answer, node_drain, pods_taken
from tests.drain import build

NODES = [*build.node("a1"), *build.node("a2"), *build.node("a3"), build.namespace()]
OPTIONS = DrainOptions(ignore_daemonsets=True, timeout_ns=15 * MINUTE_NS)
SPARES_NONE = build.budget("web", "web", healthy=2, desired=2, expected=2, minAvailable=2)
SPARES_ONE = build.budget("web", "web", healthy=3, desired=2, expected=3, minAvailable=2)
AT_ZERO = build.budget("web", "web", healthy=2, desired=2, expected=3, allowed=0, minAvailable=2)


def answer(
    *objects: build.Json | list[build.Json],
    draining: tuple[str, ...] = (),
    options: DrainOptions = OPTIONS,
) -> DrainVerdict:
    made = build.snapshot(NODES, *objects)
    facts = DrainFacts.of(made, options)
    for name in draining:
        leaving = pods_taken(node_drain(name, made.pods_on(name), facts), facts)
        facts.taken = Counter(facts.taken) + Counter(leaving)
    return drain_answer(node_drain("a1", made.pods_on("a1"), facts), facts)


@pytest.mark.parametrize(
    "objects, verdict, says",
    [
        pytest.param([], "ready", "every pod goes", id="an empty node"),
        pytest.param([build.replica_set("web", "a1", "a2")], "ready", "every pod", id="no budget"),
        pytest.param(
            [build.replica_set("web", "a1", "a1", "a2"), SPARES_ONE],
            "slow",
            "budget web (minAvailable 2) has 3 healthy of 3 and needs 2",
            id="16: two pods of a budget that spares one",
        ),
        pytest.param(
            [build.replica_set("web", "a1", "a2"), SPARES_NONE],
            "never",
            "pod default/web-0: budget web (minAvailable 2) has 2 healthy of 2 and needs 2;"
            " it can never spare one",
            id="a budget that never spares one",
        ),
        pytest.param(
            [build.replica_set("web", "a1", "a2", "a3"), SPARES_ONE, {**SPARES_ONE, "metadata": {
                **SPARES_ONE["metadata"], "name": "also", "uid": "pdb-also"}}],
            "never",
            "pod default/web-0: two budgets match it, web and also: the Eviction API refuses that",
            id="15: two budgets on one pod",
        ),
        pytest.param(
            [build.replica_set("web", "a1", metadata={"finalizers": ["x.io/y"]})],
            "never",
            "pod default/web-0: finalizer x.io/y holds it",
            id="a finalizer",
        ),
        pytest.param([build.pod("bare", "a1")], "refused", "--force", id="a bare pod"),
        pytest.param(
            [build.replica_set("web", "a1", spec={"volumes": [{"name": "v", "emptyDir": {}}]})],
            "refused",
            "--delete-emptydir-data",
            id="an emptyDir",
        ),
        pytest.param(
            [build.workload("DaemonSet", "agent", 0), build.owned("DaemonSet", "agent", "a1", 0)],
            "ready",
            "every pod goes",
            id="a daemon pod stays",
        ),
    ],
)  # fmt: skip
def test_verdicts(objects: list[Any], verdict: str, says: str) -> None:
    found = answer(*objects)
    assert found.verdict == verdict
    assert says in found.sentence
    planned = make_plan(build.snapshot(NODES, *objects), ["a1"], OPTIONS)
    assert planned.verdict == verdict
    if planned.estimate is not None:
        assert found.low_seconds <= planned.estimate.high
        assert found.high_seconds >= planned.estimate.low


@pytest.mark.parametrize("seconds, verdict", [(20, "slow"), (3, "never")])
def test_never_within_the_timeout_is_said_of_what_no_drain_can_do(
    seconds: int, verdict: str
) -> None:
    """Replacements that are Ready at once refill a budget in much less than the usual 5 s."""
    of = {"desired": 7, "expected": 8, "minAvailable": 7}
    web = [build.replica_set("web", *["a1"] * 8), build.budget("web", "web", healthy=8, **of)]
    options = replace(OPTIONS, timeout_ns=seconds * SECOND_NS)
    assert answer(*web, options=options).verdict == verdict


def test_only_what_the_budgets_spare_now_is_evictable() -> None:
    found = answer(
        build.replica_set("web", "a1", "a1", "a2"), build.replica_set("api", "a1"), SPARES_ONE
    )
    assert found.moving == (("default", "api-0"), ("default", "web-0"), ("default", "web-1"))
    assert found.evictable == (("default", "api-0"), ("default", "web-0"))
    assert not found.waits


@pytest.mark.parametrize(
    "healthy, policy, verdict",
    [
        pytest.param(2, None, "ready", id="the others are healthy"),
        pytest.param(1, None, "slow", id="the others are not"),
        pytest.param(1, "AlwaysAllow", "ready", id="it may always go"),
    ],
)
def test_a_pod_that_is_not_ready(healthy: int, policy: str | None, verdict: str) -> None:
    of = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    web = build.budget("web", "web", healthy=healthy, desired=2, expected=3, minAvailable=2, **of)
    sick = {"conditions": [{"type": "Ready", "status": "False"}]}
    pods = [*build.replica_set("web", "a2", "a3")]
    pods.append(build.owned("ReplicaSet", "web", "a1", 2, status=sick))
    found = answer(pods, web)
    assert found.verdict == verdict
    assert found.waits == (not found.evictable) == (verdict == "slow")


def test_a_budget_at_zero_that_refills_makes_the_node_wait() -> None:
    found = answer(build.replica_set("web", "a1", "a2", "a3"), AT_ZERO)
    assert (found.verdict, found.waits, found.evictable) == ("slow", True, ())


def test_nodes_draining_now_count_against_the_budget() -> None:
    pods = build.replica_set("web", "a1", "a2", "a3")
    assert not answer(pods, SPARES_ONE).waits
    assert answer(pods, SPARES_ONE, draining=("a2",)).waits
    assert not answer(pods, SPARES_ONE, draining=("a4",)).waits


def test_a_pod_that_is_going_already_is_not_evicted_again() -> None:
    going = {"metadata": {"deletionTimestamp": "2026-01-01T01:00:20Z"}}
    found = answer(build.replica_set("web", "a1", **going))
    assert found.moving and not found.evictable


def test_an_unread_kind_makes_the_answer_unknown() -> None:
    made = build.snapshot(NODES, build.replica_set("web", "a1"), read={"Node", "Pod", "ReplicaSet"})
    facts = DrainFacts.of(made, OPTIONS)
    found = drain_answer(node_drain("a1", made.pods_on("a1"), facts), facts)
    assert found.verdict == "unknown"
    assert "PodDisruptionBudget" in found.sentence
