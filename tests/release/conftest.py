"""One release for all tests of a run: archives for four platforms, made as `bin/release` does.

It is made of the work tree as it is committed, or of what is changed in it (`git stash create`
makes a commit of that without touching anything).
"""

import fcntl
import subprocess
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from release import archive, contents, source
from release.__main__ import WHEELS, write
from release.manifest import archive_name
from release.platforms import PLATFORMS
from release.source import Commit, tag_of
from tests.release.users import OLD

ROOT = Path(__file__).parents[2]
BASE_URL = f"https://example.com/{tag_of(__version__)}"
HOMEPAGE = "https://example.com/kubectl-nodelife"


@pytest.fixture(scope="session")
def commit() -> Commit:
    """What the release is made of."""
    if not (ROOT / ".git").exists():
        pytest.skip("a release is made of a git commit, and this is no checkout")
    stash = subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x", "stash", "create"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    head = subprocess.run(
        ["git", "log", "-1", "--format=%H %ct"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    return Commit(stash or head[0], int(head[1]))


@pytest.fixture(scope="session")
def release(commit: Commit, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder with the release; several processes make it once."""
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent
    out = shared / "release"
    with open(shared / "release.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "release.done").exists():
            made = contents.make(ROOT, commit, PLATFORMS, WHEELS, HOMEPAGE)
            write(out, made, BASE_URL, HOMEPAGE)
            (shared / "release.done").touch()
    return out


@pytest.fixture(scope="session")
def source_tree(commit: Commit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commit as a folder."""
    folder = tmp_path_factory.mktemp("source")
    source.export(ROOT, commit, folder)
    return folder


@pytest.fixture(scope="session")
def old_archive(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive for linux/amd64 as if of the version before."""
    name = archive_name("linux-amd64")
    tree = archive.read(release / name)
    for path in ("nodelife/kubectl-nodelife", "nodelife/lib/kubectl_nodelife/__init__.py"):
        content = tree[path].content.replace(__version__.encode(), OLD.encode())
        assert content != tree[path].content
        tree[path] = tree[path]._replace(content=content)
    made = tmp_path_factory.mktemp("old") / name
    archive.write(made, tree, 0, level=1)
    return made
