"""The cache: objects and indexes against a rebuilt copy, heartbeats, and what is news."""

import random

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache, is_settled
from kubectl_nodelife.engine.events import Change, ConditionsChanged, Gone, Heartbeats, Put
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Lease, LeaseMeta, Node
from kubectl_nodelife.kube.pod import Pod, PodCondition, PodStatus
from kubectl_nodelife.kube.times import SECOND_NS
from tests.objects import lease, of_kind, owner, pod, typed

S = SECOND_NS


N1 = typed(of_kind("Node", "n1"))


def bound(name: str, on: str = "", of: str = "") -> Pod:
    """A pod of the ReplicaSet with that uid."""
    by = owner("ReplicaSet", uid=of) if of else None
    return typed(pod(name, on, namespace="d", owner=by))


def renewed(node: str, at_s: float | None) -> Lease:
    return typed(lease(node, None if at_s is None else round(at_s * S)))


@pytest.mark.parametrize("seed", range(20))
def test_indexes_are_those_of_a_rebuilt_cache(seed: int) -> None:
    chance, cache = random.Random(seed), Cache()
    pods: dict[tuple[str, str], Pod] = {}
    for _ in range(300):
        key = ("d", f"p{chance.randrange(12)}")
        old, how = pods.get(key), chance.random()
        if how < 0.25:
            cache.apply(Gone("Pod", key), 0)
            pods.pop(key, None)
        elif how < 0.6 and old is not None:
            ready = (PodCondition("Ready", chance.choice(["True", "True", "False"])),)
            phase = chance.choice(["Running", "Running", "Failed"])
            pods[key] = new = replace(old, status=PodStatus(phase=phase, conditions=ready))
            if how < 0.4:
                cache.apply(Put("Pod", new), 0)
            elif how < 0.5:
                cache.apply_conditions(ConditionsChanged([(old, new, None)]), ())
            else:
                cache.replace_pod(new)
        else:
            pods[key] = bound(key[1], chance.choice(["", "n1", "n2"]), chance.choice(["", "u1"]))
            cache.apply(Put("Pod", pods[key]), 0)
        if chance.random() < 0.05:
            cache = chance.choice((cache, cache.fork(), cache.copy(), cache.fork_in_child()))
        for node in ("n1", "n2"):
            wanted = {k: id(p) for k, p in pods.items() if p.spec.node_name == node}
            assert {p.key: id(p) for p in cache.pods_on(node)} == wanted
            assert (node in cache.nodes_with_pods()) == bool(wanted)
        owned = {k: id(p) for k, p in pods.items() if p.metadata.owner_references}
        assert {p.key: id(p) for p in cache.pods_of("u1")} == owned
        free = {k: id(p) for k, p in pods.items() if k not in owned}
        assert {p.key: id(p) for p in cache.pods_of_nobody()} == free and not cache.pods_of("")
        assert cache.pods == pods
        unsettled = [p for p in cache.pods.values() if not is_settled(p)]
        assert list(map(id, cache.unsettled_pods())) == list(map(id, unsettled))
        firsts = {uid: id(first) for uid, first in cache.first_of_owners()}
        assert firsts.keys() == ({"u1"} if owned else set()) and {*firsts.values()} <= {
            *owned.values()
        }


