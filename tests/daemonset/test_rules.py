"""Small rules that upstream's vectors do not ask for."""

from typing import Any

import pytest

from kubectl_nodelife.controllers.daemonset.history import (
    SAFE_ALPHABET,
    compute_hash,
    controller_revision_name,
    get_patch,
    match,
)
from kubectl_nodelife.controllers.daemonset.placement import unmet_requirement, unmet_terms
from kubectl_nodelife.kube.meta import LabelSelectorRequirement, ObjectMeta
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import NodeSelectorTerm
from kubectl_nodelife.kube.workload import (
    ControllerRevision,
    NotAPercentage,
    default_pod_template,
    scaled_value,
)
from kubectl_nodelife.outlook.daemonset.rollout_outlook import template_changes

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "x:1", "ports": [{"containerPort": 80}]}]},
}


def test_a_hash_has_upstreams_form() -> None:
    value = compute_hash(TEMPLATE, None)
    assert set(value) <= set(SAFE_ALPHABET)
    assert 1 <= len(value) <= 10


def test_a_hash_changes_with_the_template_and_the_collision_count_alone() -> None:
    turned = dict(reversed(TEMPLATE.items()))
    stamped = {**TEMPLATE, "metadata": {"labels": {"a": "b"}, "creationTimestamp": None}}
    other = {**TEMPLATE, "metadata": {"labels": {"a": "c"}}}
    assert compute_hash(turned, None) == compute_hash(stamped, None) == compute_hash(TEMPLATE, None)
    hashes = {compute_hash(other, None), *(compute_hash(TEMPLATE, n) for n in (None, 0, 1, 2))}
    assert len(hashes) == 5


def test_a_long_name_is_cut() -> None:
    assert controller_revision_name("n" * 300, "hash") == "n" * 223 + "-hash"


def test_a_revision_holds_a_template_however_much_of_it_is_spelt_out() -> None:
    stored = ControllerRevision(data=get_patch(default_pod_template(TEMPLATE)))
    assert match(TEMPLATE, stored)
    assert match(default_pod_template(TEMPLATE), ControllerRevision(data=get_patch(TEMPLATE)))
    spec = {"containers": [{"name": "c", "image": "x:2", "ports": [{"containerPort": 80}]}]}
    assert not match({**TEMPLATE, "spec": spec}, stored)
    assert not match(TEMPLATE, ControllerRevision(data=None))
    assert not match(TEMPLATE, ControllerRevision(data={"spec": None}))


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_pull_policy_hangs_on_the_tag(image: str, policy: str) -> None:
    template = default_pod_template({"spec": {"containers": [{"image": image}]}})
    assert template["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_defaults_never_replace_what_is_written() -> None:
    written = {
        "dnsPolicy": "None",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"image": "x", "imagePullPolicy": "Never", "resources": {"limits": {}}}],
    }
    filled = default_pod_template({"spec": written})["spec"]
    assert (filled["dnsPolicy"], filled["terminationGracePeriodSeconds"]) == ("None", 0)
    assert filled["containers"][0]["imagePullPolicy"] == "Never"
    assert filled["containers"][0]["resources"] == {"limits": {}}
    assert default_pod_template({"metadata": {}}) == {"metadata": {}}


@pytest.mark.parametrize(
    ("value", "total", "scaled"),
    [
        (3, 10, 3),
        ("30%", 10, 3),
        ("31%", 10, 4),
        ("1%", 10, 1),
        ("0%", 10, 0),
        ("150%", 4, 6),
        ("-50%", 10, -5),
    ],
)
def test_percentages_are_rounded_up(value: int | str, total: int, scaled: int) -> None:
    assert scaled_value(value, total) == scaled


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "invalid type: string is not a percentage"),
        ("3", "invalid type: string is not a percentage"),
        ("x%", 'invalid value "x%": strconv.Atoi: parsing "x": invalid syntax'),
        ("1.5%", 'invalid value "1.5%": strconv.Atoi: parsing "1.5": invalid syntax'),
        ("%", 'invalid value "%": strconv.Atoi: parsing "": invalid syntax'),
    ],
)
def test_other_text_is_no_percentage(value: str, why: str) -> None:
    with pytest.raises(NotAPercentage) as raised:
        scaled_value(value, 10)
    assert str(raised.value) == f"invalid value for IntOrString: {why}"


def requirement(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    """A requirement."""
    return LabelSelectorRequirement(key, operator, values)


def test_what_an_affinity_term_lacks_is_said() -> None:
    node = Node(metadata=ObjectMeta(name="n1", labels={"zone": "c"}))
    wants = requirement("zone", "In", "a", "b")
    disk = requirement("disk", "Exists")
    name = requirement("metadata.name", "In", "n2")
    assert unmet_requirement(NodeSelectorTerm((wants, disk)), node) == (
        "zone In [a, b] (zone is 'c')"
    )
    assert unmet_requirement(NodeSelectorTerm((disk,)), node) == "disk Exists (disk is not set)"
    assert unmet_requirement(NodeSelectorTerm((), (name,)), node) == (
        "metadata.name In [n2] (the node is n1)"
    )
    assert unmet_requirement(NodeSelectorTerm(), node) == "the term is empty"
    assert unmet_terms((), node) == "it has no terms"
    terms = (NodeSelectorTerm((disk,)), NodeSelectorTerm((requirement("zone", "Exists"),)))
    assert unmet_terms(terms, node) is None


def test_lists_of_named_things_are_compared_by_name() -> None:
    old = {"spec": {"containers": [{"name": "a", "image": "a:1"}], "hostNetwork": True}}
    new = {
        "spec": {
            "containers": [{"name": "sidecar", "image": "s"}, {"name": "a", "image": "a:2"}],
            "tolerations": [{"operator": "Exists"}],
        }
    }
    assert [str(change) for change in template_changes(old, new)] == [
        'spec.containers[sidecar]: + {"name":"sidecar","image":"s"}',
        "spec.containers[a].image: a:1 -> a:2",
        'spec.tolerations: + [{"operator":"Exists"}]',
        "spec.hostNetwork: - true",
    ]
    assert template_changes(old, old) == []
