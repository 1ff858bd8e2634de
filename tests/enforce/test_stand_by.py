"""A replica that waits for the Lease while another leads: that is no trouble, and is said so."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.commands.daemon import not_enforced, state_of
from kubectl_nodelife.daemon.metrics.cluster_sample import ClusterSample
from kubectl_nodelife.daemon.metrics.recorder import MetricsRecorder
from kubectl_nodelife.live.lease import LeaseKeeper

NOW = 1_767_225_600 * 10**9


def keeper(holder: str, error: str = "") -> LeaseKeeper:
    """One that has just looked at the Lease."""
    made = LeaseKeeper(cast(Any, None), lambda: NOW, steady=lambda: NOW, name="lease")
    spec = {"holderIdentity": made.election.identity if holder == "we" else holder}
    made.election._observe({"metadata": {"uid": "u"}, "spec": spec}, NOW)
    made.error = error
    return made


@pytest.mark.parametrize(
    "holder, error, expected",
    [
        pytest.param("another", "", True, id="another-leads"),
        pytest.param("", "", False, id="nobody-leads"),
        pytest.param("we", "", False, id="our-own-that-is-over"),
        pytest.param("another", "no answer", False, id="it-could-not-be-looked-at"),
    ],
)
def test_whether_another_leads(holder: str, error: str, expected: bool) -> None:
    assert keeper(holder, error).held_by_another() is expected


def health(**enforcement: Any) -> dict[str, Any]:
    found = {"enforcing": False, "because": "the Lease is not held (a)", "breakers": []}
    return {"synced": True, "enforcement": {**found, **enforcement}}


def test_it_is_at_work_and_warns_of_nothing() -> None:
    assert state_of(health(standsBy=True)) == "standing by"
    assert not_enforced(health(standsBy=True)) == []
    assert state_of(health(standsBy=False)) == "not enforcing"
    assert not_enforced(health(standsBy=False)) == ["not enforced: the Lease is not held (a)"]


@pytest.mark.parametrize("stands_by, told", [(True, set()), (False, {"enforcementStopped"})])
def test_nobody_is_notified_of_it(stands_by: bool, told: set[str]) -> None:
    decisions = SimpleNamespace(is_cold=lambda now_ns: False, stands_still="")
    enforcement = SimpleNamespace(
        stands_by=stands_by, why_not="the Lease is not held", guard=SimpleNamespace(breakers={})
    )
    recorder = MetricsRecorder.__new__(MetricsRecorder)
    recorder._sources = cast(Any, SimpleNamespace(now_ns=lambda: NOW))
    recorder._decisions, recorder._enforcement = cast(Any, decisions), cast(Any, enforcement)
    recorder._sample, recorder._findings, recorder._run = ClusterSample(NOW), None, None
    assert set(recorder.conditions() or {}) == told
