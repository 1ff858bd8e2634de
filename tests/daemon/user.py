"""A user with a home of their own, who types commands against a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]


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

    async def until(self, wanted: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
        """What `wanted` gives, as soon as that is something."""
        end = time.monotonic() + seconds
        while not (found := await wanted()):
            assert time.monotonic() < end, "it did not come true in time"
            await asyncio.sleep(0.1)
        return found

    async def warned(self, *args: str, of: str, seconds: float = 30.0) -> str:
        """Run a command until its stderr says that; returns the stderr."""

        async def says() -> str:
            err = (await self.run(*args)).err
            return err if of in err else ""

        text: str = await self.until(says, seconds)
        return text


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
