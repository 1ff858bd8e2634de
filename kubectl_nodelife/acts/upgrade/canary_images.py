"""Where the canary's image comes from when nobody names one: a pause image that nodes have already.

`status.images` is read once and not watched: the list is long, of no other use, and holds the 50
largest images alone, so that a pause image is often missing in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pools import pool_of
from kubectl_nodelife.live.client import Client

_PAGE: Final = 100


class PauseImages:
    """`ports.CanaryImages`: the node's own pause image, else one of its pool."""

    def __init__(self, nodes: Mapping[str, str], pools: Mapping[str, str], pool_label: str) -> None:
        self._nodes = nodes
        self._pools = pools
        self._pool_label = pool_label or None

    def image_for(self, cache: Cache, node: Node) -> str:
        """An image that the node, or one of its pool, has already; "" where none is known."""
        _, pool = pool_of(node.metadata.labels, self._pool_label)
        return self._nodes.get(node.name) or self._pools.get(pool, "")


async def read_pause_images(client: Client, pool_label: str) -> PauseImages:
    """Read the images of all nodes. Raises NodelifeError."""
    nodes: dict[str, str] = {}
    pools: dict[str, str] = {}
    query = {"limit": str(_PAGE)}
    while True:
        page = msgspec.json.decode(await client.read(f"/api/v1/nodes?{urlencode(query)}"))
        for node in page.get("items") or ():
            if image := pause_image((node.get("status") or {}).get("images") or ()):
                meta = node["metadata"]
                nodes[meta["name"]] = image
                pools.setdefault(pool_of(meta.get("labels"), pool_label or None)[1], image)
        query["continue"] = (page.get("metadata") or {}).get("continue") or ""
        if not query["continue"]:
            return PauseImages(nodes, pools, pool_label)


def pause_image(images: Iterable[Mapping[str, Any]]) -> str:
    """A pause image by its tag, else by its digest; "" for none. Such as `registry/pause:3.10`."""
    names = [name for image in images for name in image.get("names") or ()]
    found = [name for name in names if _repository(name).rpartition("/")[2] == "pause"]
    return min(found, key=lambda name: ("@" in name, name), default="")


def _repository(name: str) -> str:
    """`registry:5000/a/pause:3.10` and `...@sha256:...` without tag and digest."""
    path, slash, last = name.partition("@")[0].rpartition("/")
    return path + slash + last.partition(":")[0]
