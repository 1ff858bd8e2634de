"""The set-ups themselves."""

from tests.real.daemonset_setups import (
    GRACE_S,
    ON_DELETE,
    Setup,
    affinity,
    by_hand,
    deleted_on,
    ends,
    gone,
    node,
    nodes,
    other_than,
    patch,
    pod_on,
    revision_gone,
    rolling,
    term,
    toleration,
    usurped,
    wants,
)

NEVER = {"schedulingGates": [{"name": "example.com/never"}]}
"""A pod that never runs."""
SURGE = rolling(maxUnavailable=0, maxSurge=1)
SURGE_THIRD = rolling(maxUnavailable=0, maxSurge="30%")

SETUPS: dict[str, Setup] = {
    "affinity": Setup(
        [
            node("affinity-1", "affinity", {"disk": "ssd", "zone": "a"}),
            node("affinity-2", "affinity", {"disk": "hdd", "zone": "b"}),
            node("affinity-3", "affinity", {"zone": "c", "cores": "16"}),
            node("affinity-4", "affinity", {"cores": "4"}),
        ],
        [
            [
                wants(
                    "affinity",
                    pod=affinity(
                        term(("disk", "In", ["ssd", "nvme"]), ("zone", "NotIn", ["b"])),
                        term(("disk", "DoesNotExist", []), ("cores", "Gt", ["8"])),
                    ),
                )
            ],
            [
                wants("affinity", pod=affinity(term(("zone", "Exists", [])), {})),
                patch("Node", "affinity-4", metadata={"labels": {"zone": "d"}}),
            ],
        ],
    ),
    "fields": Setup(
        nodes("fields", 3),
        [
            [
                wants(
                    "fields",
                    pod=affinity({"matchFields": [other_than("fields-2")]}),
                )
            ],
            [
                wants(
                    "fields",
                    pod=affinity(
                        {"matchFields": [other_than("fields-1")]},
                        term(("disk", "Exists", [])),
                    ),
                ),
                patch("Node", "fields-1", metadata={"labels": {"disk": "ssd"}}),
            ],
        ],
    ),
    "named": Setup(
        nodes("named", 3),
        [
            [wants("named", pod={"nodeName": "named-2"})],
            [wants("named", pod={"nodeName": "named-3"})],
            [wants("named")],
        ],
    ),
    "tainted": Setup(
        [
            node(
                "tainted-1",
                "tainted",
                taints=[{"key": "team", "value": "red", "effect": "NoSchedule"}],
            ),
            node(
                "tainted-2",
                "tainted",
                taints=[{"key": "team", "value": "blue", "effect": "NoExecute"}],
            ),
            node(
                "tainted-3",
                "tainted",
                taints=[{"key": "quiet", "value": "", "effect": "PreferNoSchedule"}],
            ),
            node("tainted-4", "tainted"),
        ],
        [
            [wants("tainted", pod={"tolerations": [toleration("team", "Equal", value="red")]})],
            [
                {"taint": {"nodes": ["tainted-3"], "add": ["later=x:NoSchedule"]}},
                {"taint": {"nodes": ["tainted-4"], "add": ["later=x:NoExecute"]}},
            ],
            # the pod on the node that it could not go to now is neither updated nor taken away
            [wants("tainted", 2, pod={"tolerations": [toleration("team")]})],
            [{"taint": {"nodes": ["tainted-4"], "remove": ["later"]}}],
        ],
    ),
    "cordoned": Setup(
        [*nodes("cordoned", 2), node("cordoned-3", "cordoned", unschedulable=True)],
        [
            [wants("cordoned")],
            [{"cordon": {"nodes": ["cordoned-1"]}}, wants("cordoned", 2)],
            [{"uncordon": {"nodes": ["cordoned-1", "cordoned-3"]}}],
        ],
    ),
    "pressed": Setup(
        nodes("pressed", 3),
        [
            [wants("pressed")],
            [
                {"kubelet": {"nodes": ["pressed-1"], "conditions": {"MemoryPressure": "True"}}},
                {"kubelet": {"nodes": ["pressed-2"], "conditions": {"NetworkUnavailable": "True"}}},
            ],
            [wants("pressed", 2)],
            [wants("pressed", 3, pod={"hostNetwork": True})],
        ],
    ),
    "not-ready": Setup(
        nodes("not-ready", 3),
        [
            [wants("not-ready", updateStrategy=rolling(maxUnavailable=2))],
            [{"kubelet": {"nodes": ["not-ready-2"], "conditions": {"Ready": "False"}}}],
            [wants("not-ready", 2, updateStrategy=rolling(maxUnavailable=2))],
            [{"kubelet": {"nodes": ["not-ready-2"], "conditions": {"Ready": "True"}}}],
        ],
    ),
    "nodes-come": Setup(
        nodes("nodes-come", 1),
        [
            [wants("nodes-come", pod={"nodeSelector": {"disk": "ssd"}})],
            [
                {"apply": node("nodes-come-2", "nodes-come", {"disk": "ssd"})},
                {"apply": node("nodes-come-3", "nodes-come")},
            ],
            [patch("Node", "nodes-come-1", metadata={"labels": {"disk": "ssd"}})],
            [patch("Node", "nodes-come-2", metadata={"labels": {"disk": None}})],
        ],
    ),
    "nodes-go": Setup(
        nodes("nodes-go", 3),
        [
            [wants("nodes-go")],
            # no sync comes of it: the status stays as it was, with a pod on a node that is gone
            [gone("Node", "nodes-go-2")],
            deleted_on("nodes-go-2"),
        ],
    ),
    "node-gone-and-update": Setup(
        nodes("node-gone-and-update", 3),
        [
            [wants("node-gone-and-update")],
            [gone("Node", "node-gone-and-update-2")],
            [wants("node-gone-and-update", 2)],
        ],
    ),
    "percent": Setup(
        nodes("percent", 5),
        [
            [wants("percent", updateStrategy=rolling(maxUnavailable="30%"))],
            [wants("percent", 2, updateStrategy=rolling(maxUnavailable="30%"))],
            [wants("percent", 3, updateStrategy=rolling(maxUnavailable="100%"))],
        ],
    ),
    "stuck": Setup(
        nodes("stuck", 4),
        [
            [wants("stuck", updateStrategy=rolling(maxUnavailable="40%"))],
            [wants("stuck", 2, NEVER, updateStrategy=rolling(maxUnavailable="40%"))],
            [wants("stuck", 3, updateStrategy=rolling(maxUnavailable="40%"))],
        ],
        anywhere=True,
    ),
    "stuck-surge": Setup(
        nodes("stuck-surge", 4),
        [
            [wants("stuck-surge", updateStrategy=SURGE_THIRD)],
            [wants("stuck-surge", 2, NEVER, updateStrategy=SURGE_THIRD)],
            [{"undo": 0}],
        ],
        anywhere=True,
    ),
    "surge": Setup(
        nodes("surge", 4),
        [
            [wants("surge", updateStrategy=rolling(maxUnavailable=0, maxSurge="50%"))],
            [wants("surge", 2, updateStrategy=rolling(maxUnavailable=0, maxSurge="50%"))],
            [
                {"taint": {"nodes": ["surge-1"], "add": ["later=x:NoSchedule"]}},
                wants("surge", 3, updateStrategy=rolling(maxUnavailable=0, maxSurge=3)),
            ],
        ],
    ),
    # one at a time: of two that become available one after the other the second may be overlooked,
    # since a set that waits for its next look is not put down for a later one as well
    "slow-surge": Setup(
        nodes("slow-surge", 3),
        [
            [wants("slow-surge", minReadySeconds=2, updateStrategy=SURGE)],
            [wants("slow-surge", 2, minReadySeconds=2, updateStrategy=SURGE)],
        ],
        rests_s=12.0,
    ),
    "slow": Setup(
        nodes("slow", 3),
        [
            [wants("slow", minReadySeconds=2)],
            [wants("slow", 2, minReadySeconds=2)],
            [wants("slow", 2, minReadySeconds=3600)],
        ],
        rests_s=12.0,
    ),
    "on-delete": Setup(
        nodes("on-delete", 3),
        [
            [wants("on-delete", updateStrategy=ON_DELETE)],
            [wants("on-delete", 2, updateStrategy=ON_DELETE)],
            deleted_on("on-delete-2"),
            [wants("on-delete", 3, updateStrategy=ON_DELETE)],
            deleted_on("on-delete-3"),
            [wants("on-delete", 3, updateStrategy=rolling(maxUnavailable=1))],
        ],
    ),
    "failed": Setup(
        nodes("failed", 3),
        [
            [wants("failed")],
            ends("Failed", "failed-1"),
            ends("Failed", "failed-1"),
            ends("Succeeded", "failed-2"),
        ],
    ),
    # a revision that a pod still has is kept beyond the limit
    "limited": Setup(
        nodes("limited", 2),
        [
            [wants("limited", 1, revisionHistoryLimit=0, updateStrategy=ON_DELETE)],
            [wants("limited", 2, revisionHistoryLimit=0, updateStrategy=ON_DELETE)],
            deleted_on("limited-1"),
            [wants("limited", 3, revisionHistoryLimit=0, updateStrategy=ON_DELETE)],
            [wants("limited", 4, revisionHistoryLimit=2)],
            [wants("limited", 5, revisionHistoryLimit=2)],
        ],
    ),
    "undone": Setup(
        nodes("undone", 2),
        [
            [wants("undone")],
            [wants("undone", 2, pod={"hostPID": True})],
            [wants("undone", 3)],
            [{"undo": 0}],
            [{"undo": 1}],
            [{"undo": 5}],
        ],
    ),
    "adopted": Setup(
        nodes("adopted", 3),
        [
            [
                by_hand("adopted", "a", "adopted-1"),
                by_hand("adopted", "b", "adopted-1"),
                by_hand("adopted", "c", "adopted-2"),
            ],
            [wants("adopted", updateStrategy=ON_DELETE)],
            [wants("adopted", updateStrategy=rolling(maxUnavailable=1))],
        ],
    ),
    "released": Setup(
        nodes("released", 2),
        [
            [wants("released")],
            pod_on("released-1", metadata={"labels": {"app": "other"}}),
        ],
    ),
    # without its hash a pod is told by the generation of the template
    "unlabelled": Setup(
        nodes("unlabelled", 2),
        [
            [wants("unlabelled")],
            pod_on("unlabelled-1", metadata={"labels": {"controller-revision-hash": None}}),
            pod_on("unlabelled-2", metadata={"labels": {"pod-template-generation": "7"}}),
            [wants("unlabelled", minReadySeconds=1)],
            [wants("unlabelled", 2, minReadySeconds=1)],
        ],
    ),
    "held": Setup(
        nodes("held", 2),
        [
            [wants("held")],
            pod_on("held-1", metadata={"finalizers": ["example.com/hold"]}),
            ends("Succeeded", "held-1"),
            [wants("held", 2)],
        ],
    ),
    "usurped": Setup(
        nodes("usurped", 2),
        [[wants("usurped")], [wants("usurped", 2)], usurped(1), [wants("usurped", 1)]],
    ),
    "revision-gone": Setup(
        nodes("revision-gone", 2),
        [
            [wants("revision-gone")],
            [wants("revision-gone", 2)],
            revision_gone(2),
            revision_gone(1),
            [wants("revision-gone", 1)],
        ],
    ),
    "lost": Setup(
        nodes("lost", 3),
        [
            [wants("lost")],
            [
                {"kubelet": {"nodes": ["lost-2"], "heartbeats": "stop"}},
                {"pause": GRACE_S + 15},
                wants("lost", 2),
            ],
            [{"kubelet": {"nodes": ["lost-2"], "heartbeats": "start"}}],
        ],
    ),
    "orphaned": Setup(
        nodes("orphaned", 3),
        [
            [wants("orphaned")],
            [wants("orphaned", 2)],
            [{"orphan": True}],
            [wants("orphaned", 2)],
            [{"orphan": True}],
            [wants("orphaned", 1)],
        ],
    ),
    "deleted": Setup(
        nodes("deleted", 2), [[wants("deleted")], [gone("DaemonSet", "agent", "deleted")]]
    ),
}
