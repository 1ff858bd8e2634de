"""Which licences may be inside an archive, and where each package states its own.

A package whose licence is not recognised, or not listed here, or whose text is missing stops the
release: a maintainer has to check it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.parser import BytesParser
from typing import Final

from release.source import ReleaseError
from release.wheels import Package

ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "Zlib",
    }
)
"""SPDX names of licences that let the package be handed on, unchanged, beside our own code."""

# What packages write where an SPDX expression should stand.
_WORDS: Final = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
_OPERATORS: Final = re.compile(r"\s+(?:AND|OR)\s+|[()]")


def expression(package: Package) -> str:
    """The package's licence as an SPDX expression. Raises ReleaseError if it may not be inside."""
    metadata = BytesParser().parsebytes(package.metadata, headersonly=True)
    classifiers = [
        line.rpartition("::")[2].strip()
        for line in map(str, metadata.get_all("Classifier", []))  # a Header where bytes are damaged
        if line.startswith("License ::")
    ]
    said = [metadata.get("License-Expression"), metadata.get("License"), *classifiers]
    for text in said:
        known = _spdx(str(text)) if text else ""
        if known:
            return known
    seen = ", ".join(repr(str(text).splitlines()[0]) for text in said if text) or "nothing"
    raise ReleaseError(f"{package.name}: its licence is not among those allowed; it says {seen}")


def texts(package: Package) -> Mapping[str, bytes]:
    """The licence's text, by file name. Raises ReleaseError where there is none."""
    if not package.licences:
        raise ReleaseError(f"{package.name} {package.version}: its wheel has no licence text")
    return package.licences


def _spdx(text: str) -> str:
    """The expression if all licences in it are allowed, "" otherwise."""
    text = text.strip()
    text = _WORDS.get(text.lower().replace(",", ""), text)
    names = {name for name in _OPERATORS.split(text) if name}
    return text if names and names <= ALLOWED else ""
