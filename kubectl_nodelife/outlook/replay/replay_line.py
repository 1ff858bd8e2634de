"""One line of a replay: what happened, to which object, who did it, and why."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

CONTROLLER: Final = "controller"
KUBELET: Final = "kubelet"
USER: Final = "user"
US: Final = "us"
OTHER: Final = "other"

JOURNAL: Final = "journal"
EVENT: Final = "event"
OBJECT: Final = "object"
ORDER_OF_SOURCES: Final = (JOURNAL, EVENT, OBJECT)
"""The one that knows most first."""


class Actor(NamedTuple):
    """Who did it. `kind` is one of CONTROLLER, KUBELET, USER, US, OTHER."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name


class ReplayLine(msgspec.Struct, eq=False):
    """See the module. `time_ns`: since the epoch; `first_ns`: of the first of `count` alike.

    `gist` tells what happened whatever source says it: two lines of the same gist at about the
    same time are one. `node`: where the pod was. `outcome`: the journal's word, else "". `seen`:
    which sources tell it. `change`, `change_cause`: ids in the journal. `inferred`: the cause was
    found by rule, not told by the journal. `names`: pods that the text mentions.
    """

    time_ns: int
    actor: Actor
    action: str
    kind: str
    namespace: str
    name: str
    gist: tuple[str, ...]
    seen: tuple[str, ...]
    node: str = ""
    detail: str = ""
    why: str = ""
    outcome: str = ""
    count: int = 1
    first_ns: int | None = None
    change: int | None = None
    change_cause: int | None = None
    cause: ReplayLine | None = None
    inferred: bool = False
    names: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The kind of happening, as in `causes.RULES`."""
        return self.gist[0]

    @property
    def about_node(self) -> str:
        """The node that it is about, or where its pod was; "" where that is not known."""
        return self.name if self.kind == "Node" else self.node
