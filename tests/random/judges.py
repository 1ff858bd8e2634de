"""Judges that watch from outside: they know the scenario and the Timeline, and nothing of the code.

Each replays the records and raises AssertionError at the first thing that must not be. What is due
may be written later for as long as its controller's client had no token left: twenty requests a
second are all that it makes, and its other writes show that it made them (`Replay.waited`).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.random.weather import ANSWER_LOST

Json = Mapping[str, Any]

OURS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
LIFECYCLE = "node-lifecycle"
FOR_EVER = float("inf")
PERIOD_S = 5.5  # the longest monitor period, and its drift
EPSILON_S = 0.002  # instants are told to the ms
QPS = 20
MOST_REQUESTS = 2  # of what one record tells: the object is read, then written
ONE_CLIENT_UNTIL = "v1.29"
"""Before that release taint-eviction was a part of node-lifecycle, with its client."""


@dataclass
class NodeView:
    """A node as the records tell it.

    `lost_since`: since when Ready, which was True, is Unknown. `taints`: since when each is there.
    `tainted_since`: it has had NoExecute taints since then, and `seen` are all of these;
    `tainted_until`: when the last of them went.
    """

    zone: str
    ready: str = ""
    lost_since: float | None = None
    there: bool = True
    taints: dict[tuple[str, str], float] = field(default_factory=dict)
    tainted_since: float | None = None
    tainted_until: float | None = None
    seen: set[tuple[str, str]] = field(default_factory=set)

    def no_execute(self) -> set[tuple[str, str]]:
        """The NoExecute taints that are there now."""
        return {taint for taint in self.taints if taint[1] == "NoExecute"}


@dataclass
class PodView:
    """A pod as the records tell it. `written`: when others than node-lifecycle wrote it last."""

    node: str
    tolerations: list[Json]
    since: float = 0.0
    deleted: bool = False
    ready: bool = False
    written: float = -FOR_EVER


class Replay:
    """The cluster, record by record."""

    def __init__(self, scenario: Json, timeline: Json) -> None:
        self.spec = scenario["spec"]
        self.timeline = timeline
        self.nodes: dict[str, NodeView] = {}
        self.pods: dict[str, PodView] = {}
        self._terms: dict[str, list[Json]] = {}
        for obj in self.spec["objects"]:
            self._put(obj, 0.0)
        self._requests: dict[str, list[float]] = defaultdict(list)
        for record in timeline["records"]:
            self._requests[self._client(record["controller"])].append(record["at"])

    def waited(self, controller: str, at: float) -> float:
        """For how long the controller's client had no token left then, at most: so long it made
        twenty requests in each second before. What it had read by then it wrote soon after, so that
        as long a time after that instant counts as well.
        """
        times = self._requests[self._client(controller)]
        longest = 0.0
        for since in reversed(times[: bisect_right(times, at)]):
            passed = at - since
            records = bisect_right(times, at + passed) - bisect_left(times, since)
            if passed > records * MOST_REQUESTS / QPS:
                break
            longest = passed
        return longest

    def _client(self, controller: str) -> str:
        shared = self.spec["profile"] < ONE_CLIENT_UNTIL and controller == "taint-eviction"
        return "node-lifecycle" if shared else controller

    def records(self) -> Iterator[Json]:
        """Each record that was carried out, before it changes the view."""
        for record in self.timeline["records"]:
            if "error" not in record or record["error"].endswith(ANSWER_LOST):
                yield record
                self._take(record)

    def _put(self, obj: Json, at: float) -> None:
        meta = obj["metadata"]
        if obj["kind"] == "Node":
            zone = meta["labels"].get("topology.kubernetes.io/zone", "")
            view = self.nodes[meta["name"]] = NodeView(zone)
            for condition in obj["status"]["conditions"]:
                if condition["type"] == "Ready":
                    view.ready = condition["status"]
        elif obj["kind"] == "Pod":
            tolerations = obj["spec"]["tolerations"]
            pod = self.pods[meta["name"]] = PodView(obj["spec"]["nodeName"], tolerations, at)
            pod.ready = any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in obj["status"].get("conditions", ())
            )
            for reference in meta.get("ownerReferences", ()):
                self._terms[reference["name"]] = tolerations

    def _take(self, record: Json) -> None:
        kind, name = record["object"]["kind"], record["object"]["name"]
        if kind == "Node" and name in self.nodes:
            self._take_node(record, name)
        elif kind == "Pod":
            self._take_pod(record, name)

    def _take_node(self, record: Json, name: str) -> None:
        view, detail, at = self.nodes[name], record["detail"], record["at"]
        match record["action"]:
            case "SetNodeCondition" if detail["type"] == "Ready":
                called_lost = detail["status"] == "Unknown" and view.ready == "True"
                view.ready, view.lost_since = detail["status"], at if called_lost else None
            case "AddTaint":
                view.taints.setdefault((detail["key"], detail["effect"]), at)
            case "RemoveTaint":
                view.taints.pop((detail["key"], detail["effect"]), None)
            case "RecordEvent" if detail["reason"] == "Deleted":
                view.there = False
            case "RecordEvent" if detail["reason"] == "Created":
                view = self.nodes[name] = NodeView(view.zone, "True")
        if view.no_execute():
            if view.tainted_since is None:
                view.tainted_since, view.seen = at, set()
            view.seen |= view.no_execute()
        elif view.there and view.tainted_since is not None:
            view.tainted_since, view.tainted_until = None, at

    def _take_pod(self, record: Json, name: str) -> None:
        detail = record["detail"]
        if name in self.pods and record["controller"] != LIFECYCLE:
            self.pods[name].written = record["at"]
        if record["action"] == "CreatePod":
            terms = self._terms.get(detail["owner"])
            if terms is not None:
                self.pods[name] = PodView(detail["node"], admitted(terms), record["at"])
        elif name in self.pods and detail.get("type") == "Ready" and "status" in detail:
            self.pods[name].ready = detail["status"] == "True"
        elif record["action"] == "DeletePod" and name in self.pods:
            self.pods[name].deleted = True
            if detail.get("gracePeriodSeconds") == 0:
                del self.pods[name]


def admitted(tolerations: list[Json]) -> list[Json]:
    """What the admission plugin DefaultTolerationSeconds makes of a new pod's tolerations."""
    missing = [
        key
        for key in OURS
        if not any(
            t.get("key", key) == key and t.get("effect", "NoExecute") == "NoExecute"
            for t in tolerations
        )
    ]
    return [
        *tolerations,
        *({"key": k, "effect": "NoExecute", "tolerationSeconds": 300} for k in missing),
    ]


