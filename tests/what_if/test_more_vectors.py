"""Questions to clusters that can be reckoned by hand: larger zones, restarts, repeats, drains, and
nodes that were in trouble before. The times are those of `test_vectors`.
"""

from typing import Any

import pytest

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.what_if.acts import read_acts
from kubectl_nodelife.outlook.what_if.answer import make_answer
from kubectl_nodelife.outlook.what_if.question import Question, play
from kubectl_nodelife.outlook.what_if.service_levels import ServedObject
from tests.what_if.stand import (
    ALL_KINDS,
    NOW_NS,
    SIX,
    Document,
    ask,
    at,
    budget,
    node,
    of,
    of_node,
    service,
    workload,
)

NEAR = pytest.approx
WEB = workload("web", ["a1", "b1", "b2"])
B = ("b1", "b2", "b3")


def second(value: float) -> object:
    """Requests and controllers take some ms, whole seconds are cut."""
    return NEAR(value, abs=0.7)


def zone_of(count: int) -> tuple[str, ...]:
    """Zone a of so many nodes, and zone b of three."""
    return (*(f"a{i}" for i in range(1, count + 1)), *B)


def in_trouble(
    name: str, status: str, *, taint: str, since: float, lease_age: float
) -> list[Document]:
    """A node that is not Ready, with the NoExecute taint that it got some seconds before."""
    found = node(name, lease_age=lease_age)
    ready = found[0]["status"]["conditions"][0]
    ready |= {"status": status, "lastTransitionTime": at(since)}
    ready |= {"reason": "NodeStatusUnknown" if status == "Unknown" else "KubeletNotReady"}
    if status == "False":
        ready |= {"lastHeartbeatTime": at(0)}
    found[0]["spec"]["taints"] = [
        {"key": f"node.kubernetes.io/{taint}", "effect": "NoExecute", "timeAdded": at(since)},
        {"key": f"node.kubernetes.io/{taint}", "effect": "NoSchedule", "timeAdded": at(since)},
    ]
    return found


def marked(objects: list[Document], on: str) -> list[Document]:
    """The same, with the pods of that node marked not Ready."""
    for pod in objects:
        if pod["kind"] == "Pod" and pod["spec"]["nodeName"] == on:
            for condition in pod["status"]["conditions"][1:2]:
                condition |= {"status": "False", "lastTransitionTime": at(-60)}
    return objects


def names(count: int) -> str:
    return " ".join(f"a{i}" for i in range(1, count + 1))


def test_eleven_of_twenty_stop_a_zone() -> None:
    """11/20 meets 0.55 in float32."""
    answer = ask(f"lose node {names(11)}", workload("web", ["a1"]), nodes=zone_of(20))
    (zone,) = answer.zones
    assert (zone.states[-1].state, zone.states[-1].rate) == ("PartialDisruption", 0.0)
    assert (zone.states[-1].not_ready, zone.states[-1].nodes) == (11, 20)
    assert zone.held_pods == 1 and zone.held_nodes == ["a1"]


def test_ten_of_twenty_do_not() -> None:
    """Nodes are tainted in the order of their names: a1, a10, a2."""
    answer = ask(f"lose node {names(10)}", workload("web", ["a1"]), nodes=zone_of(20))
    assert not answer.zones
    tainted = sorted((n.tainted_seconds or 0.0, n.name) for n in answer.nodes)
    assert [name for _, name in tainted][:3] == ["a1", "a10", "a2"]
    assert [when for when, _ in tainted] == NEAR([50.1 + 10 * i for i in range(10)], abs=0.11)


def test_a_large_zone_is_slowed() -> None:
    """60 > 50: rate 0.01; tokens do not pile up."""
    answer = ask(f"lose node {names(33)}", workload("web", ["a1"]), nodes=zone_of(60))
    (zone,) = answer.zones
    assert (zone.states[-1].state, zone.states[-1].rate) == ("PartialDisruption", 0.01)
    tainted = sorted(n.tainted_seconds for n in answer.nodes if n.tainted_seconds is not None)
    assert tainted[:4] == NEAR([50.1, 150.2, 250.3, 350.4], abs=0.01)


def test_one_zone_with_one_node() -> None:
    answer = ask("lose link", workload("web", ["a1"]), nodes=("a1",))
    assert of_node(answer, "a1").tainted_seconds is None
    assert (of(answer, "web").evicted, of(answer, "web").outage) == (0, "none")
    assert answer.zones[0].all_dark[0].to_seconds is None


