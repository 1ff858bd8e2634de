"""The address of a webhook is its password: it is in no command line, card or log of the daemon."""

from pathlib import Path

from tests.daemon.user import user
from tests.loopback import sandbox

SECRET = "T0PSECRET"
WEBHOOK = f"http://127.0.0.1:9/services/{SECRET}"


async def test_the_address_goes_to_the_daemon_by_a_pipe() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        await one.begin("--webhook", WEBHOOK, "--notify-on", "nodeLost")
        pid = (await one.health())["pid"]
        command = Path(f"/proc/{pid}/cmdline")
        said = command.read_bytes().decode() if command.exists() else "--notify-on"
        assert "--notify-on" in said and SECRET not in said
        for path in one.home.rglob("*"):
            if path.is_file() and path.suffix in (".json", ".log", ".db", ""):
                assert SECRET.encode() not in path.read_bytes(), path
        refused = await one.run("daemon", "restart")
        assert refused.code == 1 and "daemon restart --webhook=..." in refused.err
        await one.ok("daemon", "restart", "--webhook", WEBHOOK)