def seconds_tolerated(tolerations: Iterable[Json], taint: tuple[str, str]) -> float:
    """For how long a pod stays beside one taint; the first toleration that matches counts."""
    for toleration in tolerations:
        if toleration.get("key", taint[0]) == taint[0] and (
            toleration.get("effect", taint[1]) == taint[1]
        ):
            return float(max(0, toleration.get("tolerationSeconds", FOR_EVER)))
    return 0.0


def no_tolerating_pod_is_evicted(replay: Replay) -> None:
    """A pod goes only once the taints of its node have outlasted what it tolerates."""
    for record in replay.records():
        if (record["controller"], record["action"]) != ("taint-eviction", "DeletePod"):
            continue
        view = replay.pods.get(record["object"]["name"])
        if view is None or not view.node:
            continue
        node = replay.nodes[view.node]
        told = f"{record['at']}: {record['object']['name']} on {view.node}"
        if node.tainted_since is None:  # the last taint went when the eviction had begun
            since_s = record["at"] - (node.tainted_until or 0)
            waited_s = replay.waited("taint-eviction", record["at"])
            assert since_s <= waited_s, f"{told} was evicted from a node without taints"
            continue
        shortest = min(seconds_tolerated(view.tolerations, taint) for taint in node.seen)
        begin = max(node.tainted_since, view.since)
        assert record["at"] >= begin + shortest - EPSILON_S, f"{told} tolerated until later"


def no_zone_is_over_its_rate(replay: Replay) -> None:
    """Of a zone's nodes no more get a NoExecute taint than its bucket gives tokens."""
    flags = replay.timeline["flags"]
    most = max(float(flags["node-eviction-rate"]), float(flags["secondary-node-eviction-rate"]))
    tainted: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in replay.records():
        if not _is_our_no_execute_taint(record):
            continue
        node = replay.nodes[record["object"]["name"]]
        if any(key in OURS for key, _ in node.no_execute()):
            continue  # an exchange at once, not the queue's doing
        times = tainted[node.zone]
        times.append((record["at"], replay.waited(LIFECYCLE, record["at"])))
        for i, (first, waited) in enumerate(times):
            passed = record["at"] - first + waited
            assert len(times) - i <= 1 + most * passed + EPSILON_S, (
                f"zone {node.zone}: {len(times) - i} nodes tainted within {passed:.3f} s"
            )


