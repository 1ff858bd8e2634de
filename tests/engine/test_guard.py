"""The guards, row by row (enforce.md, section 6) and the gate of section 5."""

from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine import actions
from kubectl_nodelife.engine.guard import (
    GO,
    HALF_OPEN_NS,
    MINUTE_NS,
    UPSTREAM,
    Breaker,
    Caps,
    Guard,
    Hold,
    Refuse,
    WriteConditions,
    is_harm,
    is_recovery,
)
from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.node import NodeCondition, Taint
from kubectl_nodelife.kube.times import SECOND_NS
from tests.planned import create_pod, not_ready

NOW = 1_000 * SECOND_NS
WHO: dict[str, Any] = {"controller": "taint-eviction", "because": "b"}
OPEN = WriteConditions(kill_switch_absent_ns=NOW)

LOST = actions.SetNodeConditions(**WHO, node="n", conditions=(NodeCondition("Ready", "Unknown"),))
TAINT = actions.AddTaints(**WHO, node="n", taints=(Taint("k", "NoExecute"),))
NO_SCHEDULE = actions.AddTaints(**WHO, node="n", taints=(Taint("k", "NoSchedule"),))
UNTAINT = actions.RemoveTaints(**WHO, node="n", taints=(Taint("k", "NoExecute"),))
DELETE = actions.DeletePod(**WHO, namespace="d", pod="p")
DAEMON = replace(DELETE, controller="daemonset")
TERMINATED = replace(DELETE, controller="pod-gc", force=True)
ORPHAN = replace(TERMINATED, if_node_gone="n")
MARK = not_ready(controller="taint-eviction", namespace="d")
EVICT = actions.EvictPod(**WHO, namespace="d", pod="p")
CREATE = create_pod(controller="taint-eviction", namespace="d", node="n")


@pytest.mark.parametrize(
    "change, because",
    [
        pytest.param({"leads": False}, "Lease", id="lease"),
        pytest.param({"synced": False}, "lists", id="synced"),
        pytest.param({"blind": "no working watch of Pod"}, "no working watch", id="watches"),
        pytest.param({"paused_because": "paused by x"}, "paused", id="paused"),
        pytest.param({"kill_switch_present": True}, "nodelife-stop is there", id="kill-switch"),
        pytest.param(
            {"kill_switch_absent_ns": NOW - 6 * SECOND_NS}, "cannot be looked for", id="unreadable"
        ),
        pytest.param({"journal_error": "disk full"}, "disk full", id="journal"),
    ],
)
@pytest.mark.parametrize("action", [DELETE, UNTAINT, CREATE], ids=["harm", "recovery", "other"])
def test_the_gate_holds_everything(
    action: actions.Action, change: dict[str, Any], because: str
) -> None:
    held = Guard(UPSTREAM).admit(action, replace(OPEN, **change), NOW)
    assert isinstance(held, Hold) and because in held.because


@pytest.mark.parametrize(
    "action, harm",
    [
        pytest.param(LOST, True, id="a-node-called-lost"),
        pytest.param(TAINT, True, id="no-execute"),
        pytest.param(MARK, True, id="pods-marked"),
        pytest.param(DELETE, True, id="eviction"),
        pytest.param(ORPHAN, True, id="orphan"),
        pytest.param(EVICT, True, id="drain"),
        pytest.param(TERMINATED, False, id="terminated-pod"),
        pytest.param(DAEMON, False, id="daemon-pod"),
        pytest.param(NO_SCHEDULE, False, id="no-schedule"),
        pytest.param(UNTAINT, False, id="untaint"),
        pytest.param(CREATE, False, id="create"),
    ],
)
def test_cold_holds_harm_back_and_nothing_else(action: actions.Action, harm: bool) -> None:
    assert is_harm(action) is harm
    cold = replace(OPEN, cold_until_ns=NOW + SECOND_NS)
    admitted = Guard(UPSTREAM).admit(action, cold, NOW)
    assert admitted == (
        Hold(NOW + SECOND_NS, "watching for one grace period first") if harm else GO
    )


def send(guard: Guard, action: actions.Action, view: WriteConditions, now_ns: int) -> Any:
    admitted = guard.admit(action, replace(view, kill_switch_absent_ns=now_ns), now_ns)
    if admitted == GO:
        guard.sending(action, now_ns)
    return admitted


