"""The parts that are linked into packages' extension modules, and the texts of their licences.

pydantic_core lists them itself, in the list of components in its wheel (PEP 770). For two packages
they are listed here, for the versions that the lock had when they were looked up: the wheels do not
list them, so that another version of them stops the release. Where a licence is one of several to
choose from, Apache-2.0 is chosen, whose text is that of the archive's own LICENSE, or the
Unlicense, which asks for no text.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

from release.source import ReleaseError
from release.wheels import Package

TEXTS: Final = Path(__file__).parent / "linked"
"""Texts by the part's name, or by the licence's where it names no holder of the rights."""

_WITHOUT_TEXT: Final = frozenset({"Apache-2.0", "Unlicense"})


class Part(NamedTuple):
    """A library or crate inside an extension module; its licence is an SPDX expression."""

    name: str
    version: str
    licence: str
    purl: str


# Abseil's version is in the names of its symbols (lts_20250512), libyaml's in get_version_string().
_LOOKED_UP: Final = {
    ("google-re2", "1.1.20251105"): (
        Part("abseil-cpp", "20250512", "Apache-2.0", "pkg:github/abseil/abseil-cpp@20250512"),
        Part("re2", "2025-11-05", "BSD-3-Clause", "pkg:github/google/re2@2025-11-05"),
    ),
    ("pyyaml", "6.0.3"): (Part("libyaml", "0.2.5", "MIT", "pkg:github/yaml/libyaml@0.2.5"),),
}
_OWN_TEXT: Final = frozenset({"re2"})
"""Parts whose licence is the package's own, which is there already."""


def parts(package: Package) -> tuple[Part, ...]:
    """The parts linked into the package's modules. Raises ReleaseError where this is not known."""
    if package.sbom:
        document = json.loads(package.sbom)
        return tuple(
            Part(
                found["name"],
                found["version"],
                " AND ".join(licence["expression"] for licence in found["licenses"]),
                found["purl"],
            )
            for found in document["components"]
            if found.get("scope") != "excluded"
        )
    known = _LOOKED_UP.get((package.name, package.version))
    if known is None and package.name in {name for name, _ in _LOOKED_UP}:
        raise ReleaseError(
            f"{package.name} {package.version}: what is linked into it is not known; look it up "
            "and write it down in release/linked_parts.py"
        )
    return known or ()


def texts(package: Package) -> dict[str, bytes]:
    """The texts that the parts' licences ask for, by file name. Raises ReleaseError."""
    found = {}
    for part in parts(package):
        for choice in re.split(r" AND ", part.licence):
            licences = set(re.split(r" OR |[()/ ]+", choice)) - {""}
            if licences & _WITHOUT_TEXT or part.name in _OWN_TEXT:
                continue
            licence = sorted(licences)[0]
            licence = {"Unicode-DFS-2016": "Unicode-3.0"}.get(licence, licence)
            for name in (f"{part.name}.txt", f"{licence}.txt"):
                if (TEXTS / name).exists():
                    found[f"linked/{name}"] = (TEXTS / name).read_bytes()
                    break
            else:
                raise ReleaseError(
                    f"{package.name}: has {part.name} {part.version} linked in; put the text of "
                    f"its licence ({part.licence}) into {TEXTS.parent.name}/{TEXTS.name}"
                )
    return found
