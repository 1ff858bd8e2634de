"""`explain node` says who cordoned, tainted or drained it, when, why, and what undoes that."""

from typing import Any

import pytest

from tests import objects
from tests.drain.build import Json, merged, node
from tests.outlook.asking import Ask

QUESTION = "Who cordoned, tainted or drained it, and what undoes that?"
NOW = "2026-01-01T01:00:00Z"


def wrote(manager: str, at: str, *fields: str, subresource: str = "") -> Json:
    """An entry of managedFields. `fields`: `f:taints`, or `k:{"type":"Drained"}`."""
    own: Json = {"f:spec": {field: {} for field in fields}}
    if subresource:
        own = {"f:status": {"f:conditions": {field: {} for field in fields}}}
    entry = {"manager": manager, "operation": "Update", "time": f"2026-01-01T{at}Z"}
    return entry | {"fieldsV1": own} | ({"subresource": subresource} if subresource else {})


def told(ask: Ask, *objects: Any) -> list[str]:
    said = ask(list(objects), "explain", "node", "a1", "--now", NOW, "-o", "json")
    assert said.code == 0, said.err
    (found,) = (a for a in said.document["answers"] if a["question"] == QUESTION)
    return list(found["sentences"])


def a1(**more: Any) -> Json:
    """The node alone, with more in it."""
    return merged(node("a1")[0], more)


def with_managers(*managers: Json, **more: Any) -> Json:
    return a1(metadata={"managedFields": list(managers)}, **more)


CORDON = {"unschedulable": True}


def test_a_node_that_nobody_touched(ask: Ask) -> None:
    assert told(ask, node("a1")) == ["It is neither cordoned nor tainted."]


def test_a_cordon_by_a_person_is_undone_by_nobody_else(ask: Ask) -> None:
    cordoned = with_managers(wrote("kubectl", "00:50:00", "f:unschedulable"), spec=CORDON)
    assert told(ask, cordoned) == [
        "Cordoned 10m ago (2026-01-01T00:50:00Z) by kubectl (a user): nothing undoes it by itself "
        "(kubectl uncordon a1)."
    ]


@pytest.mark.parametrize(
    ("manager", "then"),
    [
        ("kured", "it uncordons the node after the reboot"),
        (
            "machine-config-controller",
            "it uncordons the node once the update is done, and cordons it for the next",
        ),
    ],
)
def test_a_cordon_by_a_program_says_what_it_does_next(ask: Ask, manager: str, then: str) -> None:
    cordoned = with_managers(wrote(manager, "00:50:00", "f:unschedulable"), spec=CORDON)
    (sentence,) = told(ask, cordoned)
    assert sentence.endswith(f"by {manager}: {then}.")


def test_without_managed_fields_it_says_how_to_get_them(ask: Ask) -> None:
    (sentence,) = told(ask, a1(spec=CORDON))
    assert "who did it is unknown: no managedFields were read" in sentence
    assert "--show-managed-fields" in sentence


def test_taints_are_told_by_whose_they_are(ask: Ask) -> None:
    taints = [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
    ]
    wrote_it = wrote("kubectl-taint", "00:58:00", "f:taints")
    assert told(ask, with_managers(wrote_it, spec={"taints": taints})) == [
        "Taint dedicated=gpu:NoSchedule by kubectl-taint (a user) 2m ago or by an earlier client: "
        "only the list's last write is kept.",
        "Taint karpenter.sh/disrupted:NoSchedule is one of Karpenter: it drains the node and "
        "deletes it.",
        "Taint node.kubernetes.io/memory-pressure:NoSchedule by node-lifecycle: it mirrors the "
        "node's conditions and ends with them.",
    ]


def drained(*conditions: Json, cordoned: bool = True) -> Json:
    keys = [f'k:{{"type":"{condition["type"]}"}}' for condition in conditions]
    manager = wrote("kubectl-nodelife-drain", "00:59:00", *keys, subresource="status")
    made = with_managers(manager, wrote("kubectl-nodelife-drain", "00:58:00", "f:unschedulable"))
    made = merged(made, {"spec": {"unschedulable": cordoned}})
    made["status"]["conditions"] += [
        {"status": "True", "lastTransitionTime": "2026-01-01T00:59:00Z", **c} for c in conditions
    ]
    return made


DRAINED = {"type": "Drained", "reason": "DrainCompleted", "message": "for the disk swap"}


def test_lifecycle_conditions_say_why(ask: Ask) -> None:
    """KEP-5683."""
    assert told(ask, drained(DRAINED)) == [
        "Cordoned 2m ago (2026-01-01T00:58:00Z) by kubectl nodelife drain (a user): nothing "
        "undoes it by itself (kubectl uncordon a1).",
        "Condition Drained=True (DrainCompleted) 60s ago (2026-01-01T00:59:00Z) by kubectl "
        "nodelife drain (a user): for the disk swap.",
    ]


