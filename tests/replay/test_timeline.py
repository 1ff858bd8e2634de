"""One line of what several sources tell, who did it, and what led to it."""

from typing import Any

import pytest

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.kube.workload import Event
from kubectl_nodelife.outlook.replay.timeline import ReplaySources, timeline
from tests import objects
from tests.objects import typed
from tests.replay.told import ALL, UNREACHABLE, at, change, event, node, pod, told, wrote

LOST = change(1, 40, "SetNodeCondition", "node/a1", settled=42.2, type="Ready", status="Unknown")
TAINT = change(
    2, 40, "AddTaint", "node/a1", settled=42.5, cause=1, key=UNREACHABLE, effect="NoExecute"
)
TIMER = change(
    3,
    40.1,
    "ScheduleEviction",
    "pod/shop/web-1-a",
    by="taint-eviction",
    settled=342.6,
    cause=2,
    node="a1",
    due="2026-11-21T12:05:40.1Z",
)
DELETE = change(
    4,
    340.1,
    "DeletePod",
    "pod/shop/web-1-a",
    by="taint-eviction",
    settled=342.6,
    cause=3,
    node="a1",
)
JOURNAL = [LOST, TAINT, TIMER, DELETE]

NOT_READY = event(42, "node/a1", "NodeNotReady", "Node a1 status is now: NodeNotReady")
MARKING = event(
    342,
    "pod/shop/web-1-a",
    "TaintManagerEviction",
    "Marking for deletion Pod shop/web-1-a",
    by="taint-eviction-controller",
)
CREATED = event(
    343, "rs/shop/web-1", "SuccessfulCreate", "Created pod: web-1-b", by="replicaset-controller"
)
SCHEDULED = event(
    343,
    "pod/shop/web-1-b",
    "Scheduled",
    "Successfully assigned shop/web-1-b to b1",
    by="default-scheduler",
)
KILLING = event(400, "pod/shop/web-1-a", "Killing", "Stopping container c", by="kubelet", host="a1")


def test_a_lost_node_from_its_silence_to_the_replacement() -> None:
    events = [NOT_READY, MARKING, CREATED, SCHEDULED, KILLING]
    assert told(changes=JOURNAL, events=events) == [
        "#1 12:00:42 node-lifecycle: SetNodeCondition Node/a1",
        "#2 12:00:42 node-lifecycle: AddTaint Node/a1 after #1",
        "#3 12:00:42 taint-eviction: ScheduleEviction Pod/shop/web-1-a after #2",
        "#4 12:05:42 taint-eviction: DeletePod Pod/shop/web-1-a after #3",
        "#5 12:05:43 replicaset-controller: SuccessfulCreate ReplicaSet/shop/web-1 after #4?",
        "#6 12:05:43 scheduler: Scheduled Pod/shop/web-1-b after #5?",
        "#7 12:06:40 kubelet a1: Killing Pod/shop/web-1-a after #4?",
    ]


def test_the_same_without_a_daemon() -> None:
    events = [NOT_READY, MARKING, CREATED, SCHEDULED, KILLING]
    before = event(
        -60,
        "pod/shop/web-1-a",
        "Scheduled",
        "Successfully assigned shop/web-1-a to a1",
        by="default-scheduler",
    )
    lost = node("a1", ready=("Unknown", 42), taints=((UNREACHABLE, "NoExecute", 42),))
    assert told(events=[before, *events], nodes=[lost]) == [
        "#1 11:59:00 scheduler: Scheduled Pod/shop/web-1-a",
        "#2 12:00:42 node-lifecycle: NodeNotReady Node/a1",
        "#3 12:00:42 node-lifecycle: AddTaint Node/a1 after #2?",
        "#4 12:05:42 taint-eviction: TaintManagerEviction Pod/shop/web-1-a after #3?",
        "#5 12:05:43 replicaset-controller: SuccessfulCreate ReplicaSet/shop/web-1 after #4?",
        "#6 12:05:43 scheduler: Scheduled Pod/shop/web-1-b after #5?",
        "#7 12:06:40 kubelet a1: Killing Pod/shop/web-1-a after #4?",
    ]


