"""What is read off two sights of an object, and who is said to have written it."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubectl_nodelife.daemon.divergence_recorder import POLL_SECONDS, LeaseWatch, who_removed
from kubectl_nodelife.daemon.foreign_writes import author_of
from kubectl_nodelife.engine.events import Gone
from kubectl_nodelife.kube.codec import decode, encode
from kubectl_nodelife.kube.field_managers import TAINTS, UNSCHEDULABLE, FieldManager, FieldManagers
from kubectl_nodelife.kube.meta import MicroTime
from kubectl_nodelife.kube.node import Lease, LeaseMeta, LeaseSpec, Node, NodeMeta, NodeSpec, Taint
from kubectl_nodelife.kube.pod import PodCondition
from kubectl_nodelife.live.client import ApiError
from kubectl_nodelife.outlook.diverge.observations import (
    REMOVED,
    TAINTED,
    ObservedWrite,
    WriteAuthor,
)
from tests.daemon.lab import SECOND, T0, Lab, lease, make_lab, node, pod, unreachable
from tests.diverge.recorded import RecordedLab, recorded_lab, unknown, with_taints

CORDON = frozenset({UNSCHEDULABLE})
FOREIGN = Taint(key="dedicated", effect="NoExecute", value="x")


async def warm(folder: Path) -> tuple[Lab, RecordedLab]:
    """A lab that has watched one healthy node for longer than it is cold."""
    lab = make_lab(folder)
    watch = recorded_lab(lab)
    await lab.begin(node(), lease(), pod())
    await lab.after(60, "n1")
    return lab, watch


async def test_a_loss_with_the_silence_before_it(tmp_path: Path) -> None:
    lab, watch = await warm(tmp_path)
    await lab.after(7)
    await lab.see(unknown())
    (seen,) = watch.observed("lost")
    assert (seen.node, seen.zone, seen.ready) == ("n1", "a", "Unknown")
    assert seen.silent_ns is not None and 7 <= seen.silent_ns / SECOND < 18


async def test_a_silence_that_nobody_watched_is_not_told(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    watch = recorded_lab(lab)
    await lab.begin(node(), lease())
    await lab.after(5)
    await lab.see(unknown())
    assert [s.silent_ns for s in watch.observed("lost")] == [None]


@pytest.mark.parametrize(
    ("before", "after", "own", "explained", "waits"),
    [
        (node(), with_taints(node(), FOREIGN), False, False, False),
        (node(), with_taints(node(), unreachable()), True, False, False),
        (unknown(), with_taints(unknown(), unreachable()), True, True, True),
        (unknown(), with_taints(unknown(), unreachable("NoSchedule")), True, True, True),
        (node(), with_taints(unknown(), unreachable("NoSchedule")), True, True, True),
    ],
)
async def test_a_taint_and_whether_the_conditions_ask_for_it(
    tmp_path: Path, before: Node, after: Node, own: bool, explained: bool, waits: bool
) -> None:
    lab, watch = await warm(tmp_path)
    await lab.see(before)
    await lab.see(after)
    (seen,) = watch.observed(TAINTED)
    assert (seen.own, seen.explained) == (own, explained)
    assert (seen.waiting_ns is not None) == waits


async def test_a_taint_that_is_taken_off_while_the_conditions_ask_for_it(tmp_path: Path) -> None:
    lab, watch = await warm(tmp_path)
    other = node("n2", zone="b")
    await lab.see(other, with_taints(unknown(), unreachable()))
    await lab.see(unknown())
    await lab.see(with_taints(unknown(), unreachable()))
    await lab.see(node(posted_ns=SECOND))
    assert [s.explained for s in watch.observed("untainted")] == [False, True]


async def test_cordons_drains_and_removals(tmp_path: Path) -> None:
    lab, watch = await warm(tmp_path)
    managed = FieldManagers((FieldManager("kubectl", "Update", lab.now, CORDON),))
    meta = NodeMeta(**msgspec.structs.asdict(node().metadata) | {"managed_fields": managed})
    await lab.see(replace(node(), metadata=meta, spec=NodeSpec(unschedulable=True)))
    evicted = pod()
    condition = PodCondition("DisruptionTarget", "True", "EvictionByEvictionAPI")
    conditions = (*evicted.status.conditions, condition)
    await lab.see(replace(evicted, status=replace(evicted.status, conditions=conditions)))
    await lab.see(node())
    await lab.see(Gone("Node", ("", "n1")))
    words = [s.what for s in watch.observed()]
    assert words == ["cordoned", "drained", "uncordoned", "removed"]
    (cordon,) = watch.observed("cordoned")
    assert cordon.author is not None and cordon.author.manager == "kubectl"
    assert watch.observed("drained")[0].detail == "default/p1"


ENTRY = {
    "manager": "kubectl-taint",
    "operation": "Update",
    "time": "2026-01-01T00:00:10Z",
    "fieldsV1": {"f:spec": {"f:taints": {}}},
}
STATUS = {**ENTRY, "manager": "kubelet", "subresource": "status"}
OLD = {**ENTRY, "manager": "old", "time": "2025-12-31T00:00:00Z"}
LATER = {**ENTRY, "manager": "kube-controller-manager", "time": "2026-01-01T00:00:12Z"}


@pytest.mark.parametrize(
    ("entries", "manager"),
    [
        ([STATUS, OLD, ENTRY], "kubectl-taint"),
        ([ENTRY, LATER], "kube-controller-manager"),
        ([OLD], None),
        ([STATUS], None),
        ([{**ENTRY, "fieldsV1": {"f:metadata": {}}}], None),
        ([{**ENTRY, "time": "nonsense"}], None),
        ([{"manager": "x"}], None),
        ([], None),
    ],
)
def test_whose_entry_of_managed_fields_it_is(entries: list[Any], manager: str | None) -> None:
    node = decode("Node", {"metadata": {"name": "n1", "managedFields": entries}})
    assert isinstance(node, Node)
    author = author_of(node, TAINTS, T0 + 11 * SECOND)
    assert (author.manager if author is not None else None) == manager


class Answers:
    """What a client reads, by the beginning of the path."""

    def __init__(self, **bodies: Any) -> None:
        self.bodies = bodies

    async def read(self, url: str, *, retry: bool = True) -> bytes:
        body = next(self.bodies[word] for word in self.bodies if word in url)
        if isinstance(body, Exception):
            raise body
        if isinstance(body, dict):
            body = {"kind": "List", "metadata": {}, **body}
        return msgspec.json.encode(body)


def asked(**bodies: Any) -> WriteAuthor | None:
    seen = ObservedWrite(T0 + 11 * SECOND, REMOVED, "n1")
    return asyncio.run(who_removed(Answers(**bodies), seen))  # type: ignore[arg-type]


def test_a_cloud_controller_says_in_an_event_that_it_removes_a_node() -> None:
    removing = {"metadata": {"name": "n1.2", "namespace": "default"}, "reason": "RemovingNode"}
    event = {
        "metadata": {"name": "n1.1", "namespace": "default"},
        "reason": "DeletingNode",
        "lastTimestamp": "2026-01-01T00:00:10Z",
        "source": {"component": "cloud-node-lifecycle-controller"},
    }
    author = asked(events={"items": [removing, event]})
    assert author is not None and author.manager == "cloud-node-lifecycle-controller"
    assert asked(events={"items": [removing]}) is None
    assert asked(events=ApiError(403, "no")) is None


def spec(renewed_s: float, holder: str = "cm-1", **more: Any) -> LeaseSpec:
    renew = MicroTime(T0 + round(renewed_s * SECOND))
    return LeaseSpec(holder, lease_duration_seconds=15, renew_time=renew, **more)


def test_a_lease_that_is_renewed_and_one_that_is_not() -> None:
    watch = LeaseWatch()
    for second in range(0, 30, 5):
        watch.note(spec(second), T0 + second * SECOND)
        assert watch.observation.stale_ns() is None
    for second in range(30, 60, 5):
        watch.note(spec(24), T0 + second * SECOND)
    assert watch.observation.stale_ns() == 31 * SECOND
    (stale,) = watch.stale
    assert (stale.begin_ns, stale.end_ns) == (T0 + 24 * SECOND, None)
    watch.note(spec(61, "cm-2", acquire_time=MicroTime(T0 + 57 * SECOND)), T0 + 62 * SECOND)
    assert watch.observation.stale_ns() is None
    assert watch.stale[0].end_ns == T0 + 62 * SECOND
    assert watch.leaders == [(T0 + 57 * SECOND, "cm-2")]


def test_a_leader_whose_clock_is_wrong_is_no_stale_one() -> None:
    watch = LeaseWatch()
    for second in range(0, 60, 5):
        watch.note(spec(second - 3600), T0 + second * SECOND)
        assert watch.observation.stale_ns() is None


def test_a_lease_of_which_no_renewal_was_seen_proves_nothing() -> None:
    watch = LeaseWatch()
    for second in range(0, 60, 5):
        watch.note(spec(-3600), T0 + second * SECOND)
    assert watch.observation.stale_ns() is None
    assert "it has not been renewed since" in watch.observation.error
    assert watch.stale == []


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (ApiError(403, "leases is forbidden"), "it may not be read"),
        ({"items": []}, "there is no lease kube-system/kube-controller-manager"),
        ([], "the server's list cannot be decoded"),
        (ApiError(500, "etcd is gone"), "API server (500): etcd is gone"),
    ],
)
def test_a_lease_that_cannot_be_read(body: Any, error: str) -> None:
    watch = LeaseWatch()
    asyncio.run(watch.look(Answers(leases=body), T0))  # type: ignore[arg-type]
    assert error in watch.observation.error
    assert watch.observation.stale_ns() is None


def test_a_server_that_fails_is_asked_ever_more_seldom() -> None:
    watch, pauses = LeaseWatch(), []
    watch.pause_s = 0.5  # the lease was silent, and is looked at often
    failing = Answers(leases=ApiError(500, "etcd is gone"))
    for _ in range(6):
        asyncio.run(watch.look(failing, T0))  # type: ignore[arg-type]
        pauses.append(watch.pause_s)
    assert pauses == sorted(pauses) and pauses[0] >= 0.8 and pauses[-1] == POLL_SECONDS
    asyncio.run(watch.look(Answers(leases={"items": []}), T0))  # type: ignore[arg-type]
    assert watch.pause_s == POLL_SECONDS


def test_a_lease_that_was_not_asked_for_is_not_taken_for_the_managers() -> None:
    watch = LeaseWatch()
    of_a_node = encode(Lease(LeaseMeta("n0", "kube-system"), spec(0, "n0")))
    asyncio.run(watch.look(Answers(leases={"items": [of_a_node]}), T0))  # type: ignore[arg-type]
    assert "there is no lease" in watch.observation.error and watch.observation.holder == ""
