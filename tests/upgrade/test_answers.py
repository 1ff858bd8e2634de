"""The answers that the controller is handed in, from a cache."""

import random
from typing import Any

import pytest

from kubectl_nodelife.controllers.upgrade.memory import UpgradePorts
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.load import load_documents
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time
from kubectl_nodelife.upgrade.answers import MEMORY_NS, drain_options, make_ports
from tests.drain.build import (
    NOW_NS,
    Json,
    budget,
    flattened,
    namespace,
    node,
    owned,
    pod,
    replica_set,
    workload,
)
from tests.objects import webhook


def ports() -> UpgradePorts:
    return make_ports(policy_from({}), make_settings("v1.36"))


def filled(*objects: Json | list[Json]) -> Cache:
    cache = Cache()
    cache.fill(load_documents(flattened(objects), "test").objects, NOW_NS)
    return cache


def put(cache: Cache, *objects: Json | list[Json]) -> None:
    for obj in load_documents(flattened(objects), "test").objects:
        cache.set(type(obj).__name__, obj.key, obj)


def test_an_answer_follows_the_pods_and_the_budgets() -> None:
    cache = filled(node("a1"), node("a2"), replica_set("web", "a1", "a2"))
    verdict = ports().drain
    assert verdict(cache, "a1", (), NOW_NS).verdict == "ready"
    assert verdict(cache, "a1", (), NOW_NS).moving == (("default", "web-0"),)
    put(cache, budget("web", "web", healthy=2, desired=2, expected=2, minAvailable=2))
    assert verdict(cache, "a1", (), NOW_NS).verdict == "never"
    put(cache, budget("web", "web", healthy=2, desired=1, expected=2, minAvailable=1))
    assert verdict(cache, "a1", (), NOW_NS).verdict == "ready"
    assert verdict(cache, "a1", ("a2",), NOW_NS).waits
    cache.set("Pod", ("default", "web-0"), None)
    assert verdict(cache, "a1", (), NOW_NS).moving == ()


WEBHOOK = webhook(
    failurePolicy="Fail", clientConfig={"service": {"namespace": "default", "name": "gone"}}
)
AGENT = owned("DaemonSet", "agent", "a1", 0)
BARE = pod("bare", "a1")
ANOTHER = owned("ReplicaSet", "web", "a1", 9)
BUDGETS = [
    budget("web", "web", healthy=2, desired=2, expected=2, minAvailable=2),
    budget("web", "web", healthy=3, desired=2, expected=3, minAvailable=2),
    budget("web", "web", healthy=2, desired=2, expected=3, allowed=0, minAvailable=2),
    budget("web", "others", healthy=1, desired=1, expected=1, minAvailable=1),
    budget("two", "web", healthy=3, desired=1, expected=3, minAvailable=1),
]
CHANGES: list[tuple[Json, bool]] = [
    *((each, True) for each in BUDGETS),
    (AGENT, True),
    (BARE, True),
    (ANOTHER, True),
    (owned("ReplicaSet", "web", "a1", 9, ready=False), True),
    (owned("ReplicaSet", "web", "a2", 1), True),
    (namespace(phase="Terminating"), False),
    (namespace(), False),
    (workload("DaemonSet", "agent", 0), False),
    (WEBHOOK, False),
]
"""What may change, and whether an answer follows it at once, or when the memory is old."""


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_from_memory_is_the_one_that_would_be_found_anew(seed: int) -> None:
    chance, now_ns, seen = random.Random(seed), NOW_NS, set()
    cache = filled(node("a1"), node("a2"), namespace(), replica_set("web", "a1", "a2"))
    remembering = ports().drain
    for _ in range(200):
        change, at_once = chance.choice(CHANGES)
        obj = load_documents([change], "test").objects[0]
        goes = chance.random() < 0.75 and cache.get(change["kind"], obj.key) is not None
        cache.set(change["kind"], obj.key, None if goes else obj)
        now_ns += SECOND_NS if at_once else MEMORY_NS
        late = () if chance.random() < 0.1 else ("a1",)
        put(cache, *(node(name, lease=format_time(now_ns))[1] for name in ("a2", *late)))
        now_ns += 0 if late else 2 * MINUTE_NS
        draining = chance.choice([(), ("a2",)])
        found = ports().drain(cache, "a1", draining, now_ns)
        assert remembering(cache, "a1", draining, now_ns) == found
        seen.add(found.verdict)
    assert len(seen) >= 3, seen


def test_room_is_looked_for_on_the_nodes_as_they_are() -> None:
    cache = filled(node("a1"), node("a2", spec={"unschedulable": True}), replica_set("web", "a1"))
    moving = [("default", "web-0")]
    found = ports().room(cache, "a1", moving, {}, NOW_NS)
    assert found.startswith("pod default/web-new-1 finds no node")


@pytest.mark.parametrize("down, state", [(0, "Normal"), (2, "FullDisruption")])
def test_zone_states(down: int, state: str) -> None:
    assert ports().zone_state(2 - down, down) == state


def test_daemon_sets_that_should_run_on_a_node() -> None:
    template: dict[str, Any] = {"spec": {"nodeSelector": {"disk": "ssd"}}}
    chosen = workload("DaemonSet", "ssd", 0, template=template)
    cache = filled(node("a1"), workload("DaemonSet", "all", 0, template={"spec": {}}), chosen)
    found = ports().daemon_sets(cache, cache.nodes["a1"])
    assert [each.name for each in found] == ["all"]


def test_drain_flags() -> None:
    options = drain_options(policy_from({"drain": {"force": True}, "drainTimeout": "1m"}))
    assert options.force and options.ignore_daemonsets
    assert options.timeout_ns == 60_000_000_000
    with pytest.raises(BadInput, match="'disableEviction' is not a flag"):
        drain_options(policy_from({"drain": {"disableEviction": True}}))
