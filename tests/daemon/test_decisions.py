"""One task decides: nothing interrupts it, and it decides on nothing that may be out of date."""

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

from kubectl_nodelife.daemon.decisions import collect_seldom
from kubectl_nodelife.daemon.gate import KINDS
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.live.loop import TimeSlices
from kubectl_nodelife.live.news import WATCHING, KindPhase, ListNews, OtherCluster, WatchNews
from tests.daemon.lab import SECOND, lease, make_lab, node, pod, unreachable

LOST = 40


async def test_settings_that_come_in_the_middle_of_a_decision_wait_for_its_end(
    tmp_path: Path,
) -> None:
    """The plans of the release before must not reach the overlay of the new one."""
    lab = make_lab(tmp_path)
    lab.decisions.slices = TimeSlices(0.0)
    lost = [f"n{i}" for i in range(LOST)]
    await lab.begin(*map(node, lost), *map(lease, lost), node("well"), lease("well"))
    await lab.after(48, "well")
    assert await lab.told() == []
    lab.pass_by(7)
    loop = asyncio.create_task(lab.decisions.run())
    while not list(lab.decisions.host.overlay.pending()):
        await asyncio.sleep(0)  # the pass that loses them has begun, and pauses
    await lab.decisions.change_settings(make_settings("v1.28"))
    for _ in range(2_000):
        await asyncio.sleep(0)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert lab.decisions.is_cold(lab.now)
    assert list(lab.decisions.host.overlay.pending()) == []


