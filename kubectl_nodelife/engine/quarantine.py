"""Keeps what cannot be read, and what a controller failed at, out of all decisions.

An object that cannot be read must not stop the controllers, and nothing may be guessed about it. It
is named here with the reason; actions on it, and on what depends on it, are refused, and all others
go on:

- a node depends on its Lease, a set on each of its pods and revisions;
- a pod depends on its node and on the set that owns it; its readiness also on the node's Lease,
  where a controller derives the one from the other;
- a node does not depend on its pods: conditions and taints are decided without them. A pod that a
  set shall get on a node depends on all pods there: the unreadable one may be the set's own.

An object of a list that does not even give its name may be any of its kind (`is_nameless`).

A controller that raises is a bug of ours: what it decides about the object that it received is
refused until it has taken a later version of that object in; a turn of its own that failed is tried
again, later each time. An object that the cache fails at is treated as one that cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from copy import copy
from itertools import islice
from typing import Any, Final

import msgspec

from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.kube.codec import as_unreadable
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time
from kubectl_nodelife.kube.unreadable import (
    MOST_SENTENCES,
    NAMELESS,
    Ref,
    Unreadable,
    unreadable_sentences,
    where_raised,
)

MOST_LISTED: Final = 1_000
"""So many are in the document of `daemon status`."""

_FIRST_RETRY_NS: Final = SECOND_NS
_LAST_RETRY_NS: Final = 300 * SECOND_NS


class Bug(msgspec.Struct):
    """A controller raised: `about` an object it received, or a key of its own. `tries` count."""

    controller: str
    about: Hashable
    error: BaseException
    since_ns: int
    tries: int = 1

    def what(self) -> str:
        """The exception's type and where it came from."""
        return where_raised(self.error)

    def retry_ns(self) -> int:
        """How long to wait before the next try, doubled with each."""
        return min(_FIRST_RETRY_NS << min(self.tries - 1, 20), _LAST_RETRY_NS)


