"""Scheduler, owners, and what people do to the cluster, told by the records."""

from collections import Counter

import pytest

from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import assemble
from tests.sim.documents import Json, found, node, owner, pod, scenario, start, stop, story, times

QUIET = {"controllers": [], "duration": "2m"}
UNREACHABLE = "node.kubernetes.io/unreachable:NoExecute"
DELETE_P = {"at": "10s", "delete": {"kind": "Pod", "name": "p"}}


def homes(**spec: object) -> dict[str, str]:
    """Pod -> node at the end."""
    cluster = run(assemble(scenario(**spec)), []).cluster
    return {name: p.spec.node_name for (_, name), p in cluster.pods.items()}


def test_pods_without_a_node_spread() -> None:
    objects = [node("a"), node("b"), node("c"), pod("old", "a")]
    objects += [pod(f"p{i}") for i in range(5)]
    assert Counter(homes(**QUIET, objects=objects).values()) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("nodes", "demands"),
    [
        pytest.param([node("bad", unschedulable=True)], {}, id="cordoned"),
        pytest.param([node("bad", ready="False")], {}, id="not-ready"),
        pytest.param([node("bad")], {"nodeSelector": {"name": "good"}}, id="node-selector"),
        pytest.param([node("bad", taints=[{"key": "k", "effect": "NoSchedule"}])], {}, id="taint"),
    ],
)
def test_a_node_that_does_not_fit_is_passed_over(nodes: list[Json], demands: Json) -> None:
    objects = [*nodes, node("good"), *(pod(f"p{i}", **demands) for i in range(3))]
    assert set(homes(**QUIET, objects=objects).values()) == {"good"}


def test_a_full_node_is_passed_over() -> None:
    small, large = node("small"), node("large")
    small["status"]["allocatable"] = {"cpu": "1", "memory": "1Gi", "pods": "110"}
    large["status"]["allocatable"] = {"cpu": "8", "memory": "8Gi", "pods": "3"}
    pods = [pod(f"p{i}") for i in range(5)]
    for p in pods:
        p["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "600m"}}
    placed = homes(**QUIET, objects=[small, large, *pods])
    assert Counter(placed.values()) == {"small": 1, "large": 3, "": 1}


def test_a_pod_that_fits_nowhere_waits_for_a_node() -> None:
    told = story(
        **QUIET,
        objects=[node("a", unschedulable=True)],
        events=[
            {"at": "10s", "apply": pod("p")},
            {"at": "30s", "uncordon": {"nodes": ["a"]}},
        ],
    )
    assert times(found(told, "RecordEvent", reason="FailedScheduling", name="p")) == [10]
    assert times(found(told, "RecordEvent", reason="Scheduled", name="p")) == [30]
    assert times(found(told, "SetPodCondition", name="p", status="True")) == [32]


def test_a_pod_that_the_real_scheduler_refused_waits_for_a_change() -> None:
    refused = pod("p")
    refused["status"]["conditions"] = [{"type": "PodScheduled", "status": "False"}]
    assert homes(**QUIET, objects=[node("a"), refused]) == {"p": ""}
    later = {"at": "5s", "apply": node("b")}
    assert homes(**QUIET, objects=[node("a"), refused], events=[later]) != {"p": ""}


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        pytest.param("ReplicaSet", [10], id="replicaset-at-once"),
        pytest.param("ReplicationController", [10], id="replicationcontroller-at-once"),
        pytest.param("Job", [20], id="job-after-its-back-off"),
        pytest.param("StatefulSet", [40], id="statefulset-once-the-old-one-is-gone"),
        pytest.param("Widget", [10], id="some-owner-that-was-not-read"),
    ],
)
def test_an_owner_replaces_a_deleted_pod(kind: str, made: list[float]) -> None:
    owners = [] if kind == "Widget" else [owner(kind, "own")]
    told = story(
        **QUIET, objects=[node("a"), *owners, pod("p", "a", owner=(kind, "own"))], events=[DELETE_P]
    )
    created = found(told, "CreatePod")
    assert times(created) == made
    assert created[0].detail == {"node": "a", "owner": "own", "revision": ""}
    assert (created[0].object.name == "p") == (kind == "StatefulSet")
    assert told.records[created[0].cause or 0].action == "DeletePod"


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([pod("p", "a")], id="nobody-owns-it"),
        pytest.param([pod("p", "a", owner=("DaemonSet", "own"))], id="a-daemonset"),
        pytest.param([pod("p", "a", owner=("Node", "a"))], id="a-static-pod"),
        pytest.param(
            [owner("ReplicaSet", "other"), pod("p", "a", owner=("ReplicaSet", "own"))],
            id="its-owner-is-gone",
        ),
        pytest.param(
            [owner("ReplicaSet", "own", 0), pod("p", "a", owner=("ReplicaSet", "own"))],
            id="its-owner-wants-none",
        ),
        pytest.param(
            [
                owner("ReplicaSet", "own", 1),
                pod("p", "a", owner=("ReplicaSet", "own")),
                pod("q", "a", owner=("ReplicaSet", "own")),
            ],
            id="there-are-enough-without-it",
        ),
    ],
)
def test_nobody_replaces_a_pod(objects: list[Json]) -> None:
    told = story(**QUIET, objects=[node("a"), *objects], events=[DELETE_P])
    assert not found(told, "CreatePod")


