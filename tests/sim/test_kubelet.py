"""What the simulated kubelets do, told by the records and the end state."""

import pytest

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.run import run
from kubectl_nodelife.sim.scenario import DEFAULT_TIME_NS, assemble
from tests.objects import lease
from tests.sim.documents import found, node, owner, pod, scenario, start, stop, story, times

QUIET = {"controllers": [], "duration": "2m"}


def final_node(name: str, **spec: object) -> Node:
    setting = assemble(scenario(**spec))
    return run(setting, []).cluster.nodes[name]


def ready_times(**spec: object) -> tuple[int | None, int | None]:
    """(heartbeat, transition) of a's Ready condition at the end, in seconds since t=0."""
    setting = assemble(scenario(**spec))
    ready = run(setting, []).cluster.nodes["a"].ready()
    assert ready is not None
    return tuple(
        None if t is None else (t - setting.start_ns) // 10**9
        for t in (ready.last_heartbeat_time, ready.last_transition_time)
    )


def test_the_first_renewal_brings_a_status() -> None:
    told = ready_times(**QUIET, objects=[node("a")], kubelet={"leaseRenewPhase": "7300ms"})
    assert told == (7, None)


def test_a_changed_status_has_a_new_transition_time() -> None:
    report = {"nodes": ["a"], "conditions": {"Ready": "False"}}
    events = [{"at": "5s", "kubelet": report}, {"at": "9s", "kubelet": report}]
    assert ready_times(**QUIET, objects=[node("a")], events=events) == (5, 5)


@pytest.mark.parametrize("since", ["8s", "9s"], ids=["before-a-renewal", "at-the-same-instant"])
def test_a_silent_kubelet_posts_nothing(since: str) -> None:
    spec = {**QUIET, "objects": [node("a")], "kubelet": {"leaseRenewPhase": "9s"}}
    ready_at_first = DEFAULT_TIME_NS - 2 * SECOND_NS
    ready = final_node("a", **spec, events=[stop(since, "a")]).ready()
    assert ready is not None and ready.last_heartbeat_time == ready_at_first


def test_a_condition_changes_at_once_and_keeps_its_transition_time_after() -> None:
    report = {"nodes": ["a"], "conditions": {"DiskPressure": "True"}}
    told = story(
        **QUIET,
        objects=[node("a")],
        events=[{"at": "5500ms", "kubelet": report}, {"at": "9s", "kubelet": report}],
    )
    (change,) = found(told, "SetNodeCondition")
    assert (change.at, change.controller) == (5.5, "cluster")
    assert change.detail == {
        "type": "DiskPressure",
        "status": "True",
        "reason": "KubeletHasDiskPressure",
    }


def test_conditions_told_to_a_silent_kubelet_are_posted_when_it_starts() -> None:
    report = {"nodes": ["a"], "conditions": {"Ready": "False"}}
    events = [stop("1s", "a"), {"at": "2s", "kubelet": report}, start("30s", "a")]
    told = story(**QUIET, objects=[node("a")], events=events)
    assert times(found(told, "SetNodeCondition", type="Ready", status="False")) == [30]


def test_a_node_that_is_not_ready_is_silent_until_told_to_start() -> None:
    objects = [node("a", ready="False"), node("b")]
    silent = story(duration="3m", objects=objects)
    assert times(found(silent, "SetNodeCondition", name="a", status="Unknown")) == [50.01] * 4
    alive = story(duration="3m", objects=objects, events=[start("1s", "a")])
    assert not found(alive, "SetNodeCondition", name="a")


def test_what_the_monitor_wrote_is_undone_when_the_kubelet_starts() -> None:
    lost = node("a", ready="Unknown")
    lost["status"]["conditions"][0]["reason"] = "NodeStatusUnknown"
    told = story(**QUIET, objects=[lost], events=[start("3s", "a")])
    (ready,) = found(told, "SetNodeCondition")
    assert (ready.at, ready.detail["type"], ready.detail["status"]) == (3, "Ready", "True")


def test_a_kubelet_whose_renewals_are_too_rare_undoes_unknown_with_its_next_status() -> None:
    told = story(
        duration="6m",
        objects=[node("a"), node("b")],
        kubelet={"leaseRenewInterval": "3m", "nodeStatusReportInterval": "2m30s"},
    )
    lost = found(told, "SetNodeCondition", name="a", status="Unknown", type="Ready")
    back = found(told, "SetNodeCondition", name="a", status="True", type="Ready")
    assert times(lost)[0] < 60
    assert times(back) == [150, 300]


