"""A Deployment that rolls out: its ReplicaSets, its pods, and what happens to it meanwhile."""

from typing import Any

from tests.objects import manifest, of_kind
from tests.sim.documents import Json, found, node, story, times


def deployment(replicas: int = 3, image: str = "1", **spec: Any) -> Json:
    """`web`, whose pods need as long to stop as `podStopDuration` says."""
    container = {"name": "c", "image": f"registry.example/app:{image}"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container]},
            },
            **spec,
        },
    }


def at(seconds: int, **what: Any) -> Json:
    return {"at": f"{seconds}s", **what}


def told(*events: Json, **spec: Any) -> Any:
    """The story of a Deployment that is made at 10 s."""
    return story(
        objects=[node(f"n{i}") for i in range(4)],
        kubelet={"podStartDuration": "5s", "podStopDuration": "1s"},
        duration="5m",
        events=[at(10, apply=deployment(**spec)), *events],
    )


def scalings(done: Any) -> list[tuple[float, str]]:
    """(when, "up from 0 to 3") of each scaling."""
    words = "Scaled up replica set ", "Scaled down replica set "
    result = []
    for record in found(done, "RecordEvent", reason="ScalingReplicaSet"):
        direction = "up" if record.reason.startswith(words[0]) else "down"
        numbers = record.reason.partition(" from ")[2]
        result.append((record.at, f"{direction} {numbers.replace(' to ', '-')}"))
    return result


def test_a_new_deployment_makes_its_pods() -> None:
    done = told()
    assert scalings(done) == [(10, "up 0-3")]
    assert len(found(done, "CreatePod", controller="cluster")) == 3
    (available,) = found(done, "RecordEvent", reason="NewReplicaSetAvailable")
    assert available.at == 15
    assert done.final["pods"]["ready"] == 3


def test_a_rolling_update_goes_by_readiness_within_surge_and_unavailable() -> None:
    """25 % of 4: one more, and one missing."""
    done = told(at(60, apply=deployment(4, "2")), replicas=4)
    assert scalings(done) == [
        (10, "up 0-4"),
        (60, "up 0-1"),
        (60, "down 4-3"),
        (60, "up 1-2"),
        (65, "down 3-1"),
        (65, "up 2-4"),
        (70, "down 1-0"),
    ]
    assert done.final["pods"] == {
        "total": 4, "ready": 4, "notReady": 0, "terminating": 0, "unbound": 0, "gone": 0,
    }  # fmt: skip


def test_min_ready_seconds_hold_the_next_step() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {"strategy": rolling, "minReadySeconds": 20}
    done = told(at(60, apply=deployment(2, "2", **spec)), replicas=2, **spec)
    assert scalings(done)[1:] == [
        (60, "up 0-1"),
        (85, "down 2-1"),
        (85, "up 1-2"),
        (110, "down 1-0"),
    ]


def test_recreate_makes_no_pod_before_the_last_old_one_is_gone() -> None:
    spec = {"strategy": {"type": "Recreate"}}
    done = told(at(60, apply=deployment(3, "2", **spec)), **spec)
    assert scalings(done)[1:] == [(60, "down 3-0"), (61, "up 0-3")]


def test_a_paused_deployment_waits() -> None:
    paused = at(60, apply=deployment(2, "2", paused=True))
    resumed = at(90, apply=deployment(2, "2", paused=False))
    assert [when for when, _ in scalings(told(paused, replicas=2))] == [10]
    assert scalings(told(paused, resumed, replicas=2))[1][0] == 90


def test_going_back_scales_the_old_replica_set_up_again() -> None:
    done = told(at(60, apply=deployment(2, "2")), at(90, apply=deployment(2, "1")), replicas=2)
    made = found(done, "CreatePod", controller="cluster")
    assert made[0].detail["revision"] == made[-1].detail["revision"]
    assert len({r.detail["revision"] for r in made}) == 2


def test_a_rollout_waits_for_a_new_pod_that_does_not_become_ready() -> None:
    """Its image cannot be pulled: no more than maxUnavailable are missing."""
    waits = {"selector": "app=web", "name": "c", "state": "waiting", "reason": "ImagePullBackOff"}
    waits["selector"] = "version=2"
    new = deployment(4, "2")
    new["spec"]["template"]["metadata"]["labels"]["version"] = "2"
    done = told(at(59, container=waits), at(60, apply=new), replicas=4)
    assert scalings(done)[-1] == (60, "up 1-2")
    assert done.final["pods"]["ready"] == 3


def test_a_drain_meets_a_rollout() -> None:
    drain = at(61, drain={"nodes": ["n0"]})
    done = told(at(60, apply=deployment(4, "2")), drain, replicas=4)
    assert found(done, "RecordEvent", reason="Drained")
    assert done.final["pods"]["ready"] == done.final["pods"]["total"] == 4
    last = {r.detail["revision"] for r in found(done, "CreatePod")[-2:]}
    assert len(last) == 1


def half_way(pods_of_old: int) -> list[Json]:
    """A roll-out of 4 as another controller left it: 2 of the new template, the rest of the old."""
    made: list[Json] = []
    for image, hashed, replicas, count in (("1", "aa", 3, pods_of_old), ("2", "bb", 2, 2)):
        body = deployment(4, image)["spec"]
        labels = {"app": "web", "pod-template-hash": hashed}
        uid = f"rs-{hashed}"
        template = {**body["template"], "metadata": {"labels": labels}}
        above = {"kind": "Deployment", "name": "web", "uid": "d", "apiVersion": "apps/v1"}
        made.append(
            of_kind(
                "ReplicaSet",
                f"web-{hashed}",
                "default",
                uid=uid,
                created=f"2025-12-31T0{image}:00:00Z",
                owners=[{**above, "controller": True}],
                spec={"replicas": replicas, "template": template},
            )
        )
        for i in range(count):
            owner = {"kind": "ReplicaSet", "name": f"web-{hashed}", "uid": uid, "controller": True}
            made.append(
                manifest(
                    "Pod",
                    f"web-{hashed}-{i}",
                    "default",
                    labels=labels,
                    owners=[{**owner, "apiVersion": "apps/v1"}],
                    spec={**template["spec"], "nodeName": f"n{i}"},
                    status={
                        "phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                )
            )
    top = deployment(4, "2")
    return [*made, {**top, "metadata": {**top["metadata"], "uid": "d"}}]


def test_a_rollout_under_way_goes_on_where_all_its_pods_are_there() -> None:
    nodes = [node(f"n{i}") for i in range(4)]
    done = story(objects=[*nodes, *half_way(3)], duration="2m")
    assert [words for _, words in scalings(done)] == ["down 3-1", "up 2-4", "down 1-0"]
    assert not scalings(story(objects=[*nodes, *half_way(2)], duration="2m"))
    bare = half_way(3)
    for obj in bare:
        if obj["kind"] != "Pod":
            obj["spec"].pop("template")
    assert not scalings(story(objects=[*nodes, *bare], duration="2m"))
    assert times(found(done, "RecordEvent", reason="NewReplicaSetAvailable"))