@pytest.mark.parametrize("seed", range(20))
def test_as_listed_is_as_a_first_list(seed: int) -> None:
    """Whatever came and went, and in which order."""
    chance, cache = random.Random(seed), Cache()
    for now_ns in range(200):
        number, how = chance.randrange(12), chance.random()
        name, node = f"p{number}", f"n{chance.randrange(4)}"
        if how < 0.3:
            cache.apply(Gone("Pod", ("d", name)), now_ns)
        elif how < 0.7:
            on = chance.choice(["", node])
            cache.apply(Put("Pod", bound(name, on, f"u{number % 3}")), now_ns)
        elif how < 0.85:
            cache.apply(Put("Lease", renewed(node, now_ns)), now_ns)
        else:
            cache.apply(Put("Node", Node(metadata=ObjectMeta(name=node))), now_ns)
        if chance.random() < 0.05:
            cache = chance.choice((cache.fork(), cache.copy(), cache.fork_in_child()))
        if chance.random() < 0.05:
            cache.unsettled_pods()
    kinds = ("Node", "Pod", "Lease", "Namespace")
    wanted = Cache()
    wanted.fill((o for kind in kinds for o in sorted(cache.all(kind), key=lambda o: o.key)), 7 * S)
    listed = cache.as_listed(kinds, 7 * S)
    assert list(listed.pods.items()) == list(wanted.pods.items())
    assert list(listed.nodes.items()) == list(wanted.nodes.items())
    assert listed.objects == wanted.objects
    assert listed.unsettled_pods() == wanted.unsettled_pods()
    assert set(listed.nodes_with_pods()) == set(wanted.nodes_with_pods())
    gone = [[n for n in c.nodes_with_pods() if n not in c.nodes] for c in (listed, wanted)]
    assert gone[0] == gone[1]
    if seed % 2:  # what a fork shows of groups that nobody has looked at yet
        listed = listed.fork()
    if seed % 3:
        assert dict(listed.first_of_owners()) == dict(wanted.first_of_owners())
    for each in ("n0", "n1", "n2", "n3"):
        assert listed.pods_on(each) == wanted.pods_on(each)
        mine, theirs = listed.heartbeat(each), wanted.heartbeat(each)
        assert (mine and mine.renewal(8 * S)) == (theirs and theirs.renewal(8 * S))
    for uid in ("u0", "u1", "u2"):
        assert listed.pods_of(uid) == wanted.pods_of(uid)


def test_filling_is_as_putting_one_after_the_other() -> None:
    objects = [bound("a", "n1", "u1"), N1, renewed("n1", 5)]
    objects += [bound("b", "n1"), bound("a", "n2")]
    filled, told = Cache(), Cache()
    filled.fill(objects, 7 * S)
    for obj in objects:
        told.apply(Put(type(obj).__name__, obj), 7 * S)
    assert (filled.pods, filled.nodes, filled.objects) == (told.pods, told.nodes, told.objects)
    for node in ("n1", "n2"):
        assert filled.pods_on(node) == told.pods_on(node)
    assert filled.pods_of("u1") == told.pods_of("u1") == []
    beat = filled.heartbeat("n1")
    assert beat is not None
    assert beat.renewal(8 * S) == (5 * S, 7 * S)


def test_a_copy_goes_its_own_way() -> None:
    cache = Cache()
    cache.fill([bound("a", "n1"), N1, renewed("n1", 5)], 6 * S)
    other = cache.copy()
    other.apply(Gone("Pod", ("d", "a")), 7 * S)
    other.apply(Gone("Node", ("", "n1")), 7 * S)
    other.apply(Put("Lease", renewed("n1", 9)), 9 * S)
    assert [p.name for p in cache.pods_on("n1")] == ["a"]
    assert cache.node("n1") is not None
    mine, theirs = cache.heartbeat("n1"), other.heartbeat("n1")
    assert mine is not None
    assert theirs is not None
    assert (mine.renewal(10 * S), theirs.renewal(10 * S)) == ((5 * S, 6 * S), (9 * S, 9 * S))


def test_a_change_has_the_object_before_and_after() -> None:
    cache, first, second = Cache(), bound("a"), bound("a", "n1")
    came = cache.apply(Put("Pod", first), 0)
    assert came is not None
    assert (came.kind, came.old, came.new) == ("Pod", None, first)
    moved = cache.apply(Put("Pod", second), 0)
    assert moved is not None
    assert (moved.old, moved.new) == (first, second)
    went = cache.apply(Gone("Pod", ("d", "a")), 0)
    assert went is not None
    assert (went.old, went.new) == (second, None)
    assert cache.apply(Gone("Pod", ("d", "a")), 0) is None


