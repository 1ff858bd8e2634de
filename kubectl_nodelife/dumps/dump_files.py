"""Finds the files of a dump: those named, those in a folder and below it, those in archives.

A folder or an archive is taken as `kubectl cluster-info dump`, must-gather, Troubleshoot's support
bundles, the Insights Operator or Sonobuoy wrote it. Their logs are left out by the names' endings,
and links are not followed. Where a document does not say its kind, its path may.

tar and zip archives are read in memory; nothing is unpacked to the disk. Archives inside archives
are read in their turn. Links, devices and sparse files are passed over, so that an archive can name
no file outside itself. What an archive holds counts as one file for `--max-file-size`, with what is
passed over in it and what the archives inside unpack to.
"""

from __future__ import annotations

import io
import os
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple, Self, cast

from kubectl_nodelife.dumps import file_size
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import Kind, find_resource, group_of
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.unreadable import InputError, NotKubernetes

STDIN: Final = "standard input"
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_NAMED: Final = 3
_TEMPLATE: Final = re.compile(rb"^[^\"'#\n]*\{\{", re.MULTILINE)
_SONOBUOY: Final = re.compile(r"(?P<group>[a-z0-9.-]+)_v\d\w*_(?P<plural>[a-z]+)")


SUFFIXES: Final = (
    *(".tar", *(f".tar{packed}" for packed in file_size.PACKED_SUFFIXES)),
    *(".tgz", ".tbz", ".tbz2", ".txz", ".zip", ".tar.zst", ".tzst"),
)
DEEPEST: Final = 4
"""So many archives are opened inside one another; a zip file can hold itself."""
MOST_MEMBERS: Final = 200_000
"""tarfile keeps the header of each, some 0.7 KB."""
MOST_HEADER_BYTES: Final = 1 << 20
"""Of the headers that hold long names: tarfile reads each of them as a whole."""
MOST_INNER_ZIP_BYTES: Final = 64 << 20
"""A zip file's table of contents is at its end: one inside an archive is held as a whole."""
_MOST_DIRECTORY_BYTES: Final = 256 * MOST_MEMBERS
"""Of that table, which zipfile reads as a whole."""
_TAR_BLOCK: Final = tarfile.BLOCKSIZE
_ZIP: Final = b"PK\x03\x04"
_ZIP_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of the others Python unpacks a piece whole, however long it is."""
_DAMAGE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile),
    *(NotImplementedError, ValueError, struct.error),  # of zip files with nonsense in their tables
)
_BUFFER: Final = 1 << 18
_LONG_HEADERS: Final = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
NotOpened = Callable[[str, str], None]
"""Receives the name of an archive inside that is passed over, and why."""


class DumpFile(NamedTuple):
    """A file of a dump. `found`: it was found in a folder or an archive, not named. `dump`: the
    name as given, or the archive that it is in.

    `kind`: of what does not say its own, as far as the path shows. `pieces` must be read before the
    next file is asked for.
    """

    source: str
    pieces: Iterator[bytes]
    kind: Kind | None = None
    found: bool = False
    dump: str = ""


class SkippedFiles:
    """Files that were found in folders and archives, and hold nothing that can be read."""

    def __init__(self) -> None:
        self._strangers: list[str] = []
        self._archives: list[str] = []

    def skip(self, source: str, error: InputError) -> None:
        """Note a file without Kubernetes objects. Raises BadInput with --strict."""
        if file_size.is_strict():
            raise BadInput(error.what, on=source, remedy="take it out, or leave --strict away")
        self._strangers.append("/".join(PurePosixPath(source).parts[-2:]))

    def skip_archive(self, source: str, why: str) -> None:
        """Note an archive inside a folder or an archive. Raises BadInput with --strict."""
        if file_size.is_strict():
            raise BadInput(why, on=source, remedy="take it out, or leave --strict away")
        self._archives.append(f"{source} ({why})")

    def warnings(self) -> list[str]:
        """A sentence for each sort."""
        sentences = []
        if self._strangers:
            named = first_names(self._strangers, _NAMED)
            sentences.append(f"files without Kubernetes objects were skipped: {named}")
        if self._archives:
            named = first_names(self._archives, _NAMED)
            sentences.append(f"archives inside were not opened: {named}")
        return sentences


def dump_files(names: Sequence[str], skipped: SkippedFiles) -> Iterator[DumpFile]:
    """The files that `-f` names, in the order of the names. Raises BadInput."""
    for name in names:
        path = Path(name)
        if name == "-":
            yield DumpFile(STDIN, file_size.pieces_of_stdin(), dump=STDIN)
        elif path.is_dir():
            yield from _or_refused(_in_folder(path, skipped), name, "folder")
        elif name.endswith(file_size.ZSTD_SUFFIXES):
            raise BadInput("is packed with zstd", on=name, remedy="unpack it with 'zstd -d' first")
        elif holds_archive(path):
            yield from _or_refused(_in_archive(path, skipped), name, "archive")
        else:
            yield DumpFile(name, file_size.pieces_of(path), kind_of_path(name), dump=name)


def kind_of_path(name: str) -> Kind | None:
    """The kind of the objects in a file of that path: `NS/pods.json`, `nodes/NAME.yaml`,
    `core_v1_pods.json`, `cluster-resources/pods/NS.json`, `NAME-events.json`; None where the path
    does not show it.
    """
    path = PurePosixPath(_plain(name.replace(os.sep, "/").lower()))
    if match := _SONOBUOY.fullmatch(path.stem):
        kind, group = find_resource(match["plural"]), match["group"]
        groups = [group_of(version) or "core" for version in kind.api_versions] if kind else []
        return kind if group in groups else None
    words = [path.parent.name, path.stem, path.parent.parent.name]
    if path.parent.parent.name != "cluster-resources":  # there a file is named for its namespace
        words[:2] = words[1::-1]
    if path.stem.endswith("-events"):
        words.append("events")
    return next((kind for word in words if (kind := _kind_of_word(word)) is not None), None)


def _kind_of_word(word: str) -> Kind | None:
    """The kind that a folder or file is named for: `pods`, `pod`, `pvcs`, `storage-classes`."""
    if "." in word:
        return None
    resource = word.replace("-", "")
    kind = find_resource(resource)
    if kind is not None and resource in (kind.plural, kind.name.lower()):
        return kind
    kind = find_resource(resource.removesuffix("s"))
    return kind if kind is not None and resource in {f"{n}s" for n in kind.short_names} else None


def is_stranger(file: DumpFile, begins: bytes, error: InputError) -> bool:
    """True if a file that cannot be read never was Kubernetes': nothing of the dump is missing.

    Of templates as Helm has them nothing is known before they are filled in.
    """
    if not file.found or (file.kind is not None and not begins.strip()):
        return False
    if isinstance(error, NotKubernetes) or _TEMPLATE.search(begins):
        return True
    return file.kind is None and b"apiVersion" not in begins


def _plain(name: str) -> str:
    """The name of what is packed in a file of that name."""
    suffix = next((one for one in file_size.PACKED_SUFFIXES if name.endswith(one)), "")
    return name.removesuffix(suffix)


def _in_folder(folder: Path, skipped: SkippedFiles) -> Iterator[DumpFile]:
    for place, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or not path.is_file() or path.is_symlink():
                continue
            if is_archive(name):
                yield from _archive_in_folder(path, skipped)
            elif _plain(name).endswith(_SUFFIXES):
                name, kind = str(path), kind_of_path(str(path))
                yield DumpFile(name, file_size.pieces_of(path), kind, found=True, dump=str(folder))


def _archive_in_folder(path: Path, skipped: SkippedFiles) -> Iterator[DumpFile]:
    """As one inside an archive: one that is none at all is passed over."""
    files = _in_archive(path, skipped)
    try:
        first = next(files, None)
    except NotAnArchive as error:
        skipped.skip_archive(str(path), error.what)
        return
    if first is not None:
        yield first
        yield from files


def _in_archive(path: Path, skipped: SkippedFiles) -> Iterator[DumpFile]:
    for inside, name, pieces in archived_files(path, skipped.skip_archive):
        if _plain(name).endswith(_SUFFIXES):
            kind = kind_of_path(name)
            yield DumpFile(f"{inside}: {name}", pieces, kind, found=True, dump=inside)


def _or_refused(files: Iterator[DumpFile], name: str, what: str) -> Iterator[DumpFile]:
    """The files, of which there must be one."""
    first = next(files, None)
    if first is None:
        raise BadInput(
            f"the {what} holds no .json, .yaml or .yml file",
            on=name,
            remedy=f"name a {what} with what 'kubectl get -o json' printed",
        )
    return chain((first,), files)


class ArchivedFile(NamedTuple):
    """A file in an archive, or in one inside it, whose name `inside` is then.

    `pieces` must be read before the next file is asked for.
    """

    inside: str
    name: str
    pieces: Iterator[bytes]


class NotAnArchive(BadInput):
    """A file that is called an archive, and of which no file can be read."""


def is_archive(name: str) -> bool:
    """True if a file of that name is an archive."""
    return name.endswith(SUFFIXES)


def holds_archive(path: Path) -> bool:
    """True if a file is an archive, whatever its name: what a browser saved has lost its suffix."""
    if is_archive(path.name):
        return True
    with suppress(OSError, *file_size.damage()):
        if path.is_file():
            with path.open("rb") as file:
                begins = file_size.first_bytes(file)
                return begins.startswith(_ZIP) or _is_tar(file_size.unpacked(file).read(_TAR_BLOCK))
    return False


def _is_tar(block: bytes) -> bool:
    return len(block) == _TAR_BLOCK and block[257:262] == b"ustar"


def archived_files(path: Path, not_opened: NotOpened) -> Iterator[ArchivedFile]:
    """The regular files of an archive, in its order, those of archives inside where they are.

    Raises BadInput.
    """
    name = str(path)
    opened = _OpenedArchive(name, _UnpackedBytes(name), not_opened)
    with opened.damage_as_input_error(), path.open("rb") as file:
        yield from opened.files(file)


class _UnpackedBytes:
    """How much of a named archive was unpacked, archives inside it included."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bytes = 0
        self._members = 0

    def add(self, count: int) -> None:
        """Count bytes. Raises BadInput beyond the limit."""
        self._bytes += count
        if self._bytes > file_size.most_bytes():
            raise file_size.too_long(self._name)

    def add_member(self) -> None:
        """Count a file. Raises BadInput beyond the limit."""
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise _too_many(self._name)


