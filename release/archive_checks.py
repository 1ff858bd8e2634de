"""Checks of one archive; each returns its faults as text."""

from __future__ import annotations

import ast
import re
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from release import archive as packed
from release import assemble, binaries, licences, lock, wheels
from release.archive import File
from release.krew_rules import archive_faults
from release.platforms import PYTHONS, Platform

MOST_BYTES: Final = 20_000_000
OLDEST_MACOS: Final = (13, 0)

_ABI: Final = re.compile(r"\.cpython-(\d)(\d+)-([a-z0-9_-]+)\.so$")


class Archive(NamedTuple):
    """An archive of a release, read: its entries in order, and its files."""

    path: Path
    platform: Platform
    entries: list[tarfile.TarInfo]
    files: dict[str, File]


def read(path: Path, platform: Platform) -> Archive:
    """Read an archive whole. Raises ReleaseError."""
    found = packed.entries(path)
    return Archive(path, platform, [entry for entry, _ in found], packed.files_of(found))


def faults(archive: Archive) -> Iterator[str]:
    """All faults of an archive, each with its name."""
    for check in CHECKS:
        for fault in check(archive):
            yield f"{archive.path.name}: {fault}"


def _size(archive: Archive) -> Iterator[str]:
    size = archive.path.stat().st_size
    if size > MOST_BYTES:
        yield f"{size / 1e6:.1f} MB, and {MOST_BYTES / 1e6:.0f} are allowed"


def _krew(archive: Archive) -> Iterator[str]:
    yield from archive_faults(archive.entries, assemble.PROGRAM)


def _same_each_time(archive: Archive) -> Iterator[str]:
    """Order, owners and times as `release.archive` writes them."""
    entries = archive.entries
    names = [entry.name for entry in entries if entry.isreg()]
    if names != sorted(names):
        yield "its entries are not sorted"
    if len({entry.mtime for entry in entries}) > 1:
        yield "its entries are of several times"
    if any(entry.uid or entry.gid or entry.uname or entry.gname for entry in entries):
        yield "its entries belong to a user"
    if archive.path.read_bytes()[4:8] != bytes(4):
        yield "gzip's head has a time"


def _modes(archive: Archive) -> Iterator[str]:
    for entry in archive.entries:
        is_program = entry.isdir() or entry.name == assemble.PROGRAM
        expected = 0o755 if is_program else 0o644
        if entry.mode != expected:
            yield f"{entry.name}: mode {entry.mode:04o}, not {expected:04o}"


def _no_bytecode(archive: Archive) -> Iterator[str]:
    """krew does not restore times, so that bytecode in an archive would always be stale."""
    yield from (f"{name}: bytecode" for name in archive.files if name.endswith((".pyc", ".pyo")))


def _extension_modules(archive: Archive) -> Iterator[str]:
    """Each for this platform; and where there is one for a Python, there is one for all."""
    pythons: dict[str, set[str]] = {}
    for name, file in archive.files.items():
        if not name.endswith((".so", ".dylib")):
            continue
        try:
            binary = binaries.inspect(file.content)
        except struct.error:
            binary = None
        if binary is None or binary.system != archive.platform.system:
            yield f"{name}: not made for {archive.platform.system}"
        elif archive.platform.arch not in binary.archs:
            yield f"{name}: made for {', '.join(sorted(binary.archs))}"
        elif binary.minimum_system > OLDEST_MACOS:
            yield f"{name}: needs macOS {binary.minimum_system[0]}.{binary.minimum_system[1]}"
        if abi := _ABI.search(name):
            if abi[3] != archive.platform.extension:
                yield f"{name}: the ABI is {abi[3]}, not {archive.platform.extension}"
            pythons.setdefault(name[: abi.start()], set()).add(f"{abi[1]}.{abi[2]}")
    for stem, found in pythons.items():
        if found != set(PYTHONS):
            yield f"{stem}: for {', '.join(sorted(found))}, and not for {', '.join(PYTHONS)}"


def packages(archive: Archive) -> dict[str, wheels.Package]:
    """The packages in lib/ by name, as their METADATA has them; ours too."""
    found = {}
    pattern = re.compile(rf"{assemble.LIB}/([^/]+)-([^/-]+)\.dist-info/METADATA")
    for path, file in archive.files.items():
        if match := pattern.fullmatch(path):
            name = lock.normalised(match[1])
            found[name] = wheels.Package(name, match[2], {}, {}, file.content)
    return found


def _licences(archive: Archive) -> Iterator[str]:
    ours = archive.files.get(f"{assemble.TOP}/LICENSE")
    if ours is None or not ours.content.strip():
        yield "LICENSE is missing or empty"
    for name, package in packages(archive).items():
        if name == "kubectl-nodelife":
            continue
        try:
            licences.expression(package)
        except licences.ReleaseError as error:
            yield str(error)
        folder = f"{assemble.TOP}/licenses/{name}/"
        if not any(path.startswith(folder) and archive.files[path].content.strip()
                   for path in archive.files):  # fmt: skip
            yield f"{name}: the text of its licence is missing"


def _lock(archive: Archive) -> Iterator[str]:
    if lock.digest_of(archive.platform) != lock.digest():
        yield "the lock is not of this setup.cfg; run: bin/release lock"
    pins = {pin.name: pin.version for pin in lock.read(archive.platform)}
    inside = {name: package.version for name, package in packages(archive).items()}
    inside.pop("kubectl-nodelife", None)
    for name in sorted(pins.keys() | inside.keys()):
        if pins.get(name) != inside.get(name):
            yield f"{name}: {inside.get(name)} inside, {pins.get(name)} in the lock"


class _Component(msgspec.Struct):
    name: str
    version: str


class _About(msgspec.Struct):
    component: _Component


class _Document(msgspec.Struct):
    metadata: _About
    components: list[_Component]


def _sbom(archive: Archive) -> Iterator[str]:
    path = archive.path.with_name(archive.path.name.replace(".tar.gz", ".cdx.json"))
    if not path.exists():
        yield f"{path.name} is missing"
        return
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except msgspec.MsgspecError as error:
        yield f"{path.name}: not a CycloneDX document: {error}"
        return
    parts = [document.metadata.component, *document.components]
    listed = {part.name: part.version for part in parts}
    inside = {name: package.version for name, package in packages(archive).items()}
    for name in sorted(listed.keys() | inside.keys()):
        if listed.get(name) != inside.get(name):
            yield f"{name}: {inside.get(name)} inside, {listed.get(name)} in {path.name}"


def _manual(archive: Archive) -> Iterator[str]:
    if f"{assemble.TOP}/man/man1/kubectl-nodelife.1" not in archive.files:
        yield "the manual pages are missing"


def _entrance(archive: Archive) -> Iterator[str]:
    """main.py admits the Pythons that there are modules for."""
    file = archive.files.get(f"{assemble.TOP}/main.py")
    if file is None:
        yield "main.py is missing"
        return
    try:
        said = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.parse(file.content).body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Tuple)
        }
    except (SyntaxError, ValueError) as error:
        yield f"main.py cannot be read: {error}"
        return
    if said.get("SUFFIXES") != archive.platform.suffixes():
        yield "main.py admits other Pythons than there are modules for"
    if said.get("MACHINES") != archive.platform.machines:
        yield "main.py admits other machines"


CHECKS: Final[tuple[Callable[[Archive], Iterator[str]], ...]] = (
    _size,
    _krew,
    _same_each_time,
    _modes,
    _no_bytecode,
    _extension_modules,
    _licences,
    _lock,
    _sbom,
    _manual,
    _entrance,
)
