"""Who asks for a pod's eviction by lifecycle.k8s.io: `explain pod`, `drain-plan`, `replay`; and the
health of volumes. Objects as v1.37 and v1.38 have them (KEP-4563, KEP-1432).
"""

import json
from typing import Any

import pytest

from tests.drain.build import Json, node, owned, stateful_set, workload
from tests.objects import event, manifest
from tests.outlook.asking import Ask, Said

ASKED_AT, ACTIVE_AT, HEARD_AT = (f"2026-01-01T00:{m}:00Z" for m in (50, 51, 58))
VERSION = "lifecycle.k8s.io/v1alpha1"
MOVER, EVICTOR = "move.db.example/step", "imperative-eviction.k8s.io/evictor"
TARGET = {"pod": {"name": "db-0", "uid": "uid-db-0"}}


def request(name: str = "move-db", intent: str = "Eviction", **status: Any) -> Json:
    return {
        "apiVersion": VERSION,
        "kind": "EvictionRequest",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": ASKED_AT},
        "spec": {"target": TARGET, "requester": "upgrade.example/wave", "intent": intent},
        "status": status,
    }


def eviction(states: dict[str, str], heard: str = HEARD_AT, message: str = "") -> Json:
    """The highest priority first. `states`: of each responder."""
    priorities = {MOVER: 10000, EVICTOR: 100}
    targets = [{"name": n, "priority": priorities[n], "state": s} for n, s in states.items()]
    said = [
        {"name": n, "startTime": ACTIVE_AT, "heartbeatTime": heard, "message": message}
        for n, state in states.items()
        if state == "Active"
    ]
    return {
        "apiVersion": VERSION,
        "kind": "Eviction",
        "metadata": {"name": "pod-1-db-0", "namespace": "default"},
        "spec": {"target": TARGET},
        "status": {"targetResponders": targets, "responders": said},
    }


CLUSTER = [*node("a1"), *node("a2"), *stateful_set("db", "a1")]
BOTH = {EVICTOR: "Inactive", MOVER: "Active"}


def sentences(said: Said, question: str) -> list[str]:
    assert said.code == 0, said.err
    return [
        sentence
        for answer in said.document["answers"]
        if answer["question"] == question
        for sentence in answer["sentences"]
    ]


def asked(ask: Ask, *objects: Json) -> list[str]:
    cluster = [*CLUSTER, *objects]
    said = ask(cluster, "explain", "pod", "db-0", "-n", "default", "-o", "json", "--now=" + NOW)
    return sentences(said, "Who asks for its eviction?")


NOW = "2026-01-01T01:00:00Z"


def test_who_asked_who_is_at_work_and_who_is_next(ask: Ask) -> None:
    assert asked(ask, request(), eviction(BOTH, message="moved\n3 of 8")) == [
        f"upgrade.example/wave asks for it since {ASKED_AT}: EvictionRequest move-db.",
        f"{MOVER} is at work on it since {ACTIVE_AT}: moved 3 of 8.",
        "Its last heartbeat was 2m ago: without another until 2026-01-01T01:18:00Z it counts as "
        f"interrupted, and {EVICTOR} is asked.",
        f"Asked after that, in this order: {EVICTOR}.",
    ]


def test_the_last_responder_evicts_within_budgets(ask: Ask) -> None:
    told = asked(ask, request(), eviction({MOVER: "Interrupted", EVICTOR: "Active"}))
    assert told[1] == f"Asked before: {MOVER} (Interrupted)."
    assert "within budgets" in told[3] and "nobody is left" in told[4]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (request(), "without the controllers of v1.38 nothing acts on it"),
        (request(intent="Withdrawn"), "upgrade.example/wave has withdrawn EvictionRequest"),
        (
            request(conditions=[{"type": "Failed", "status": "True", "reason": "EvictionInvalid"}]),
            "is over: Failed (EvictionInvalid)",
        ),
    ],
)
def test_requests_on_which_nothing_acts(ask: Ask, given: Json, words: str) -> None:
    assert words in asked(ask, given)[-1]


def test_words_of_a_responder_are_bounded_and_on_a_line(ask: Ask) -> None:
    told = asked(ask, request(), eviction(BOTH, message="\x1b[31mred\n" + "x" * 4000))
    assert all(len(sentence) < 400 and "\n" not in sentence for sentence in told)
    said = ask(
        [*CLUSTER, request(), eviction(BOTH, message="\x1b[31mred")],
        *("explain", "pod", "db-0", "-n", "default"),
    )
    assert "\x1b" not in said.out and "red" in said.out


def test_a_request_of_another_pod_of_that_name_is_none_of_its(ask: Ask) -> None:
    other = {"pod": {"name": "db-0", "uid": "the-one-before"}}
    before = request()
    before["spec"]["target"] = other
    assert asked(ask, before) == asked(ask) == []


