"""The dry run beside a running cluster: when it calls a node lost, and how what it planned ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubectl_nodelife.engine.events import Gone
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.live.source import WATCHING, Happened, Listed, Phase
from tests.daemon.lab import FAILING, SECOND, lease, make_lab, node, pod, run, unreachable


def test_a_lost_node_is_planned_through_to_its_pods_and_nothing_is_shown_of_it(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1", "n1"))
        await lab.after(60, "n2")
        assert await lab.told(node="n1") == [
            ("SetNodeCondition", "n1", "would"),
            *[("SetNodeCondition", "n1", "would")] * 3,
            ("QueueNode", "n1", "would"),
            ("MarkPodNotReady", "p1", "would"),
            ("AddTaint", "n1", "would"),
            ("AddTaint", "n1", "would"),
            ("ScheduleEviction", "p1", "would"),
        ]
        await lab.after(310, "n2")
        told = await lab.told(node="n1")
        assert told[-2:] == [("SetPodCondition", "p1", "would"), ("DeletePod", "p1", "would")]
        shown = lab.look().outlook
        assert shown.cache.nodes["n1"] == lab.watcher.dry_run.projection.shown("Node", ("", "n1"))
        ready = shown.cache.nodes["n1"].ready()
        assert ready is not None and ready.status == "True"
        pods = list(shown.cache.pods_on("n1"))
        assert [p.name for p in pods] == ["p1"]
        assert pods[0].metadata.deletion_timestamp is None

    run(story())


def test_each_change_names_the_one_that_led_to_it_and_the_request(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path, node_monitor_grace_period="10s")
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1", tolerates_s=0))
        await lab.after(30, "n2", every=0.5)
        changes = await lab.changes()
        by_id = {c.id: c for c in changes}
        delete = next(c for c in changes if c.action == "DeletePod")
        chain = [delete]
        while chain[-1].cause is not None:
            chain.append(by_id[chain[-1].cause])
        assert [c.action for c in chain] == [
            "DeletePod",
            "ScheduleEviction",
            "AddTaint",
            "QueueNode",
            "SetNodeCondition",
        ]
        assert '"preconditions":{"uid":"uid-p1"}' in delete.patch
        assert '"method":"DELETE"' in delete.patch
        taint = chain[2]
        assert '"path":"/api/v1/nodes/n1"' in taint.patch and "NoExecute" in taint.patch

    run(story())


def test_what_the_cluster_then_shows_is_confirmed(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
        await lab.after(56, "n2")
        assert ("AddTaint", "n1", "would") in await lab.told()
        lost = node("n1", "Unknown", reason="NodeStatusUnknown")
        await lab.see(lost)
        conditions = [t for t in await lab.told() if t[0] == "SetNodeCondition"]
        assert conditions == [("SetNodeCondition", "n1", "would")] * 4  # three are missing yet
        both = (unreachable("NoSchedule"), unreachable())
        await lab.see(node("n1", "Unknown", reason="NodeStatusUnknown", taints=both))
        told = await lab.told()
        assert [t for t in told if t[0] == "AddTaint"] == [("AddTaint", "n1", "confirmed")] * 2
        settled = [c for c in await lab.changes() if c.action == "AddTaint"]
        assert all(c.settled_ns is not None and c.why == "the cluster shows it" for c in settled)

    run(story())


def test_what_another_hand_does_first_is_told_once_and_is_a_cause(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1"))
        await lab.after(45, "n2")
        assert await lab.told() == []
        lost = node("n1", "Unknown", reason="NodeStatusUnknown")
        tainted = node(
            "n1",
            "Unknown",
            reason="NodeStatusUnknown",
            taints=(unreachable("NoSchedule"), unreachable()),
        )
        await lab.see(lost, tainted)  # in one batch: each is told once all the same
        await lab.after(20, "n2")
        told = await lab.told()
        assert told.count(("SetNodeCondition", "n1", "confirmed")) == 1
        assert told.count(("AddTaint", "n1", "confirmed")) == 2
        assert {outcome for _, _, outcome in told} == {"confirmed"}
        changes = {c.action: c for c in await lab.changes()}
        assert changes["SetNodeCondition"].reason.startswith(
            "seen in the cluster: no sign of life for"
        )
        assert changes["ScheduleEviction"].cause == changes["AddTaint"].id

    run(story())


def test_a_renewed_lease_withdraws_all_that_was_planned(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1", tolerates_s=1))
        await lab.after(70, "n2")
        assert ("DeletePod", "p1", "would") in await lab.told()
        await lab.after(21, "n1", "n2")
        told = await lab.told()
        assert {outcome for _, _, outcome in told} == {"superseded"}
        assert next(c.why for c in await lab.changes()) == "the kubelet of n1 renewed its lease"
        assert lab.watcher.dry_run.cache.nodes["n1"].spec.taints == ()
        assert not list(lab.watcher.dry_run.projection.pending())

    run(story())


# Cold


def test_a_node_silent_since_before_the_start_is_watched_for_a_full_grace_period(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        long_ago = -300 * SECOND
        await lab.begin(node("n1", posted_ns=long_ago), lease("n1", long_ago))
        assert "cold: the daemon has only begun to watch" in " ".join(lab.look().warnings)
        assert lab.look().source["cold"] is True
        await lab.after(49)
        assert await lab.told() == []
        await lab.after(12)
        assert ("SetNodeCondition", "n1", "would") in await lab.told()
        assert not lab.look().warnings

    run(story())


def test_a_node_that_is_lost_already_stays_lost_at_the_start(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        taints = (unreachable("NoSchedule", -100 * SECOND), unreachable("NoExecute", -100 * SECOND))
        lost = node("n1", "Unknown", posted_ns=-200 * SECOND, taints=taints)
        await lab.begin(lost, node("n2"), lease("n2"), pod("p1", "n1", tolerates_s=300))
        timers = lab.look().outlook.node(lost).timers
        assert [(t.name, t.due_ns - lab.now) for t in timers] == [("p1", 200 * SECOND)]

    run(story())


def test_after_a_gap_longer_than_a_period_silence_counts_afresh(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
        await lab.after(40, "n1")
        lab.feed.states["Lease"].broken_since_ns = 1
        await lab.after(30)
        assert lab.watcher.stands_still == "no working watch of Lease"
        assert any("nothing is decided" in w for w in lab.look().warnings)
        assert await lab.told() == []
        lab.feed.states["Lease"].broken_since_ns = None
        await lab.tell(Phase("Lease", WATCHING, 30 * SECOND))
        assert lab.watcher.cold_because == "nothing was seen for 30s"
        await lab.after(45, "n1")
        assert await lab.told() == []
        await lab.after(15, "n1")
        assert {name for _, name, _ in await lab.told()} == {"n2"}

    run(story())


def test_after_a_short_gap_the_stamps_stay(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
        await lab.after(60, "n1", "n2")
        await lab.after(45, "n1")
        lab.feed.states["Lease"].broken_since_ns = 1
        await lab.after(3)
        lab.feed.states["Lease"].broken_since_ns = None
        leases = [lease("n1", 107 * SECOND), lease("n2", 60 * SECOND)]
        await lab.tell(
            Listed("Lease", [lab.version(found) for found in leases]),
            Phase("Lease", WATCHING, 3 * SECOND),
        )
        assert not lab.watcher.is_cold(lab.now)
        await lab.after(10, "n1")
        assert {name for _, name, _ in await lab.told()} == {"n2"}

    run(story())


def test_a_suspend_makes_it_cold(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
        await lab.after(60, "n1", "n2")
        lab.steady += 3600 * SECOND  # the clock that counts sleep; the other one stood still
        lab.wall += 3600 * SECOND
        await lab.see()
        assert lab.watcher.cold_because == "this machine slept for 3600s"
        assert "cold: this machine slept for 3600s" in lab.look().warnings[0]
        await lab.after(49)
        assert await lab.told() == []

    run(story())


def test_a_stepped_wall_clock_changes_nothing_but_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), lease("n1"))
        await lab.after(60, "n1")
        before = lab.now
        lab.wall += 7200 * SECOND
        await lab.after(20, "n1")
        assert lab.now - before == 20 * SECOND
        assert await lab.told() == []
        assert "this machine's clock is 7200s ahead of the API server's; ages use the server's" in (
            lab.look().warnings
        )

    run(story())


def test_a_stepped_server_clock_begins_anew_and_calls_nobody_lost(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
        await lab.after(60, "n2")
        assert ("SetNodeCondition", "n1", "would") in await lab.told()
        assert lab.server_offset is not None
        lab.server_offset += 3600 * SECOND
        await lab.see()
        told = await lab.told()
        assert {outcome for action, _, outcome in told if action == "AddTaint"} == {"superseded"}
        assert lab.watcher.cold_because == "the API server's clock was set by +3600s"
        count = len(told)
        await lab.after(49, "n2")
        assert len(await lab.told()) == count

    run(story())


# What may not be read


def test_without_leases_no_node_is_called_lost(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), pod("p1"), refused=["Lease"])
        await lab.after(400)
        assert await lab.told() == []
        sight = lab.look()
        (warning,) = sight.warnings
        assert warning.startswith("Lease cannot be read (Lease is forbidden): not evaluated:")
        assert sight.outlook.node(sight.outlook.cache.nodes["n1"]).unknown_in is None

    run(story())


def test_without_pods_nodes_are_still_watched(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), refused=["Pod"])
        await lab.after(70, "n2")
        assert ("AddTaint", "n1", "would") in await lab.told()
        assert "Pod cannot be read" in lab.look().warnings[0]
        assert "when taints evict pods" in lab.look().warnings[0]

    run(story())


def test_a_kind_that_may_be_read_later_is_taken_in(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        lost = node("n1", "Unknown", taints=(unreachable(),))
        await lab.begin(lost, node("n2"), lease("n2"), refused=["Pod"])
        state = lab.feed.states["Pod"]
        state.phase, state.error = WATCHING, ""
        await lab.tell(Listed("Pod", [lab.version(pod("p1"))]), Phase("Pod", WATCHING))
        assert lab.watcher.running() == ["node-lifecycle", "taint-eviction", "daemonset", "pod-gc"]
        assert [t.name for t in lab.look().outlook.node(lost).timers] == ["p1"]

    run(story())


def test_nothing_is_decided_before_everything_is_read(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        state = lab.feed.states["Node"]
        state.phase, state.synced = WATCHING, True
        await lab.tell(Listed("Node", [node("n1")]))
        lab.feed.states["Pod"].phase = FAILING
        lab.feed.states["Pod"].error = "no answer in time"
        assert not lab.watcher.synced.is_set()
        sight = lab.look()
        assert sight.source["synced"] is False
        assert "Pod: no answer in time" in sight.warnings[0]
        assert list(sight.outlook.cache.nodes) == ["n1"]

    run(story())


# Objects that come and go


def test_a_node_deleted_and_made_anew_under_its_name_is_another_node(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
        await lab.after(60, "n2")
        before = len(await lab.told())
        await lab.see(Gone("Node", ("", "n1")), node("n1", uid="another"))
        told = await lab.told()
        assert {o for a, n, o in told[:before] if n == "n1"} == {"superseded"}
        assert lab.watcher.dry_run.cache.nodes["n1"].spec.taints == ()
        whys = {c.why for c in await lab.changes() if c.action == "AddTaint"}
        assert "Node n1 is gone" in whys

    run(story())


def test_a_second_list_tells_what_went_and_what_changed(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1"), pod("p2"))
        kept = lab.watcher.dry_run.cache.pods["default", "p1"]
        await lab.tell(Listed("Pod", [kept, lab.version(pod("p3"))]))
        assert sorted(key[1] for key in lab.watcher.dry_run.cache.pods) == ["p1", "p3"]

    run(story())


def test_while_it_stands_still_only_the_last_word_on_each_object_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), lease("n1"))
        lab.feed.states["Lease"].broken_since_ns = 1
        for number in range(50):
            await lab.see(node("n1", posted_ns=number))
        assert len(lab.watcher._held) == 1
        lab.feed.states["Lease"].broken_since_ns = None
        await lab.tell()
        ready = lab.watcher.dry_run.cache.nodes["n1"].ready()
        assert ready is not None and ready.last_heartbeat_time == ready.last_heartbeat_time
        assert lab.watcher._held == {}

    run(story())


# Settings


def test_other_periods_keep_every_clock_and_timer(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        lost = node("n3", "Unknown", taints=(unreachable(),))
        await lab.begin(
            node("n1"), node("n2"), lost, lease("n1"), lease("n2"), pod("p3", "n3", tolerates_s=300)
        )
        await lab.after(30, "n2")
        due = lab.look().outlook.node(lost).timers[0].due_ns
        settings = make_settings("v1.36", {"node-monitor-grace-period": "35s"})
        await lab.watcher.change_settings(settings)
        assert lab.look().outlook.node(lost).timers[0].due_ns == due
        await lab.after(11, "n2")
        assert ("SetNodeCondition", "n1", "would") in await lab.told()

    run(story())


def test_another_release_begins_anew(tmp_path: Path) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
        await lab.after(60, "n2")
        await lab.watcher.change_settings(make_settings("v1.28"))
        assert {o for _, _, o in await lab.told()} == {"superseded"}
        assert lab.watcher.is_cold(lab.now)

    run(story())


@pytest.mark.parametrize("count", [300])
def test_a_storm_of_events_is_taken_in_order(tmp_path: Path, count: int) -> None:
    async def story() -> None:
        lab = make_lab(tmp_path)
        await lab.begin(node("n1"), lease("n1"))
        from kubectl_nodelife.engine.events import Put

        storm = [Put("Pod", lab.version(pod(f"p{i % 40}", tolerates_s=i))) for i in range(count)]
        await lab.tell(Happened("Pod", list(storm)))
        pods = lab.watcher.dry_run.cache.pods
        assert len(pods) == 40
        seconds = pods["default", "p0"].spec.tolerations[0].toleration_seconds
        assert seconds == max(i for i in range(count) if i % 40 == 0)

    run(story())
