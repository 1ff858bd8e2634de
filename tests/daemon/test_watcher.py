"""The dry run beside a running cluster: when it calls a node lost, and how what it planned ends."""

from pathlib import Path

from msgspec.structs import replace

from kubectl_nodelife.engine.events import Gone
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition, Toleration
from kubectl_nodelife.live.news import WATCHING, KindPhase, ListNews
from tests.daemon.lab import SECOND, lease, make_lab, node, pod, unreachable


async def test_a_lost_node_is_planned_through_to_its_pods_and_nothing_is_shown_of_it(
    tmp_path: Path,
) -> None:
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
    assert shown.cache.nodes["n1"] == lab.decisions.host.overlay.shown("Node", ("", "n1"))
    ready = shown.cache.nodes["n1"].ready()
    assert ready is not None and ready.status == "True"
    pods = list(shown.cache.pods_on("n1"))
    assert [p.name for p in pods] == ["p1"]
    assert pods[0].metadata.deletion_timestamp is None


async def test_each_change_names_the_one_that_led_to_it_and_the_request(tmp_path: Path) -> None:
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


async def test_what_the_cluster_then_shows_is_confirmed(tmp_path: Path) -> None:
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


async def test_what_another_hand_does_first_is_told_once_and_is_a_cause(tmp_path: Path) -> None:
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
    assert changes["SetNodeCondition"].reason.startswith("seen in the cluster: no sign of life for")
    assert changes["ScheduleEviction"].cause == changes["AddTaint"].id


async def test_a_renewed_lease_withdraws_all_that_was_planned(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1", tolerates_s=1))
    await lab.after(70, "n2")
    assert ("DeletePod", "p1", "would") in await lab.told()
    await lab.after(21, "n1", "n2")
    told = await lab.told()
    assert {outcome for _, _, outcome in told} == {"superseded"}
    assert next(c.why for c in await lab.changes()) == "the kubelet of n1 renewed its lease"
    assert lab.decisions.host.cache.nodes["n1"].spec.taints == ()
    assert not list(lab.decisions.host.overlay.pending())


async def test_news_that_come_together_are_not_taken_for_another_hand(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), pod("p1"))
    await lab.after(70, "n2")
    assert ("AddTaint", "n1", "would") in await lab.told()
    await lab.see(lease("n1", 70 * SECOND), node("n1", posted_ns=70 * SECOND))
    assert {outcome for _, _, outcome in await lab.told()} == {"superseded"}


async def test_a_pod_that_is_seen_marked_before_its_node_is_told_with_it(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    there, other = pod("p1", "n1"), pod("p2", "n1")
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), there, other)
    unready = PodCondition("Ready", "False")
    marked = replace(there.status, conditions=(unready,))
    by_kubelet = (unready, PodCondition("ContainersReady", "False"))
    await lab.see(replace(there, status=marked))
    await lab.see(replace(other, status=replace(other.status, conditions=by_kubelet)))
    assert await lab.told() == []
    await lab.see(node("n1", "Unknown", reason="NodeStatusUnknown"))
    assert [t for t in await lab.told() if t[0] == "MarkPodNotReady"] == [
        ("MarkPodNotReady", "p1", "confirmed")
    ]


