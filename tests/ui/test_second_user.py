"""Another user of this machine, who can reach every port of loopback: what docs/ui.md promises."""

import asyncio
import json
import socket

import pytest

from kubectl_nodelife.daemon.listener import OWN, LocalPeers
from kubectl_nodelife.daemon.ui.endpoint import CLOSED_SECONDS, MOST_SESSIONS, MOST_WRONG, Sessions
from tests.other_user import as_another_user, needs_another_user
from tests.raw_server import Request, raw_server
from tests.ui.browser import needs_chromium
from tests.ui.test_page import opened
from tests.ui.test_security import EXPLAIN, STREAM, served

PATHS = ("/session", EXPLAIN, STREAM, "/api/v1/status", "/api/v1/drains")


def _asked(port: int, lines: list[str], body: str = "") -> int:
    """The status of a request by whoever calls this."""
    head = [*lines, f"Host: 127.0.0.1:{port}", "Connection: close"]
    if body:
        head += ["X-Nodelife: 1", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall("\r\n".join([*head, "", body]).encode())
        line = one.makefile("rb").readline()
    return int(line.split()[1]) if line else 0


@needs_another_user
async def test_another_user_reads_nothing_and_keeps_nobody_out() -> None:
    """Without the token every answer is refused, and guessing closes the door for the guesser."""
    async with served() as one:
        token, port = one.sessions.token(), one.port

        def tries() -> bytes:
            read = [_asked(port, [f"GET {path} HTTP/1.1"]) for path in PATHS]
            guess = json.dumps({"token": "guess"})
            guesses = [_asked(port, ["POST /session HTTP/1.1"], guess) for _ in range(12)]
            return json.dumps([read, guesses]).encode()

        read, guesses = json.loads(await asyncio.to_thread(as_another_user, tries))
        assert set(read) == {401} and one.asked == []
        assert guesses == [401] * MOST_WRONG + [429] * 2
        begun = await one.post("/session", json.dumps({"token": token}))
        assert begun.status == 200, "the owner is let in"


async def test_wrong_tokens_of_another_peer_do_not_close_the_door(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peers = ["uid 1001"]
    monkeypatch.setattr(LocalPeers, "peer_of", lambda *_: peers[0])
    async with served() as one:
        right = json.dumps({"token": one.sessions.token()})
        asked = [(await one.post("/session", '{"token": "x"}')).status for _ in range(12)]
        assert asked == [401] * MOST_WRONG + [429] * 2
        peers[0] = OWN
        assert (await one.post("/session", right)).status == 200


def test_the_door_opens_again() -> None:
    now_s = [0.0]
    sessions = Sessions(lambda: now_s[0])
    for _ in range(MOST_WRONG):
        assert sessions.begin("x", "uid 1") is None
    token = sessions.token()
    assert sessions.is_closed("uid 1") and sessions.begin(token, "uid 1") is None
    now_s[0] += CLOSED_SECONDS
    assert not sessions.is_closed("uid 1") and sessions.begin(token, "uid 1")


def test_many_that_look_on_end_no_session_of_the_owner() -> None:
    sessions = Sessions(lambda: 0.0)
    owner = sessions.begin(sessions.token())
    looks_on = sessions.token(read_only=True)
    others = [sessions.begin(looks_on) for _ in range(3 * MOST_SESSIONS)]
    assert owner and sessions.holds(owner)
    assert [sessions.holds(str(one)) for one in others].count(True) == MOST_SESSIONS


async def test_a_session_has_a_rate_and_costly_answers_are_shared() -> None:
    """An address for other screens drove 450 requests a second, each of which made a drain plan."""
    async with served() as one:
        session = one.sessions.begin(one.sessions.token(read_only=True))
        asked = [one.ask("/api/v1/drains", session=session) for _ in range(120)]
        statuses = [answered.status for answered in await asyncio.gather(*asked)]
        assert statuses.count(429) > 20 and statuses.count(200) >= 60
        assert len(one.asked) <= 2, "one answer for all that ask within two seconds"


@needs_chromium
async def test_the_browser_gives_the_session_to_no_other_port() -> None:
    """Whatever the browser sends to a server of another user on this machine."""
    heard: list[str] = []

    async def hear(request: Request) -> bool:
        heard.append(f"{request.target} {request.headers}")
        await request.reply(b"<p>hello</p>", headers={"Content-Type": "text/html"})
        return True

    async with raw_server() as other, opened() as page:
        other.sickness = hear
        session = await page.browser.run("return sessionStorage.nodelife")
        assert session and await page.browser.run("return document.cookie") == ""
        await page.browser.go(f"{other.url}/")
        assert await page.browser.run("return sessionStorage.nodelife ?? ''") == ""
        assert heard and not any(session in text or "cookie" in text for text in heard)
        await page.browser.go(page.url)
        await page.browser.until("return document.getElementById('banner').hidden")
