"""Acts of the DaemonSet controller that are heard of before what led to them."""

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.daemon.daemonset_acts import MOST_DEFERRED
from kubectl_nodelife.daemon.decisions import ChangeSettings
from kubectl_nodelife.daemon.follower import in_order
from kubectl_nodelife.engine.events import Gone, Put
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.live.news import WatchNews
from tests.daemonset.shown import NODES, acts, agent, at_rest, begin, daemon_pod, going, revision

RECORDINGS = Path(__file__).parent / "recordings"


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


async def test_a_deletion_heard_of_before_the_sets_change_is_told(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    changed, made = lab.version(agent(2, observed=1)), lab.version(revision(2))
    doomed = lab.version(going(daemon_pod("n1")))
    events = [Put("Pod", doomed), Put("ControllerRevision", made), Put("DaemonSet", changed)]
    await lab.tell(*(WatchNews(event.kind, [event]) for event in events))
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("DeletePod", "confirmed"): 1,
    }


async def test_acts_wait_for_the_news_that_led_to_them(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    changed = lab.version(agent(2, observed=1))  # it happened first, and is told last
    old = daemon_pod("n1")
    await lab.see(revision(2))
    await lab.see(going(old))
    await lab.see(Gone("Pod", old.key), daemon_pod("n1", 2, ready=False))
    assert await acts(lab) == {}
    await lab.tell(WatchNews("DaemonSet", [Put("DaemonSet", changed)]))
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("DeletePod", "confirmed"): 1,
        ("CreatePod", "confirmed"): 1,
    }


async def test_a_surge_pod_heard_of_before_its_revision_is_no_old_pod(tmp_path: Path) -> None:
    """The race of tests/real/test_rollout_live.py, as it was recorded.

    Taken in at once the pod had a hash that our copy did not know: it was planned to go, and
    another one to take its place.
    """
    recorded = json.loads((RECORDINGS / "surge-pod-before-its-revision.json").read_bytes())
    made = {act["name"]: act for act in recorded["real"] if act["verb"] == "create"}
    heard = [made[event["name"]] for event in recorded["heardOf"]]
    assert [act["resource"] for act in heard] == ["pods", "controllerrevisions"]
    assert int(heard[0]["resourceVersion"]) > int(heard[1]["resourceVersion"])
    lab = await at_rest(tmp_path)
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    await lab.see(agent(2, observed=1, updateStrategy=surge))
    await lab.after(1, *NODES)
    [plan] = [c for c in await lab.changes() if c.action == "CreatePod"]
    on = json.loads(plan.detail)["node"]
    objects = {"pods": daemon_pod(on, 2, ready=False), "controllerrevisions": revision(2)}
    for act in heard:
        await lab.see(objects[act["resource"]])
        lab.pass_by(0.001)
    await lab.after(2, *NODES)
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("CreatePod", "confirmed"): 1,
    }


async def test_acts_for_a_set_that_is_not_known_yet_wait_for_it(tmp_path: Path) -> None:
    lab = await begin(tmp_path)
    new = lab.version(agent(1))
    await lab.see(revision(1), *(daemon_pod(n, ready=False) for n in NODES))
    await lab.tell(WatchNews("DaemonSet", [Put("DaemonSet", new)]))
    assert await acts(lab) == {
        ("CreateControllerRevision", "confirmed"): 1,
        ("CreatePod", "confirmed"): 3,
    }


async def test_what_nothing_explains_waits_for_a_moment_only(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    key = daemon_pod("n2").key
    await lab.see(going(daemon_pod("n2")))
    cache = lab.decisions.host.cache
    before = cache.pod(*key)
    assert before is not None and before.metadata.deletion_timestamp is None
    await lab.see(Gone("Pod", key))
    assert cache.pod(*key) is not None
    await lab.after(1, *NODES, every=0.3)
    assert cache.pod(*key) is None
    assert await acts(lab) == {("CreatePod", "would"): 1}


async def test_what_waits_is_not_lost_when_the_controllers_begin_anew(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    await lab.see(going(daemon_pod("n2")))
    await lab.tell(ChangeSettings(make_settings("v1.32", {})))
    pod = lab.decisions.host.cache.pod(*daemon_pod("n2").key)
    assert pod is not None and pod.metadata.deletion_timestamp is not None


async def test_what_comes_in_bulk_does_not_wait(tmp_path: Path) -> None:
    lab = await at_rest(tmp_path)
    names = [f"agent-{number}" for number in range(MOST_DEFERRED + 50)]
    pods = [daemon_pod("n1") for _ in names]
    strays = [
        replace(pod, metadata=replace(pod.metadata, name=name, uid=name))
        for pod, name in zip(pods, names, strict=True)
    ]
    await lab.see(*strays)
    assert len(lab.decisions.host.cache.pods) == 3 + 50
