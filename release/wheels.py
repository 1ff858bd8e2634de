"""Downloads what the lock names, and unpacks it so that all Pythons find their extension modules.

Wheels of one version for two Pythons must be equal but for the extension modules, whose names
carry the Python; a difference stops the release. Left out is what no program reads (the sources of
extension modules, their debugging information, and what an installer would note down) and what
this program never asks for.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from release import binaries, lock
from release.archive import File
from release.platforms import PYTHONS, Platform
from release.source import ReleaseError

_SOURCES: Final = (".c", ".h", ".hpp", ".cpp", ".pyx", ".pxd", ".pxi", ".hash", ".pyc", ".pyi")

# A class for each kind of object and each call of the API, which the client loads by name and on
# demand: four fifths of an unpacked archive. Ours needs those that `live/typed.py` names, and what
# they import; objects are decoded by msgspec.
_GENERATED: Final = re.compile(r"kubernetes/(aio/)?client/(api|models)/(?!__init__\.py$)")
_NAMES: Final = re.compile(r"kubernetes\.aio\.client\.(?:api|models)\.\w+")
_NAMED_BY: Final = Path(__file__).parents[1] / "kubectl_nodelife" / "live" / "typed.py"

# Extension modules not worth their size, each with a fallback in Python: charset_normalizer guesses
# the encoding of what requests fetches, which no code asks it for; web sockets are not used; the
# last one tests multidict.
_SPARE: Final = ("charset_normalizer/", "aiohttp/_websocket/", "multidict/_testcapi")
_LICENCE_NAMES: Final = ("licen", "copying", "notice", "authors")


class Package(NamedTuple):
    """The contents of a wheel: files by path, licence texts by name, and its METADATA.

    `sbom`: its own list of what is linked into its modules (CycloneDX), where it has one.
    """

    name: str
    version: str
    files: dict[str, File]
    licences: dict[str, bytes]
    metadata: bytes
    sbom: bytes = b""


def download(platform: Platform, cache: Path) -> list[Path]:
    """The wheels that the lock of that platform names, in its order; kept in a folder by their
    hash. Raises ReleaseError.
    """
    pins = lock.read(platform)
    cache.mkdir(parents=True, exist_ok=True)
    missing = [pin for pin in pins if not all(_cached(cache, value) for value in pin.hashes)]
    if missing:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _fetch(platform, missing, Path(folder))
            for wheel in Path(folder).glob("*.whl"):
                value = hashlib.sha256(wheel.read_bytes()).hexdigest()
                (cache / value).mkdir(exist_ok=True)
                wheel.replace(cache / value / wheel.name)
    found = [_cached(cache, value) for pin in pins for value in sorted(pin.hashes)]
    if None in found:
        raise ReleaseError(f"{platform.name}: the index has not all wheels of the lock")
    return [wheel for wheel in found if wheel is not None]


def _cached(cache: Path, value: str) -> Path | None:
    """The wheel with that hash; its content is what counts, not the name of its folder."""
    wheel = next((cache / value).glob("*.whl"), None)
    if wheel is None or hashlib.sha256(wheel.read_bytes()).hexdigest() != value:
        return None
    return wheel


def _fetch(platform: Platform, pins: list[lock.Pin], into: Path) -> None:
    for python in PYTHONS:
        # A wheel for all Pythons came with the first.
        wanted = pins if python == PYTHONS[0] else [pin for pin in pins if len(pin.hashes) > 1]
        if not wanted:
            continue
        listed = into / "requirements.txt"
        listed.write_text(lock.text_of(wanted))
        done = subprocess.run(
            [*(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"),
             *("--require-hashes", "-r", listed, "--dest", into),
             *lock.target_flags(platform, python)],
            capture_output=True, text=True,
        )  # fmt: skip
        listed.unlink()
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            raise ReleaseError(
                f"{platform.name}: {last.removeprefix('ERROR: ')}; if a package is gone from the "
                "index, run: bin/release lock"
            )


def unpack(wheels: Iterable[Path]) -> list[Package]:
    """The packages, each with the files of all its wheels, by name. Raises ReleaseError."""
    packages: dict[str, Package] = {}
    for wheel in wheels:
        package = _read(wheel)
        known = packages.setdefault(package.name, package)
        if known.version != package.version:
            raise ReleaseError(f"{wheel.name}: {known.version} is here as well")
        for path, file in package.files.items():
            if known.files.setdefault(path, file) != file:
                raise ReleaseError(f"{wheel.name}: {path} differs from that of another Python")
    return [packages[name] for name in sorted(packages)]


def _is_spare(path: str) -> bool:
    # mypyc's common part of charset_normalizer lies beside the package, named by a hash.
    return path.endswith(".so") and (path.startswith(_SPARE) or "__mypyc" in path)


def needed_modules(client: zipfile.ZipFile) -> set[str]:
    """The files of the official client's generated code that our typed calls import."""
    needed, left = set[str](), set(_NAMES.findall(_NAMED_BY.read_text()))
    while left:
        path = left.pop().replace(".", "/") + ".py"
        if path not in needed:
            needed.add(path)
            left |= set(_NAMES.findall(client.read(path).decode()))
    return needed


def _read(wheel: Path) -> Package:
    name, version = wheel.name.split("-")[:2]
    package = Package(lock.normalised(name), version, {}, {}, b"")
    with zipfile.ZipFile(wheel) as archive:
        needed = needed_modules(archive) if name == "kubernetes" else set()
        for path in sorted(archive.namelist()):
            top, _, inner = path.partition("/")
            unused = _GENERATED.match(path) and path not in needed
            if path.endswith(("/", *_SOURCES)) or unused or _is_spare(path):
                continue
            content = archive.read(path)
            if top.endswith(".dist-info"):
                if inner == "METADATA":
                    package = package._replace(metadata=content)
                    package.files[path] = File(content)
                elif inner.lower().rpartition("/")[2].startswith(_LICENCE_NAMES):
                    package.licences[inner.removeprefix("licenses/")] = content
                elif inner.startswith("sboms/"):
                    package = package._replace(sbom=content)
            elif not top.endswith(".data"):
                package.files[path] = File(binaries.stripped(content))
            elif not inner.startswith(("scripts/", "data/share/")):
                raise ReleaseError(f"{wheel.name}: no place is known for {path}")
    return package
