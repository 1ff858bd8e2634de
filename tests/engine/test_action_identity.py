"""What makes two decided actions one and the same, in whatever process and in whatever words."""

from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action, AddTaints, CreatePod, DeletePod, RecordEvent
from kubectl_nodelife.engine.actions.identity import ACTION_CLASSES, action_identity
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import Taint
from tests.engine.test_action_data import filled

WHO: dict[str, Any] = {"controller": "c", "because": "b"}
POD: dict[str, Any] = {**WHO, "namespace": "d", "pod": "p", "pod_uid": "u"}
EVENT: dict[str, Any] = {**WHO, "kind": "DaemonSet", "name": "ds", "reason": "SuccessfulCreate"}


def create(owner_uid: str) -> CreatePod:
    where = {**WHO, "namespace": "d", "pod": "ds-x7k2p", "node": "n1"}
    return CreatePod(**where, manifest={}, owner="ds", owner_uid=owner_uid, revision="5f")


def taint(seconds: int) -> AddTaints:
    return AddTaints(**WHO, node="n", taints=(Taint("k", time_added=Time(seconds)),))


@pytest.mark.parametrize("kind", ACTION_CLASSES, ids=lambda kind: kind.__name__)
def test_number_cause_and_sentence_are_no_part_of_it(kind: type[Action]) -> None:
    action = filled(kind)
    told_anew = replace(action, id=action.id + 1, because="in other words")
    assert action_identity(told_anew) == action_identity(action)
    assert action_identity(replace(action, controller="another")) != action_identity(action)


@pytest.mark.parametrize(
    "one, other",
    [
        pytest.param(taint(1), taint(2), id="the-instant-of-writing"),
        pytest.param(
            DeletePod(**POD, taints=(Taint("k"),)), DeletePod(**POD), id="the-taints-that-led-to-it"
        ),
        pytest.param(
            RecordEvent(**EVENT, message="Created pod: ds-x"),
            RecordEvent(**EVENT, message="created a pod"),
            id="an-event's-message",
        ),
    ],
)
def test_texts_and_instants_are_no_part_of_it(one: Action, other: Action) -> None:
    assert action_identity(one) == action_identity(other)


@pytest.mark.parametrize(
    "one, other",
    [
        pytest.param(create("old"), create("new"), id="for-a-set-that-was-made-anew"),
        pytest.param(DeletePod(**POD), DeletePod(**{**POD, "pod_uid": "v"}), id="another-pod"),
        pytest.param(DeletePod(**POD), DeletePod(**POD, force=True), id="by-force"),
        pytest.param(
            RecordEvent(**EVENT, cause=create("old")),
            RecordEvent(**EVENT, cause=create("new")),
            id="events-of-two-creates",
        ),
    ],
)
def test_object_and_data_are(one: Action, other: Action) -> None:
    assert action_identity(one) != action_identity(other)
