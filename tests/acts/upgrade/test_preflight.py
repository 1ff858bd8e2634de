"""What a leader checks before its first write, and the times that it keeps."""

import asyncio
from typing import Any, cast

import pytest

from kubectl_nodelife.acts.upgrade.leader import GRANT, request_seconds
from kubectl_nodelife.acts.upgrade.lease import election_terms
from kubectl_nodelife.controllers.upgrade.policy import policy_from
from kubectl_nodelife.daemon.permissions import rights
from kubectl_nodelife.daemon.preflight import ClusterChecks
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.kube.times import SECOND_NS
from tests.enforce.test_preflight import Server, target

MINUTE_NS = 60 * SECOND_NS
POLICY = policy_from({"work": {"mode": "run", "command": "true"}})


def test_each_missing_right_is_a_line_with_what_asks_for_it_again() -> None:
    def deny(path: str, body: dict[str, Any]) -> Answer | None:
        asked = body.get("spec", {}).get("resourceAttributes", {})
        allowed = asked.get("verb") in ("get", "list", "watch")
        return Answer(201, raw={**body, "status": {"allowed": allowed}}) if asked else None

    server, said = Server(deny), list[str]()
    one = cast(Any, server)
    checks = ClusterChecks(target(), one, one, one)
    with pytest.raises(Refused) as caught:
        asyncio.run(checks.permission(rights(POLICY), GRANT, said.append))
    assert "rbac --upgrade" in str(caught.value) and "\n" not in str(caught.value)
    assert any("kubectl auth can-i patch nodes --all-namespaces" in line for line in said)
    assert any("--subresource=eviction" in line for line in said)
    assert any("can-i create pods --namespace=nodelife" in line for line in said)
    assert not any("can-i get" in line for line in said), "only what is missing"


def test_every_verb_that_a_run_may_need_is_asked_for() -> None:
    asked = {(r.resource, r.subresource, r.verb, r.namespace) for r in rights(POLICY)}
    for wanted in (
        ("nodes", "", "patch", ""),
        ("pods", "eviction", "create", ""),
        ("events", "", "create", ""),
        ("leases", "", "update", "kube-system"),
        ("pods", "", "delete", "nodelife"),
    ):
        assert wanted in asked


def test_the_last_write_is_over_before_another_may_lead() -> None:
    terms = election_terms(MINUTE_NS)
    assert terms.lease_duration_ns == MINUTE_NS
    assert terms.retry_period_ns == 15 * SECOND_NS and terms.renew_deadline_ns == 40 * SECOND_NS
    limit_s = request_seconds(MINUTE_NS)
    assert limit_s == 15.0
    assert terms.renew_deadline_ns + limit_s * SECOND_NS < terms.lease_duration_ns
    assert terms.request_timeout_ns <= limit_s * SECOND_NS
