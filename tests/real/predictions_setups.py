"""The set-ups whose outcome the daemon has to foretell: nodes, pods and what happens to them.

All have nodes and zones of their own, so that those of one list can be played at the same time.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.real.control_plane import Api
from tests.real.kubelets import Kubelets

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

PERIOD_S = 3.0
GRACE_S = 8.0  # some passes, and no whole number: how long a pass itself takes shall not decide
TOKEN_S = 2.0
FLAGS = {
    "node-monitor-period": f"{PERIOD_S:g}s",
    "node-monitor-grace-period": f"{GRACE_S:g}s",
    "node-eviction-rate": f"{1 / TOKEN_S:g}",
}


class Ground:
    """The cluster on which set-ups are played. `silent` are nodes whose kubelets were stopped."""

    def __init__(self, api: Api, kubelets: Kubelets) -> None:
        self.api = api
        self.kubelets = kubelets

    def node(self, name: str, zone: str) -> None:
        """A node that is well."""
        self.kubelets.add_node(name, {ZONE: zone})

    def pod(self, name: str, node: str, tolerates: int | None, key: str = "") -> None:
        """A pod on the node that tolerates a lost node so long (None: for ever), or that taint."""
        limit = {} if tolerates is None else {"tolerationSeconds": tolerates}
        keys = [key] if key else [f"node.kubernetes.io/{k}" for k in ("not-ready", "unreachable")]
        terms = [{"key": k, "operator": "Exists", "effect": "NoExecute", **limit} for k in keys]
        spec = {
            "nodeName": node,
            "containers": [{"name": "c", "image": "registry.example/app:1"}],
            "tolerations": terms,
            "terminationGracePeriodSeconds": 5,
        }
        body = {"metadata": {"name": name}, "spec": spec}
        self.api.create("/api/v1/namespaces/default/pods", body)

    def stop(self, *nodes: str) -> None:
        """These kubelets fall silent."""
        self.kubelets.stop(*nodes)

    def start(self, *nodes: str) -> None:
        """These kubelets come back."""
        self.kubelets.start(*nodes)

    def report(self, status: str, *nodes: str) -> None:
        """These kubelets say Ready=`status` from now on."""
        for name in nodes:
            self.kubelets[name].report("Ready", status)

    def taint(self, node: str, key: str, effect: str = "NoExecute") -> None:
        """A person adds a taint."""
        taints = self._taints(node)
        self._write(node, [*taints, {"key": key, "value": "1", "effect": effect}])

    def untaint(self, node: str, key: str) -> None:
        """A person removes the taints of that key."""
        self._write(node, [t for t in self._taints(node) if t["key"] != key])

    def delete_node(self, node: str) -> None:
        """A person deletes the node, whose machine is gone."""
        self.kubelets.stop(node)
        self.api.delete(f"/api/v1/nodes/{node}")

    def delete_pod(self, name: str) -> None:
        """A person deletes a pod, gracefully."""
        self.api.delete(f"/api/v1/namespaces/default/pods/{name}")

    def _taints(self, node: str) -> list[Json]:
        taints: list[Json] = self.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints") or []
        return taints

    def _write(self, node: str, taints: list[Json]) -> None:
        self.api.merge(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})


Act = Callable[[Ground], None]


@dataclass(frozen=True)
class SetUp:
    """`nodes`: zone -> nodes, all named with `mark`, which tells what belongs to it. `pods`: (name,
    node, seconds tolerated, key of the taint or "" for a lost node). `acts`: (seconds, act).
    """

    title: str
    mark: str
    nodes: Mapping[str, Sequence[str]]
    pods: Sequence[tuple[str, str, int | None, str]]
    acts: Sequence[tuple[float, Act]]

    def prepare(self, ground: Ground) -> None:
        """Make its nodes and pods."""
        for zone, names in self.nodes.items():
            for name in names:
                ground.node(name, zone)
        for name, node, tolerates, key in self.pods:
            ground.pod(name, node, tolerates, key)


def play(ground: Ground, set_ups: Sequence[SetUp], until_s: float) -> None:
    """All at the same time, to that many seconds from now."""
    began = time.monotonic()
    acts = sorted((act for one in set_ups for act in one.acts), key=lambda act: act[0])
    for at_s, act in acts:
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        act(ground)
    time.sleep(max(0.0, began + until_s - time.monotonic()))


def pods_of(mark: str, node: str) -> list[tuple[str, str, int | None, str]]:
    """A pod of each kind: goes at once, after 4 s, never within the test, never."""
    kinds: Mapping[str, int | None] = {"now": 0, "soon": 4, "late": 300, "never": None}
    return [(f"{mark}-{kind}-{node[-1]}", node, seconds, "") for kind, seconds in kinds.items()]


def at_once() -> Iterator[SetUp]:
    """What can be played at the same time."""
    yield from _lost()
    yield from _most_and_brief()
    yield from _by_hand()
    yield from _not_ready()
    yield from _gone()


def _lost() -> Iterator[SetUp]:
    yield SetUp(
        "one node lost, and back",
        "one",
        {"one": ("one-1", "one-2", "one-3")},
        pods_of("one", "one-1"),
        [(2, lambda g: g.stop("one-1")), (30, lambda g: g.start("one-1"))],
    )
    yield SetUp(
        "several nodes lost, and back",
        "some",
        {"some": [f"some-{n}" for n in range(1, 7)]},
        [*pods_of("some", "some-1"), *pods_of("some", "some-2")],
        [
            (4, lambda g: g.stop("some-1", "some-2")),
            (8, lambda g: g.stop("some-3")),
            (36, lambda g: g.start("some-1", "some-2", "some-3")),
        ],
    )
    yield SetUp(
        "a whole zone lost, and back",
        "zone",
        {"zone": [f"zone-{n}" for n in range(1, 5)]},
        [*pods_of("zone", "zone-1"), *pods_of("zone", "zone-4")],
        [
            (6, lambda g: g.stop(*(f"zone-{n}" for n in range(1, 5)))),
            (44, lambda g: g.start(*(f"zone-{n}" for n in range(1, 5)))),
        ],
    )


def _most_and_brief() -> Iterator[SetUp]:
    yield SetUp(
        "most of a zone lost, and back",
        "most",
        {"most": [f"most-{n}" for n in range(1, 6)]},
        pods_of("most", "most-1"),
        [
            (5, lambda g: g.stop(*(f"most-{n}" for n in range(1, 5)))),
            (34, lambda g: g.start("most-3", "most-4")),
            (60, lambda g: g.start("most-1", "most-2")),
        ],
    )
    yield SetUp(
        "silent for less than the grace period",
        "brief",
        {"brief": ("brief-1", "brief-2")},
        pods_of("brief", "brief-1"),
        [
            (3, lambda g: g.stop("brief-1")),
            (3 + GRACE_S * 0.6, lambda g: g.start("brief-1")),
        ],
    )


def _by_hand() -> Iterator[SetUp]:
    yield SetUp(
        "taints by hand",
        "hand",
        {"hand": ("hand-1", "hand-2", "hand-3")},
        [
            ("hand-not-tolerated", "hand-1", 300, ""),
            ("hand-for-6-s", "hand-1", 6, "broken"),
            ("hand-for-ever", "hand-1", None, "broken"),
            ("hand-taken-back", "hand-2", 8, "broken"),
        ],
        [
            (5, lambda g: g.taint("hand-1", "broken")),
            (6, lambda g: g.taint("hand-2", "broken")),
            (10, lambda g: g.untaint("hand-2", "broken")),
            (25, lambda g: g.untaint("hand-1", "broken")),
        ],
    )


def _not_ready() -> Iterator[SetUp]:
    yield SetUp(
        "kubelets that report not ready",
        "report",
        {"report": ("report-1", "report-2", "report-3")},
        pods_of("report", "report-1"),
        [
            (7, lambda g: g.report("False", "report-1")),
            (32, lambda g: g.report("True", "report-1")),
            (40, lambda g: g.report("False", "report-2")),
            (50, lambda g: g.stop("report-2")),  # not ready, then silent: the taint is exchanged
            (74, lambda g: (g.report("True", "report-2"), g.start("report-2"))[0]),
        ],
    )


def _gone() -> Iterator[SetUp]:
    yield SetUp(
        "a node deleted",
        "gone",
        {"gone": ("gone-1", "gone-2")},
        [("gone-a", "gone-1", None, ""), ("gone-b", "gone-1", 300, "")],
        [(8, lambda g: g.delete_node("gone-1"))],
    )
    yield SetUp(
        "out of service",
        "out",
        {"out": ("out-1", "out-2", "out-3")},
        [("out-a", "out-1", 2, ""), ("out-b", "out-1", 300, "")],
        [
            (3, lambda g: g.stop("out-1")),
            (34, lambda g: g.taint("out-1", OUT_OF_SERVICE)),
            (84, lambda g: g.untaint("out-1", OUT_OF_SERVICE)),
            (86, lambda g: g.start("out-1")),
        ],
    )


def all_dark() -> SetUp:
    """No node anywhere is ready for a while: all taints go, and nobody is evicted."""

    def everybody(ground: Ground) -> list[str]:
        return [n["metadata"]["name"] for n in ground.api.get("/api/v1/nodes")["items"]]

    return SetUp(
        "all nodes lost, and back",
        "",
        {"dark": ("dark-1", "dark-2")},
        pods_of("dark", "dark-1"),
        [
            (3, lambda g: g.stop("dark-1")),
            (18, lambda g: g.stop(*everybody(g))),
            (37, lambda g: g.start(*everybody(g))),
        ],
    )


def in_the_middle() -> SetUp:
    """An outage that is under way when the daemon begins: two nodes lost, and then one more."""
    return SetUp(
        "begun in the middle of an outage",
        "mid",
        {"mid": [f"mid-{n}" for n in range(1, 6)]},
        [
            ("mid-due-later", "mid-1", 38, ""),
            ("mid-due-later-2", "mid-2", 38, ""),
            ("mid-never", "mid-1", None, ""),
            *pods_of("mid", "mid-3"),
        ],
        [
            (0.5, lambda g: g.stop("mid-1", "mid-2")),
            (32, lambda g: g.stop("mid-3")),
            (56, lambda g: g.start("mid-1", "mid-2", "mid-3")),
        ],
    )


def one_more(title: str, mark: str) -> SetUp:
    """One node lost, and back."""
    return SetUp(
        title,
        mark,
        {mark: (f"{mark}-1", f"{mark}-2")},
        pods_of(mark, f"{mark}-1"),
        [(1, lambda g: g.stop(f"{mark}-1")), (24, lambda g: g.start(f"{mark}-1"))],
    )


def while_restarted(restart: Callable[[], None]) -> SetUp:
    """The controller manager begins anew while a node is lost and tainted, and another silent."""
    return SetUp(
        "the controller manager restarts",
        "again",
        {"again": [f"again-{n}" for n in range(1, 6)]},
        [
            ("again-timer-begins-afresh", "again-1", 25, ""),
            ("again-never", "again-1", None, ""),
            *pods_of("again", "again-2"),
        ],
        [
            (1, lambda g: g.stop("again-1")),
            (18, lambda g: restart()),
            (22, lambda g: g.stop("again-2")),
            (62, lambda g: g.start("again-1", "again-2")),
        ],
    )


def while_stopped() -> SetUp:
    """A node lost while no controller manager runs."""
    return SetUp(
        "with the controller manager stopped",
        "stopped",
        {"stopped": ("stopped-1",)},
        pods_of("stopped", "stopped-1"),
        [(1, lambda g: g.stop("stopped-1"))],
    )
