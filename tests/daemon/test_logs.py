"""The log: what happens too often does not push out what happened before."""

from __future__ import annotations

import logging

from kubectl_nodelife.daemon.logs import _Storms


def test_a_storm_is_cut_and_counted() -> None:
    storms = _Storms()

    def written(at_s: float, text: str) -> str:
        record = logging.makeLogRecord({"name": "asyncio", "msg": text, "args": ()})
        record.created = at_s
        return record.getMessage() if storms.filter(record) else ""

    lines = [
        written(number * 0.001, "socket.accept() out of system resource") for number in range(5_000)
    ]
    assert len([line for line in lines if line]) == 10
    assert written(1, "began") == "began"
    assert written(70, "socket.accept() out of system resource") == (
        "socket.accept() out of system resource (4990 more were left out before)"
    )
