"""Whose Leases are read once more: those of nodes that are silent, and of no others."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubectl_nodelife.controllers.nodelifecycle.health import NodeHealth
from kubectl_nodelife.daemon.lease_check import LeaseCheck, LeasesRead
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.engine.workqueue import Timers
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Lease, LeaseMeta, LeaseSpec
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.news import WatchNews
from tests.daemon.lab import T0, lease, make_lab, node

START_NS = 1_000 * SECOND_NS
GRACE_NS = 50 * SECOND_NS


def lifecycle(classic: bool = False) -> Any:
    """A controller that looked at one node at START_NS, and will again a grace period later."""
    flags = {"enable-taint-manager": "false", "feature-gates": "TaintBasedEvictions=false"}
    settings = make_settings("v1.16" if classic else "v1.36", flags if classic else {})
    health = NodeHealth(None, START_NS, START_NS, lease_saved=True, lease_renew_ns=START_NS)
    expiry = Timers()
    expiry.set("n", START_NS + GRACE_NS)
    memory = SimpleNamespace(expiry=expiry, health={"n": health}, leases_count=True)
    return SimpleNamespace(settings=settings, memory=memory)


def renewed(after_s: int) -> Cache:
    """A cache in which the node's Lease was renewed so long after START_NS."""
    cache, at_ns = Cache(), START_NS + after_s * SECOND_NS
    meta = LeaseMeta(name="n", namespace="kube-node-lease")
    cache.apply(Put("Lease", Lease(meta, LeaseSpec(renew_time=Time(at_ns)))), at_ns)
    return cache


@pytest.mark.parametrize(
    "after_s, classic, asked",
    [
        pytest.param(0, False, 1, id="silent-since-the-look"),
        pytest.param(10, False, 0, id="renewed-since"),
        pytest.param(10, True, 1, id="renewed-but-pods-have-a-time-of-their-own"),
    ],
)
async def test_only_a_silent_node_asks_for_a_list(after_s: int, classic: bool, asked: int) -> None:
    lists = 0

    async def read() -> list[Any]:
        nonlocal lists
        lists += 1
        return []

    clock: Any = SimpleNamespace(now_ns=lambda: START_NS + GRACE_NS - SECOND_NS)
    check = LeaseCheck(read, clock, asyncio.Queue())
    assert not check.must_wait(lifecycle(classic), renewed(after_s))
    await asyncio.sleep(0)
    assert lists == asked


async def test_a_renewal_puts_the_check_off_once_and_by_a_grace_period() -> None:
    one, cache, now_ns = lifecycle(), renewed(10), START_NS
    clock: Any = SimpleNamespace(now_ns=lambda: now_ns)
    check = LeaseCheck(lambda: asyncio.sleep(3600, []), clock, asyncio.Queue())
    for after_s in range(70):
        now_ns = START_NS + after_s * SECOND_NS
        waits = check.must_wait(one, cache)
    assert one.memory.expiry.get("n") == START_NS + 10 * SECOND_NS + GRACE_NS
    assert waits, "its time is over, and no list has come"


@pytest.mark.parametrize("held", [True, False])
async def test_a_renewal_that_waits_to_be_taken_in_was_told(tmp_path: Path, held: bool) -> None:
    """While no decision is taken, or in the same batch: the watch is not built anew for it."""
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    asked_ns = lab.now
    await lab.after(46)
    renewal = Put("Lease", lab.version(lease("n1", lab.now - T0)))
    told, read = WatchNews("Lease", [renewal]), LeasesRead(asked_ns, [renewal.obj])
    lab.feed.states["Pod"].broken_since_ns = lab.steady if held else None
    lab.feed.relisted.clear()
    for batch in ([told], [read]) if held else ([told, read],):
        await lab.tell(*batch)
    assert bool(lab.decisions.stands_still) is held
    assert "Lease" not in lab.feed.relisted


def version(text: str) -> Lease:
    meta = LeaseMeta(name="n", namespace="kube-node-lease", resource_version=text)
    return Lease(meta, LeaseSpec(renew_time=Time(START_NS)))


@pytest.mark.parametrize(
    "shown, listed, is_older",
    [
        pytest.param("9", "12", False, id="newer"),
        pytest.param("9", "9", False, id="the-same"),
        pytest.param("9", "5", True, id="older:restored"),
        pytest.param("9", "x", False, id="no-number"),
    ],
)
async def test_a_list_older_than_the_watch_is_of_restored_data(
    shown: str, listed: str, is_older: bool
) -> None:
    """What the watch shows while the list is on its way does not make the list old."""
    cache = Cache()
    cache.apply(Put("Lease", version(shown)), START_NS)

    async def read() -> list[Any]:
        cache.apply(Put("Lease", version("100")), START_NS)
        return [version(listed)]

    clock: Any = SimpleNamespace(now_ns=lambda: START_NS + GRACE_NS - SECOND_NS)
    queue: asyncio.Queue[LeasesRead] = asyncio.Queue()
    LeaseCheck(read, clock, queue).must_wait(lifecycle(), cache)
    assert (await queue.get()).is_older is is_older


@pytest.mark.parametrize(("release", "taken"), [("v1.36", 0), ("v1.37", 1)])
async def test_a_write_that_only_the_list_shows_counts_from_v1_37_on(
    release: str, taken: int
) -> None:
    cache, one = Cache(), lifecycle()
    cache.apply(Put("Lease", version("9")), START_NS)
    one.memory.reads_leases = release != "v1.36"
    clock: Any = SimpleNamespace(now_ns=lambda: START_NS + GRACE_NS)
    check = LeaseCheck(None, clock, asyncio.Queue())
    read = LeasesRead(START_NS, [version("12")])
    assert check.take(LeasesRead(START_NS, [version("9")]), one, cache, {}) == ([], False)
    newer, lies = check.take(read, one, cache, {})
    assert len(newer) == taken
    assert not lies, "it brought no renewal"


async def test_after_a_restore_all_kinds_are_listed_anew(tmp_path: Path) -> None:
    """Watches that wait for versions which do not come say nothing of any kind."""
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    await lab.after(46)
    lab.feed.relisted.clear()
    await lab.tell(LeasesRead(lab.now, [], is_older=True))
    assert {"Node", "Pod", "Lease"} <= set(lab.feed.relisted)
    assert "were restored" in lab.decisions.stands_still
