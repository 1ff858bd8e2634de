"""Makes the pictures of docs/ anew: `bin/docs pictures`; `bin/docs pictures reports` those of the
static pages alone, of a dump of the tests.

For the live page, a sandbox of 36 nodes in three zones, of which one goes dark and two nodes of
another fall silent; then somebody drains one of the third, which does not go on.
"""

import asyncio
import base64
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.daemon.user import silence, user
from tests.loopback import play, sandbox
from tests.ui.browser import Browser, browser
from tests.ui.stuck_drain import begin_stuck_drain

DOCS = Path(__file__).parents[2] / "docs"
CONTROLLERS = ("node-lifecycle", "taint-eviction", "daemonset", "pod-gc")
FLAGS = {
    "node-monitor-period": "1s",
    "node-monitor-grace-period": "12s",
    "node-eviction-rate": "0.1",
}
GENERATE = {"zones": 3, "nodesPerZone": 12, "podsPerNode": 6, "daemonSets": 1}
DARK = [f"b{number}" for number in range(1, 13)]


async def picture(window: Browser, path: Path, address: str, *size: int, scheme: str) -> None:
    """One picture of the page as it is now."""
    await window.look(*size, scheme)
    await window.run("location.hash = arguments[0]", address)
    if address != "#/":
        await window.until("return document.querySelectorAll('#panel-body h3').length > 2")
    await window.run("document.activeElement.blur(); scrollTo(0, 0)")
    await asyncio.sleep(1.5)  # text is made once a second
    await window.picture(path)


def make(folder: Path) -> None:
    """All of them."""

    async def made() -> None:
        async with (
            sandbox(controllers=CONTROLLERS, flags=FLAGS, generate=GENERATE) as served,
            user(served.kubeconfig) as one,
            browser() as window,
        ):
            await one.watching(FLAGS)
            await window.look(1280, 860)
            await window.go((await one.ok("ui", "--no-open")).strip())
            legend = "return document.querySelector('#legend').innerText"
            await window.until(f"{legend}.includes('healthy 36')")
            for name in DARK:
                silence(served, name)
            await window.until(f"{legend}.includes('unreachable 12')")
            for name in ("a3", "a7"):
                silence(served, name)
            await window.until(f"{legend}.includes('unreachable 14')")
            await picture(window, folder / "ui.png", "#/", 1280, 1000, scheme="light")
            address = "#/node/a3"
            await picture(window, folder / "ui-dark.png", address, 1280, 1000, scheme="dark")
            await picture(window, folder / "ui-narrow.png", "#/", 360, 900, scheme="light")
            await begin_stuck_drain(served, "c2")
            await window.look(1280, 1000)
            works = "document.getElementById('works')"
            await window.until(f"return {works}.innerText.includes('may go now')")
            await window.run(f"{works}.scrollIntoView()")
            await asyncio.sleep(1.5)
            element = await window.run(f"return {works}")
            shot = await window.command("GET", f"element/{next(iter(element.values()))}/screenshot")
            (folder / "ui-works.png").write_bytes(base64.b64decode(shot))

    play(made)


REPORTS = {
    "drain-plan.png": ("drain-plan", "worker-a1", "worker-a2", "--ignore-daemonsets"),
    "what-if.png": ("what-if", "lose", "zone", "eu-1a", "--for", "4m"),
    "replay.png": ("replay",),
}
DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"


def make_reports(folder: Path) -> None:
    """Those of the static pages."""

    async def made() -> None:
        async with browser() as window:
            for name, words in REPORTS.items():
                command = [sys.executable, "-m", "kubectl_nodelife", *words, "-f", str(DUMP)]
                done = subprocess.run([*command, "-o", "html"], capture_output=True, text=True)
                with tempfile.NamedTemporaryFile("w", suffix=".html") as file:
                    file.write(done.stdout)
                    file.flush()
                    await window.look(1240, 900)
                    await window.go(Path(file.name).as_uri())
                    await window.run("document.documentElement.style.overflow = 'hidden'")
                    await window.picture(folder / name)

    asyncio.run(made())


if __name__ == "__main__":
    make_reports(DOCS)
    if sys.argv[1:] != ["reports"]:
        make(DOCS)