@pytest.mark.parametrize(
    "action, cap", [pytest.param(TAINT, 10, id="taints"), pytest.param(DELETE, 100, id="deletions")]
)
def test_so_many_a_minute(action: actions.Action, cap: int) -> None:
    guard = Guard(Caps(zone_share=None, cluster_share=None))
    for number in range(cap):
        assert send(guard, action, OPEN, NOW + number) == GO
    held = send(guard, action, OPEN, NOW + SECOND_NS)
    assert isinstance(held, Hold) and held.until_ns == NOW + MINUTE_NS
    assert send(guard, UNTAINT, OPEN, NOW + SECOND_NS) == GO, "recovery passes the caps"
    assert send(guard, action, OPEN, NOW + MINUTE_NS) == GO, "the first one is a minute ago"


def test_what_is_left_of_the_caps_is_told() -> None:
    guard = Guard(Caps(total=5))
    assert send(guard, DELETE, OPEN, NOW) == send(guard, CREATE, OPEN, NOW) == GO
    full = {"taints-per-minute": 10, "deletions-per-minute": 100}
    assert guard.left(NOW) == full | {"deletions-per-minute": 99, "max-writes": 3}
    assert guard.left(NOW + MINUTE_NS) == full | {"max-writes": 3}
    assert Guard(UPSTREAM).left(NOW) == {}


def test_upstream_has_no_caps_of_ours() -> None:
    guard = Guard(UPSTREAM)
    assert all(send(guard, DELETE, OPEN, NOW) == GO for _ in range(1_000))


def test_a_cap_of_0_refuses() -> None:
    assert isinstance(send(Guard(Caps(deletions_a_minute=0)), DELETE, OPEN, NOW), Refuse)


def test_total() -> None:
    guard = Guard(Caps(total=1))
    assert send(guard, CREATE, OPEN, NOW) == GO
    assert isinstance(send(guard, CREATE, OPEN, NOW), Refuse)


@pytest.mark.parametrize("code", [403, 404, 409, 422, 429])
def test_what_is_refused_has_written_nothing(code: int) -> None:
    guard = Guard(Caps(total=1, errors=None))
    for _ in range(3):
        assert send(guard, CREATE, OPEN, NOW) == GO
        guard.ended(CREATE, code, "no", NOW)
    assert send(guard, CREATE, OPEN, NOW) == GO
    guard.ended(CREATE, 0, "nobody knows whether it was done", NOW)
    assert isinstance(send(guard, CREATE, OPEN, NOW), Refuse)


def of_zones(zones: dict[str, tuple[int, int]]) -> WriteConditions:
    """Zone -> (nodes, of these tainted); node n is in zone z."""
    named = {
        zone: [("n" if zone == "z" and not i else f"{zone}{i}") for i in range(nodes)]
        for zone, (nodes, _) in zones.items()
    }
    zone_of = {name: zone for zone, names in named.items() for name in names}
    tainted = {name for zone, names in named.items() for name in names[1 : zones[zone][1] + 1]}
    return replace(OPEN, zones=lambda: zone_of, tainted=lambda: tainted)


@pytest.mark.parametrize(
    "zones, allowed",
    [
        pytest.param({"z": (1, 0), "y": (9, 0)}, True, id="at-least-one-node"),
        pytest.param({"z": (4, 1), "y": (9, 0)}, True, id="two-in-a-zone-of-four"),
        pytest.param({"z": (4, 2), "y": (9, 0)}, False, id="not-three-in-a-zone-of-four"),
        pytest.param({"z": (10, 4), "y": (90, 0)}, True, id="below-55-percent-of-the-zone"),
        pytest.param({"z": (10, 5), "y": (90, 0)}, False, id="55-percent-of-the-zone"),
        pytest.param({"z": (10, 0), "y": (10, 6)}, False, id="34-percent-of-the-cluster"),
    ],
)
def test_share_of_zone_and_cluster(zones: dict[str, tuple[int, int]], allowed: bool) -> None:
    view = of_zones(zones)
    assert (send(Guard(Caps()), TAINT, view, NOW) == GO) is allowed
    assert send(Guard(Caps()), NO_SCHEDULE, view, NOW) == GO


def failing(guard: Guard, code: int, times: int = 5, message: str = "") -> Guard:
    for _ in range(times):
        guard.ended(CREATE, code, message, NOW)
    return guard