def test_a_drain_by_a_user() -> None:
    drained = node(
        "a1",
        wrote("kube-controller-manager", 10, "taints"),
        wrote("kubectl", 10, "unschedulable"),
        cordoned=True,
        taints=(("node.kubernetes.io/unschedulable", "NoSchedule", 10),),
    )
    going = pod("web-1-a", "a1", deleted=11, by="EvictionByEvictionAPI")
    kill = event(11, "pod/shop/web-1-a", "Killing", by="kubelet", host="a1")
    assert told(events=[kill], nodes=[drained], pods=[going]) == [
        "#1 12:00:10 kubectl (a user): Cordon Node/a1",
        "#2 12:00:10 node-lifecycle: AddTaint Node/a1 after #1?",
        "#3 12:00:11 kubectl (a user): Drain Node/a1 after #1?",
        "#4 12:00:11 Eviction API: DeletePod Pod/shop/web-1-a after #3?",
        "#5 12:00:11 kubelet a1: Killing Pod/shop/web-1-a after #4?",
    ]


def stopped(seconds: float, name: str) -> Event:
    """The kubelet of a1 stops a pod, which is gone by now."""
    return event(seconds, f"pod/shop/{name}", "Killing", by="kubelet", host="a1")


CORDONED = node("a1", wrote("kubectl", 10, "unschedulable"), cordoned=True)


def named(*pods: Pod, events: list[Event], nodes: tuple[Node, ...] = (CORDONED,)) -> list[str]:
    """Drains, with what they say."""
    sources = ReplaySources(None, events, nodes, pods)
    found = [line for line in timeline(sources, ALL) if line.action == "Drain"]
    return [f"{line.actor}: {line.detail}; {line.why.partition(':')[0]}" for line in found]


def test_a_drain_that_is_over_is_concluded_from_what_is_gone() -> None:
    events = [stopped(12, "web-1-a"), stopped(40, "web-2-b")]
    agent = pod("agent-x", "a1", owner="DaemonSet")
    concluded = ["kubectl (a user): 2 pods left in 28s; concluded"]
    assert named(agent, pod("web-1-c", "b1"), events=events) == concluded
    assert named(agent, pod("web-1-z", "a1"), events=events) == []  # one stays: a rollout, perhaps
    assert named(events=events) == []  # no pods were read
    assert named(agent, events=events, nodes=()) == []  # nobody cordoned it


def test_evictions_without_a_known_cordon_are_a_drain_by_somebody() -> None:
    going = pod("web-1-a", "a1", deleted=11, by="EvictionByEvictionAPI")
    assert named(going, events=[], nodes=()) == [
        "not known: 1 pod left; pods were evicted through the Eviction API"
    ]


def test_pods_that_the_taint_manager_deletes_are_no_drain() -> None:
    going = pod("web-1-a", "a1", deleted=11, by="DeletionByTaintManager")
    assert named(going, events=[stopped(11, "web-1-a")]) == []


def test_pods_whose_device_is_tainted_are_deleted_by_their_own_controller() -> None:
    going = pod("train-1", "a1", deleted=11, by="DeletionByDeviceTaintManager")
    lines = told(pods=[going])
    assert lines == ["#1 12:00:11 device-taint-eviction: DeletePod Pod/shop/train-1"]
    assert named(going, events=[stopped(11, "train-1")]) == []


def test_a_drain_of_ours_is_told_by_the_journal_of_acts() -> None:
    """Its numbers are of another journal, and a refused eviction is no pod that left."""
    act = {"by": "drain", "outcome": "applied"}
    cordon = change(1, 10, "SetUnschedulable", "node/a1", unschedulable=True, **act)
    evict = change(2, 11, "EvictPod", "pod/shop/web-1-a", **act)
    refused = change(3, 11, "EvictPod", "pod/shop/web-2-a", **{**act, "outcome": "failed"})
    acts = [c | {"id": None, "reason": "drain of node a1"} for c in (cordon, evict, refused)]
    assert told(changes=acts) == [
        "#1 12:00:10 applied by kubectl nodelife drain (a user): Cordon Node/a1",
        "#2 12:00:11 kubectl nodelife drain (a user): Drain Node/a1 after #1?",
        "#3 12:00:11 failed by kubectl nodelife drain (a user): EvictPod Pod/shop/web-2-a",
        "#4 12:00:11 applied by kubectl nodelife drain (a user): EvictPod Pod/shop/web-1-a"
        " after #2?",
    ]


