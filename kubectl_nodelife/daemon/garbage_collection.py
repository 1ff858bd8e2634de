"""Sets Python's garbage collector so that it does not hold up the daemon's decisions."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (5_000, 5, 1_000_000_000)


def collect_seldom() -> None:
    """Set what was read aside for the garbage collector, and from now on look at new objects only.

    A full collection would look at everything for a third of a second, and find next to nothing:
    objects of the cluster refer to no others in circles.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
