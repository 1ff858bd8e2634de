"""What a pod status sequence may expect: a function for each key of `expect`.

A key without one fails the case, so that nothing stays unchecked.
"""

from collections.abc import Callable
from typing import Any

from msgspec import to_builtins

from kubectl_nodelife.kube.pod import ContainerState, PodCondition, PodStatus
from kubectl_nodelife.kube.times import format_time
from kubectl_nodelife.kubelet.releases import StatusRules
from tests.conformance import ps_functions
from tests.conformance.ps_sequences import Observed, World

Check = Callable[[Observed, Any], None]
WORDS = ("type", "status", "reason", "message")


def judged(got: list[Any], wanted: list[Any]) -> bool:
    """True if the two agree step by step; None: not judged."""
    return len(wanted) <= len(got) and all(
        want is None or have == want for have, want in zip(got, wanted, strict=False)
    )


def pending_updates(seen: Observed, wanted: list[int | None]) -> None:
    queued = seen.world.machine.rules.request_per_change
    got: list[Any] = seen.requests if queued else seen.pending
    assert judged(got, wanted), got


def pending_total(seen: Observed, wanted: int) -> None:
    queued = seen.world.machine.rules.request_per_change
    assert (seen.requests if queued else seen.pending)[-1] == wanted


def new_updates(seen: Observed, wanted: list[int | None]) -> None:
    got: list[Any] = [b - a for a, b in zip(seen.versions, seen.versions[1:], strict=False)]
    assert judged(got, wanted), got


def version(seen: Observed, wanted: int) -> None:
    assert seen.world.machine.statuses[seen.world.pods[0].uid].version == wanted


def version_unchanged(seen: Observed, wanted: bool) -> None:
    assert (seen.versions[-1] == seen.versions[-2]) == wanted


def queued_requests(seen: Observed, wanted: dict[str, int]) -> None:
    assert {step: seen.requests[int(step)] for step in wanted} == wanted


def pending_at_end(seen: Observed, wanted: int) -> None:
    assert seen.pending[-1] == wanted


def actions(seen: Observed, wanted: list[list[str] | None]) -> None:
    got = [result if isinstance(result, list) else [] for result in seen.results]
    assert judged(got, wanted), got


def batch_actions(seen: Observed, wanted: list[list[str] | None]) -> None:
    got = [r for op, r in zip(seen.ops, seen.results, strict=True) if op == "syncBatch"]
    assert len(got) == len(wanted)
    assert judged(got, wanted), got


def cached(seen: Observed, wanted: bool) -> None:
    assert (seen.statuses[-1] is not None) == wanted


def cached_uids(seen: Observed, wanted: list[str]) -> None:
    assert sorted(seen.world.machine.statuses) == sorted(wanted)


def versions_left(seen: Observed, wanted: list[str]) -> None:
    assert sorted(seen.world.machine.api_versions) == sorted(wanted)


def versions_kept(seen: Observed, wanted: list[str]) -> None:
    assert set(wanted) <= set(seen.world.machine.api_versions)


def needs_reconcile(seen: Observed, wanted: bool) -> None:
    got = seen.asked.get("needsReconcile", seen.world.reconcile_before_batch)
    assert got == wanted


def needs_update(seen: Observed, wanted: bool) -> None:
    assert seen.asked["needsUpdate"] == wanted


def status_by_mirror_uid(seen: Observed, wanted: bool) -> None:
    machine = seen.world.machine
    mirror = machine.pods.mirror_of(seen.world.pods[0])
    assert mirror is not None
    status = machine.pod_status(mirror.uid)
    assert (status is not None and status is seen.status) == wanted


def container_flags(word: str) -> Check:
    def check(seen: Observed, wanted: list[dict[str, bool | None] | None]) -> None:
        got: list[Any] = [flags_of(status, word) for status in seen.statuses]
        assert judged(got, wanted), got

    return check


def flags_of(status: PodStatus | None, word: str) -> dict[str, bool | None] | None:
    """`ready` or `started` of each container, and whether the pod is Ready."""
    if status is None:
        return None
    flags = {s.name: getattr(s, word) for s in status.container_statuses or ()}
    if word == "ready":
        ready = status.condition("Ready")
        flags["pod"] = ready is not None and ready.status == "True"
    return flags