def test_a_lifecycle_condition_names_its_writer_and_why() -> None:
    """KEP-5683: the only place where the API keeps why a node is out of service."""
    says = ("DrainInProgress", "True", "AdminRequested", "disk swap, ticket 7")
    writer = {
        "manager": "kubectl-drain-tool",
        "time": format_time(at(20)),
        "subresource": "status",
        "fieldsV1": {"f:status": {"f:conditions": {'k:{"type":"DrainInProgress"}': {}}}},
    }
    seen = [objects.condition(*says, changed=at(20))]
    made = objects.node("a1", None, conditions=seen, metadata={"managedFields": [writer]})
    (line,) = timeline(ReplaySources(nodes=[typed(made)]), ALL)
    assert (line.actor.name, line.why) == ("kubectl-drain-tool (a user)", "disk swap, ticket 7")
    assert line.detail == "DrainInProgress=True (AdminRequested)"


def test_what_a_kubelet_says_in_a_condition_is_not_told() -> None:
    made = objects.node("a1", "False", "KubeletNotReady", message="s3cret", since=at(20))
    (line,) = timeline(ReplaySources(nodes=[typed(made)]), ALL)
    assert (line.detail, line.why) == ("Ready=False (KubeletNotReady)", "")


def test_a_taint_is_not_ascribed_to_who_wrote_another_one_later() -> None:
    """Of the list of taints only the last write is kept."""
    taints = ((UNREACHABLE, "NoExecute", 10), ("dedicated", "NoExecute", 50))
    tainted = node("a1", wrote("kubectl-taint", 50, "taints"), taints=taints)
    assert told(nodes=[tainted])[:2] == [
        "#1 12:00:10 node-lifecycle: AddTaint Node/a1",
        "#2 12:00:50 kubectl-taint (a user): AddTaint Node/a1",
    ]


def test_who_cordoned_is_the_user_and_not_the_kubelet_that_tells_of_it() -> None:
    cordoned = node("a1", wrote("kubectl", 10, "unschedulable"), cordoned=True)
    seen = event(11, "node/a1", "NodeNotSchedulable", by="kubelet", host="a1")
    assert told(events=[seen], nodes=[cordoned]) == ["#1 12:00:10 kubectl (a user): Cordon Node/a1"]


def test_statuses_of_daemonsets_are_told_only_with_all() -> None:
    status = change(1, 5, "UpdateDaemonSetStatus", "ds/shop/agent", by="daemonset", numberReady=3)
    assert told(changes=[status]) == []
    assert len(told(ALL._replace(quiet=True), changes=[status])) == 1


def test_a_taint_by_a_user_leads_to_the_evictions() -> None:
    tainted = node(
        "a1", wrote("kubectl-taint", 5, "taints"), taints=(("maintenance", "NoExecute", None),)
    )
    timer = change(1, 5.2, "ScheduleEviction", "pod/shop/p", by="taint-eviction", node="a1")
    assert told(changes=[timer], nodes=[tainted]) == [
        "#1 12:00:05 kubectl-taint (a user): SetTaints Node/a1",
        "#2 12:00:05 taint-eviction: ScheduleEviction Pod/shop/p after #1?",
    ]


def test_what_is_only_planned_is_ours() -> None:
    planned = [
        {**LOST, "outcome": "would", "settledTime": None},
        {**TAINT, "outcome": "superseded"},
    ]
    assert told(changes=planned) == [
        "#1 12:00:40 would by us, as node-lifecycle: SetNodeCondition Node/a1",
        "#2 12:00:40 superseded by us, as node-lifecycle: AddTaint Node/a1 after #1",
    ]