@pytest.mark.parametrize(
    ("terms", "grace", "gone"),
    [
        pytest.param({}, None, 40, id="the-default-grace-period"),
        pytest.param({}, 7, 17, id="its-own-grace-period"),
        pytest.param({"podStopDuration": "3s"}, None, 13, id="stops-sooner"),
        pytest.param({"podStopDuration": "3s"}, 2, 12, id="but-never-later-than-the-grace-period"),
    ],
)
def test_a_deleted_pod_is_gone_in_time(terms: dict[str, str], grace: int | None, gone: int) -> None:
    grace_period = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    told = story(
        **QUIET,
        kubelet=terms,
        objects=[node("a"), pod("p", "a", **grace_period)],
        events=[{"at": "10s", "delete": {"kind": "Pod", "name": "p"}}],
    )
    assert times(found(told, "DeletePod")) == [10, gone]
    assert told.final["pods"]["gone"] == 1


def test_a_pod_whose_time_is_over_goes_when_its_kubelet_starts_again() -> None:
    told = story(
        **QUIET,
        objects=[node("a"), pod("p", "a"), pod("q", "a", terminationGracePeriodSeconds=70)],
        events=[
            stop("5s", "a"),
            {"at": "10s", "delete": {"kind": "Pod", "name": "p"}},
            {"at": "10s", "delete": {"kind": "Pod", "name": "q"}},
            start("60s", "a"),
        ],
    )
    assert times(found(told, "DeletePod", name="p")) == [10, 60.1]
    assert times(found(told, "DeletePod", name="q")) == [10, 80]


def test_a_pod_deleted_beyond_a_cut_link_has_its_whole_grace_period_when_that_is_back() -> None:
    """Its kubelet learns of the deletion only then; what it was told before, it has stopped."""
    told = story(
        **QUIET,
        objects=[node("a"), pod("p", "a"), pod("q", "a", terminationGracePeriodSeconds=20)],
        events=[
            {"at": "4s", "delete": {"kind": "Pod", "name": "q"}},
            {"at": "5s", "lose": {"nodes": ["a"], "link": True, "for": "55s"}},
            {"at": "10s", "delete": {"kind": "Pod", "name": "p"}},
        ],
    )
    assert times(found(told, "DeletePod", name="p")) == [10, 90]
    assert times(found(told, "DeletePod", name="q")) == [4, 60.1]


def test_a_pod_on_a_silent_node_stays_terminating() -> None:
    told = story(
        **QUIET,
        objects=[node("a"), pod("p", "a")],
        events=[stop("5s", "a"), {"at": "10s", "delete": {"kind": "Pod", "name": "p"}}],
    )
    assert told.final["pods"]["terminating"] == 1


def test_a_finalizer_holds_a_pod_that_has_stopped() -> None:
    held = pod("p", "a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    told = story(
        **QUIET,
        objects=[node("a"), held],
        events=[{"at": "10s", "delete": {"kind": "Pod", "name": "p"}}],
    )
    assert told.final["pods"]["terminating"] == 1


def test_a_new_pod_runs_after_podStartDuration_where_the_kubelet_lives() -> None:  # noqa: N802
    told = story(
        **QUIET,
        objects=[node("a"), node("b")],
        kubelet={"podStartDuration": "4s"},
        events=[
            stop("1s", "b"),
            {"at": "10s", "apply": pod("on-a", "a", ready=False)},
            {"at": "10s", "apply": pod("on-b", "b", ready=False)},
            start("30s", "b"),
        ],
    )
    assert times(found(told, "SetPodCondition", name="on-a", status="True")) == [14]
    assert times(found(told, "SetPodCondition", name="on-b", status="True")) == [34]


def test_a_pod_that_was_starting_when_its_kubelet_died_begins_anew() -> None:
    told = story(
        **QUIET,
        objects=[node("a")],
        kubelet={"podStartDuration": "5s"},
        events=[
            {"at": "10s", "apply": pod("p", "a", ready=False)},
            stop("12s", "a"),
            start("14s", "a"),
        ],
    )
    assert times(found(told, "SetPodCondition", name="p", status="True")) == [19]


def test_a_kubelet_outlives_its_node_and_greets_a_new_one() -> None:
    told = story(
        duration="3m",
        objects=[node("a"), node("b"), owner("ReplicaSet", "rs", 1)],
        events=[
            {"at": "20s", "delete": {"kind": "Node", "name": "a"}},
            {"at": "40s", "apply": node("a")},
        ],
    )
    assert not found(told, "SetNodeCondition", name="a")
    assert {n["name"]: n["ready"] for n in told.final["nodes"]} == {"a": "True", "b": "True"}


def test_a_kubelet_that_lives_posts_to_a_new_node_without_a_status() -> None:
    anew = {"at": "20s", "apply": node("a", ready="")}
    events = [{"at": "10s", "delete": {"kind": "Node", "name": "a"}}, anew]
    spec = {**QUIET, "objects": [node("a")], "kubelet": {"nodeStatusReportInterval": "45s"}}
    assert final_node("a", **spec, events=events).ready() is not None
    told = ready_times(**spec, events=events)
    assert told == (45, 45)  # and nothing of it changes with the next post