def test_a_drain_plan_says_that_one_is_under_way(ask: Ask) -> None:
    def warnings(*objects: Json) -> list[str]:
        said = ask([*CLUSTER, *objects], "drain-plan", "a1", "-o", "json")
        return [text for text in said.document["warnings"] if "EvictionRequest" in text]

    assert warnings(request(), eviction(BOTH)) == [
        "the eviction of 1 pod is under way by EvictionRequests: default/db-0 (for "
        f"upgrade.example/wave, {MOVER} is at work); a drain waits for no responder"
    ]
    assert warnings() == warnings(request(intent="Withdrawn")) == []


def test_replay_tells_who_asked_and_who_began(ask: Ask) -> None:
    gone = {"type": "TargetEvicted", "status": "True", "reason": "PodDeleted"}
    gone["lastTransitionTime"] = HEARD_AT
    objects = [*CLUSTER, request(conditions=[gone]), eviction(BOTH)]
    said = ask(objects, "replay", "--since=1h", "-o", "json", "--now=" + NOW)
    assert said.code == 0, said.err
    told = [
        (item["time"], item["actor"]["name"], item["action"], item["object"]["name"])
        for item in json.loads(said.out)["items"]
        if "Eviction" in item["action"] or "TargetEvicted" in json.dumps(item)
    ]
    assert [line[1:] for line in told] == [
        ("upgrade.example/wave", "RequestEviction", "db-0"),
        (MOVER, "BeginEviction", "db-0"),
        ("evictionrequest", "SetCondition", "db-0"),
    ]


def group(minimum: int | None) -> Json:
    policy: Json = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    return manifest("PodGroup", "train", "default", spec={"schedulingPolicy": policy})


@pytest.mark.parametrize(
    ("minimum", "words"),
    [
        (2, "loses 2 of its 3 bound pods and falls to 1, below its minCount of 2: "),
        (1, ""),
        (None, ""),
    ],
)
def test_a_gang_below_its_min_count_is_certain(ask: Ask, minimum: int | None, words: str) -> None:
    member = {"spec": {"schedulingGroup": {"podGroupName": "train"}}}
    places = ("a1", "a1", "a2")
    pods = [owned("Job", "batch", at, number, **member) for number, at in enumerate(places)]
    cluster = [*node("a1"), *node("a2"), workload("Job", "batch", 3), *pods, group(minimum)]
    said = ask(cluster, "drain-plan", "a1", "-o", "json")
    told = [text for text in said.document["warnings"] if "PodGroup" in text]
    assert len(told) == bool(words)
    assert all(words in text for text in told)


def test_the_health_of_volumes_is_told_of_pod_and_node(ask: Ask) -> None:
    health = [
        {
            "name": "data",
            "healthConditions": [
                {"status": "Inaccessible", "reason": "Unreachable", "message": "no\npath"}
            ],
            "lastTransitionTime": ASKED_AT,
        },
        {"name": "fine", "healthConditions": []},
    ]
    cluster = [
        *node("a1"),
        *stateful_set("db", "a1", pod_more={"status": {"volumeHealth": health}}),
    ]
    of_pod = ask(cluster, "explain", "pod", "db-0", "-n", "default", "-o", "json")
    where = sentences(of_pod, "Where is it, and how is it?")
    assert f"Its volume data is not healthy since {ASKED_AT}: Inaccessible (Unreachable)." in where
    assert not [text for text in where if "fine" in text]
    state = sentences(ask(cluster, "explain", "node", "a1", "-o", "json"), "What state is it in?")
    assert "Volumes of its pods are not healthy: default/db-0 (data: Inaccessible)." in state


WAITING = (
    "Waiting for detach for volume pvc-1 Volume is already exclusively attached to one node, "
    "waiting on detach before it can be attached to another node"
)


def test_a_pod_that_starts_says_what_its_sandbox_and_its_volume_wait_for(ask: Ask) -> None:
    """In the words of v1.37 (`reportMultiAttachError`, `PodSandboxNotReadyReason`)."""
    sandbox = {
        "type": "PodReadyToStartContainers",
        "status": "False",
        "reason": "PodSandboxNotReady",
        "message": "pod sandbox has no IP address",
    }
    starting = {"status": {"phase": "Pending", "conditions": [sandbox]}}
    told = event(("Pod", "db-0"), "FailedAttachVolume", WAITING, when=HEARD_AT, by="attachdetach")
    failed = {**told, "type": "Warning"}
    cluster = [*node("a1"), *stateful_set("db", "a1", pod_more=starting), failed]
    said = ask(cluster, "explain", "pod", "db-0", "-n", "default", "-o", "json")
    assert sentences(said, "Why does it not start?") == [
        f"Its last Event: FailedAttachVolume: {WAITING}",
        "Its sandbox is not ready (PodSandboxNotReady): pod sandbox has no IP address.",
    ]