def test_a_taint_that_some_tolerate_for_a_while() -> None:
    """A pod that fits on the tainted node again goes in a circle, and is told so."""
    slow = workload("slow", ["a1"])
    for document in slow:
        spec = document["spec"]
        spec = spec["template"]["spec"] if "template" in spec else spec
        spec["tolerations"] = [
            *spec["tolerations"],
            {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60},
        ]
        spec["nodeSelector"] = {"only": "here"}
    first = node("a1")
    first[0]["metadata"]["labels"]["only"] = "here"
    agent = workload("agent", SIX, "DaemonSet", tolerates=None)
    objects = [*first, *slow, *agent, *workload("web", ["a1"])]
    answer = ask("taint node a1 maintenance=now:NoExecute", objects, until_s=400)
    (repeat,) = answer.repeats
    assert (repeat.name, repeat.node, repeat.every_seconds) == ("slow", "a1", NEAR(60))
    assert of(answer, "web").back_seconds == second(2)
    assert of(answer, "agent").evicted == 1 and of(answer, "agent").back_seconds is None
    assert of_node(answer, "a1").first_deletion_seconds == 0.0


def test_a_drain_waits_for_its_budget() -> None:
    """The second eviction is refused at 0.65 and tried again 5 s later."""
    objects = [*workload("web", ["a1", "a1", "b1"]), *budget("web", 2, 3)]
    answer = ask("drain a1", objects)
    web = of(answer, "web")
    assert (web.evicted, web.lowest_serving, web.outage) == (2, 2, "degraded")
    drained = of_node(answer, "a1")
    assert drained.first_deletion_seconds == NEAR(0.11, abs=0.1)
    assert drained.last_deletion_seconds == NEAR(5.67, abs=0.3)
    (found,) = answer.budgets
    assert (found.rule, found.healthy, found.lowest, found.desired) == ("minAvailable 2", 3, 2, 2)
    assert found.at_zero_seconds > 0 and found.below_seconds == 0


def test_a_stateful_set_waits_for_its_machine() -> None:
    """Stuck until the machine is back; its timer is cancelled by the pass at 600.120."""
    db = workload("db", ["a1"], "StatefulSet")
    answer = ask("lose node a1 --for 10m", db)
    assert of_node(answer, "a1").first_deletion_seconds == 350.1
    assert of(answer, "db").at_zero_seconds == second(602.1)
    assert of(answer, "db").back_seconds == second(602.1)


def test_a_drain_while_a_zone_is_dark() -> None:
    objects = [*workload("web", ["a1", "a2", "b1", "b2"]), *budget("web", 2, 4)]
    answer = ask("lose zone a --and drain b1 --at 60s", objects)
    web = of(answer, "web")
    assert web.back_seconds == second(362.1)
    assert of_node(answer, "b1").first_deletion_seconds == NEAR(356.3, abs=5.2)
    (found,) = answer.budgets
    assert found.points[1].at == NEAR(50.04, abs=0.02)
    assert (found.points[1].allowed, found.points[1].healthy) == (0, 2)


def test_a_node_that_is_lost_already() -> None:
    """Its pod's timer runs from timeAdded, in both plays."""
    lost = in_trouble("a1", "Unknown", taint="unreachable", since=-60, lease_age=115)
    answer = ask("lose node a1", [*lost, *marked(workload("web", ["a1", "b1", "b2"]), "a1")])
    assert not answer.workloads and answer.verdict.outage == "none"
    assert "a1 is lost already: losing it makes no difference" in answer.warnings
    both = answer.verdict.pods_evicted
    assert (both.baseline, both.future) == (1, 1)


def test_a_cordoned_node_is_lost_for_a_while() -> None:
    objects = workload("web", ["a1", "b1"])
    answer = ask("cordon a1 --and lose node a1 --at 60s --for 7m", objects)
    lost = of_node(answer, "a1")
    assert (lost.lost_seconds, lost.unknown_seconds, lost.tainted_seconds) == (60.0, 110.022, 110.1)
    assert lost.first_deletion_seconds == 410.1
    assert of(answer, "web").back_seconds == second(412.1)
    assert lost.back_seconds == second(480)


def test_all_is_dark_for_a_while() -> None:
    """Taints come off, and after that the zone's nodes wait for drained buckets."""
    nodes = ("a1", "a2", "a3", "b1")
    words = "lose zone a --and lose node b1 --at 30s --for 270s"
    answer = ask(words, workload("web", ["a1", "b1"]), nodes=nodes)
    zone = next(zone for zone in answer.zones if zone.name == "a")
    assert [round(s.from_seconds, 3) for s in zone.all_dark] == [80.016]
    assert zone.all_dark[0].to_seconds == NEAR(300.06, abs=0.01)
    taints = [
        difference.at
        for difference in answer.differences
        if difference.action == "AddTaint" and difference.detail["effect"] == "NoExecute"
    ]
    assert [when for when in taints if when > 300] == NEAR([310.1, 320.1, 330.1], abs=0.11)
    assert of_node(answer, "a1").first_deletion_seconds == NEAR(610.1, abs=0.11)


