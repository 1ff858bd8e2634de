"""Leases that somebody else writes to, a watch of them that stands still, and reads that fail.

Each story is told in the release before the circuit breaker and in the one with it.
"""

from typing import Any

import pytest

from kubectl_nodelife.errors import BadInput
from tests.sim.documents import Json, found, node, scenario, stop, story

NODES = [node("n1"), node("n2"), node("n3")]


def lost(*events: Json, **more: Any) -> dict[str, int]:
    """When each node became Unknown, in whole seconds."""
    given = {"objects": NODES, "duration": "8m", "controllers": ["node-lifecycle"], **more}
    told = story(**given, events=list(events))
    records = found(told, "SetNodeCondition", type="Ready", controller="node-lifecycle")
    return {r.object.name: round(r.at) for r in reversed(records) if not r.error}


def touch(at: str, *nodes: str) -> Json:
    return {"at": at, "lease": {"nodes": list(nodes), "touched": True}}


def leases(at: str, how: str) -> Json:
    return {"at": at, "controllers": {"leases": how}}


def delete_lease(at: str, name: str) -> Json:
    return {"at": at, "delete": {"kind": "Lease", "namespace": "kube-node-lease", "name": name}}


@pytest.mark.parametrize(
    ("release", "expected"),
    [("v1.36", {"n1": 110, "n2": 110}), ("v1.37", {"n1": 110}), ("v1.38", {"n1": 110})],
)
def test_a_silent_node_whose_lease_was_touched(release: str, expected: dict[str, int]) -> None:
    events = [stop("61s", "n1", "n2"), touch("70s", "n2", "n3")]
    assert lost(*events, profile=release) == expected


@pytest.mark.parametrize(("release", "expected"), [("v1.36", {"n1": 50}), ("v1.37", {})])
def test_a_lease_is_there_before_its_first_renewal_on_schedule(
    release: str, expected: dict[str, int]
) -> None:
    """A node that is Ready at the start has renewed it: it can be touched."""
    kubelet = {"leaseRenewPhase": "3.3s"}
    events = [stop("1s", "n1"), touch("2s", "n1")]
    assert lost(*events, profile=release, kubelet=kubelet) == expected


@pytest.mark.parametrize(
    ("then", "at"),
    [
        pytest.param(delete_lease("4m", "n1"), 240, id="deleting-it-ends-that"),
        pytest.param({"at": "4m", "kubelet": {"nodes": ["n1"], "heartbeats": "start"}}, None,
                     id="a-kubelet-that-renews-keeps-it"),
        pytest.param(touch("4m", "n1"), None, id="touching-it-again-does-not"),
    ],
)  # fmt: skip
def test_what_ends_it(then: Json, at: int | None) -> None:
    told = lost(stop("61s", "n1"), touch("70s", "n1"), then, profile="v1.37")
    assert told == ({} if at is None else {"n1": at})


def test_a_lease_touched_before_the_last_renewal_hinders_nothing() -> None:
    assert lost(touch("45s", "n1"), stop("61s", "n1"), profile="v1.37") == {"n1": 110}


def test_a_touch_after_the_loss_takes_the_node_out_of_its_zone() -> None:
    """Of two nodes one is lost: without it, all that are counted are well."""
    events = [stop("61s", "n1", "n2", "n3"), touch("3m", "n1", "n2", "n3")]
    told = story(
        objects=[*NODES, node("n4")], events=events, duration="6m", profile="v1.37",
        controllers=["node-lifecycle"],
    )  # fmt: skip
    states = [(r.detail["to"], round(r.at)) for r in found(told, "SetZoneState")]
    assert states == [("Normal", 0), ("PartialDisruption", 110), ("Normal", 180)]


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("v1.36", {"n1": 100, "n2": 100, "n3": 100}),
        ("v1.37", {"n1": 175}),  # 50 s after its last renewal is seen, in the pass at 125 s
    ],
)
def test_a_watch_of_leases_that_stands_still(release: str, expected: dict[str, int]) -> None:
    events = [leases("60s", "stale"), stop("70s", "n1"), leases("125s", "current")]
    assert lost(*events, profile=release, duration="4m") == expected


def test_while_the_watch_stands_still_a_silent_node_is_lost_only_before_the_hold_up() -> None:
    """`n3` is silent: lost where its time is over before another node's renewal holds all up."""
    events = [stop("30s", "n3"), leases("60s", "stale")]
    told = lost(*events, profile="v1.37")
    assert told == {"n3": 70}  # its Lease is the one remembered; the others are not over yet
    assert lost(stop("51s", "n3"), leases("50s", "stale"), profile="v1.37") == {}


@pytest.mark.parametrize(("others", "untainted"), [(3, [90]), (7, [90]), (8, [])])
def test_nodes_that_other_workers_look_at_are_not_held_up(
    others: int, untainted: list[int]
) -> None:
    """A pass looks at eight nodes at once, and a Lease that is read counts once the answer is
    there. `z` is lost before: where it is the only one that is counted, all zones are dark.
    """
    objects = [*(node(f"n{i}") for i in range(others)), node("z")]
    told = story(
        objects=objects,
        events=[stop("10s", "z"), leases("50s", "stale")],
        duration="110s",
        profile="v1.37",
        controllers=["node-lifecycle"],
    )
    removed = found(told, "RemoveTaint", effect="NoExecute")
    assert [(r.object.name, round(r.at)) for r in removed] == [("z", at) for at in untainted]


