"""The packages inside an archive, pinned: `release/lock/PLATFORM.txt`, in pip's own format.

A lock holds one version of each package for all platforms and Pythons, and for each platform the
hashes of the wheels that its archive is made of. It is renewed by `bin/release lock`; its head
keeps a digest of what setup.cfg asks for, so that a lock that is out of date is noticed.
"""

from __future__ import annotations

import configparser
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from release.platforms import PLATFORMS, PYTHONS, Platform

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "lock"

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_DIGEST = re.compile(r"^# setup\.cfg: (\S+)$", re.MULTILINE)


class Pin(NamedTuple):
    """One package: its normalised name, its version, and the sha256 of each wheel in use."""

    name: str
    version: str
    hashes: tuple[str, ...]


def requirements(root: Path = ROOT) -> list[str]:
    """What setup.cfg asks for at run time."""
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    return sorted(line.strip() for line in lines if line.strip())


def digest(root: Path = ROOT) -> str:
    """What changes when setup.cfg asks for other packages."""
    return hashlib.sha256("\n".join(requirements(root)).encode()).hexdigest()[:16]


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


def renew() -> None:
    """Ask the package index for the newest versions that fit, and write all locks."""
    versions: dict[str, str] = {}
    FOLDER.mkdir(exist_ok=True)
    for platform in PLATFORMS:
        found: dict[str, set[str]] = {}
        for python in PYTHONS:
            for name, version, value in _resolve(platform, python, versions):
                versions[name] = version
                found.setdefault(name, set()).add(value)
        pins = [Pin(name, versions[name], tuple(values)) for name, values in found.items()]
        (FOLDER / f"{platform.name}.txt").write_text(_head(platform) + text_of(pins))


def _head(platform: Platform) -> str:
    return (
        f"# The packages in the archive for {platform.system}/{platform.arch}, CPython "
        f"{PYTHONS[0]} to {PYTHONS[-1]}.\n"
        "# Made by `bin/release lock`; do not edit.\n"
        f"# setup.cfg: {digest()}\n"
    )


def _resolve(
    platform: Platform, python: str, versions: Mapping[str, str]
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
                *("-c", str(constraints), *target_flags(platform, python), *requirements()),
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
