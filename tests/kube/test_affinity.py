"""Node selectors and required node affinity."""

from typing import Any

import msgspec
import pytest

from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import NodeSelector, PodSpec
from kubectl_nodelife.kube.selectors import matches_node_selector, matches_required_node_affinity

NODE = Node(metadata=ObjectMeta(name="n1", labels={"zone": "a", "cores": "8"}))


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


IN_ZONE_A = expression("zone", "In", "a")
IN_ZONE_B = expression("zone", "In", "b")

TERMS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "no terms": ([], False),
    "an empty term": ([{}], False),
    "an empty term beside one that matches": ([{}, IN_ZONE_A], True),
    "terms are ORed": ([IN_ZONE_B, IN_ZONE_A], True),
    "expressions and fields are ANDed": ([IN_ZONE_A | field("In", "n1")], True),
    "expressions and fields are ANDed, other name": ([IN_ZONE_A | field("In", "n2")], False),
    "Gt": ([expression("cores", "Gt", "4")], True),
    "Lt": ([expression("cores", "Lt", "4")], False),
    "a malformed term spoils itself only": ([expression("zone", "In"), IN_ZONE_A], True),
    "field, name": ([field("In", "n1")], True),
    "field, not this name": ([field("NotIn", "n1")], False),
    "field, not another name": ([field("NotIn", "n2")], True),
    "field, two values": ([field("In", "n1", "n2")], False),
    "field, no values": ([field("NotIn")], False),
    "field, other operator": ([field("Exists", "n1")], False),
    "field, other key": ([field("In", "n1", key="metadata.uid")], False),
}


@pytest.mark.parametrize(("terms", "expected"), TERMS.values(), ids=TERMS)
def test_matches_node_selector(terms: list[dict[str, Any]], expected: bool) -> None:
    selector = msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector)
    assert matches_node_selector(selector, NODE) is expected
    spec = affine({}, terms)
    assert matches_required_node_affinity(spec, NODE) is expected


def affine(node_selector: dict[str, str], terms: list[dict[str, Any]]) -> PodSpec:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return msgspec.convert(
        {"nodeSelector": node_selector, "affinity": {"nodeAffinity": required}}, PodSpec
    )


def test_node_selector_and_affinity_must_both_hold() -> None:
    assert matches_required_node_affinity(PodSpec(), NODE)
    assert matches_required_node_affinity(PodSpec(node_selector={"zone": "a"}), NODE)
    assert not matches_required_node_affinity(PodSpec(node_selector={"zone": "b"}), NODE)
    assert matches_required_node_affinity(affine({"zone": "a"}, [IN_ZONE_A]), NODE)
    assert not matches_required_node_affinity(affine({"zone": "b"}, [IN_ZONE_A]), NODE)
    assert not matches_required_node_affinity(affine({"zone": "a"}, [IN_ZONE_B]), NODE)


def test_preferred_affinity_does_not_count() -> None:
    spec = msgspec.convert(
        {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": IN_ZONE_B}
                    ]
                }
            }
        },
        PodSpec,
    )
    assert matches_required_node_affinity(spec, NODE)
    assert not matches_required_node_affinity(PodSpec(node_selector={"a": "b"}), Node())
