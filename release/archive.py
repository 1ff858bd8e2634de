"""A tree of files as a .tar.gz that is the same each time, and back.

Entries are sorted and belong to nobody in particular; all have one time. krew takes folders and
regular files only, so that nothing else can be written here.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

LEVEL: Final = 9


class File(NamedTuple):
    """A regular file: what is in it, and whether it is a program."""

    content: bytes
    is_program: bool = False

    @property
    def mode(self) -> int:
        """The permissions it is packed with."""
        return 0o755 if self.is_program else 0o644


Tree = Mapping[str, File]
"""Files by their path, with slashes and relative; folders follow from them."""


def write(path: Path, tree: Tree, seconds: int, level: int = LEVEL) -> None:
    """Pack the tree; everything in it is of that time (seconds since 1970, UTC)."""
    with (
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", level, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for folder in sorted(_folders(tree)):
            tar.addfile(_entry(folder, seconds, tarfile.DIRTYPE, 0o755))
        for name in sorted(tree):
            file = tree[name]
            entry = _entry(name, seconds, tarfile.REGTYPE, file.mode)
            entry.size = len(file.content)
            tar.addfile(entry, io.BytesIO(file.content))


def read(path: Path) -> dict[str, File]:
    """The regular files of an archive. Other kinds of entries are for `checks` to find."""
    tree = {}
    with tarfile.open(path) as tar:
        for entry in tar:
            if entry.isreg():
                content = tar.extractfile(entry)
                assert content is not None
                tree[entry.name] = File(content.read(), bool(entry.mode & 0o100))
    return tree


def _folders(tree: Tree) -> set[str]:
    folders = set()
    for name in tree:
        parts = name.split("/")
        folders |= {"/".join(parts[:count]) for count in range(1, len(parts))}
    return folders


def _entry(name: str, seconds: int, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, seconds
    return entry
