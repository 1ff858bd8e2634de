"""Packages pinned with hashes: `release/lock/PLATFORM.txt`, and `development/` beside it.

The first holds what is inside an archive, and what `bin/kubectl-nodelife` installs; the second all
that `bin/test` and `bin/release` need. Both are in pip's own format. A lock holds one version of
each package for all platforms and Pythons, and for each platform the hashes of its wheels. It is
renewed by `bin/release lock`; its head keeps a digest of what setup.cfg asks for, so that a lock
that is out of date is noticed.
"""

from __future__ import annotations

import configparser
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from release.platforms import PLATFORMS, PYTHONS, Platform

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "lock"
DEVELOPMENT = FOLDER / "development"
DEVELOPED_ON = tuple(p for p in PLATFORMS if p.name != "darwin-amd64")
"""There cryptography, which tests need, has no wheels any more: nothing is pinned for tests."""

_MARKERS: Mapping[str, Callable[[Platform], bool]] = {
    "": lambda platform: True,
    'platform_system == "Linux"': lambda platform: platform.system == "linux",
    'platform_machine == "x86_64"': lambda platform: platform.arch == "amd64",
}

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_DIGEST = re.compile(r"^# setup\.cfg: (\S+)$", re.MULTILINE)


class Pin(NamedTuple):
    """One package: its normalised name, its version, and the sha256 of each wheel in use."""

    name: str
    version: str
    hashes: tuple[str, ...]


def requirements(root: Path = ROOT) -> list[str]:
    """The packages that setup.cfg asks for at run time."""
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    return sorted(line.strip() for line in lines if line.strip())


def development(platform: Platform, root: Path = ROOT) -> list[str]:
    """The same and what setup.cfg asks for besides, for tests, releases and the site."""
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    found = set(requirements(root))
    for extra in ("test", "release", "docs"):
        for line in config["options.extras_require"][extra].splitlines():
            wanted, _, marker = map(str.strip, line.partition(";"))
            if marker not in _MARKERS:
                raise ValueError(f"setup.cfg: a marker that the lock does not know: {marker}")
            if wanted and _MARKERS[marker](platform):
                found.add(wanted)
    return sorted(found)


def digest(wanted: Sequence[str] | None = None) -> str:
    """The digest, which changes when setup.cfg asks for other packages."""
    lines = requirements() if wanted is None else wanted
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def normalised(name: str) -> str:
    """A package's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(platform: Platform, folder: Path = FOLDER) -> list[Pin]:
    """The pins of that platform, by name. Raises FileNotFoundError."""
    text = (folder / f"{platform.name}.txt").read_text().replace("\\\n", " ")
    pins = []
    for line in text.splitlines():
        if found := _PIN.match(line):
            pins.append(Pin(found["name"], found["version"], tuple(_HASH.findall(line))))
    return sorted(pins)


def digest_of(platform: Platform, folder: Path = FOLDER) -> str:
    """The digest of setup.cfg that the lock was made for; empty if it has none."""
    found = _DIGEST.search((folder / f"{platform.name}.txt").read_text())
    return found[1] if found else ""


def text_of(pins: Iterable[Pin]) -> str:
    """Pins as pip reads them with --require-hashes."""
    return "".join(
        f"{pin.name}=={pin.version}"
        + "".join(f" \\\n    --hash=sha256:{value}" for value in sorted(pin.hashes))
        + "\n"
        for pin in sorted(pins)
    )


def renew(*, keep: bool = False) -> None:
    """Ask the package index for the newest versions that fit, and write all locks.

    `keep`: what is pinned stays as it is; only what setup.cfg asks for besides is added.
    """
    kept = (*read(DEVELOPED_ON[0]), *read(DEVELOPED_ON[0], DEVELOPMENT)) if keep else ()
    versions = {pin.name: pin.version for pin in kept}
    for platform in PLATFORMS:
        _lock(platform, requirements(), "in the archive", FOLDER, versions)
    for platform in DEVELOPED_ON:
        _lock(platform, development(platform), "for development", DEVELOPMENT, versions)


def _lock(
    platform: Platform, wanted: Sequence[str], what: str, folder: Path, versions: dict[str, str]
) -> None:
    """Write one lock; `versions` that are known are kept, the others added."""
    found: dict[str, set[str]] = {}
    for python in PYTHONS:
        for name, version, value in _resolve(platform, python, wanted, versions):
            versions[name] = version
            found.setdefault(name, set()).add(value)
    pins = [Pin(name, versions[name], tuple(values)) for name, values in found.items()]
    head = (
        f"# The packages {what} for {platform.system}/{platform.arch}, CPython "
        f"{PYTHONS[0]} to {PYTHONS[-1]}.\n"
        "# Made by `bin/release lock`; do not edit.\n"
        f"# setup.cfg: {digest(wanted)}\n"
    )
    folder.mkdir(exist_ok=True)
    (folder / f"{platform.name}.txt").write_text(head + text_of(pins))


def _resolve(
    platform: Platform, python: str, wanted: Sequence[str], versions: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """(name, version, sha256) of each wheel that pip would take there; `versions` are kept."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("".join(f"{n}=={v}\n" for n, v in versions.items()))
        report = Path(folder, "report.json")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--dry-run"),
                *("--ignore-installed", "--report", str(report), "--target", folder),
                *("-c", str(constraints), *target_flags(platform, python), *wanted),
            ],
            check=True,
        )
        document: dict[str, Any] = json.loads(report.read_text())
    return [
        (
            normalised(item["metadata"]["name"]),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in document["install"]
    ]


def target_flags(platform: Platform, python: str) -> list[str]:
    """pip's flags for another platform and Python: wheels only."""
    flags = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for tag in platform.tags:
        flags += ["--platform", tag]
    return flags
