"""The run's Lease: succession as watched, renewal, what others do to it."""

import asyncio
import time
from typing import Any, cast

import pytest

from kubectl_nodelife.acts.session import ActSession
from kubectl_nodelife.acts.upgrade.lease import RunLease
from kubectl_nodelife.engine.calls import Answer
from kubectl_nodelife.errors import Refused
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import SECOND_NS
from tests.engine.test_election import LeaseServer

DURATION_NS = SECOND_NS


class Session:
    """A server with one Lease, as a session."""

    def __init__(self) -> None:
        self.server = LeaseServer()
        self.reader = self.checks = self
        self.now_ns = time.time_ns

    async def why_another(self) -> str:
        return ""

    async def call(self, call: Any, *, timeout_s: float = 1.0) -> Answer:
        return self.server.answer(call)


def lease_of(session: Session, seen: list[KubeObject] | None = None) -> RunLease:
    on_lease = seen.append if seen is not None else (lambda lease: None)
    return RunLease(cast(ActSession, session), "kube-system", DURATION_NS, on_lease)


async def test_the_first_leader_has_it_at_once_and_says_nothing() -> None:
    session, said = Session(), list[str]()
    lease = lease_of(session)
    await lease.acquire(said.append)
    assert lease.leads() and lease.epoch == 0 and not said
    assert session.server.spec["leaseDurationSeconds"] == 1


async def test_a_silent_holder_is_succeeded_after_his_time_and_in_a_new_epoch() -> None:
    session, said = Session(), list[str]()
    first, second = lease_of(session), lease_of(session)
    await first.acquire(said.append)
    began = time.monotonic()
    await second.acquire(said.append)
    assert time.monotonic() - began >= 1.0, "watched for the whole duration"
    assert second.epoch == 1
    assert len(said) == 1 and "led the upgrade last" in said[0]


async def test_a_holder_who_is_alive_is_named_and_left_alone() -> None:
    session = Session()
    first, second = lease_of(session), lease_of(session)
    await first.acquire(print)
    renewing = asyncio.create_task(first.run())
    with pytest.raises(Refused, match="is alive") as caught:
        await second.acquire(lambda text: None)
    assert first.election.identity in str(caught.value)
    assert first.leads()
    renewing.cancel()


async def test_a_lease_that_is_deleted_ends_the_leader() -> None:
    session = Session()
    lease = lease_of(session)
    await lease.acquire(print)
    session.server.lease = None
    async with asyncio.timeout(5):
        await lease.run()
    assert lease.deleted and not lease.leads() and session.server.lease is None


async def test_a_wish_is_seen_between_two_renewals_and_survives_them() -> None:
    session, seen = Session(), list[KubeObject]()
    lease = lease_of(session, seen)
    await lease.acquire(print)
    running = asyncio.create_task(lease.run())
    server = session.server
    assert server.lease is not None
    meta = {**server.lease["metadata"], "annotations": {"nodelife.dev/upgrade-request": "{}"}}
    server._keep({**server.lease, "metadata": meta})
    async with asyncio.timeout(5):
        while not any((one.metadata.annotations or {}) for one in seen):
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.6)
    assert server.lease["metadata"]["annotations"] and lease.leads()
    running.cancel()


async def test_who_is_succeeded_notices_and_writes_no_more() -> None:
    session = Session()
    lease = lease_of(session)
    await lease.acquire(print)
    server = session.server
    assert server.lease is not None
    server._keep({**server.lease, "spec": {**server.spec, "holderIdentity": "other"}})
    async with asyncio.timeout(5):
        await lease.run()
    assert lease.taken_by == "other" and not lease.leads()
