"""A question about DaemonSets, as `daemonset` and `rollout` ask it and the daemon takes it."""

from __future__ import annotations

from typing import Any, NamedTuple

SUMMARY, NODES, STATUS, HISTORY, UNDO = "counts", "nodes", "status", "history", "undo"

QUESTION = "daemonset"
"""The daemon's name for all of them."""


class SetQuestion(NamedTuple):
    """What is asked about which set. `namespace` "": all; `name` "": all sets; `revision` 0: none.

    `about` is one of the five words above.
    """

    about: str
    namespace: str
    name: str
    revision: int
    output: str
    headers: bool

    def query(self) -> dict[str, Any]:
        """The question as the daemon takes it."""
        return self._asdict()
