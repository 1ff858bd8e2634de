"""`bin/release check DIR`: checks that a folder holds a release fit to be published.

Two checks. The rules below, and those of `archive_checks` and `krew_rules`, say what any release
must be. And the release is made again of the commit that its wheel names, and compared file by
file, which finds any file that was changed, left out or added afterwards. Archives are compared by
what is in them, since another version of zlib packs the same files differently.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import msgspec
import yaml

from release import archive, archive_checks, assemble
from release.archive import Tree
from release.archive_checks import Archive
from release.contents import Contents
from release.krew_rules import Manifest, Platform, manifest_faults
from release.manifest import archive_name
from release.platforms import PLATFORMS
from release.source import PACKAGE, ReleaseError

SUMS: Final = "SHA256SUMS"
MANIFEST: Final = "nodelife.yaml"
MOST_LINES: Final = 5

Again = Callable[[str, str], Contents]
"""Makes a release again, of the commit with that hash and with that home page.

Raises ReleaseError.
"""


def check(folder: Path, again: Again) -> list[str]:
    """All faults of the release in that folder, a line each; none if it may be published."""
    if not (folder / SUMS).exists():
        return [f"{folder}: no {SUMS}, so that this is no release"]
    faults: list[str] = []
    archives = []
    for platform in PLATFORMS:
        path = folder / archive_name(platform.name)
        try:
            if path.exists():
                archives.append(archive_checks.read(path, platform))
        except ReleaseError as error:
            faults.append(str(error))
    manifest = None
    try:
        manifest = read_manifest(folder)
    except ReleaseError as error:
        faults.append(str(error))
    faults += _sums(folder)
    for found in archives:
        faults += archive_checks.faults(found)
    if manifest is not None:
        faults += _manifest(folder, manifest)
    return faults + list(_differences(folder, archives, manifest, again))


def sha256(path: Path) -> str:
    """The file's sum, as in SHA256SUMS and in krew's manifest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS for all other files there, as sha256sum reads it."""
    names = sorted(path.name for path in folder.iterdir() if path.name != SUMS)
    (folder / SUMS).write_text("".join(f"{sha256(folder / name)}  {name}\n" for name in names))


def read_manifest(folder: Path) -> Manifest:
    """The manifest for krew. Raises ReleaseError where it is missing or not of its form."""
    path = folder / MANIFEST
    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()), Manifest)
    except FileNotFoundError:
        raise ReleaseError(f"{MANIFEST} is missing") from None
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise ReleaseError(f"{MANIFEST}: krew would not take it: {said}") from None


def _sums(folder: Path) -> Iterator[str]:
    lines = (folder / SUMS).read_bytes().decode(errors="replace").splitlines()
    said = {name: value for value, _, name in (line.partition("  ") for line in lines)}
    there = {path.name for path in folder.iterdir()} - {SUMS}
    yield from (f"{name}: not in {SUMS}" for name in sorted(there - said.keys()))
    for name, value in said.items():
        if name not in there:
            yield f"{name}: in {SUMS}, but not here"
        elif not (folder / name).is_file() or sha256(folder / name) != value:
            yield f"{name}: not the sum of {SUMS}"


def _manifest(folder: Path, manifest: Manifest) -> Iterator[str]:
    """The manifest points to these archives, each for its own machine, and to a home page."""
    yield from (f"{MANIFEST}: krew would not take: {key}" for key in manifest_faults(manifest))
    spec = manifest.spec
    if manifest.metadata.name != PurePosixPath(MANIFEST).stem:
        yield f"{MANIFEST}: not named after the plugin"
    home = urlsplit(spec.homepage)
    if home.scheme != "https" or not home.hostname or home.hostname.endswith(".invalid"):
        yield f"{MANIFEST}: no home page; give --homepage"
    if len({platform.uri.rpartition("/")[0] for platform in spec.platforms}) > 1:
        yield f"{MANIFEST}: the archives lie in several folders"
    for platform in spec.platforms:
        yield from (f"{MANIFEST}: {fault}" for fault in _address(folder, platform, spec.version))


def _address(folder: Path, platform: Platform, version: str) -> Iterator[str]:
    labels = platform.selector.matchLabels
    wanted = archive_name(f"{labels.get('os')}-{labels.get('arch')}")
    uri = urlsplit(platform.uri)
    *folders, name = uri.path.split("/")
    if name != wanted:
        yield f"{name} is selected where {wanted} belongs"
    if not uri.hostname or uri.hostname.endswith(".invalid"):
        yield f"{name} has no address; give --base-url"
    if version not in folders:
        yield f"{name}: its address has no folder {version}"
    path = folder / name
    if not path.is_file() or platform.sha256 != sha256(path):
        yield f"not the sum of {name}"
    if platform.bin != assemble.PROGRAM:
        yield f"{platform.bin} is not the launcher"


def _differences(
    folder: Path, archives: Iterable[Archive], manifest: Manifest | None, again: Again
) -> Iterator[str]:
    """How the folder differs from a release made again."""
    try:
        trees = {found.path.name: found.files for found in archives}
        for path in (*folder.glob(f"{PACKAGE}-*.whl"), *folder.glob(f"{PACKAGE}-*.tar.gz")):
            trees[path.name] = archive.read(path)
        homepage = manifest.spec.homepage if manifest is not None else ""
        made = again(_commit(trees), homepage)
    except ReleaseError as error:
        yield f"not compared with what the commit gives: {error}"
        return
    wanted = made.trees.keys() | made.components.keys() | {MANIFEST, SUMS}
    there = {path.name for path in folder.iterdir()}
    yield from (f"{name}: is missing" for name in sorted(wanted - there))
    yield from (f"{name}: does not belong into a release" for name in sorted(there - wanted))
    for name, tree in made.trees.items():
        if name in trees:
            yield from (f"{name}: {line}" for line in _shortened(compare(trees[name], tree)))
    for name, text in made.components.items():
        if (folder / name).is_file():
            yield from _first_line(name, (folder / name).read_bytes(), text)
    if manifest is not None:
        yield from _texts(manifest, msgspec.convert(yaml.safe_load(made.manifest), Manifest))


def _commit(trees: Mapping[str, Tree]) -> str:
    """The hash of the commit that the wheel names. Raises ReleaseError."""
    for name, tree in trees.items():
        note = tree.get(f"{PACKAGE}/build_info.py")
        content = note.content if note is not None and name.endswith(".whl") else b""
        if found := re.search(rb'^COMMIT = "([0-9a-f]{40})"$', content, re.M):
            return found[1].decode()
    raise ReleaseError("there is no wheel that names a commit")


def compare(found: Tree, wanted: Tree) -> Iterator[str]:
    """How one tree differs from the other, a line for each file."""
    for name in sorted(found.keys() | wanted.keys()):
        one, other = found.get(name), wanted.get(name)
        if one is None:
            yield f"{name} is missing"
        elif other is None:
            yield f"{name} does not belong there"
        elif one.content != other.content:
            yield f"{name} is not what the commit and the lock give"
        elif one != other:
            yield f"{name}: mode {one.mode:04o}, not {other.mode:04o}"


def _shortened(lines: Iterator[str]) -> Iterator[str]:
    listed = list(lines)
    yield from listed[:MOST_LINES]
    if len(listed) > MOST_LINES:
        yield f"and {len(listed) - MOST_LINES} more differences"


def _first_line(name: str, found: bytes, wanted: str) -> Iterator[str]:
    one, other = found.decode(errors="replace").splitlines(), wanted.splitlines()
    if found.decode(errors="replace") == wanted:
        return
    at = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), -1)
    at = at if at >= 0 else min(len(one), len(other))
    said, meant = ((lines[at].strip() if at < len(lines) else "nothing") for lines in (one, other))
    yield f"{name}: line {at + 1} is {said[:80]}, and the archive gives {meant[:80]}"


def _texts(found: Manifest, wanted: Manifest) -> Iterator[str]:
    """Version and texts as in krew-manifest.yaml, which is reviewed."""
    for key in ("version", "shortDescription", "description", "caveats"):
        if getattr(found.spec, key) != getattr(wanted.spec, key):
            yield f"{MANIFEST}: {key} is not that of the commit's krew-manifest.yaml"
