"""The messages of the list-watch source: a list, events of a watch, the state of a kind.

Plain data. The reader turns a `ListNews` into events itself: only it knows what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kubectl_nodelife.engine.events import Gone, Put, Unreadable
from kubectl_nodelife.kube.meta import KubeObject

LISTING, WATCHING, REFUSED, ABSENT, FAILING = "listing", "watching", "refused", "absent", "failing"


class KindState(msgspec.Struct):
    """How it stands with one kind; monotonic ns. `error` says why it is not being watched.

    `failures`: so often in a row; `retry_at_ns`: when it is tried again, 0 while that is not due.
    `nameless`: so many events of the watch could not be read and had no name; `nameless_because`.
    """

    kind: str
    phase: str = LISTING
    error: str = ""
    synced: bool = False
    broken_since_ns: int | None = None
    last_sign_ns: int = 0
    lists: int = 0
    failures: int = 0
    retry_at_ns: int = 0
    nameless: int = 0
    nameless_because: str = ""


class ListNews(NamedTuple):
    """All objects of a kind, as of one version; those that cannot be read are set aside.

    `asked_ns`: when the list was asked for, by `steady_ns`; 0: just now. `version`: the list's
    resourceVersion, "" where it is not known.
    """

    kind: str
    objects: list[KubeObject]
    asked_ns: int = 0
    unreadable: Sequence[Unreadable] = ()
    version: str = ""


class WatchNews(NamedTuple):
    """The events of a watch, in order, and when by `steady_ns`; 0: just now."""

    kind: str
    events: list[Put | Gone | Unreadable]
    seen_ns: int = 0


class KindPhase(NamedTuple):
    """It stands differently with a kind now. `gap_ns`: how long it was not watched, once it is.

    `relisted`: since the gap began a list was asked for, and came.
    """

    kind: str
    phase: str
    gap_ns: int = 0
    relisted: bool = False


class OtherCluster(NamedTuple):
    """It is said that another cluster is meant or seen than so far: what is seen from now on is not
    of the first one. `because` "": that is over. `reported_by`: each of them is believed by itself.
    """

    reported_by: str
    because: str


News = ListNews | WatchNews | KindPhase | OtherCluster
