"""The registry of kinds: words in, types out."""

import pytest

from kubectl_nodelife.kube import kinds
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.workload import DaemonSet

FOUND = {
    ("v1", "Node"): "Node",
    ("", "Node"): "Node",
    ("v2", "Node"): "Node",
    ("longhorn.io/v1beta2", "Node"): None,
    ("apps/v1", "DaemonSet"): "DaemonSet",
    ("extensions/v1beta1", "DaemonSet"): "DaemonSet",
    ("apps.kruise.io/v1alpha1", "DaemonSet"): None,
    ("v1", "DaemonSet"): None,
    ("policy/v1beta1", "PodDisruptionBudget"): "PodDisruptionBudget",
    ("events.k8s.io/v1", "Event"): "Event",
    ("serving.knative.dev/v1", "Service"): None,
    ("v1", "Secret"): None,
}

WORDS = {
    "po": "Pod",
    "pods": "Pod",
    "pod": "Pod",
    "Pod": "Pod",
    "pods.v1": "Pod",
    "pods.v1.": "Pod",
    "pods.": "Pod",
    "pods.metrics.k8s.io": None,
    "ds": "DaemonSet",
    "daemonsets.apps": "DaemonSet",
    "ds.v1.apps": "DaemonSet",
    "ds.v1beta1.extensions": "DaemonSet",
    "ds.v9.apps": None,
    "pdb": "PodDisruptionBudget",
    "secrets": None,
    "": None,
}


@pytest.mark.parametrize(("given", "name"), FOUND.items(), ids=map(" ".join, FOUND))
def test_find_kind(given: tuple[str, str], name: str | None) -> None:
    kind = kinds.find_kind(*given)
    assert (kind.name if kind else None) == name


@pytest.mark.parametrize(("word", "name"), WORDS.items())
def test_find_resource(word: str, name: str | None) -> None:
    kind = kinds.find_resource(word)
    assert (kind.name if kind else None) == name


def test_kind_of_knows_every_type() -> None:
    for kind in kinds.KINDS:
        assert kinds.kind_of(kind.type()) == kind.name
        assert kinds.kind_named(kind.name) is kinds.kind_of_type(kind.type) is kind


def test_groups_and_resources() -> None:
    assert kinds.group_of("v1") == ""
    assert kinds.group_of("apps/v1") == "apps"
    assert kinds.kind_of_type(Node).resource == "nodes"
    assert kinds.kind_of_type(DaemonSet).resource == "daemonsets.apps"
    assert kinds.kind_of_type(DaemonSet).api_version == "apps/v1"


def test_no_two_kinds_share_a_word() -> None:
    words = [w for k in kinds.KINDS for w in (k.plural, k.name.lower(), *k.short_names)]
    assert len(words) == len(set(words))