def without_stamps(objects: list[Document]) -> list[Document]:
    """Owners whose templates say nothing of the two taints: admission gave it to the pods."""
    for document in objects:
        if "template" in document["spec"]:
            spec: dict[str, Any] = dict(document["spec"]["template"]["spec"])
            spec.pop("tolerations")
            document["spec"]["template"] = document["spec"]["template"] | {"spec": spec}
    return objects


@pytest.mark.parametrize("template_is_read", [True, False])
def test_other_default_tolerations(template_is_read: bool) -> None:
    """With --restamp for pods that are there, else for those that are made from then on."""
    web = without_stamps(workload("web", ["a1", "b1", "b2"]))
    web = web if template_is_read else [d for d in web if d["kind"] == "Pod"]
    read = ALL_KINDS if template_is_read else ALL_KINDS - {"ReplicaSet"}
    words = "set toleration-seconds=30 --restamp --and lose node a1"
    answer = ask(words, web, kinds_read=read)
    assert of_node(answer, "a1").first_deletion_seconds == NEAR(80.1)
    assert of(answer, "web").back_seconds == second(82.1)
    words = "set toleration-seconds=30 --and lose node a1 --and lose node a2 a3 b3 --at 20m"
    answer = ask(words, web, kinds_read=read)
    assert of_node(answer, "a1").first_deletion_seconds == NEAR(350.1)
    (successor,) = (n for n in answer.nodes if n.name != "a1" and n.evicted)
    waited = (successor.first_deletion_seconds or 0) - (successor.tainted_seconds or 0)
    assert waited == NEAR(30), "only the successor is stamped with 30 s"


def test_tolerations_that_a_template_asks_for_stay() -> None:
    answer = ask("set toleration-seconds=30 --restamp --and lose node a1", WEB)
    assert of_node(answer, "a1").first_deletion_seconds == NEAR(350.1)


def test_the_controllers_are_started_anew() -> None:
    """The taint comes off at 0, is put on at 0.1, and the timer begins anew."""
    lost = in_trouble("a1", "Unknown", taint="unreachable", since=-60, lease_age=115)
    objects = [*lost, *marked(workload("web", ["a1", "b1", "b2"]), "a1")]
    answer = ask("set node-monitor-grace-period=20s --restart", objects)
    taints = [
        (difference.at, difference.action)
        for difference in answer.differences
        if difference.play == "future" and difference.object.name == "a1"
        if "Taint" in difference.action and difference.detail["effect"] == "NoExecute"
    ]
    assert taints == [(0.0, "RemoveTaint"), (0.1, "AddTaint")]
    assert of_node(answer, "a1").first_deletion_seconds == NEAR(300.1)
    assert of(answer, "web").series[-1].at == second(302.1)


def test_a_restart_later_on() -> None:
    """At 2 min all periods begin anew: a1, lost at 0 and tainted at 50.1, is tainted again."""
    answer = ask("lose node a1 --and set --restart --at 2m", WEB)
    assert of_node(answer, "a1").first_deletion_seconds == NEAR(420.1, abs=0.2)
    restarted = [d for d in answer.differences if d.detail.get("reason") == "Restarted"]
    assert [d.at for d in restarted] == [120.0]


def test_a_kubelet_that_reports_false_lives() -> None:
    sick = in_trouble("a1", "False", taint="not-ready", since=-100, lease_age=0)
    objects = [*sick, *marked(workload("web", ["a1", "b1"]), "a1")]
    answer = ask("lose node b1", objects)
    assert [n.name for n in answer.nodes] == ["b1"]
    assert of_node(answer, "b1").unknown_seconds == 50.01
    both = answer.verdict.pods_evicted
    assert (both.baseline, both.future) == (1, 2)


def test_ranges_of_a_node() -> None:
    """Unknown between last sign + grace and one period later; the others follow from it."""
    lost = of_node(ask("lose node a1", WEB), "a1")
    unknown = lost.ranges["unknownSeconds"]
    assert (unknown.earliest_seconds, unknown.latest_seconds) == (46.0, 51.001)
    deleted = lost.ranges["firstDeletionSeconds"]
    assert deleted.earliest_seconds == NEAR(346.09, abs=0.01)
    assert deleted.latest_seconds == NEAR(351.091, abs=0.01)


