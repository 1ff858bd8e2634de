"""Reconstructs what happened as one timeline, from the journal, Events and the objects themselves.

`lines` makes a line (`replay_line`, with who did it) of everything that a source shows, and
`timeline` puts them together: one line of what several sources show, linked to what led to it; its
lanes are the states of nodes and zones over time. `drains` finds the drains in it, and
`drain_review` looks back on one. Pure; `commands/replay` reads the sources.
"""

from typing import Final

DECISIONS: Final = frozenset(
    {"ScheduleEviction", "CancelEviction", "QueueNode", "UnqueueNode", "SetZoneState"}
)
"""Actions that no object shows: they happen when they are decided, not when they are settled."""
