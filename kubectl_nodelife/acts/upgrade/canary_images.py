"""Where the canary's image comes from when nobody names one: the node's own pause image.

A kubelet may write into `status.images` what it likes, so that what a node reports is used on that
node alone, and only an image of a repository that Kubernetes' own pause images come from, or that
the user has named. `status.images` is read once and not watched: the list is long, of no other use,
and holds the 50 largest images alone, so that a pause image is often missing in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.upgrade.findings import ASK_FOR_IMAGE

PAUSE_REPOSITORIES: Final = (
    "registry.k8s.io/pause",
    "k8s.gcr.io/pause",
    "mcr.microsoft.com/oss/kubernetes/pause",
    "mcr.microsoft.com/oss/v2/kubernetes/pause",
    "public.ecr.aws/eks-distro/kubernetes/pause",
)
"""Those of Kubernetes, and of the AKS and EKS nodes that come with a copy of it."""
_PAGE: Final = 100
_NAMED: Final = 5
_REFERENCE: Final = re.compile(
    r"(?P<repository>[^@]*?)(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


class PauseImages:
    """`ports.CanaryImages`: each node's own pause image."""

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self._nodes = nodes

    def image_for(self, cache: Cache, node: Node) -> str:
        """The image that the node reports to have; "" where none is known."""
        return self._nodes.get(node.name, "")

    def missing(self, policy: UpgradePolicy, names: Iterable[str]) -> list[str]:
        """Those of the nodes for whose canary no image is known. What is made in the place of a
        node that is replaced has reported none yet.
        """
        if policy.canary_image or policy.canary_template:
            return []
        is_replaced = policy.work.mode is WorkMode.REPLACE
        return [name for name in names if is_replaced or name not in self._nodes]

    def check(self, policy: UpgradePolicy, names: Iterable[str]) -> None:
        """Raises BadInput where a node would have no canary."""
        if missing := self.missing(policy, names):
            raise BadInput(
                f"no pause image is known to be on {first_names(sorted(missing), _NAMED)}",
                on="--canary-image",
                remedy=ASK_FOR_IMAGE,
            )


def check_image(policy: UpgradePolicy, given: Mapping[str, Any], run: str) -> None:
    """Raises BadInput where only the run's document names the canary's image, and it is of no known
    repository: who may write a Lease shall not choose what runs on nodes.
    """
    image = policy.canary_image
    is_known = _repository(image) in (*PAUSE_REPOSITORIES, *policy.pause_repository)
    if image and "canaryImage" not in given and not is_known:
        raise BadInput(
            f"run {run} names {image!r} on its Lease, where any writer of the Lease can put it",
            on="--canary-image",
            remedy="give the image, or its repository as --pause-repository",
        )


async def read_pause_images(client: Client, mirrors: Collection[str]) -> PauseImages:
    """Read the images of all nodes. `mirrors`: further repositories. Raises NodelifeError."""
    nodes: dict[str, str] = {}
    trusted = (*PAUSE_REPOSITORIES, *mirrors)
    query = {"limit": str(_PAGE)}
    while True:
        page = msgspec.json.decode(await client.read(f"/api/v1/nodes?{urlencode(query)}"))
        for node in page.get("items") or ():
            if image := pause_image((node.get("status") or {}).get("images") or (), trusted):
                nodes[node["metadata"]["name"]] = image
        query["continue"] = (page.get("metadata") or {}).get("continue") or ""
        if not query["continue"]:
            return PauseImages(nodes)


def pause_image(images: Iterable[Mapping[str, Any]], trusted: Collection[str]) -> str:
    """An image of these repositories by its tag, else by its digest; "" for none."""
    names = [name for image in images for name in image.get("names") or ()]
    found = [name for name in names if _repository(name) in trusted]
    return min(found, key=lambda name: ("@" in name, name), default="")


def _repository(name: str) -> str:
    """`registry:5000/a/pause` of `registry:5000/a/pause:3.10` and of `...@sha256:...`; "" for what
    is no reference.
    """
    match = _REFERENCE.fullmatch(name)
    return match["repository"] if match is not None else ""
