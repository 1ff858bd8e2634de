"""What became of each node and pod in a play, read off what was done (`sim/reading.py`)."""

from kubectl_nodelife.engine.actions import RecordEvent
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.sim.reading import PodCourse, WorkloadLoss
from kubectl_nodelife.sim.run import Run, summarize_run
from kubectl_nodelife.sim.scenario import assemble
from tests.sim.documents import node, owner, pod, scenario, start, stop
from tests.simulating import NO_LIMIT, play

# No room for web-2 on b1 until a1 is back; then it waits no longer.
WEB = ("ReplicaSet", "web")
LOST = {
    "duration": "12m",
    "flags": NO_LIMIT,
    "objects": [
        node("a1", "a"),
        node("b1", "b", unschedulable=True),
        owner("ReplicaSet", "web"),
        pod("web-1", "a1", owner=WEB, tolerates=60),
    ],
    "events": [stop("10s", "a1"), start("5m", "a1"), stop("6m", "a1")],
}


def played() -> Run:
    return play(assemble(scenario(**LOST)))


def course(run: Run, number: int) -> PodCourse:
    return [pod for pod in run.courses.pods if pod.workload == ("default", *WEB)][number]


def test_a_pod_s_course_has_who_deleted_it_and_when() -> None:
    first = course(played(), 0)
    (done,) = first.deletions
    assert (first.name, first.node, first.created) == ("web-1", "a1", None)
    assert done.action.controller == "taint-eviction" and done.at == first.due_at
    assert first.ended_at is not None and first.ended_at >= 300  # its kubelet is back


def test_a_pod_that_had_to_wait_is_where_it_was_bound() -> None:
    run = played()
    second = course(run, 1)
    assert second.created is not None and second.created.action.node == ""
    assert second.bound is not None and second.node == "a1"
    assert isinstance(second.bound.action, RecordEvent)  # of which a sandbox makes an Event
    assert (second.bound.action.kind, second.bound.action.reason) == ("Pod", "Scheduled")
    assert second.bound.at >= 300 and second.ready_at is not None
    first_loss, second_loss = run.courses.losses
    assert (first_loss.pods, first_loss.deleted) == (1, 1)
    assert (second_loss.pods, second_loss.deleted) == (1, 1)


def test_losses_of_a_workload_go_by_its_kind_whenever_its_pods_came() -> None:
    summary = summarize_run(run := played(), make_settings(run.setting.profile, NO_LIMIT))
    (loss,) = summary.workloads
    assert isinstance(loss, WorkloadLoss)
    assert (loss.kind, loss.name, loss.pods, loss.deleted) == ("ReplicaSet", "web", 1, 2)
    assert [node.name for node in summary.nodes] == ["a1", "a1"]
