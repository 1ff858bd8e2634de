"""A bug at one object, or one that cannot be read: what they hold up, and what goes on."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.controllers.nodelifecycle import eviction, monitor
from kubectl_nodelife.controllers.nodelifecycle.zones import Zones
from kubectl_nodelife.daemon import follower
from kubectl_nodelife.daemon.daemonset_acts import DaemonSetFollower
from kubectl_nodelife.daemon.divergence_recorder import DivergenceRecorder
from kubectl_nodelife.daemon.follower import ControllerFollower
from kubectl_nodelife.daemon.foreign_writes import ForeignWriteDetector, NodeWriteObserver
from kubectl_nodelife.daemon.gate import KINDS
from kubectl_nodelife.daemon.run import Daemon
from kubectl_nodelife.engine import quarantine as quarantine_module
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put, Unreadable
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.unreadable import NAMELESS
from kubectl_nodelife.live.news import ListNews, WatchNews
from tests.daemon.lab import Lab, lease, make_lab, node, pod, run

N1 = ("Node", ("", "n1"))
BAD_POD = Unreadable("Pod", ("default", "p1"), "w", related=(N1,))
BAD_LEASE = Unreadable("Lease", ("kube-node-lease", "n1"), "w", related=(N1,))


LIVING = ("n3", "n4", "n5")


async def two_fall_silent(lab: Lab) -> None:
    """Five nodes with a pod each, of which two will not be heard of any more."""
    names = ("n1", "n2", *LIVING)
    pods = [pod(f"p{name[1:]}", name) for name in names]
    await lab.begin(*map(node, names), *map(lease, names), *pods)
    await lab.after(45, *names)


def by_target(rows: list[tuple[str, str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for action, target, _ in rows:
        found.setdefault(target, set()).add(action)
    return found


def test_a_bug_at_one_node_leaves_the_others_their_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = monitor.update_node_health
    broken = True

    def fails(seen: Any, *args: Any, **more: Any) -> Any:
        if broken and seen.name == "n1":
            raise KeyError("n1")
        return real(seen, *args, **more)

    monkeypatch.setattr(monitor, "update_node_health", fails)

    async def story() -> None:
        nonlocal broken
        lab = make_lab(tmp_path)
        await two_fall_silent(lab)
        await lab.after(120, *LIVING)
        told = by_target(await lab.told(outcome="would"))
        assert {"SetNodeCondition", "AddTaint"} <= told["n2"]
        assert "MarkPodNotReady" in told["p2"]
        assert set(told) == {"n2", "p2"}
        bugs = lab.decisions.host.cache.quarantine.bugs
        assert list(bugs) == [("node-lifecycle", N1)]
        broken = False
        await lab.after(30, *LIVING)
        assert not bugs, "the next pass looks at it again"
        told = by_target(await lab.told(outcome="would"))
        assert {"SetNodeCondition", "AddTaint"} <= told["n1"]
        assert "MarkPodNotReady" in told["p1"]

    run(story())


async def test_a_bug_at_one_node_does_not_block_its_zones_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = eviction.swap_taints

    def fails(seen: Any, *args: Any, **more: Any) -> Any:
        if seen.name == "n1":
            raise KeyError("n1")
        return real(seen, *args, **more)

    monkeypatch.setattr(eviction, "swap_taints", fails)

    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    await lab.after(120, *LIVING)
    taints = [c.name for c in await lab.changes() if c.action == "AddTaint"]
    assert sorted(taints) == ["n1", "n2", "n2"], "NoSchedule alone is the node worker's"


async def test_an_unreadable_pod_leaves_its_node_to_be_decided_on(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    await lab.see(pod("p4", "n1"))
    await lab.tell(WatchNews("Pod", [BAD_POD]))
    await lab.after(500, *LIVING)
    told = by_target(await lab.told(outcome="would"))
    assert {"SetNodeCondition", "AddTaint"} <= told["n1"]
    assert {"MarkPodNotReady", "DeletePod"} <= told["p4"]
    assert "p1" not in told


async def test_an_unreadable_lease_is_no_silence(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    await lab.tell(WatchNews("Lease", [BAD_LEASE]))
    await lab.after(500, *LIVING)
    told = by_target(await lab.told(outcome="would"))
    assert not {"n1", "p1"} & set(told)
    assert "DeletePod" in told["p2"]


async def test_a_bug_in_placing_one_node_leaves_the_others_their_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Zones.place

    def fails(self: Zones, seen: Any) -> str:
        if seen.name == "n1":
            raise KeyError("n1")
        return real(self, seen)

    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    monkeypatch.setattr(Zones, "place", fails)
    await lab.after(120, *LIVING)
    told = by_target(await lab.told(outcome="would"))
    assert {"SetNodeCondition", "AddTaint"} <= told["n2"]
    assert "n1" not in told
    assert list(lab.decisions.host.cache.quarantine.bugs) == [("node-lifecycle", N1)]


def fails_at_n1(*args: Any, **more: Any) -> Any:
    """In place of a method: it fails at that node."""
    for one in args:
        obj = getattr(one, "obj", one)
        if isinstance(obj, Node) and obj.name == "n1":
            raise KeyError("n1")
    return more["real"](*args)


@pytest.mark.parametrize(
    "where, name",
    [
        (ControllerFollower, "before"),
        (DaemonSetFollower, "is_act"),
        (ControllerFollower, "defers"),
        (ControllerFollower, "after"),
        (ForeignWriteDetector, "compare"),
        (DaemonSetFollower, "before"),
        (NodeWriteObserver, "changed"),
    ],
)
async def test_who_only_looks_on_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    real = getattr(where, name)

    def fails(*args: Any) -> Any:
        return fails_at_n1(*args, real=real)

    monkeypatch.setattr(where, name, fails)

    lab = make_lab(tmp_path)
    DivergenceRecorder(lab.sources)
    await two_fall_silent(lab)
    await lab.see(node("n1"), node("n2"))
    quarantine = lab.decisions.host.cache.quarantine
    assert [about for _, about in quarantine.bugs] == [N1]
    await lab.after(120, *LIVING)
    told = by_target(await lab.told(outcome="would"))
    assert {"SetNodeCondition", "AddTaint"} <= told["n1"] & told["n2"]
    monkeypatch.setattr(where, name, real)
    await lab.see(node("n1"))
    assert not quarantine.bugs


async def test_an_order_of_events_that_fails_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    monkeypatch.setattr(follower, "in_order", lambda events: events[1 / 0])
    await lab.see(pod("p6", "n1"), node("n6"))
    cache = lab.decisions.host.cache
    assert cache.pod("default", "p6") and cache.node("n6")
    assert [who for who, _ in cache.quarantine.bugs] == ["follower"]


def cache_fails_at(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = Cache.set

    def fails(self: Cache, kind: str, key: tuple[str, str], obj: Any) -> Any:
        if key[1] in names:
            raise KeyError(names)
        return real(self, kind, key, obj)

    monkeypatch.setattr(Cache, "set", fails)


async def test_an_object_that_the_cache_fails_at_is_set_aside_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    cache_fails_at(monkeypatch, "p1")
    new = [lab.version(obj) for obj in (pod("p1", "n1"), pod("p7", "n1"))]
    await lab.tell(WatchNews("Pod", [Put("Pod", obj) for obj in new]))
    cache = lab.decisions.host.cache
    assert cache.pod("default", "p7") is not None
    assert list(cache.quarantine.unreadable) == [("Pod", ("default", "p1"))]
    monkeypatch.undo()
    await lab.see(pod("p1", "n1"))
    assert not cache.quarantine


async def test_a_first_list_with_such_an_object_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_fails_at(monkeypatch, "n1")
    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    assert lab.decisions.synced.is_set()
    cache = lab.decisions.host.cache
    assert set(cache.nodes) == {"n2", *LIVING}
    assert ("Node", ("", "n1")) in cache.quarantine.unreadable
    await lab.after(300, *LIVING)
    assert set(by_target(await lab.told(outcome="would"))) == {"n2", "p2"}


def test_a_batch_that_fails_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds are listed anew, and the controllers begin anew on that."""
    monkeypatch.setattr(quarantine_module, "_FIRST_RETRY_NS", 10_000_000)

    async def story() -> None:
        lab = make_lab(tmp_path)
        await two_fall_silent(lab)
        real, failed = lab.decisions.gate.listed, 0

        def fails(*args: Any) -> None:
            nonlocal failed
            if failed == 0:
                failed = 1
                raise KeyError("s3cr3t")
            real(*args)

        monkeypatch.setattr(lab.decisions.gate, "listed", fails)
        task = asyncio.create_task(lab.decisions.run())
        lab.feed.queue.put_nowait(ListNews("Pod", []))
        async with asyncio.timeout(5):
            while not lab.feed.relisted:
                await asyncio.sleep(0.01)
        assert set(lab.feed.relisted) == set(lab.feed.states)
        assert (
            "KeyError" in lab.decisions.stands_still and "s3cr3t" not in lab.decisions.stands_still
        )
        for kind in KINDS:
            lab.pass_by(0.001)
            lab.feed.queue.put_nowait(ListNews(kind, []))
        async with asyncio.timeout(5):
            while lab.decisions.stands_still or not lab.feed.queue.empty():
                await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(story())


