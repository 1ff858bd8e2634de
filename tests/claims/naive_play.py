"""Counts anew, from a dump and the records of a play alone, how many pods of each workload serve.

It knows nothing of our code: a pod serves from its Ready condition on, until it is asked to go or
its machine is lost; behind a lost link it goes on, whatever the API shows, until the link is back
and its kubelet hears that it was asked to go. What a sentence says is held against these counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

Document = dict[str, Any]


class Course(NamedTuple):
    """A workload's pods that serve: since when how many, seconds; `pending`: without a node at the
    end."""

    points: list[tuple[float, int]]
    pending: int

    @property
    def first(self) -> int:
        return self.points[0][1]

    @property
    def last(self) -> int:
        return self.points[-1][1]

    @property
    def lowest(self) -> int:
        return min(count for _, count in self.points)

    def goes_down(self) -> bool:
        return self.first > 0 and self.lowest == 0

    def loses(self) -> bool:
        return self.lowest < self.first

    def zero_spans(self, end: float) -> list[tuple[float, float]]:
        """From when to when none serves."""
        spans: list[tuple[float, float]] = []
        after = [at for at, _ in self.points[1:]] + [end]
        for (at, count), until in zip(self.points, after, strict=True):
            if count == 0:
                joins = bool(spans) and spans[-1][1] == at
                spans = [*spans[:-1], (spans[-1][0], until)] if joins else [*spans, (at, until)]
        return spans

    def differs(self, other: Course) -> bool:
        return self.pending != other.pending or not self.serves_as(other)

    def serves_as(self, other: Course, slack: float = 5.0) -> bool:
        """As many serve at the same times, but for a pass of the monitor."""
        mine, theirs = self.points, other.points
        if [count for _, count in mine] != [count for _, count in theirs]:
            return False
        return all(abs(a - b) <= slack for (a, _), (b, _) in zip(mine, theirs, strict=True))


class _Counter:
    """The pods of a play. `in_api`: one serves that the API shows as Ready, as for a Service."""

    def __init__(self, items: Iterable[Document], *, in_api: bool = False) -> None:
        self.in_api = in_api
        self.workload: dict[str, str] = {}
        self.node: dict[str, str] = {}
        self.ready: dict[str, bool] = {}
        self.leaving: set[str] = set()
        self.off: set[str] = set()
        self.cut_off: set[str] = set()
        self.unlinked: set[str] = set()
        self.points: dict[str, list[tuple[float, int]]] = {}
        items = list(items)
        for pod in (o for o in items if o["kind"] == "Pod"):
            name = pod["metadata"]["name"]
            self._add(name, _owner(pod), pod["spec"].get("nodeName", ""))
            conditions = pod["status"].get("conditions", [])
            self.ready[name] = any(
                c["type"] == "Ready" and c["status"] == "True" for c in conditions
            )
            if pod["metadata"].get("deletionTimestamp"):
                self.leaving.add(name)
        for owner in set(self.workload.values()):
            self.points[owner] = [(0.0, self._serving(owner))]

    def _add(self, name: str, owner: str, node: str) -> None:
        self.workload[name], self.node[name], self.ready[name] = owner, node, False

    def _serving(self, owner: str) -> int:
        return sum(self._serves(pod) for pod, of in self.workload.items() if of == owner)

    def _serves(self, pod: str) -> bool:
        ready = self.ready[pod] and pod not in self.leaving
        if self.in_api:
            return ready
        if pod in self.leaving and self.node[pod] not in self.unlinked:
            return False  # its kubelet has heard that it shall go, though the object may stay
        return pod in self.cut_off or (ready and self.node[pod] not in self.off)

    def take(self, record: Document) -> None:
        """A record of the play."""
        if record.get("error"):
            return
        action, about, detail = record["action"], record["object"], record["detail"]
        name, event = about["name"], detail["reason"] if action == "RecordEvent" else ""
        if event == "MachineLost":
            self.off.add(name)
            self.unlinked.discard(name)
            self.cut_off -= self._on(name)
        elif event == "LinkLost":
            self.cut_off |= {pod for pod in self._on(name) if self._serves(pod)}
            self.unlinked.add(name)
        elif event in ("LinkBack", "KubeletStarted"):
            self.off.discard(name)
            self.unlinked.discard(name)
        elif event in ("Scheduled", "FailedScheduling") and name in self.node:
            fits_on = detail["message"].rpartition(" ")[2]  # "the pod fits on b1"
            self.node[name] = fits_on if event == "Scheduled" else ""
        elif action == "CreatePod":
            self._add(name, detail["owner"], detail.get("node") or "")
        elif action == "SetPodCondition" and detail["type"] == "Ready" and name in self.ready:
            self.ready[name] = detail["status"] == "True"
            self.cut_off.discard(name)
        elif action == "MarkPodNotReady" and name in self.ready:
            self.ready[name] = False
        elif action in ("DeletePod", "EvictPod") and name in self.workload:
            self.leaving.add(name)
            if detail.get("gracePeriodSeconds") == 0:
                self._forget(name)
        self._note_all(record["at"])

    def _on(self, machine: str) -> set[str]:
        return {pod for pod, node in self.node.items() if node == machine}

    def _forget(self, name: str) -> None:
        self.leaving.discard(name)
        self.cut_off.discard(name)
        for each in (self.workload, self.node, self.ready):
            each.pop(name, None)

    def _note_all(self, at: float) -> None:
        for owner in set(self.workload.values()) | set(self.points):
            self._note(owner, at)

    def _note(self, owner: str, at: float) -> None:
        points, now = self.points.setdefault(owner, [(0.0, 0)]), self._serving(owner)
        if points[-1][1] == now:
            return
        if points[-1][0] == at and len(points) > 1:
            points[-1] = (at, now)
            if points[-2][1] == now:
                points.pop()
        else:
            points.append((at, now))


def _owner(pod: Document) -> str:
    for owner in pod["metadata"].get("ownerReferences", []):
        return str(owner["name"])
    return str(pod["metadata"]["name"])


def courses(
    items: Iterable[Document], records: Iterable[Document], *, in_api: bool = False
) -> dict[str, Course]:
    """Of each workload, by the name of its owner."""
    counter = _Counter(items, in_api=in_api)
    for record in records:
        counter.take(record)
    pending = [
        counter.workload[pod]
        for pod, node in counter.node.items()
        if not node and pod not in counter.leaving
    ]
    return {owner: Course(points, pending.count(owner)) for owner, points in counter.points.items()}
