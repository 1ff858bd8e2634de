"""A control plane on which Kubernetes' own end-to-end tests run, our daemon as its controllers.

The controller manager runs without node lifecycle, taint eviction, pod GC and DaemonSets; kwok
plays the kubelets of five nodes in three zones; the daemon enforces in their place, under the
ServiceAccount and the role that `rbac --mode enforce` prints, and nothing more. `.ci/kube-e2e`
builds what is needed.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.control_plane import ControlPlane, assets, control_plane, until
from tests.real.enforcing import Enforcer, least_privilege

UPSTREAM_NAMES = (
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "daemonset-controller",
)
NODES = 5
KWOK = "0.8.0"
GC_THRESHOLD = 100  # as the spec of the garbage collector assumes
_READY_S = 60
_LABELS = re.compile(r"( \[[^]]+\])+$")
"""The labels of a spec stand behind its text."""

_API_SERVER = ("--authorization-mode=Node", "--disable-admission-plugins=PodSecurity")
_MANAGER = (
    f"--terminated-pod-gc-threshold={GC_THRESHOLD}",
    "--use-service-account-credentials=true",
)


def e2e_assets() -> Path | None:
    """The folder with e2e.test and kwok beside the control plane, or None."""
    folder = assets()
    if folder is None:
        return None
    there = all(os.access(folder / name, os.X_OK) for name in ("e2e.test", "kwok"))
    return folder if there and stages(folder) else None


def stages(folder: Path) -> list[Path]:
    """Files that tell kwok how its kubelets behave."""
    return sorted((folder.parent / "kwok-stages" / KWOK).glob("*.yaml"))


@dataclass(frozen=True)
class Outcome:
    """How one spec ended; `message`: why it failed."""

    name: str
    state: str
    seconds: float
    message: str


class Stand:
    """A running control plane with kwok's nodes, and the daemon where `begin` was called."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.programs = plane.programs
        self.folder = plane.folder
        self.daemon: Enforcer | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_nodes(self) -> None:
        """Nodes in three zones, kept alive by kwok; returns when all are Ready."""
        for i in range(NODES):
            self.plane.api.create("/api/v1/nodes", _node(i))
        flags = [f"--kubeconfig={self.plane.kubeconfig}", "--manage-all-nodes"]
        flags.append("--node-lease-duration-seconds=40")
        for file in self._stages():
            flags += ["-c", str(file)]
        with (self.folder / "kwok.log").open("ab") as log:
            command = [str(self.programs / "kwok"), *flags]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

        def are_ready() -> bool:
            return sum(map(_is_ready, self.plane.api.get("/api/v1/nodes")["items"])) == NODES

        until(are_ready, "kwok's nodes are Ready", _READY_S)

    def begin(self, *flags: str) -> Enforcer:
        """Start the daemon in the controllers' place; returns when it says that it enforces."""
        self.daemon = Enforcer(least_privilege(self.plane), self.folder / "daemon", *flags)
        self.daemon.start()
        return self.daemon

    def run_specs(self, focus: str, timeout_s: int = 1200) -> list[Outcome]:
        """Run the specs whose full name matches the regular expression."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        command = [
            str(self.programs / "e2e.test"),
            f"--kubeconfig={self.plane.kubeconfig}",
            "--provider=skeleton",
            "--allowed-not-ready-nodes=0",
            "--num-nodes=2",
            f"--ginkgo.focus={focus}",
            "--ginkgo.v",
            "--ginkgo.no-color",
            f"--ginkgo.json-report={report}",
            f"--ginkgo.timeout={timeout_s}s",
            "--delete-namespace-on-failure=true",
            "--node-schedulable-timeout=1m",
            "--system-pods-startup-timeout=1m",
        ]
        with (self.folder / "e2e.log").open("ab") as log:
            limit_s = timeout_s + 60
            subprocess.run(
                command, stdout=log, stderr=log, timeout=limit_s, check=False, cwd=self.folder
            )
        return list(_outcomes(json.loads(report.read_text())))

    def close(self) -> None:
        """End the daemon and kwok."""
        if self.daemon is not None:
            self.daemon.kill()
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def _stages(self) -> Iterator[Path]:
        """kwok's own, but an image that does not exist never starts: the roll-back spec asks so."""
        for file in stages(self.programs):
            text = file.read_text()
            if "pod-ready" in file.name:
                rule = (
                    "    matchExpressions:\n"
                    "    - key: '.spec.containers.[].image'\n"
                    "      operator: 'NotIn'\n"
                    "      values: ['foo:non-existent']\n"
                )
                text = text.replace("    matchExpressions:\n", rule, 1)
            own = self.folder / file.name
            own.write_text(text)
            yield own


@contextlib.contextmanager
def stand(*, real_controllers: bool = False) -> Iterator[Stand]:
    """A stand with ready nodes. Nobody does the four controllers' work but `real_controllers`."""
    without = "" if real_controllers else "".join(f",-{name}" for name in UPSTREAM_NAMES)
    with control_plane(
        api_server=_API_SERVER,
        controller_manager=(f"--controllers=*{without}", *_MANAGER),
        scheduler=True,
    ) as plane:
        made = Stand(plane)
        try:
            made.start_nodes()
            yield made
        finally:
            made.close()
            if keep := os.environ.get("NODELIFE_KEEP"):
                no_sockets = shutil.ignore_patterns("*.sock")
                kept = Path(keep) / plane.folder.name
                shutil.copytree(plane.folder, kept, ignore=no_sockets, dirs_exist_ok=True)


def _node(number: int) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": f"n{number}",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": "abc"[number % 3],
        "type": "kwok",
    }
    annotations = {"node.alpha.kubernetes.io/ttl": "0"}
    metadata = {"name": f"n{number}", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _outcomes(report: list[dict[str, Any]]) -> Iterator[Outcome]:
    for suite in report:
        for spec in suite["SpecReports"] or ():
            is_spec = spec["LeafNodeType"] == "It"
            if spec["State"] == "skipped" or (not is_spec and spec["State"] == "passed"):
                continue
            texts = [*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]
            name = " ".join(texts) if is_spec else spec["LeafNodeType"]  # a suite's set-up
            name = _LABELS.sub("", name)
            message = (spec.get("Failure") or {}).get("Message", "")
            yield Outcome(name, spec["State"], spec["RunTime"] / 1e9, message)
