"""The queue of the decision task, and its messages: watches, orders, outcomes, Leases read anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from kubectl_nodelife.daemon.lease_check import LeasesRead
from kubectl_nodelife.engine.events import Outcome
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.live.news import KindState, News


class ChangeSettings(NamedTuple):
    """An order: go on with these settings. `done` is resolved once they are in force."""

    settings: Settings
    done: asyncio.Future[None] | None = None


class ManagerBegan(NamedTuple):
    """Another kube-controller-manager leads since then, by the daemon's clock, and knows nothing of
    what the one before it remembered.
    """

    at_ns: int
    holder: str


Message = News | ChangeSettings | ManagerBegan | Outcome | LeasesRead


class Feed(Protocol):
    """Where news come from; `live.source.ListWatchSource` is one."""

    @property
    def queue(self) -> asyncio.Queue[Message]:
        """The news, in order for each kind; orders and outcomes are put there as well."""

    @property
    def states(self) -> Mapping[str, KindState]:
        """How it stands with each kind."""

    def relist(self, kinds: Iterable[str]) -> None:
        """List these kinds anew, over fresh connections."""
