"""The input of `diverge`: our copy's expected writes, observed writes, the lease, unwatched times.

Plain values, recorded by the daemon. Instants are ns since the Unix epoch, by one clock, and say
when something was seen, not what an object says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kubectl_nodelife.engine.pace import Pace, pace_of
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS

LOST: Final = "lost"  # Ready of a node turned Unknown for a silent kubelet
TAINTED: Final = "tainted"
UNTAINTED: Final = "untainted"
CORDONED: Final = "cordoned"
UNCORDONED: Final = "uncordoned"
REMOVED: Final = "removed"  # a node object was deleted
DRAINED: Final = "drained"  # a pod of the node was evicted through the Eviction API

MANAGER: Final = "kube-controller-manager"
"""The process whose controllers ours are copies of."""

LIFECYCLE: Final = "node-lifecycle"
EVICTION: Final = "taint-eviction"
POD_GC: Final = "pod-gc"
JUDGED: Final = (LIFECYCLE, EVICTION, POD_GC)
"""Controllers whose writes have an instant. When a DaemonSet's pod is made depends on quotas,
admission and back-off, which cannot be seen."""

WRITES: Final = frozenset(
    {
        *("SetNodeCondition", "AddTaint", "RemoveTaint", "SetNodeLabel"),
        *("MarkPodNotReady", "SetPodCondition", "DeletePod"),
    }
)
"""The words of changes that are writes and have an instant."""


class ExpectedWrite(msgspec.Struct, frozen=True, gc=False):
    """A write that our copy decided upon at `time_ns`, and how it ended.

    `what`: the condition, taint or label, in as few words as identify it. `cause`: the id of the
    write that led to it. `outcome` and `settled_ns` as the daemon's changes have them. `first`:
    another writer was ahead of us, so that `time_ns` is when that was seen. `zone`: of the node.
    `rate`: nodes a second at which our copy tainted that zone then. `others`: another writer than
    its controller may be the one that it is confirmed by.
    """

    id: int
    time_ns: int
    controller: str
    action: str
    kind: str
    namespace: str
    name: str
    node: str
    what: str
    because: str
    cause: int | None = None
    zone: str = ""
    rate: float = 0.0
    others: bool = False
    outcome: str = "would"
    settled_ns: int | None = None
    first: bool = False


class WriteAuthor(msgspec.Struct, frozen=True, gc=False):
    """The author of a field: an entry of managedFields, or the source of an Event."""

    manager: str
    operation: str = ""
    time_ns: int = 0


class ObservedWrite(msgspec.Struct, frozen=True, gc=False):
    """A write of any author, seen in the cluster.

    `detail`: the taint, or the pod. `own`: the taint is one that the node lifecycle controller
    keeps. `explained`: the node's conditions ask for just that. `silent_ns`: for how long there was
    no sign of life of the kubelet, None where that was not watched. `waiting_ns`: since when the
    node was seen not Ready. `rate`: nodes a second at which our copy believes its zone to be
    tainted. `ready`: the status of Ready then.
    """

    at_ns: int
    what: str
    node: str
    zone: str = ""
    detail: str = ""
    own: bool = False
    explained: bool = False
    silent_ns: int | None = None
    waiting_ns: int | None = None
    rate: float = 0.0
    zone_state: str = ""
    ready: str = ""
    author: WriteAuthor | None = None


class UnwatchedSpan(msgspec.Struct, frozen=True, gc=False):
    """From when to when, and why. `end_ns` None: it goes on.

    `in_sight`: everything was seen, but not yet for long enough to judge (cold).
    """

    begin_ns: int
    end_ns: int | None
    why: str = ""
    in_sight: bool = False

    def touches(self, begin_ns: int, end_ns: int) -> bool:
        """True if the two have an instant in common."""
        return self.begin_ns <= end_ns and (self.end_ns is None or self.end_ns >= begin_ns)


class LeaseObservation(msgspec.Struct, frozen=True, gc=False):
    """The controller manager's leader lease as it was last read.

    `renewed_ns`: when a renewal was last seen (not what the lease says). `error`: why it says
    nothing, such as that it may not be read.
    """

    holder: str = ""
    duration_ns: int = 0
    renewed_ns: int = 0
    read_ns: int = 0
    error: str = ""

    def stale_ns(self) -> int | None:
        """For how long it was not renewed, once that is longer than it lasts; None: it is held."""
        if self.error or not self.renewed_ns:
            return None
        silent = self.read_ns - self.renewed_ns
        return silent if silent > self.duration_ns else None


class AssumedSettings(msgspec.Struct, frozen=True, gc=False):
    """The settings that our copy goes by, and by whose word. `pace`: None: no limit."""

    period_ns: int
    grace_ns: int
    rate: float
    origins: dict[str, str] = {}
    pace: Pace | None = None

    @classmethod
    def of(cls, settings: Settings) -> AssumedSettings:
        """Those of all settings that decide when a write is due."""
        return cls(
            settings.node_monitor_period_ns,
            settings.node_monitor_grace_period_ns,
            settings.node_eviction_rate,
            settings.origins,
            pace_of(settings),
        )


class WriteRun(msgspec.Struct, frozen=True, gc=False):
    """Writes that one client made without a pause: how many, how many requests with what is not
    seen (reads, Events), and how long they took. `unsure_ns`: by how much that may be wrong.
    """

    writes: int
    requests: int
    span_ns: int
    unsure_ns: int = 0


class Observations(msgspec.Struct, frozen=True):
    """Everything that is judged. `evaluated`: the controllers that our copy runs.

    `unwatched`: when the cluster was not, or not for long enough, in sight. `leaders`: (instant,
    holder) of each change of the leader that was seen; `stale`: when the lease was not renewed.
    `since_ns`: what was before it is left out. `not_evaluated`: sentences. `one_moment`: there is a
    dump, and nothing was watched. `reported`: findings that need no judgement. `last_write_ns`: the
    last sign of kube-controller-manager; `last_sign_of_others_ns`: the same of all others, where a
    dump has Events: a gap in which nothing wrote is no evidence against the manager. `runs`: of
    writes, where the objects of a dump show them. `last_writes`: controller -> its last write.
    """

    assumed: AssumedSettings
    since_ns: int
    writes: tuple[ExpectedWrite, ...] = ()
    observed: tuple[ObservedWrite, ...] = ()
    lease: LeaseObservation = LeaseObservation(error="it was not read yet")
    leaders: tuple[tuple[int, str], ...] = ()
    stale: tuple[UnwatchedSpan, ...] = ()
    unwatched: tuple[UnwatchedSpan, ...] = ()
    evaluated: tuple[str, ...] = JUDGED
    not_evaluated: tuple[str, ...] = ()
    on_time: int = 0
    last_write_ns: int | None = None
    last_sign_of_others_ns: int | None = None
    one_moment: bool = False
    reported: tuple[Divergence, ...] = ()
    runs: tuple[WriteRun, ...] = ()
    last_writes: Mapping[str, int] = {}

    def watched(self, begin_ns: int, end_ns: int) -> bool:
        """True if the cluster was in sight all the time between the two."""
        return not any(span.touches(begin_ns, end_ns) for span in self.unwatched)

    def in_sight(self, begin_ns: int, end_ns: int) -> bool:
        """True if nothing was missed between the two, though it may have been cold."""
        blind = (span for span in self.unwatched if not span.in_sight)
        return not any(span.touches(begin_ns, end_ns) for span in blind)

    def blind(self) -> str:
        """Why nothing can be judged at this moment, "" where it can."""
        return next((span.why for span in self.unwatched if span.end_ns is None), "")

    def watched_since_ns(self, now_ns: int) -> int:
        """Since when the cluster is in sight without a break; now where it is not."""
        ends = [now_ns if span.end_ns is None else span.end_ns for span in self.unwatched]
        return max(ends, default=self.since_ns)

    def led_throughout(self, begin_ns: int, end_ns: int) -> bool:
        """True if the lease shows one active leader all the time between the two."""
        changed = any(begin_ns <= at_ns <= end_ns for at_ns, _ in self.leaders)
        stale = any(span.touches(begin_ns, end_ns) for span in self.stale)
        return not (self.lease.error or changed or stale)

    def led_or_unknown(self, begin_ns: int, end_ns: int) -> bool:
        """The same where the lease can be read, else only that the cluster was in sight."""
        led = bool(self.lease.error) or self.led_throughout(begin_ns, end_ns)
        return led and self.in_sight(begin_ns, end_ns)


class Divergence(msgspec.Struct, frozen=True, gc=False):
    """Something that is not as our copy has it.

    `kind`: STALLED, MISSING, … `note`: another writer's right, reported because it explains what
    comes next. `name`, `node`: of the first object; `count`: how many. `sure`: certain, likely or
    possible. `message`: the whole in one sentence.
    """

    kind: str
    object_kind: str
    namespace: str
    name: str
    message: str
    sure: str
    note: bool = False
    node: str = ""
    count: int = 1
    controller: str = ""
    action: str = ""
    detail: str = ""
    expected_ns: int | None = None
    because: str = ""
    seen_ns: int | None = None
    author: WriteAuthor | None = None


# Kinds of findings; docs/diverge.md describes each in a line
STALLED: Final = "stalled"  # kube-controller-manager as a whole does nothing
DISABLED: Final = "disabled"  # one of its controllers does nothing, while others work
SETTINGS: Final = "settings"  # it runs with other settings than our copy assumes
MISSING: Final = "missing"  # a write is due and has not come
LATE: Final = "late"  # one came later than any phase of the passes explains
EARLY: Final = "early"  # one came before it was due
EXTRA: Final = "extra"  # of another writer, to what only the node lifecycle controller keeps
RESTARTED: Final = "restarted"  # another process leads: its clocks begin anew
OTHER_ACTOR: Final = "other-actor"  # a person or a program changed a node

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"


class SettingEstimate(msgspec.Struct, frozen=True, gc=False):
    """The likely value of a flag from what was seen; `low` to `high` is what it can be.

    In ns for durations, a second for rates. `fits`: the assumed value does as well.
    """

    flag: str
    assumed: float
    likely: float
    low: float
    high: float
    samples: int
    fits: bool
    sure: str
    seen: str


class Judgement(msgspec.Struct, frozen=True):
    """The answer. `verdict`: agrees, differs or not-evaluated; `because`: the summary sentence."""

    verdict: str
    because: str
    findings: tuple[Divergence, ...]
    guesses: tuple[SettingEstimate, ...]
    expected: int
    open: int
    not_evaluated: tuple[str, ...]


_NEAR_NS: Final = 5 * SECOND_NS
"""managedFields have whole seconds, by the server's clock."""


def author_of(node: Node, field: str, at_ns: int) -> WriteAuthor | None:
    """The author of the field at about that instant; None where that is not known."""
    writer = node.managers.writer_of(field)
    if writer is None or abs(writer.time_ns - at_ns) > _NEAR_NS:
        return None
    return WriteAuthor(writer.name, writer.operation, writer.time_ns)
