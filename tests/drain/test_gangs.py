"""What a drain breaks that it does not look at: PodGroups, and responders to evictions."""

from tests.drain.build import node, owned, plan

NODES = [*node("a1"), *node("a2")]


def test_a_gang_that_loses_pods_is_told() -> None:
    gang = {"spec": {"schedulingGroup": {"podGroupName": "train"}}}
    places = ("a1", "a1", "a2")
    pods = [owned("Job", "batch", at, number, **gang) for number, at in enumerate(places)]
    told = [text for text in plan(NODES, pods).warnings if "PodGroup" in text]
    assert len(told) == 1
    assert told[0].startswith("PodGroup default/train loses 2 of its 3 pods: ")


def test_pods_without_a_group_and_gangs_elsewhere_are_not() -> None:
    gang = {"spec": {"schedulingGroup": {"podGroupName": "train"}}}
    pods = [owned("Job", "batch", "a2", 0, **gang), owned("Job", "other", "a1", 0)]
    assert not [text for text in plan(NODES, pods).warnings if "PodGroup" in text]


def test_responders_that_are_passed_over_are_told() -> None:
    asked = {"spec": {"evictionResponders": [{"name": "db.example/move", "priority": 1000}]}}
    pods = [owned("Job", "batch", "a1", 0, **asked), owned("Job", "other", "a1", 0)]
    told = [text for text in plan(NODES, pods).warnings if "evictionResponders" in text]
    assert told == [
        "default/batch-0: the evictionResponders are passed over, since a drain makes no "
        "EvictionRequest"
    ]
