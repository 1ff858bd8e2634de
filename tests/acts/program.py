"""Our program as a process, on a sandbox or a real control plane, with folders of its own."""

import asyncio
import os
import sys
from typing import NamedTuple


class Ended(NamedTuple):
    """How it ended, and what it said."""

    code: int | None
    out: str
    err: str


async def start(kubeconfig: str, folder: str, *words: str) -> asyncio.subprocess.Process:
    """Start it; nobody is there to ask."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kubectl_nodelife",
        *words,
        env={
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "KUBECONFIG": kubeconfig,
            "NODELIFE_STATE_DIR": f"{folder}/state",
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def nodelife(kubeconfig: str, folder: str, *words: str) -> Ended:
    """Run it to its end."""
    process = await start(kubeconfig, folder, *words)
    out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())
