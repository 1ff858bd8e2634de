"""One archive: our wheel, the packages of the lock, their licences and the launcher, as a tree.

nodelife/kubectl-nodelife    the launcher, which krew links to
nodelife/main.py             starts the program with lib/ and no other packages
nodelife/lib/                the program and all packages, for all Pythons at once
nodelife/LICENSE             ours
nodelife/licenses/PACKAGE/   those of the packages
nodelife/man/man1/           manual pages
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from release import licences, linked_parts, lock, wheels
from release.archive import File
from release.platforms import PYTHONS, Platform
from release.source import ReleaseError
from release.wheels import Package

TOP = "nodelife"
PROGRAM = f"{TOP}/kubectl-nodelife"
LIB = f"{TOP}/lib"


def tree(
    platform: Platform,
    source: Path,
    wheel: Path,
    packages: Iterable[Package],
    manual: Mapping[str, File],
) -> dict[str, File]:
    """The files of the archive for that platform, by path. `manual`: its pages by file name."""
    ours = wheels.unpack([wheel])[0]
    files = {
        PROGRAM: File(_launcher(source, platform, ours.version), is_program=True),
        f"{TOP}/main.py": File(_main(source, platform)),
        f"{TOP}/LICENSE": File((source / "LICENSE").read_bytes()),
    }
    files |= {f"{TOP}/man/man1/{name}": page for name, page in manual.items()}
    for package in (ours, *packages):
        files |= {f"{LIB}/{path}": file for path, file in package.files.items()}
    for package in packages:
        wanted = {**licences.texts(package), **linked_parts.texts(package)}
        for name, text in wanted.items():
            files[f"{TOP}/licenses/{package.name}/{name}"] = File(text)
    return files


def _launcher(source: Path, platform: Platform, version: str) -> bytes:
    text = (source / "release/launcher/kubectl-nodelife").read_text()
    values = {
        "@VERSION@": version,
        "@MACHINE@": f"{platform.system.title()} {platform.machines[0]}",
        "@PYTHONS@": " ".join(f"python{python}" for python in reversed(PYTHONS)),
        "@RANGE@": f"{PYTHONS[0]} to {PYTHONS[-1]}",
    }
    return _filled(text, values).encode()


def _main(source: Path, platform: Platform) -> bytes:
    text = (source / "release/launcher/main.py").read_text()
    values = {
        "\nSUFFIXES = ()  # type: tuple[str, ...]\n": f"\nSUFFIXES = {platform.suffixes()!r}\n",
        "\nMACHINES = ()  # type: tuple[str, ...]\n": f"\nMACHINES = {platform.machines!r}\n",
    }
    return _filled(text, values).encode()


def _filled(text: str, values: Mapping[str, str]) -> str:
    for place, value in values.items():
        if place not in text:
            raise ReleaseError(f"the launcher has no place for {place.strip()}")
        text = text.replace(place, value)
    return text


def locked_packages(platform: Platform, cache: Path) -> list[Package]:
    """The packages that the lock names, downloaded and unpacked. Raises ReleaseError."""
    packages = wheels.unpack(wheels.download(platform, cache))
    found = {(package.name, package.version) for package in packages}
    wanted = {(pin.name, pin.version) for pin in lock.read(platform)}
    if found != wanted:
        raise ReleaseError(f"{platform.name}: the wheels are not those of the lock")
    return packages
