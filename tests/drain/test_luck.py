"""Plans where the scheduler's choice among nodes of the same score is chance."""

from typing import Any

import pytest

from kubectl_nodelife.drain.results import DrainPlan
from kubectl_nodelife.report.drain import headline, landing_text
from tests.drain.build import Json, budget, node, plan, pods_of, replica_set

HOST = "kubernetes.io/hostname"
BOTH = ("b1", "b2")


def sized(cpu: str, *, part: str, **spec: Json) -> Json:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"labels": {"part": part}}, "spec": {"containers": containers, **spec}}


def crowded(*names: str, cpu: str = "4") -> list[Any]:
    """The replacement of a-0 takes half of either node; b-0's fits on b1 only, and only if a-0's is
    not there. The budget spares one of b and c at a time, so that c-0 is held while b-0 waits."""
    nodes = [obj for name in names for obj in node(name, cpu=cpu)]
    small = replica_set("a", "a1", **sized("2", part="alone"))
    large = replica_set("b", "a1", **sized("3", part="guarded", nodeSelector={HOST: "b1"}))
    third = replica_set("c", "a1", **sized("1", part="guarded"))
    selector: Json = {"matchLabels": {"part": "guarded"}}
    guard = budget(
        "both", "b", healthy=2, desired=1, expected=2, maxUnavailable=1, selector=selector
    )
    return [nodes, small, large, third, guard]


def tight(*names: str, drained: tuple[str, ...] = ("a1",)) -> DrainPlan:
    more = [obj for name in drained for obj in node(name)]
    return plan(more, *crowded(*names), nodes=drained)


@pytest.mark.parametrize("names", [BOTH, BOTH[::-1]])
def test_where_a_pod_lands_by_chance_may_decide_the_drain(names: tuple[str, str]) -> None:
    """Whichever of the two nodes was there first."""
    found = tight(*names)
    waits = pods_of(found)["c-0"]
    assert (found.verdict, waits.verdict) == ("slow", "slow")
    assert "if replacements land on other nodes of the same score" in waits.reason
    assert headline(found).startswith("This drain may not finish if replacements land on other")


def test_nodes_behind_the_one_that_may_hang_are_not_come_to() -> None:
    found = tight(*BOTH, drained=("a0", "a1", "a2"))
    assert [bool(node.may_fail) for node in found.nodes] == [False, True, True]
    assert headline(found).startswith("This drain may not finish: 2 of 3 nodes may not be drained")


def test_a_node_that_is_better_is_no_chance() -> None:
    alone = replica_set("web", "a1", **sized("1", part="web"))
    nodes = [*node("a1"), *node("b1"), *node("b2", cpu="4")]
    (landing,) = (pod.landing for pod in plan(nodes, alone).pods())
    assert not any(place.by_chance for place in landing)
    assert landing_text(landing) == "b1 (or b2)"


def test_nodes_of_one_score_are_named_together() -> None:
    alone = replica_set("web", "a1", **sized("1", part="web"))
    nodes = [obj for name in ("a1", *BOTH) for obj in node(name)]
    small = node("b3", cpu="2")
    (landing,) = (pod.landing for pod in plan(nodes, small, alone).pods())
    assert [place.node for place in landing if place.by_chance] == ["b1", "b2"]
    assert landing_text(landing) == "b1|b2 by chance (or b3)"
