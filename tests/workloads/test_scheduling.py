"""The scheduler's filters, and counts that are kept up against counts made afresh."""

import random
from typing import Any

import pytest

from kubectl_nodelife.kube.load import load_documents
from kubectl_nodelife.kube.meta import LabelSelector, LabelSelectorRequirement
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import SelectorIndex, matches
from kubectl_nodelife.workloads.owners import ordinal_of
from kubectl_nodelife.workloads.pod_classes import PodClasses, stock
from kubectl_nodelife.workloads.scheduling import NodeInfo, PodRequirements, fits
from kubectl_nodelife.workloads.topology import Domains, InterPodAffinity, TopologySpread

Json = dict[str, Any]


def decode(kind: str, name: str, spec: Json, labels: Json | None = None, **more: Any) -> Any:
    document = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels or {}},
        "spec": spec,
        **more,
    }
    return load_documents([document], "test").objects[0]


def node(name: str = "n", labels: Json | None = None, **spec: Any) -> Node:
    made: Node = decode(
        "Node",
        name,
        spec,
        {"kubernetes.io/hostname": name, **(labels or {})},
        status={"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3"}},
    )
    return made


def pod(name: str = "p", labels: Json | None = None, cpu: str = "100m", **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    made: Pod = decode("Pod", name, {"containers": [container], **spec}, labels)
    return made


def port(number: int, ip: str = "", protocol: str = "TCP") -> Json:
    host = {"hostPort": number, "containerPort": 80, "hostIP": ip, "protocol": protocol}
    return {"containers": [{"name": "c", "ports": [host]}]}


@pytest.mark.parametrize(
    "wanted, on, there, expected",
    [
        pytest.param(pod(), node(), [], [], id="fits"),
        pytest.param(
            pod(), node(unschedulable=True), [], ["node(s) were unschedulable"], id="cordoned"
        ),
        pytest.param(
            pod(tolerations=[{"operator": "Exists"}]),
            node(unschedulable=True),
            [],
            [],
            id="tolerated",
        ),
        pytest.param(
            pod(),
            node(taints=[{"key": "k", "effect": "NoExecute"}]),
            [],
            ["node(s) had untolerated taint(s)"],
            id="taint",
        ),
        pytest.param(
            pod(), node(taints=[{"key": "k", "effect": "PreferNoSchedule"}]), [], [], id="prefer"
        ),
        pytest.param(
            pod(nodeSelector={"disk": "ssd"}),
            node(),
            [],
            ["node(s) didn't match Pod's node affinity/selector"],
            id="selector",
        ),
        pytest.param(pod(cpu="1950m"), node(), [pod("o")], ["Insufficient cpu"], id="cpu"),
        pytest.param(pod(cpu="1900m"), node(), [pod("o")], [], id="cpu-to-the-last-bit"),
        pytest.param(pod(), node(), [pod("a"), pod("b"), pod("c")], ["Too many pods"], id="pods"),
        pytest.param(
            pod(cpu="3"),
            node(),
            [pod("a"), pod("b"), pod("c")],
            ["Too many pods", "Insufficient cpu"],
            id="all-that-is-short-is-told",
        ),
        pytest.param(
            pod(**port(80)),
            node(),
            [pod("o", **port(80))],
            ["node(s) didn't have free ports for the requested pod ports"],
            id="host-port",
        ),
        pytest.param(
            pod(**port(80)), node(), [pod("o", **port(80, protocol="UDP"))], [], id="other-protocol"
        ),
        pytest.param(
            pod(**port(80, "10.0.0.1")),
            node(),
            [pod("o", **port(80, "10.0.0.2"))],
            [],
            id="other-ip",
        ),
        pytest.param(
            pod(**port(80, "10.0.0.1")),
            node(),
            [pod("o", **port(80))],
            ["node(s) didn't have free ports for the requested pod ports"],
            id="all-addresses-are-taken",
        ),
    ],
)
def test_fits(wanted: Pod, on: Node, there: list[Pod], expected: list[str]) -> None:
    assert fits(PodRequirements(wanted), taken_by(on, there)) == expected


def taken_by(on: Node, pods: list[Pod]) -> NodeInfo:
    return stock(on, PodClasses().rooms_on(pods).get("", {}))


def test_leaving_gives_everything_back() -> None:
    info = taken_by(node(), [pod("a", **port(80))])
    wanted = PodRequirements(pod(**port(80)))
    assert fits(wanted, info)
    other = PodRequirements(pod("a", **port(80)))
    info.remove(other.requests, other.ports)
    assert not fits(wanted, info) and info.pod_count == 0


@pytest.mark.parametrize("seed", range(10))
def test_free_room_is_kept_up(seed: int) -> None:
    rand = random.Random(seed)
    kept, there = NodeInfo(node()), list[Pod]()
    asked = [{"cpu": 50}, {"cpu": 100, "example.com/gpu": 1}, {"memory": 1 << 20}, {"cpu": 100}]
    of_pod: dict[str, dict[str, int]] = {}
    for step in range(60):
        if there and rand.random() < 0.4:
            kept.remove(of_pod[there.pop(rand.randrange(len(there))).name])
        else:
            requests = rand.choice(asked)
            of_pod[f"p{step}"] = requests
            there.append(requesting(f"p{step}", requests))
            kept.add(requests)
        afresh = taken_by(node(), there)
        assert kept.free == afresh.free and kept.pod_count == afresh.pod_count == len(there)
        taken = {name: kept.requested.get(name, 0) for name in kept.allocatable}
        assert kept.free == {name: kept.allocatable[name] - taken[name] for name in taken}
        other, free = kept.copy(), dict(kept.free)
        other.add({"cpu": 500})
        assert kept.free == free != other.free


def requesting(name: str, requests: dict[str, int]) -> Pod:
    quantities = {what: f"{n}m" if what == "cpu" else n for what, n in requests.items()}
    return pod(name, containers=[{"name": "c", "resources": {"requests": quantities}}])


# --- topology spread -----------------------------------------------------------------------------


def spread_pod(*constraints: Json, labels: Json | None = None) -> Pod:
    whole = [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
            **constraint,
        }
        for constraint in constraints
    ]
    return pod("new", labels or {"app": "web"}, topologySpreadConstraints=whole)