def test_a_part_on_which_no_decision_hangs_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine_module, "_FIRST_RETRY_NS", 1_000_000)
    cache, runs = Cache(), 0

    async def part() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise KeyError("s3cr3t")

    daemon = SimpleNamespace(decisions=SimpleNamespace(host=SimpleNamespace(cache=cache)))
    run(Daemon._always(cast(Any, daemon), "housekeeping", part))
    assert runs == 3
    (line,) = cache.quarantine.lines()
    assert "housekeeping" in line and "s3cr3t" not in line


def nameless(kind: str) -> Unreadable:
    return Unreadable(kind, NAMELESS, "w")


async def listed(lab: Lab, kind: str, *objects: Any) -> None:
    """A new list comes: with these, and with one that tells no name."""
    found = [lab.version(obj) for obj in objects]
    await lab.tell(ListNews(kind, found, 0, [nameless(kind)]))


async def test_what_a_list_with_a_nameless_item_lacks_may_be_that_one(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await two_fall_silent(lab)
    await listed(lab, "Node", *map(node, ("n1", "n2", "n3", "n4")))
    cache = lab.decisions.host.cache
    assert "n5" in cache.nodes, "no more is known of it than that it is not there by name"
    assert cache.is_quarantined("Node", ("", "n5"))
    assert not cache.is_quarantined("Node", ("", "n1"))
    await lab.after(400, *LIVING)
    told = by_target(await lab.told(outcome="would"))
    assert {"SetNodeCondition", "AddTaint"} <= told["n1"]
    assert not {"n5", "p5"} & set(told)
    await lab.tell(ListNews("Node", [lab.version(node(n)) for n in ("n1", "n2", "n3", "n4")]))
    assert "n5" not in cache.nodes and not cache.quarantine


async def test_a_nameless_lease_may_be_that_of_a_node_without_one(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(*map(node, ("n1", "n2", "n3")), *map(lease, ("n2", "n3")), pod("p1", "n1"))
    await listed(lab, "Lease", *map(lease, ("n2", "n3")))
    await lab.after(500, "n3")
    told = by_target(await lab.told(outcome="would"))
    assert not {"n1", "p1"} & set(told)
    assert "SetNodeCondition" in told["n2"]


async def test_a_nameless_node_may_be_that_of_a_pod_without_one(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"), pod("p1", "n1"))
    await listed(lab, "Node", node("n1"))
    await lab.see(pod("p9", "n9"))
    await lab.after(300, "n1")
    assert "p9" not in by_target(await lab.told(outcome="would"))
    await lab.tell(ListNews("Node", [lab.version(node("n1"))]))
    await lab.after(300, "n1")
    assert "DeletePod" in by_target(await lab.told(outcome="would"))["p9"]
