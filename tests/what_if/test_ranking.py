"""The loss of each node, zone or group by itself, the worst first."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if import ranking
from kubectl_nodelife.outlook.what_if.acts import narrowing
from kubectl_nodelife.outlook.what_if.question import Question
from tests.what_if.stand import ALL_KINDS, NOW_NS, SIX, Document, ask, node, of, service, workload

DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"


def each(
    what: str, objects: Sequence[Document], words: str = "", until_s: int = 600
) -> tuple[list[ranking.RankedTarget], list[ranking.SinglePoint], int]:
    documents = [*(d for name in SIX for d in node(name)), *objects]
    cluster = Cache()
    cluster.fill([decode(d["kind"], d) for d in documents], NOW_NS)
    said = words.split()
    targets, _ = ranking.targets_of(what, cluster, beta_zone_labels_only=False)
    acts = {t.name: ranking.act_on(said, t, cluster, beta_zone_labels_only=False) for t in targets}
    settings = make_settings("newest")
    question = Question(cluster, settings, NOW_NS, ALL_KINDS, (), until_s * SECOND_NS)
    ranker = ranking.Ranker(question, acts)
    found = ranking.ranked([ranker.outcome(name) for name in acts], targets, said)
    return found["items"], found["single_points"], found["harmless"]


@pytest.mark.parametrize(
    "what, words, targets, without",
    [
        ("node", "-l pool=blue", ["a1", "b1"], 0),
        ("node", "--zone a", ["a1", "a2", "a3"], 0),
        ("node", "--zone=a --zone=b --selector=pool=blue", ["a1", "b1"], 0),
        ("node", "-l pool=blue --zone b", ["b1"], 0),
        ("zone", "-l rack=r1", ["a"], 0),
        ("label=rack", "", ["r1", "r2"], 3),
        ("label=rack", "--zone b", ["r2"], 2),
        ("pair-of node", "--zone a", ["a1 + a2", "a1 + a3", "a2 + a3"], 0),
    ],
)
def test_a_selector_and_zones_narrow_the_targets(
    what: str, words: str, targets: list[str], without: int
) -> None:
    labels = {"a1": {"pool": "blue", "rack": "r1"}, "b1": {"pool": "blue", "rack": "r2"}}
    labels["a2"] = {"rack": "r1"}
    cluster = Cache()
    for name in SIX:
        for document in node(name):
            document["metadata"].setdefault("labels", {}).update(labels.get(name, {}))
            cluster.fill([decode(document["kind"], document)], NOW_NS)
    among, rest = narrowing([*words.split(), "drain", "--force"])
    assert rest == ["drain", "--force"]
    found, left_out = ranking.targets_of(what, cluster, among, beta_zone_labels_only=False)
    assert ([target.name for target in found], left_out) == (targets, without)


@pytest.mark.parametrize(
    "words, line",
    [
        ("-l pool=red", "--selector pool=red: no node of 6 matches; check the labels"),
        ("--zone c", "zone: no zone 'c'; known: a, b"),
        ("-l rack=r1 --zone a", "--selector rack=r1: no node of 6 matches; check the labels"),
        ("--zone", "--zone: lacks its value"),
    ],
)
def test_a_narrowing_that_leaves_nothing(words: str, line: str) -> None:
    cluster = Cache()
    cluster.fill([decode(d["kind"], d) for name in SIX for d in node(name)], NOW_NS)
    with pytest.raises(BadInput) as refused:
        ranking.targets_of(
            "node", cluster, narrowing(words.split())[0], beta_zone_labels_only=False
        )
    assert str(refused.value) == line


def test_a_single_point_of_failure_is_named() -> None:
    items, points, harmless = each("node", [*workload("web", ["a1", "a1"]), *service("web")])
    assert [item.target for item in items] == list(SIX), "every target, the harmless ones too"
    assert [(item.target, item.down) for item in items if item.does_harm] == [
        ("a1", ["default/ReplicaSet/web", "default/Service/web"])
    ]
    assert harmless == 5
    assert [(p.kind, p.name, p.targets) for p in points] == [
        ("ReplicaSet", "web", ["a1"]),
        ("Service", "web", ["a1"]),
    ]
    assert items[0].command == "kubectl nodelife what-if lose node a1"


def test_zones_are_ranked_by_what_goes_down() -> None:
    db = workload("db", ["a1", "a2", "a3"], "StatefulSet")
    items, points, _ = each("zone", [*db, *workload("web", ["a1", "b1", "b2"])], until_s=3600)
    assert [item.target for item in items] == ["a", "b"]
    assert items[0].down == ["default/StatefulSet/db"] and items[1].down == []
    assert [(p.name, p.targets) for p in points] == [("db", ["a"])]


def test_a_ranking_has_what_the_single_questions_give() -> None:
    objects = [*workload("web", ["a1", "b1"]), *workload("one", ["a2"])]
    items, _, _ = each("node", objects, until_s=900)
    for item in items:
        single = ask(f"lose node {item.target}", objects, until_s=900)
        assert item.verdict["pods_evicted"] == single.verdict.pods_evicted
        assert item.verdict["unavailable_pod_seconds"] == single.verdict.unavailable_pod_seconds
        assert bool(item.down) == any(w.outage == "full" for w in single.workloads)
    assert of(ask("lose node a2", objects), "one").outage == "full"


def test_a_lost_link_takes_nothing_down_for_a_while() -> None:
    items, points, harmless = each("zone", workload("web", ["a1"]), "lose link --for 2m")
    assert not points and harmless == 2 and not any(item.does_harm for item in items)


@pytest.mark.parametrize(
    "what, line",
    [
        (
            "rack",
            "--each: no such group 'rack'; give node, zone or label=KEY, or pair-of one of them",
        ),
        (
            "label",
            "--each: no such group 'label'; give node, zone or label=KEY, or pair-of one of them",
        ),
        ("label=rack", "--each label=rack: there is nothing to lose; check the labels"),
    ],
)
def test_what_is_no_group(what: str, line: str) -> None:
    with pytest.raises(BadInput) as refused:
        each(what, [])
    assert str(refused.value) == line


def test_on_a_dump(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["what-if", "--each", "node", "-f", str(DUMP)]
    assert main([*words, "--fail-on", "zero"]) == 4
    said = capsys.readouterr()
    told = said.out
    assert told.startswith(
        "each node, lose: 6 played for 10m; 1 takes a workload or a Service down\n"
    )
    assert "worker-a2 is lost already: losing it makes no difference" in said.err
    assert main([*words, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["futures"]) == ("WhatIfRanking", 6)
    assert document["singlePoints"][0]["targets"] == ["worker-a3"]
    assert main([*words, "-o", "name"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "node/worker-a3"


def test_any_number_of_processes_gives_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["what-if", "--each", "node", "-f", str(DUMP), "-o", "json", "--jobs"]
    told = []
    for jobs in ("1", "2", "5"):
        assert main([*words, jobs]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] == told[2]


def test_the_command_of_a_target_can_be_asked() -> None:
    """Of a taint, a drain and a group by label too."""
    items, _, _ = each("zone", workload("web", ["a1"]), "taint k=v:NoExecute")
    assert items[0].command == "kubectl nodelife what-if taint zone a k=v:NoExecute"
    items, _, _ = each("label=topology.kubernetes.io/zone", workload("web", ["a1"]))
    words = items[0].command.removeprefix("kubectl nodelife what-if ")
    assert words == "lose nodes -l topology.kubernetes.io/zone=a"
    assert of(ask(words, workload("web", ["a1"])), "web").outage == "full"


def test_what_a_process_raises_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["what-if", "--each", "node", "drain", "--pod-selector", "a==b==c", "-f", str(DUMP)]
    assert main([*words, "--jobs", "2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_pairs_of_zones() -> None:
    """Both zones are lost: all is dark, nobody is evicted, and all is at zero."""
    objects = [
        *workload("db", ["a1", "a2", "a3"], "StatefulSet"),
        *workload("web", ["a1", "b1", "b2"]),
    ]
    (pair,), points, harmless = each("pair-of zone", objects, until_s=3600)
    assert (pair.target, harmless) == ("a + b", 0)
    assert pair.down == ["default/ReplicaSet/web", "default/StatefulSet/db"]
    assert pair.verdict["pods_evicted"].future == 0
    assert pair.command == "kubectl nodelife what-if lose zone a b"
    assert [p.targets for p in points] == [["a + b"], ["a + b"]]


def test_pairs_of_nodes() -> None:
    """Two replicas on two nodes: only that pair takes the workload down."""
    items, points, _ = each("pair-of node", workload("web", ["a1", "b1"]))
    assert items[0].target == "a1 + b1"
    assert [(p.name, p.targets) for p in points] == [("web", ["a1 + b1"])]
    items, _, _ = each("pair-of label=topology.kubernetes.io/zone", workload("web", ["a1"]))
    words = items[0].command.removeprefix("kubectl nodelife what-if ")
    assert words == "lose nodes -l 'topology.kubernetes.io/zone in (a,b)'"


def test_too_many_pairs_are_refused() -> None:
    singles = [ranking.TargetGroup(f"n{i}", (f"n{i}",), ("node", f"n{i}")) for i in range(300)]
    with pytest.raises(BadInput, match="300 make 44,850 pairs, and at most 20,000 are played"):
        list(ranking._pairs("node", "", singles))


def test_pairs_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", "--each", "pair-of", "zone", "drain", "--force", "-f", str(DUMP)]) == 0
    assert capsys.readouterr().out.startswith("each pair-of zone, drain --force: 1 played for 60m")
    assert main(["what-if", "--each", "pair-of", "rack", "-f", str(DUMP)]) == 2
