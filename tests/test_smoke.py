"""The program as a user has it, once through: a daemon watches a sandbox, answers, and ends.

All else that starts daemons is deep (tests/deep.py); this is in the short run.
"""

from tests.daemon.user import user
from tests.loopback import sandbox


async def test_a_daemon_watches_a_sandbox_answers_and_ends() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        await one.begin()
        status = await one.json("status")
        assert status["source"]["kind"] == "daemon"
        assert len(status["nodes"]) == 4

        plan = await one.json("drain-plan", "a1", "--ignore-daemonsets")
        assert plan["source"]["kind"] == "daemon"
        assert plan["verdict"] == "ready"

        await one.ok("daemon", "stop")
        assert (await one.json("daemon", "status"))["items"] == []
        assert set(served.server.requests) <= {"list", "watch", "get", ""}, "it only read"
