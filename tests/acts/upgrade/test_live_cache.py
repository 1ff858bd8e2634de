"""What a leader sees of the cluster, and why it is blind."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.acts.upgrade.live_cache import LiveCache
from kubectl_nodelife.daemon import gate
from kubectl_nodelife.engine.settings import make_settings

MINUTE_S = 60.0


def test_the_wait_for_another_leaders_lease_is_no_standstill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now_ns=lambda steady_ns: steady_ns)
    client = cast(Any, SimpleNamespace(clock=clock))

    async def story() -> str:
        cache = LiveCache(client, (), make_settings("newest"))
        later = time.monotonic() + MINUTE_S
        monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: later))
        following = asyncio.create_task(cache.run())
        await asyncio.sleep(0)
        await cache.gather(0.01)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return cache.blind()

    assert asyncio.run(story()) == ""
