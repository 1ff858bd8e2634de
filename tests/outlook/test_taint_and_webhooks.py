"""`explain node --taint`, and the webhooks that are asked before a node's pods are evicted."""

from typing import Any

from tests import objects
from tests.drain.build import Json, namespace, node, owned, pod
from tests.outlook.asking import Ask

QUESTION = "Which webhooks are asked before an eviction here?"


def tolerant(name: str, seconds: int | None, **more: Any) -> Json:
    """A pod on a1 that tolerates the key `maintenance` for so long, None: for ever."""
    toleration: Json = {"key": "maintenance", "operator": "Exists"}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds
    return pod(name, "a1", spec={"tolerations": [toleration]}, **more)


CLUSTER: list[Any] = [
    node("a1"),
    pod("now", "a1"),
    tolerant("later", 120),
    tolerant("never", None),
    pod("elsewhere", "a2"),
]


def told(ask: Ask, *words: str) -> list[str]:
    """The sentences of all answers."""
    said = ask(CLUSTER, "explain", "node", "a1", *words, "-o", "json")
    assert said.code == 0, said.err
    return [s for a in said.document["answers"] for s in a["sentences"]]


def test_a_taint_says_who_goes_now_who_later_who_never_and_that_budgets_are_ignored(
    ask: Ask,
) -> None:
    sentences = told(ask, "--taint", "maintenance=now:NoExecute")
    assert sentences[:3] == [
        "It loses 1 pod at once: default/now: it does not tolerate maintenance=now:NoExecute.",
        "In 2m it loses 1 pod: default/later: it tolerates that for 120s (toleration maintenance "
        "Exists, every effect, tolerationSeconds 120).",
        "1 pod stays: default/never: it tolerates that for ever (toleration maintenance Exists, "
        "every effect).",
    ]
    assert any(s.startswith("Budgets are ignored") for s in sentences)
    assert any("kubectl taint node a1 maintenance=now:NoExecute" in s for s in sentences)


def test_a_pod_that_tolerates_by_comparison_stays_where_the_gate_is_on(ask: Ask) -> None:
    """KEP-5471: Gt tolerates a taint whose value is greater."""
    toleration = {"key": "level", "operator": "Gt", "value": "3", "effect": "NoExecute"}
    level = {"key": "level", "value": "5", "effect": "NoExecute"}
    level["timeAdded"] = "2026-01-01T00:30:00Z"
    tainted = node("a1", spec={"taints": [level]})
    cluster: list[Any] = [tainted, pod("high", "a1", spec={"tolerations": [toleration]})]
    gate = ("--profile", "v1.36", "--set", "feature-gates=TaintTolerationComparisonOperators=true")
    for words, off, on in (
        (("explain", "node", "a1"), "high would be deleted at once", "high stays, whatever"),
        (("audit",), "not-evicted", ""),
    ):
        before, after = (ask(cluster, *words, *more, "-o", "json").out for more in (gate[:2], gate))
        assert off in before, words
        assert off not in after, words
        assert on in after, words


def test_the_audit_of_a_lost_node_compares_values_where_the_gate_is_on(ask: Ask) -> None:
    """Beside the controller's own taint the node has one that the pod tolerates by Gt."""
    lost = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    level = {"key": "level", "value": "5", "effect": "NoExecute"}
    tolerations = [
        {"key": lost["key"], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "level", "operator": "Gt", "value": "3", "effect": "NoExecute"},
    ]
    since = "2026-01-01T00:20:00Z"
    conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]
    tainted = node(
        "a1",
        spec={"taints": [{**taint, "timeAdded": since} for taint in (lost, level)]},
        status={"conditions": conditions},
    )
    running = {"name": "c", "ready": True, "state": {"running": {"startedAt": since}}}
    stale = pod("high", "a1", spec={"tolerations": tolerations})
    stale["status"]["containerStatuses"] = [running]
    gate = ("--profile", "v1.36", "--set", "feature-gates=TaintTolerationComparisonOperators=true")
    for more, because in (
        (gate[:2], "it does not tolerate level=5:NoExecute"),
        (gate, "it tolerates that for 300s"),
    ):
        found = ask([tainted, stale], "audit", *more, "-o", "json").out
        assert because in found


def test_other_effects_put_nobody_out(ask: Ask) -> None:
    assert told(ask, "--taint", "maintenance:NoSchedule") == [
        "Nothing: NoSchedule keeps new pods away and puts none out."
    ]