async def test_after_a_sleep_nothing_is_decided_on_what_was_seen_before_it(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    taints = (unreachable("NoSchedule"), unreachable())
    lost = node("n1", "Unknown", taints=taints)
    pods = [pod(f"p{i}", "n1", tolerates_s=300) for i in range(3)]
    await lab.begin(lost, node("n2"), lease("n2"), *pods)
    await lab.after(100, "n2")
    lab.sleep(400)
    await lab.tell()
    assert outcomes(await lab.told()) == {"ScheduleEviction": {"would"}}
    assert lab.decisions.stands_still == (
        "this machine slept for 400s: waiting for a new list of "
        "ControllerRevision, DaemonSet, Lease, …"
    )
    assert any("nothing is decided" in said for said in lab.look().warnings)
    lab.pass_by(10)
    await lab.see(node("n3"))  # what a watch says may still be from before the sleep
    assert "DeletePod" not in outcomes(await lab.told())
    assert lab.feed.relisted == set(KINDS)
    well = node("n1", posted_ns=450 * SECOND)
    await lab.relist(well, node("n2"), lease("n1"), lease("n2"), *pods)
    assert lab.decisions.stands_still == ""
    assert outcomes(await lab.told()) == {
        "ScheduleEviction": {"superseded"},
        "RemoveTaint": {"confirmed"},
        "CancelEviction": {"superseded"},
    }


async def test_after_a_sleep_what_is_due_is_decided_once_all_lists_have_come(
    tmp_path: Path,
) -> None:
    """The lists come one after the other, with hundreds of objects: none is decided on alone."""
    lab = make_lab(tmp_path)
    lost = node("n1", "Unknown", taints=(unreachable("NoSchedule"), unreachable()))
    pods = [pod(f"p{i:03}", "n1", tolerates_s=300) for i in range(250)]
    await lab.begin(lost, node("n2"), lease("n2"), *pods)
    await lab.after(100, "n2")
    lab.sleep(400)
    await lab.tell()
    await lab.relist(lost, node("n2"), lease("n1"), lease("n2"), *pods[:-1])
    deleted = {name for action, name, _ in await lab.told() if action == "DeletePod"}
    assert deleted == {p.name for p in pods[:-1]}


async def test_a_list_asked_for_before_the_sleep_does_not_count(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    asked_ns = lab.steady
    lab.sleep(60)
    await lab.tell(*(ListNews(kind, [], asked_ns) for kind in KINDS))
    assert lab.decisions.stands_still.startswith("this machine slept for 60s")
    await lab.relist(node("n1"), lease("n1"))
    assert lab.decisions.stands_still == ""


async def test_a_sleep_in_the_middle_of_a_batch_holds_the_rest_back(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    batches = [WatchNews("Pod", [Put("Pod", pod(f"p{i}-{j}"))]) for i in range(2) for j in "ab"]
    step = lab.decisions.host.step

    def sleeping(now_ns: int, events: Any) -> Any:
        lab.sleep(60)
        return step(now_ns, events)

    lab.decisions.host.step = sleeping  # type: ignore[method-assign]
    await lab.tell(*batches)
    lab.decisions.host.step = step  # type: ignore[method-assign]
    assert len(lab.decisions.host.cache.pods) == 1
    assert lab.decisions.stands_still.startswith("this machine slept")


async def test_a_watch_that_goes_on_after_a_gap_without_a_list_is_listed_anew(
    tmp_path: Path,
) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    lab.pass_by(30)
    await lab.tell(KindPhase("Pod", WATCHING, 30 * SECOND))
    assert lab.feed.relisted == {"Pod"}
    await lab.relist()
    assert lab.decisions.stands_still == ""
    await lab.tell(KindPhase("Pod", WATCHING, 30 * SECOND, relisted=True))
    assert lab.decisions.stands_still == ""
    assert lab.decisions.cold_because == "nothing was seen for 30s"


async def test_a_list_replaces_what_was_seen_of_its_kind_before_it(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    seen = WatchNews("Pod", [Put("Pod", lab.version(pod("p1")))])
    await lab.tell(seen, ListNews("Pod", []))
    assert lab.decisions.host.cache.pods == {}


async def test_nothing_of_another_cluster_is_taken_for_ours(tmp_path: Path) -> None:
    """Its lists would say that all our nodes are gone, and that others have come."""
    lab = make_lab(tmp_path)
    lost = node("n1", "Unknown", taints=(unreachable("NoSchedule"), unreachable()))
    await lab.begin(lost, node("n2"), lease("n2"), pod("p1", "n1"))
    await lab.after(100, "n2")
    told = await lab.told()
    elsewhere = "https://10.0.0.1:6443 is another cluster now"
    await lab.tell(OtherCluster("server", elsewhere), ListNews("Node", [node("m1")]))
    await lab.tell(ListNews("Pod", []), ListNews("Lease", [lease("m1")]))
    await lab.after(400)
    assert lab.decisions.stands_still == elsewhere
    assert any("nothing is decided" in said for said in lab.look().warnings)
    assert await lab.told() == told
    assert sorted(lab.decisions.host.cache.nodes) == ["n1", "n2"]
    await lab.tell(OtherCluster("server", ""))
    assert lab.feed.relisted == set(KINDS)
    assert lab.decisions.stands_still.startswith("another cluster was in this one's place")
    await lab.relist(lost, node("n2"), lease("n1"), lease("n2"), pod("p1", "n1"))
    assert lab.decisions.stands_still == ""
    assert lab.decisions.is_cold(lab.now)
    assert "DeletePod" in outcomes(await lab.told())


async def test_two_who_say_that_it_is_another_cluster_must_both_take_it_back(
    tmp_path: Path,
) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    await lab.tell(OtherCluster("server", "one"), OtherCluster("kubeconfig", "two"))
    assert lab.decisions.stands_still == "one; two"
    await lab.tell(OtherCluster("server", ""))
    assert lab.decisions.stands_still == "two"
    assert lab.feed.relisted == set()
    await lab.tell(OtherCluster("kubeconfig", ""))
    await lab.relist(node("n1"), lease("n1"))
    assert lab.decisions.stands_still == ""


async def test_another_cluster_during_the_first_lists_is_not_begun_upon(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.tell(OtherCluster("server", "another"))
    await lab.begin(node("n1"), lease("n1"))
    assert not lab.decisions.synced.is_set()
    await lab.tell(OtherCluster("server", ""))
    await lab.relist(node("n1"), lease("n1"))
    assert lab.decisions.synced.is_set()
    assert lab.decisions.stands_still == ""


def outcomes(told: list[tuple[str, str, str]]) -> dict[str, set[str]]:
    """The outcomes of each action that was told."""
    found: dict[str, set[str]] = {}
    for action, _, outcome in told:
        found.setdefault(action, set()).add(outcome)
    return found


def test_what_an_earlier_beginning_set_aside_is_freed() -> None:
    """A hundred terms of a leader were a hundred caches that nothing used."""

    class Term:
        me: Any = None

    thresholds, term = gc.get_threshold(), Term()
    term.me, gone = term, weakref.ref(term)
    try:
        collect_seldom()
        del term
        gc.collect()
        assert gone() is not None
        collect_seldom()
        assert gone() is None
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
