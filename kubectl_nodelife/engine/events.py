"""Events of the engine: objects come, change and go, heartbeats move, actions turn out.

A source makes these values, `Cache.apply` turns the first three into a `Change`, and that is what
controllers see. `cause` is the action that led to the event where it is known (as in the
simulated world); it is how every record of a timeline can name the record that led to it. All are
final, so that their type alone distinguishes them: `isinstance` costs several times as much here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

import msgspec

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.unreadable import Ref
from kubectl_nodelife.kube.unreadable import Unreadable as Unreadable


@final
class Put(msgspec.Struct, frozen=True, gc=False):
    """An object was seen as it now is: added or changed."""

    kind: str
    obj: KubeObject
    cause: Action | None = None

    @property
    def target(self) -> Ref:
        """Which object it is about."""
        return self.kind, self.obj.key


ConditionsChange = tuple[Pod, Pod, Action | None]
"""A pod before and after a change of nothing but what its status says within its phase, and the
action that led to it.
"""


@final
class ConditionsChanged(msgspec.Struct, frozen=True, gc=False):
    """Pods whose conditions changed together, as those of a lost node; as many `Put`s say the same.

    A live source never sends this.
    """

    changes: list[ConditionsChange]

    def puts(self) -> Iterator[Put]:
        """The same, pod by pod."""
        for _, pod, cause in self.changes:
            yield Put("Pod", pod, cause)


@final
class Gone(msgspec.Struct, frozen=True, gc=False):
    """An object is no longer there."""

    kind: str
    key: tuple[str, str]
    cause: Action | None = None

    @property
    def target(self) -> Ref:
        """Which object it is about."""
        return self.kind, self.key


@final
class Heartbeats(msgspec.Struct, frozen=True, gc=False):
    """A kubelet that is known to renew its Lease on schedule, or to have stopped.

    `first_ns` + k x `every_ns` are the renewals, up to but not including `stop_ns` (None: for
    ever). `status_first_ns` + k x `status_every_ns` are the status posts that change nothing but
    the heartbeat time of the conditions. A live source never sends this; it sends each Lease as a
    `Put`. Renewals from `unseen_ns` on are not seen, while the watch of Leases stands still.
    """

    node: str
    first_ns: int
    every_ns: int
    stop_ns: int | None = None
    status_first_ns: int | None = None
    status_every_ns: int = 0
    cause: Action | None = None
    unseen_ns: int | None = None


@final
class LeaseReads(msgspec.Struct, frozen=True, gc=False):
    """How the controllers see Leases from now on; a live source never sends this.

    `stale`: their watch stands still, and a GET shows them as they are. `failing`: (node, HTTP
    code) of GETs that fail, "" for all others; `NO_ANSWER` where the server is out of reach.
    """

    stale: bool = False
    failing: tuple[tuple[str, int], ...] = ()
    cause: Action | None = None


@final
class Synced(msgspec.Struct, frozen=True, gc=False):
    """The first list of a kind is complete. The engine decides nothing before all kinds said so."""

    kind: str


NO_ANSWER: Final = 0
"""The code of an unknown outcome: the connection broke before an answer came."""

NOT_SENT: Final = 425
"""The code of what was not sent: a guard held or refused it, or what it depends on failed."""


@final
class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an action: an HTTP status code, the server's words, the resulting object.

    `code` is 2xx where it is done, `NO_ANSWER` where it is unknown, else the code of the refusal.
    `obj`: the object as the last answer showed it; None where it is gone or none was shown.
    Executors that change what the source shows anyway (the virtual cluster) report failures only:
    the change itself arrives as `Put` or `Gone`.
    """

    action: Action
    code: int
    message: str = ""
    obj: KubeObject | None = None

    @property
    def done(self) -> bool:
        """True if the API server did as asked."""
        return 200 <= self.code < 300


@final
class WritesDone(msgspec.Struct, frozen=True, gc=False):
    """All that a controller decided before an `AfterWrites` of that key has been carried out."""

    controller: str
    key: tuple[str, str]


SingleEvent = Put | Gone | Heartbeats | Synced | Outcome | WritesDone | Unreadable
Event = SingleEvent | ConditionsChanged | LeaseReads


def one_by_one(events: Iterable[Event]) -> Iterator[SingleEvent | LeaseReads]:
    """The events with each change of a pod as one of its own."""
    for event in events:
        if type(event) is ConditionsChanged:
            yield from event.puts()
        else:
            yield event


def latest(events: Iterable[Event]) -> list[Event]:
    """The events that a new list returns: of each object the last one."""
    last_of: dict[object, Event] = {}
    for event in one_by_one(events):
        match event:
            case Put(kind, obj):
                key: object = (kind, obj.key)
            case Gone(kind, where):
                key = (kind, where)
            case Heartbeats():
                key = event.node
            case _:
                key = event
        last_of.pop(key, None)
        last_of[key] = event
    return list(last_of.values())


@final
class Change(msgspec.Struct, frozen=True, gc=False):
    """One object before and after; None: was or is not there. What controllers receive."""

    kind: str
    old: KubeObject | None
    new: KubeObject | None
    cause: Action | None = None
