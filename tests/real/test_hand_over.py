"""Real controller manager, then ours, then the real one: nothing is replaced or flaps."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.control_plane import ControlPlane, control_plane, until
from tests.real.enforcing import enforcer
from tests.real.test_enforce import DAEMON_SET, LEASE, PODS, RESTART, SETS, STOPPED, pods

REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"
MANAGER = ("--controllers=daemonset-controller",)


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with control_plane() as plane:
        for name in ("n1", "n2"):
            plane.api.create("/api/v1/nodes", {"metadata": {"name": name}})
            plane.api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})  # admission's
        yield plane


def state(plane: ControlPlane) -> dict[str, Any]:
    """Names, uids, revisions with their very data."""
    revisions = plane.api.get(REVISIONS)["items"]
    return {
        "pods": sorted((p["metadata"]["name"], p["metadata"]["uid"]) for p in pods(plane.api)),
        "revisions": sorted((r["metadata"]["name"], r["revision"]) for r in revisions),
        "data": [json.dumps(r["data"]) for r in revisions],
    }


@pytest.mark.parametrize("first", ["ours", "real"])
def test_nothing_is_made_anew(plane: ControlPlane, first: str) -> None:
    def real() -> None:
        plane.start_controller_manager(*MANAGER)
        until(lambda: len(pods(plane.api)) == 2)
        time.sleep(10)
        plane.stop("kube-controller-manager")

    plane.api.create(SETS, DAEMON_SET)
    if first == "real":
        real()
    else:
        with enforcer(plane, *RESTART) as one:
            until(lambda: len(pods(plane.api)) == 2)
            time.sleep(2)
            assert one.stop() == 0
    before = state(plane)
    with enforcer(plane, STOPPED) as one:
        time.sleep(4)
        assert state(plane) == before, "ours leaves alone what is there"
        assert one.stop() == 0
    real()
    assert state(plane) == before, "the real one finds its own bytes"


def test_a_stolen_lease_stops_us_until_the_thief_is_gone(plane: ControlPlane) -> None:
    with enforcer(plane, *RESTART) as one:
        lease = plane.api.get(LEASE)
        lease["spec"] |= {"holderIdentity": "thief", "leaseDurationSeconds": 8}
        plane.api.call("PUT", LEASE, lease)
        time.sleep(3)
        plane.api.create(SETS, DAEMON_SET)
        time.sleep(3)
        assert plane.api.get(PODS)["items"] == [], "another one holds the Lease"
        until(lambda: len(pods(plane.api)) == 2)
        assert plane.api.get(LEASE)["spec"]["leaseTransitions"] >= 1
        assert one.stop() == 0
