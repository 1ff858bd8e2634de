"""Which budgets guard a pod in the virtual cluster: what is remembered of them by labels."""

import random

import pytest
from msgspec.structs import replace

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.disruption import DisruptionController
from kubectl_nodelife.sim.timeline import Agenda
from kubectl_nodelife.workloads.pod_classes import LabelledPods
from tests.objects import budget, pod, typed


def budget_in(namespace: str, name: str, app: str) -> PodDisruptionBudget:
    return typed(budget(name, app, namespace=namespace, minAvailable=1))


def pod_in(namespace: str, name: str, labels: dict[str, str] | None) -> Pod:
    return typed(pod(name, "", namespace=namespace, labels=labels))


def following(*budgets: PodDisruptionBudget) -> tuple[Api, DisruptionController]:
    api = Api(None, 0)
    for one in budgets:
        api.put("PodDisruptionBudget", one)
    controller = DisruptionController(api, Agenda())
    controller.begin(LabelledPods(api.store))
    return api, controller


def joined(chance: random.Random) -> tuple[Api, Agenda, DisruptionController]:
    """Three budgets: with a status that is right, or not, or written by hand."""
    api, agenda = Api(None, 0), Agenda()
    for app in "abc":
        one = budget_in("one", app, app)
        healthy = chance.randrange(4)
        status = replace(one.status, observed_generation=1, current_healthy=healthy)
        if chance.random() < 0.3:
            status = replace(status, disrupted_pods={"p0": Time(0)})
        if chance.random() < 0.7:
            one = replace(one, metadata=replace(one.metadata, generation=1), status=status)
        api.put("PodDisruptionBudget", one)
    for number in range(chance.randrange(9)):
        api.put("Pod", pod_in("one", f"p{number}", {"app": chance.choice("abc")}))
    controller = DisruptionController(api, agenda)
    controller.begin(LabelledPods(api.store.fork()), joined=True)
    return api, agenda, controller


@pytest.mark.parametrize("seed", range(40))
def test_a_budget_that_is_asked_for_late_is_counted_as_if_it_had_been_at_once(seed: int) -> None:
    ledgers = []
    for at_once in (True, False):
        chance = random.Random(seed)
        api, agenda, controller = joined(chance)
        if at_once:
            assert len(controller.ledgers) == 3
        for number in range(9):
            api.now_ns += chance.randrange(20) * MILLISECOND_NS
            agenda.run(api.now_ns)
            if chance.random() < 0.4:
                api.drop("Pod", ("one", f"p{chance.randrange(9)}"))
            elif chance.random() < 0.4:
                api.put("Pod", pod_in("one", f"p{number}", {"app": chance.choice("ab")}))
        ledgers.append(
            [
                (ledger.budget, ledger.healthy, ledger.matched, ledger.entries)
                for ledger in controller.ledgers.values()
            ]
            + [sorted(controller.changed), sorted(controller.guessed)]
            + [api.store.get("PodDisruptionBudget", ("one", app)) for app in "abc"]
        )
    assert ledgers[0] == ledgers[1]


def guards(controller: DisruptionController, of: Pod) -> list[str]:
    return [ledger.budget.name for ledger in controller.budgets_of(of)]


def test_the_very_same_labels_mean_other_budgets_elsewhere() -> None:
    _, controller = following(budget_in("one", "b1", "web"), budget_in("two", "b2", "web"))
    shared = {"app": "web"}
    for _ in range(2):
        assert guards(controller, pod_in("one", "p", shared)) == ["b1"]
        assert guards(controller, pod_in("two", "q", shared)) == ["b2"]
        assert guards(controller, pod_in("two", "bare", None)) == []


def test_other_labels_of_the_same_pod_are_looked_at() -> None:
    _, controller = following(budget_in("one", "b1", "web"), budget_in("one", "b2", "db"))
    before = pod_in("one", "p", {"app": "web"})
    assert guards(controller, before) == ["b1"]
    meta = replace(before.metadata, labels={"app": "db"})
    assert guards(controller, replace(before, metadata=meta)) == ["b2"]


def test_a_budget_that_comes_later_is_found() -> None:
    api, controller = following(budget_in("one", "b1", "web"))
    there = pod_in("one", "p", {"app": "web"})
    assert guards(controller, there) == ["b1"]
    api.put("PodDisruptionBudget", budget_in("one", "b2", "web"))
    assert guards(controller, there) == ["b1", "b2"]


def test_a_budget_that_goes_while_its_sync_is_due_is_not_synced() -> None:
    """A remedy is played on a present in which the budget is taken away, and then time is given."""
    api, controller = following(budget_in("one", "b1", "web"), budget_in("one", "b2", "web"))
    api.put("Pod", pod_in("one", "p", {"app": "web"}))
    api.drop("PodDisruptionBudget", ("one", "b1"))
    controller.take_time(SECOND_NS)
    assert list(controller.ledgers) == [("one", "b2")]
