"""How long what-if took is kept, of answers and of errors."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from kubectl_nodelife.daemon.metrics.recorder import Histogram, timed
from kubectl_nodelife.daemon.server import whole
from kubectl_nodelife.errors import Failed


async def _told(query: Any) -> AsyncGenerator[dict[str, Any]]:
    if query:
        raise Failed("no")
    yield {"progress": {}}
    await asyncio.sleep(0.02)
    yield {"text": "an answer"}


def test_answers_and_errors_count() -> None:
    times = Histogram((0.01, 60.0))
    answer = whole(timed(_told, times))
    assert asyncio.run(answer({})) == {"text": "an answer"} and times.counts == [0, 1, 0]
    with pytest.raises(Failed):
        asyncio.run(answer({"lose": ["a"]}))
    assert times.counts == [1, 1, 0] and times.sum >= 0.02