def test_the_hold_up_costs_the_zones_their_states() -> None:
    events = [leases("60s", "stale"), leases("2m30s", "current")]
    told = story(objects=NODES, events=events, profile="v1.37", controllers=["node-lifecycle"])
    states = [(r.detail["from"], r.detail["to"], round(r.at)) for r in found(told, "SetZoneState")]
    assert states == [("Initial", "Normal", 0), ("Initial", "Normal", 150)]


def test_after_the_hold_up_the_new_queue_is_filled_as_any_other() -> None:
    """Six silent nodes wait for their taints: in the order in which the pass looks at them. One of
    them counts in no zone.
    """
    nodes = [node(f"n{i}") for i in range(1, 13)]
    nodes[3]["metadata"]["labels"]["node.kubernetes.io/exclude-disruption"] = ""
    told = story(
        objects=nodes,
        events=[stop("20s", *(f"n{i}" for i in range(1, 7))), leases("80s", "stale"),
                leases("130s", "current")],
        flags={"node-eviction-rate": "0.03"},
        profile="v1.37",
        controllers=["node-lifecycle"],
        duration="6m",
    )  # fmt: skip
    added = found(told, "AddTaint", effect="NoExecute")
    assert [r.object.name for r in added if r.at > 130] == ["n1", "n2", "n3", "n4", "n5", "n6"]


def test_a_lost_nodes_lease_that_is_written_to_unseen_holds_all_up() -> None:
    """The watch is stale; only the GET of a pass shows the write. All are tainted anew after it."""
    told = story(
        objects=[*NODES, node("n4")],
        events=[stop("20s", "n1", "n2"), leases("80s", "stale"), touch("100s", "n1"),
                leases("110s", "current")],
        profile="v1.37",
        controllers=["node-lifecycle"],
        duration="3m",
    )  # fmt: skip
    added = found(told, "AddTaint", effect="NoExecute")
    assert [(r.object.name, round(r.at)) for r in added] == [("n1", 60), ("n2", 70), ("n2", 110)]


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503, "unreachable"])
def test_a_read_that_fails_keeps_the_node(code: int | str) -> None:
    reads = [{"kind": "Lease", "code": code, "until": "4m"}]
    assert lost(stop("61s", "n1"), failingReads=reads, profile="v1.37") == {"n1": 240}
    assert lost(stop("61s", "n1"), failingReads=reads, profile="v1.36") == {"n1": 110}


def test_a_lease_that_is_not_found_hinders_nothing() -> None:
    reads = [{"code": 404}]
    assert lost(stop("61s", "n1"), failingReads=reads, profile="v1.37") == {"n1": 110}


def test_the_first_entry_that_fits_decides() -> None:
    reads = [
        {"name": "n1", "code": 404},
        {"code": 403, "from": "1m40s", "until": "3m"},
        {"name": "n2", "code": 404},
    ]
    told = lost(stop("61s", "n1", "n2"), failingReads=reads, profile="v1.37")
    assert told == {"n1": 110, "n2": 180}


@pytest.mark.parametrize(
    ("release", "at"),
    [("v1.37", 600), ("v1.38", 660)],
)
def test_a_node_without_ready_that_is_made_anew(release: str, at: int) -> None:
    mute = node("mute", ready="")
    events = [
        {"at": "1s", "apply": mute},
        {"at": "31s", "delete": {"kind": "Node", "name": "mute"}},
        {"at": "10m", "apply": mute},
    ]
    assert lost(*events, profile=release, duration="15m") == {"mute": at}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"events": [{"at": "1m", "controllers": {}}]}, "either connection or leases"),
        ({"events": [{"at": "1m", "controllers": {"leases": "old"}}]}, "stale"),
        ({"events": [{"at": "1m", "lease": {"nodes": ["n1"], "touched": False}}]}, "touched: true"),
        ({"events": [{"at": "1m", "lease": {"nodes": ["n9"], "touched": True}}]}, "never exists"),
        ({"failingReads": [{"kind": "Pod", "code": 403}]}, "Lease"),
        ({"failingReads": [{"kind": "Lease"}]}, "the field is missing"),
        ({"failingReads": [{"code": 418}]}, "unreachable"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: Json, said: str) -> None:
    from kubectl_nodelife.sim.scenario import assemble

    with pytest.raises(BadInput) as error:
        assemble(scenario(objects=NODES, **wrong))
    assert said in str(error.value)


@pytest.mark.parametrize("release", ["v1.36", "v1.37"])
def test_a_lease_that_is_deleted_counts_until_then(release: str) -> None:
    """Its kubelet makes another: what passes saw of the first is not forgotten, long after the last
    look at the node. Of a silent node too: its time runs from the last renewal that was seen."""
    alive = lost(delete_lease("4m2s", "n1"), profile=release, flags=SHORT)
    assert alive == {}
    silent = [stop("4m1s", "n1"), delete_lease("4m2s", "n1")]
    assert lost(*silent, profile=release, flags=SHORT) == {"n1": 270}


SHORT = {"node-monitor-grace-period": "27.5s"}
