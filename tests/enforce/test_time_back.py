"""etcd restored from a backup: a list older than one before it opens the breaker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.enforce.host import EnforcingTask
from kubectl_nodelife.live.news import ListNews


@pytest.mark.parametrize(
    "lists, restored",
    [
        pytest.param([("Pod", "5"), ("Pod", "9")], False, id="forward"),
        pytest.param([("Pod", "9"), ("Pod", "9")], False, id="the-same"),
        pytest.param([("Pod", "9"), ("Pod", "5")], True, id="back"),
        pytest.param([("Pod", "9"), ("Node", "5")], False, id="another-kind-asked-earlier"),
        pytest.param([("Pod", "9"), ("Pod", "")], False, id="not-known"),
    ],
)
def test_time_runs_back(
    lists: list[tuple[str, str]], restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: Any, item: Any, seen: Any) -> Any:
        return seen

    monkeypatch.setattr(DecisionTask, "_note", nothing)
    task = EnforcingTask.__new__(EnforcingTask)
    said: list[str] = []
    task.newest, task.on_time_back = {}, said.append

    async def run() -> None:
        for kind, version in lists:
            await task._note(ListNews(kind, [], version=version), [])

    asyncio.run(run())
    assert bool(said) is restored