@pytest.mark.parametrize(
    "apart, lines",
    [
        pytest.param(0, 1, id="at-once"),
        pytest.param(29, 1, id="nearly-half-a-minute"),
        pytest.param(40, 2, id="another-time"),
    ],
)
def test_an_event_about_a_confirmed_change_is_that_change(apart: float, lines: int) -> None:
    said = event(42.2 + apart, "node/a1", "NodeNotReady")
    assert len(told(changes=[LOST], events=[said])) == lines


def test_each_change_takes_one_event_only() -> None:
    said = [event(42, "node/a1", "NodeNotReady"), event(44, "node/a1", "NodeNotReady")]
    assert len(told(changes=[LOST], events=said)) == 2


def test_our_own_copy_of_an_event_is_no_line() -> None:
    said = change(9, 42, "RecordEvent", "node/a1", type="Normal", reason="NodeNotReady")
    assert told(changes=[LOST, said]) == told(changes=[LOST])


def test_an_event_counts_at_its_last_time() -> None:
    often = event(100, "node/a1", "InvalidDiskCapacity", by="kubelet", count=7, first=10)
    (line,) = timeline(ReplaySources(events=[often]), ALL)
    assert (line.time_ns, line.first_ns, line.count) == (at(100), at(10), 7)


def test_chatter_is_left_out_unless_asked_for() -> None:
    pulled = event(1, "pod/shop/p", "Pulled", by="kubelet")
    assert told(events=[pulled]) == []
    assert len(told(ALL._replace(quiet=True), events=[pulled])) == 1


def test_only_since_and_a_cause_before_it_is_not_named() -> None:
    since = ALL._replace(since_ns=at(200))
    assert told(since, changes=JOURNAL) == [
        "#1 12:05:42 taint-eviction: DeletePod Pod/shop/web-1-a"
    ]


@pytest.mark.parametrize(
    "narrow, chosen",
    [
        pytest.param({"node": "a1"}, ["Node/a1", "Pod/shop/web-1-a"], id="a-node-and-its-pods"),
        pytest.param({"node": "b1"}, ["Node/a1", "Pod/shop/web-1-a"], id="with-what-led-to-it"),
        pytest.param({"pod": ("shop", "web-1-b")}, ["Node/a1", "Pod/shop/web-1-a"], id="a-pod"),
        pytest.param({"pod": ("shop", "other")}, [], id="another-pod"),
        pytest.param({"node": "c1"}, [], id="another-node"),
    ],
)
def test_narrowed(narrow: dict[str, Any], chosen: list[str]) -> None:
    other = event(20, "node/d1", "Rebooted", by="kubelet")
    events = [NOT_READY, MARKING, CREATED, SCHEDULED, other]
    lines = told(ALL._replace(**narrow), changes=JOURNAL, events=events)
    assert not any("d1" in line for line in lines)
    assert bool(lines) is bool(chosen)
    for name in chosen:
        assert any(name in line for line in lines)


def test_a_taint_taken_off_after_the_node_came_back() -> None:
    back = event(100, "node/a1", "NodeReady", by="kubelet", host="a1")
    untaint = change(5, 100.4, "RemoveTaint", "node/a1", key=UNREACHABLE, effect="NoSchedule")
    cancelled = change(6, 100.9, "CancelEviction", "pod/shop/p", by="taint-eviction", node="a1")
    assert told(changes=[untaint, cancelled], events=[back]) == [
        "#1 12:01:40 kubelet a1: NodeReady Node/a1",
        "#2 12:01:40 node-lifecycle: RemoveTaint Node/a1 after #1?",
        "#3 12:01:40 taint-eviction: CancelEviction Pod/shop/p after #2?",
    ]


def test_a_line_is_never_its_own_cause() -> None:
    loops = [
        change(1, 1, "QueueNode", "node/a1", cause=2),
        change(2, 1, "QueueNode", "node/a1", cause=1),
    ]
    assert len(timeline(ReplaySources(changes=loops), ALL)) == 2
