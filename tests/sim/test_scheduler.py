"""Pods that wait for a node: in whose turn, and what makes the scheduler look again."""

from typing import Any

from kubectl_nodelife.sim.scenario import assemble
from tests.objects import manifest
from tests.sim.documents import Json, found, node, pod, scenario, story, times
from tests.simulating import begin, play

QUIET = {"controllers": [], "duration": "2m"}


def roomy(name: str, **allocatable: str) -> Json:
    """A node that takes so much."""
    described = node(name)
    described["status"]["allocatable"] = {"cpu": "8", "memory": "8Gi", "pods": "110", **allocatable}
    return described


def placed(objects: list[Json], *events: Json) -> dict[str, float]:
    """Pod -> when it was placed after having waited, in that order."""
    told = story(**QUIET, objects=objects, events=list(events))
    return {r.object.name: r.at for r in found(told, "RecordEvent", reason="Scheduled")}


def test_pods_get_a_new_nodes_room_in_the_order_in_which_they_came() -> None:
    asking = {"resources": {"requests": {"cpu": "100m"}}, "name": "c"}
    objects = [pod("x"), pod("y", containers=[asking]), pod("z")]
    later = {"at": "10s", "apply": roomy("a", pods="2")}
    assert placed([node("far", unschedulable=True), *objects], later) == {"x": 10, "y": 10}


def test_a_full_node_is_looked_at_again_when_a_pod_has_left() -> None:
    objects = [roomy("a", pods="1"), pod("old", "a"), pod("p"), pod("q")]
    gone = {"at": "10s", "delete": {"kind": "Pod", "name": "old"}}
    assert placed(objects, gone) == {"p": 40}


def test_a_gated_pod_keeps_nobody_waiting_and_is_placed_when_its_gate_goes() -> None:
    gated = pod("gated", schedulingGates=[{"name": "wait"}])
    free = pod("gated")
    free["spec"]["schedulingGates"] = None
    later = {"at": "10s", "apply": free}
    told = story(**QUIET, objects=[gated, pod("p"), node("a")], events=[later])
    assert times(found(told, "SetPodCondition", name="p", status="True")) == [2]
    assert times(found(told, "SetPodCondition", name="gated", status="True")) == [12]


def test_a_waiting_pod_whose_demands_change_is_tried_again() -> None:
    picky = {"nodeSelector": {"name": "b"}}
    eased = pod("p", nodeSelector={"name": "a"})
    later = {"at": "10s", "apply": eased}
    assert placed([node("a"), pod("p", **picky), pod("q", **picky)], later) == {"p": 10}


def test_pods_that_differ_in_pod_level_resources_only_are_told_apart() -> None:
    def asks(cpu: str) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}}

    objects = [
        pod("large1", **asks("600m")),
        pod("large2", **asks("600m")),
        pod("small", **asks("1m")),
    ]
    told = story(**QUIET, objects=[roomy("a", cpu="1"), *objects])
    ready = found(told, "SetPodCondition", status="True")
    assert [r.object.name for r in ready] == ["large1", "small"]


# --- the filters that look at what runs elsewhere -------------------------------------------------


def labelled(name: str, on: str = "", **spec: Any) -> Json:
    made = pod(name, on, **spec)
    made["metadata"]["labels"] = {"app": "web"}
    return made


WEB = {"matchLabels": {"app": "web"}}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": WEB, "topologyKey": "name"}
        ]
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
    }
]


def homes(objects: list[Json], *events: Json) -> dict[str, str]:
    """Where each pod that was made in the run is at the end, "" for nowhere."""
    run = play(assemble(scenario(**QUIET, objects=objects, events=list(events))))
    return {name: p.spec.node_name for (_, name), p in run.cluster.pods.items()}


def test_a_pod_that_keeps_others_away_gets_a_node_of_its_own() -> None:
    pods = [labelled(name, affinity=APART) for name in ("p", "q", "r")]
    nodes = [node("a"), node("b")]
    assert homes([*nodes, *pods]) == {"p": "a", "q": "b", "r": ""}
    asked = labelled("late")
    later = {"at": "10s", "apply": {**asked, "spec": {"containers": [{"name": "c"}]}}}
    assert homes([*nodes, *pods[:2], pod("other")], later)["late"] == "", "theirs counts as well"


def test_one_that_waits_for_another_to_leave_gets_its_node() -> None:
    pods = [labelled("p", "a", affinity=APART), labelled("q", affinity=APART)]
    gone = {"at": "10s", "delete": {"kind": "Pod", "name": "p"}}
    assert placed([node("a"), *pods], gone) == {"q": 40}


def test_the_spread_over_zones_holds() -> None:
    pods = [labelled(f"p{i}", topologySpreadConstraints=SPREAD) for i in range(5)]
    nodes = [node("a1", "a"), node("a2", "a"), node("a3", "a"), node("b1", "b")]
    found = homes([*nodes, *pods])
    zones = sorted(home[0] for home in found.values())
    assert zones == ["a", "a", "a", "b", "b"]


def test_a_local_volume_holds_the_pod_to_its_node() -> None:
    bound = {"phase": "Bound"}
    claim = manifest(
        "PersistentVolumeClaim", "data", "default", spec={"volumeName": "disk"}, status=bound
    )
    here = {"key": "name", "operator": "In", "values": ["b"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    of = {"name": "data", "namespace": "default"}
    disk = manifest("PersistentVolume", "disk", spec={"claimRef": of, "nodeAffinity": affinity})
    uses = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    nodes = [node("a"), node("b", unschedulable=True)]
    db = pod("db", volumes=uses)
    assert homes([*nodes, claim, disk, db]) == {"db": ""}
    assert homes([*nodes, claim, disk, db], {"at": "9s", "uncordon": {"nodes": ["b"]}}) == {
        "db": "b"
    }
    assert homes([node("b"), db, disk], {"at": "9s", "apply": claim}) == {"db": "b"}


def test_a_pod_that_names_one_node_obeys_its_taints_a_daemon_sets_too() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    here = {"affinity": {"nodeAffinity": required}}
    tainted = node("a", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    agent = pod("agent", owner=("DaemonSet", "agent"), **here)
    assert homes([tainted, node("b"), pod("p", **here), agent]) == {"p": "", "agent": ""}


def test_pods_that_fit_nowhere_are_left_alone_while_nothing_changes() -> None:
    """Two lines of them: the end of one's back-off does not make the other be tried again."""
    first, second = (pod(f"p{i}", nodeSelector={"disk": f"none-{i}"}) for i in range(2))
    cordon = {"at": "3500ms", "cordon": {"nodes": ["a"]}}
    events = [{"at": "3s", "apply": second}, cordon]
    setting = assemble(scenario(duration="1h", objects=[node("a"), first], events=events))
    branch = begin(setting)
    branch.play()
    assert branch.world.agenda.next_at() is None
