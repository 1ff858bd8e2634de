"""A user with a home of their own, who types commands against a sandbox."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kubectl_nodelife.sandbox.tls import Sandbox
from tests.loopback import edited

ROOT = Path(__file__).parents[2]

FLAGS = {
    "node-monitor-period": "500ms",
    "node-monitor-grace-period": "3s",
    "node-eviction-rate": "10",
}
SET = tuple(f"--set={flag}={value}" for flag, value in FLAGS.items())
PATIENT = {**FLAGS, "node-monitor-grace-period": "8s"}
"""For tests in which nobody may be called lost while the machine is busy with other things."""

HEARTBEATS = "sandbox.nodelife.dev/heartbeats"
DEADLINE_S = 120.0


class Said(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


class User:
    """Runs whole processes of the program. `environ` may be changed."""

    def __init__(self, home: Path, kubeconfig: str) -> None:
        self.home = home
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": kubeconfig,
            "NODELIFE_RUNTIME_DIR": f"{home}/r",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
        }
        self.program: list[str] = [sys.executable, "-P", "-m", "kubectl_nodelife"]

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        """A command that goes on."""
        return await asyncio.create_subprocess_exec(
            *self.program,
            *args,
            env=self.environ,
            cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *args: str) -> Said:
        """A command, to its end."""
        process = await self.start(*args)
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            raise
        assert process.returncode is not None
        return Said(process.returncode, out.decode(), err.decode())

    async def ok(self, *args: str) -> str:
        """The output of a command that must succeed."""
        said = await self.run(*args)
        assert said.code == 0, f"{args}: {said}"
        return said.out

    async def json(self, *args: str) -> Any:
        """The document that a command prints with -o json."""
        said = await self.run(*args, "-o", "json")
        assert said.out, f"{args}: {said}"
        return json.loads(said.out)

    async def health(self) -> dict[str, Any]:
        """The one daemon's state."""
        (item,) = (await self.json("daemon", "status"))["items"]
        found: dict[str, Any] = item
        return found

    async def until(self, wanted: Callable[[], Awaitable[Any]]) -> Any:
        """What `wanted` gives, as soon as that is something."""
        end = time.monotonic() + DEADLINE_S
        while not (found := await wanted()):
            assert time.monotonic() < end, "it did not come true in time"
            await asyncio.sleep(0.1)
        return found

    async def warned(self, *args: str, of: str | tuple[str, ...]) -> str:
        """Run a command until its stderr says that, or all of that; returns the stderr."""
        words = (of,) if isinstance(of, str) else of

        async def says() -> str:
            err = (await self.run(*args)).err
            return err if all(word in err for word in words) else ""

        text: str = await self.until(says)
        return text

    async def begin(self, *args: str) -> Said:
        """Start a daemon, and wait until it has read the cluster."""
        said = await self.run("daemon", "start", *args)
        assert said.code == 0, said

        async def synced() -> bool:
            return bool((await self.health())["synced"])

        await self.until(synced)
        return said

    async def watching(self, flags: Mapping[str, str] = FLAGS) -> None:
        """A daemon that has watched for longer than a grace period."""
        await self.begin(*(f"--set={flag}={value}" for flag, value in flags.items()))

        async def warm() -> bool:
            return not (await self.health())["cold"]

        await self.until(warm)


@contextlib.asynccontextmanager
async def user(kubeconfig: str) -> AsyncIterator[User]:
    """A user whose daemons end with the test."""
    home = Path(tempfile.mkdtemp(prefix="nl", dir="/tmp"))  # short: a socket's path has a limit
    one = User(home, kubeconfig)
    try:
        yield one
    finally:
        await one.run("daemon", "stop", "--all", "--force")
        shutil.rmtree(home, ignore_errors=True)


def silence(served: Sandbox, name: str, how: str = "stop") -> None:
    """Stop or start a node's kubelet, as annotating it with kubectl does."""
    with edited(served, "Node", name) as node:
        node["metadata"].setdefault("annotations", {})[HEARTBEATS] = how


async def lines_of(stream: asyncio.StreamReader | None, wanted: str) -> str:
    """What a going command has printed up to the line that holds the words."""
    assert stream is not None
    text = ""
    while wanted not in text.rpartition("\n")[0].rpartition("\n")[2]:
        async with asyncio.timeout(DEADLINE_S):
            line = (await stream.readline()).decode()
        assert line, f"it ended: {text}"
        text += line
    return text
