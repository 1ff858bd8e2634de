"""`drain:` in a scenario: kubectl drain, the Eviction API and budgets among everything else."""

from typing import Any

import pytest

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.scenario import assemble
from tests.objects import budget, manifest
from tests.sim.documents import Json, found, node, owner, pod, scenario, stop, story, times
from tests.simulating import begin

NODES = [node("a1"), node("a2"), node("a3")]


def web(name: str, on: str, **spec: Any) -> Json:
    made = pod(name, on, owner=("ReplicaSet", "web"), **spec)
    made["metadata"]["labels"] = {"app": "web"}
    made["spec"]["terminationGracePeriodSeconds"] = 5
    return made


def drain(at: str = "10s", *names: str, **flags: Any) -> Json:
    return {"at": at, "drain": {"nodes": list(names or ("a1",)), **flags}}


def drained(*objects: Json, events: list[Json], **spec: Any) -> Any:
    given = [*NODES, owner("ReplicaSet", "web", 3), *objects]
    return story(duration="5m", objects=given, events=events, **spec)


THREE = [web("p", "a1"), web("q", "a1"), web("r", "a2")]


def test_a_drain_evicts_within_the_budget_and_tells_of_it() -> None:
    told = drained(*THREE, budget(maxUnavailable=1), events=[drain()])
    evicted = found(told, "SetPodCondition", type="DisruptionTarget")
    assert [r.object.name for r in evicted] == ["p", "q"]
    assert evicted[0].at == pytest.approx(10.1, abs=0.1)
    assert evicted[1].at - evicted[0].at == pytest.approx(5, abs=0.7), "refused once, then again"
    refused = found(told, "RecordEvent", reason="EvictionRefused")
    assert [r.object.name for r in refused] == ["q"]
    (end,) = found(told, "RecordEvent", reason="Drained")
    assert end.at == pytest.approx(evicted[1].at + 5, abs=1.1), "kubectl looks every second"
    began = found(told, "RecordEvent", reason="DrainStarted")[0]
    assert told.records[end.cause] == began and told.records[evicted[0].cause] == began
    assert len(found(told, "CreatePod")) == 2


def test_a_budget_that_can_spare_nothing_holds_until_the_timeout() -> None:
    objects = [*THREE, budget(maxUnavailable=0)]
    told = drained(*objects, events=[drain(timeout="30s")])
    assert not found(told, "DeletePod")
    (end,) = found(told, "RecordEvent", reason="DrainFailed")
    assert end.at == pytest.approx(40, abs=6)
    assert "default/p, default/q" in end.reason
    freed = drained(*objects, events=[drain(disableEviction=True)])
    assert len(found(freed, "DeletePod", controller="cluster", name="p")) == 2


def test_kubectl_refuses_what_its_filters_refuse() -> None:
    told = drained(pod("bare", "a1"), events=[drain()])
    (end,) = found(told, "RecordEvent", reason="DrainRefused")
    assert "declare no controller (use --force to override)" in end.reason
    assert not found(told, "DeletePod")
    forced = drained(pod("bare", "a1"), events=[drain(force=True)])
    assert found(forced, "RecordEvent", reason="Drained")


def test_a_lost_nodes_pod_holds_the_drain() -> None:
    """It counts as not healthy as soon as it is marked not ready."""
    objects = [*THREE, budget(maxUnavailable=1)]
    told = drained(*objects, events=[stop("20s", "a2"), drain("2m", "a1")])
    assert found(told, "MarkPodNotReady", name="r")
    refused = found(told, "RecordEvent", reason="EvictionRefused")
    assert {r.object.name for r in refused} == {"p", "q"}
    assert times(found(told, "SetPodCondition", type="DisruptionTarget", name="p")) == []


def test_nodes_are_drained_one_after_another_and_none_lands_on_the_next() -> None:
    told = drained(*THREE, events=[drain("10s", "a1", "a2")])
    ends = found(told, "RecordEvent", reason="Drained")
    assert [r.object.name for r in ends] == ["a1", "a2"]
    assert {r.detail["node"] for r in found(told, "CreatePod")} == {"a3"}


def test_a_scaled_workload_moves_its_budget() -> None:
    patch = manifest("ReplicaSet", "web", "default", spec={"replicas": 1})
    objects = [*THREE, budget(minAvailable="100%")]
    assert not found(drained(*objects, events=[drain()]), "DeletePod")
    told = drained(*objects, events=[{"at": "5s", "apply": patch}, drain()])
    evicted = found(told, "SetPodCondition", type="DisruptionTarget")
    assert [r.object.name for r in evicted] == ["p", "q"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"force": "yes"}, "spec.events[0].drain.force: found"),
        ({"podSelector": "a in"}, "spec.events[0].drain.podSelector"),
        ({"timeout": 5}, "spec.events[0].drain.timeout"),
        ({"nodes": ["a9"]}, "node a9 never exists"),
    ],
)
def test_bad_input(flags: Json, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        drained(events=[{"at": "1s", "drain": {"nodes": ["a1"], **flags}}])
    assert message in str(caught.value)


def test_a_drain_that_never_ends_lets_a_forecast_rest() -> None:
    """Nothing but kubectl's own questions is left, and each was answered: what is to be played
    after that is nothing, and the fork of such a play is as quiet."""
    held = [*THREE, budget(maxUnavailable=0)]
    given = [*NODES, owner("ReplicaSet", "web", 3), *held]
    told = scenario(duration="24h", start="join", objects=given, events=[drain()])
    branch = begin(assemble(told))
    branch.play_until_quiet()
    fork = branch.fork()
    for each in (branch, fork):
        assert each.rests
        assert 10 <= (each.world.api.now_ns - each.timeline.start_ns) / SECOND_NS < 120
        assert {whose for _, whose in each.world.agenda.due()} == {"KubectlProcesses"}
