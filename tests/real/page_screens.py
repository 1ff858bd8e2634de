"""Makes the documentation's screens of a real control plane anew: `bin/docs screens --real`.

One story on three zones of two nodes, with upstream's controllers and kubelets played by a thread:
a DaemonSet is updated, a zone falls silent and comes back, a person uses kubectl, the controller
manager stands still, a node is drained. A block marked `<!-- screen of DATE, a control plane:
NAME -->` gets the screen that the story calls NAME; the test of the pages knows the same names.
"""

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Callable
from typing import Any, Final

from release.page_screens import DOCS
from tests.daemon.user import User, user
from tests.real.control_plane import ControlPlane, control_plane
from tests.real.drain_objects import budget, daemon_set, deployment
from tests.real.kubelets import Kubelets
from tests.real.shell_screens import put_sessions

FLAGS: Final = ("node-monitor-period=1s", "node-monitor-grace-period=10s", "node-eviction-rate=0.5")
SCREENS: Final = {
    "rollout": "daemonset status ds agent",
    "rollout-w": "daemonset status ds agent -w",
    "undo-shown": "daemonset undo ds agent --dry-run=client",
    "set-changes": "changes",
    "agrees": "diverge",
    "status-w": "status -w",
    "explain": "explain node c1",
    "changes": "changes --since 30s",
    "settings": "diverge",
    "notes": "diverge",
    "replay": "replay --since 90s",
    "stalled": "diverge",
    "drain": "drain a1 --ignore-daemonsets --yes",
    "undo": "daemonset undo ds/agent --yes",
}
"""What is typed for each screen, in the story's order."""

_IMPATIENT: Final = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 10}
    for key in ("unreachable", "not-ready")
]  # fmt: skip
_UNVERIFIED: Final = re.compile("^Warning: the .*certificate")  # true of this story alone
_MOST_LINES: Final = 36
_WIDEST: Final = 240
_MARK: Final = re.compile(
    r"^<!-- screen of \S+, a control plane: (\S+) -->\n```\n.*?^```$", re.MULTILINE | re.DOTALL
)
_SETS: Final = "/apis/apps/v1/namespaces/default/daemonsets/agent"


