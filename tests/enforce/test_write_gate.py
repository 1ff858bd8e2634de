"""The view that the guard is shown: nodes are looked at only where they matter."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubectl_nodelife.daemon.enforce import write_gate
from kubectl_nodelife.daemon.enforce.write_gate import WriteGate
from kubectl_nodelife.engine.actions import AddTaints, DeletePod
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.guard import GO, UPSTREAM, Caps, Guard, Hold, WriteConditions
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TAINT_NODE_UNREACHABLE
from tests.objects import node, put
from tests.planned import on_pod, tainted

NOW = 1_000 * SECOND_NS
UNREACHABLE = Taint(TAINT_NODE_UNREACHABLE, NO_EXECUTE)
DELETE = on_pod(DeletePod)


def taint(node: str) -> AddTaints:
    return tainted(node, UNREACHABLE)


def cluster(*marked: int) -> Cache:
    """Ten nodes, of which the first five are in zone a."""
    cache = Cache()
    for number in range(10):
        taints = (UNREACHABLE,) if number in marked else ()
        made = node(f"n{number}", None, zone="ab"[number // 5], taints=taints, uid="u")
        cache.apply(put(made), NOW)
    return cache


def view_of(cache: Cache, guard: Guard, drift_ns: int = 0) -> WriteConditions:
    one = SimpleNamespace(
        leads=lambda: True, because=lambda now_ns: "", present=False, absent_ns=NOW, error=""
    )
    parts = cast(Any, (one, one, one, str, lambda: NOW))
    synced = SimpleNamespace(is_set=lambda: True)
    clock = SimpleNamespace(drift_ns=lambda: drift_ns)
    task = SimpleNamespace(stands_still="", synced=synced, cold_for_ns=lambda: 0, clock=clock)
    return WriteGate(*parts).view(cache, cast(Any, task))


def test_a_zone_and_the_cluster_have_their_share() -> None:
    guard = Guard(Caps())
    assert guard.admit(taint("n1"), view_of(cluster(0), guard), NOW) == GO
    of_zone = guard.admit(taint("n2"), view_of(cluster(0, 1), guard), NOW)
    assert isinstance(of_zone, Hold) and "2 of 5 nodes of zone" in of_zone.because
    assert guard.admit(taint("n5"), view_of(cluster(0, 1), guard), NOW) == GO
    of_all = guard.admit(taint("n6"), view_of(cluster(0, 1, 5), guard), NOW)
    assert isinstance(of_all, Hold) and "3 of 10 nodes of the cluster" in of_all.because


@pytest.mark.parametrize("caps", [Caps(), UPSTREAM], ids=["default", "upstream"])
def test_nodes_are_not_looked_at_for_what_taints_nothing(
    caps: Caps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(labels: Any) -> str:
        raise AssertionError("5,000 nodes would be looked at for every write")

    monkeypatch.setattr(write_gate, "zone_key", looked)
    monkeypatch.setattr(write_gate, "is_for_lost_node", looked)
    guard = Guard(caps)
    assert guard.admit(DELETE, view_of(cluster(0), guard), NOW) == GO


def test_what_is_over_holds_nothing_while_the_clock_goes_on() -> None:
    """The clock is read for the view after it was read for the decision."""
    guard = Guard(UPSTREAM)
    view = view_of(cluster(0), guard)
    assert view.cold_until_ns == 0
    assert guard.admit(taint("n1"), view, NOW - 1) == GO


@pytest.mark.parametrize(("drift_s", "goes"), [(1, True), (20, False), (-20, True)])
def test_a_machine_that_was_halted_with_its_clocks_sends_nothing(drift_s: int, goes: bool) -> None:
    """Its own clocks say that the Lease and the kill switch were looked at a moment ago."""
    guard = Guard(UPSTREAM)
    view = view_of(cluster(0), guard, drift_s * SECOND_NS)
    assert (guard.admit(DELETE, view, NOW) == GO) is goes
