"""The flags that select which cluster a verb looks at, and how."""

from __future__ import annotations

from typing import NamedTuple

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.errors import BadInput


class Where(NamedTuple):
    """The flags as given. `filename`: dumps, else the cluster that `connection` means is asked."""

    connection: Connection
    filename: tuple[str, ...] = ()
    now: str | None = None
    no_daemon: bool = False
    profile: str | None = None
    assignments: tuple[str, ...] = ()

    @property
    def direct(self) -> bool:
        """Whether a daemon would be of no use: it has settings of its own."""
        return self.no_daemon or bool(self.profile or self.assignments)

    def check(self) -> None:
        """Raises BadInput where a moment is given for a live cluster."""
        if self.now and not self.filename:
            raise BadInput("is for dumps", on="--now", remedy="name a dump with -f")
