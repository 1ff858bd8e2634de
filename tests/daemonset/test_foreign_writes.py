"""The daemon's dry run beside a DaemonSet controller: what is planned, confirmed, taken back."""

from pathlib import Path

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.events import Gone
from kubectl_nodelife.outlook.daemonset.summary import daemon_sets, summarize
from tests.daemon.lab import lease, make_lab, node
from tests.daemonset.shown import (
    HASH,
    NODES,
    acts,
    agent,
    at_rest,
    begin,
    daemon_pod,
    going,
    revision,
    which,
)


async def test_at_rest_nothing_is_planned(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    await lab.after(30, *NODES)
    assert await lab.told() == []


async def test_without_the_real_controller_the_plans_stay_open(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    await lab.see(agent(2, observed=1))
    await lab.after(2, *NODES)
    assert await acts(lab) == {("CreateControllerRevision", "would"): 1, ("DeletePod", "would"): 1}


async def test_an_update_seen_at_once_is_confirmed_act_by_act(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    old, new = daemon_pod("n1"), daemon_pod("n1", 2, ready=False)
    gone = Gone("Pod", old.key)
    await lab.see(agent(2, observed=1), revision(2), going(old), gone, new)
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("DeletePod", "confirmed"): 1,
        ("CreatePod", "confirmed"): 1,
    }
    await lab.after(5, *NODES)
    assert sum((await acts(lab)).values()) == 3


async def test_another_of_equal_nodes_takes_the_planned_ones_place(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    await lab.see(agent(2, observed=1), revision(2))
    await lab.after(1, *NODES)
    assert await which(lab, "DeletePod", "would") == ["agent-n1-1"]
    await lab.see(going(daemon_pod("n3")))
    await lab.after(1, *NODES)
    assert await which(lab, "DeletePod", "would") == []
    assert await which(lab, "DeletePod", "superseded") == ["agent-n1-1"]
    assert await which(lab, "DeletePod", "confirmed") == ["agent-n3-1"]
    (change,) = await lab.changes(outcome="superseded", pod=("d", "agent-n1-1"))
    assert change.why == "agent-n3-1 on n3 was first: which of equal nodes is next is chance"
    view = lab.decisions.host.cache.pod("d", "agent-n1-1")
    assert view is not None and view.metadata.deletion_timestamp is None


async def test_a_plan_that_gives_way_takes_no_other_with_it(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    names = [*NODES, "n4", "n5"]
    pods = [daemon_pod(n) for n in NODES]
    pods += [daemon_pod(n, 2, ready=False) for n in ("n4", "n5")]
    two = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    objects = [*map(node, names), *map(lease, names), revision(1), revision(2), *pods]
    await lab.begin(*objects, agent(2, updateStrategy=two))
    await lab.after(1, *names)
    for ready in ("n4", "n5"):  # room for one more each time, the second before all is quiet
        await lab.see(daemon_pod(ready, 2))
        await lab.after(0.001, *names)
    assert await which(lab, "DeletePod", "would") == ["agent-n1-1", "agent-n2-1"]
    _, second = (a for a in lab.decisions.host.overlay.pending() if type(a) is DeletePod)
    assert second.cause is not None
    await lab.see(going(daemon_pod("n3")))
    await lab.after(1, *names)
    assert await which(lab, "DeletePod", "would") == ["agent-n2-1"]
    assert await which(lab, "DeletePod", "superseded") == ["agent-n1-1"]


async def test_a_pod_that_nobody_planned_to_delete_is_not_told(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    await lab.see(going(daemon_pod("n2")))
    await lab.after(1, *NODES)
    assert await acts(lab) == {}


async def test_pods_planned_under_our_hash_are_not_old_under_the_real_one(tmp_path: Path) -> None:
    lab = await begin(tmp_path, agent(1, observed=0))
    await lab.after(1, *NODES)
    assert await acts(lab) == {("CreateControllerRevision", "would"): 1, ("CreatePod", "would"): 3}
    assert [c.action for c in await lab.changes(node="n2")] == ["CreatePod"]
    await lab.see(revision(1))
    await lab.after(2, *NODES)
    labels = {(pod.metadata.labels or {})[HASH] for pod in lab.decisions.host.cache.pods_of("ds")}
    assert labels == {"real1"}
    await lab.see(*(daemon_pod(n, ready=False) for n in reversed(NODES)))
    await lab.after(2, *NODES)
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("CreatePod", "confirmed"): 3,
    }


async def test_surge_on_another_of_equal_nodes(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    await lab.see(agent(2, observed=1, updateStrategy=surge), revision(2))
    await lab.after(1, *NODES)
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("CreatePod", "would"): 1,
    }
    await lab.see(daemon_pod("n3", 2, ready=False))
    await lab.after(1, *NODES)
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("CreatePod", "superseded"): 1,
        ("CreatePod", "confirmed"): 1,
    }


async def test_a_set_that_is_changed_again_takes_its_plans_back(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    await lab.see(agent(2, observed=1))
    await lab.after(1, *NODES)
    await lab.see(agent(3, observed=1))
    await lab.after(1, *NODES)
    assert await acts(lab) == {
        ("CreateControllerRevision", "superseded"): 1,
        ("CreateControllerRevision", "would"): 1,
        ("DeletePod", "superseded"): 1,
        ("DeletePod", "would"): 1,
    }


async def test_a_revision_seen_before_its_set_leaves_no_plan_behind(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    await lab.see(revision(2))
    await lab.see(going(daemon_pod("n2")))
    await lab.after(1, *NODES)
    await lab.see(agent(2, observed=1))
    await lab.after(1, *NODES)
    told = await acts(lab)
    assert not any(outcome == "would" for _, outcome in told), told


async def test_the_reported_status_is_held_against_ours(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    wrong = agent()
    wrong = replace(wrong, status=replace(wrong.status, number_ready=1))
    await lab.see(wrong)
    await lab.after(1, *NODES)
    (open_one,) = await lab.changes(outcome="would")
    assert (open_one.action, '"numberReady":3' in open_one.detail) == (
        "UpdateDaemonSetStatus",
        True,
    )
    await lab.see(agent())
    await lab.after(1, *NODES)
    assert [c.outcome for c in await lab.changes()] == ["confirmed"]


async def test_answers_are_about_what_is_shown_and_not_what_is_planned(tmp_path: Path) -> None:
    lab = await begin(tmp_path, agent(1))
    await lab.after(1, *NODES)
    assert ("CreatePod", "would") in await acts(lab)
    sets = daemon_sets(lab.look(), "d")()
    view = sets.view(("d", "agent"))
    assert view is not None
    assert (view.revisions, list(view.pods()), view.status().number_ready) == ([], [], 0)
    assert view.daemon_set.status.number_ready == 3
    assert summarize(sets, ("d", "agent")).odd[:2] == [
        "no pod on n1, n2, n3",
        "reported current 3, counted 0; ready 3, counted 0; up to date 3, counted 0; "
        "available 3, counted 0",
    ]
