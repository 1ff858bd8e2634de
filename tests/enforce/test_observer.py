"""The observer finds each kind of broken rule, and nothing where the rules are kept."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.enforce.observer import Rules, Span, broken_rules, count_of_ours
from tests.objects import node, pod

Json = dict[str, Any]

OURS = "kubectl-nodelife/0.2.0 (linux/amd64) nodelife/0000000/"
RULES = Rules(grace_s=40)


def entry(
    at: float,
    agent: str,
    verb: str,
    where: str,
    answer: Json | None = None,
    sent: Json | None = None,
    code: int = 200,
) -> Json:
    """`where`: resource[/subresource] [namespace/]name."""
    resource, _, name = where.partition(" ")
    resource, _, subresource = resource.partition("/")
    namespace, _, name = name.rpartition("/")
    text = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    ref = {"resource": resource, "subresource": subresource, "namespace": namespace, "name": name}
    return {
        "requestReceivedTimestamp": text,
        "userAgent": agent,
        "verb": verb,
        "objectRef": ref,
        "responseStatus": {"code": code},
        "requestObject": sent or {},
        "responseObject": answer or {},
    }


def n1(ready: str = "True", taints: tuple[Json, ...] = ()) -> Json:
    return node("n1", ready, taints=taints, uid="node-1")


def p(**spec: Any) -> Json:
    return pod(namespace="a", uid="pod-1", **spec)


def renewal(at: float, holder: str = "me") -> Json:
    answer = {"spec": {"holderIdentity": holder}}
    where = "leases kube-system/kubectl-nodelife-enforce"
    return entry(at, OURS + "leader-election", "update", where, answer)


def heartbeat(at: float) -> Json:
    return entry(at, "kubelet", "patch", "leases kube-node-lease/n1")


def deletion(at: float, uid: str = "pod-1", who: str = "taint-eviction-controller") -> Json:
    sent = {"preconditions": {"uid": uid}} if uid else {}
    answer = {"metadata": {"uid": "pod-1", "deletionGracePeriodSeconds": 30}}
    return entry(at, OURS + who, "delete", "pods a/p", answer, sent)


VERSION = {"metadata": {"resourceVersion": "7"}}
NOEXECUTE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
ADDED = datetime.fromtimestamp(1000, UTC).isoformat()
KNOWN = [
    entry(900, "admin", "create", "nodes n1", n1()),
    entry(901, "admin", "create", "pods a/p", p()),
    heartbeat(950),
]
LOST = entry(1000, OURS + "node-controller", "update", "nodes/status n1", n1("Unknown"), VERSION)
TAINTED = entry(
    1001, OURS + "node-controller", "patch", "nodes n1", n1("Unknown", (NOEXECUTE,)),
    {**VERSION, "spec": {"taints": [NOEXECUTE]}},
)  # fmt: skip
STORY = [*KNOWN, renewal(999), LOST, TAINTED, deletion(1002)]


def test_nothing_is_found_where_the_rules_are_kept() -> None:
    assert broken_rules(STORY, RULES) == []
    assert count_of_ours(STORY) == 3


@pytest.mark.parametrize(
    "story, found",
    [
        pytest.param(
            [*KNOWN, LOST], ["no Lease of ours was renewed in time"], id="a write without a Lease"
        ),
        pytest.param(
            [*KNOWN, renewal(985), LOST],
            ["no Lease of ours was renewed in time"],
            id="a write after the renew deadline",
        ),
        pytest.param(
            [*KNOWN, renewal(998), renewal(999, ""), LOST],
            ["no Lease of ours was renewed in time"],
            id="a write after the Lease was released",
        ),
        pytest.param(
            [*KNOWN, renewal(998), {**renewal(999), "userAgent": "thief"}, LOST],
            ["no Lease of ours was renewed in time"],
            id="a write after somebody else took the Lease",
        ),
        pytest.param(
            [*KNOWN, renewal(999), LOST, TAINTED, deletion(1002, uid="")],
            ["a delete without the uid of what is deleted"],
            id="a delete without a uid",
        ),
        pytest.param(
            [*KNOWN, renewal(999), LOST, TAINTED, deletion(1002, uid="other")],
            ["a delete with the uid of another object"],
            id="a delete of another object",
        ),
        pytest.param(
            [*KNOWN, renewal(999), deletion(1002)],
            ["a pod deleted that nothing asks to go"],
            id="an eviction without a taint",
        ),
        pytest.param(
            [*KNOWN, renewal(999), deletion(1002, who="pod-garbage-collector-controller")],
            ["a pod deleted that nothing asks to go"],
            id="a running pod on a living node collected",
        ),
        pytest.param(
            [*KNOWN, heartbeat(970), renewal(999), LOST],
            ["called lost 30.0s after its kubelet was heard"],
            id="a node called lost that was heard",
        ),
        pytest.param(
            [*KNOWN, renewal(999), {**LOST, "requestObject": {}}],
            ["a node written without the version that was decided on"],
            id="a status written over a version that nobody read",
        ),
    ],
)
def test_a_broken_rule_is_found(story: list[Json], found: list[str]) -> None:
    assert [text.rpartition(": ")[2] for text in broken_rules(story, RULES)] == found


@pytest.mark.parametrize(
    "seconds, found",
    [pytest.param(1, 0, id="time is over"), pytest.param(300, 1, id="time is left")],
)
def test_a_toleration_is_respected(seconds: int, found: int) -> None:
    toleration = {"key": NOEXECUTE["key"], "operator": "Exists", "tolerationSeconds": seconds}
    tolerating = entry(902, "admin", "update", "pods a/p", p(tolerations=[toleration]))
    taint = {**NOEXECUTE, "timeAdded": ADDED}
    tainted = entry(1001, "admin", "patch", "nodes n1", n1("Unknown", (taint,)))
    story = [*KNOWN, tolerating, renewal(999), tainted, deletion(1002)]
    assert len(broken_rules(story, RULES)) == found


def test_a_taint_that_is_dated_anew_lengthens_no_toleration() -> None:
    toleration = {"key": NOEXECUTE["key"], "operator": "Exists", "tolerationSeconds": 4}
    tolerating = entry(902, "admin", "update", "pods a/p", p(tolerations=[toleration]))
    story = [*KNOWN, tolerating, renewal(1001)]
    for at in (1000, 1003):
        added = datetime.fromtimestamp(at, UTC).isoformat()
        taint = {**NOEXECUTE, "timeAdded": added}
        story.append(entry(at + 0.5, "admin", "patch", "nodes n1", n1("Unknown", (taint,))))
    assert broken_rules([*story, deletion(1004.5)], RULES) == []
    gone = entry(1003.2, "admin", "patch", "nodes n1", n1("Unknown"))
    assert len(broken_rules([*story[:-1], gone, story[-1], deletion(1004.5)], RULES)) == 1


def test_caps_are_counted_by_the_minute() -> None:
    assert broken_rules(STORY, Rules(grace_s=40, deletions=1, noexecute_taints=1)) == []
    (text,) = broken_rules(STORY, Rules(grace_s=40, deletions=0))
    assert text.endswith("1 pods deleted within a minute, 0 are allowed")


@pytest.mark.parametrize(
    "harm_only, found", [pytest.param(False, 1, id="paused"), pytest.param(True, 0, id="cold")]
)
def test_recovery_is_allowed_while_cold(harm_only: bool, found: int) -> None:
    sent = {**VERSION, "spec": {"taints": None}}
    untaint = entry(1003, OURS + "node-controller", "patch", "nodes n1", n1(), sent)
    rules = Rules(grace_s=40, quiet=(Span(1000, 1010, "held", harm_only),))
    assert len(broken_rules([*KNOWN, renewal(999), untaint], rules)) == found


def test_harm_while_cold_is_found() -> None:
    rules = Rules(grace_s=40, quiet=(Span(990, 1010, "cold", harm_only=True),))
    assert len(broken_rules(STORY, rules)) == 3
