"""What a leader sees of the cluster, and why it is blind."""

import asyncio
import time
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.controllers.upgrade.controller import UpgradeController
from kubectl_nodelife.controllers.upgrade.memory import HostState
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy
from kubectl_nodelife.daemon import gate
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Actions
from kubectl_nodelife.engine.events import Change, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, NodeMeta
from kubectl_nodelife.upgrade.answers import make_ports

MINUTE_S = 60.0


def live_cache() -> LiveCache:
    """One that has read nothing."""
    clock = SimpleNamespace(now_ns=lambda steady_ns: steady_ns)
    return LiveCache(cast(Any, SimpleNamespace(clock=clock)), (), make_settings("newest"))


class Deciding(UpgradeController):
    """An upgrade controller that writes down what it hears, and may fail in a pass."""

    def __init__(self, *, fails: bool = False) -> None:
        settings = make_settings("newest")
        ports = make_ports(UpgradePolicy(), settings)
        super().__init__(UpgradePolicy(), ports, epoch=1, began_ns=0)
        self.heard: list[str] = []
        self._fails = fails

    def changed(self, change: Change, cache: Cache, now_ns: int) -> Actions:
        self.heard.append(f"{change.kind} {cast(KubeObject, change.new).name}")
        return super().changed(change, cache, now_ns)

    def make_pass(
        self, cache: Cache, now_ns: int, changed: Collection[str] | None = None
    ) -> list[Action]:
        if self._fails:
            raise KeyError("a bug")
        return super().make_pass(cache, now_ns, changed)


async def test_what_is_told_reaches_the_controller_that_leads_and_is_decided_on_later() -> None:
    cache, controller = live_cache(), Deciding()
    cache.take_in([Put("Node", Node(metadata=NodeMeta(name="before")))], 1)
    cache.lead(controller)
    engine = cache.engine
    assert engine is not None
    list(engine.decide(HostState(), 2))
    cache.take_in([Put("Node", Node(metadata=NodeMeta(name="n1")))], 3)
    assert engine.next_due() is not None and set(cache.cache.nodes) == {"before", "n1"}
    assert controller.heard == ["Node n1"]


async def test_an_object_that_the_cache_fails_at_is_set_aside_and_a_pass_that_fails_ends_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = live_cache()
    cache.lead(Deciding(fails=True))
    engine = cache.engine
    assert engine is not None
    apply = Cache.apply

    def failing(of: Cache, event: Any, now_ns: int) -> Change | None:
        if isinstance(event, Put) and event.obj.name == "bad":
            raise KeyError("a bug")
        return apply(of, event, now_ns)

    monkeypatch.setattr(Cache, "apply", failing)
    nodes = (Node(metadata=NodeMeta(name=name)) for name in ("bad", "good"))
    cache.take_in([Put("Node", node) for node in nodes], 1)
    assert set(cache.cache.nodes) == {"good"}
    assert list(cache.cache.quarantine.unreadable) == [("Node", ("", "bad"))]
    with pytest.raises(KeyError):
        list(engine.decide(HostState(), 2))


async def test_the_wait_for_another_leaders_lease_is_no_standstill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = live_cache()
    later = time.monotonic() + MINUTE_S
    monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: later))
    following = asyncio.create_task(cache.run())
    await asyncio.sleep(0)
    cache.queue.put_nowait("wakes it")
    assert await cache.receive() == ["wakes it"]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert cache.blind() == ""