@pytest.mark.parametrize("code", [0, 401, 429, 500, 503])
def test_errors_open_the_breaker_for_their_verb_alone(code: int) -> None:
    guard = failing(Guard(Caps()), code)
    assert isinstance(send(guard, CREATE, OPEN, NOW), Hold)
    assert send(guard, DAEMON, OPEN, NOW) == GO


@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(failing(Guard(Caps()), 409), id="conflicts-are-none"),
        pytest.param(failing(Guard(Caps()), 403), id="admission-says-no"),
        pytest.param(failing(Guard(Caps()), 500, 5, "failed calling webhook w"), id="webhook"),
        pytest.param(failing(Guard(Caps()), 500, 4), id="four-of-ten"),
        pytest.param(failing(Guard(UPSTREAM), 500), id="upstream-s-back-offs-only"),
    ],
)
def test_what_opens_no_breaker(guard: Guard) -> None:
    assert send(guard, CREATE, OPEN, NOW) == GO


def test_half_open_after_30_s_with_one_write() -> None:
    guard = failing(Guard(Caps()), 503)
    later = NOW + HALF_OPEN_NS
    assert send(guard, CREATE, OPEN, later) == GO
    assert isinstance(send(guard, replace(CREATE, pod="q"), OPEN, later), Hold), "only one"
    guard.ended(CREATE, 503, "", later)
    assert isinstance(send(guard, CREATE, OPEN, later), Hold), "open again"
    again = later + HALF_OPEN_NS
    assert send(guard, CREATE, OPEN, again) == GO
    guard.ended(CREATE, 201, "", again)
    assert send(guard, CREATE, OPEN, again) == GO


def test_a_budget_s_429_is_no_error() -> None:
    guard = Guard(Caps())
    for _ in range(10):
        guard.ended(EVICT, 429, "", NOW)
    assert send(guard, EVICT, OPEN, NOW) == GO


def test_recovery_passes_errors_but_not_a_surprise() -> None:
    guard = Guard(Caps())
    guard.open(Breaker("all at once", "cut off", NOW, recovery_passes=True))
    assert send(guard, UNTAINT, OPEN, NOW) == GO
    assert isinstance(send(guard, TAINT, OPEN, NOW), Hold)
    guard.open(Breaker("surprise", "somebody else taints", NOW))
    assert isinstance(send(guard, UNTAINT, OPEN, NOW), Hold)
    guard.resume()
    assert send(guard, TAINT, OPEN, NOW) == GO


def test_an_eviction_that_a_budget_refuses_is_no_write() -> None:
    guard = Guard(Caps(total=2, deletions_a_minute=2))
    for _ in range(5):
        assert guard.admit(EVICT, OPEN, NOW) == GO
        guard.sending(EVICT, NOW)
        guard.ended(EVICT, 429, "Cannot evict pod", NOW)
    for _ in range(2):
        guard.sending(EVICT, NOW)
        guard.ended(EVICT, 201, "", NOW)
    assert isinstance(guard.admit(EVICT, OPEN, NOW), Refuse)


def test_a_pod_made_ready_again_is_recovery_and_the_mark_is_harm() -> None:
    again = actions.SetPodReady(**WHO, namespace="d", pod="p", status="True", at=Time(NOW))
    assert is_recovery(again) and not is_harm(again)
    mark = replace(again, status="False")
    assert is_harm(mark) and not is_recovery(mark)


def daemon_pods(unavailable: int, caps: Caps) -> int:
    """How many pods of one DaemonSet may be deleted at once."""
    guard = Guard(caps)
    guard.set_of = lambda action: ("set", unavailable)
    count = 0
    while count < 100 and send(guard, DAEMON, OPEN, NOW) == GO:
        count += 1
    return count


@pytest.mark.parametrize(
    "unavailable, caps, allowed",
    [
        pytest.param(1, Caps(), 10, id="at-least-ten"),
        pytest.param(20, Caps(), 40, id="twice-maxUnavailable"),
        pytest.param(20, UPSTREAM, 100, id="as-upstream"),
        pytest.param(
            20, Caps(set_deletions_a_minute=3, set_deletions_by_budget=False), 3, id="by-a-cap"
        ),
    ],
)
def test_deletions_of_one_daemon_set(unavailable: int, caps: Caps, allowed: int) -> None:
    assert daemon_pods(unavailable, caps) == allowed


