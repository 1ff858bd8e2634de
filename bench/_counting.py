"""Counts the work of a piece of code instead of its time: calls, and blocks of memory kept.

A count is the same on every machine and under every load, as long as the Python is the same minor
version and the seed the same. Code that takes longer because it does more has a higher count.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType, TracebackType
from typing import Any, Final

from bench import Stopwatch

_PARTS_OF_A_FUNCTION: Final = frozenset(
    {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"}
)
"""Frames of code that is part of the function around it: how often one of them is entered says
nothing about the number of functions."""


class CountingStopwatch(Stopwatch):
    """Counts the calls inside the `with` blocks, added up; its times mean nothing.

    `calls`: Python functions, a generator once for each time that it is resumed, and functions
    written in C. `kept_blocks`: memory blocks that are held at the end of the blocks and were not
    before, by `sys.getallocatedblocks`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.kept_blocks = 0

    def __enter__(self) -> CountingStopwatch:
        super().__enter__()
        gc.collect()
        self._blocks = sys.getallocatedblocks()
        sys.setprofile(self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.setprofile(None)
        gc.collect()
        self.kept_blocks += sys.getallocatedblocks() - self._blocks
        super().__exit__(kind, error, trace)

    def _count(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self.calls += frame.f_code.co_name not in _PARTS_OF_A_FUNCTION
        elif event == "c_call":
            self.calls += 1