def conditions_after(seen: Observed, wanted: list[Any]) -> None:
    """The named conditions, in this order; words that are not named are not compared."""
    got = list(seen.status.conditions)
    assert len(got) == len(wanted)
    for have, want in zip(got, wanted, strict=True):
        expected = ps_functions.read(want, PodCondition)
        assert all(getattr(have, w) == getattr(expected, w) for w in WORDS if w in want)


def states(which: str) -> Check:
    def check(seen: Observed, wanted: list[Any]) -> None:
        got = [s.state for s in getattr(seen.status, which) or ()]
        assert got == [ps_functions.read(state, ContainerState) for state in wanted]

    return check


def all_terminated(seen: Observed, wanted: bool) -> None:
    status = seen.status
    found = [
        s.state.terminated is not None
        for s in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    ]
    assert found
    assert all(found) == wanted


def cached_state(seen: Observed, wanted: str) -> None:
    (container,) = seen.status.container_statuses or ()
    assert getattr(container.state, wanted) is not None


def word(name: str) -> Check:
    def check(seen: Observed, wanted: str) -> None:
        assert getattr(seen.status, name) == wanted

    return check


def start_time(seen: Observed, wanted: str) -> None:
    assert seen.status.start_time is not None
    assert format_time(seen.status.start_time) == wanted


def start_time_set(seen: Observed, wanted: bool) -> None:
    assert (seen.status.start_time is not None) == wanted


def ready_transition(seen: Observed, wanted: str) -> None:
    ready = seen.status.condition("Ready")
    assert ready is not None and ready.last_transition_time is not None
    assert format_time(ready.last_transition_time) == wanted


def status(seen: Observed, wanted: Any) -> None:
    """The cached status, as far as the case gives it."""
    assert covers(to_builtins(seen.status, enc_hook=format_time), wanted)


def covers(have: Any, wanted: Any) -> bool:
    """True if `have` shows what is wanted; fields of objects that nobody names are its own."""
    if isinstance(wanted, dict):
        return all(covers((have or {}).get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        same = len(have or ()) == len(wanted)
        return same and all(covers(h, w) for h, w in zip(have or (), wanted, strict=True))
    return bool(have == wanted) or not (have or wanted)


def api_status(seen: Observed, wanted: Any) -> None:
    seen.world.check_api_status(wanted)


CHECKS: dict[str, Check] = {
    "status": status,
    "apiStatus": api_status,
    "pendingUpdates": pending_updates,
    "pendingUpdatesTotal": pending_total,
    "newUpdates": new_updates,
    "version": version,
    "versionUnchangedByLastStep": version_unchanged,
    "queuedRequestsAfterStep": queued_requests,
    "pendingAtEnd": pending_at_end,
    "actions": actions,
    "batchActions": batch_actions,
    "cached": cached,
    "cachedUids": cached_uids,
    "apiVersionsLeft": versions_left,
    "apiVersionsKept": versions_kept,
    "needsReconcile": needs_reconcile,
    "needsUpdate": needs_update,
    "getStatusByMirrorUidEqualsCached": status_by_mirror_uid,
    "ready": container_flags("ready"),
    "started": container_flags("started"),
    "conditionsAfter": conditions_after,
    "initStates": states("init_container_statuses"),
    "states": states("container_statuses"),
    "everyContainerTerminated": all_terminated,
    "cachedState": cached_state,
    "phase": word("phase"),
    "reason": word("reason"),
    "message": word("message"),
    "startTime": start_time,
    "startTimeSet": start_time_set,
    "readyLastTransitionTime": ready_transition,
}


@ps_functions.in_each_profile
def sequence(case: ps_functions.Case, rules: StatusRules) -> None:
    """A case that plays steps on one kubelet."""
    seen = Observed(World(case, rules))
    seen.play(case["steps"])
    for key, wanted in case["expect"].items():
        CHECKS[key](seen, wanted)


def transition_or_sequence(case: ps_functions.Case) -> None:
    """The state check by itself, or as part of the core step."""
    (ps_functions.transition if "oldStatus" in case["given"] else sequence)(case)


TOPICS = {
    "containers_ready_condition": ps_functions.condition,
    "ready_condition": ps_functions.condition,
    "initialized_condition": ps_functions.condition,
    "ready_to_start_condition": ps_functions.ready_to_start,
    "merge_pod_status": ps_functions.merge,
    "status_equality_and_times": ps_functions.equality_and_times,
    "container_state_transition": transition_or_sequence,
    "needs_update_needs_reconcile": sequence,
    "sync_sequences": sequence,
    "terminate_pod": sequence,
    "volume_health": sequence,
}
