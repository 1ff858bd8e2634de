"""A release passes its own check, is the same each time, and says what is in it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from release import archive, contents, linked_parts, lock, source, wheels
from release.__main__ import WHEELS
from release.checks import check, sha256
from release.contents import Contents
from release.lock import Pin
from release.manifest import archive_name
from release.platforms import BY_NAME, PLATFORMS
from release.source import Commit, ReleaseError, tag_of
from release.wheels import Package
from tests.release.conftest import HOMEPAGE

LINUX = BY_NAME["linux-amd64"]
ROOT = Path(__file__).parents[2]


def test_the_release_passes(release: Path) -> None:
    """Made again under another umask, it is the same: `check` compares every file."""

    def again(value: str, homepage: str) -> Contents:
        before = os.umask(0o077)
        try:
            commit = source.commit_named(ROOT, value)
            return contents.make(ROOT, commit, PLATFORMS, WHEELS, homepage)
        finally:
            os.umask(before)

    assert check(release, again) == []
    sizes = {platform.name: (release / archive_name(platform.name)).stat().st_size
             for platform in PLATFORMS}  # fmt: skip
    assert max(sizes.values()) <= 20_000_000, sizes


def test_the_same_files_give_the_same_bytes(release: Path, commit: Commit, tmp_path: Path) -> None:
    for path in (*release.glob("*.whl"), release / "kubectl-nodelife-darwin-arm64.tar.gz"):
        archive.write(tmp_path / path.name, archive.read(path), commit.time)
        assert sha256(tmp_path / path.name) == sha256(path), path.name


def test_the_wheel_says_where_it_comes_from_and_how_it_is_used(release: Path) -> None:
    tree = archive.read(next(release.glob("*.whl")))
    text = next(f.content for n, f in tree.items() if n.endswith("/METADATA")).decode()
    for line in (
        f"Project-URL: Homepage, {HOMEPAGE}",
        "Classifier: Programming Language :: Python :: 3.14",
        "License-File: LICENSE",
    ):
        assert f"\n{line}\n" in text
    assert f"]({HOMEPAGE}/blob/{tag_of(__version__)}/docs/installing.md)" in text
    assert not re.search(r"\]\((?!https:)", text)
    page = next(f.content for n, f in tree.items() if n.endswith("/kubectl-nodelife-status.1"))
    assert b"its pods deleted; each zone's brake.\n.SH SYNOPSIS" in page


def test_the_sdist_holds_what_the_commit_holds(release: Path, commit: Commit) -> None:
    (path,) = release.glob("kubectl_nodelife-*.tar.gz")
    inside = {name.partition("/")[2] for name in archive.read(path)}
    listed = ["git", "ls-tree", "-r", "--name-only", commit.hash]
    names = subprocess.check_output(listed, cwd=ROOT, text=True).splitlines()
    there = {name for name in names if not name.startswith((".", "docs/."))}
    assert there - inside == set()


def test_what_is_linked_in_is_listed_with_its_licence(release: Path) -> None:
    document = json.loads((release / "kubectl-nodelife-linux-amd64.cdx.json").read_text())
    inside = {part["name"]: part.get("components", ()) for part in document["components"]}
    assert {part["name"] for part in inside["google-re2"]} == {"abseil-cpp", "re2"}
    assert {part["name"] for part in inside["pyyaml"]} == {"libyaml"}
    assert len(inside["pydantic-core"]) > 30
    tree = archive.read(release / "kubectl-nodelife-linux-amd64.tar.gz")
    for name in ("pyyaml/linked/libyaml.txt", "pydantic-core/linked/jiter.txt"):
        assert b"Permission is hereby granted" in tree[f"nodelife/licenses/{name}"].content


def test_a_part_without_the_text_of_its_licence_stops_the_release(monkeypatch, tmp_path) -> None:
    package = Package("pyyaml", "6.0.3", {}, {}, b"")
    assert list(linked_parts.texts(package)) == ["linked/libyaml.txt"]
    monkeypatch.setattr(linked_parts, "TEXTS", tmp_path)
    with pytest.raises(ReleaseError, match=r"has libyaml 0.2.5 linked in; put the text"):
        linked_parts.texts(package)
    with pytest.raises(ReleaseError, match="what is linked into it is not known"):
        linked_parts.parts(package._replace(version="7.0"))


def test_the_lock_is_of_this_setup_cfg() -> None:
    for platform in PLATFORMS:
        assert lock.digest_of(platform) == lock.digest(), "run: bin/release lock"
    for platform in lock.DEVELOPED_ON:
        wanted = lock.digest(lock.development(platform))
        assert lock.digest_of(platform, lock.DEVELOPMENT) == wanted, "run: bin/release lock"
        versions = {pin.name: pin.version for pin in lock.read(platform, lock.DEVELOPMENT)}
        assert versions.items() >= {pin.name: pin.version for pin in lock.read(platform)}.items()


def test_all_locks_hold_the_same_versions() -> None:
    versions: dict[str, str] = {}
    for platform in PLATFORMS:
        for pin in lock.read(platform):
            assert versions.setdefault(pin.name, pin.version) == pin.version
            assert pin.hashes, pin.name


def test_a_package_that_differs_between_pythons_stops_the_release(tmp_path: Path) -> None:
    import zipfile

    for abi, text in (("cp311", "1"), ("cp312", "2")):
        with zipfile.ZipFile(tmp_path / f"x-1.0-{abi}-{abi}-linux.whl", "w") as wheel:
            wheel.writestr("x/__init__.py", text)
    with pytest.raises(ReleaseError, match=r"x/__init__.py differs from that of another Python"):
        wheels.unpack(sorted(tmp_path.glob("*.whl")))


def test_what_is_not_committed_is_not_released(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "new").touch()
    with pytest.raises(ReleaseError, match="not committed: new; commit or stash it first"):
        source.commit_of(tmp_path)


def test_a_lock_is_written_as_pip_reads_it(tmp_path: Path) -> None:
    pins = [Pin("b", "1", ("2" * 64, "1" * 64)), Pin("a", "2.0", ("3" * 64,))]
    (tmp_path / "linux-amd64.txt").write_text("# setup.cfg: 12ab\n" + lock.text_of(pins))
    assert [pin.name for pin in lock.read(LINUX, tmp_path)] == ["a", "b"]
    assert set(lock.read(LINUX, tmp_path)[1].hashes) == {"1" * 64, "2" * 64}
    assert lock.digest_of(LINUX, tmp_path) == "12ab"
