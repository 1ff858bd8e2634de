"""A watch that fails is told to the tripwires, and one that works is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.enforce.host import EnforcingHost, EnforcingTask
from kubectl_nodelife.live.news import FAILING, LISTING, WATCHING, KindPhase

NOW = 7


@pytest.mark.parametrize(
    "phase, began, told",
    [
        pytest.param(FAILING, True, [NOW], id="failing"),
        pytest.param(FAILING, False, [], id="before-anything-is-decided"),
        pytest.param(WATCHING, True, [], id="watching"),
        pytest.param(LISTING, True, [], id="listing"),
    ],
)
def test_a_failing_watch_is_trouble(
    phase: str, began: bool, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: Any, item: Any, seen: Any) -> Any:
        return seen

    monkeypatch.setattr(DecisionTask, "_note", nothing)
    said: list[int] = []
    host = EnforcingHost.__new__(EnforcingHost)
    host.tripwires = SimpleNamespace(trouble=said.append)  # type: ignore[assignment]
    host.engine = SimpleNamespace() if began else None  # type: ignore[assignment]
    task = EnforcingTask.__new__(EnforcingTask)
    task.host = host
    task.clock = SimpleNamespace(now_ns=lambda: NOW)  # type: ignore[assignment]
    asyncio.run(task._note(KindPhase("Node", phase), []))
    assert said == told
