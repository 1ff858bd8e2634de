"""A question asked both ways: by a first look, and of a daemon, which answers in a child."""

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from tests.daemon.user import FLAGS, User, user
from tests.loopback import sandbox


class BothWays(NamedTuple):
    """Who asked, and the documents: of the first look and of the daemon, which goes on."""

    user: User
    looked: dict[str, Any]
    asked: dict[str, Any]


@contextlib.asynccontextmanager
async def ask_both_ways(*words: str, first_look: Sequence[str] = ()) -> AsyncIterator[BothWays]:
    """Ask a sandbox with `FLAGS`. `first_look`: more words of that way.

    Raises AssertionError if either fails or is answered the other way, or if the daemon lists what
    it watches, does not list the rest, or writes.
    """
    seen: list[str] = []
    async with sandbox(flags=FLAGS, record=seen) as served, user(served.kubeconfig) as one:
        looked = await one.run(*words, *first_look, "-o", "json")
        assert looked.code == 0 and "a first look" in looked.err, looked
        await one.watching()
        seen.clear()
        asked = await one.run(*words, "-o", "json")
        assert asked.code == 0 and "a first look" not in asked.err, asked
        listed = {path.rpartition("/")[2] for path in seen}
        assert {"poddisruptionbudgets", "services", "replicasets"} <= listed
        assert not listed & {"pods", "nodes"}
        assert served.server.faults.writes_seen == []
        before, now = json.loads(looked.out), json.loads(asked.out)
        assert (before["source"]["kind"], now["source"]["kind"]) == ("direct", "daemon")
        yield BothWays(one, before, now)
