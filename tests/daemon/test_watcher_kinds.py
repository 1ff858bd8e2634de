"""The live loop where something is missing, made anew or too much: kinds, relists, storms."""

from pathlib import Path

import pytest

from kubectl_nodelife.daemon.decisions import ChangeSettings
from kubectl_nodelife.engine.events import Gone
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.live.news import WATCHING, KindPhase, ListNews, WatchNews
from tests.daemon.lab import FAILING, lease, make_lab, node, pod, unreachable


async def test_without_leases_no_node_is_called_lost(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), pod("p1"), refused=["Lease"])
    await lab.after(400)
    assert await lab.told() == []
    sight = lab.look()
    (warning,) = sight.warnings
    assert warning.startswith("Lease cannot be read: not evaluated: when a node whose kubelet")
    assert warning.endswith(" (Lease is forbidden)")
    assert sight.outlook.node(sight.outlook.cache.nodes["n1"]).unknown_in is None


async def test_without_pods_nodes_are_still_watched(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), refused=["Pod"])
    await lab.after(70, "n2")
    assert ("AddTaint", "n1", "would") in await lab.told()
    assert "Pod cannot be read" in lab.look().warnings[0]
    assert "when taints evict pods" in lab.look().warnings[0]


async def test_a_kind_that_may_be_read_later_is_taken_in(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    lost = node("n1", "Unknown", taints=(unreachable(),))
    await lab.begin(lost, node("n2"), lease("n2"), refused=["Pod"])
    state = lab.feed.states["Pod"]
    state.phase, state.error = WATCHING, ""
    await lab.tell(ListNews("Pod", [lab.version(pod("p1"))]), KindPhase("Pod", WATCHING))
    assert lab.decisions.running() == ["node-lifecycle", "pod-gc", "taint-eviction", "daemonset"]
    assert [t.name for t in lab.look().outlook.node(lost).timers] == ["p1"]


async def test_nothing_is_decided_before_everything_is_read(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    state = lab.feed.states["Node"]
    state.phase, state.synced = WATCHING, True
    await lab.tell(ListNews("Node", [node("n1")]))
    lab.feed.states["Pod"].phase = FAILING
    lab.feed.states["Pod"].error = "no answer in time"
    assert not lab.decisions.synced.is_set()
    sight = lab.look()
    assert sight.source["synced"] is False
    assert "Pod: no answer in time" in sight.warnings[0]
    assert list(sight.outlook.cache.nodes) == ["n1"]


# Objects that come and go


async def test_a_node_deleted_and_made_anew_under_its_name_is_another_node(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
    await lab.after(60, "n2")
    before = len(await lab.told())
    await lab.see(Gone("Node", ("", "n1")), node("n1", uid="another"))
    told = await lab.told()
    assert {o for a, n, o in told[:before] if n == "n1"} == {"superseded"}
    assert lab.decisions.host.cache.nodes["n1"].spec.taints == ()
    whys = {c.why for c in await lab.changes() if c.action == "AddTaint"}
    assert "Node n1 is gone" in whys


async def test_a_second_list_tells_what_went_and_what_changed(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1"), pod("p2"))
    kept = lab.decisions.host.cache.pods["default", "p1"]
    await lab.tell(ListNews("Pod", [kept, lab.version(pod("p3"))]))
    assert sorted(key[1] for key in lab.decisions.host.cache.pods) == ["p1", "p3"]


async def test_while_it_stands_still_only_the_last_word_on_each_object_is_kept(
    tmp_path: Path,
) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    lab.feed.states["Lease"].broken_since_ns = 1
    for number in range(50):
        await lab.see(node("n1", posted_ns=number))
    assert len(lab.decisions.held.objects) == 1
    lab.feed.states["Lease"].broken_since_ns = None
    await lab.tell(KindPhase("Lease", WATCHING, 1))
    ready = lab.decisions.host.cache.nodes["n1"].ready()
    assert ready is not None and ready.last_heartbeat_time == ready.last_heartbeat_time
    assert lab.decisions.held.objects == {}


# Settings


async def test_other_periods_keep_every_clock_and_timer(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    lost = node("n3", "Unknown", taints=(unreachable(),))
    await lab.begin(
        node("n1"), node("n2"), lost, lease("n1"), lease("n2"), pod("p3", "n3", tolerates_s=300)
    )
    await lab.after(30, "n2")
    due = lab.look().outlook.node(lost).timers[0].due_ns
    settings = make_settings("v1.36", {"node-monitor-grace-period": "35s"})
    await lab.tell(ChangeSettings(settings))
    assert lab.look().outlook.node(lost).timers[0].due_ns == due
    await lab.after(11, "n2")
    assert ("SetNodeCondition", "n1", "would") in await lab.told()


async def test_another_release_begins_anew(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
    await lab.after(60, "n2")
    await lab.tell(ChangeSettings(make_settings("v1.28")))
    assert {o for _, _, o in await lab.told()} == {"superseded"}
    assert lab.decisions.is_cold(lab.now)


@pytest.mark.parametrize("count", [300])
async def test_a_storm_of_events_is_taken_in_order(tmp_path: Path, count: int) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), lease("n1"))
    from kubectl_nodelife.engine.events import Put

    storm = [Put("Pod", lab.version(pod(f"p{i % 40}", tolerates_s=i))) for i in range(count)]
    await lab.tell(WatchNews("Pod", list(storm)))
    pods = lab.decisions.host.cache.pods
    assert len(pods) == 40
    seconds = pods["default", "p0"].spec.tolerations[0].toleration_seconds
    assert seconds == max(i for i in range(count) if i % 40 == 0)
