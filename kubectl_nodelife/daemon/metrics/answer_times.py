"""How long answers took that are made in child processes: of `what-if`, for a metric."""

from __future__ import annotations

import time
from typing import Any

from kubectl_nodelife.daemon.metrics.change_counts import Histogram
from kubectl_nodelife.daemon.server import Answer, Query


def timed(answer: Answer, times: Histogram) -> Answer:
    """The same answer, whose time is kept, also where it is an error."""

    async def with_time(query: Query) -> dict[str, Any]:
        began = time.monotonic()
        try:
            return await answer(query)
        finally:
            times.observe(time.monotonic() - began)

    return with_time
