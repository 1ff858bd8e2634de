"""The requests of each action, call by call, with what follows an error (upstream's table)."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls import (
    CONVERSATIONS,
    Answer,
    Call,
    Evict,
    Get,
    Result,
    WaitUntil,
    Write,
    converse,
    drive,
    request_of,
    request_of_call,
)
from kubectl_nodelife.kube.meta import KubeObject, OwnerReference, Time
from kubectl_nodelife.kube.node import Node, NodeCondition, Taint
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import MILLISECOND_NS, SECOND_NS
from kubectl_nodelife.kube.workload import DaemonSet, DaemonSetStatus
from tests import objects
from tests.call_cases import CASES
from tests.objects import owner, typed, workload
from tests.planned import create_pod, lost, not_ready, on_node, on_pod, tainted

NOW = 1_800_000_000 * SECOND_NS
WHO: dict[str, Any] = {"controller": "c", "because": "b"}
OLD = Taint("old", "NoSchedule")


def node(*taints: Taint, version: str = "7", ready: str = "True", **more: Any) -> Node:
    return typed(objects.node("n1", ready, taints=taints, version=version, **more))


def pod(version: str = "5", **more: Any) -> Pod:
    return typed(objects.pod(version=version, **more))


def play(action: Action, seen: KubeObject | None, *answers: Answer) -> tuple[list[str], Result]:
    """The calls that were made, in words, with these answers to all but waits."""
    made: list[str] = []
    waiting = list(answers)

    def answer(call: Call) -> Answer:
        made.append(words(call))
        if isinstance(call, WaitUntil):
            return Answer(200, now_ns=call.at_ns)
        return waiting.pop(0)

    result = drive(converse(action, seen, NOW), answer)
    assert not waiting, f"{len(waiting)} answers were not asked for"
    return made, result


def words(call: Call) -> str:
    if isinstance(call, WaitUntil):
        until = (call.at_ns - NOW) // MILLISECOND_NS
        latest = f"-{(call.latest_ns - NOW) // MILLISECOND_NS}" if call.latest_ns else ""
        return f"wait {until}{latest}ms"
    if isinstance(call, Get):
        return f"GET {call.kind}{'' if call.quorum else ' cached'}"
    request = request_of_call(call)
    below = "/eviction" if isinstance(call, Evict) else f"/{getattr(call, 'subresource', '')}"
    return f"{request.method} {call.kind}{below.rstrip('/')}"


def ok(obj: KubeObject | None = None) -> Answer:
    return Answer(200, obj, now_ns=NOW)


def no(code: int, reason: str = "", message: str = "") -> Answer:
    return Answer(code, reason=reason, message=message, now_ns=NOW)


GONE = no(404, "NotFound")
CONFLICT = no(409, "Conflict")
LOST = no(0)

MARK = not_ready()
TAINT = tainted("n1", Taint("k", "NoExecute"))
UNTAINT = on_node(actions.RemoveTaints, taints=(OLD,))
UNKNOWN = lost(conditions=(NodeCondition("Ready", "Unknown"),))
LABEL = on_node(actions.SetNodeLabels, labels={"a": "b"})
DELETE = on_pod(actions.DeletePod)
ORPHAN = replace(DELETE, grace_period_seconds=0, force=True, if_node_gone="n1")
OUT = replace(DELETE, grace_period_seconds=0, force=True, if_node_out_of_service="n1")
TARGETED = on_pod(actions.SetPodCondition, condition=PodCondition("DisruptionTarget", "True"))
HASH = {"controller-revision-hash": "h"}
CREATE = create_pod(
    "s-abcde",
    owner="s",
    manifest={"metadata": {"name": "s-abcde", "labels": HASH}},
    revision="h",
)


def listed(*pods: tuple[str, str, str]) -> Answer:
    """A list of pods: name, node, uid of the set that owns it."""
    items = [objects.pod(name, on, owner=owner("DaemonSet", "s", of)) for name, on, of in pods]
    return Answer(200, raw={"kind": "PodList", "items": items}, now_ns=NOW)


EVICT = on_pod(actions.EvictPod)
STATUS = actions.UpdateDaemonSetStatus(
    **WHO,
    namespace="default",
    name="s",
    object_uid="uid-s",
    status=DaemonSetStatus(desired_number_scheduled=3),
)
SET: DaemonSet = typed(workload("DaemonSet", "s", version="3"))
ADOPT = actions.AdoptObject(
    **WHO,
    kind="Pod",
    namespace="default",
    name="p",
    object_uid="uid-p",
    owner=OwnerReference("DaemonSet", "s", "uid-s", "apps/v1", True, True),
)
MARKED = on_pod(actions.SetPodPhase, phase="Failed", if_node_gone="n1")
DELETING = Time(NOW)
OUT_TAINT = Taint("node.kubernetes.io/out-of-service", "NoExecute")


@pytest.mark.parametrize(
    "action, seen, answers, calls, code",
    [
        pytest.param(UNKNOWN, node(), [ok(node())], ["PATCH Node/status"], 200, id="status"),
        pytest.param(
            UNKNOWN,
            node(),
            [CONFLICT, ok(node(version="8"))],
            ["PATCH Node/status", "GET Node"],
            409,
            id="status-conflict-reads-for-who-decides-anew",
        ),
        pytest.param(
            UNKNOWN,
            node(),
            [LOST, ok(node(ready="Unknown"))],
            ["PATCH Node/status", "GET Node"],
            200,
            id="status-answer-lost-and-found-done",
        ),
        pytest.param(
            UNKNOWN,
            node(),
            [no(503), no(503)],
            ["PATCH Node/status", "GET Node"],
            503,
            id="status-error-and-unreadable-is-given-up",
        ),
        pytest.param(
            TAINT,
            None,
            [ok(node()), ok(node())],
            ["GET Node cached", "PATCH Node"],
            200,
            id="taint",
        ),
        pytest.param(
            UNTAINT, None, [ok(node())], ["GET Node cached"], 200, id="nothing-to-untaint"
        ),
        pytest.param(
            TAINT,
            None,
            [ok(node(Taint("k", "NoExecute")))],
            ["GET Node cached"],
            200,
            id="a-taint-that-is-there-with-the-same-stamp",
        ),
        pytest.param(
            TAINT,
            None,
            [ok(node()), CONFLICT, ok(node()), ok(node())],
            ["GET Node cached", "PATCH Node", "wait 100-200ms", "GET Node", "PATCH Node"],
            200,
            id="taint-conflict-reads-past-the-cache",
        ),
        pytest.param(
            TAINT,
            None,
            [ok(node()), CONFLICT] * 5,
            ["GET Node cached", "PATCH Node", "wait 100-200ms"]
            + ["GET Node", "PATCH Node", "wait 100-200ms"] * 3
            + ["GET Node", "PATCH Node"],
            409,
            id="taint-five-tries",
        ),
        pytest.param(
            TAINT, None, [ok(node(uid="other"))], ["GET Node cached"], 404, id="taint-another-node"
        ),
        pytest.param(
            LABEL,
            None,
            [ok(node()), CONFLICT, ok(node()), ok(node())],
            ["GET Node cached", "PATCH Node", "wait 100-200ms", "GET Node", "PATCH Node"],
            200,
            id="labels-conflict-reads-past-the-cache",
        ),
        pytest.param(MARK, pod(), [CONFLICT], ["PATCH Pod/status"], 409, id="mark-conflict"),
        pytest.param(
            TARGETED,
            None,
            [ok(pod()), ok(pod())],
            ["GET Pod", "PATCH Pod/status"],
            200,
            id="disruption-target",
        ),
        pytest.param(DELETE, pod(), [ok()], ["DELETE Pod"], 200, id="delete"),
        pytest.param(DELETE, pod(), [GONE], ["DELETE Pod"], 404, id="delete-gone-already"),
        pytest.param(
            DELETE, pod(), [LOST, GONE], ["DELETE Pod", "GET Pod"], 200, id="delete-lost-and-done"
        ),
        pytest.param(
            DELETE,
            pod(),
            [no(500), ok(pod())],
            ["DELETE Pod", "GET Pod"],
            500,
            id="delete-failed-and-not-done",
        ),
        pytest.param(
            ORPHAN,
            pod(),
            [ok(pod()), GONE, ok()],
            ["GET Pod", "GET Node", "DELETE Pod"],
            200,
            id="orphan",
        ),
        pytest.param(
            ORPHAN,
            pod(),
            [ok(pod()), ok(node())],
            ["GET Pod", "GET Node"],
            409,
            id="orphan-whose-node-is-there",
        ),
        pytest.param(
            ORPHAN,
            pod(),
            [ok(pod()), no(404, "", "<html>")],
            ["GET Pod", "GET Node"],
            404,
            id="orphan-a-proxy-404-is-no-absence",
        ),
        pytest.param(
            OUT,
            pod(deleted=NOW),
            [ok(pod(deleted=NOW)), ok(node(OUT_TAINT, ready="False")), ok()],
            ["GET Pod", "GET Node", "DELETE Pod"],
            200,
            id="out-of-service",
        ),
        pytest.param(
            OUT,
            pod(deleted=NOW),
            [ok(pod(deleted=NOW)), ok(node(OUT_TAINT))],
            ["GET Pod", "GET Node"],
            409,
            id="out-of-service-but-ready-again",
        ),
        pytest.param(
            replace(ORPHAN, if_node_gone=""),
            pod(phase="Failed"),
            [ok(pod(phase="Running"))],
            ["GET Pod"],
            409,
            id="terminated-pod-that-runs-again",
        ),
        pytest.param(
            MARKED,
            pod(),
            [ok(pod()), GONE, ok(pod())],
            ["GET Pod", "GET Node", "PATCH Pod/status"],
            200,
            id="phase-of-an-orphan",
        ),
        pytest.param(CREATE, None, [ok(pod())], ["POST Pod"], 200, id="create"),
        pytest.param(CREATE, None, [no(403)], ["POST Pod"], 403, id="create-refused"),
        pytest.param(
            CREATE,
            None,
            [LOST, listed(("s-other", "n2", "uid-s"), ("s-abcde", "n1", "uid-s"))],
            ["POST Pod", "GET PodList"],
            200,
            id="create-lost-and-done",
        ),
        pytest.param(
            CREATE,
            None,
            [LOST, listed(("x", "n1", "uid-s"))],
            ["POST Pod", "GET PodList"],
            200,
            id="create-lost-and-the-owner-has-a-pod-there",
        ),
        pytest.param(
            CREATE,
            None,
            [
                LOST,
                listed(("s-abcde", "n1", "uid-other")),
                no(409),
                listed(("s-abcde", "n1", "uid-s")),
            ],
            ["POST Pod", "GET PodList", "wait 1000ms", "POST Pod", "GET PodList"],
            200,
            id="create-lost-and-on-its-way-still",
        ),
        pytest.param(
            CREATE,
            None,
            [no(504), LOST, no(503), listed(), ok(pod())],
            [
                *["POST Pod", "GET PodList", "wait 1000ms", "GET PodList", "wait 2000ms"],
                *["GET PodList", "wait 4000ms", "POST Pod"],
            ],
            200,
            id="create-lost-and-nothing-can-be-read-for-a-while",
        ),
        pytest.param(
            CREATE,
            None,
            [no(500, "InternalError"), listed()],
            ["POST Pod", "GET PodList"],
            500,
            id="create-failed-and-not-done",
        ),
        pytest.param(
            EVICT,
            None,
            [no(429), ok(pod()), no(429), ok(pod()), ok()],
            ["POST Pod/eviction", "wait 5000ms", "GET Pod"] * 2 + ["POST Pod/eviction"],
            200,
            id="eviction-waits-for-its-budget",
        ),
        pytest.param(
            EVICT,
            None,
            [no(429), ok(pod(uid="other"))],
            ["POST Pod/eviction", "wait 5000ms", "GET Pod"],
            200,
            id="evicted-by-another",
        ),
        pytest.param(
            EVICT, None, [no(500)], ["POST Pod/eviction"], 500, id="two-budgets-fail-the-pod"
        ),
        pytest.param(STATUS, SET, [ok(SET)], ["PATCH DaemonSet/status"], 200, id="set-status"),
        pytest.param(
            replace(STATUS, reread=True),
            SET,
            [ok(SET), ok(SET)],
            ["GET DaemonSet", "PATCH DaemonSet/status"],
            200,
            id="set-status-second-try-reads",
        ),
        pytest.param(
            ADOPT, pod(), [ok(SET), ok(pod())], ["GET DaemonSet", "PATCH Pod"], 200, id="adopt"
        ),
        pytest.param(
            ADOPT,
            pod(),
            [ok(replace(SET, metadata=replace(SET.metadata, deletion_timestamp=DELETING)))],
            ["GET DaemonSet"],
            409,
            id="a-terminating-owner-adopts-nothing",
        ),
        pytest.param(
            ADOPT, pod(), [GONE], ["GET DaemonSet"], 409, id="an-owner-that-is-gone-adopts-nothing"
        ),
    ],
)
def test_conversation(
    action: Action, seen: KubeObject | None, answers: list[Answer], calls: list[str], code: int
) -> None:
    made, result = play(action, seen, *answers)
    assert (made, result.code) == (calls, code)


@pytest.mark.parametrize(
    "action, seen, metadata",
    [
        pytest.param(UNKNOWN, node(), {"uid": "uid-n1", "resourceVersion": "7"}, id="node-status"),
        pytest.param(TAINT, node(), {"resourceVersion": "7"}, id="taints-as-upstream"),
        pytest.param(
            LABEL, node(), {"labels": {"a": "b"}, "uid": "uid-n1"}, id="labels-without-a-version"
        ),
        pytest.param(MARK, pod(), {"uid": "uid-p", "resourceVersion": "5"}, id="mark"),
        pytest.param(TARGETED, pod(), {"uid": "uid-p"}, id="disruption-target-as-upstream"),
        pytest.param(STATUS, SET, {"uid": "uid-s", "resourceVersion": "3"}, id="set-status"),
    ],
)
def test_preconditions(action: Action, seen: KubeObject, metadata: dict[str, str]) -> None:
    request = request_of(action, seen)
    assert request is not None and request.body["metadata"] == metadata


def test_the_second_patch_of_a_swap_has_the_version_of_its_own_read() -> None:
    """Both of one version: the second would always fail."""
    bodies = []
    for action, version in ((TAINT, "7"), (UNTAINT, "8")):
        sent = converse(action, node(OLD), NOW)
        next(sent)
        call = sent.send(ok(node(OLD, version=version)))
        assert not isinstance(call, (Get, WaitUntil))
        bodies.append(request_of_call(call).body["metadata"])
    assert bodies == [{"resourceVersion": "7"}, {"resourceVersion": "8"}]


def test_unknown_fields_of_a_taint_stay() -> None:
    conversation = converse(TAINT, None, NOW)
    next(conversation)
    raw = {"spec": {"taints": [{"key": "old", "effect": "NoSchedule", "newField": 1}]}}
    call = conversation.send(Answer(200, node(OLD), raw, now_ns=NOW))
    assert not isinstance(call, (Get, WaitUntil))
    assert request_of_call(call).body["spec"]["taints"][0]["newField"] == 1


def test_every_delete_carries_the_uid() -> None:
    for action in (DELETE, replace(ORPHAN, if_node_gone="")):
        request = request_of(action, pod())
        assert request is not None and request.body["preconditions"]["uid"] == "uid-p"


ENGINE = "kubectl_nodelife.engine."
"""Whose actions are calls; what the simulation makes of them besides is its own."""


def writing_actions(kind: type[Action] = Action) -> Sequence[type[Action]]:
    """Every action class of the package that stands for a call to the API server."""
    ours = [sub for sub in kind.__subclasses__() if sub.__module__.startswith(ENGINE)]
    if ours:
        return [found for sub in ours for found in writing_actions(sub)]
    return [kind] if kind.writes else []


def test_every_action_has_a_conversation_and_is_played() -> None:
    writing = set(writing_actions())
    assert writing == CONVERSATIONS.keys(), "rule: each writing action has a conversation"
    played = {case.title.split()[0] for case in CASES}
    assert played == {found.__name__ for found in writing}, "rule: each is played on a server"


def test_what_would_be_sent_is_said_without_sending() -> None:
    request = request_of(TAINT, node(OLD))
    assert request is not None
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/n1")
    assert request.body["spec"]["taints"] == [
        {"key": "old", "effect": "NoSchedule"},
        {"key": "k", "effect": "NoExecute"},
    ]
    assert request_of(UNTAINT, node()) is None, "there is nothing to take off"


def test_a_write_is_a_write() -> None:
    assert not isinstance(Get("Node", ("", "n")), Write)
