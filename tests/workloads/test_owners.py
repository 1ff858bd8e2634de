"""How Jobs replace pods that were deleted: backoffLimit, back-off, podReplacementPolicy."""

from typing import Any

import pytest

from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import Job
from kubectl_nodelife.workloads.owners import (
    AT_ONCE,
    NEVER,
    WHEN_GONE,
    Replacement,
    back_off_ns,
    replacement_of,
)

OWNER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "name": "batch",
    "uid": "uid-batch",
    "controller": True,
}
IGNORES_DISRUPTION = {
    "podFailurePolicy": {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    }
}
COUNTS_CONDITIONS = {
    "podFailurePolicy": {
        "rules": [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    }
}


class OneJob:
    """Owners that know one Job."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def find(self, kind: str, namespace: str, name: str) -> Job | None:
        return self._job if (kind, namespace, name) == ("Job", "default", "batch") else None

    def was_read(self, kind: str) -> bool:
        return kind == "Job"


def rule_of(spec: dict[str, Any], status: dict[str, Any]) -> Replacement:
    """The rule for a pod of a Job with that spec and status."""
    meta = {"name": "batch", "namespace": "default", "uid": "uid-batch"}
    job = decode("Job", {"metadata": meta, "spec": spec, "status": status})
    meta = {"name": "batch-1", "namespace": "default", "ownerReferences": [OWNER]}
    assert isinstance(job, Job)
    return replacement_of(decode("Pod", {"metadata": meta}), OneJob(job))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (500, 600)],
)
def test_the_back_off_doubles_up_to_ten_minutes(failures: int, seconds: int) -> None:
    assert back_off_ns(failures) == seconds * SECOND_NS


@pytest.mark.parametrize(
    ("spec", "status", "when", "failures", "allowed"),
    [
        pytest.param({}, {}, AT_ONCE, 0, 6, id="the-defaults"),
        pytest.param({"backoffLimit": 3}, {"failed": 1}, AT_ONCE, 1, 2, id="one-has-failed"),
        pytest.param(
            {"backoffLimit": 3}, {"failed": 1, "succeeded": 1}, AT_ONCE, 0, 2, id="one-succeeded"
        ),
        pytest.param({"backoffLimit": 0}, {}, NEVER, 0, 0, id="none-may-fail"),
        pytest.param({"backoffLimit": 2}, {"failed": 2}, NEVER, 2, 0, id="none-may-fail-any-more"),
        pytest.param({"podReplacementPolicy": "Failed"}, {}, WHEN_GONE, 0, 6, id="only-failed"),
        pytest.param(IGNORES_DISRUPTION, {}, WHEN_GONE, 0, None, id="disruptions-ignored"),
        pytest.param(COUNTS_CONDITIONS, {}, WHEN_GONE, 0, 6, id="disruptions-counted"),
    ],
)
def test_a_job_s_rule(
    spec: dict[str, Any], status: dict[str, Any], when: str, failures: int, allowed: int | None
) -> None:
    rule = rule_of(spec, status)
    assert (rule.when, rule.failures, rule.failures_allowed) == (when, failures, allowed)


@pytest.mark.parametrize("type_", ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"])
def test_a_finished_job_replaces_nothing(type_: str) -> None:
    status = {"conditions": [{"type": type_, "status": "True"}]}
    assert rule_of({}, status).when == NEVER
    status["conditions"][0]["status"] = "False"
    assert rule_of({}, status).when == AT_ONCE
