"""The stream for all listeners, and the sessions of those who may listen."""

from typing import Any

import pytest

from kubectl_nodelife.daemon.ui import endpoint
from kubectl_nodelife.daemon.ui.live_feed import (
    MOST_EVENTS,
    MOST_LISTENERS,
    MOST_UNREAD_BYTES,
    Broadcast,
)


class Told:
    """A broadcast of one number, and how often its snapshot was made."""

    def __init__(self) -> None:
        self.number, self.made = 0, 0
        self.broadcast = Broadcast(self._snapshot)

    def _snapshot(self) -> dict[str, Any]:
        self.made += 1
        return {"number": self.number}

    def tell(self) -> None:
        self.number += 1
        self.broadcast.publish("delta", {"number": self.number})


async def read(told: Told, last: str = "") -> str:
    subscriber = told.broadcast.join(last)
    assert subscriber is not None
    text = (await subscriber.take(0.01)).decode()
    told.broadcast.leave(subscriber)
    return text


def last_id(text: str) -> str:
    return [line for line in text.splitlines() if line.startswith("id: ")][-1][4:]


async def test_who_comes_back_goes_on_where_it_stopped() -> None:
    told = Told()
    told.tell()
    first = await read(told)
    assert 'event: snapshot\ndata: {"number":1}\n\n' in first
    assert await read(told, last_id(first)) == ""
    told.tell()
    told.tell()
    missed = await read(told, last_id(first))
    assert missed.count("event: delta") == 2 and "snapshot" not in missed
    for _ in range(MOST_EVENTS + 1):
        told.tell()
    for unknown in (last_id(first), "other-1", "", "x", last_id(first) + "9999999999999999999"):
        assert "event: snapshot" in await read(told, unknown)
    assert told.made == 2  # one for all who came between two events


async def test_there_are_so_many_listeners_and_no_more() -> None:
    told = Told()
    joined = [told.broadcast.join() for _ in range(MOST_LISTENERS)]
    assert None not in joined and told.broadcast.join() is None
    assert told.broadcast.wanted.is_set()
    for subscriber in joined:
        assert subscriber is not None
        told.broadcast.leave(subscriber)
    assert not told.broadcast.wanted.is_set() and told.broadcast.join() is not None


async def test_one_that_does_not_read_is_dropped_and_the_others_go_on() -> None:
    told = Told()
    slow, quick = told.broadcast.join(), told.broadcast.join()
    assert slow is not None and quick is not None
    chunk = {"text": "x" * (MOST_UNREAD_BYTES // 4)}
    for _ in range(8):
        told.broadcast.publish("delta", chunk)
        assert await quick.take(0.01)
    assert slow.dropped and not quick.dropped


class Hour:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_token_works_once_and_for_two_minutes() -> None:
    clock = Hour()
    sessions = endpoint.Sessions(clock)
    token = sessions.token()
    session = sessions.begin(token)
    assert session is not None and sessions.holds(session) and session != token
    assert sessions.begin(token) is None
    late = sessions.token()
    clock.now_s += endpoint.TOKEN_SECONDS
    assert sessions.begin(late) is None
    assert sessions.holds(session) and not sessions.holds("") and not sessions.holds(token)
    sessions.end(session)
    assert not sessions.holds(session)


def test_ten_wrong_tokens_close_the_door_for_a_minute() -> None:
    clock = Hour()
    sessions = endpoint.Sessions(clock)
    token = sessions.token()
    for _ in range(endpoint.MOST_WRONG):
        assert not sessions.is_closed()
        assert sessions.begin("wrong") is None
    assert sessions.is_closed() and sessions.begin(token) is None
    clock.now_s += endpoint.CLOSED_SECONDS
    assert sessions.begin(token) is not None


@pytest.mark.parametrize("lasts_s", [10.0, 99 * 3600.0])
def test_sessions_end_and_are_bounded(lasts_s: float) -> None:
    clock = Hour()
    sessions = endpoint.Sessions(clock, lasts_s)
    begun = [sessions.begin(sessions.token()) for _ in range(endpoint.MOST_SESSIONS + 2)]
    assert sessions.count() == endpoint.MOST_SESSIONS and sessions.is_full(read_only=False)
    assert not sessions.is_full(read_only=True)
    assert begun[-1] is not None and sessions.holds(begun[-1])
    assert begun[0] is not None and not sessions.holds(begun[0])
    clock.now_s += min(lasts_s, 12 * 3600.0)
    assert sessions.count() == 0