def test_a_renewal_as_usual_is_no_news() -> None:
    cache = Cache()
    first = cache.apply(Put("Lease", renewed("n1", 1)), 1 * S)
    assert first is not None
    assert first.kind == "Heartbeat"
    assert cache.apply(Put("Lease", renewed("n1", 11)), 12 * S) is None
    beat = cache.heartbeat("n1")
    assert beat is not None
    assert beat.renewal(13 * S) == (11 * S, 12 * S)


def test_a_lease_that_stands_still_is_no_renewal() -> None:
    cache = Cache()
    cache.apply(Put("Lease", renewed("n1", 1)), 1 * S)
    assert cache.apply(Put("Lease", renewed("n1", 1)), 20 * S) is None
    beat = cache.heartbeat("n1")
    assert beat is not None
    assert beat.renewal(30 * S) == (1 * S, 1 * S)


@pytest.mark.parametrize("renewed_s", [0.5, None])
def test_a_lease_that_goes_back_or_loses_its_time_is_news(renewed_s: float | None) -> None:
    cache = Cache()
    cache.apply(Put("Lease", renewed("n1", 1)), 1 * S)
    assert cache.apply(Put("Lease", renewed("n1", renewed_s)), 2 * S) is not None


def test_a_lost_lease_is_news() -> None:
    cache = Cache()
    cache.apply(Put("Node", N1), 0)
    cache.apply(Put("Lease", renewed("n1", 1)), 1 * S)
    gone = cache.apply(Gone("Lease", ("kube-node-lease", "n1")), 2 * S)
    assert gone is not None
    assert (gone.kind, gone.new) == ("Heartbeat", cache.node("n1"))
    beat = cache.heartbeat("n1")
    assert beat is not None and (beat.renewal(2 * S), beat.deleted_ns) == (None, 2 * S)
    assert beat.before is not None and beat.before.renewal(1 * S) is not None


def test_leases_of_others_are_objects_and_no_heartbeats() -> None:
    cache = Cache()
    other = Lease(metadata=LeaseMeta(name="leader", namespace="kube-system"))
    assert cache.apply(Put("Lease", other), 0) == Change("Lease", None, other)
    assert cache.get("Lease", ("kube-system", "leader")) is other
    assert cache.heartbeat("leader") is None


def test_a_schedule_tells_every_renewal_until_it_stops() -> None:
    cache = Cache()
    told = cache.apply(Heartbeats("n1", 3 * S, 10 * S, stop_ns=33 * S), 0)
    assert told is not None
    assert told.kind == "Heartbeat"
    beat = cache.heartbeat("n1")
    assert beat is not None
    assert beat.beats_for_ever(leases_count=True) is None
    assert beat.renewal(2 * S) is None
    assert beat.renewal(3 * S) == (3 * S, 3 * S)
    assert beat.renewal(32 * S) == (23 * S, 23 * S)
    assert beat.renewal(99 * S) == (23 * S, 23 * S)


def test_a_new_schedule_keeps_what_the_old_one_had_renewed() -> None:
    cache = Cache()
    cache.apply(Heartbeats("n1", 0, 10 * S), 0)
    cache.apply(Heartbeats("n1", 60 * S, 10 * S), 25 * S)
    beat = cache.heartbeat("n1")
    assert beat is not None
    assert beat.beats_for_ever(leases_count=True) == 10 * S
    assert beat.beats_for_ever(leases_count=False) is None
    assert beat.renewal(59 * S) == (20 * S, 20 * S)
    assert beat.renewal(60 * S) == (60 * S, 60 * S)


def test_status_posts_have_a_schedule_of_their_own() -> None:
    cache = Cache()
    schedule = Heartbeats("n1", 0, 10 * S, stop_ns=700 * S, status_first_ns=0)
    cache.apply(schedule, 0)
    beat = cache.heartbeat("n1")
    assert beat is not None
    assert beat.status_post(100 * S) is None
    cache.apply(Heartbeats("n1", 0, 10 * S, 700 * S, 5 * S, 300 * S), 0)
    assert beat.status_post(4 * S) is None
    assert beat.status_post(400 * S) == 305 * S
    assert beat.status_post(2000 * S) == 605 * S
