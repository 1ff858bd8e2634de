"""Plays on virtual time without the garbage collector.

A play makes hundreds of thousands of objects that stay until it ends, and the collector would look
at them over and over.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector(*, stay: bool = False) -> Iterator[None]:
    """`stay`: no circles are left among what was made, and the collector need never look at it;
    it goes when nobody holds it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if stay:
                gc.freeze()
            gc.enable()
