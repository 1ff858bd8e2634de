"""Which of the nodes that fit is taken: kube-scheduler's default scores, by their weights."""

from collections.abc import Iterable, Mapping

import pytest

from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.workloads import scoring
from kubectl_nodelife.workloads.scheduling import NodeInfo, PodRequirements
from tests.sim.documents import Json, found, node, pod, story

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Nodes:
    """Nodes of 1000 cpu and memory each, of which so much is taken."""

    def __init__(self, **used: int) -> None:
        self._used = used

    def node_count(self) -> int:
        return len(self._used)

    def pod_count(self, name: str) -> int:
        return 0

    def rank(self, name: str) -> int:
        return sorted(self._used).index(name)

    def in_order(self, names: Iterable[str]) -> list[str]:
        return sorted(names)

    def infos(self, names: Iterable[str]) -> list[NodeInfo]:
        return [self._info(name) for name in names]

    def _info(self, name: str) -> NodeInfo:
        amounts = {"cpu": "1000", "memory": "1000", "pods": "10"}
        made = decode("Node", {**node(name), "status": {"allocatable": amounts}})
        assert isinstance(made, Node)
        info = NodeInfo(made)
        used = (self._used[name] * 1000, self._used[name])
        info.add(dict(zip(("cpu", "memory"), used, strict=True)), scored=used)
        return info


def asking(cpu: str, memory: str) -> PodRequirements:
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "c", "resources": {"requests": requests}}
    return PodRequirements(typed(pod("p", containers=[container])))


def best(
    used: Mapping[str, int], preferences: Mapping[str, scoring.Preference] | None = None
) -> str:
    names = sorted(used)
    liked = [(preferences or {}).get(name, scoring.Preference()) for name in names]
    room = [scoring.room_score(asking("100", "100"), info) for info in Nodes(**used).infos(names)]
    scores = scoring.node_scores(liked, room, [0] * len(names))
    return names[scores.index(max(scores))]


def test_least_allocated_decides_where_all_else_is_equal() -> None:
    assert best({"a1": 500, "a2": 100, "b1": 300}) == "a2"


def test_an_untolerated_prefer_no_schedule_taint_outweighs_room() -> None:
    assert best({"a1": 0, "b1": 850}, {"a1": scoring.Preference(taints=1)}) == "b1"


def test_preferred_affinity_outweighs_room_and_is_outweighed_by_a_taint() -> None:
    assert best({"a1": 0, "b1": 800}, {"b1": scoring.Preference(affinity=-10)}) == "b1"
    both = {"b1": scoring.Preference(taints=1, affinity=-10)}
    assert best({"a1": 0, "b1": 0}, both) == "a1"


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.parametrize(
    ("wish", "home"),
    [
        ({}, "b"),
        ({"topologySpreadConstraints": [SPREAD]}, "b"),
        ({"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}}}, "a"),
    ],
    ids=["room", "soft spread", "preferred affinity"],
)
def test_what_a_pod_wishes_about_other_pods_counts(wish: Json, home: str) -> None:
    web = pod("web", "a", containers=[{"name": "c", "resources": {"requests": {"cpu": "10m"}}}])
    web["metadata"]["labels"] = {"app": "web"}
    objects = [sized("a"), sized("b"), web]
    later = {"at": "5s", "apply": pod("p", **wish)}
    more: Json = {"controllers": [], "duration": "1m", "scheduler": "HighestScore"}
    told = story(objects=objects, events=[later], **more)
    (made,) = found(told, "CreatePod", name="p")
    assert made.detail["node"] == home


def sized(name: str) -> Json:
    made = node(name)
    made["metadata"]["labels"] |= {"kubernetes.io/hostname": name, "zone": name}
    made["status"]["allocatable"] = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return made


def typed(document: Json) -> Pod:
    made = decode("Pod", document)
    assert isinstance(made, Pod)
    return made


def test_what_a_pod_thinks_of_a_node() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": term}]}
    picky = typed(pod("p", affinity={"nodeAffinity": wish}))
    taints = [{"key": "slow", "effect": "PreferNoSchedule"}, {"key": "x", "effect": "NoExecute"}]
    document = node("n", taints=taints)
    document["metadata"]["labels"]["disk"] = "ssd"
    made = decode("Node", document)
    assert isinstance(made, Node)
    assert scoring.preference_of(picky, made) == scoring.Preference(taints=1, affinity=-7)
    tolerant = pod("p", tolerates=-1)
    tolerant["spec"]["tolerations"] = [{"key": "slow", "operator": "Exists"}]
    assert scoring.preference_of(typed(tolerant), made) == scoring.Preference()


@pytest.mark.parametrize("effect, home", [("PreferNoSchedule", "b"), ("", "a")])
def test_the_simulated_scheduler_heeds_prefer_no_schedule(effect: str, home: str) -> None:
    taints = [{"key": "slow", "effect": effect}] if effect else []
    objects = [node("a", taints=taints), node("b"), pod("on-b", "b")]
    later = {"at": "5s", "apply": pod("p")}
    told = story(controllers=[], duration="1m", objects=objects, events=[later])
    (made,) = found(told, "CreatePod", name="p")
    assert made.detail["node"] == home


def test_a_node_that_went_and_came_back_is_asked_anew() -> None:
    thought_of = {"a1": scoring.Preference(), "b1": scoring.Preference(affinity=-1)}
    nodes = scoring.HighestScore().candidates(Nodes(a1=0, b1=0), thought_of.__getitem__)
    for name in thought_of:
        nodes.update(name, True)

    def chosen() -> str:
        (best,) = nodes.best(
            asking("1", "1"), lambda name: True, None, lambda names: [0] * len(names)
        )
        return best

    assert chosen() == "b1"
    del thought_of["b1"]
    nodes.update("b1", False)
    assert chosen() == "a1"
    thought_of["b1"] = scoring.Preference(taints=1)
    nodes.update("b1", True)
    assert chosen() == "a1"
