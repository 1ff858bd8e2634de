"""Loops of a play: pods that one controller makes and another one deletes over and over.

An owner puts a pod where taint-eviction deletes it, and makes the next one: as fast as the clients
of both may write, where the pod is not tolerated for a second and nothing waits for its end, or
with the seconds tolerated between two. Such a loop ends when the node's taint goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Final

import msgspec

from kubectl_nodelife.kube.times import MILLISECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import NO_EXECUTE
from kubectl_nodelife.sim.api import CLUSTER
from kubectl_nodelife.sim.timeline import Record

_LEAST: Final = 3
"""So many new pods are deleted in turn before it is called a loop."""
_PAUSES: Final = 10
"""Where the next pod goes after so many times the usual span, another loop begins."""
_TAINT_EVICTION: Final = "taint-eviction"

Place = tuple[str, str, str, str]
"""(kind, namespace and name of an owner, node of its pod)"""


class PodLoop(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of one owner on one node. Seconds count from the start of the play.

    `pods`: made and deleted again; `at_once`: so many of them in one round; `every_seconds`: the
    median from one round to the next. `because`: why the last one was deleted; `ended_by`: what
    ended the loop, "" where it went on or where nothing shows that.
    """

    kind: str
    namespace: str
    name: str
    node: str
    pods: int
    from_seconds: float
    until_seconds: float
    every_seconds: float
    made_by: str
    because: str
    ended_by: str = ""
    at_once: int = 1

    @property
    def sentence(self) -> str:
        """Who makes and deletes what, how often, since when, until when, and why."""
        spans = (self.from_seconds, self.until_seconds, self.every_seconds)
        since, until, every = map(_words, spans)
        owner = "/".join(filter(None, (self.kind.lower(), self.namespace, self.name)))
        by = "made anew" if self.made_by == CLUSTER else f"made by {self.made_by}"
        many = "one" if self.at_once == 1 else self.at_once
        ended = f"; ended by {self.ended_by}" if self.ended_by else ""
        return (
            f"{owner} goes in a circle on {self.node}: {self.pods} pods {by} and"
            f" deleted by {_TAINT_EVICTION}, from {since} to {until}, {many} each {every}:"
            f" {self.because}{ended}"
        )


def _words(seconds: float) -> str:
    return format_duration(round(seconds * 1000) * MILLISECOND_NS)


_Round = tuple[Record, Record]
"""(what made a pod, what deleted it)"""


def pod_loops(
    records: Iterable[Record], place_of: Callable[[Record, Record], Place]
) -> list[PodLoop]:
    """The loops of a play, by owner and node. `place_of` says of the records that made a pod and
    deleted it whose it was, and on which node.
    """
    rounds: dict[Place, list[_Round]] = {}
    creations: dict[tuple[str, str], Record] = {}
    untainted: dict[str, list[Record]] = {}
    for record in records:
        about = record.object
        if record.error:
            continue
        if record.action == "CreatePod":
            creations[about.namespace, about.name] = record
        elif record.action == "DeletePod" and record.controller == _TAINT_EVICTION:
            created = creations.pop((about.namespace, about.name), None)
            if created is not None:
                rounds.setdefault(place_of(created, record), []).append((created, record))
        elif record.action == "RemoveTaint" and record.detail["effect"] == NO_EXECUTE:
            untainted.setdefault(about.name, []).append(record)
    return [
        _pod_loop(place, loop, untainted.get(place[3], ()))
        for place, each in sorted(rounds.items())
        if len(each) >= _LEAST
        for loop in _runs(each)
        if len(loop) >= _LEAST
    ]


def _at_once(rounds: Sequence[_Round]) -> int:
    """How many of the pods are usually there once new ones are made, where they go together and
    not one after the other.
    """
    steps = sorted(
        step for created, deleted in rounds for step in ((created.at, 1), (deleted.at, -1))
    )
    there, after_making = 0, dict[float, int]()
    for at_s, step in steps:
        there += step
        if step > 0:
            after_making[at_s] = there
    there = max(1, round(median(after_making.values())))
    usual_s = median(_gaps(rounds, there) or [0.0])
    together = sum(gap < usual_s / (2 * there) for gap in _gaps(rounds, 1))
    return there if 2 * there * together > (there - 1) * len(rounds) else 1


def _gaps(rounds: Sequence[_Round], at_once: int) -> list[float]:
    """From each deletion to that of the pod that came in place of it."""
    return [
        after.at - before.at
        for (_, before), (_, after) in zip(rounds, rounds[at_once:], strict=False)
    ]


def _runs(rounds: Sequence[_Round]) -> Iterator[Sequence[_Round]]:
    """The rounds, cut where the next one is far later than is usual among them."""
    usual = _gaps(rounds, _at_once(rounds)) or [0.0]
    longest = max(_PAUSES * median(usual), 1.0)
    begin = 0
    for index, gap in enumerate(_gaps(rounds, 1), 1):
        if gap > longest:
            yield rounds[begin:index]
            begin = index
    yield rounds[begin:]


def _pod_loop(place: Place, rounds: Sequence[_Round], untainted: Iterable[Record]) -> PodLoop:
    kind, namespace, name, node = place
    (first, _), (created, last) = rounds[0], rounds[-1]
    at_once = _at_once(rounds)
    every_s = round(median(_gaps(rounds, at_once) or _gaps(rounds, 1)), 3)
    ends = (
        r for r in untainted if 0 <= r.at - created.at <= last.at - created.at + _PAUSES * every_s
    )
    end = next(ends, None)
    return PodLoop(
        kind=kind,
        namespace=namespace,
        name=name,
        node=node,
        pods=len(rounds),
        from_seconds=first.at,
        until_seconds=last.at,
        every_seconds=every_s,
        made_by=first.controller,
        because=last.reason.partition(", counted from ")[0],
        ended_by=_end_words(end) if end is not None else "",
        at_once=at_once,
    )


def _end_words(end: Record) -> str:
    taint = f"{end.detail['key']}:{NO_EXECUTE}"
    return f"{end.controller}, which removes {taint} at {_words(end.at)}"