async def test_a_pod_that_pod_gc_takes_is_told_once(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    there = pod("p1", "n1")
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"), there)
    await lab.see(Gone("Node", ("", "n1")))
    marked = PodCondition("DisruptionTarget", "True", "DeletionByPodGC")
    failed = replace(there.status, phase="Failed", conditions=(marked,))
    await lab.see(replace(there, status=failed))
    ending = replace(there.metadata, deletion_timestamp=Time(lab.now))
    await lab.see(replace(there, status=failed, metadata=ending), Gone("Pod", there.key))
    told = [t for t in await lab.told() if t[1] == "p1"]
    assert told == [("SetPodCondition", "p1", "confirmed"), ("DeletePod", "p1", "confirmed")]


# Cold


async def test_a_node_silent_since_before_the_start_is_watched_for_a_full_grace_period(
    tmp_path: Path,
) -> None:
    lab = make_lab(tmp_path)
    long_ago = -300 * SECOND
    await lab.begin(node("n1", posted_ns=long_ago), lease("n1", long_ago))
    assert "warming up: the daemon has just started" in " ".join(lab.look().warnings)
    assert lab.look().source["cold"] is True
    await lab.after(49)
    assert await lab.told() == []
    await lab.after(12)
    assert ("SetNodeCondition", "n1", "would") in await lab.told()
    assert not lab.look().warnings


async def test_a_node_that_is_lost_already_stays_lost_at_the_start(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    taints = (unreachable("NoSchedule", -100 * SECOND), unreachable("NoExecute", -100 * SECOND))
    lost = node("n1", "Unknown", posted_ns=-200 * SECOND, taints=taints)
    await lab.begin(lost, node("n2"), lease("n2"), pod("p1", "n1", tolerates_s=300))
    timers = lab.look().outlook.node(lost).timers
    assert [(t.name, t.due_ns - lab.now) for t in timers] == [("p1", 200 * SECOND)]


async def test_after_a_gap_longer_than_a_period_silence_counts_afresh(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
    await lab.after(40, "n1")
    lab.feed.states["Lease"].broken_since_ns = 1
    await lab.after(30)
    assert lab.decisions.stands_still == "no working watch of Lease"
    assert any("nothing is decided" in w for w in lab.look().warnings)
    assert await lab.told() == []
    lab.feed.states["Lease"].broken_since_ns = None
    await lab.tell(KindPhase("Lease", WATCHING, 30 * SECOND))
    assert lab.decisions.cold_because == "nothing was seen for 30s"
    await lab.relist(lease("n1", 40 * SECOND), lease("n2"))
    await lab.after(45, "n1")
    assert await lab.told() == []
    await lab.after(15, "n1")
    assert {name for _, name, _ in await lab.told()} == {"n2"}


async def test_after_a_short_gap_the_stamps_stay(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
    await lab.after(60, "n1", "n2")
    await lab.after(45, "n1")
    lab.feed.states["Lease"].broken_since_ns = 1
    await lab.after(3)
    lab.feed.states["Lease"].broken_since_ns = None
    leases = [lease("n1", 107 * SECOND), lease("n2", 60 * SECOND)]
    await lab.tell(
        ListNews("Lease", [lab.version(found) for found in leases]),
        KindPhase("Lease", WATCHING, 3 * SECOND),
    )
    assert not lab.decisions.is_cold(lab.now)
    await lab.after(10, "n1")
    assert {name for _, name, _ in await lab.told()} == {"n2"}


async def test_a_suspend_makes_it_cold(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await lab.begin(node("n1"), node("n2"), lease("n1"), lease("n2"))
    await lab.after(60, "n1", "n2")
    lab.sleep(3600)
    await lab.see()
    await lab.relist(node("n1"), node("n2"), lease("n1"), lease("n2"))
    assert lab.decisions.cold_because == "this machine slept for 3600s"
    assert "warming up: this machine slept for 3600s" in lab.look().warnings[0]
    await lab.after(49)
    assert await lab.told() == []


async def test_a_stepped_wall_clock_changes_nothing_but_is_said(tmp_path: Path) -> None:
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


def tolerating(name: str, key: str) -> Pod:
    """A pod on n2 that tolerates that taint for an hour."""
    there = pod(name, "n2")
    terms = (Toleration(key=key, operator="Exists", toleration_seconds=3600),)
    return replace(there, spec=replace(there.spec, tolerations=terms))


async def test_a_stepped_server_clock_begins_anew_and_calls_nobody_lost(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    by_hand = Taint("mine", "NoExecute")
    tainted = node("n2", taints=(by_hand,))
    await lab.begin(node("n1"), tainted, lease("n1"), lease("n2"), tolerating("p1", "mine"))
    await lab.after(60, "n2")
    assert ("SetNodeCondition", "n1", "would") in await lab.told()
    assert ("ScheduleEviction", "p1", "would") in await lab.told()
    assert lab.server_offset is not None
    lab.server_offset += 3600 * SECOND
    await lab.see()
    assert lab.decisions.stands_still.startswith("the API server's clock was set by +3600s")
    shown = (node("n1"), tainted, lease("n1"), lease("n2"), tolerating("p1", "mine"))
    await lab.relist(*shown)
    told = await lab.told()
    assert told.count(("ScheduleEviction", "p1", "superseded")) == 1
    assert [t for t in told if t[2] == "would"] == [("ScheduleEviction", "p1", "would")]
    assert lab.decisions.cold_because == "the API server's clock was set by +3600s"
    count = len(told)
    await lab.after(49, "n2")
    assert len(await lab.told()) == count


# What may not be read