class _LimitedStream(io.RawIOBase):
    """Counts the bytes that are unpacked of an archive."""

    def __init__(self, file: file_size.Readable, counted: _UnpackedBytes) -> None:
        self._file = file
        self._counted = counted

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes. Raises BadInput beyond the limit."""
        piece = self._file.read(len(buffer))
        self._counted.add(len(piece))
        buffer[: len(piece)] = piece
        return len(piece)


class _OpenedArchive:
    """An archive, and how deep inside others it is."""

    def __init__(
        self, name: str, counted: _UnpackedBytes, not_opened: NotOpened, depth: int = 0
    ) -> None:
        self.name = name
        self._counted = counted
        self._not_opened = not_opened
        self._depth = depth
        self._begun = False

    def files(self, file: file_size.Peekable) -> Iterator[ArchivedFile]:
        """The files in it. Raises BadInput."""
        with self.damage_as_input_error():
            if file_size.first_bytes(file).startswith(_ZIP):
                yield from self._zipped(cast(IO[bytes], file))
            else:
                yield from self._tarred(file)

    @contextmanager
    def damage_as_input_error(self) -> Iterator[None]:
        """Raises BadInput for what reading a damaged archive raises."""
        try:
            yield
        except _DAMAGE + file_size.damage() as error:
            refused = BadInput if self._begun else NotAnArchive
            what = f"is cut off or no tar or zip archive: {error}"
            raise refused(what, on=self.name, remedy="write it again") from None
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            raise BadInput(what, on=self.name, remedy="check the path") from None

    def _tarred(self, file: file_size.Peekable) -> Iterator[ArchivedFile]:
        stream = self._limited(file_size.unpacked(file))
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BUFFER, tarinfo=_Header) as archive:
            for member in archive:
                self._begun = True
                self._counted.add_member()
                if member.isreg() and not member.issparse():
                    opened = archive.extractfile(member)
                    if opened is not None:
                        yield from self._member(member.name, opened)

    def _zipped(self, file: IO[bytes]) -> Iterator[ArchivedFile]:
        if _directory_bytes(file) > _MOST_DIRECTORY_BYTES:
            raise _too_many(self.name)
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                self._begun = True
                self._counted.add_member()
                if not member.filename or member.is_dir() or _is_zipped_link(member):
                    continue
                if member.compress_type not in _ZIP_METHODS or member.flag_bits & 1:
                    self._not_opened(f"{self.name}: {member.filename}", "encrypted or packed oddly")
                    continue
                with archive.open(member) as opened:
                    name = member.filename.replace("\\", "/")
                    yield from self._member(name, self._limited(opened))

    def _limited(self, file: file_size.Readable) -> io.BufferedReader:
        return io.BufferedReader(_LimitedStream(file, self._counted), _BUFFER)

    def _member(self, name: str, file: IO[bytes]) -> Iterator[ArchivedFile]:
        """The file, or what is in it where it is an archive."""
        if _is_hidden(name):
            return
        if not is_archive(name):
            packed = name.endswith(file_size.PACKED_SUFFIXES)
            opened = (
                self._limited(file_size.unpacked(cast(file_size.Peekable, file)))
                if packed
                else file
            )
            yield ArchivedFile(self.name, name, self._pieces(opened))
            return
        whole = f"{self.name}: {name}"
        inner = _OpenedArchive(whole, self._counted, self._not_opened, self._depth + 1)
        if self._depth == DEEPEST:
            self._not_opened(whole, "too many archives inside one another")
        elif name.endswith(file_size.ZSTD_SUFFIXES):
            self._not_opened(whole, "zstd is not read")
        else:
            yield from inner._inside(file)

    def _inside(self, file: IO[bytes]) -> Iterator[ArchivedFile]:
        """The files of this archive inside another. One that is none at all is passed over."""
        source = cast(file_size.Peekable, file)
        if file_size.first_bytes(source).startswith(_ZIP):
            text = file.read(MOST_INNER_ZIP_BYTES + 1)
            if len(text) > MOST_INNER_ZIP_BYTES:
                self._not_opened(self.name, "too long to be read inside another")
                return
            source = cast(file_size.Peekable, io.BufferedReader(io.BytesIO(text)))
        try:
            yield from self.files(source)
        except NotAnArchive as error:
            self._not_opened(self.name, error.what)

    def _pieces(self, file: IO[bytes]) -> Iterator[bytes]:
        """A file's pieces; damage shows up while they are read, too."""
        with self.damage_as_input_error():
            yield from file_size.limited_pieces(file, self.name)


