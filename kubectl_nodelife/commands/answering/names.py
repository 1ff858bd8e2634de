"""Answers `names`: what completion offers of the objects that a daemon watches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.answers.view import ClusterView
from kubectl_nodelife.commands.answering.query import Query, Response, word
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.node import Node

MOST: Final = 500
"""More than anybody reads; the next letter narrows it."""

ZONE_LABEL: Final = "topology.kubernetes.io/zone"


def answer(view: ClusterView, query: Query) -> Response:
    """`items`: [name, description] of that kind that begin with `prefix`, sorted, MOST at most."""
    prefix, namespace = word(query, "prefix"), word(query, "namespace")
    found = {
        name: said
        for name, said in _named(view.cache, word(query, "kind"), namespace)
        if name.startswith(prefix)
    }
    return {"items": sorted(found.items())[:MOST]}


def _named(cache: Cache, kind: str, namespace: str) -> Iterator[tuple[str, str]]:
    match kind:
        case "nodes":
            yield from ((name, _of_node(node)) for name, node in cache.nodes.items())
        case "pods":
            for (space, name), pod in cache.pods.items():
                if space == namespace or not namespace:
                    yield name, f"on {pod.spec.node_name}" if pod.spec.node_name else "on no node"
        case "daemonsets":
            for space, name in cache.objects.get("DaemonSet", {}):
                if space == namespace or not namespace:
                    yield name, f"in {space}"
        case "namespaces":
            for space in {space for space, _ in cache.pods}:
                yield space, ""
        case "zones":
            for node in cache.nodes.values():
                if zone := (node.metadata.labels or {}).get(ZONE_LABEL):
                    yield f"{ZONE_LABEL}={zone}", ""


def _of_node(node: Node) -> str:
    ready = node.ready()
    state = {"True": "Ready", "False": "NotReady"}.get(ready.status if ready else "", "Unknown")
    zone = (node.metadata.labels or {}).get(ZONE_LABEL)
    return f"{state}, zone {zone}" if zone else state
