"""Sharing changes nothing but who holds what."""

from copy import deepcopy
from typing import Any

import msgspec

from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.live.source import SharedParts
from tests import objects
from tests.objects import typed


def pod(name: str, **changes: Any) -> Pod:
    container = {"name": "c", "image": "image", "resources": {"requests": {"cpu": "1"}}}
    document = objects.pod(
        name,
        "node-1",
        namespace="d",
        ready=True,
        labels={"app": "web", "tier": "front"},
        owner={"kind": "ReplicaSet", "name": "web", "uid": "u"},
        tolerations=[{"key": "a", "operator": "Exists"}],
        status={"containerStatuses": [{"name": "c", "image": "image", "ready": True}]},
        containers=[container],
    )
    for part, values in changes.items():
        document[part].update(values)
    return typed(msgspec.json.decode(msgspec.json.encode(document)))


def test_equal_parts_become_one_part_and_values_stay() -> None:
    sharing = SharedParts()
    first, second = pod("p1"), pod("p2")
    before = [deepcopy(encode(p)) for p in (first, second)]
    for each in (first, second):
        sharing.share(each)
    assert [encode(p) for p in (first, second)] == before
    assert first.spec.tolerations is second.spec.tolerations
    assert first.spec.containers is second.spec.containers
    assert first.metadata.labels is second.metadata.labels
    assert first.metadata.owner_references is second.metadata.owner_references
    assert first.spec.node_name is second.spec.node_name
    assert first.status.conditions[0].type is second.status.conditions[0].type


def test_parts_that_differ_stay_apart() -> None:
    sharing = SharedParts()
    labels = {"labels": {"app": "web", "tier": "back"}}
    order = {"labels": {"tier": "front", "app": "web"}}
    pods = [pod("p1"), pod("p2", metadata=labels), pod("p3", metadata=order)]
    for each in pods:
        sharing.share(each)
    assert [p.metadata.labels for p in pods] == [
        {"app": "web", "tier": "front"},
        {"app": "web", "tier": "back"},
        {"tier": "front", "app": "web"},
    ]
    assert list(pods[2].metadata.labels or ()) == ["tier", "app"]


def test_a_part_is_never_taken_for_another_field_that_encodes_alike() -> None:
    sharing = SharedParts()
    containers = [{"name": "c", "image": "image"}]
    both = pod("p1", spec={"containers": containers, "initContainers": containers})
    sharing.share(both)
    assert both.spec.containers == both.spec.init_containers
    selector = pod("p2", metadata={"labels": {"x": "y"}}, spec={"nodeSelector": {"x": "y"}})
    sharing.share(selector)
    assert selector.spec.node_selector == {"x": "y"} == selector.metadata.labels


def test_it_begins_anew_before_it_grows_without_end() -> None:
    sharing = SharedParts(limit=10)
    for number in range(50):
        sharing.share(pod(f"p{number}", metadata={"labels": {"number": str(number)}}))
        assert len(sharing._parts) <= 10