class Story:
    """The cluster, somebody whose daemon watches it, and the screens so far."""

    def __init__(self, plane: ControlPlane, kubelets: Kubelets, one: User, other: User) -> None:
        self.plane, self.kubelets, self.one, self.other = plane, kubelets, one, other
        self.screens: dict[str, str] = {}

    async def tell(self) -> None:
        """All of it."""
        await self.until(self.one, "daemonset", lambda out: " 6 " in out)
        await asyncio.sleep(12)  # a grace period has been watched
        await self.update()
        await self.lose_a_zone()
        await self.use_kubectl()
        await self.stop_the_manager()
        await self.show("drain")
        await self.show("undo")

    async def update(self) -> None:
        """A new image for the set."""
        for image in ("agent:7", "agent:12"):
            self.set_image(image)
            await asyncio.sleep(1)
            if image == "agent:12":
                await self.show("rollout")
            await self.show("rollout-w")
        await asyncio.sleep(2)
        await self.show("undo-shown")
        await self.show("set-changes")

    def set_image(self, image: str) -> None:
        """As `kubectl set image` does."""
        template = {"spec": {"containers": [{"name": "c", "image": image}]}}
        self.plane.api.strategic(_SETS, {"spec": {"template": template}})

    async def lose_a_zone(self) -> None:
        """Zone c is silent for half a minute."""
        following = asyncio.create_task(self.show("status-w", seconds=30))
        await asyncio.sleep(2)
        self.kubelets.stop("c1", "c2")
        await self.until(self.one, "explain node c1", lambda out: "  healthy: " not in out)
        await self.show("explain")
        await following
        await self.show("changes")
        self.kubelets.start("c1", "c2")
        await self.until(self.one, "diverge", lambda out: out.startswith("agrees"))
        await self.show("agrees")
        await self.until(self.other, "diverge", lambda out: "is likely 10s" in out)
        await self.show("settings", self.other)

    async def use_kubectl(self) -> None:
        """What is a person's right, and no controller's act."""
        self.plane.kubectl("taint", "node", "a2", "dedicated=gpu:NoExecute")
        self.plane.kubectl("cordon", "b1")
        await self.until(self.one, "diverge", lambda out: out.count("other-actor") > 1)
        await self.show("notes")
        await self.show("replay")
        self.plane.kubectl("taint", "node", "a2", "dedicated-")
        self.plane.kubectl("uncordon", "b1")

    async def stop_the_manager(self) -> None:
        """The controller manager stands still while a node is lost."""
        self.plane.signal("kube-controller-manager", signal.SIGSTOP)
        self.kubelets.stop("b2")
        await self.until(self.one, "diverge", lambda out: "stalled" in out and "missing" in out)
        await self.show("stalled")
        self.plane.signal("kube-controller-manager", signal.SIGCONT)
        self.kubelets.start("b2")
        await asyncio.sleep(15)

    async def show(self, name: str, who: User | None = None, seconds: float = 90) -> None:
        """Type the screen's command, and keep what is printed; `-w` is interrupted in time."""
        one, words = who or self.one, SCREENS[name]
        process = await asyncio.create_subprocess_exec(
            *(*one.program, *words.split()), env=one.environ, cwd=one.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        asyncio.get_running_loop().call_later(seconds, _interrupt, process)
        out, _ = await process.communicate()
        lines = [_cut(line) for line in out.decode().rstrip().splitlines()]
        lines = [line for line in lines if not _UNVERIFIED.search(line)]
        if len(lines) > _MOST_LINES:
            lines = [*lines[:_MOST_LINES], "..."]
        self.screens[name] = "\n".join([f"$ kubectl nodelife {words}", *lines])
        print(self.screens[name], flush=True)

    async def until(self, one: User, words: str, holds: Callable[[str], Any]) -> None:
        """Wait until that command prints so."""
        end = time.monotonic() + 120
        while not holds((said := await one.run(*words.split())).out):
            assert time.monotonic() < end, said
            await asyncio.sleep(0.5)


def _cut(line: str) -> str:
    """Tables end in sentences; prose stays whole."""
    is_row = re.search(r"\S {2,}\S", line)
    return line[:_WIDEST].rstrip() + "..." if is_row and len(line) > _WIDEST + 3 else line.rstrip()


def _interrupt(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def furnish(plane: ControlPlane, kubelets: Kubelets) -> None:
    """Six nodes in three zones, two Deployments, one with a budget, and a DaemonSet."""
    for node in ("a1", "a2", "b1", "b2", "c1", "c2"):
        zone = {"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": node[0]}
        kubelets.add_node(node, zone)
    agent = daemon_set("agent")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    agent["spec"]["updateStrategy"] = strategy
    api = deployment("api", 3, tolerations=_IMPATIENT)
    for obj in (agent, api, deployment("web", 6), budget("web", minAvailable=5)):
        group = {"DaemonSet": "apps/v1", "Deployment": "apps/v1"}.get(obj["kind"], "policy/v1")
        path = f"/apis/{group}/namespaces/default/{obj['kind'].lower()}s"
        plane.api.create(path, {"apiVersion": group, **obj})


async def made(plane: ControlPlane, kubelets: Kubelets) -> dict[str, str]:
    """The screens by name."""
    async with user(str(plane.kubeconfig)) as one, user(str(plane.kubeconfig)) as other:
        await one.ok("daemon", "start", *(f"--set={flag}" for flag in FLAGS))
        wrong = [flag.replace("=10s", "=16s") for flag in FLAGS]
        await other.ok("daemon", "start", *(f"--set={flag}" for flag in wrong))
        story = Story(plane, kubelets, one, other)
        try:
            await story.tell()
        finally:
            left_over = SCREENS.keys() - story.screens.keys()
            print(f"not made: {', '.join(sorted(left_over)) or 'none'}")
        return story.screens


def put(page: str, screens: dict[str, str], date: str) -> str:
    """The page with those screens."""

    def replaced(found: re.Match[str]) -> str:
        text = screens.get(found[1])
        mark = f"<!-- screen of {date}, a control plane: {found[1]} -->"
        return found[0] if text is None else f"{mark}\n```\n{text}\n```"

    return _MARK.sub(replaced, page)


def main() -> None:
    """Play the story, and put its screens into the pages."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored in background
    manager = [f"--{flag}" for flag in FLAGS]
    with (
        control_plane(controller_manager=manager, scheduler=True) as plane,
        Kubelets(plane.api) as kubelets,
    ):
        furnish(plane, kubelets)
        screens = asyncio.run(made(plane, kubelets))
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text()
        date = time.strftime("%Y-%m-%d")
        after = put_sessions(put(before, screens, date), date)
        if after != before:
            path.write_text(after)


if __name__ == "__main__":
    main()
