"""What users do, with the real krew and kubectl: install, run, upgrade, uninstall.

`KREW` names krew's program, `VALIDATE_KREW_MANIFEST` the one that its index runs on manifests (by
default beside krew); without them these tests are skipped, and the rules in `release.krew_rules`
have to do. The index is a git repository in a folder, the archives come from a server on loopback.
"""

import functools
import http.server
import itertools
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from release.checks import sha256
from release.manifest import archive_name, render
from release.platforms import BY_NAME, PLATFORMS
from release.source import tag_of
from tests.release.users import KUBECTL, OLD, User, daemon_of, needs_kubectl, pythons, sandbox, tool

KREW = os.environ.get("KREW") or tool("krew")
VALIDATE = os.environ.get("VALIDATE_KREW_MANIFEST") or (
    str(Path(KREW).with_name("validate-krew-manifest")) if KREW else ""
)
ROOT = Path(__file__).parents[2]
LINUX = archive_name("linux-amd64")

pytestmark = [
    needs_kubectl,
    pytest.mark.skipif(
        not KREW, reason="there is no krew on this machine; KREW may name its program"
    ),
    pytest.mark.skipif(shutil.which("git") is None, reason="krew's indexes need git"),
]


class Index:
    """A krew index in a git repository, and the archives it leads to, served on loopback."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self.served = folder / "served"
        self.plugins = folder / "index/plugins"
        self.plugins.mkdir(parents=True)
        self._git("init", "-q", "-b", "main")

    def publish(self, version: str, archives: dict[str, Path]) -> Path:
        """Make that version the one in the index; returns the manifest."""
        (self.served / version).mkdir(parents=True)
        for name, path in archives.items():
            os.link(path, self.served / version / name)
        sums = {name: sha256(path) for name, path in archives.items()}
        template = (ROOT / "krew-manifest.yaml").read_text()
        manifest = self.plugins / "nodelife.yaml"
        manifest.write_text(render(template, version, f"{self.address}/{version}", sums))
        self._git("add", "-A")
        self._git("commit", "-q", "-m", version)
        return manifest

    def _git(self, *words: str) -> None:
        who = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
        subprocess.run(["git", "-C", self.folder / "index", *who, *words], check=True)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An empty index."""
    folder = tmp_path / "index"
    (folder / "served").mkdir(parents=True)
    handler = functools.partial(Quiet, directory=str(folder / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Index(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.fixture
def user(tmp_path: Path, index: Index) -> User:
    """Somebody with kubectl, krew and one Python."""
    made = User(tmp_path / "a home", next(iter(pythons().values())))
    assert KUBECTL is not None
    made.link(KREW, "kubectl-krew")
    made.link(KUBECTL, "kubectl")
    made.environ["PATH"] = f"{made.home}/.krew/bin:{made.environ['PATH']}"
    made.environ["KREW_DEFAULT_INDEX_URI"] = f"file://{index.folder}/index"
    made.environ["KREW_NO_UPGRADE_CHECK"] = "1"
    return made


def all_archives(release: Path) -> dict[str, Path]:
    return {name: release / name for name in (archive_name(p.name) for p in PLATFORMS)}


def test_install_run_and_uninstall(release: Path, index: Index, user: User) -> None:
    index.publish(__version__, all_archives(release))
    user.ok("kubectl", "krew", "update")
    assert "nodelife" in user.ok("kubectl", "krew", "search", "nodelife")
    done = user.run("kubectl", "krew", "install", "nodelife")
    assert done.returncode == 0, done.stderr
    assert "CPython 3.11, 3.12, 3.13 or 3.14 must be installed" in done.stderr
    assert user.ok("kubectl", "nodelife", "version") == f"Client Version: v{__version__}\n"
    listed = user.ok("kubectl", "plugin", "list")
    assert f"{user.home}/.krew/bin/kubectl-nodelife" in listed
    assert user.run("kubectl", "nodelife", "vesion").returncode == 2
    with sandbox(user) as kubeconfig:
        shown = user.ok("kubectl", "nodelife", "status", "--kubeconfig", kubeconfig)
        assert "NAME" in shown and "healthy" in shown
    user.ok("kubectl", "krew", "uninstall", "nodelife")
    left = [p for p in user.home.rglob("*nodelife*") if ".cache" not in p.parts]
    assert [p for p in left if ".krew/index" not in str(p)] == []


def test_upgrade_under_a_running_daemon(
    release: Path, index: Index, user: User, old_archive: Path
) -> None:
    index.publish(OLD, {LINUX: old_archive})
    user.ok("kubectl", "krew", "update")
    user.ok("kubectl", "krew", "install", "nodelife")
    store = user.home / ".krew/store/nodelife"
    with sandbox(user) as kubeconfig:
        user.environ["KUBECONFIG"] = kubeconfig
        assert "watching" in user.ok("kubectl", "nodelife", "daemon", "start")
        try:
            index.publish(__version__, all_archives(release))
            user.ok("kubectl", "krew", "upgrade", "nodelife")
            assert [p.name for p in store.iterdir()] == [tag_of(__version__)]
            assert f"v{__version__}" in user.ok("kubectl", "nodelife", "version")
            # No command fails while the old daemon, without files, hands over to the new version.
            rounds = itertools.cycle((["status"], ["changes"], ["explain", "node", "a1"]))
            end = time.monotonic() + 90
            while daemon_of(user).get("version") != __version__:
                user.ok("kubectl", "nodelife", *next(rounds))
                assert time.monotonic() < end, daemon_of(user)
            user.ok("kubectl", "nodelife", "status")
        finally:
            user.run("kubectl", "nodelife", "daemon", "stop")


@pytest.mark.parametrize("name", BY_NAME)
def test_each_platform_is_installed_by_its_name(
    name: str, release: Path, index: Index, user: User
) -> None:
    platform = BY_NAME[name]
    manifest = index.publish(__version__, all_archives(release))
    user.ok(
        "kubectl", "krew", "install", "--manifest", manifest,
        "--archive", release / archive_name(name),
        KREW_OS=platform.system, KREW_ARCH=platform.arch,
    )  # fmt: skip
    home = user.home / ".krew/store/nodelife" / tag_of(__version__) / "nodelife"
    assert (home / "kubectl-nodelife").stat().st_mode & 0o111 == 0o111
    assert (home / "licenses/certifi").is_dir()
    assert next(home.rglob(f"*{platform.suffix('3.14')}"), None) is not None


def test_another_archive_than_the_manifest_says_is_refused(
    release: Path, index: Index, user: User, old_archive: Path
) -> None:
    manifest = index.publish(__version__, {LINUX: release / LINUX})
    done = user.run("kubectl", "krew", "install", "--manifest", manifest, "--archive", old_archive)
    assert done.returncode != 0 and "checksum does not match" in done.stderr


@pytest.mark.skipif(not os.path.exists(VALIDATE), reason="validate-krew-manifest is not here")
def test_the_index_would_take_the_manifest(release: Path, index: Index, user: User) -> None:
    manifest = index.publish(__version__, all_archives(release))
    began = time.monotonic()
    done = user.run(VALIDATE, "-manifest", manifest, seconds=300)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 240
