"""How long a failed daemon pod may stay: its back-off is in its controller's memory, so that a
forecast gives the earliest and the latest. Followed in the plays' own writes, by hand from upstream
(`podsShouldBeOnNode`, `flowcontrol.Backoff`).
"""

from typing import NamedTuple

import pytest

from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.engine.actions import DeletePod
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.sim.present import Branch, join
from kubectl_nodelife.sim.scenario import CONTROLLER_NAMES
from kubectl_nodelife.sim.timing import FAST, MIDDLE, SLOW, Timing
from tests.simulating import NO_LIMIT
from tests.what_if.stand import ALL_KINDS, NOW_NS, Document, ask, at, cluster_of, of, workload

NODES = ("a1", "a2")
STARTS_S = 4
"""The stand's pods are Ready within so long after they were made."""
SEEN_S = 2
"""A failure is kept in whole seconds, and seen within about another."""


def _objects(set_age: float, made: float, failed: float | None) -> list[Document]:
    """A DaemonSet of that age, whose pod on a2 was made and has failed so many seconds ago. None:
    its kubelet rejected it, and nothing says when."""
    owner, *pods = workload("agent", NODES, "DaemonSet")
    owner["metadata"]["creationTimestamp"] = at(-set_age)
    broken = pods[1]
    broken["metadata"]["creationTimestamp"] = at(-made)
    broken["status"] = {"phase": "Failed"}
    if failed is not None:
        ended = {"exitCode": 1, "finishedAt": at(-failed)}
        status = {"name": "c", "state": {"terminated": ended}}
        broken["status"]["containerStatuses"] = [status]
    return [owner, *pods]


def _gone_s(timing: Timing, objects: list[Document], release: str = "newest") -> int | None:
    """When the failed pod is deleted in a play of that timing."""
    return _deleted_s(_begun(objects, release).fork_under(timing))


def _begun(
    objects: list[Document], release: str = "newest", nodes: tuple[str, ...] = NODES
) -> Branch:
    settings = make_settings(release, dict(NO_LIMIT))
    present = join(cluster_of(objects, nodes), settings, NOW_NS, ALL_KINDS)
    return present.begin(7200 * SECOND_NS)


def _deleted_s(branch: Branch) -> int | None:
    """When the failed pod is deleted once the branch was played, to the whole second."""
    branch.play_until_quiet()
    for at_ns, action in branch.timeline.entries:
        if isinstance(action, DeletePod) and action.target[1][1] == "agent-1":
            return (at_ns - NOW_NS) // SECOND_NS
    return None


class _Case(NamedTuple):
    """Ages of the set, its pod and the failure; when the pod is deleted at the latest."""

    set_age: float
    made: float
    failed: float | None
    latest: float


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(_Case(86400, 10, 5, 900 - 5 + SEEN_S), id="whole-delay-from-its-failure"),
        pytest.param(_Case(86400, 899, 1, 900), id="no-later-than-a-sync-of-now-would-say"),
        pytest.param(_Case(86400, 10, None, 900), id="rejected-at-an-unknown-instant"),
        pytest.param(_Case(86400, 1200, 800, 900 - 800 + SEEN_S), id="comes-back-after-its-end"),
        pytest.param(_Case(1000, 800, 790, 0), id="delay-is-bounded-by-the-age-of-the-set"),
        pytest.param(_Case(1000, 500, 400, 0), id="half-a-minute-less"),
        pytest.param(_Case(120, 20, 10, 64 - 10 + SEEN_S), id="young-set"),
    ],
)
def test_a_failed_pod_goes_at_once_or_after_the_longest_back_off(case: _Case) -> None:
    objects = _objects(*case[:3])
    assert _gone_s(FAST, objects) == 0
    assert _gone_s(MIDDLE, objects) == 0
    assert _gone_s(SLOW, objects) == case.latest


def test_a_sync_for_another_reason_ends_the_wait_once_the_back_off_is_over() -> None:
    """On b3 the set makes a pod, whose status has it synced; the back-off is 5 minutes ago."""
    objects, nodes = _objects(86400, 1200, 800), (*NODES, "b3")
    deleted_s = _deleted_s(_begun(objects, nodes=nodes).fork_under(SLOW))
    assert deleted_s is not None and 0 < deleted_s <= STARTS_S


def test_the_ends_are_told() -> None:
    """Once its pod of a1 is lost, the set serves again when the failed one was made anew."""
    found = of(ask("lose node a1", _objects(86400, 10, 5), nodes=NODES), "agent")
    low, shown, high = found.low.back_seconds, found.back_seconds, found.high.back_seconds
    assert low is not None and shown is not None and high is not None
    assert low <= shown <= STARTS_S
    assert 900 - 5 <= high <= 900 - 5 + SEEN_S + STARTS_S


@pytest.mark.parametrize(
    ("made", "failed"),
    [
        pytest.param(7200, 1, id="ran-longer-than-any-delay"),
        pytest.param(3600, 2700, id="failed-15-minutes-ago"),
    ],
)
def test_nothing_is_open_where_no_back_off_can_be(made: float, failed: float) -> None:
    objects = _objects(86400, made, failed)
    assert [_gone_s(timing, objects) for timing in (FAST, MIDDLE, SLOW)] == [0, 0, 0]


def test_nothing_is_open_before_v1_12() -> None:
    """Failed daemon pods had no back-off (`failed_pods_back_off`)."""
    assert _gone_s(SLOW, _objects(86400, 10, 5), "v1.11") == 0


def test_a_manager_that_is_started_anew_knows_of_no_back_off() -> None:
    branch = _begun(_objects(86400, 10, 5)).fork_under(SLOW)
    settings = make_settings("newest", dict(NO_LIMIT))
    made = make_controllers(settings, CONTROLLER_NAMES)
    branch.restart(made, NOW_NS + 20 * SECOND_NS, settings)
    assert _deleted_s(branch) == 20