@pytest.mark.parametrize(
    ("until_s", "found"), [(45, None), (46.5, (46.0, None)), (51.5, (46.0, 51.001))]
)
def test_a_pass_that_may_come_within_the_horizon(
    until_s: float, found: tuple[float, float | None] | None
) -> None:
    """The pass of the play comes at 50 s; one that begins with another phase may come from 46 s."""
    lost = of_node(ask("lose node a1", WEB, until_s=until_s), "a1")
    unknown = lost.ranges.get("unknownSeconds")
    told = None if unknown is None else (unknown.earliest_seconds, unknown.latest_seconds)
    assert told == found
    assert (lost.unknown_seconds is None) == (until_s < 50)


def test_the_play_ends_when_nothing_happens_any_more() -> None:
    horizon = ask("lose node a1", WEB).horizon
    assert (horizon.ended, horizon.until_seconds) == ("quiet", 3600)
    assert 352 < horizon.ended_seconds < 600
    web = of(ask("lose node a1", workload("db", ["a1"], "StatefulSet")), "db")
    assert web.at_zero_seconds == 3600, "figures are those of the whole horizon"


def test_what_is_due_at_the_horizon() -> None:
    horizon = ask("lose node a1", WEB, until_s=100).horizon
    assert horizon.ended == "horizon"
    due = {each.action: each.first_seconds for each in horizon.pending_events}
    assert due == {"taint-eviction": 350.1}


def test_a_workload_is_left_out() -> None:
    objects = [*workload("web", ["a1", "a1"]), *service("web"), *workload("one", ["a1"])]
    answer = ask(
        "lose node a1", objects, ignores=ServedObject("default", "ReplicaSet", "web").__eq__
    )
    assert [w.name for w in answer.workloads] == ["one"]
    assert answer.ignored == 1 and answer.verdict.workloads_at_zero.future == 1


def with_claim(objects: list[Document]) -> list[Document]:
    """The same pods, with a claim whose volume is attached to the node of the first of them."""
    for document in objects:
        spec = document["spec"]
        spec = spec["template"]["spec"] if "template" in spec else spec
        source = {"persistentVolumeClaim": {"claimName": "data"}}
        spec["volumes"] = [{"name": "data", **source}]
    claim = {"volumeName": "v1", "accessModes": ["ReadWriteOnce"]}
    meta = {"name": "data", "namespace": "default"}
    source = {"persistentVolumeName": "v1"}
    return [
        *objects,
        {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim},
        {"kind": "PersistentVolume", "metadata": {"name": "v1"}, "spec": {}},
        {
            "kind": "VolumeAttachment",
            "metadata": {"name": "va"},
            "spec": {"nodeName": "a1", "attacher": "csi", "source": source},
        },
    ]


@pytest.mark.parametrize(
    "asked, back",
    [
        pytest.param("lose node a1", None, id="its-old-pod-is-there-to-the-end"),
        pytest.param("lose node a1 --for 20m", 1202.1, id="the-machine-is-back"),
        pytest.param("delete node a1", 422.1, id="forced-six-minutes-after-pod-gc"),
        pytest.param(
            "lose node a1 --and taint node a1 node.kubernetes.io/out-of-service=x:NoExecute"
            " --at 10m",
            622.1,
            id="marked-out-of-service",
        ),
    ],
)
def test_a_volume_that_is_attached_to_a_lost_node(asked: str, back: float | None) -> None:
    """The successor is bound at once, and does not start before the volume is free."""
    web = of(ask(asked, with_claim(workload("web", ["a1"]))), "web")
    if back is None:
        assert (web.back_seconds, web.at_zero_seconds, web.pending) == (None, 3600, [])
        assert [each.why for each in web.not_started] == ["volume attached to a1"]
    else:
        assert web.back_seconds == NEAR(back, abs=21), "pod-gc looks every 20 s"
        assert not web.not_started


def test_a_volume_that_needs_no_attachment_holds_nobody_up() -> None:
    objects = [d for d in with_claim(workload("web", ["a1"])) if d["kind"] != "VolumeAttachment"]
    assert of(ask("lose node a1", objects), "web").back_seconds == second(352.1)