def test_a_pod_is_replaced_once() -> None:
    rs = owner("ReplicaSet", "own", 2)
    pods = [pod(name, "a", owner=("ReplicaSet", "own")) for name in ("p", "q")]
    again = {"at": "12s", "delete": {"kind": "Pod", "name": "p"}}
    told = story(**QUIET, objects=[node("a"), rs, *pods], events=[DELETE_P, again])
    assert len(found(told, "CreatePod")) == 1


def test_a_successor_has_the_same_spec() -> None:
    rs = owner("ReplicaSet", "own")
    old = pod("p", "a", owner=("ReplicaSet", "own"), tolerates=17, nodeSelector={"name": "b"})
    setting = assemble(
        scenario(**QUIET, objects=[node("a"), node("b"), rs, old], events=[DELETE_P])
    )
    (new,) = run(setting, []).cluster.pods.values()
    before = setting.cluster.pods["default", "p"]
    assert new.spec.node_name == "b"
    assert new.spec.tolerations == before.spec.tolerations
    assert new.uid != before.uid


def test_a_new_node_of_the_same_name_gets_pods() -> None:
    told = story(
        **QUIET,
        objects=[node("a")],
        events=[
            {"at": "5s", "delete": {"kind": "Node", "name": "a"}},
            {"at": "6s", "apply": pod("p")},
            {"at": "9s", "apply": node("a")},
        ],
    )
    assert times(found(told, "RecordEvent", reason="Scheduled")) == [9]


def test_taints_by_hand_are_told_and_undone() -> None:
    told = story(
        **QUIET,
        objects=[node("a", taints=[{"key": "old", "effect": "NoSchedule"}])],
        events=[
            {"at": "1s", "taint": {"nodes": ["a"], "add": ["k=v:NoExecute"], "remove": ["old-"]}},
            {"at": "2s", "taint": {"nodes": ["a"], "add": ["k=v:NoExecute"]}},
            {"at": "3s", "taint": {"nodes": ["a"], "remove": ["k"]}},
        ],
    )
    assert times(found(told, "AddTaint", key="k", value="v")) == [1]
    assert times(found(told, "RemoveTaint", key="old")) == [1]
    assert times(found(told, "RemoveTaint", key="k")) == [3]
    assert told.final["nodes"][0]["taints"] == []


def test_apply_merges_and_keeps_what_it_does_not_name() -> None:
    patch = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"x": "y"}}}
    setting = assemble(
        scenario(**QUIET, objects=[node("a")], events=[{"at": "1s", "apply": patch}])
    )
    after = run(setting, []).cluster.nodes["a"]
    assert after.metadata.labels == {"topology.kubernetes.io/zone": "a", "name": "a", "x": "y"}
    assert after.uid == setting.cluster.nodes["a"].uid
    assert after.ready() is not None


def test_null_in_a_patch_takes_a_field_away() -> None:
    patch = {"kind": "Node", "metadata": {"name": "a", "labels": {"name": None}}}
    setting = assemble(
        scenario(**QUIET, objects=[node("a")], events=[{"at": "1s", "apply": patch}])
    )
    assert "name" not in (run(setting, []).cluster.nodes["a"].metadata.labels or {})


def test_what_a_deleted_owner_leaves_is_collected() -> None:
    told = story(
        **QUIET,
        objects=[node("a"), owner("ReplicaSet", "own"), pod("p", "a", owner=("ReplicaSet", "own"))],
        events=[{"at": "10s", "delete": {"kind": "rs", "name": "own"}}],
    )
    assert times(found(told, "DeletePod", name="p")) == [10, 40]
    assert not found(told, "CreatePod")


