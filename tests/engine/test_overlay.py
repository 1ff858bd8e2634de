"""Planned actions over what the cluster shows: the view, and how each plan ends."""

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settlement import CONFIRMED, SUPERSEDED
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import NodeCondition, Taint
from tests import planned
from tests.objects import Document, lease, node, owner, pod, put
from tests.planned import not_ready, on_node, on_pod, tainted

SECOND = 10**9
T0 = 1_767_225_600 * SECOND
TAINT = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute", time_added=Time(T0))


def n1(ready: str = "True", heartbeat_s: int = 0, taints: tuple[Taint, ...] = ()) -> Put:
    """The node, that posted its status so many seconds after T0."""
    return put(node("n1", ready, heartbeat=T0 + heartbeat_s * SECOND, taints=taints))


def lost() -> actions.SetNodeConditions:
    unknown = NodeCondition("Ready", "Unknown", last_heartbeat_time=Time(T0))
    return planned.lost(conditions=(unknown,))


def add_taint(cause: actions.Action | None = None) -> actions.AddTaints:
    return tainted("n1", TAINT, cause=cause)


UNTAINT = on_node(actions.RemoveTaints, taints=(TAINT,))


class Dry:
    """An overlay with its cache, as the dry run's driver uses them."""

    def __init__(self, *objects: Put) -> None:
        self.cache = Cache()
        self.overlay = Overlay(self.cache)
        for change in objects:
            self.see(change)

    def see(self, event: Event, at_s: int = 0) -> None:
        self._take(self.overlay.observe(event, T0 + at_s * SECOND), at_s)

    def plan(self, action: actions.Action, at_s: int = 0) -> None:
        self._take(self.overlay.project(action, T0 + at_s * SECOND), at_s)

    def _take(self, events: list[Event], at_s: int) -> None:
        for event in events:
            assert isinstance(event, (Put, Gone))
            self.cache.apply(event, T0 + at_s * SECOND)

    def ready(self) -> str:
        condition = self.cache.nodes["n1"].ready()
        assert condition is not None
        return condition.status

    def outcomes(self) -> list[tuple[str, str]]:
        return [(type(s.action).__name__, s.outcome) for s in self.overlay.settled]


def test_a_plan_shows_in_the_view_and_stays_over_unrelated_news() -> None:
    dry = Dry(n1())
    dry.plan(lost())
    assert dry.ready() == "Unknown"
    dry.see(n1(taints=(Taint(key="mine", effect="NoSchedule"),)))
    assert dry.ready() == "Unknown"
    assert dry.cache.nodes["n1"].has_taint("mine", "NoSchedule")
    assert dry.outcomes() == []


def test_the_same_change_by_another_hand_confirms() -> None:
    dry = Dry(n1())
    dry.plan(lost())
    dry.plan(add_taint())
    dry.see(n1("Unknown"))
    assert dry.outcomes() == [("SetNodeConditions", CONFIRMED)]
    assert dry.cache.nodes["n1"].has_taint(TAINT.key, TAINT.effect)
    elsewhen = Taint(key=TAINT.key, effect=TAINT.effect, time_added=Time(T0 + 3 * SECOND))
    dry.see(n1("Unknown", taints=(elsewhen,)))
    assert dry.outcomes()[1:] == [("AddTaints", CONFIRMED)]
    assert list(dry.overlay.pending()) == []
    assert dry.cache.nodes["n1"].spec.taints == (elsewhen,)


def test_a_kubelet_that_posts_again_supersedes_the_loss() -> None:
    dry = Dry(n1())
    dry.plan(lost())
    dry.see(n1("True", heartbeat_s=60))
    assert dry.ready() == "True"
    assert dry.outcomes() == [("SetNodeConditions", SUPERSEDED)]


