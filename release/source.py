"""The commit as a folder, and the wheel and the sdist made from it.

`git archive` hands out what is committed and nothing else; into that copy go which commit it
is, the home page and the manual pages. setuptools' wheel and sdist keep modes, times and users of
the machine that they were made on, so that both are packed again.
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


def commit_named(root: Path, value: str) -> Commit:
    """The commit with that hash. Raises ReleaseError where the repository does not have it."""
    found, seconds = _git(root, "log", "-1", "--format=%H %ct", value, "--").decode().split()
    return Commit(found, int(seconds))


def export(root: Path, commit: Commit, into: Path, homepage: str = "") -> None:
    """Put the commit's files into a folder, and note there which commit it is.

    The home page goes into setup.cfg, and links in README.md lead to its files there: a package
    index shows both. Without one they are left out.
    """
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", commit.hash))) as tar:
        # As filter="data", which Python knows from 3.11.4 on; Debian 12 has 3.11.2.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        tar.extractall(into)
    note = into / PACKAGE / "build_info.py"
    _fill(note, 'COMMIT = ""\n', f'COMMIT = "{commit.hash}"\n')
    files = f"{homepage.rstrip('/')}/blob/{tag_of(version_of(into))}"
    if homepage:
        urls = f"project_urls =\n    Homepage = {homepage}\n    Changelog = {files}/CHANGELOG.md\n"
        _fill(into / "setup.cfg", "\nkeywords = ", f"\n{urls}keywords = ")
    readme = into / "README.md"
    linked = rf"[\1]({files}/\2)" if homepage else r"\1"
    readme.write_text(re.sub(r"\[([^]]+)\]\((?!\w+:|#)([^)\s]+)\)", linked, readme.read_text()))


def _fill(path: Path, place: str, value: str) -> None:
    text = path.read_text()
    if text.count(place) != 1:
        raise ReleaseError(f"{path.name} has not one place for {value.strip().splitlines()[0]}")
    path.write_text(text.replace(place, value))


def version_of(source: Path) -> str:
    """The version that the package there says it has."""
    text = (source / PACKAGE / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.M)
    if found is None:
        raise ReleaseError(f"{PACKAGE}/__init__.py has no line __version__")
    return found[1]


def tag_of(version: str) -> str:
    """The tag of a version, which krew wants semantic: `v1.0.0-rc.1` of Python's `1.0.0rc1`."""
    return "v" + re.sub(r"(?<=\d)rc(?=\d+$)", "-rc.", version)


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
    return wheel, sdist


def write_manual(source: Path, commit: Commit) -> Path:
    """Write the manual pages of the program there into its folder `man`, which wheels take in."""
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
    return folder


def _git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True)
    if done.returncode:
        raise ReleaseError(f"git {words[0]}: {done.stderr.decode().strip()}")
    return done.stdout