def test_an_event_about_a_node_that_is_gone_is_told() -> None:
    told = story(
        **QUIET,
        objects=[node("a")],
        events=[
            {"at": "1s", "delete": {"kind": "Node", "name": "a"}},
            {"at": "2s", "cordon": {"nodes": ["a"]}},
        ],
    )
    assert times(found(told, "RecordEvent", reason="NotFound", name="a")) == [2]


def test_a_zone_by_its_label() -> None:
    selector = "topology.kubernetes.io/zone in (b, c)"
    told = story(
        **QUIET,
        objects=[node("a1", "a"), node("b1", "b"), node("c1", "c")],
        events=[{"at": "1s", "kubelet": {"selector": selector, "heartbeats": "stop"}}],
    )
    stopped = found(told, "RecordEvent", reason="HeartbeatsStopped")
    assert [r.object.name for r in stopped] == ["b1", "c1"]


def test_a_stateful_pod_is_back_once_its_node_let_it_go() -> None:
    objects = [node("a"), node("b"), node("c"), owner("StatefulSet", "own"), pod("there", "a")]
    objects.append(pod("own-0", "a", owner=("StatefulSet", "own"), tolerates=60))
    told = story(duration="10m", objects=objects, events=[stop("1s", "a"), start("5m", "a")])
    (made,) = found(told, "CreatePod", name="own-0")
    assert (made.at, made.detail["node"]) == (300.1, "b")


def test_a_pod_that_is_evicted_as_soon_as_it_is_made_does_not_stop_time() -> None:
    brief = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    doomed = pod("p", "a", owner=("ReplicaSet", "own"))
    doomed["spec"]["tolerations"] = [brief]
    told = story(
        controllers=["taint-eviction"],
        duration="12s",
        objects=[node("a"), owner("ReplicaSet", "own"), doomed],
        events=[{"at": "5s", "taint": {"nodes": ["a"], "add": ["k=v:NoExecute"]}}],
    )
    assert times(found(told, "CreatePod")) == [5, 6, 7, 8, 9, 10, 11, 12]


def test_a_pod_whose_life_was_short_is_replaced_at_once() -> None:
    told = story(
        **QUIET,
        objects=[node("a"), node("b"), owner("ReplicaSet", "own"),
                 pod("p", "a", owner=("ReplicaSet", "own"))],
        events=[{"at": "5s", "drain": {"nodes": ["a"]}}, {"at": "5.5s", "drain": {"nodes": ["b"]}}],
    )  # fmt: skip
    first, second = found(told, "CreatePod")
    evicted = found(told, "SetPodCondition", name=first.object.name, type="DisruptionTarget")
    assert [second.at] == [record.at for record in evicted]


def test_a_pod_of_the_same_name_is_seen_to_go_before_it_comes_again() -> None:
    """Else a timer of the old pod, on a tainted node, would take the new one with it."""
    told = story(
        duration="3m",
        controllers=["taint-eviction"],
        objects=[
            node("a"),
            node("b"),
            owner("StatefulSet", "own"),
            pod("own-0", "a", owner=("StatefulSet", "own"), tolerates=60),
        ],
        events=[
            {
                "at": "5s",
                "taint": {"nodes": ["a"], "add": ["node.kubernetes.io/unreachable:NoExecute"]},
            },
            {"at": "10s", "delete": {"kind": "Pod", "name": "own-0"}},
            {"at": "39s", "cordon": {"nodes": ["a"]}},
        ],
    )
    assert times(found(told, "CreatePod", name="own-0", node="b")) == [40]
    assert not found(told, "DeletePod", controller="taint-eviction")


def test_a_set_whose_selector_misses_its_template_is_refused() -> None:
    bad = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {}}
    told = story(duration="5s", objects=[node("a")], events=[{"at": "1s", "apply": bad}])
    (refused,) = found(told, "RecordEvent", name="d")
    assert (refused.at, refused.detail["reason"]) == (1, "Refused")
    assert not found(told, "CreatePod")


def test_a_node_made_anew_is_tainted_for_its_own_status() -> None:
    """What a pass wrote on the old object is not taken for what the new one does not show yet, be
    their heartbeat times the same: none. Found by the real controllers.
    """
    done = story(
        objects=[node("n1", ready="False"), node("n2")],
        controllers=["node-lifecycle"],
        duration="8m",
        events=[
            {"at": "4m1s", "delete": {"kind": "Node", "name": "n1"}},
            start("4m2s", "n1"),
            {"at": "5m1s", "apply": node("n1", ready="False")},
        ],
    )
    tainted = found(done, "AddTaint", name="n1", effect="NoExecute")
    assert [r.detail["key"].rpartition("/")[2] for r in tainted] == [
        "not-ready",
        "unreachable",
        "not-ready",
    ]