class Quarantine:
    """The objects that cannot be read, or at which a controller failed, and why.

    Falsy while there is nothing in it, which is nearly always.

    `since_ns`: when each object was first seen so.
    """

    def __init__(self) -> None:
        self.unreadable: dict[Ref, Unreadable] = {}
        self.since_ns: dict[Ref, int] = {}
        self.bugs: dict[tuple[str, Hashable], Bug] = {}
        self._related: Counter[Ref] = Counter()
        self._pods_on: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self.unreadable or self.bugs)

    def copy(self) -> Quarantine:
        """Another one with the same in it."""
        other = Quarantine()
        other.unreadable, other.since_ns = dict(self.unreadable), dict(self.since_ns)
        other.bugs = {key: copy(bug) for key, bug in self.bugs.items()}
        other._related = Counter(self._related)
        other._pods_on = Counter(self._pods_on)
        return other

    # Objects

    def put(self, found: Unreadable, now_ns: int) -> None:
        """An object was seen that cannot be read."""
        ref = found.target
        since_ns = self.since_ns.get(ref, now_ns)
        self.lift(*ref)
        self.unreadable[ref] = found
        self.since_ns[ref] = since_ns
        related, nodes = _hanging(found)
        self._related.update(related)
        self._pods_on.update(nodes)

    def lift(self, kind: str, key: tuple[str, str]) -> None:
        """The object can be read again, or is gone."""
        lifted = self.unreadable.pop((kind, key), None)
        if lifted is not None:
            del self.since_ns[kind, key]
            related, nodes = _hanging(lifted)
            self._related -= Counter(related)
            self._pods_on -= Counter(nodes)

    def relisted(self, kind: str, found: Iterable[Unreadable], now_ns: int) -> None:
        """A whole list of a kind came, and in it only these could not be read."""
        present = {one.target: one for one in found}
        for ref in [ref for ref in self.unreadable if ref[0] == kind and ref not in present]:
            self.lift(*ref)
        for one in present.values():
            self.put(one, now_ns)

    def holds(self, ref: Ref) -> bool:
        """True if the object itself cannot be read, or something that it depends on."""
        return ref in self.unreadable or ref in self._related

    def holds_room_on(self, node: str) -> bool:
        """True if it is not known what runs on the node: it or one of its pods cannot be read."""
        if node in self._pods_on or self.is_nameless("Pod"):
            return True
        return self.holds(("Node", ("", node)))

    def is_nameless(self, kind: str) -> bool:
        """True if there is an object of that kind of which not even the name is known."""
        return (kind, NAMELESS) in self.unreadable

    def holds_pod(self, pod: Pod) -> bool:
        """True if the pod, its node or the set that owns it cannot be read."""
        owner, unreadable = controller_of(pod.metadata), self.unreadable
        return (
            self.holds(("Pod", pod.key))
            or ("Node", ("", pod.spec.node_name)) in unreadable
            or (owner is not None and (owner.kind, (pod.namespace, owner.name)) in unreadable)
        )

    # Bugs

    def set_aside(self, event: Put | Gone, error: BaseException, now_ns: int) -> Bug:
        """The cache failed at an object: it counts as one that cannot be read."""
        bug = Bug("cache", event.target, error, now_ns)
        why = f"a bug of ours: {bug.what()}"
        gone = Unreadable(*event.target, why)
        self.put(as_unreadable(event.obj, why) if isinstance(event, Put) else gone, now_ns)
        return bug

    def failed(self, controller: str, about: Hashable, error: BaseException, now_ns: int) -> Bug:
        """A controller raised."""
        bug = self.bugs.get((controller, about))
        if bug is None:
            bug = self.bugs[controller, about] = Bug(controller, about, error, now_ns)
        else:
            bug.error, bug.tries = error, bug.tries + 1
        return bug

    def worked(self, controller: str, about: Hashable) -> None:
        """It did not raise this time."""
        self.bugs.pop((controller, about), None)

    # Words

    def lines(self) -> list[str]:
        """A sentence about each entry, for people; of many only the first."""
        bugs = [
            f"bug in controller {bug.controller} at {words(bug.about)} "
            f"({bug.what()}): "
            "what it decides there is off, everything else goes on"
            for bug in islice(self.bugs.values(), MOST_SENTENCES)
        ]
        return unreadable_sentences(self.unreadable.values()) + bugs

    def documents(self) -> list[dict[str, Any]]:
        """Each entry as JSON, as `daemon status` has it."""
        objects = [
            {
                "kind": each.kind,
                "namespace": each.key[0],
                "name": each.key[1],
                "since": format_micro_time(self.since_ns[ref]),
                "why": each.why,
            }
            for ref, each in islice(self.unreadable.items(), MOST_LISTED)
        ]
        bugs = [
            {
                "controller": bug.controller,
                "at": words(bug.about),
                "since": format_micro_time(bug.since_ns),
                "why": bug.what(),
                "tries": bug.tries,
            }
            for bug in islice(self.bugs.values(), MOST_LISTED)
        ]
        return [*objects, *bugs]


def _hanging(unreadable: Unreadable) -> tuple[set[Ref], set[str]]:
    """The decisions that depend on an object, and the node on which it is one pod of several."""
    related = set(unreadable.related)
    if unreadable.kind != "Pod":
        return related, set()
    nodes = {ref for ref in related if ref[0] == "Node"}
    return related - nodes, {name for _, (_, name) in nodes}


def words(about: Hashable) -> str:
    """The subject of a controller, in words: an object, or a key of its own."""
    if isinstance(about, tuple) and len(about) == 2 and isinstance(about[1], tuple):
        kind, key = about
        return f"{kind} {'/'.join(str(part) for part in key if part)}"
    return "/".join(map(str, about)) if isinstance(about, tuple) else str(about)
