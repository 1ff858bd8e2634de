"""Which image a canary gets when nobody names one."""

from __future__ import annotations

import pytest

from kubectl_nodelife.acts.upgrade.canary_images import PauseImages, pause_image
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.node import Node


@pytest.mark.parametrize(
    ("names", "image"),
    [
        (
            ["registry.k8s.io/pause@sha256:ab", "registry.k8s.io/pause:3.10"],
            "registry.k8s.io/pause:3.10",
        ),
        (["localhost:5000/mirror/pause:3.9"], "localhost:5000/mirror/pause:3.9"),
        (["rancher/mirrored-pause:3.6", "nginx:1"], ""),
        (
            ["602401143452.dkr.ecr.eu.amazonaws.com/eks/pause@sha256:cd"],
            "602401143452.dkr.ecr.eu.amazonaws.com/eks/pause@sha256:cd",
        ),
        ([], ""),
    ],
)
def test_a_pause_image_is_known_by_its_repository(names: list[str], image: str) -> None:
    assert pause_image([{"names": names}]) == image


def test_a_node_without_one_gets_that_of_its_pool() -> None:
    def node(name: str, pool: str) -> Node:
        found = decode("Node", {"metadata": {"name": name, "labels": {"pool": pool}}})
        assert isinstance(found, Node)
        return found

    images = PauseImages({"b1": "a/pause:1"}, {"blue": "a/pause:1"}, "")
    found = [images.image_for(Cache(), n) for n in (node("b1", "blue"), node("b2", "blue"))]
    assert found == ["a/pause:1", "a/pause:1"]
    assert images.image_for(Cache(), node("g1", "green")) == ""
