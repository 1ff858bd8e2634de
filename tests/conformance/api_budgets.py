"""Vectors of the API server's evictions, and of the disruption controller's queue."""

from collections.abc import Iterator
from typing import Any

from msgspec import convert

from kubectl_nodelife.engine.actions import Action, RecordEvent
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import decode_time
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sandbox.deleting import status_of
from kubectl_nodelife.sim.api import Api
from kubectl_nodelife.sim.disruption import DisruptionController
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.world import World
from kubectl_nodelife.workloads.budgets import EvictionRefused, as_answered, decide_eviction
from kubectl_nodelife.workloads.pod_classes import LabelledPods

Case = dict[str, Any]


def read(raw: Any, type_: Any) -> Any:
    """An object from plain JSON values."""
    return convert(raw, type_, dec_hook=decode_time)


def budgets_of(case: Case) -> list[PodDisruptionBudget]:
    return [read(raw, PodDisruptionBudget) for raw in case["given"]["budgets"]]


def eviction(case: Case) -> None:
    """POST of an Eviction, and the Status that answers it."""
    assert [step["op"] for step in case["steps"]] == ["evict"]
    pod, expect = read(case["given"]["pod"], Pod), case["expect"]
    answer = decide_eviction(pod, budgets_of(case), 0)
    if not isinstance(answer, EvictionRefused):
        assert expect["deleted"] and expect.get("code", 201) == 201
        return
    names_budget = parse_profile(case["profile"]).has("refusals_name_budget")
    told = status_of(as_answered(answer, names_budget=names_budget), pod)
    have = {
        "code": told.code,
        "reason": told.reason,
        "message": told.message,
        "causes": (told.details or {}).get("causes", []),
        "deleted": False,
    }
    assert {key: have[key] for key in expect} == {key: expect[key] for key in expect}


class Recorder:
    """Keeps the Events of a play."""

    def __init__(self) -> None:
        self.events: list[RecordEvent] = []

    def write(self, now_ns: int, action: Action) -> None:
        """Note one action."""
        if isinstance(action, RecordEvent):
            self.events.append(action)


def queued(case: Case) -> None:
    """The keys in the disruption controller's queue after a pod has changed."""
    recorder, store = Recorder(), Cache()
    for budget in budgets_of(case):
        store.set("PodDisruptionBudget", budget.key, budget)
    (step,) = case["steps"]
    assert step["op"] == "podChanged"
    old = read(step["old"], Pod) if step.get("old") else None
    new = read(step["new"], Pod) if step.get("new") else None
    if old is not None:
        store.set("Pod", old.key, old)
    api = Api(recorder, 0, store)
    api.profile = parse_profile(case["profile"])
    world = World(api, KubeletTerms(), end_ns=0)
    world.disruption.begin(LabelledPods(world.api.store))
    world.advance(world.disruption.sync_ns)
    if new is not None:
        api.put("Pod", new)
    elif old is not None:
        api.drop("Pod", old.key)
    assert sorted(keys_of(world.disruption)) == sorted(case["expect"]["queued"])
    events = case["expect"].get("events")
    if events is not None:
        have = [{"type": e.type, "reason": e.reason, "message": e.message} for e in recorder.events]
        assert have == [
            want if isinstance(want, dict) else {**have[i], "message": want}
            for i, want in enumerate(events)
        ]


def keys_of(controller: DisruptionController) -> Iterator[str]:
    for namespace, name in controller._due:
        yield f"{namespace}/{name}"


TOPICS = {"eviction": eviction, "disruption_queue": queued}