def test_a_condition_that_was_forgotten_is_called_so(ask: Ask) -> None:
    """As the KEP has it: a drain in progress of a node that is not cordoned is stale."""
    found = told(ask, drained({"type": "DrainInProgress"}, cordoned=False))
    assert found[-1].endswith("The node is not cordoned: it was probably forgotten.")


def test_a_drain_is_named_by_the_pods_that_leave(ask: Ask) -> None:
    going = objects.pod(
        "web-0",
        "a1",
        deleted="2026-01-01T00:58:40Z",
        conditions=[objects.condition("DisruptionTarget", "True", "EvictionByEvictionAPI")],
        metadata={"deletionGracePeriodSeconds": 30},
    )
    cordoned = with_managers(wrote("kubectl", "00:58:00", "f:unschedulable"), spec=CORDON)
    assert told(ask, cordoned, going)[1] == (
        "Drained by kubectl (a user) 110s ago (2026-01-01T00:58:10Z): 1 pod left (pods were "
        "evicted through the Eviction API); 'kubectl nodelife replay --drain a1' shows more."
    )


def test_two_programs_that_both_take_a_node_out_of_service_are_named(ask: Ask) -> None:
    """KEP-5683, story 7: whoever is done first would put it back under the other's feet."""
    going = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    spec = CORDON | {"taints": [going]}
    kured = with_managers(wrote("kured", "00:50:00", "f:unschedulable"), spec=spec)
    assert told(ask, kured)[-1] == (
        "Several take it out of service, and the first that is done puts it back: kured (cordon); "
        "the cluster autoscaler is about to delete it (taint ToBeDeletedByClusterAutoscaler)."
    )


def test_one_program_that_cordons_and_marks_is_no_conflict(ask: Ask) -> None:
    rebooting = {"weave.works/kured-reboot-in-progress": "2026-01-01T00:50:00Z"}
    kured = with_managers(wrote("kured", "00:50:00", "f:unschedulable"), spec=CORDON)
    kured["metadata"]["annotations"] = rebooting
    assert told(ask, kured)[-1] == (
        "Its mark names what is at work on it: kured reboots it (annotation "
        "weave.works/kured-reboot-in-progress)."
    )


def test_a_person_who_cordons_and_then_drains_with_us_is_one(ask: Ask) -> None:
    by_kubectl = wrote("kubectl", "00:57:00", "f:unschedulable")
    made = merged(drained(DRAINED), {"metadata": {"managedFields": [by_kubectl]}})
    assert not any(s.startswith("Several") for s in told(ask, made))


def test_an_upgrade_run_is_named_with_its_state(ask: Ask) -> None:
    mark = '{"run":"r1","state":"Working","since":"2026-01-01T00:59:00Z","cordon":"ours"}'
    made = a1(metadata={"annotations": {"nodelife.dev/upgrade": mark}}, spec=CORDON)
    assert told(ask, made)[-1] == (
        "Upgrade run r1, which cordoned it and uncordons it: Working since 2026-01-01T00:59:00Z; "
        "'kubectl nodelife upgrade status a1' shows more."
    )


def test_a_cordon_of_an_upgrade_run_is_undone_by_it(ask: Ask) -> None:
    """Who uncordons the node by hand puts pods on one that is about to be worked on."""
    mark = '{"run":"r1","state":"Settling","since":"2026-01-01T00:59:00Z","cordon":"ours"}'
    ours = with_managers(
        wrote("kubectl-nodelife-upgrade", "00:58:00", "f:unschedulable"), spec=CORDON
    )
    ours["metadata"]["annotations"] = {"nodelife.dev/upgrade": mark}
    (said,) = [each for each in told(ask, ours) if each.startswith("Cordoned")]
    assert said.endswith(": upgrade run r1 uncordons it.")


def test_status_shows_what_is_said_to_be_done_to_a_node(ask: Ask) -> None:
    """Of the conditions of KEP 5683 those that are True; a node without any says nothing."""
    said = [
        {"type": "DrainInProgress", "status": "True"},
        {"type": "MaintenancePlanned", "status": "False"},
    ]
    busy = a1()
    busy["status"]["conditions"] += said
    objects = [busy, node("a2")]
    shown = ask(objects, "status", "--now", NOW, "-o", "json").document["nodes"]
    assert {n["name"]: n.get("lifecycleConditions") for n in shown} == {
        "a1": ["DrainInProgress"],
        "a2": None,
    }
    lines = ask(objects, "status", "--now", NOW, "-o", "wide").out.splitlines()
    assert ["DrainInProgress" in line for line in lines if line[:2] in ("a1", "a2")] == [
        True,
        False,
    ]
