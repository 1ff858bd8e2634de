"""`top` in a real terminal, of 80 x 24 cells, on a daemon that watches the sandbox."""

from __future__ import annotations

import asyncio
import shlex
import shutil

import pytest

from tests.daemon.user import SET, silence, user
from tests.loopback import play, sandbox

TMUX = shutil.which("tmux")
FLAGS = {
    "node-monitor-period": "500ms",
    "node-monitor-grace-period": "3s",
    "node-eviction-rate": "10",
}


async def tmux(folder: str, *words: str) -> str:
    assert TMUX is not None
    process = await asyncio.create_subprocess_exec(
        TMUX, "-f", "/dev/null", "-S", f"{folder}/tmux", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.skipif(TMUX is None, reason="there is no tmux on this machine")
def test_it_is_readable_at_80_by_24() -> None:
    async def test() -> None:
        controllers = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc")
        async with (
            sandbox(controllers=controllers, flags=FLAGS) as served,
            user(served.kubeconfig) as one,
        ):
            await one.begin(*SET)
            home = str(one.home)
            environ = [f"{key}={value}" for key, value in one.environ.items()]
            command = shlex.join(["env", *environ, "TERM=screen", *one.program, "top"])
            try:
                start = (
                    "new-session",
                    "-d",
                    "-x",
                    "80",
                    "-y",
                    "24",
                    f"{command}; echo code $?; cat",
                )
                await tmux(home, *start)

                async def shows(*words: str) -> str:
                    async def found() -> str:
                        screen = await tmux(home, "capture-pane", "-p")
                        return screen if all(word in screen for word in words) else ""

                    text: str = await one.until(found)
                    return text

                first = (await shows("ZONE", "NODE", "WHAT COMES NEXT", "q quit")).splitlines()
                assert len(first) <= 24 and all(len(line) <= 80 for line in first)
                assert sum(line.startswith(("a1 ", "a2 ", "b1 ", "b2 ")) for line in first) == 4
                silence(served, "a1")
                await shows("unreachable", "DeletePod")
                await tmux(home, "send-keys", "Down", "Enter")
                await shows("its kubelet stopped posting")
                await tmux(home, "send-keys", "Escape")
                await shows("WHAT COMES NEXT")
                await one.run("daemon", "stop")
                await shows("error: no daemon runs", "code 3")
            finally:
                await tmux(home, "kill-server")

    play(test)
