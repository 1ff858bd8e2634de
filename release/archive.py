"""A tree of files as a .tar.gz or a wheel that is the same each time, and back.

Entries are sorted and have no owner's name; all have one time and one of two modes. krew
takes folders and regular files only, so that nothing else can be written here.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from release.source import ReleaseError

LEVEL: Final = 9


class File(NamedTuple):
    """A regular file: its content, and if it is a program."""

    content: bytes
    is_program: bool = False

    @property
    def mode(self) -> int:
        """The permissions it is packed with."""
        return 0o755 if self.is_program else 0o644


Tree = Mapping[str, File]
"""Files by their path, with slashes and relative; folders follow from them."""


def write(path: Path, tree: Tree, seconds: int, level: int = LEVEL) -> None:
    """Pack the tree; everything in it is of that time (seconds since 1970, UTC).

    A name that ends in .whl gets a zip file, any other a .tar.gz.
    """
    if path.suffix == ".whl":
        _write_wheel(path, tree, seconds)
        return
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


def _write_wheel(path: Path, tree: Tree, seconds: int) -> None:
    """The binary distribution format wants its .dist-info last."""
    at = time.gmtime(seconds)[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as packed:
        for name in sorted(tree, key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, at)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | tree[name].mode) << 16
            packed.writestr(entry, tree[name].content)


def read(path: Path) -> dict[str, File]:
    """The regular files of a .tar.gz or a wheel. Raises ReleaseError where it cannot be read."""
    if path.suffix != ".whl":
        return files_of(entries(path))
    try:
        with zipfile.ZipFile(path) as packed:
            return {
                entry.filename: File(packed.read(entry), bool(entry.external_attr >> 16 & 0o100))
                for entry in packed.infolist()
                if not entry.is_dir()
            }
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
        raise ReleaseError(f"{path.name}: cannot be read: {_said(error)}") from None


Entry = tuple[tarfile.TarInfo, bytes]
"""An entry of a .tar.gz, of any kind, and the content of regular files."""


def entries(path: Path) -> list[Entry]:
    """All entries of a .tar.gz, in order. Raises ReleaseError where it cannot be read."""
    found = []
    try:
        with tarfile.open(path, "r:gz") as tar:
            for entry in tar:
                content = tar.extractfile(entry) if entry.isreg() else None
                found.append((entry, content.read() if content is not None else b""))
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError) as error:
        raise ReleaseError(f"{path.name}: cannot be read: {_said(error)}") from None
    return found


def files_of(found: Iterable[Entry]) -> dict[str, File]:
    """The regular files among them. Other kinds of entries are for `checks` to find."""
    return {
        entry.name: File(content, bool(entry.mode & 0o100))
        for entry, content in found
        if entry.isreg()
    }


def _said(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


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