def test_a_ready_node_loses_the_controllers_own_taint_again(ask: Ask) -> None:
    sentences = told(ask, "--taint", "node.kubernetes.io/unreachable:NoExecute")
    assert any("takes this taint off at its next pass" in s for s in sentences)


def test_what_is_no_taint_or_for_no_node_is_refused(ask: Ask) -> None:
    said = ask(CLUSTER, "explain", "node", "a1", "--taint", "maintenance")
    assert said.code == 2 and "--taint: taint 'maintenance' has no effect" in said.err
    said = ask(CLUSTER, "explain", "pod", "now", "--taint", "a:NoExecute")
    assert said.code == 2 and "--taint: is for nodes" in said.err


def webhook(**more: Any) -> Json:
    """A configuration with one webhook about evictions."""
    return objects.webhook(**{"clientConfig": {"url": "https://x"}, **more})


def test_webhooks_are_listed_with_what_they_select(ask: Ask) -> None:
    """It asks for a label that one of the two namespaces has."""
    shop = namespace("shop")
    shop["metadata"]["labels"]["guarded"] = "yes"
    guarded = owned("ReplicaSet", "web", "a1", 0, metadata={"namespace": "shop"})
    selects = webhook(namespaceSelector={"matchLabels": {"guarded": "yes"}}, timeoutSeconds=3)
    cluster = [node("a1"), namespace(), shop, guarded, pod("free", "a1"), selects]
    answers = ask(cluster, "explain", "node", "a1", "-o", "json").document["answers"]
    sentences = next(a["sentences"] for a in answers if a["question"] == QUESTION)
    assert sentences == [
        "guard.example.com of guard is asked about shop/web-0 (it selects namespaces with "
        "guarded=yes); no answer within 3s refuses the eviction."
    ]


def test_pods_that_no_drain_evicts_are_not_among_them(ask: Ask) -> None:
    agent = owned("DaemonSet", "agent", "a1", 0)
    said = ask([node("a1"), agent, webhook()], "explain", "node", "a1", "-o", "json")
    (answer,) = (a for a in said.document["answers"] if a["question"] == QUESTION)
    assert answer["sentences"] == ["None."]


def test_a_webhook_without_a_server_fails_every_eviction(ask: Ask) -> None:
    service = {"service": {"namespace": "guards", "name": "gone"}}
    cluster = [node("a1"), pod("p", "a1"), webhook(clientConfig=service)]
    said = ask(cluster, "explain", "pod", "p").out
    assert "it cannot be called, so that every eviction fails" in said
    assert 'service "gone" not found' in said
    ignored = webhook(clientConfig=service, failurePolicy="Ignore")
    assert "is ignored" in ask([*cluster[:2], ignored], "explain", "pod", "p").out
    assert "None." in ask(cluster[:2], "explain", "pod", "p").out


def test_a_drain_plan_lists_them_in_the_table_the_page_and_the_document(ask: Ask) -> None:
    cluster = [node("a1"), node("a2"), pod("p", "a1"), webhook(timeoutSeconds=3)]
    told = "guard.example.com of guard is asked about default/p (it selects every eviction)"
    words = ("drain-plan", "a1", "--force")
    assert f"webhook {told}" in ask(cluster, *words).out
    assert f"webhook {told}" in ask(cluster, *words, "-o", "html").out
    (found,) = ask(cluster, *words, "-o", "json").document["webhooks"]
    assert (found["name"], found["failurePolicy"]) == ("guard.example.com", "Fail")
    assert (found["timeoutSeconds"], found["pods"]) == (3, ["default/p"])
    assert "webhook" not in ask(cluster[:3], *words, "-o", "html").out


def test_verdicts_of_a_drain_plan_are_coloured_by_what_they_mean(ask: Ask) -> None:
    cluster = [node("a1"), node("a2"), pod("p", "a1")]
    green, red = "\x1b[32mready\x1b[0m", "\x1b[31mrefused\x1b[0m"
    forced = ask(cluster, "drain-plan", "a1", "--force", "--color", "always").out
    assert green in forced and red not in forced
    assert red in ask(cluster, "drain-plan", "a1", "--color", "always").out
    plain = ask(cluster, "drain-plan", "a1", "--force", "--color", "never").out
    assert plain == ask(cluster, "drain-plan", "a1", "--force").out  # not a terminal
    for sequence in ("\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"):
        forced = forced.replace(sequence, "")
    assert forced == plain
