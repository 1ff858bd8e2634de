"""`bin/release check DIR`: whether a folder holds a release fit to be published."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from release import archive_checks, assemble
from release.archive_checks import Archive
from release.krew_rules import manifest_faults
from release.manifest import NO_ADDRESS, archive_name
from release.platforms import PLATFORMS
from release.source import PACKAGE

SUMS = "SHA256SUMS"
MANIFEST = "nodelife.yaml"


def check(folder: Path) -> list[str]:
    """All faults of the release in that folder; none if it may be published."""
    if not (folder / SUMS).exists():
        return [f"{folder}: no {SUMS}, so that this is no release"]
    archives = [
        archive_checks.read(path, platform)
        for platform in PLATFORMS
        if (path := folder / archive_name(platform.name)).exists()
    ]
    if not archives:
        return [f"{folder}: no archive"]
    faults = [*_sums(folder), *_versions(folder, archives), *_manifest(folder, archives)]
    for archive in archives:
        faults += archive_checks.faults(archive)
        faults += _same_program(folder, archive)
    return faults


def sha256(path: Path) -> str:
    """The file's sum, as in SHA256SUMS and in krew's manifest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_sums(folder: Path) -> dict[str, str]:
    """What SHA256SUMS says, by file name."""
    lines = (folder / SUMS).read_text().splitlines()
    return {name: value for value, _, name in (line.partition("  ") for line in lines)}


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS for all other files there, as sha256sum reads it."""
    names = sorted(path.name for path in folder.iterdir() if path.name != SUMS)
    (folder / SUMS).write_text("".join(f"{sha256(folder / name)}  {name}\n" for name in names))


def _sums(folder: Path) -> Iterator[str]:
    said = read_sums(folder)
    there = {path.name for path in folder.iterdir()} - {SUMS}
    yield from (f"{name}: not in {SUMS}" for name in sorted(there - said.keys()))
    for name, value in said.items():
        if name not in there:
            yield f"{name}: in {SUMS}, but not here"
        elif sha256(folder / name) != value:
            yield f"{name}: not the sum of {SUMS}"


def _version_inside(archive: Archive) -> str:
    package = archive_checks.packages(archive).get("kubectl-nodelife")
    return package.version if package is not None else "none"


def _versions(folder: Path, archives: list[Archive]) -> Iterator[str]:
    """One version everywhere: archives, wheel, sdist."""
    found = {archive.path.name: _version_inside(archive) for archive in archives}
    for path in folder.iterdir():
        if match := re.fullmatch(rf"{PACKAGE}-([^-]+?)(-py3-none-any\.whl|\.tar\.gz)", path.name):
            found[path.name] = match[1]
    if len(found) != len(archives) + 2:
        yield "not one wheel and one sdist"
    if len(set(found.values())) > 1:
        yield f"several versions: {', '.join(f'{n} {v}' for n, v in sorted(found.items()))}"


def _manifest(folder: Path, archives: list[Archive]) -> Iterator[str]:
    path = folder / MANIFEST
    if not path.exists():
        yield f"{MANIFEST} is missing"
        return
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    yield from (f"{MANIFEST}: krew would not take: {key}" for key in manifest_faults(manifest))
    spec = manifest["spec"]
    version = _version_inside(archives[0])
    if spec["version"] != f"v{version}":
        yield f"{MANIFEST}: version {spec['version']}, and the archives are v{version}"
    if manifest["metadata"]["name"] != path.stem:
        yield f"{MANIFEST}: not named after the plugin"
    sums = {archive.path.name: sha256(archive.path) for archive in archives}
    for platform in spec["platforms"]:
        name = PurePosixPath(platform["uri"]).name
        if platform["uri"].startswith(NO_ADDRESS):
            yield f"{MANIFEST}: {name} has no address; give --base-url"
        if platform["sha256"] != sums.pop(name, None):
            yield f"{MANIFEST}: not the sum of {name}"
        if platform["bin"] != assemble.PROGRAM:
            yield f"{MANIFEST}: {platform['bin']} is not the launcher"
    yield from (f"{MANIFEST}: without {name}" for name in sums)


def _same_program(folder: Path, archive: Archive) -> Iterator[str]:
    """The archive runs what the wheel installs."""
    wheel = next(folder.glob(f"{PACKAGE}-*.whl"), None)
    if wheel is None:
        return
    with zipfile.ZipFile(wheel) as inside:
        theirs = {n: inside.read(n) for n in inside.namelist() if n.startswith(f"{PACKAGE}/")}
    start = f"{assemble.LIB}/"
    ours = {
        path.removeprefix(start): file.content
        for path, file in archive.files.items()
        if path.startswith(f"{start}{PACKAGE}/") and not path.endswith(".pyc")
    }
    if ours != theirs:
        differing = sorted(n for n in ours.keys() | theirs if ours.get(n) != theirs.get(n))
        yield f"{archive.path.name}: {differing[0]} is not that of the wheel"