def test_a_pod_is_pending_until_its_kubelet_runs_it() -> None:
    """`podStrategy.PrepareForCreate`: so that pod-gc never takes it for a terminated one."""
    bound = {**pod("p", "a", ready=False), "status": {}}
    spec = {"objects": [node("a")], "events": [{"at": "5s", "apply": bound}], "duration": "60s"}
    flags = {"terminated-pod-gc-threshold": 0}
    setting = assemble(
        scenario(**spec, controllers=["pod-gc"], flags=flags, kubelet={"podStartDuration": "30s"})
    )
    begun = run(setting, [], until_ns=6 * 10**9).cluster.pods["default", "p"]
    assert begun.status.phase == "Pending"
    assert run(setting, []).cluster.pods["default", "p"].status.phase == "Running"


def test_pod_gc_is_sooner_than_taint_eviction_at_one_instant() -> None:
    """One call against three: `gcTerminated` deletes, `deletePodHandler` tells, reads and patches
    before.
    """
    tainted = node("a", taints=[{"key": "k", "effect": "NoExecute"}])
    ended = {**pod("p", "a", tolerates=-1), "status": {"phase": "Failed"}}
    other = {**pod("q"), "status": {"phase": "Failed"}}
    flags = {"terminated-pod-gc-threshold": 1}
    told = story(objects=[tainted, ended, other], flags=flags, duration="10s")
    assert [r.controller for r in found(told, "DeletePod", name="p")] == ["pod-gc"]


def test_the_report_interval_counts_from_the_first_renewal_s_post() -> None:
    """And not from the change that was posted before it: no status is due at 60.5 s."""
    told = story(
        objects=[node("a"), node("b")],
        kubelet={"leaseRenewPhase": "3s", "nodeStatusReportInterval": "60s"},
        flags={"node-monitor-grace-period": "40s"},
        duration="2m",
        events=[
            {"at": "500ms", "kubelet": {"nodes": ["a"], "conditions": {"DiskPressure": "True"}}},
            stop("61s", "a", "b"),
        ],
    )
    lost = found(told, "SetNodeCondition", type="Ready", status="Unknown")
    assert len({r.at for r in lost}) == 1
    assert {r.object.name for r in lost} == {"a", "b"}


def test_a_pod_that_starts_when_it_is_joined_has_a_part_behind_it() -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-12-31T23:59:56Z"}
    starts = {**pod("p", "a"), "status": {"phase": "Pending", "conditions": [bound]}}
    spec = {"objects": [node("a"), starts], "kubelet": {"podStartDuration": "10s"}}
    (ready,) = found(story(start="join", **spec), "SetPodCondition", name="p", type="Ready")
    assert ready.at == 6.0


def test_a_joined_kubelet_that_renews_posts_what_its_node_does_not_show() -> None:
    """Somebody emptied the node's status: its kubelet writes it again (`tryUpdateNodeStatus`)."""
    renewed = lease("a", DEFAULT_TIME_NS - 4 * SECOND_NS)
    told = story(start="join", **QUIET, objects=[node("a", ready=""), renewed])
    (ready,) = found(told, "SetNodeCondition", type="Ready")
    assert (ready.at, ready.detail["status"]) == (6.0, "True")


def test_a_renewal_at_the_very_moment_of_a_join_has_been() -> None:
    lost = node("a", ready="Unknown")
    lost["status"]["conditions"][0]["reason"] = "NodeStatusUnknown"
    told = story(start="join", **QUIET, objects=[lost, lease("a", DEFAULT_TIME_NS)])
    (ready,) = found(told, "SetNodeCondition", type="Ready")
    assert (ready.at, ready.detail["status"]) == (10.0, "True")


def test_a_node_that_appears_not_ready_is_silent() -> None:
    told = story(
        duration="3m",
        objects=[node("b")],
        events=[{"at": "20s", "apply": node("a", ready="False")}],
    )
    assert found(told, "SetNodeCondition", name="a", type="Ready", status="Unknown")


def test_a_scenario_gives_the_reason_and_message_of_a_condition() -> None:
    message = "container runtime network not ready: cni plugin not initialized"
    reported = {"status": "False", "reason": "KubeletNotReady", "message": message}
    told = {"at": "10s", "kubelet": {"nodes": ["a1"], "conditions": {"Ready": reported}}}
    other = {"Ready": {**reported, "message": "PLEG is not healthy"}}
    later = {"at": "20s", "kubelet": {"nodes": ["a1"], "conditions": other}}
    given = {"controllers": [], "objects": [node("a1")], "events": [told, later]}
    first, second = (final_node("a1", duration=end, **given).ready() for end in ("15s", "25s"))
    assert first is not None and second is not None
    assert (first.status, first.reason, first.message) == ("False", "KubeletNotReady", message)
    # Other words for the same status are posted too, and are no transition.
    assert second.message == "PLEG is not healthy"
    assert second.last_transition_time == first.last_transition_time
