"""The commit as a folder, and the wheel and the sdist made from it.

`git archive` hands out what is committed and nothing else; into that copy goes which commit it
is. The wheel is built by setuptools at the commit's time. An sdist keeps times and users of the
machine it was made on, so that it is packed again.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import NamedTuple

from release import archive
from release.archive import File

PACKAGE = "kubectl_nodelife"


class Commit(NamedTuple):
    """A commit, by its hash and its time (seconds since 1970, UTC)."""

    hash: str
    time: int


class ReleaseError(Exception):
    """Why no release can be made of this; one line."""


def commit_of(root: Path) -> Commit:
    """The commit that is checked out. Raises ReleaseError where something is not committed."""
    changed = _git(root, "status", "--porcelain").decode().splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ReleaseError(f"not committed: {changed[0][3:]}{more}; commit or stash it first")
    value, seconds = _git(root, "log", "-1", "--format=%H %ct").decode().split()
    return Commit(value, int(seconds))


def export(root: Path, commit: Commit, into: Path) -> None:
    """Put the commit's files into a folder, and note there which commit it is."""
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", commit.hash))) as tar:
        tar.extractall(into, filter="data")
    path = into / PACKAGE / "build_info.py"
    text, place = path.read_text(), 'COMMIT = ""\n'
    if text.count(place) != 1:
        raise ReleaseError(f"{path.relative_to(into)} has no line COMMIT to fill in")
    path.write_text(text.replace(place, f'COMMIT = "{commit.hash}"\n'))


def version_of(source: Path) -> str:
    """The version that the package there says it has."""
    text = (source / PACKAGE / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.M)
    if found is None:
        raise ReleaseError(f"{PACKAGE}/__init__.py has no line __version__")
    return found[1]


def build(source: Path, commit: Commit, out: Path) -> tuple[Path, Path]:
    """(wheel, sdist), made in `out` with the setuptools of this environment."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit.time), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*(sys.executable, "-m", "build", "--no-isolation", "--outdir", out), source],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr + done.stdout).strip().splitlines()[-1:]
        raise ReleaseError(f"the wheel cannot be built: {''.join(last)}")
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    archive.write(sdist, archive.read(sdist), commit.time)
    return wheel, sdist


def manual(source: Path, commit: Commit) -> dict[str, File]:
    """The manual pages of the program there, by file name."""
    folder = source / "man"
    date = time.strftime("%Y-%m-%d", time.gmtime(commit.time))
    done = subprocess.run(
        [sys.executable, "-m", "release.manual", folder, version_of(source), date],
        env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "80"},
        cwd=source,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise ReleaseError(f"the manual pages cannot be made: {''.join(last)}")
    return {path.name: File(path.read_bytes()) for path in folder.iterdir()}


def _git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True)
    if done.returncode:
        raise ReleaseError(f"git {words[0]}: {done.stderr.decode().strip()}")
    return done.stdout
