"""Credential plugins that fail: at once, late, by a signal, with output without end, or never.

An expired login is the commonest of all failures, so that it must be one line, soon, from every
command that asks a cluster, however many requests wait for the credential.
"""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.connection import Connection
from kubectl_nodelife.live.plugin import run_program
from kubectl_nodelife.live.target import find_target

V1 = "client.authentication.k8s.io/v1"

AT_ONCE = "echo token expired >&2; exit 255"
LATE = f"sleep 0.3; {AT_ONCE}"
SIGNAL = "kill -SEGV $$"
ENDLESS = "yes"
ENDLESS_COMPLAINTS = "yes >&2"
NEVER = "sleep 600"
NEVER_IN_A_CHILD = "sleep 600 & wait"
PIPE_LEFT_OPEN = f"sleep 600 & {AT_ONCE}"

FAILURES = [
    pytest.param(AT_ONCE, "exit code 255: token expired", id="at-once"),
    pytest.param(LATE, "exit code 255: token expired", id="late"),
    pytest.param(SIGNAL, "ended by SIGSEGV", id="by-a-signal"),
    pytest.param(ENDLESS, "prints more than", id="endless-output"),
    pytest.param(ENDLESS_COMPLAINTS, "no answer within 1.5 s", id="endless-stderr"),
    pytest.param(NEVER, "no answer within 1.5 s", id="never-ends"),
    pytest.param(NEVER_IN_A_CHILD, "no answer within 1.5 s", id="its-child-never-ends"),
    pytest.param(PIPE_LEFT_OPEN, "exit code 255: token expired", id="leaves-its-output-open"),
]


@pytest.fixture(autouse=True)
def ended_where_it_hangs() -> Iterator[None]:
    """What hangs fails, instead of holding up all tests."""

    def hangs(number: int, frame: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def kubeconfig(folder: Path, script: str, *, count: bool = False) -> str:
    """A kubeconfig whose user has that shell script as plugin. `count`: each run adds to `ran`."""
    counted = f"printf x >> {folder}/ran; " if count else ""
    exec_ = {
        "apiVersion": V1,
        "command": "sh",
        "args": ["-c", counted + script],
        "interactiveMode": "Never",
    }
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"exec": exec_}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize("script, complaint", FAILURES)
async def test_each_of_many_requests_fails_with_the_plugins_words(
    tmp_path: Path, script: str, complaint: str
) -> None:
    path = kubeconfig(tmp_path, script, count=True)
    flags = Connection(kubeconfig=path, request_timeout="1500ms")
    client = Client(Session(find_target(flags, {}), {"PATH": "/usr/bin:/bin"}))
    asked = (client.read("/x") for _ in range(8))
    errors = await asyncio.gather(*asked, return_exceptions=True)
    await client.close()
    assert all(isinstance(e, Failed) and complaint in str(e) for e in errors), errors
    assert (tmp_path / "ran").read_text() == "x"  # nobody is sent to a login page eight times


@pytest.mark.parametrize("script, complaint", FAILURES)
def test_a_request_that_fails_first_holds_up_nobody_at_the_end(
    tmp_path: Path, script: str, complaint: str
) -> None:
    """The other requests are cancelled while the plugin runs for them."""
    path = kubeconfig(tmp_path, script)
    flags = Connection(kubeconfig=path, request_timeout="1500ms")

    async def test() -> None:
        one, other = (
            Client(Session(find_target(flags, {}), {"PATH": "/usr/bin:/bin"})) for _ in range(2)
        )
        waiting = asyncio.ensure_future(other.read("/x"))
        try:
            await one.read("/x")
        finally:
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled() or isinstance(waiting.exception(), Failed)

    with pytest.raises(Failed, match=complaint):
        asyncio.run(test())


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.005, 0.05])
def test_a_program_that_is_waited_for_no_longer_is_ended(tmp_path: Path, after_s: float) -> None:
    pid = tmp_path / "pid"

    async def test() -> None:
        script = f"echo $$ > {pid}; exec sleep 600"
        running = asyncio.ensure_future(run_program(["sh", "-c", script], {}, seconds=600))
        await asyncio.sleep(after_s)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    asyncio.run(test())
    if pid.exists() and (number := pid.read_text().strip()):
        assert not Path(f"/proc/{number}").exists()


async def test_a_failure_is_said_again_for_a_moment_and_then_the_plugin_is_asked_anew(
    tmp_path: Path,
) -> None:
    path = kubeconfig(tmp_path, AT_ONCE, count=True)
    flags = Connection(kubeconfig=path)
    session = Session(find_target(flags, {}), {"PATH": "/usr/bin:/bin"})
    client = Client(session)
    for _ in range(3):
        with pytest.raises(Failed, match="token expired"):
            await client.read("/x")
    assert (tmp_path / "ran").read_text() == "x"
    session._again_at = 0.0  # as some seconds later
    with pytest.raises(Failed, match="token expired"):
        await client.read("/x")
    assert (tmp_path / "ran").read_text() == "xx"
    session.take(find_target(flags, {}))  # other credentials are tried at once
    with pytest.raises(Failed, match="token expired"):
        await client.read("/x")
    assert (tmp_path / "ran").read_text() == "xxx"


LIVE_VERBS = [
    "status",
    "status -o json",
    "explain node n1",
    "explain pod p",
    "drain-plan n1",
    "drain n1 --yes",
    "upgrade plan n1 --nothing",
    "upgrade start n1 --nothing --yes",
    "upgrade status",
    "budgets",
    "daemonset -A",
    "daemonset status daemonset x",
    "replay",
    "audit",
    "repair --yes",
    "snapshot save {folder}/saved.tar.gz",
    "doctor",
]


@pytest.mark.parametrize("script", [pytest.param(LATE, id="late"), pytest.param(NEVER, id="never")])
@pytest.mark.parametrize("verb", LIVE_VERBS)
def test_each_live_verb_says_it_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    verb: str,
    script: str,
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, script))
    monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "r"))
    monkeypatch.setenv("HOME", str(tmp_path))
    words = [word.format(folder=tmp_path) for word in verb.split()]
    code = main([*words, f"--request-timeout={'30s' if script == LATE else '700ms'}"])
    said = capfd.readouterr()
    complaint = "token expired" if script == LATE else "no answer within 0.7 s"
    lines = [line for line in (said.err + said.out).splitlines() if complaint in line]
    # doctor begins with the first of its findings, and lists them all in a table
    assert len(lines) == (2 if verb == "doctor" else 1), said
    assert code != 0 or verb == "doctor"  # which tells of it as one finding of many
    assert "Unknown child process" not in said.err and "Traceback" not in said.err