def test_a_lease_renewed_supersedes_the_loss() -> None:
    dry = Dry(n1(), put(lease("n1", T0)))
    dry.plan(lost(), at_s=51)
    assert dry.ready() == "Unknown"
    dry.see(put(lease("n1", T0)), at_s=52)
    assert dry.ready() == "Unknown"
    dry.see(put(lease("n1", T0 + 55 * SECOND)), at_s=55)
    assert dry.ready() == "True"
    assert dry.outcomes() == [("SetNodeConditions", SUPERSEDED)]


def test_taking_off_a_taint_that_was_only_planned_leaves_nothing_to_do() -> None:
    dry = Dry(n1())
    dry.plan(add_taint())
    dry.plan(UNTAINT)
    assert not dry.cache.nodes["n1"].spec.taints
    assert dry.outcomes() == [("AddTaints", SUPERSEDED), ("RemoveTaints", SUPERSEDED)]
    assert list(dry.overlay.pending()) == []


def test_taking_off_a_taint_that_the_cluster_has_stays_planned_until_it_is_gone() -> None:
    dry = Dry(n1(taints=(TAINT,)))
    dry.plan(UNTAINT)
    assert not dry.cache.nodes["n1"].spec.taints
    dry.see(n1(taints=(TAINT,), heartbeat_s=5))
    assert not dry.cache.nodes["n1"].spec.taints
    dry.see(n1(heartbeat_s=6))
    assert dry.outcomes() == [("RemoveTaints", CONFIRMED)]


def test_a_node_made_anew_under_its_name_supersedes() -> None:
    dry = Dry(n1())
    dry.plan(add_taint())
    dry.see(put(node(uid="another")))
    assert dry.outcomes() == [("AddTaints", SUPERSEDED)]
    assert not dry.cache.nodes["n1"].spec.taints


POD = put(pod(namespace="d"))


def test_a_pod_that_is_gone_confirms_its_deletion() -> None:
    dry = Dry(POD)
    dry.plan(on_pod(actions.DeletePod, namespace="d"))
    planned = dry.cache.pods["d", "p"]
    assert planned.metadata.deletion_timestamp is not None
    dry.see(POD)
    assert dry.cache.pods["d", "p"].metadata.deletion_timestamp is not None
    dry.see(Gone("Pod", ("d", "p")))
    assert ("d", "p") not in dry.cache.pods
    assert dry.outcomes() == [("DeletePod", CONFIRMED)]


def test_two_plans_of_one_step_for_one_node_both_show() -> None:
    dry = Dry(n1())
    taint = dry.overlay.project(add_taint(), T0)
    label = on_node(actions.SetNodeLabels, labels={"a": "b"})
    for event in [*taint, *dry.overlay.project(label, T0)]:
        assert isinstance(event, Put)
        dry.cache.apply(event, T0)
    assert dry.cache.nodes["n1"].has_taint(TAINT.key, TAINT.effect)
    assert dry.cache.nodes["n1"].metadata.labels == {"a": "b"}
    assert dry.overlay.shown("Node", ("", "n1")) == n1().obj


def daemon_pod(name: str, node_name: str, owner_uid: str | None = None) -> Document:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    of = owner("DaemonSet", "ds", owner_uid)
    return pod(name, "", namespace="d", owner=of, affinity={"nodeAffinity": required})


def create_pod(name: str) -> actions.CreatePod:
    return planned.create_pod(name, namespace="d", manifest=daemon_pod(name, "n1"))


def test_only_the_sets_own_pod_for_that_node_confirms_its_creation() -> None:
    dry = Dry(n1())
    dry.plan(create_pod("ds-ours"))
    assert ("d", "ds-ours") in dry.cache.pods
    dry.see(POD)
    dry.see(put(daemon_pod("ds-elsewhere", "n2")))
    dry.see(put(daemon_pod("other-theirs", "n1", owner_uid="another set")))
    assert dry.outcomes() == []
    for event in dry.overlay.observe(put(daemon_pod("ds-theirs", "n1")), T0):
        assert isinstance(event, (Put, Gone))
        dry.cache.apply(event, T0)
    assert dry.outcomes() == [("CreatePod", CONFIRMED)]
    assert ("d", "ds-ours") not in dry.cache.pods
    assert ("d", "ds-theirs") in dry.cache.pods


