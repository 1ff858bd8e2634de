"""The checks of krew and of the reviewers of its index, for machines without krew.

Follows krew's pkg/index/types.go, internal/index/validation/validate.go and, for archives,
internal/download/downloader.go. Stricter in one point: krew ignores keys that it does not know,
so that a typo would pass there. Of the pairs of system and architecture only those that we ship
for are allowed.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

import msgspec

from release.platforms import PLATFORMS

SEMVER: Final = re.compile(
    r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII
)
_WINDOWS_DEVICES: Final = re.compile(r"(CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9])", re.IGNORECASE)
_SHIPPED: Final = {(platform.system, platform.arch) for platform in PLATFORMS}
_LICENCE: Final = re.compile(r"(license|licenses|copying)(\.txt|\.md)?", re.IGNORECASE)


class Metadata(msgspec.Struct, forbid_unknown_fields=True):
    """The plugin's name."""

    name: str


class Selector(msgspec.Struct, forbid_unknown_fields=True):
    """Which machines a platform is for: `os` and `arch` by Go's names."""

    matchLabels: dict[str, str]  # noqa: N815


class Platform(msgspec.Struct, forbid_unknown_fields=True):
    """An archive, and the machines it is for."""

    selector: Selector
    uri: str
    sha256: str
    bin: str


class Spec(msgspec.Struct, forbid_unknown_fields=True):
    """The text that krew shows of the plugin, and its archives."""

    version: str
    shortDescription: str  # noqa: N815
    platforms: list[Platform]
    homepage: str = ""
    description: str = ""
    caveats: str = ""


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """krew's manifest of a plugin; fields that it does not have here are an error."""

    apiVersion: str  # noqa: N815
    kind: str
    metadata: Metadata
    spec: Spec


def manifest_faults(manifest: Manifest) -> list[str]:
    """The keys of the manifest that are not as they must be."""
    spec = manifest.spec
    pairs = [tuple(map(p.selector.matchLabels.get, ("os", "arch"))) for p in spec.platforms]
    name = manifest.metadata.name
    checks = {
        "apiVersion": manifest.apiVersion == "krew.googlecontainertools.github.com/v1alpha2",
        "kind": manifest.kind == "Plugin",
        "name": re.fullmatch(r"[\w-]+", name, re.ASCII) is not None
        and not _WINDOWS_DEVICES.fullmatch(name),
        "version": SEMVER.fullmatch(spec.version) is not None,
        "shortDescription": 0 < len(spec.shortDescription) <= 50
        and "\n" not in spec.shortDescription,
        "platforms": len(pairs) == len(set(pairs)) and bool(pairs) and set(pairs) <= _SHIPPED,
    }
    failed = [name for name, passed in checks.items() if not passed]
    return failed + [fault for platform in spec.platforms for fault in _platform_faults(platform)]


def _platform_faults(platform: Platform) -> list[str]:
    binary = platform.bin
    checks = {
        "selector": set(platform.selector.matchLabels) == {"os", "arch"},
        "sha256": re.fullmatch(r"[0-9a-f]{64}", platform.sha256) is not None,
        "uri": platform.uri.startswith(("https://", "http://127.0.0.1:"))
        and platform.uri.endswith(".tar.gz"),
        "bin": str(PurePosixPath(binary)) == binary and not binary.startswith(("/", "..")),
    }
    return [name for name, passed in checks.items() if not passed]


def archive_faults(entries: Iterable[tarfile.TarInfo], binary: str) -> list[str]:
    """The faults for which krew would not unpack an archive's entries, or could not run them."""
    faults, program, licence = [], None, False
    names: set[str] = set()
    for entry in entries:
        if entry.name.casefold() in names:
            faults.append(f"{entry.name}: there twice, for a file system that ignores case")
        names.add(entry.name.casefold())
        if not (entry.isreg() or entry.isdir()):
            faults.append(f"{entry.name}: neither a file nor a folder")
        if ".." in entry.name or entry.name.startswith("/"):
            faults.append(f"{entry.name}: the name leads out of the archive")
        if entry.isreg() and entry.name == binary:
            program = entry
        licence = licence or bool(_LICENCE.fullmatch(PurePosixPath(entry.name).name))
    if program is None:
        faults.append(f"{binary}: not in the archive")
    elif not program.mode & 0o111:
        faults.append(f"{binary}: may not be executed")
    if not licence:
        faults.append("no file with the licence")
    return faults
