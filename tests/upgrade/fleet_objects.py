"""The small fleet that simulated upgrades run on: twelve nodes in three zones, and their pods."""

from tests.objects import budget, workload
from tests.sim.documents import Json, node, owner, pod

ZONES = "abc"
PER_ZONE = 4
NODES = tuple(f"{zone}{number}" for zone in ZONES for number in range(1, PER_ZONE + 1))


def fleet_objects(budgets: bool = True) -> list[Json]:
    """The fleet's nodes, a DaemonSet, and workloads of which some have `budgets`."""
    objects: list[Json] = []
    for name in NODES:
        made = node(name, zone=name[0])
        made["metadata"]["labels"]["pool"] = "blue"
        made["status"]["allocatable"] = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        made["status"]["nodeInfo"] = {"bootID": f"boot-{name}", "kubeletVersion": "v1.36.0"}
        objects.append(made)
    everywhere = {"tolerations": [{"operator": "Exists"}]}
    objects.append(workload("DaemonSet", "cni", namespace="kube-system", pods=everywhere))
    for number, replicas in enumerate((9, 6, 3, 4)):
        app = f"app{number}"
        objects.append(owner("ReplicaSet", app, replicas))
        for i in range(replicas):
            where = NODES[(i * 5 + number) % len(NODES)]
            one = pod(f"{app}-{i}", where, owner=("ReplicaSet", app))
            one["metadata"]["labels"] = {"app": app}
            objects.append(one)
        if budgets and number < 3:
            objects.append(budget(app, uid="", minAvailable=replicas - 1 - number % 2))
    return objects
