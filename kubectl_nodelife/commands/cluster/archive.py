"""Reads the files of a tar archive in memory, one after another; nothing is unpacked to the disk.

Links, devices and sparse files are passed over, so that an archive can name no file outside itself.
What the archive holds counts as one file for `--max-file-size`, with what is passed over in it.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple, Self, cast

from kubectl_nodelife.commands.cluster.file_size import limited_pieces, most_bytes, too_long
from kubectl_nodelife.errors import BadInput

SUFFIXES: Final = (".tar", ".tar.gz", ".tgz")
MOST_MEMBERS: Final = 200_000
"""tarfile keeps the header of each, some 0.7 KB."""

MOST_HEADER_BYTES: Final = 1 << 20
"""Of the headers that hold long names: tarfile reads each of them as a whole."""

_LONG_HEADERS: Final = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class ArchivedFile(NamedTuple):
    """A file in an archive. `pieces` must be read before the next file is asked for."""

    name: str
    pieces: Iterator[bytes]


def is_archive(name: str) -> bool:
    """Whether a file of that name is an archive that is read."""
    return name.endswith(SUFFIXES)


def archived_files(path: Path) -> Iterator[ArchivedFile]:
    """The regular files of an archive, in its order. Raises BadInput."""
    name = str(path)
    with _damage_told(name), path.open("rb") as packed:
        plain = packed if path.suffix == ".tar" else gzip.GzipFile(fileobj=packed)
        stream = _LimitedStream(cast(IO[bytes], plain), name)
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|", tarinfo=_Header) as archive:
            yield from _members(archive, name)


@contextmanager
def _damage_told(name: str) -> Iterator[None]:
    """Raises BadInput for what reading a damaged archive raises."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = f"is cut off or no tar archive: {error}"
        raise BadInput(what, on=name, remedy="write it again") from None
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise BadInput(what, on=name, remedy="check the path") from None


def _members(archive: tarfile.TarFile, name: str) -> Iterator[ArchivedFile]:
    for number, member in enumerate(archive):
        if number >= MOST_MEMBERS:
            what = f"holds more than {MOST_MEMBERS:,} files"
            raise BadInput(what, on=name, remedy="unpack the ones with Kubernetes objects")
        if not member.isreg() or member.issparse():
            continue
        file = archive.extractfile(member)
        if file is not None:
            yield ArchivedFile(member.name, _pieces(file, name))


def _pieces(file: IO[bytes], name: str) -> Iterator[bytes]:
    """A file's pieces; damage shows up while they are read, too."""
    with _damage_told(name):
        yield from limited_pieces(file, name)


class _LimitedStream:
    """What tarfile reads from: refuses to give more than a file may hold."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._read = 0

    def read(self, size: int) -> bytes:
        """The next bytes. Raises BadInput beyond the limit."""
        piece = self._file.read(size)
        self._read += len(piece)
        if self._read > most_bytes():
            raise too_long(self._name)
        return piece


class _Header(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """A header that holds a name tells how long it is before it is read."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _LONG_HEADERS and found.size > MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {found.size:,} bytes")
        return found
