"""Namespaces, webhooks and policies that stand before an eviction; what was not read."""

from typing import Any

import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from tests import objects
from tests.drain.build import Json, budget, namespace, node, plan, pods_of, replica_set
from tests.objects import manifest

NODES = [*node("a1"), *node("a2"), *node("a3")]
TIMEOUT = 30 * SECOND_NS


# --- namespaces, webhooks, policies ---------------------------------------------------------------


def test_a_terminating_namespace_never_lets_an_eviction_in() -> None:
    objects = (NODES, replica_set("web", "a1"), namespace(phase="Terminating"))
    web = pods_of(plan(*objects))["web-0"]
    assert (web.verdict, web.gate, web.start) == ("never", "namespace-terminating", None)
    assert plan(*objects, disable_eviction=True).verdict == "ready"


def test_pods_that_go_with_their_namespace_are_waited_for() -> None:
    going = {"deletionTimestamp": "2026-01-01T01:00:08Z", "deletionGracePeriodSeconds": 10}
    objects = (NODES, replica_set("web", "a1", metadata=going), namespace(phase="Terminating"))
    web = pods_of(plan(*objects))["web-0"]
    assert (web.verdict, web.gate, web.start) == ("slow", "namespace-terminating", None)
    assert web.gone == pytest.approx(8, abs=0.5)


def webhook(policy: str = "Fail", resource: str = "pods/eviction", **more: Any) -> Json:
    service = {"service": {"namespace": "guard", "name": "guard"}}
    hook = {"failurePolicy": policy, "clientConfig": service, **more}
    return objects.webhook(resource, **hook)


@pytest.mark.parametrize(
    "hook, expected",
    [
        pytest.param(webhook(), ("never", "webhook"), id="its-service-is-missing"),
        pytest.param(webhook("Ignore"), ("ready", "none"), id="ignored-when-it-fails"),
        pytest.param(webhook(resource="pods"), ("ready", "none"), id="about-pods-alone"),
        pytest.param(webhook(resource="*/*"), ("never", "webhook"), id="about-everything"),
        pytest.param(
            webhook(namespaceSelector={"matchLabels": {"guarded": "yes"}}),
            ("ready", "none"),
            id="another-namespace",
        ),
        pytest.param(
            webhook(objectSelector={"matchLabels": {"app": "web"}}),
            ("ready", "none"),
            id="an-eviction-has-no-labels",
        ),
        pytest.param(
            webhook(matchConditions=[{"name": "n", "expression": "request.name == 'other'"}]),
            ("ready", "none"),
            id="match-condition-does-not-hold",
        ),
        pytest.param(
            webhook(clientConfig={"url": "https://guard.example.com"}),
            ("unknown", "webhook"),
            id="nobody-knows-what-it-answers",
        ),
    ],
)
def test_webhooks(hook: Json, expected: tuple[str, str]) -> None:
    web = pods_of(plan(NODES, replica_set("web", "a1"), namespace(), hook))["web-0"]
    assert (web.verdict, web.gate) == expected


def policy(expression: str, actions: tuple[str, ...] = ("Deny",), **more: Any) -> list[Json]:
    rules = {"matchConstraints": {"resourceRules": [objects.admission_rule("pods/eviction")]}}
    rules |= {"validations": [{"expression": expression, "message": "not today"}], **more}
    binds = {"policyName": "no-evictions", "validationActions": list(actions)}
    return [
        manifest("ValidatingAdmissionPolicy", "no-evictions", spec=rules),
        manifest("ValidatingAdmissionPolicyBinding", "everywhere", spec=binds),
    ]


@pytest.mark.parametrize(
    "policies, expected",
    [
        pytest.param(policy("false"), ("never", "webhook"), id="denies"),
        pytest.param(policy("true"), ("ready", "none"), id="allows"),
        pytest.param(policy("false", ("Warn", "Audit")), ("ready", "none"), id="only-warns"),
        pytest.param(policy("false")[:1], ("ready", "none"), id="bound-nowhere"),
        pytest.param(
            policy("!object.metadata.name.startsWith('web')"), ("never", "webhook"), id="by-name"
        ),
        pytest.param(
            policy("object.metadata.labels.x == 'y'"), ("never", "webhook"), id="an-error-denies"
        ),
        pytest.param(
            policy("object.metadata.labels.x == 'y'", failurePolicy="Ignore"),
            ("ready", "none"),
            id="an-error-is-ignored",
        ),
        pytest.param(
            policy("request.userInfo.username != 'me'"), ("unknown", "webhook"), id="by-user"
        ),
    ],
)
def test_policies(policies: list[Json], expected: tuple[str, str]) -> None:
    web = pods_of(plan(NODES, replica_set("web", "a1"), namespace(), policies))["web-0"]
    assert (web.verdict, web.gate) == expected


def test_a_policy_that_costs_too_much_is_said_not_to_be_evaluated() -> None:
    thousand = "[" + ", ".join(map(str, range(1000))) + "]"
    costly = f"{thousand}.all(a, {thousand}.all(b, a + b >= 0))"
    web = pods_of(plan(NODES, replica_set("web", "a1"), namespace(), policy(costly)))["web-0"]
    assert (web.verdict, web.gate) == ("unknown", "webhook")
    assert web.reason.startswith(
        "ValidatingAdmissionPolicy no-evictions may refuse it: not evaluated, because it costs more"
    )


def test_a_policy_fails_its_pod_at_once_and_others_go() -> None:
    answer = plan(
        NODES,
        replica_set("web", "a1"),
        replica_set("ok", "a1"),
        policy("object.metadata.name != 'web-0'"),
        nodes=("a1", "a2"),
    )
    pods = pods_of(answer)
    assert (pods["web-0"].verdict, pods["ok-0"].verdict) == ("never", "ready")
    assert "not today" in pods["web-0"].reason
    assert answer.nodes[1].start is not None


# --- what was not read ----------------------------------------------------------------------------


def test_kinds_that_were_not_read_make_it_unknown() -> None:
    read = {"Node", "Pod", "Lease", "ReplicaSet"}
    answer = plan(NODES, replica_set("web", "a1"), read=read)
    assert answer.verdict == "unknown" and answer.estimate is not None
    kinds = {missing.kind for missing in answer.not_evaluated}
    assert "PodDisruptionBudget" in kinds and "Lease" not in kinds
    assert pods_of(answer)["web-0"].reason.endswith("; what was not read may stop it")


def test_never_stays_never_whatever_was_not_read() -> None:
    guard = budget("web", "web", healthy=1, desired=1, expected=1, minAvailable=1)
    read = {"Node", "Pod", "PodDisruptionBudget"}
    assert plan(NODES, replica_set("web", "a1"), guard, read=read).verdict == "never"


def test_a_node_without_pods_is_only_ready_if_pods_were_read() -> None:
    assert plan(NODES).verdict == "ready"
    answer = plan(NODES, read={"Node", "Lease"})
    assert answer.verdict == "unknown"
    assert [missing.kind for missing in answer.not_evaluated] == ["Pod"]
