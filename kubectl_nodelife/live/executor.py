"""The executor of a dry run: it takes every action and does nothing.

An executor of this kind has no client, so there is nothing that it could write with. What would
have been written is in the journal; what it would have led to is in the projected layer.
"""

from __future__ import annotations

from kubectl_nodelife.engine.actions import Action


class DryRunExecutor:
    """Takes actions and counts those that would have been writes."""

    mode = "dry-run"

    def __init__(self) -> None:
        self.would_have_written = 0

    def start(self, action: Action, now_ns: int) -> None:
        """Do nothing, for ever."""
        if action.writes:
            self.would_have_written += 1
