"""Mutated queries of a session: a thousand, each answered with what it asked for or with a line."""

import asyncio
import json
import random
from collections import Counter
from typing import Final
from urllib.parse import urlencode

import aiohttp

from kubectl_nodelife.daemon.ui.endpoint import MOST_SESSIONS, QUESTIONS
from tests.daemon.user import SET, User, user
from tests.hostile.fuzz import STRANGE
from tests.loopback import sandbox

QUERIES: Final = 1_000
SEED: Final = 5
MOST_LINE_BYTES: Final = 8_000
"""A longer request line is refused before it is read."""
_KEYS: Final = (
    *("taint", "width", "color", "leading", "id", "mode", "all", "text", "readOnly"),
    *("kind", "name", "namespace", "node", "pod", "since", "until", "now", "watch", "limit"),
    *("outcome", "controller", "selector", "output", "for", "why", "word", "acts", "ignore"),
    *("label", "set", "run", "zone", "wide", "chunk", "", "\x00", "output[]"),
)
_VALUES: Final = (
    *(json.dumps(value) for value in STRANGE),
    *(value for value in STRANGE if isinstance(value, str)),
    *("Node", "Pod", "DaemonSet", "a1", "team-0", "true", "5m", "a in (b", "a=b,c!", "../x", "%s"),
    *("9" * 400, "-9" * 9, "0x10", "\ud7ff", "+", "&", "=", ";", "#", "[", "{", "*"),
)
_WELL_FORMED: Final = (
    ("explain", [("kind", "Node"), ("name", "a1")]),
    ("changes", [("since", "5m"), ("limit", "3")]),
    ("replay", [("since", "1767225600000000000"), ("until", "1767225700000000000")]),
)


def queries(seed: int) -> list[str]:
    """Paths with queries, from the seed."""
    chance = random.Random(seed)
    paths = []
    for _ in range(QUERIES):
        question, pairs = chance.choice((*_WELL_FORMED, *((name, []) for name in QUESTIONS)))
        pairs = [pair for pair in pairs if chance.random() < 0.8]
        for _ in range(chance.randint(0, 4)):
            pairs.append((chance.choice(_KEYS), chance.choice(_VALUES)))
        chance.shuffle(pairs)
        text = urlencode(pairs, errors="replace")
        if chance.random() < 0.1:
            text += chance.choice(("&&", "&%", "%zz=%", "&a=%ff%fe", "&=&=", "&name"))
        paths.append(f"/api/v1/{question}?{text}")
    return paths


async def _session(one: User) -> tuple[str, str]:
    """(the page's address, a session of its own)."""
    url, _, token = (await one.ok("ui", "--print-url")).strip().partition("/#token=")
    headers = {"X-Nodelife": "1"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{url}/session", json={"token": token}, headers=headers) as answer,
    ):
        return url, (await answer.json())["session"]


async def _ask(url: str, session: str, paths: list[str]) -> list[tuple[int, str, str]]:
    """(status, path, body) of each."""
    told = []
    headers = {"X-Nodelife-Session": session}
    async with aiohttp.ClientSession(url, headers=headers) as client:
        for path in paths:
            async with client.get(path) as answer:
                told.append((answer.status, path, await answer.text()))
    return told


async def test_a_bad_query_is_answered_with_a_line_and_never_with_a_traceback() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        await one.begin(*SET)
        paths = queries(SEED)
        readers = [await _session(one) for _ in range(MOST_SESSIONS // 2)]
        parts = [paths[number :: len(readers)] for number in range(len(readers))]
        asked = (_ask(*reader, part) for reader, part in zip(readers, parts, strict=True))
        answers = [one for part in await asyncio.gather(*asked) for one in part]
        counts = Counter(status for status, _, _ in answers)
        assert set(counts) <= {200, 400, 422}, [a for a in answers if a[0] >= 429][:5]
        assert len(answers) == QUERIES and counts[200] > 50 and counts[422] > 50, counts
        for status, path, body in answers:
            if len(path) > MOST_LINE_BYTES:
                assert status == 400 and "\n" not in body, (path, body)
                continue
            document = json.loads(body)
            assert (status == 200) == ("error" not in document), (path, body)
            if status != 200:
                assert "\n" not in document["error"]["what"], (path, body)
        log = next(one.home.rglob("daemon.log")).read_text()
        assert "Traceback" not in log
        assert " cannot be answered: " not in log, log[-2000:]
        assert (await one.health())["running"]
