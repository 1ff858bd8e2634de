"""Situations of a cluster, and the alerts that each of them fires: no others."""

from collections import Counter
from typing import Any

from kubectl_nodelife.daemon.metrics.cluster_sample import UpgradeSample
from kubectl_nodelife.daemon.metrics.recorder import ChangeCounts, Values, work_values
from tests.metrics.played import Situation
from tests.objects import budget

Json = dict[str, Any]
LOST, SOON = "NodeLifeNodeAboutToBeLost", "NodeLifeEvictionSoon"
SMALL: Json = {"zones": 2, "nodesPerZone": 3, "podsPerNode": 3, "daemonSets": 1, "seed": 1}
FIVES: Json = {"zones": 2, "nodesPerZone": 5, "podsPerNode": 2, "daemonSets": 1, "seed": 1}


def heartbeats(at: str, word: str, *nodes: str) -> Json:
    return {"at": at, "kubelet": {"nodes": list(nodes), "heartbeats": word}}


def cordon(at: str, node: str, on: bool) -> Json:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    return {"at": at, "apply": {**body, "spec": {"unschedulable": on}}}


def taint(at: str, node: str, **how: list[str]) -> Json:
    return {"at": at, "taint": {"nodes": [node], **how}}


def drain(at: str, node: str) -> Json:
    return {"at": at, "drain": {"nodes": [node], "ignoreDaemonSets": True}}


def delete(at: str, node: str) -> Json:
    return {"at": at, "delete": {"kind": "Node", "name": node}}


BUDGET = budget("app", "app-0002", namespace="team-2", maxUnavailable=0)


def enforcing(holds: bool, guard: str = "") -> Values:
    """Of a daemon that enforces."""
    info = ("0.0.0", "v1.36", "enforce", "0123456789ab")
    return {
        "nodelife_info": [(info, 1)],
        "nodelife_lease_held": [((), int(holds))],
        "nodelife_guard_open": [((guard,), 1)] if guard else [],
    }


def upgrading(sample: UpgradeSample) -> Values:
    """Of an upgrade run."""
    values = work_values(ChangeCounts(0), None, None, sample)
    return {name: value for name, value in values.items() if name.startswith("nodelife_upgrade")}


