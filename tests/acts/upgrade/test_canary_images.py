"""Which image a canary gets when nobody names one: never what another node's kubelet wrote."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from kubectl_nodelife.acts.upgrade.opening import (
    PAUSE_REPOSITORIES,
    PauseImages,
    pause_image,
    read_pause_images,
)
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.live.client import Client

DIGEST = "sha256:" + "ab" * 32
MIRROR = "localhost:5000/mirror/pause"


@pytest.mark.parametrize(
    ("names", "image"),
    [
        (
            [f"registry.k8s.io/pause@{DIGEST}", "registry.k8s.io/pause:3.10"],
            "registry.k8s.io/pause:3.10",
        ),
        (
            ["mcr.microsoft.com/oss/kubernetes/pause:3.6"],
            "mcr.microsoft.com/oss/kubernetes/pause:3.6",
        ),
        ([f"registry.k8s.io/pause@{DIGEST}"], f"registry.k8s.io/pause@{DIGEST}"),
        ([f"registry.k8s.io/pause:3.10@{DIGEST}"], f"registry.k8s.io/pause:3.10@{DIGEST}"),
        ([f"{MIRROR}:3.9"], f"{MIRROR}:3.9"),
        (["rancher/mirrored-pause:3.6", "nginx:1"], ""),
        (["evil.example/attacker/pause:9"], ""),
        (["evil.example/registry.k8s.io/pause:9", "registry.k8s.io.evil.example/pause:9"], ""),
        (["registry.k8s.io/pause@evil.example/x:1", "registry.k8s.io/pause:3.10\nx"], ""),
        (["registry.k8s.io/pause:$(reboot)", "registry.k8s.io/pause/x:1", "pause:1"], ""),
        ([], ""),
    ],
)
def test_a_pause_image_is_known_by_its_repository(names: list[str], image: str) -> None:
    assert pause_image([{"names": names}], (*PAUSE_REPOSITORIES, MIRROR)) == image


NODES = {
    "a1": ["evil.example/attacker/pause:9"],
    "a2": [],
    "a3": ["registry.k8s.io/pause:3.10"],
    "a4": [f"{MIRROR}:3.9"],
}


class Nodes:
    """An API server that lists NODES, two a page."""

    async def read(self, path: str) -> bytes:
        """One page."""
        page = ["a1", "a2"] if "continue=" not in path else ["a3", "a4"]
        labels = {"pool": "blue"}
        items = [
            {
                "metadata": {"name": name, "labels": labels},
                "status": {"images": [{"names": NODES[name]}]},
            }
            for name in page
        ]
        more = {"continue": "x"} if "a1" in page else {}
        return json.dumps({"metadata": more, "items": items}).encode()


def read(*mirrors: str) -> PauseImages:
    return asyncio.run(read_pause_images(cast(Client, Nodes()), mirrors))


def images(found: PauseImages) -> dict[str, str]:
    return {name: found.image_for(Cache(), node(name)) for name in NODES}


def test_what_one_node_reports_runs_on_no_other_and_only_from_known_repositories() -> None:
    """A kubelet may write anything into its own `status.images`."""
    own = {"a1": "", "a2": "", "a3": "registry.k8s.io/pause:3.10", "a4": ""}
    assert images(read()) == own
    assert images(read(MIRROR)) == own | {"a4": f"{MIRROR}:3.9"}


def test_a_node_without_an_image_is_asked_about_before_anything_is_done() -> None:
    found, policy = read(), policy_from({"selector": "pool=blue"})
    with pytest.raises(BadInput, match="known to be on a1, a2") as asked:
        found.check(policy, ["a1", "a2", "a3"])
    assert asked.value.on == "--canary-image" and "--pause-repository" in asked.value.remedy
    found.check(policy, ["a3"])
    found.check(policy_from({"canaryImage": "x/y:1"}), NODES)
    found.check(policy_from({"canaryTemplate": {"spec": {}}}), NODES)


def test_newcomers_have_reported_no_image_yet() -> None:
    replacing = policy_from({"work": {"mode": "replace"}})
    assert read().missing(replacing, ["a3"]) == ["a3"]


def node(name: str) -> Node:
    found = decode("Node", {"metadata": {"name": name, "labels": {"pool": "blue"}}})
    assert isinstance(found, Node)
    return found
