"""What is read in a lower version than the watch has shown is of restored data.

On a whole cluster: `tests/hostile/scenarios.py`, `etcd-is-restored-…`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kubectl_nodelife.daemon.enforce.enforcement import RestoredData
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Node


def node(version: str, uid: str = "u") -> Node:
    return Node(ObjectMeta(name="n1", uid=uid, resource_version=version))


@dataclass
class Seen:
    """What the watch has shown before the request, and after it was sent; what is read."""

    before: str
    meanwhile: str
    read: str
    restored: bool


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(Seen("5", "5", "7", False), id="newer"),
        pytest.param(Seen("5", "5", "5", False), id="the-same"),
        pytest.param(Seen("5", "9", "7", False), id="the-watch-was-faster-than-the-answer"),
        pytest.param(Seen("5", "5", "3", True), id="older"),
        pytest.param(Seen("5", "5", "", False), id="of-no-version"),
    ],
)
def test_versions(row: Seen) -> None:
    said: list[str] = []
    cache = Cache()
    judge = RestoredData(cache, said.append)
    cache.apply(Put("Node", node(row.before)), 1)
    known = judge.known("Node", ("", "n1"))
    cache.apply(Put("Node", node(row.meanwhile)), 2)
    judge.judge(node(row.read), known)
    assert bool(said) is row.restored


def test_what_is_not_known_says_nothing() -> None:
    said: list[str] = []
    judge = RestoredData(Cache(), said.append)
    judge.judge(node("1"), judge.known("Node", ("", "n1")))
    judge.judge(node("1"), judge.known("ConfigMap", ("kube-system", "nodelife-stop")))
    assert said == []