ONE = heartbeats("2m", "stop", "a1")
CASES = [
    Situation("quiet", set(), {"generate": SMALL}),
    Situation(
        "a node falls silent", {LOST, SOON}, {"generate": SMALL, "events": [ONE]}, minutes=10
    ),
    Situation(
        "two of five nodes of a zone are lost",
        {LOST, SOON, "NodeLifeZoneNearBrake"},
        {"generate": FIVES, "events": [heartbeats("2m", "stop", "a1", "a2")]},
    ),
    Situation(
        "three of five nodes of a zone are lost",
        {LOST, SOON, "NodeLifeZoneBraked"},
        {"generate": FIVES, "events": [heartbeats("2m", "stop", "a1", "a2", "a3")]},
    ),
    Situation(
        "three of five nodes of a zone stay lost",
        {LOST, SOON, "NodeLifeZoneBraked", "NodeLifePodsStranded"},
        {"generate": FIVES, "events": [heartbeats("2m", "stop", "a1", "a2", "a3")]},
        minutes=18,
    ),
    Situation(
        "a zone goes dark while the other is well",
        {LOST, SOON},
        {"generate": SMALL, "events": [heartbeats("2m", "stop", "a1", "a2", "a3")]},
        minutes=8,
    ),
    Situation(
        "all zones go dark",
        {LOST, "NodeLifeAllZonesDark"},
        {
            "generate": SMALL,
            "events": [heartbeats("2m", "stop", "a1", "a2", "a3", "b1", "b2", "b3")],
        },
        minutes=8,
    ),
    Situation(
        "the controller manager has stopped",
        {LOST, "NodeLifeControllerStalled"},
        {"generate": SMALL, "events": [ONE]},
        controllers=(),
    ),
    Situation(
        "the controllers are impatient",
        {"NodeLifePredictionOff"},
        {
            "generate": SMALL,
            "events": [heartbeats("2m", "stop", "a1"), heartbeats("153s", "start", "a1")],
        },
        cluster_flags={"node-monitor-grace-period": "24s"},
    ),
    Situation(
        "a lost node is not tainted that should be",
        {LOST, SOON, "NodeLifeWritesMissing"},
        {
            "generate": {**SMALL, "nodesPerZone": 8},
            "events": [heartbeats("2m", "stop", "a1", "a2"), heartbeats("150s", "stop", "b1")],
        },
        cluster_flags={"node-eviction-rate": "0.001"},
    ),
    Situation(
        "the controllers are patient",
        {LOST, "NodeLifePredictionOff"},
        {"generate": SMALL, "events": [ONE, heartbeats("6m", "start", "a1")]},
        cluster_flags={"node-monitor-grace-period": "75s"},
        minutes=20,
    ),
    Situation(
        "a node flaps",
        {LOST, "NodeLifeNodesFlapping"},
        {
            "generate": SMALL,
            "events": [
                heartbeats(f"{at}s", word, "a1")
                for begin in (120, 330, 540)
                for at, word in ((begin, "stop"), (begin + 80, "start"))
            ],
        },
        minutes=12,
    ),
    Situation(
        "a drain waits for a budget",
        {"NodeLifeDrainStuck"},
        {
            "generate": SMALL,
            "objects": [BUDGET],
            "events": [
                cordon("2m", "a1", True),
                {
                    "at": "2m",
                    "kubelet": {
                        "nodes": ["a1"],
                        "conditions": {"DrainInProgress": {"status": "True", "reason": "Drain"}},
                    },
                },
            ],
        },
        minutes=22,
    ),
    Situation(
        "a budget lets no pod go",
        {"NodeLifeBudgetBlocksNodes"},
        {"generate": SMALL, "objects": [BUDGET]},
        minutes=65,
    ),
    Situation(
        "an enforcing daemon has lost its Lease",
        {"NodeLifeEnforcementStopped"},
        {"generate": SMALL},
        more=lambda at_s: enforcing(at_s < 240),
    ),
    Situation(
        "an enforcing daemon has opened a breaker",
        {"NodeLifeEnforcementStopped"},
        {"generate": SMALL},
        more=lambda at_s: enforcing(True, "surprise" if at_s > 240 else ""),
    ),
    Situation(
        "an enforcing daemon enforces",
        set(),
        {"generate": SMALL},
        more=lambda at_s: enforcing(True),
    ),
    Situation(
        "an upgrade is held by a zone",
        {"NodeLifeUpgradeHeld"},
        {"generate": SMALL},
        minutes=20,
        more=lambda at_s: upgrading(UpgradeSample(Counter({"Pending": 3}), {"zone"})),
    ),
    Situation(
        "an upgrade finds no room",
        {"NodeLifeUpgradeHeld"},
        {"generate": SMALL},
        minutes=20,
        more=lambda at_s: upgrading(UpgradeSample(held=Counter({"room": 1}))),
    ),
    Situation(
        "an upgrade is paused",
        set(),
        {"generate": SMALL},
        minutes=20,
        more=lambda at_s: upgrading(UpgradeSample(Counter({"Pending": 3}), {"paused"})),
    ),
    Situation("the watches are cut", {"NodeLifeBlind"}, {"generate": SMALL}, unwatched=(120, 420)),
    Situation(
        "a rolling reboot",
        set(),
        {
            "generate": SMALL,
            "events": [
                event
                for number, node in enumerate(("a1", "b1", "a2", "b2"))
                for event in (
                    cordon(f"{120 + 300 * number}s", node, True),
                    drain(f"{122 + 300 * number}s", node),
                    heartbeats(f"{180 + 300 * number}s", "stop", node),
                    heartbeats(f"{285 + 300 * number}s", "start", node),
                    cordon(f"{330 + 300 * number}s", node, False),
                )
            ],
        },
        minutes=24,
    ),
    Situation(
        "a rolling scale-down",
        set(),
        {
            "generate": FIVES,
            "events": [
                event
                for number, node in enumerate(("a1", "b1", "a2", "b2"))
                for event in (
                    taint(
                        f"{120 + 900 * number}s",
                        node,
                        add=["ToBeDeletedByClusterAutoscaler=1:NoSchedule"],
                    ),
                    drain(f"{122 + 900 * number}s", node),
                    heartbeats(f"{180 + 900 * number}s", "stop", node),
                    delete(f"{270 + 900 * number}s", node),
                )
            ],
        },
        minutes=60,
    ),
    Situation("another daemon takes over", set(), {"generate": SMALL}, restarts_at=300),
    Situation(
        "another daemon takes over while a node is lost",
        {LOST, SOON},
        {"generate": SMALL, "events": [ONE]},
        restarts_at=300,
    ),
]