def test_each_daemon_set_has_its_own_count() -> None:
    guard = Guard(Caps())
    sets = iter("ab" * 1000)
    guard.set_of = lambda action: (next(sets), 1)
    assert all(guard.admit(DAEMON, OPEN, NOW) == GO for _ in range(10))
    one, other = Guard(Caps()), ["a"]
    one.set_of = lambda action: (other[0], 1)
    while send(one, DAEMON, OPEN, NOW) == GO:
        pass
    other[0] = "b"
    assert send(one, DAEMON, OPEN, NOW) == GO
    other[0] = "a"
    assert send(one, DAEMON, OPEN, NOW + MINUTE_NS) == GO, "the first ones are a minute ago"


def test_under_an_open_breaker_recovery_goes_one_at_a_time() -> None:
    guard = Guard(Caps())
    other = replace(UNTAINT, node="m")
    assert send(guard, UNTAINT, OPEN, NOW) == GO and send(guard, other, OPEN, NOW) == GO
    guard.open(Breaker("all at once", "cut off", NOW, recovery_passes=True))
    guard.ended(other, 200, "", NOW)
    assert send(guard, UNTAINT, OPEN, NOW) == GO
    held = send(guard, other, OPEN, NOW)
    assert isinstance(held, Hold) and "one at a time" in held.because
    guard.ended(UNTAINT, 200, "", NOW)
    assert send(guard, other, OPEN, NOW) == GO


def test_a_taint_that_was_sent_counts_before_the_cluster_shows_it() -> None:
    guard, view = Guard(Caps(cluster_share=None)), of_zones({"z": (4, 0)})
    for node in ("n", "z1"):
        assert send(guard, replace(TAINT, node=node), view, NOW) == GO
    third = replace(TAINT, node="z2")
    held = send(guard, third, view, NOW)
    assert isinstance(held, Hold) and "2 of 4 nodes of zone z" in held.because
    assert send(guard, TAINT, view, NOW) == GO, "its second try is no further node"
    assert send(guard, third, view, NOW + 20 * SECOND_NS) == GO, "they were refused"


@pytest.mark.parametrize("share", ["zone_share", "cluster_share"])
def test_a_share_of_0_taints_no_node(share: str) -> None:
    view = of_zones({"z": (10, 0)})
    assert isinstance(send(Guard(Caps(**{share: 0.0})), TAINT, view, NOW), Hold)


def test_each_opening_is_told_once_and_a_resume_too() -> None:
    guard, told = Guard(Caps()), []
    guard.on_change = told.append
    surprise = Breaker("surprise", "somebody else", NOW)
    guard.open(surprise)
    guard.open(surprise)
    guard.resume()
    assert told == [surprise, None]


def test_an_error_on_trial_keeps_it_open_and_is_not_told_again() -> None:
    guard, told = failing(Guard(Caps()), 503), []
    guard.on_change = told.append
    later = NOW + HALF_OPEN_NS
    assert send(guard, CREATE, OPEN, later) == GO
    guard.ended(CREATE, 503, "busy", later)
    assert isinstance(send(guard, CREATE, OPEN, later), Hold)
    assert told == []


def test_claims_of_nodes_are_capped_a_minute_and_releases_are_not() -> None:
    guard = Guard(replace(UPSTREAM, claims_a_minute=2))
    who: dict[str, Any] = {"controller": "upgrade", "because": "b", "annotations": {}, "labels": {}}
    for number in range(2):
        claim = actions.NodeMarkPatch(**who, record="ClaimNode", node=f"n{number}")
        assert guard.admit(claim, OPEN, NOW) == GO
        guard.sending(claim, NOW)
    third = actions.NodeMarkPatch(**who, record="ClaimNode", node="n3")
    held = guard.admit(third, OPEN, NOW)
    assert isinstance(held, Hold) and "2 claims of nodes" in held.because
    assert (
        guard.admit(actions.NodeMarkPatch(**who, record="ReleaseNode", node="n0"), OPEN, NOW) == GO
    )
    later = replace(OPEN, kill_switch_absent_ns=NOW + MINUTE_NS)
    assert guard.admit(third, later, NOW + MINUTE_NS) == GO
