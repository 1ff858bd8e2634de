"""`ui`: opens the page through the daemon, closes it, and refuses ports it may not have."""

import re
import socket
import subprocess
import sys
from importlib.util import find_spec

import aiohttp

from tests.daemon.user import SET, user
from tests.loopback import sandbox


async def status_of(url: str) -> int:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


async def test_it_starts_a_daemon_opens_the_page_and_closes_it() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        said = await one.run("ui", "--stop")
        assert (said.code, said.err) == (0, "no page is open\n")
        assert (await one.run("daemon", "status")).code == 3
        first = await one.run("ui")  # no terminal: no browser
        assert first.code == 0, first
        url, _, token = first.out.splitlines()[-1].partition("#token=")
        assert url.startswith("http://127.0.0.1:") and len(token) == 43
        assert await status_of(url) == 200
        health = await one.health()
        assert health["ui"] == {"url": url, "sessions": 0, "readers": 0}
        again = (await one.ok("ui", "--no-open")).strip()
        assert again.startswith(f"{url}#token=") and not again.endswith(token)
        assert "other users of this machine cannot open the page" in first.err
        second = await one.run("ui", "--print-url", "--read-only-token")
        assert second.err == "" and second.out.startswith(f"{url}#token=")
        said = await one.run("ui", "--stop")
        assert said.err == f"closed {url}\n" and await status_of(url) == 0
        assert "ui" not in await one.health()


async def test_print_url_prints_the_address_and_nothing_else() -> None:
    """Also where a daemon is started for it, and where warnings are due."""
    async with sandbox() as served, user(served.kubeconfig) as one:
        one.environ["SSH_CONNECTION"] = "1.2.3.4 5 6.7.8.9 22"
        for words in ((), ("--no-open",), ("--read-only-token",), ("-v", "1")):
            said = await one.run("ui", "--print-url", *words)
            assert said.code == 0, said
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[\w-]{43}\n", said.out), said


async def test_the_port_of_the_last_time_is_taken_again_where_it_is_free() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        first = (await one.run("ui")).out.splitlines()[-1].partition("#")[0]
        await one.ok("daemon", "stop")
        assert (await one.run("ui")).out.splitlines()[-1].startswith(f"{first}#token=")
        await one.ok("ui", "--stop")
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", int(first.rpartition(":")[2].strip("/"))))
            taken.listen()
            other = (await one.ok("ui", "--no-open")).partition("#")[0]
            assert other != first and await status_of(other) == 200


async def test_ports_that_are_taken_or_not_allowed_are_refused() -> None:
    async with sandbox() as served, user(served.kubeconfig) as one:
        await one.begin(*SET)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            said = await one.run("ui", "--port", str(port))
            assert said.code == 2 and f"port {port} is taken" in said.err
        for number in ("80", "70000", "-1"):
            said = await one.run("ui", f"--port={number}")
            assert said.code == 2 and "is not allowed" in said.err and "--port" in said.err
        said = await one.run("ui", "--for", "13h")
        assert said.code == 2 and "between 1s and 12h" in said.err
        opened = (await one.ok("ui", "--for", "2s")).partition("#")[0]

        async def closed() -> bool:
            return await status_of(opened) == 0

        await one.until(closed)
        one.environ["SSH_CONNECTION"] = "1.2.3.4 5 6.7.8.9 22"
        said = await one.run("ui", "--port", "0")
        port = int(said.out.rpartition(":")[2].partition("/")[0])
        assert f"ssh -N -L {port}:127.0.0.1:{port}" in said.err


LOADED = """
import sys
import kubectl_nodelife.commands.answering.for_daemon
import kubectl_nodelife.daemon.process
print(*sys.modules)
"""


def test_a_daemon_without_a_page_has_not_loaded_it() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    page = {"daemon.ui.endpoint", "daemon.ui.live_feed"}
    page |= {"outlook.live_wall", "outlook.works", "commands.answering.drain_plan"}
    assert "kubectl_nodelife.daemon.run" in loaded
    named = {f"kubectl_nodelife.{name}" for name in page}
    assert not loaded & named and all(find_spec(name) is not None for name in named)
