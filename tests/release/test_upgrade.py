"""An upgrade as krew does it, under a daemon that enforces: the new version takes over its work.

krew itself is not needed: the new folder is laid beside the old one, the link is led there, and the
old folder is removed.
"""

import os
import shutil
import sys
import tarfile
import time
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from release.manifest import archive_name
from tests.release.users import OLD, User, daemon_of, pythons, sandbox

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64",
    reason="the archive for linux/amd64 is tried, and this is another machine",
)
LINUX = archive_name("linux-amd64")
ORDERS = ("--enforce=daemonset", "--begin=restart", "--assume-stopped=daemonset", "--yes")


class Krew:
    """krew's folder, without krew."""

    def __init__(self, root: Path) -> None:
        self.store, self.link = root / "store/nodelife", root / "bin/kubectl-nodelife"
        self.link.parent.mkdir(parents=True)

    def upgrade(self, archive: Path, version: str) -> None:
        """Install that version, and remove all others."""
        with tarfile.open(archive) as tar:
            tar.extractall(self.store / f"v{version}", filter="tar")
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(self.store / f"v{version}/nodelife/kubectl-nodelife")
        for folder in self.store.iterdir():
            if folder.name != f"v{version}":
                shutil.rmtree(folder)


def test_an_enforcing_daemon_hands_over(release: Path, old_archive: Path, tmp_path: Path) -> None:
    krew = Krew(tmp_path / "krew")
    krew.upgrade(old_archive, OLD)
    user = User(tmp_path / "home", next(iter(pythons().values())))
    user.environ["PATH"] = f"{krew.link.parent}:{user.environ['PATH']}"
    with sandbox(user) as kubeconfig:
        user.environ["KUBECONFIG"] = kubeconfig
        user.ok("kubectl-nodelife", "daemon", "start", *ORDERS)
        try:
            old = daemon_of(user)
            assert (old["version"], old["mode"]) == (OLD, "enforce")
            krew.upgrade(release / LINUX, __version__)
            end = time.monotonic() + 90
            while (new := daemon_of(user)).get("version") != __version__ or (
                not new["enforcement"]["enforcing"]
            ):
                assert time.monotonic() < end, new
                time.sleep(0.5)
            assert new["pid"] == old["pid"], "a service manager would have lost it"
            before, now = old["enforcement"], new["enforcement"]
            assert now["controllers"] == before["controllers"] == ["daemonset"]
            assert (before["begin"], now["begin"]) == ("restart", "join")
            assert now["lease"]["holder"] not in ("", before["lease"]["holder"])
            log = user.ok("kubectl-nodelife", "daemon", "logs")
            assert f"ends: its program was removed; {krew.link} takes over" in log
        finally:
            user.run("kubectl-nodelife", "daemon", "stop")