def _is_hidden(name: str) -> bool:
    """True if a part of the path begins with a dot, as what macOS adds to an archive does."""
    return any(part.startswith(".") and part != ".." for part in PurePosixPath(name).parts)


def _too_many(name: str) -> BadInput:
    what = f"holds more than {MOST_MEMBERS:,} files"
    return BadInput(what, on=name, remedy="unpack the ones with Kubernetes objects")


def _is_zipped_link(member: zipfile.ZipInfo) -> bool:
    return (member.external_attr >> 16) & 0o170000 == 0o120000


def _directory_bytes(file: IO[bytes]) -> int:
    """How long a zip file's table of contents is, as its end says."""
    at = file.seek(0, io.SEEK_END)
    file.seek(max(0, at - (64 << 10) - 22))
    text = file.read()
    file.seek(0)
    end, end64 = text.rfind(b"PK\x05\x06"), text.rfind(b"PK\x06\x06")
    if end < 0:
        raise zipfile.BadZipFile("its table of contents is missing")
    size = int.from_bytes(text[end + 12 : end + 16], "little")
    if end64 >= 0:
        size = max(size & 0x7FFFFFFF, int.from_bytes(text[end64 + 40 : end64 + 48], "little"))
    return size


class _Header(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Checks the length of a header that holds a name, before the name is read."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _LONG_HEADERS and header.size > MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header
