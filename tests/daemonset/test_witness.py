"""The daemon's dry run beside a DaemonSet controller: what is planned, confirmed, taken back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.daemon.witness_daemonset import MOST_HELD, in_order
from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.decode import decode
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.live.source import Happened
from tests.daemon.lab import SECOND, T0, Lab, lease, make_lab, node, run

HASH = "controller-revision-hash"
NODES = ("n1", "n2", "n3")
OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds"}
OWNERS = [{**OWNER, "controller": True, "blockOwnerDeletion": True}]


def template(image: int) -> dict[str, Any]:
    containers = [{"name": "c", "image": f"agent:{image}"}]
    return {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": containers}}


def agent(image: int = 1, observed: int = 0, **spec: Any) -> DaemonSet:
    """The set as the API server has it; its generation is the image's number."""
    document = {
        "metadata": {"name": "agent", "namespace": "d", "uid": "ds", "generation": image},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template(image),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            **spec,
        },
        "status": {
            "observedGeneration": observed or image,
            "desiredNumberScheduled": 3,
            "currentNumberScheduled": 3,
            "numberReady": 3,
            "numberAvailable": 3,
            "updatedNumberScheduled": 3 if observed in (0, image) else 0,
        },
    }
    made = decode("DaemonSet", document)
    assert isinstance(made, DaemonSet)
    return made


def revision(image: int, number: int | None = None) -> ControllerRevision:
    """The real controller's revision of that image; its hash is not ours."""
    label = f"real{image}"
    document = {
        "metadata": {
            "name": f"agent-{label}",
            "namespace": "d",
            "uid": label,
            "labels": {"app": "agent", HASH: label},
            "ownerReferences": OWNERS,
        },
        "data": {"spec": {"template": {**template(image), "$patch": "replace"}}},
        "revision": number or image,
    }
    made = decode("ControllerRevision", document)
    assert isinstance(made, ControllerRevision)
    return made


def daemon_pod(on: str, image: int = 1, ready: bool = True) -> Pod:
    """The real controller's pod of that image."""
    name = f"agent-{on}-{image}"
    document = {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {"app": "agent", HASH: f"real{image}"},
            "ownerReferences": OWNERS,
        },
        "spec": {"nodeName": on, "containers": [{"name": "c", "image": f"agent:{image}"}]},
        "status": {"phase": "Running"},
    }
    made = decode("Pod", document)
    assert isinstance(made, Pod)
    condition = PodCondition("Ready", "True" if ready else "False", last_transition_time=Time(T0))
    return replace(made, status=replace(made.status, conditions=(condition,)))


def going(pod: Pod) -> Pod:
    """The pod as somebody has deleted it."""
    at = Time(T0 + 30 * SECOND)
    meta = replace(pod.metadata, deletion_timestamp=at, deletion_grace_period_seconds=30)
    return replace(pod, metadata=meta)


async def begin(folder: Path, *objects: KubeObject) -> Lab:
    """A lab whose nodes are well."""
    lab = make_lab(folder)
    await lab.begin(*(node(n) for n in NODES), *(lease(n) for n in NODES), *objects)
    return lab


async def at_rest(folder: Path) -> Lab:
    """The set has a pod of its first revision everywhere."""
    return await begin(folder, agent(), revision(1), *(daemon_pod(n) for n in NODES))


async def acts(lab: Lab) -> Counter[tuple[str, str]]:
    """(action, outcome) of what was told about pods and revisions."""
    told = await lab.told()
    return Counter((a, o) for a, _, o in told if a != "UpdateDaemonSetStatus")


async def which(lab: Lab, action: str, outcome: str) -> list[str]:
    """The objects of such changes."""
    return [name for a, name, o in await lab.told() if (a, o) == (action, outcome)]