def test_passes_go_on_as_a_daemon_has_seen_them() -> None:
    """The last sign of life is too old after 46 s; passes begin at 2 s and every 5.001 s then."""
    objects = workload("web", ["a1"])
    documents = [*(each for name in SIX for each in node(name)), *objects]
    cluster = Cache()
    cluster.fill([decode(d["kind"], d) for d in documents], NOW_NS)
    settings = make_settings("newest")
    acts = read_acts(["lose", "node", "a1"], cluster, beta_zone_labels_only=False)
    asked = Question(cluster, settings, NOW_NS, ALL_KINDS, acts, 3600 * SECOND_NS)
    for next_pass_s, unknown_s in ((None, 50.01), (2, 47.009), (0.5, 50.51)):
        next_ns = None if next_pass_s is None else NOW_NS + round(next_pass_s * SECOND_NS)
        plays = play(asked._replace(next_pass_ns=next_ns))
        answer = make_answer(plays, acts, settings, source={}, moment={}, warnings=())
        assert of_node(answer, "a1").unknown_seconds == unknown_s


def test_a_grace_period_of_no_whole_periods_is_over_in_the_pass_after_it() -> None:
    """Noticed within 3 s of the last sign at -4 s; the fifth pass after that is the first one later
    than 14 s."""
    flags = {"node-monitor-period": "3s", "node-monitor-grace-period": "14s"}
    told = of_node(ask("lose node a1", WEB, flags=flags), "a1")
    found = told.ranges["unknownSeconds"]
    assert (found.earliest_seconds, found.latest_seconds) == (11.0, 14.001)
    assert told.unknown_seconds is not None
    assert found.earliest_seconds <= told.unknown_seconds <= found.latest_seconds + 0.01


def test_the_pace_of_the_managers_client_is_said_where_it_matters() -> None:
    """110 pods leave one after another: the last one's request waits for its token."""
    many = [pod for n in range(110) for pod in workload(f"w{n}", ["a1"])]
    flags = {"kube-api-qps": "20"}
    answer = ask("lose node a1", many, flags=flags)
    (said,) = [text for text in answer.assumed if "requests a second" in text]
    assert said.startswith("kube-controller-manager's clients make 20 requests a second (--set)")
    lost = of_node(answer, "a1")
    assert lost.first_deletion_seconds is not None and lost.last_deletion_seconds is not None
    assert lost.last_deletion_seconds - lost.first_deletion_seconds == NEAR(5.5, abs=0.5)
    assert not [text for text in ask("lose node a1", WEB).assumed if "requests a second" in text]


def test_whose_pods_leave_first_is_not_known() -> None:
    """Pods of two nodes that are tainted at once: those of one wait for requests of the other."""
    pods = workload("web", [name for name in ("a1", "b1") for _ in range(20)], tolerates=5)
    flags = {"kube-api-qps": "20", "kube-api-burst": "30", "node-eviction-rate": "10"}
    answer = ask("lose node a1 --and lose node b1", pods, flags=flags)
    nodes = [of_node(answer, name) for name in ("a1", "b1")]
    first = [node.first_deletion_seconds or 0.0 for node in nodes]
    after = [first[i] - (nodes[i].tainted_seconds or 0.0) for i in (0, 1)]
    assert abs(after[0] - after[1]) > 0.5, after
    for lost in nodes:
        taint, deletion = lost.ranges["taintedSeconds"], lost.ranges["firstDeletionSeconds"]
        assert deletion.earliest_seconds - taint.earliest_seconds == NEAR(min(after), abs=0.01)
        assert deletion.latest_seconds - taint.latest_seconds == NEAR(max(after), abs=0.01)


def test_which_node_a_long_pass_comes_to_last_is_not_known() -> None:
    """Ten nodes of twelve pods: the pass writes for 7 s, and comes to them in any order."""
    names = [f"a{number:02}" for number in range(10)]
    pods = [pod for n in names for i in range(12) for pod in workload(f"{n}-{i}", [n])]
    flags = {"kube-api-qps": "20", "kube-api-burst": "30"}
    answer = ask("lose zone a", pods, nodes=(*names, "b1", "b2"), flags=flags)
    unknown = [of_node(answer, name).unknown_seconds or 0.0 for name in names]
    spans = [of_node(answer, name).ranges["unknownSeconds"] for name in names]
    assert max(unknown) - min(unknown) > 3
    for span in spans:
        assert span.earliest_seconds <= min(unknown) and max(unknown) <= span.latest_seconds
        assert span.latest_seconds - span.earliest_seconds == NEAR(
            5.001 + max(unknown) - min(unknown), abs=0.01
        )


def test_which_of_the_nodes_of_a_zone_is_tainted_first_is_not_known() -> None:
    said = ask("lose node a1 a2", WEB).assumed
    assert "in any order: a1, a2 are tainted one after another" in said
    assert not [text for text in ask("lose node a1", WEB).assumed if "order" in text]
