"""Our daemon as a process that enforces on a real control plane, with the least rights."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.real.control_plane import ControlPlane
from tests.real.journal_judge import followed_nothing

CONTROLLERS = ("node-lifecycle", "taint-eviction", "pod-gc", "daemonset")
_BEGIN_S = 90
_END_S = 30
_PROGRAM = (sys.executable, "-m", "kubectl_nodelife")
_BEGUN = re.compile(r"^enforcing \S+ since \S+$", re.MULTILINE)


class Enforcer:
    """`daemon run --enforce=...` with folders of its own. `start` may be called again."""

    def __init__(self, kubeconfig: Path, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        folder.mkdir(exist_ok=True)
        run = folder / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(run),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self, *, wait: bool = True) -> None:
        """Start the process; `wait` until it says that it enforces."""
        self._starts += 1
        command = [*_PROGRAM, "daemon", "run", f"--enforce={','.join(CONTROLLERS)}", *self.flags]
        with self._out.open("wb") as out, (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--yes"],
                stdout=out,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment,
            )
        if wait:
            self.wait_until_begun()

    def wait_until_begun(self, seconds: float = _BEGIN_S) -> None:
        """Until it says so. Raises AssertionError with its last words."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.has_begun():
                return
            if self.process is None or self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"the daemon does not enforce:\n{self.log()}")

    def has_begun(self) -> bool:
        """True if this start of it says that it enforces."""
        return _BEGUN.search(self._out.read_text()) is not None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM did not end it in {_END_S}s:\n{self.log()}") from None

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command of the product in the same folders."""
        return subprocess.run(
            [*_PROGRAM, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def log(self) -> str:
        """The last of what it logged."""
        path = self.folder / "log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    @property
    def _out(self) -> Path:
        return self.folder / f"out-{self._starts}"


@contextlib.contextmanager
def enforcer(
    plane: ControlPlane, *flags: str, server: str = "", ca: str = "", kubeconfig: Path | None = None
) -> Iterator[Enforcer]:
    """A started enforcer, ended afterwards. `server`, `ca`: a proxy before the API server.

    `kubeconfig`: one that is there already.
    """
    kubeconfig = kubeconfig or least_privilege(plane, server=server, ca=ca)
    one = Enforcer(kubeconfig, plane.folder / f"enforcer-{time.monotonic_ns()}", *flags)
    try:
        one.start()
        yield one
        one.kill()
        assert followed_nothing(one.folder / "state") == []
    finally:
        one.kill()
        if keep := os.environ.get("NODELIFE_KEEP"):
            no_sockets = shutil.ignore_patterns("*.sock")
            kept = Path(keep) / one.folder.name
            shutil.copytree(one.folder, kept, ignore=no_sockets, dirs_exist_ok=True)


def least_privilege(plane: ControlPlane, *, server: str = "", ca: str = "") -> Path:
    """A kubeconfig of the ServiceAccount that `rbac --mode enforce` prints, TLS verified."""
    command = [*_PROGRAM, "rbac", "--mode", "enforce", f"--enforce={','.join(CONTROLLERS)}"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    objects = plane.folder / "rbac.yaml"
    objects.write_text(printed)
    plane.kubectl("apply", "-f", str(objects))
    account = next(o for o in yaml.safe_load_all(printed) if o["kind"] == "ServiceAccount")
    name, namespace = account["metadata"]["name"], account["metadata"]["namespace"]
    folder = plane.folder / f"least-{time.monotonic_ns()}"  # nothing else changes in it
    folder.mkdir()
    path = folder / "kubeconfig"
    return plane.account_kubeconfig(name, namespace, path, server=server, ca=ca)
