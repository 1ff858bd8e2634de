"""A page of screens for the documentation, made anew each time: `python -m release.screens FILE`.

A sandbox is started with a daemon beside it, and the commands are typed as a reader would; what
they print is the page. Nothing is kept, so that no screen can be older than the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]

SCENARIO = """
apiVersion: nodelife.dev/v1alpha1
kind: Scenario
metadata: {name: screens}
spec:
  kubelet: {leaseRenewInterval: 1s}
  generate: {zones: 2, nodesPerZone: 3, podsPerNode: 4, daemonSets: 1}
"""

SCREENS = (
    ("Is everything there?", "doctor"),
    ("A daemon that watches", "daemon start"),
    ("Each node's clock, each zone's brake", "status"),
    ("Why nothing has happened yet", "explain node a1"),
    ("Will a drain finish?", "drain-plan a1 --ignore-daemonsets --delete-emptydir-data"),
    ("Which budgets hold which nodes", "budgets -A"),
    ("Why DaemonSets have the pods they have", "daemonset -A"),
    ("Pods that are stuck", "audit -A"),
    ("The same logic on a virtual clock", "simulate -f zone-outage.yaml"),
)


@contextmanager
def sandbox(folder: Path) -> Iterator[Mapping[str, str]]:
    """The environment of a user whose kubeconfig is a sandbox's."""
    (folder / "run").mkdir(mode=0o700)
    (folder / "sandbox.yaml").write_text(SCENARIO)
    outage = (ROOT / "bin/stories/zone-outage.yaml").read_text()
    (folder / "zone-outage.yaml").write_text(outage)
    environ = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "NODELIFE_RUNTIME_DIR": str(folder / "run"),
        "LANG": "C.UTF-8",
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "kubectl_nodelife", "sandbox", "-f", "sandbox.yaml"],
        env=environ, cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        config = server.stdout.readline().partition("=")[2].strip()
        yield {**environ, "KUBECONFIG": config}
    finally:
        server.terminate()
        server.wait(30)


def page() -> str:
    """The page, in Markdown. Raises subprocess.CalledProcessError where a command fails."""
    parts = ["# Screens\n\nMade with this very version, on a [sandbox](sandbox.md).\n"]
    with tempfile.TemporaryDirectory(prefix="nl-") as name, sandbox(Path(name)) as environ:
        program = [sys.executable, "-m", "kubectl_nodelife"]
        try:
            for title, words in SCREENS:
                done = subprocess.run(
                    [*program, *words.split()], env=environ, cwd=name, check=True,
                    capture_output=True, text=True, timeout=120,
                )  # fmt: skip
                shown = f"$ kubectl nodelife {words}\n{done.stdout.replace(name, '~')}"
                parts.append(f"## {title}\n\n```\n{shown.rstrip()}\n```\n")
        finally:
            subprocess.run([*program, "daemon", "stop"], env=environ, capture_output=True)
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
