"""Which budgets guard a pod in the virtual cluster: what is remembered of them by labels."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.disruption import DisruptionController
from kubectl_nodelife.sim.timeline import Agenda
from kubectl_nodelife.workloads.owners import OwnerLookup
from tests.objects import budget, pod, typed


class Nobody:
    """No owner is known."""

    def find(self, kind: str, namespace: str, name: str) -> None:
        return None

    def was_read(self, kind: str) -> bool:
        return True


def budget_in(namespace: str, name: str, app: str) -> PodDisruptionBudget:
    return typed(budget(name, app, namespace=namespace, minAvailable=1))


def pod_in(namespace: str, name: str, labels: dict[str, str] | None) -> Pod:
    return typed(pod(name, "", namespace=namespace, labels=labels))


def following(*budgets: PodDisruptionBudget) -> tuple[Api, DisruptionController]:
    api = Api(None, 0)
    for one in budgets:
        api.put("PodDisruptionBudget", one)
    controller = DisruptionController(api, Agenda(), cast(OwnerLookup, Nobody()))
    controller.begin(api.store.pods_alike())
    return api, controller


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
