"""Without the user's word that nobody else runs them, nothing is written for one grace period.

The real `Enforcement` on a simulated API server, from its first decision on (enforce.md, section 3:
the watch). A manager's Lease is watched before that, in the preflight (`test_preflight.py`).
"""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from kubectl_nodelife.kube.times import SECOND_NS
from tests.deep import one_of
from tests.enforce.simulated_api import Sent
from tests.enforce.simulation import CONTROLLERS, GRACE_S, Run, play, story
from tests.enforce.virtual_time import EPOCH_NS

Json = dict[str, Any]
_UNJUDGED = frozenset({"leases", "events", "selfsubjectaccessreviews"})


def writes(*assumed: str, events: tuple[Json, ...] = ()) -> tuple[list[float], Run]:
    """When each of our writes arrived, in seconds since the first decision."""
    told = msgspec.json.decode(story(1))
    told["spec"]["events"] = list(events)
    run = Run(1, told=msgspec.json.encode(told))
    run.orders = run.orders._replace(assume_stopped=assumed, begin="join", caps="upstream")
    audit = play(run, 1).audit
    (process,) = run.processes
    began_s = process.enforcement.began_ns / SECOND_NS
    found = [
        datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp() - began_s
        for entry in audit
        if entry["userAgent"].startswith("kubectl-nodelife/")
        and entry["objectRef"]["resource"] not in _UNJUDGED
    ]
    assert began_s * SECOND_NS > EPOCH_NS
    return found, run


def test_nothing_at_all_is_written_while_the_beginning_is_watched() -> None:
    found, _ = writes()
    assert found and min(found) >= GRACE_S, "the agent's pods are made once that is over"


@pytest.mark.parametrize("missing", one_of(4, CONTROLLERS))
def test_one_controller_without_the_users_word_is_enough(missing: str) -> None:
    found, _ = writes(*(name for name in CONTROLLERS if name != missing))
    assert min(found) >= GRACE_S


def test_with_the_users_word_it_begins_at_once() -> None:
    found, _ = writes(*CONTROLLERS)
    assert min(found) < 1


def test_another_writer_who_is_seen_meanwhile_opens_the_breaker() -> None:
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    patch = {"status": {"conditions": [evicted]}}
    run = Run(1)
    run.orders = run.orders._replace(assume_stopped=(), begin="join")

    def evict() -> None:
        namespace, name = next(
            key for key in run.server.store.collections["Pod"].entries if key[0] != "kube-system"
        )
        url = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        kind = "application/strategic-merge-patch+json"
        headers = {"User-Agent": "kube-controller-manager/x", "Content-Type": kind}
        run.server.answer(Sent("PATCH", url, msgspec.json.encode(patch), headers))

    open_: list[str] = []

    def look() -> None:
        open_.extend(rule for rule, _ in run.processes[0].enforcement.guard.breakers)

    run.world.at(EPOCH_NS + 4 * SECOND_NS, evict)
    run.world.at(EPOCH_NS + 30 * SECOND_NS, look)
    play(run, 1)
    assert open_ == ["surprise"], "until a person says go on"
