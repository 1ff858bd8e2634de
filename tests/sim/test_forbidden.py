"""What the API server of the virtual cluster forbids: in namespaces that end, by webhooks and by
policies. Plans of drains meet the same in `tests/drain/test_admission.py`."""

from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.dumps.dump import read_dump
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.play_reading import Played
from kubectl_nodelife.outlook.what_if.question import Question, play
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from tests.drain.build import NOW, budget, namespace, node, plan, pods_of, replica_set
from tests.drain.test_admission import policy, webhook
from tests.objects import workload, write_list
from tests.sim.documents import Json, found, owner, pod, story
from tests.sim.documents import node as bare_node

ALL_KINDS = frozenset(kind.name for kind in KINDS)
NODES = [*node("a1"), *node("a2")]
LONG_AGO = "2026-01-01T00:00:00Z"


def terminating(since: str = LONG_AGO) -> Json:
    going = namespace(phase="Terminating")
    going["metadata"]["deletionTimestamp"] = since
    return going


def dump_of(folder: Path, *parts: Any) -> Path:
    """A file with these objects, of which all kinds were read."""
    items = [each for part in parts for each in (part if isinstance(part, list) else [part])]
    path = folder / "cluster.json"
    write_list(path, items, annotations={"nodelife.dev/kinds": "all"})
    return path


def drained(path: Path) -> Played:
    """The future of `what-if drain a1`."""
    dump = read_dump([str(path)])
    cluster = Cache()
    cluster.fill(dump.objects, dump.moment_ns)
    settings = PlanSnapshot((), 0).settings
    acts = read_acts(["drain", "a1"], cluster, beta_zone_labels_only=False)
    hour_ns = 3600 * 10**9
    return play(Question(cluster, settings, dump.moment_ns, ALL_KINDS, acts, hour_ns)).future


def evicted(played: Played) -> list[str]:
    marks = [r for r in played.records if r.action == "SetPodCondition"]
    return [r.object.name for r in marks if r.detail.get("type") == "DisruptionTarget"]


REFUSING = [
    pytest.param([terminating()], "namespace-terminating", id="a-namespace-that-ends"),
    pytest.param([namespace(), webhook()], "webhook", id="a-webhook-that-cannot-be-called"),
    pytest.param([namespace(), *policy("false")], "webhook", id="a-policy"),
]


@pytest.mark.parametrize("guards, gate", REFUSING)
def test_a_drain_meets_it_in_every_verb(tmp_path: Path, guards: list[Json], gate: str) -> None:
    """`drain-plan` says never, and nothing is evicted in the play of `what-if drain` either."""
    objects = [*NODES, *replica_set("web", "a1", "a1"), *guards]
    told = pods_of(plan(objects))["web-0"]
    assert (told.verdict, told.gate) == ("never", gate)
    played = drained(dump_of(tmp_path, *objects))
    assert evicted(played) == []
    refused = [r for r in played.records if r.detail.get("reason") == "EvictionRefused"]
    assert sorted({r.object.name for r in refused}) == ["web-0", "web-1"]


def test_a_drain_of_a_namespace_that_stays_goes_in_both(tmp_path: Path) -> None:
    objects = [*NODES, *replica_set("web", "a1", "a1"), namespace()]
    assert plan(objects).verdict == "ready"
    assert sorted(evicted(drained(dump_of(tmp_path, *objects)))) == ["web-0", "web-1"]


def test_pods_end_with_their_namespace_and_nothing_replaces_them(tmp_path: Path) -> None:
    """Five seconds after its deletion the namespace controller deletes what is in it."""
    objects = [*NODES, *replica_set("web", "a1", "a2"), terminating(NOW)]
    played = drained(dump_of(tmp_path, *objects))
    ended = [r for r in played.records if r.action == "DeletePod" and r.controller == "cluster"]
    assert {r.at for r in ended if "namespace" in r.reason} == {5.0}
    assert not played.cluster.pods
    plan_of_both = make_plan(
        PlanSnapshot(read_dump([str(tmp_path / "cluster.json")]).objects, played.start_ns),
        ["a1"],
        DrainOptions(),
    )
    assert plan_of_both.verdict == "slow"


def test_no_owner_and_no_user_makes_a_pod_in_a_namespace_that_is_deleted() -> None:
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"}, "spec": {}}
    shop: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    told = story(
        objects=[
            bare_node("a1"),
            bare_node("a2"),
            shop,
            owner("ReplicaSet", "web", 1),
            pod("web-0", "a1", owner=("ReplicaSet", "web")),
        ],
        duration="2m",
        events=[
            {"at": "10s", "delete": {"kind": "Namespace", "name": "default"}},
            {"at": "12s", "apply": made},
        ],
    )
    (refused,) = found(told, "RecordEvent", reason="Refused")
    assert "unable to create new content in namespace default" in refused.reason
    (ended,) = [r for r in found(told, "DeletePod", name="web-0") if "namespace" in r.reason]
    assert ended.at == 15.0
    assert not found(told, "CreatePod")


def test_the_daemonset_controller_makes_no_pod_there() -> None:
    agent = workload("DaemonSet", "agent", namespace="shop", uid="ds-agent")
    shop: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    told = story(
        objects=[bare_node("a1"), shop, agent],
        duration="2m",
        events=[
            {"at": "10s", "delete": {"kind": "Namespace", "name": "shop"}},
            {"at": "11s", "apply": bare_node("a2")},
        ],
    )
    made = [r for r in found(told, "CreatePod") if not r.error]
    assert [r.detail["node"] for r in made] == ["a1"]
    forbidden = [r for r in found(told, "CreatePod") if r.error]
    assert forbidden and all(r.error.startswith("403 pods ") for r in forbidden)


def test_a_budget_holds_besides_what_admission_lets_in(tmp_path: Path) -> None:
    held = budget("web", "web", healthy=2, desired=2, expected=2, minAvailable=2)
    objects = [*NODES, *replica_set("web", "a1", "a1"), namespace(), held]
    assert evicted(drained(dump_of(tmp_path, *objects))) == []
