"""What is read in a lower version than the watch has shown is of restored data.

On a whole cluster: `tests/hostile/scenarios.py`, `etcd-is-restored-…`.
"""

from dataclasses import dataclass

import pytest

from kubectl_nodelife.daemon.enforce.enforcement import RestoredData
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.kube.node import Node
from tests.objects import node, typed


def of_version(version: str) -> Node:
    return typed(node(version=version))


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
    cache.apply(Put("Node", of_version(row.before)), 1)
    known = judge.known("Node", ("", "n1"))
    cache.apply(Put("Node", of_version(row.meanwhile)), 2)
    judge.judge(of_version(row.read), known)
    assert bool(said) is row.restored


def test_what_is_not_known_says_nothing() -> None:
    said: list[str] = []
    judge = RestoredData(Cache(), said.append)
    judge.judge(of_version("1"), judge.known("Node", ("", "n1")))
    judge.judge(of_version("1"), judge.known("ConfigMap", ("kube-system", "nodelife-stop")))
    assert said == []