def nothing_is_tainted_while_all_is_dark(replay: Replay) -> None:
    """With no ready node anywhere, no node gets a NoExecute taint after the next pass."""
    dark_since: float | None = None
    for record in replay.records():
        # An excluded node does not count; with one in the cluster the judge is silent.
        ready = [n for n in replay.nodes.values() if n.there and n.ready == "True"]
        if ready or any(_excluded(obj) for obj in replay.spec["objects"]):
            dark_since = None
        elif dark_since is None:
            dark_since = record["at"]
        if dark_since is None or record["at"] <= dark_since + PERIOD_S:
            continue
        late = record["at"] - dark_since - PERIOD_S
        if _is_our_no_execute_taint(record) and late > replay.waited(LIFECYCLE, record["at"]):
            node = replay.nodes[record["object"]["name"]]
            exchanged = any(key in OURS for key, _ in node.no_execute())
            assert exchanged, f"{record['at']}: tainted, and all is dark since {dark_since}"


def recovery_withdraws_everything(replay: Replay) -> None:
    """After the calm every node is ready, untainted, and loses no more pods."""
    end = replay.timeline["duration"]
    for record in replay.records():
        late = record["at"] > end - 60
        assert not (late and record["action"] in ("DeletePod", "AddTaint", "QueueNode")), record
    for node in replay.timeline["final"]["nodes"]:
        assert node["ready"] == "True", node
        assert not node["taints"], node
    for zone in replay.timeline["final"]["zones"]:
        assert zone["state"] in ("Normal", None), zone
    pods = replay.timeline["final"]["pods"]
    assert pods["terminating"] == 0, pods


def one_daemon_pod_a_node(replay: Replay) -> None:
    """Never two pods of one DaemonSet on a node, but for one that is on its way out."""
    made: dict[str, str] = {}
    for record in replay.records():
        name = record["object"]["name"]
        if record["action"] == "CreatePod" and record["controller"] == "daemonset":
            made[name] = record["detail"]["node"]
            assert list(made.values()).count(made[name]) == 1, (
                f"{record['at']}: two on {made[name]}"
            )
        elif record["action"] == "DeletePod":
            made.pop(name, None)


def evictions_are_not_forgotten(replay: Replay) -> None:
    """A pod is deleted at once beside a taint that it does not tolerate, else when all it tolerates
    for a while has passed.
    """
    for record in replay.records():
        for name, view in replay.pods.items():
            node = replay.nodes.get(view.node)
            if view.deleted or node is None or not node.there:
                continue
            limits = {
                taint: seconds_tolerated(view.tolerations, taint) for taint in node.no_execute()
            }
            ends = [
                max(node.taints[taint], view.since) + limit
                for taint, limit in limits.items()
                if limit < FOR_EVER
            ]
            if ends:
                due = min(ends) if 0 in limits.values() else max(ends)
                late = record["at"] - due - 1
                told = f"{record['at']}: {name} was due at {due}"
                assert late <= 0 or late <= replay.waited("taint-eviction", record["at"]), told


def pods_of_a_lost_node_are_marked(replay: Replay) -> None:
    """No Service counts on a pod any more whose node was called lost a moment ago, or some passes
    ago where the API server refuses writes.
    """
    failing = any("error" in record for record in replay.timeline["records"])
    if failing and replay.spec["profile"] == "v1.16":
        return  # which never tries a mark again that was refused
    patience_s = 30 if failing else 1
    for record in replay.records():
        for name, pod in replay.pods.items():
            node = replay.nodes.get(pod.node)
            if node is None or not node.there or node.lost_since is None or not pod.ready:
                continue
            late = record["at"] - max(node.lost_since, pod.since) - patience_s
            if pod.written > node.lost_since - PERIOD_S:  # a conflict: the next pass tries again
                late -= PERIOD_S
            told = f"{record['at']}: {name} is Ready on {pod.node}"
            assert late <= 0 or late <= replay.waited(LIFECYCLE, record["at"]), told


def _is_our_no_execute_taint(record: Json) -> bool:
    return (
        record["controller"] == "node-lifecycle"
        and record["action"] == "AddTaint"
        and record["detail"]["effect"] == "NoExecute"
    )


def _excluded(obj: Json) -> bool:
    labels = obj["metadata"].get("labels") or {}
    return "node.kubernetes.io/exclude-disruption" in labels