def mark_not_ready(cause: actions.Action | None = None) -> actions.MarkPodNotReady:
    return not_ready(namespace="d", cause=cause)


def evict(cause: actions.Action | None = None) -> actions.DeletePod:
    return on_pod(actions.DeletePod, namespace="d", cause=cause, taints=(TAINT,))


def test_what_was_planned_because_of_a_loss_falls_with_it() -> None:
    dry = Dry(n1(), POD, put(lease("n1", T0)))
    loss = lost()
    dry.plan(loss)
    dry.plan(add_taint(loss))
    dry.plan(mark_not_ready(loss))
    dry.plan(evict(actions.QueueNode(controller="x", because="x", cause=loss, node="n1", zone="z")))
    assert dry.cache.pods["d", "p"].metadata.deletion_timestamp is not None
    dry.see(put(lease("n1", T0 + 5 * SECOND)), at_s=5)
    assert [outcome for _, outcome in dry.outcomes()] == [SUPERSEDED] * 4
    assert dry.cache.pods["d", "p"] == POD.obj
    assert list(dry.overlay.pending()) == []
    assert "what led to it is no longer so" in " ".join(s.why for s in dry.overlay.settled)


def test_a_confirmed_loss_leaves_what_follows_from_it_standing() -> None:
    dry = Dry(n1(), POD)
    loss = lost()
    dry.plan(loss)
    dry.plan(add_taint(loss))
    dry.plan(evict(loss))
    dry.see(n1("Unknown"))
    assert dry.outcomes() == [("SetNodeConditions", CONFIRMED)]
    assert [type(a) for a in dry.overlay.pending()] == [actions.AddTaints, actions.DeletePod]


def test_a_plan_for_a_pod_of_a_node_that_is_well_is_not_made() -> None:
    dry = Dry(n1(), POD)
    dry.plan(mark_not_ready())
    assert dry.outcomes() == [("MarkPodNotReady", SUPERSEDED)]
    assert dry.cache.pods["d", "p"] == POD.obj


def test_a_planned_pod_that_is_deleted_again_was_never_planned() -> None:
    dry = Dry(n1())
    made = create_pod("made-up")
    dry.plan(made)
    there = dry.cache.pods[made.target[1]]
    dry.plan(on_pod(actions.DeletePod, there.name, namespace="d", pod_uid=there.uid))
    assert [outcome for _, outcome in dry.outcomes()] == [SUPERSEDED] * 2
    assert not dry.cache.pods and list(dry.overlay.pending()) == []


def test_plans_for_pods_end_when_the_node_is_ready_again_and_has_lost_its_taint() -> None:
    dry = Dry(n1("Unknown", taints=(TAINT,)), POD)
    dry.plan(mark_not_ready())
    dry.plan(evict())
    dry.see(n1("True", taints=(TAINT,), heartbeat_s=9))
    assert dry.outcomes() == [("MarkPodNotReady", SUPERSEDED)]
    dry.see(n1("True", heartbeat_s=10))
    assert dry.outcomes()[1:] == [("DeletePod", SUPERSEDED)]
    assert dry.cache.pods["d", "p"] == POD.obj


def test_a_taint_that_the_cluster_has_already_is_not_planned_again() -> None:
    there = Taint(key=TAINT.key, effect=TAINT.effect, time_added=Time(T0 - 60 * SECOND))
    dry = Dry(n1("Unknown", taints=(there,)))
    dry.plan(add_taint())
    assert dry.outcomes() == [("AddTaints", CONFIRMED)]
    assert dry.cache.nodes["n1"].spec.taints == (there,)
    assert list(dry.overlay.pending()) == []
