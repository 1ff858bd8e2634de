"""Leader election on virtual time: who holds the Lease, from when, and until when."""

from collections.abc import Callable
from typing import Any

import pytest

from kubectl_nodelife.engine.calls import Answer, Get, Post, Replace
from kubectl_nodelife.engine.election import CLIENT_GO, Election, ElectionTerms
from kubectl_nodelife.kube.times import SECOND_NS

START = 1_000 * SECOND_NS


class LeaseServer:
    """One Lease with versions. `down`: no request gets an answer."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down = False
        self.calls: list[str] = []

    def answer(self, call: Get | Post | Replace) -> Answer:
        self.calls.append(type(call).__name__)
        if self.down:
            return Answer(0)
        if isinstance(call, Get):
            if self.lease is None:
                return Answer(404, reason="NotFound")
            return Answer(200, raw=self.lease)
        if isinstance(call, Post):
            return Answer(409) if self.lease is not None else self._keep(call.body)
        if self.lease is None:
            return Answer(404, reason="NotFound")
        sent = call.body["metadata"].get("resourceVersion")
        if sent != self.lease["metadata"]["resourceVersion"]:
            return Answer(409)
        return self._keep(call.body)

    def _keep(self, body: dict[str, Any]) -> Answer:
        self.version += 1
        meta = {"uid": "own", **body["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**body, "metadata": meta}
        return Answer(200, raw=self.lease)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


def attempt(candidate: Election, server: LeaseServer, at_s: float) -> bool:
    now_ns = START + int(at_s * SECOND_NS)
    return play(candidate.attempt(now_ns, now_ns), server)


def play(conversation: Any, server: LeaseServer) -> bool:
    try:
        call = next(conversation)
        while True:
            call = conversation.send(server.answer(call))
    except StopIteration as end:
        return bool(end.value)


def two() -> tuple[LeaseServer, Election, Election]:
    return LeaseServer(), Election("kube-system", "l", "a"), Election("kube-system", "l", "b")


def test_the_first_creates_it_and_renews_on_the_version_last_seen() -> None:
    server, a, _ = two()
    assert attempt(a, server, 0) and attempt(a, server, 2)
    assert server.calls == ["Get", "Post", "Replace"]
    assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("a", 15)
    assert server.spec["leaseTransitions"] == 0


def test_a_candidate_waits_for_the_record_to_stand_still_by_its_own_clock() -> None:
    server, a, b = two()
    attempt(a, server, 0)
    assert not attempt(b, server, 1)
    attempt(a, server, 2)
    assert not attempt(b, server, 15.5), "the record changed since b saw it first"
    assert not attempt(b, server, 30)
    assert attempt(b, server, 30.6), "unchanged for 15 s since 15.5"
    assert server.spec["leaseTransitions"] == 1


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    server, a, _ = two()
    attempt(a, server, 0)
    assert a.leads(START + CLIENT_GO.renew_deadline_ns - 1)
    assert not a.leads(START + CLIENT_GO.renew_deadline_ns), "a suspended process must not write"


def test_a_stolen_lease_ends_leading_at_once() -> None:
    server, a, _ = two()
    attempt(a, server, 0)
    assert server.lease is not None
    assert server.lease is not None
    server._keep({**server.lease, "spec": {**server.spec, "holderIdentity": "thief"}})
    assert not attempt(a, server, 2)
    assert not a.leads(START + 2 * SECOND_NS)
    assert a.holder == "thief"


def test_without_a_server_nobody_leads_for_longer_than_the_deadline() -> None:
    server, a, _ = two()
    attempt(a, server, 0)
    server.down = True
    assert not attempt(a, server, 2)
    assert a.leads(START + 9 * SECOND_NS), "one failure within the deadline loses nothing"
    assert not a.leads(START + 10 * SECOND_NS)


def test_a_released_lease_is_had_after_its_one_second() -> None:
    server, a, b = two()
    attempt(a, server, 0)
    assert play(a.release(START), server)
    assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("", 1)
    assert not a.leads(START)
    assert attempt(b, server, 0.1), "nobody holds it"
    assert server.spec["leaseTransitions"] == 1


def test_a_renewal_whose_answer_was_lost_does_not_keep_it_from_being_released() -> None:
    server, a, _ = two()
    attempt(a, server, 0)
    server.answer(next(a.attempt(START + SECOND_NS, START + SECOND_NS)))
    assert play(a.release(START + SECOND_NS), server)
    assert server.spec["holderIdentity"] == ""
    attempt(a, server, 2)
    assert server.lease is not None
    server._keep({**server.lease, "spec": {**server.spec, "holderIdentity": "b"}})
    assert not play(a.release(START + 3 * SECOND_NS), server), "another's is left alone"
    assert server.spec["holderIdentity"] == "b"


def test_a_renewal_refused_once_reads_and_tries_on_the_new_version() -> None:
    server, a, _ = two()
    attempt(a, server, 0)
    assert server.lease is not None
    server._keep({**server.lease, "metadata": {**server.lease["metadata"], "labels": {"x": "y"}}})
    server.calls.clear()
    assert attempt(a, server, 2)
    assert server.calls == ["Replace", "Get", "Replace"]


UPGRADE = ElectionTerms(
    60 * SECOND_NS,
    40 * SECOND_NS,
    15 * SECOND_NS,
    15 * SECOND_NS,
    counts_reacquiring=True,
    recreates=False,
)


def test_slower_terms_are_written_into_the_record_and_kept() -> None:
    server = LeaseServer()
    a, b = (Election("kube-system", "l", name, UPGRADE) for name in "ab")
    attempt(a, server, 0)
    assert server.spec["leaseDurationSeconds"] == 60
    assert a.leads(START + 39 * SECOND_NS) and not a.leads(START + 40 * SECOND_NS)
    assert not attempt(b, server, 5) and not attempt(b, server, 64)
    assert attempt(b, server, 65), "silent for 60 s as b watched it"


def test_who_slept_and_finds_the_lease_as_he_left_it_begins_a_new_epoch() -> None:
    server = LeaseServer()
    a = Election("kube-system", "l", "a", UPGRADE)
    attempt(a, server, 0)
    attempt(a, server, 15)
    assert a.transitions == 0, "a renewal is none"
    a.lose()
    assert attempt(a, server, 300) and a.transitions == 1


def test_a_lease_deleted_under_its_holder_is_not_made_again() -> None:
    server = LeaseServer()
    a = Election("kube-system", "l", "a", UPGRADE)
    attempt(a, server, 0)
    server.lease = None
    assert not attempt(a, server, 15)
    assert a.deleted and not a.leads(START + 15 * SECOND_NS) and server.lease is None


def test_annotations_that_somebody_put_there_survive_a_renewal() -> None:
    server, a, _ = two()
    attempt(a, server, 0)
    assert server.lease is not None
    wish = {**server.lease["metadata"], "annotations": {"wish": "pause"}}
    server._keep({**server.lease, "metadata": wish})
    assert attempt(a, server, 2)
    assert server.lease["metadata"]["annotations"] == {"wish": "pause"}


def test_another_may_hold_it_once_our_last_renewal_is_as_old_as_the_lease_lasts() -> None:
    server, one, _ = two()
    assert one.is_over(START), "it was never ours"
    assert attempt(one, server, 0) and attempt(one, server, 2)
    server.down = True
    for at_s in (4, 8, 13):
        attempt(one, server, at_s)
    assert not one.leads(START + 13 * SECOND_NS)
    assert not one.is_over(START + 16 * SECOND_NS) and one.is_over(START + 17 * SECOND_NS)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda sent: Answer(200), id="no-object"),
        pytest.param(lambda sent: Answer(200, raw=sent), id="what-was-sent"),
        pytest.param(lambda sent: told(sent, holderIdentity="b"), id="another-holder"),
        pytest.param(lambda sent: told(sent, renewTime="2020"), id="another-time"),
        pytest.param(lambda sent: told(sent, leaseTransitions="x"), id="no-number"),
        pytest.param(lambda sent: Answer(200, raw={"metadata": {}}), id="no-spec"),
    ],
)
def test_a_renewal_counts_only_with_our_name_and_our_time(
    answer: Callable[[dict[str, Any]], Answer],
) -> None:
    """Somebody on the way answers our renewals, and another has taken the Lease meanwhile."""
    server, a, _ = two()
    attempt(a, server, 0)
    assert server.lease is not None
    server._keep({**server.lease, "spec": {**server.spec, "holderIdentity": "b"}})
    conversation = a.attempt(START + 2 * SECOND_NS, START)
    call = next(conversation)
    assert isinstance(call, Replace)
    read = conversation.send(answer(call.body))
    assert isinstance(read, Get), "the Lease is read before anything follows"
    with pytest.raises(StopIteration) as end:
        conversation.send(server.answer(read))
    assert end.value.value is False and not a.leads(START + 2 * SECOND_NS) and a.holder == "b"


def told(sent: dict[str, Any], **members: Any) -> Answer:
    meta = {**sent["metadata"], "resourceVersion": "99"}
    return Answer(200, raw={**sent, "metadata": meta, "spec": {**sent["spec"], **members}})


@pytest.mark.parametrize(
    "members",
    [
        {"leaseTransitions": "x"},
        {"leaseTransitions": -1},
        {"leaseTransitions": 1 << 70},
        {"leaseDurationSeconds": True},
        {"leaseDurationSeconds": 1.5},
        {"holderIdentity": 7},
        {"renewTime": []},
    ],
    ids=str,
)
def test_an_unreadable_lease_is_anothers_until_it_can_be_read(members: dict[str, Any]) -> None:
    server, a, _ = two()
    attempt(a, server, 0)
    whole = server.lease
    assert whole is not None
    server._keep({**whole, "spec": {**server.spec, **members}})
    assert not attempt(a, server, 2) and not a.leads(START + 2 * SECOND_NS)
    assert a.unreadable.startswith(f"its {next(iter(members))} ")
    assert server.calls[-1] == "Get", "nothing is written over it"
    assert not attempt(a, server, 60)
    server._keep(whole)
    assert attempt(a, server, 62) and not a.unreadable
