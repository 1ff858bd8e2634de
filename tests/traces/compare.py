"""Holds a simulated Timeline against one recorded from a real kube-controller-manager.

The rule: the i-th occurrence of a write is held against the i-th, within 0.6 s and 1 % of the time
passed, a DaemonSet's last status against the last, which Events nodes got, and each node's
readiness and taints at the end. Forgiven is what is chance in the original:
the order of nodes lost in one pass, when each of a DaemonSet's pods has its turn (how many it made
and lost on each node must agree), a name that hangs on a hash, who of two controllers was first to
delete a pod, the last moments, and whatever the recording itself notes under `chance`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]
Write = tuple[str, ...]

CONTROLLERS = frozenset({"node-lifecycle", "taint-eviction", "daemonset", "pod-gc"})
MAIN_FIELDS = {
    "SetNodeCondition": ("type", "status", "reason"),
    "AddTaint": ("key", "effect"),
    "RemoveTaint": ("key", "effect"),
    "SetNodeLabel": ("key", "value"),
    "SetPodCondition": ("type", "status", "reason"),
    "MarkPodNotReady": (),
    "CreateControllerRevision": ("revision",),
    "UpdateControllerRevision": ("revision",),
    "DeleteControllerRevision": (),
}
SAME_PASS_S = 0.5
SLACK_S = 0.6
SLACK_SHARE = 0.01


@dataclass
class Writes:
    """What a timeline says, in the form in which it is compared."""

    times: dict[Write, list[float]] = field(default_factory=lambda: defaultdict(list))
    status: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    events: dict[tuple[str, ...], int] = field(default_factory=dict)
    nodes: dict[tuple[str, ...], Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """How many things agree, and what does not."""

    matched: int
    differences: list[str]


def compare(recorded: Json, simulated: Json, slack_s: float = SLACK_S) -> Outcome:
    """Hold the simulated timeline, or one played live, against the recorded one."""
    together = lost_together(recorded)
    real, ours = (_Reader(doc, recorded, together).read() for doc in (recorded, simulated))
    matched, differences = 0, []
    end = recorded["duration"] - slack(recorded["duration"], slack_s)
    for write in sorted(real.times.keys() | ours.times.keys()):
        for difference in _times(write, real.times[write], ours.times[write], end, slack_s):
            if difference:
                differences.append(difference)
            else:
                matched += 1
    ends = ("nodes",) if "final" in recorded and "final" in simulated else ()
    for what in ("status", "pods", "events", *ends):
        one, other = getattr(real, what), getattr(ours, what)
        for key in sorted(one.keys() | other.keys(), key=str):
            if one.get(key) == other.get(key):
                matched += 1
            else:
                found = f"recorded {one.get(key)}, simulated {other.get(key)}"
                differences.append(f"{what} {' '.join(map(str, key))}: {found}")
    return Outcome(matched, differences)


def slack(at: float, slack_s: float = SLACK_S) -> float:
    """By how much two instants around `at` may differ, in seconds."""
    return slack_s + SLACK_SHARE * at


def _times(
    write: Write, real: list[float], ours: list[float], end: float, slack_s: float
) -> Iterator[str]:
    """For each occurrence what is wrong with it, or ""."""
    real, ours = sorted(real), sorted(ours)
    name = " ".join(filter(None, write))
    for i in range(max(len(real), len(ours))):
        if i >= len(ours):
            if real[i] <= end:
                yield f"missing at {real[i]:.3f}: {name}"
        elif i >= len(real):
            if ours[i] <= end:
                yield f"extra at {ours[i]:.3f}: {name}"
        elif abs(real[i] - ours[i]) > slack(real[i], slack_s):
            yield f"recorded at {real[i]:.3f}, simulated at {ours[i]:.3f}: {name}"
        else:
            yield ""


def lost_together(recorded: Json) -> dict[str, str]:
    """Node -> the names of all nodes that turned not ready in the same pass, as one word."""
    losses = sorted(
        (record["at"], record["object"]["name"])
        for record in recorded["records"]
        if record["action"] == "SetNodeCondition" and record["detail"]["type"] == "Ready"
    )
    groups: list[set[str]] = []
    before = None
    for at, name in losses:
        if before is not None and at - before <= SAME_PASS_S:
            groups[-1].add(name)
        else:
            groups.append({name})
        before = at
    merged: list[set[str]] = []
    for group in groups:  # a node that was lost twice joins both groups
        for other in [m for m in merged if m & group]:
            merged.remove(other)
            group |= other
        merged.append(group)
    return {name: "+".join(sorted(group)) for group in merged for name in group}


class _Reader:
    """Turns a timeline into `Writes`."""

    def __init__(self, doc: Json, recorded: Json, together: Mapping[str, str]) -> None:
        self._records: Iterable[Json] = doc["records"]
        self._end: Json = doc.get("final") or {"nodes": []}  # what is played live tells none
        self._is_recorded = "recordedFrom" in doc["metadata"]
        self._together = together
        self._nodes: Mapping[str, str] = recorded.get("podNodes", {})
        self._chance: list[Json] = recorded.get("chance", [])
        self._made: dict[tuple[str, str], tuple[str, str]] = {}
        self._deleted: set[tuple[str, str, str]] = set()
        self._taints: set[tuple[str, str, str]] = set()
        self._writes = Writes()

    def read(self) -> Writes:
        """All of it."""
        for record in self._records:
            if record["controller"] in CONTROLLERS and not self._by_chance(record):
                self._take(record)
            elif record["controller"] == "cluster":
                self._stamps_a_taint(record["object"]["name"], record["action"], record["detail"])
        ends: dict[str, list[Any]] = defaultdict(list)
        for node in self._end["nodes"]:
            label = self._label({"kind": "Node", "name": node["name"]})
            ends[label].append((node["ready"], tuple(sorted(node["taints"]))))
        self._writes.nodes = {(label,): sorted(end, key=str) for label, end in ends.items()}
        return self._writes

    def _take(self, record: Json) -> None:
        obj, detail, action = record["object"], record.get("detail", {}), record["action"]
        namespace, name = obj.get("namespace") or "", obj["name"]
        if action == "CreatePod":
            made = (str(detail.get("owner")), str(detail.get("node")))
            self._made[namespace, name] = made
            self._writes.pods["made", *made] += 1
            self._note(record, "daemonset", action, namespace, made[0])
        elif action == "DeletePod":
            self._take_delete(record, namespace, name)
        elif action == "UpdateDaemonSetStatus":
            counts = {k: v for k, v in detail.items() if k != "observedGeneration"}
            self._writes.status.setdefault((namespace, name), {}).update(counts)
        elif action == "RecordEvent" and obj["kind"] == "Node":
            self._writes.events[self._label(obj), str(detail["reason"])] = 1
        elif action in MAIN_FIELDS:
            if self._stamps_a_taint(name, action, detail):
                return
            owner = self._made.get((namespace, name))
            if owner is not None and action == "SetPodCondition":
                return
            label = f"pod of {owner[0]} on {owner[1]}" if owner else self._label(obj)
            fields = (str(detail.get(key)) for key in MAIN_FIELDS[action])
            self._note(record, record["controller"], action, namespace, label, *fields)

    def _stamps_a_taint(self, node: str, action: str, detail: Json) -> bool:
        """True if a taint is added that is there: recordings have no word for a new timeAdded."""
        if action not in ("AddTaint", "RemoveTaint"):
            return False
        if self._is_recorded:
            return False
        taint = (node, detail["key"], detail["effect"])
        present = taint in self._taints
        (self._taints.add if action == "AddTaint" else self._taints.discard)(taint)
        return present and action == "AddTaint"

    def _take_delete(self, record: Json, namespace: str, name: str) -> None:
        """The first delete of a pod counts, whoever it was, and one by pod-gc besides."""
        by = "pod-gc" if record["controller"] == "pod-gc" else ""
        if (by, namespace, name) in self._deleted:
            return
        self._deleted.add((by, namespace, name))
        owner = self._made.get((namespace, name))
        if owner is not None:
            self._writes.pods["lost", *owner] += 1
        label = owner[0] if owner else self._label(record["object"])
        self._note(record, by, "DeletePod", namespace, label)

    def _note(self, record: Json, *write: str) -> None:
        self._writes.times[write].append(record["at"])

    def _label(self, obj: Json) -> str:
        """The object's name; where chance decides which of several it is, what they share."""
        name = str(obj["name"])
        if obj["kind"] == "ControllerRevision":
            return name.rpartition("-")[0]
        pod = f"{obj.get('namespace') or ''}/{name}"
        node = name if obj["kind"] == "Node" else self._nodes.get(pod, "")
        group = self._together.get(node, "")
        return f"{obj['kind']} of {group}" if "+" in group else name

    def _by_chance(self, record: Json) -> bool:
        effect = record.get("detail", {}).get("effect")
        return any(
            record["object"].get("name") == c["object"]
            and c["from"] <= record["at"] <= c["to"]
            and c.get("effect") in (None, effect)
            for c in self._chance
        )
