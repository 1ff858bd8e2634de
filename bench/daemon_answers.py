"""What a daemon of a large cluster needs to answer: each question in a forked child, as it does.

`...Cpu`: seconds of the child, least of three; `...Loops`: the same in reference loops. What the
daemon would list for the question beside what it watches is there already, and text is JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from bench import BenchFailed, Stopwatch
from bench.__main__ import reference_seconds
from bench._what_if_cluster import served_cluster
from kubectl_nodelife.commands.answering import drain_plan, what_if
from kubectl_nodelife.controllers import CONTROLLERS, make_controllers
from kubectl_nodelife.daemon.cluster_view import ShownCache, keep_summary
from kubectl_nodelife.daemon.forked_answers import ForkedAnswers, Response
from kubectl_nodelife.daemon.gate import KINDS as WATCHED
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.controller import Controller
from kubectl_nodelife.engine.engine import Engine
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.node import join_controllers
from kubectl_nodelife.outlook.view import ClusterView
from kubectl_nodelife.sim.generate import generate, with_leases
from kubectl_nodelife.sim.scenario import DEFAULT_TIME_NS

NODES = 5000
PODS = 150_000
TIMES: Final = 3
_MANY: Final = 10
"""One of so many nodes is drained in the larger plan."""

FLAGS: Final[dict[str, Any]] = {
    **dict.fromkeys(("force", "ignore_daemonsets", "delete_emptydir_data"), True),
    "grace_period": -1,
    "timeout": "0s",
    "disable_eviction": False,
    "pod_selector": "",
    "skip_wait_for_delete_timeout": 0,
    "maintenance": "0s",
    "max_parallel": None,
    **dict.fromkeys(("max_per_zone", "low_water", "cordon"), None),
}


def run(nodes: int, pods: int, seed: int, stopwatch: Stopwatch) -> dict[str, object]:
    """Ask for one node's loss, for its drain, and for the drain of a tenth of the nodes."""
    cache, listed = _held(nodes, pods, seed)
    look = looking(cache, controllers=_running(cache))
    every = sorted(cache.nodes)[::_MANY]
    one: dict[str, list[str]] = {"word": ["lose", "node", "a1"], "output": ["json"]}
    plan = {"node": ["a1"], "flags": [json.dumps(FLAGS)], "output": ["json"]}
    made: dict[str, Callable[[ClusterView], Response]] = {
        "whatIf": lambda view: what_if.answer(view, one),
        "drainPlan": lambda view: drain_plan.answer(view, plan),
        "drainPlanMany": lambda view: drain_plan.answer(view, {**plan, "node": every}),
    }
    figures: dict[str, object] = {"drained": len(every)}
    for name, answer in made.items():
        costs, loops = [], [reference_seconds()]
        for _ in range(TIMES):
            with stopwatch:
                costs.append(_child_seconds(look, listed, answer))
            loops.append(reference_seconds())
        figures[f"{name}Cpu"] = round(min(costs), 3)
        figures[f"{name}Loops"] = round(min(costs) / min(loops), 2)
    return figures


def _held(nodes: int, pods: int, seed: int) -> tuple[Cache, Cache]:
    """What a daemon holds of the cluster, and the rest of it."""
    wanted = served_cluster(nodes, pods, seed)
    made = list(with_leases(generate(wanted, DEFAULT_TIME_NS, "newest"), DEFAULT_TIME_NS))
    made = [not_of_a_play(obj) for obj in made]
    made.sort(key=lambda obj: obj.key)  # as the API lists each kind
    cache = Cache()
    cache.fill((obj for obj in made if kind_of(obj) in WATCHED), DEFAULT_TIME_NS)
    cache.unsettled_pods()  # as its pod collector asks
    deque(keep_summary(cache), maxlen=0)
    listed = Cache()
    listed.fill((obj for obj in made if kind_of(obj) not in WATCHED), DEFAULT_TIME_NS)
    gc.collect()
    gc.freeze()
    return cache, listed


def not_of_a_play(obj: KubeObject) -> KubeObject:
    """A pod with a uid as a real API server gives it."""
    if not isinstance(obj, Pod):
        return obj
    return replace(obj, metadata=replace(obj.metadata, uid=f"{obj.metadata.uid[:-4]}abcd"))


def _running(cache: Cache) -> Sequence[Controller]:
    """The daemon's controllers, once they have looked at all that is there."""
    engine = Engine(make_controllers(make_settings("newest"), CONTROLLERS), cache, join=True)
    now_ns: int | None = DEFAULT_TIME_NS
    while now_ns is not None and now_ns < DEFAULT_TIME_NS + SECOND_NS:
        deque(engine.step(now_ns, ()), maxlen=0)
        now_ns = engine.next_due()
    gc.collect()
    gc.freeze()
    return engine.controllers


def looking(
    cache: Cache, now_ns: int = DEFAULT_TIME_NS, controllers: Sequence[Controller] = ()
) -> Callable[[], ClusterView]:
    """Views of it at that moment, as `daemon.cluster_view` makes them."""
    settings = make_settings("newest")

    def look() -> ClusterView:
        shown = ShownCache(cache, Overlay(cache))
        shown.known_to = controllers
        return ClusterView(
            *(settings, now_ns),
            source={"kind": "daemon"},
            moment={"time": "2026-01-01T00:00:00.000000Z", "origin": "the API server's clock"},
            warnings=[],
            unread={},
            running=join_controllers(shown, settings, now_ns)[0],
        )

    return look


def _child_seconds(
    look: Callable[[], ClusterView],
    listed: Cache,
    answer: Callable[[ClusterView], Response],
) -> float:
    view = look()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    response = asyncio.run(ForkedAnswers().of_memory(lambda: answer(view.with_more(listed, {}))))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not json.loads(response["text"]):
        raise BenchFailed("no answer")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