def zoned(name: str, zone: str, **spec: Any) -> Node:
    return node(name, {"zone": zone}, **spec)


NODES = [zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b")]


@pytest.mark.parametrize(
    "constraint, counts, allowed",
    [
        pytest.param({}, {"a1": 1, "b1": 1}, {"a1", "a2", "b1"}, id="even"),
        pytest.param({}, {"a1": 1}, {"b1"}, id="the-emptier-zone"),
        pytest.param({"maxSkew": 2}, {"a1": 1}, {"a1", "a2", "b1"}, id="max-skew-2"),
        pytest.param({"minDomains": 3}, {"a1": 1, "b1": 1}, set(), id="too-few-domains"),
        pytest.param({"topologyKey": "rack"}, {}, set(), id="missing-label"),
        pytest.param(
            {"whenUnsatisfiable": "ScheduleAnyway"}, {"a1": 9}, {"a1", "a2", "b1"}, id="soft"
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"app": "other"}}},
            {"a1": 3},
            {"a1", "a2", "b1"},
            id="does-not-count-itself",
        ),
    ],
)
def test_spread(constraint: Json, counts: dict[str, int], allowed: set[str]) -> None:
    spread = TopologySpread(spread_pod(constraint), NODES)
    by_name = {n.name: n for n in NODES}
    for name, count in counts.items():
        for i in range(count):
            spread.change(pod(f"{name}-{i}", {"app": "web"}), by_name[name], 1)
    assert {n.name for n in NODES if spread.reason(n) is None} == allowed


@pytest.mark.parametrize(
    "policies, allowed",
    [
        pytest.param({}, set(), id="a-cordoned-zone-counts"),
        pytest.param({"nodeTaintsPolicy": "Honor"}, {"a1"}, id="unless-taints-are-honoured"),
    ],
)
def test_spread_with_a_cordoned_zone(policies: Json, allowed: set[str]) -> None:
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    nodes = [zoned("a1", "a"), zoned("b1", "b", unschedulable=True, taints=taints)]
    spread = TopologySpread(spread_pod(policies), nodes)
    spread.change(pod("x", {"app": "web"}), nodes[0], 1)
    assert {n.name for n in nodes[:1] if spread.reason(n) is None} == allowed


def test_match_label_keys() -> None:
    labels = {"app": "web", "hash": "new"}
    spread = TopologySpread(spread_pod({"matchLabelKeys": ["hash"]}, labels=labels), NODES)
    spread.change(pod("old", {"app": "web", "hash": "old"}), NODES[0], 1)
    assert spread.reason(NODES[0]) is None
    spread.change(pod("new", labels), NODES[0], 1)
    assert spread.reason(NODES[0]) is not None


