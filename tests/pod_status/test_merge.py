"""Merging, the normal form and equality, where upstream's vectors are silent."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import PodSpec, PodStatus
from kubectl_nodelife.kube.times import decode_time, format_time
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.kubelet.status import (
    is_status_equal_by_kubelet,
    merge_pod_status,
    normalize_status,
)
from tests.pod_status.objects import NOW_NS, ago

RULES = rules_for(parse_profile("v1.36"))
READY = {"type": "Ready", "status": "True"}
OURS = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
THEIRS = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def status(**fields: Any) -> PodStatus:
    return msgspec.convert({"phase": "Running"} | fields, PodStatus, dec_hook=decode_time)


def merged(old: PodStatus, new: PodStatus, *, running: bool = False, profile: str = "v1.36") -> Any:
    rules = rules_for(parse_profile(profile))
    result = merge_pod_status(old, new, rules, could_have_running_containers=running, now_ns=NOW_NS)
    return result


def reasons(result: PodStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in result.conditions}


def test_claims_belong_to_somebody_else_from_1_28_on() -> None:
    old = status(resourceClaimStatuses=[{"name": "theirs"}])
    new = status(resourceClaimStatuses=[{"name": "ours"}])
    for profile, kept in (("v1.27", "ours"), ("v1.28", "theirs")):
        (claim,) = merged(old, new, profile=profile).resource_claim_statuses
        assert claim.name == kept


@pytest.mark.parametrize(
    "old_conditions, expected",
    [([], "TerminationByKubelet"), ([THEIRS], "TerminationByKubelet")],
    ids=["appended", "replaced"],
)
def test_a_pod_that_ends_gets_our_disruption_target(
    old_conditions: list[Any], expected: str
) -> None:
    new = status(phase="Failed", conditions=[OURS])
    result = merged(status(conditions=old_conditions), new)
    assert reasons(result) == {"DisruptionTarget": ("True", expected)}


@pytest.mark.parametrize(
    "old, new, running",
    [
        pytest.param("Running", "Failed", True, id="containers-run"),
        pytest.param("Running", "Running", False, id="it-does-not-end"),
        pytest.param("Failed", "Failed", False, id="it-has-ended-before"),
    ],
)
def test_otherwise_ours_is_dropped_and_theirs_stays(old: str, new: str, running: bool) -> None:
    before = status(phase=old, conditions=[THEIRS])
    result = merged(before, status(phase=new, conditions=[OURS]), running=running)
    assert reasons(result) == {"DisruptionTarget": ("True", "EvictionByEvictionAPI")}
    bare = merged(status(phase=old), status(phase=new, conditions=[OURS]), running=running)
    assert bare.conditions == ()


def test_the_disruption_target_is_timed_when_it_is_sent() -> None:
    new = status(phase="Failed", conditions=[OURS | {"lastTransitionTime": ago(600)}])
    (sent,) = merged(status(), new).conditions
    assert sent.last_transition_time == NOW_NS
    theirs = status(conditions=[THEIRS | {"lastTransitionTime": ago(900)}])
    (kept,) = merged(theirs, new).conditions
    assert format_time(kept.last_transition_time) == ago(900).replace(".000000", "")


def test_an_older_release_knows_nothing_of_disruption() -> None:
    """To it the condition is foreign: theirs stays, ours is dropped."""
    new = status(phase="Failed", conditions=[OURS])
    assert reasons(merged(status(conditions=[THEIRS]), new, profile="v1.25")) == {
        "DisruptionTarget": ("True", "EvictionByEvictionAPI")
    }
    assert merged(status(), new, profile="v1.25").conditions == ()


@pytest.mark.parametrize("phase, reason", [("Failed", "PodFailed"), ("Succeeded", "PodCompleted")])
def test_what_has_ended_is_not_ready(phase: str, reason: str) -> None:
    both = {"Ready": ("False", reason), "ContainersReady": ("False", reason)}
    for type_ in both:
        new = status(phase=phase, conditions=[{"type": type_, "status": "True"}])
        assert reasons(merged(status(), new)) == both
    words = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
    said = status(phase=phase, conditions=[words])
    assert reasons(merged(status(), said)) == {"Ready": ("False", "ContainersNotReady")}
    old = merged(status(), status(phase=phase, conditions=[READY]), profile="v1.21")
    assert reasons(old) == {"Ready": ("True", "")}


def containers(*names: str, message: str = "", at: str = "") -> list[dict[str, Any]]:
    ended = {"message": message, "finishedAt": at or ago(0)}
    return [{"name": name, "state": {"terminated": ended}} for name in names]


def test_ephemeral_containers_are_normalised_from_1_32_on() -> None:
    spec = msgspec.convert(
        {"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "x"}, {"name": "y"}]},
        PodSpec,
    )
    given = status(
        containerStatuses=containers("a", message="m" * 12288),
        ephemeralContainerStatuses=containers("y", "x", at="2026-01-01T00:00:00.5Z"),
    )
    for profile, room, names in (("v1.31", 12288, "yx"), ("v1.32", 4096, "xy")):
        got = normalize_status(spec, given, rules_for(parse_profile(profile)))
        (regular,) = got.container_statuses or ()
        assert regular.state.terminated is not None
        assert len(regular.state.terminated.message) == room
        assert "".join(s.name for s in got.ephemeral_container_statuses) == names
        finished = [s.state.terminated for s in got.ephemeral_container_statuses]
        whole = {t is not None and (t.finished_at or 0) % 10**9 == 0 for t in finished}
        assert whole == {profile == "v1.32"}


def test_messages_are_cut_by_bytes_at_a_whole_character() -> None:
    spec = msgspec.convert({"containers": [{"name": "a"}] * 1}, PodSpec)
    for message, bytes_left in (("é" * 6144, 12288), ("é" * 6145, 12288), ("€" * 5000, 12288)):
        got = normalize_status(
            spec, status(containerStatuses=containers("a", message=message)), RULES
        )
        (cut,) = got.container_statuses or ()
        assert cut.state.terminated is not None
        left = len(cut.state.terminated.message.encode())
        assert bytes_left - 3 < left <= bytes_left
        assert message.startswith(cut.state.terminated.message)


def test_init_statuses_stand_in_the_order_of_the_spec() -> None:
    spec = msgspec.convert({"initContainers": [{"name": "b"}, {"name": "a"}]}, PodSpec)
    given = status(initContainerStatuses=containers("z", "a", "b"))
    got = normalize_status(spec, given, RULES)
    assert [s.name for s in got.init_container_statuses or ()] == ["b", "a", "z"]


@pytest.mark.parametrize("field", ["lastTransitionTime", "lastProbeTime"])
def test_each_time_of_a_condition_is_cut(field: str) -> None:
    given = status(conditions=[READY | {field: "2026-01-01T00:00:00.5Z"}])
    (condition,) = normalize_status(PodSpec(), given, RULES).conditions
    times = (condition.last_transition_time, condition.last_probe_time)
    assert [time for time in times if time is not None and time % 10**9] == []


def test_an_absent_list_equals_an_empty_one() -> None:
    assert is_status_equal_by_kubelet(
        status(), status(containerStatuses=[], initContainerStatuses=[]), RULES
    )
    assert not is_status_equal_by_kubelet(
        status(), status(initContainerStatuses=[{"name": "a"}]), RULES
    )
    assert not is_status_equal_by_kubelet(
        status(), status(containerStatuses=[{"name": "a"}]), RULES
    )


def test_a_shared_condition_counts_and_a_missing_one_since_1_33() -> None:
    with_ours, without = status(conditions=[READY, OURS]), status(conditions=[READY])
    assert not is_status_equal_by_kubelet(without, with_ours, RULES)
    assert is_status_equal_by_kubelet(with_ours, without, rules_for(parse_profile("v1.32")))
    assert not is_status_equal_by_kubelet(with_ours, without, rules_for(parse_profile("v1.33")))
    old = rules_for(parse_profile("v1.25"))
    assert is_status_equal_by_kubelet(without, with_ours, old)
    assert is_status_equal_by_kubelet(with_ours, replace(with_ours), RULES)
