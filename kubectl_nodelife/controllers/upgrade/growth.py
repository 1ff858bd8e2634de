"""How a run grows: a step of one node, then of two, of four, until the limits take over.

Step k claims `canary * 2^k` nodes, waits until none of them is in flight, and soaks. When the next
step would be as wide as the pool's limit, growth ends, and nodes are claimed whenever they may be.
"""

from __future__ import annotations

from typing import NamedTuple


class StepOutcome(NamedTuple):
    """What became of a step's nodes, once none of them is in flight."""

    done: int
    failed: int


def step_width(step: int, canary: int) -> int:
    """How many nodes step `step` claims in all."""
    return canary << step


def is_growing(step: int, canary: int, most: int, max_parallel: int | None = None) -> bool:
    """Whether step `step` is played as a step; from the first that is not, the window slides.

    `most`: how many nodes of the pool may be unavailable. Step 0 is always played.
    """
    limit = most if max_parallel is None else min(most, max_parallel)
    return step == 0 or step_width(step, canary) < limit


def next_step(step: int, outcome: StepOutcome) -> int:
    """The step after one that ended so: wider, the same again, or from the beginning.

    A failure here is one within `--max-failures`; more of them pause the run.
    """
    if outcome.failed:
        return 0
    return step + 1 if outcome.done else step