@pytest.mark.parametrize("seed", range(20))
def test_the_fewest_is_kept_up(seed: int) -> None:
    chance = random.Random(seed)
    values = [str(i) for i in range(chance.randint(1, 6))]
    domains = Domains(values)
    there: list[str] = []
    for _ in range(200):
        if there and chance.random() < 0.45:
            value = there.pop(chance.randrange(len(there)))
            domains.change(value, -1)
        else:
            value = chance.choice(values)
            there.append(value)
            domains.change(value, 1)
        assert domains.fewest == min(there.count(v) for v in values)


# --- between pods --------------------------------------------------------------------------------


def with_terms(name: str, labels: Json, kind: str, **term: Any) -> Pod:
    whole = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone", **term}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [whole]}
    return pod(name, labels, affinity={kind: required})


def allowed_by(interpod: InterPodAffinity) -> set[str]:
    return {n.name for n in NODES if interpod.reason(n) is None}


def test_anti_affinity_of_its_own() -> None:
    interpod = InterPodAffinity(with_terms("new", {"app": "web"}, "podAntiAffinity"), {})
    assert allowed_by(interpod) == {"a1", "a2", "b1"}
    interpod.change(pod("x", {"app": "web"}), NODES[0], 1)
    assert allowed_by(interpod) == {"b1"}
    interpod.change(pod("x", {"app": "web"}), NODES[0], -1)
    assert allowed_by(interpod) == {"a1", "a2", "b1"}


def test_anti_affinity_of_others() -> None:
    interpod = InterPodAffinity(pod("new", {"app": "web"}), {})
    interpod.change(with_terms("x", {"app": "other"}, "podAntiAffinity"), NODES[2], 1)
    assert allowed_by(interpod) == {"a1", "a2"}


def test_affinity_and_the_first_of_a_series() -> None:
    first = InterPodAffinity(with_terms("new", {"app": "web"}, "podAffinity"), {})
    assert allowed_by(first) == {"a1", "a2", "b1"}
    first.change(pod("x", {"app": "web"}), NODES[2], 1)
    assert allowed_by(first) == {"b1"}
    other = InterPodAffinity(with_terms("new", {"app": "other"}, "podAffinity"), {})
    assert allowed_by(other) == set()


def test_terms_about_other_namespaces() -> None:
    by_label = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
    new = with_terms("new", {"app": "web"}, "podAntiAffinity", **by_label)
    here = InterPodAffinity(new, {"ns": {"team": "y"}})
    here.change(pod("x", {"app": "web"}), NODES[0], 1)
    assert allowed_by(here) == {"a1", "a2", "b1"}
    there = InterPodAffinity(new, {"ns": {"team": "x"}})
    there.change(pod("x", {"app": "web"}), NODES[0], 1)
    assert allowed_by(there) == {"b1"}


# --- the index -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_index_answers_as_trying_each_selector_would(seed: int) -> None:
    chance = random.Random(seed)
    words = ["a", "b", "c"]
    selectors = []
    for _ in range(30):
        pairs = {chance.choice(words): chance.choice(words) for _ in range(chance.randint(0, 2))}
        expressions = ()
        if chance.random() < 0.4:
            operator = chance.choice(["In", "NotIn", "Exists", "DoesNotExist"])
            values = (chance.choice(words),) if operator in ("In", "NotIn") else ()
            expressions = (LabelSelectorRequirement(chance.choice(words), operator, values),)
        selectors.append(LabelSelector(pairs or None, expressions))
    index: SelectorIndex[int] = SelectorIndex()
    for number, selector in enumerate(selectors):
        index.add(f"ns{number % 2}", selector, number)
    for _ in range(50):
        labels = {chance.choice(words): chance.choice(words) for _ in range(chance.randint(0, 3))}
        namespace = f"ns{chance.randint(0, 2)}"
        naive = [
            number
            for number, selector in enumerate(selectors)
            if namespace == f"ns{number % 2}" and matches(selector, labels)
        ]
        assert index.find(namespace, labels) == naive


@pytest.mark.parametrize(
    "name, ordinal", [("db-0", 0), ("my-db-12", 12), ("db", -1), ("db-x", -1), ("db-", -1)]
)
def test_ordinal_of(name: str, ordinal: int) -> None:
    assert ordinal_of(name) == ordinal