def test_at_rest_nothing_is_planned(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        await lab.after(30, *NODES)
        assert await lab.told() == []

    run(story())


def test_without_the_real_controller_the_plans_stay_open(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        await lab.see(agent(2, observed=1))
        await lab.after(2, *NODES)
        assert await acts(lab) == {
            ("CreateControllerRevision", "would"): 1,
            ("DeletePod", "would"): 1,
        }

    run(story())


def test_an_update_seen_at_once_is_confirmed_act_by_act(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())


def test_another_of_equal_nodes_takes_the_planned_ones_place(tmp_path: Path) -> None:
    async def story() -> None:
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
        view = lab.watcher.dry_run.cache.pod("d", "agent-n1-1")
        assert view is not None and view.metadata.deletion_timestamp is None

    run(story())


def test_a_plan_that_gives_way_takes_no_other_with_it(tmp_path: Path) -> None:
    async def story() -> None:
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
        _, second = (a for a in lab.watcher.dry_run.projection.pending() if type(a) is DeletePod)
        assert second.cause is not None
        await lab.see(going(daemon_pod("n3")))
        await lab.after(1, *names)
        assert await which(lab, "DeletePod", "would") == ["agent-n2-1"]
        assert await which(lab, "DeletePod", "superseded") == ["agent-n1-1"]

    run(story())


def test_a_pod_that_nobody_planned_to_delete_is_not_told(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        await lab.see(going(daemon_pod("n2")))
        await lab.after(1, *NODES)
        assert await acts(lab) == {}

    run(story())


def test_pods_planned_under_our_hash_are_not_old_under_the_real_one(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await begin(tmp_path, agent(1, observed=0))
        await lab.after(1, *NODES)
        assert await acts(lab) == {
            ("CreateControllerRevision", "would"): 1,
            ("CreatePod", "would"): 3,
        }
        assert [c.action for c in await lab.changes(node="n2")] == ["CreatePod"]
        await lab.see(revision(1))
        await lab.after(2, *NODES)
        labels = {
            (pod.metadata.labels or {})[HASH] for pod in lab.watcher.dry_run.cache.pods_of("ds")
        }
        assert labels == {"real1"}
        await lab.see(*(daemon_pod(n, ready=False) for n in reversed(NODES)))
        await lab.after(2, *NODES)
        assert await acts(lab) == {
            ("CreateControllerRevision", "confirmed"): 1,
            ("CreatePod", "confirmed"): 3,
        }

    run(story())


def test_surge_on_another_of_equal_nodes(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())


def test_a_set_that_is_changed_again_takes_its_plans_back(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())


def test_a_revision_seen_before_its_set_leaves_no_plan_behind(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        await lab.see(revision(2))
        await lab.see(going(daemon_pod("n2")))
        await lab.after(1, *NODES)
        await lab.see(agent(2, observed=1))
        await lab.after(1, *NODES)
        told = await acts(lab)
        assert not any(outcome == "would" for _, outcome in told), told

    run(story())


def test_the_reported_status_is_held_against_ours(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())


def test_the_order_of_versions_is_the_order_of_events() -> None:
    first, second = daemon_pod("n1"), daemon_pod("n2")

    def at(obj: Any, version: str) -> Put:
        metadata = replace(obj.metadata, resource_version=version)
        return Put(type(obj).__name__, replace(obj, metadata=metadata))

    late = [at(going(first), "12"), Gone("Pod", first.key), at(second, "15"), at(agent(2), "9")]
    assert [type(e).__name__ + e.kind for e in in_order(late)] == [
        "PutDaemonSet",
        "PutPod",
        "GonePod",
        "PutPod",
    ]
    assert in_order(late)[1:] == late[:3]
    last = [Gone("Pod", first.key), at(agent(2), "9")]
    assert list(in_order(last)) == last[::-1]
    opaque = [at(first, "x"), at(agent(2), "9")]
    assert in_order(opaque) is opaque


def test_a_deletion_heard_of_before_the_sets_change_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        changed, made = lab.version(agent(2, observed=1)), lab.version(revision(2))
        doomed = lab.version(going(daemon_pod("n1")))
        events = [Put("Pod", doomed), Put("ControllerRevision", made), Put("DaemonSet", changed)]
        await lab.tell(*(Happened(event.kind, [event]) for event in events))
        assert await acts(lab) == {
            ("CreateControllerRevision", "confirmed"): 1,
            ("DeletePod", "confirmed"): 1,
        }

    run(story())


def test_acts_wait_for_the_news_that_led_to_them(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        changed = lab.version(agent(2, observed=1))  # it happened first, and is told last
        old = daemon_pod("n1")
        await lab.see(revision(2))
        await lab.see(going(old))
        await lab.see(Gone("Pod", old.key), daemon_pod("n1", 2, ready=False))
        assert await acts(lab) == {}
        await lab.tell(Happened("DaemonSet", [Put("DaemonSet", changed)]))
        assert await acts(lab) == {
            ("CreateControllerRevision", "confirmed"): 1,
            ("DeletePod", "confirmed"): 1,
            ("CreatePod", "confirmed"): 1,
        }

    run(story())


def test_acts_for_a_set_that_is_not_known_yet_wait_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await begin(tmp_path)
        new = lab.version(agent(1))
        await lab.see(revision(1), *(daemon_pod(n, ready=False) for n in NODES))
        await lab.tell(Happened("DaemonSet", [Put("DaemonSet", new)]))
        assert await acts(lab) == {
            ("CreateControllerRevision", "confirmed"): 1,
            ("CreatePod", "confirmed"): 3,
        }

    run(story())


def test_what_nothing_explains_waits_for_a_moment_only(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        key = daemon_pod("n2").key
        await lab.see(going(daemon_pod("n2")))
        cache = lab.watcher.dry_run.cache
        before = cache.pod(*key)
        assert before is not None and before.metadata.deletion_timestamp is None
        await lab.see(Gone("Pod", key))
        assert cache.pod(*key) is not None
        await lab.after(1, *NODES, every=0.3)
        assert cache.pod(*key) is None
        assert await acts(lab) == {("CreatePod", "would"): 1}

    run(story())


def test_what_waits_is_not_lost_when_the_controllers_begin_anew(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        await lab.see(going(daemon_pod("n2")))
        await lab.watcher.change_settings(make_settings("v1.32", {}))
        pod = lab.watcher.dry_run.cache.pod(*daemon_pod("n2").key)
        assert pod is not None and pod.metadata.deletion_timestamp is not None

    run(story())


def test_what_comes_in_bulk_does_not_wait(tmp_path: Path) -> None:
    async def story() -> None:
        lab = await at_rest(tmp_path)
        names = [f"agent-{number}" for number in range(MOST_HELD + 50)]
        pods = [daemon_pod("n1") for _ in names]
        strays = [
            replace(pod, metadata=replace(pod.metadata, name=name, uid=name))
            for pod, name in zip(pods, names, strict=True)
        ]
        await lab.see(*strays)
        assert len(lab.watcher.dry_run.cache.pods) == 3 + 50

    run(story())
