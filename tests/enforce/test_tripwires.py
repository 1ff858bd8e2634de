"""Signs of another writer, of a wiped node list, and of our being cut off."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.daemon.enforce.tripwires import ALL_AT_ONCE, SURPRISE, Tripwires, WriterLookup
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.calls import Answer, Get
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.guard import NODES_GONE, UPSTREAM, Breaker, Caps, Guard
from kubectl_nodelife.kube.field_managers import (
    TAINTS,
    FieldManager,
    FieldManagers,
    condition_field,
)
from kubectl_nodelife.kube.node import Node, NodeMeta, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from tests import objects
from tests.objects import typed
from tests.planned import create_pod, lost, tainted

NOW = 1_000 * SECOND_NS
ALL = ("node-lifecycle", "taint-eviction", "pod-gc", "daemonset")
WHO: dict[str, Any] = {"controller": "node-lifecycle", "because": "b"}
UNREACHABLE = Taint("node.kubernetes.io/unreachable", "NoExecute")


def node(name: str = "n0", ready: str = "True", *taints: Taint) -> Node:
    reason = "NodeStatusUnknown" if ready == "Unknown" else ""
    return typed(objects.node(name, ready, reason, taints=taints))


def pod(name: str, on: str, owner: str = "") -> Pod:
    return typed(objects.pod(name, on, owner=objects.owner(owner, "o") if owner else None))


def wires(
    *objects: Node | Pod, caps: Caps | None = None, names: tuple[str, ...] = ALL
) -> tuple[Tripwires, Guard, Cache]:
    guard, cache = Guard(caps or Caps()), Cache()
    for obj in objects:
        cache.apply(Put(type(obj).__name__, obj), NOW)
    return Tripwires(guard, cache, names), guard, cache


def rules(guard: Guard) -> list[str]:
    return [rule for rule, _ in guard.breakers]


LOST = node("n0", "Unknown")
TAINTED = node("n0", "Unknown", UNREACHABLE)


def test_a_node_that_another_calls_lost_is_a_surprise() -> None:
    tripwires, guard, _ = wires(node())
    tripwires.sees(Put("Node", LOST), NOW)
    assert rules(guard) == [SURPRISE]


def by(seen: Node, *writers: tuple[str, int], field: str = TAINTS) -> Node:
    """The node, and who wrote the field at which second."""
    entries = tuple(
        FieldManager(name, "Update", at * SECOND_NS, frozenset((field,))) for name, at in writers
    )
    fields = {name: getattr(seen.metadata, name) for name in ("name", "uid")}
    return replace(seen, metadata=NodeMeta(**fields, managed_fields=FieldManagers(entries)))


OUR_NAME = "kubectl-nodelife-node-lifecycle"
READY = condition_field("Ready")


@pytest.mark.parametrize(
    ("writers", "sent", "told"),
    [
        pytest.param(
            [("kube-controller-manager", 9)], False, "kube-controller-manager", id="named"
        ),
        pytest.param([("acme", 9)], False, "acme", id="any program is named"),
        pytest.param([("acme", 9)], True, None, id="we sent it, and another wrote the list since"),
        pytest.param([("k3s", 9), (OUR_NAME, 8)], True, "k3s", id="after ours, and the same"),
        pytest.param([("k3s", 8), (OUR_NAME, 9)], True, None, id="ours came last"),
        pytest.param([("k3s", 9), (OUR_NAME, 9)], True, None, id="in one second, and we sent one"),
        pytest.param([(OUR_NAME, 9)], False, None, id="ours of before a restart"),
        pytest.param([("kubectl-taint", 9)], False, None, id="a person's"),
        pytest.param([("kubelet", 9)], False, "", id="nobody is told"),
    ],
)
def test_managed_fields_tell_who_tainted_a_node(
    writers: list[tuple[str, int]], sent: bool, told: str | None
) -> None:
    tripwires, guard, _ = wires(LOST)
    if sent:
        tripwires.sends(tainted("n0", UNREACHABLE))
    tripwires.sees(Put("Node", by(TAINTED, *writers)), NOW)
    if told is None:
        assert rules(guard) == []
        return
    (breaker,) = guard.breakers.values()
    words = f", written by field manager {told}" if told else ""
    assert breaker.because == f"another node-lifecycle controller taints it: Node n0{words}"


def test_managed_fields_tell_who_called_a_node_lost() -> None:
    tripwires, guard, _ = wires(node())
    tripwires.sees(Put("Node", by(LOST, ("kubelet", 9), ("hyperkube", 8), field=READY)), NOW)
    (breaker,) = guard.breakers.values()
    assert breaker.because.endswith("Node n0, written by field manager hyperkube")


async def test_who_made_a_pod_is_read_where_no_watch_tells() -> None:
    fields = {"f:metadata": {"f:ownerReferences": {}}}
    managed = [
        {"manager": "kube-controller-manager", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
        {"manager": "kubelet", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:status": {}}},
    ]
    kept: list[str] = []

    async def read(call: Get) -> Answer:
        assert call == Get("Pod", ("default", "p"))
        return Answer(200, raw={"metadata": {"managedFields": managed}})

    tripwires, guard, _ = wires(node())
    lookup = WriterLookup(read, guard, lambda: kept.append("kept"))
    tripwires.ask_writer = lookup.ask
    tripwires.sees(Put("Pod", pod("p", "n0", "DaemonSet")), NOW)
    assert rules(guard) == [SURPRISE], "at once"
    while not kept:
        await asyncio.sleep(0)
    (breaker,) = guard.breakers.values()
    told = "another DaemonSet controller made pod default/p, written by field manager"
    assert breaker.because == f"{told} kube-controller-manager"


def test_our_own_write_is_none() -> None:
    tripwires, guard, _ = wires(node())
    tripwires.sends(lost("n0"))
    tripwires.sees(Put("Node", LOST), NOW)
    assert rules(guard) == []


def test_what_we_wrote_once_another_may_not_write_again() -> None:
    tripwires, guard, cache = wires(node())
    ours = lost("n0")
    for _ in range(2):  # the first answer was lost
        tripwires.sends(ours)
    for seen in (LOST, node(), LOST, node()):
        tripwires.sees(Put("Node", seen), NOW)
        cache.apply(Put("Node", seen), NOW)
    assert rules(guard) == [], "its kubelet came back in between"
    tripwires.sees(Put("Node", LOST), NOW)
    assert rules(guard) == [SURPRISE]


def test_what_the_server_refused_us_another_may_not_write() -> None:
    """It was refused because the other one had written first."""
    tripwires, guard, _ = wires(node())
    ours = lost("n0")
    tripwires.sends(ours)
    tripwires.refused(ours)
    tripwires.sees(Put("Node", LOST), NOW)
    assert rules(guard) == [SURPRISE]


def test_two_looks_at_one_write_of_ours_are_one() -> None:
    """What comes in one batch is compared with what came before it, not with the cache."""
    tripwires, guard, _ = wires(node())
    tripwires.sends(lost("n0"))
    earlier: dict[Any, Any] = {}
    for seen in (LOST, TAINTED):
        tripwires.sends(tainted("n0", UNREACHABLE))
        tripwires.sees(Put("Node", seen), NOW, earlier)
    assert rules(guard) == []


def test_a_write_of_the_term_before_is_ours() -> None:
    before, guard, cache = wires(node())
    before.sends(lost("n0"))
    Tripwires(guard, cache, ALL, before=before).sees(Put("Node", LOST), NOW)
    assert rules(guard) == []


def test_what_we_do_not_enforce_surprises_nobody() -> None:
    tripwires, guard, _ = wires(node(), names=("daemonset",))
    tripwires.sees(Put("Node", LOST), NOW)
    assert rules(guard) == []


def test_another_s_no_execute_taint_is_a_surprise_and_a_person_s_is_none() -> None:
    tripwires, guard, _ = wires(LOST)
    tripwires.sees(Put("Node", node("n0", "Unknown", Taint("mine", "NoExecute"))), NOW)
    assert rules(guard) == []
    tripwires.sees(Put("Node", TAINTED), NOW)
    assert rules(guard) == [SURPRISE]
    ours, clean, _ = wires(LOST)
    ours.sends(tainted("n0", UNREACHABLE))
    ours.sees(Put("Node", TAINTED), NOW)
    assert rules(clean) == []


@pytest.mark.parametrize(
    "owner, ours, surprising",
    [
        pytest.param("DaemonSet", False, True, id="another-s-daemon-pod"),
        pytest.param("DaemonSet", True, False, id="ours"),
        pytest.param("ReplicaSet", False, False, id="no-daemon-pod"),
        pytest.param("", False, False, id="a-person-s"),
    ],
)
def test_a_daemon_pod_that_came(owner: str, ours: bool, surprising: bool) -> None:
    tripwires, guard, _ = wires(node())
    if ours:
        tripwires.sends(create_pod(node="n0", owner="o"))
    tripwires.sees(Put("Pod", pod("p", "n0", owner)), NOW)
    assert (rules(guard) == [SURPRISE]) is surprising


def vanish(tripwires: Tripwires, cache: Cache, names: list[str]) -> None:
    for name in names:
        event = Gone("Node", ("", name))
        tripwires.sees(event, NOW)
        cache.apply(event, NOW)


@pytest.mark.parametrize(
    "gone, owner, caps, held",
    [
        pytest.param(3, "ReplicaSet", Caps(), True, id="three-of-ten"),
        pytest.param(2, "ReplicaSet", Caps(), False, id="two"),
        pytest.param(3, "DaemonSet", Caps(), False, id="daemon-pods-only"),
        pytest.param(3, "ReplicaSet", UPSTREAM, False, id="as-upstream"),
    ],
)
def test_nodes_gone(gone: int, owner: str, caps: Caps, held: bool) -> None:
    names = [f"n{i}" for i in range(10)]
    tripwires, guard, cache = wires(
        *map(node, names), *(pod(f"p{name}", name, owner) for name in names), caps=caps
    )
    vanish(tripwires, cache, names[:gone])
    assert (rules(guard) == [NODES_GONE]) is held


def silence(tripwires: Tripwires, count: int) -> None:
    for i in range(count):
        tripwires.decides(lost(f"n{i}"), NOW)


@pytest.mark.parametrize(
    "silent, trouble, held",
    [
        pytest.param(4, True, True, id="four-of-ten-and-trouble"),
        pytest.param(3, True, False, id="thirty-percent"),
        pytest.param(10, False, False, id="all-of-them-without-trouble"),
    ],
)
def test_all_at_once(silent: int, trouble: bool, held: bool) -> None:
    tripwires, guard, _ = wires(*(node(f"n{i}") for i in range(10)))
    if trouble:
        tripwires.trouble(NOW)
    silence(tripwires, silent)
    assert (rules(guard) == [ALL_AT_ONCE]) is held
    if held:
        assert guard.breakers[ALL_AT_ONCE, ""].recovery_passes


def test_all_at_once_is_over_after_two_calm_grace_periods() -> None:
    tripwires, guard, _ = wires(*(node(f"n{i}") for i in range(10)))
    grace_ns = tripwires.grace_ns
    tripwires.trouble(NOW)
    silence(tripwires, 4)
    tripwires.trouble(NOW + grace_ns)
    tripwires.close_when_calm(NOW + 3 * grace_ns)
    assert rules(guard) == [ALL_AT_ONCE]
    tripwires.close_when_calm(NOW + 3 * grace_ns + 1)
    assert rules(guard) == []


def test_all_at_once_of_an_earlier_term_is_over_after_two_calm_grace_periods_of_this_one() -> None:
    tripwires, guard, _ = wires(node())
    guard.open(Breaker(ALL_AT_ONCE, "cut off", NOW))
    tripwires.close_when_calm(NOW)
    tripwires.close_when_calm(NOW + 2 * tripwires.grace_ns)
    assert rules(guard) == [ALL_AT_ONCE]
    tripwires.close_when_calm(NOW + 2 * tripwires.grace_ns + 1)
    assert rules(guard) == []


def test_no_calm_closes_another_rule() -> None:
    tripwires, guard, _ = wires(node())
    tripwires.sees(Put("Node", LOST), NOW)
    tripwires.close_when_calm(NOW)
    tripwires.close_when_calm(NOW + 10 * tripwires.grace_ns)
    assert rules(guard) == [SURPRISE]


@pytest.mark.parametrize(
    ("nodes", "times", "after_s", "opens"),
    [
        pytest.param(3, 2, 2, True, id="three-nodes-twice"),
        pytest.param(3, 1, 2, False, id="once-may-be-chance"),
        pytest.param(2, 5, 2, False, id="two-nodes-may-be-sick"),
        pytest.param(3, 2, 60, False, id="a-minute-later-they-have-come-back"),
    ],
)
def test_kubelets_that_contradict_us_open_all_at_once(
    nodes: int, times: int, after_s: int, opens: bool
) -> None:
    """Reads may be served by a stale replica: what we take for silence is our own deafness."""
    names = [f"n{number}" for number in range(nodes)]
    tripwires, guard, cache = wires(*map(node, names))
    now_ns = NOW
    for _ in range(times):
        for name in names:
            tripwires.sends(lost(name))
            for ready, later_s in (("Unknown", 1), ("True", after_s)):
                now_ns += later_s * SECOND_NS
                seen = Put("Node", node(name, ready))
                tripwires.sees(seen, now_ns)
                cache.apply(seen, now_ns)
    assert rules(guard) == ([ALL_AT_ONCE] if opens else [])
    tripwires.close_when_calm(now_ns + 3 * tripwires.grace_ns)
    assert rules(guard) == []


@pytest.mark.parametrize(("move", "closes"), [(0, False), (1, False), (2, True), (3, True)])
def test_it_stays_open_until_leases_have_moved(move: int, closes: bool) -> None:
    """From a replica that goes on to be old, all would begin anew: once more for each node."""
    names = ["n0", "n1", "n2"]
    tripwires, guard, cache = wires(*map(node, names))

    def renew(name: str, at_ns: int) -> None:
        cache.apply(objects.put(objects.lease(name, at_ns)), at_ns)

    for name in names:
        renew(name, NOW)
    now_ns = NOW
    for name in [*names, *names]:
        tripwires.sends(lost(name))
        for ready in ("Unknown", "True"):
            now_ns += SECOND_NS
            seen = Put("Node", node(name, ready))
            tripwires.sees(seen, now_ns)
            cache.apply(seen, now_ns)
    assert rules(guard) == [ALL_AT_ONCE]
    later_ns = now_ns + 3 * tripwires.grace_ns
    for name in names[:move]:
        renew(name, later_ns)
    tripwires.close_when_calm(later_ns)
    assert rules(guard) == ([] if closes else [ALL_AT_ONCE])
    for name in names:
        renew(name, later_ns + SECOND_NS)
    tripwires.close_when_calm(later_ns + SECOND_NS)
    assert rules(guard) == []
