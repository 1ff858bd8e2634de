"""Finds the files of a dump: those named, those in a folder and below it, those in archives.

A folder or an archive is taken as `kubectl cluster-info dump`, must-gather, Troubleshoot's support
bundles, the Insights Operator or Sonobuoy wrote it. Their logs are left out by the names' endings,
and links are not followed. Where a document does not say its kind, its path may.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from kubectl_nodelife.commands.cluster.archive import (
    NotAnArchive,
    archived_files,
    holds_archive,
    is_archive,
)
from kubectl_nodelife.commands.cluster.file_size import is_strict, pieces_of, pieces_of_stdin
from kubectl_nodelife.commands.cluster.unpacking import PACKED_SUFFIXES, ZSTD_SUFFIXES
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.enumeration import first_names
from kubectl_nodelife.kube.errors import InputError, NotKubernetes
from kubectl_nodelife.kube.kinds import Kind, find_resource, group_of

STDIN: Final = "standard input"
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_NAMED: Final = 3
_TEMPLATE: Final = re.compile(rb"^[^\"'#\n]*\{\{", re.MULTILINE)
_SONOBUOY: Final = re.compile(r"(?P<group>[a-z0-9.-]+)_v\d\w*_(?P<plural>[a-z]+)")


class DumpFile(NamedTuple):
    """A file of a dump. `found`: it was found in a folder or an archive, not named. `dump`: the
    name as given, or the archive that it is in.

    `kind`: of what does not say its own, as far as the path tells. `pieces` must be read before the
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
        if is_strict():
            raise BadInput(error.what, on=source, remedy="take it out, or leave --strict away")
        self._strangers.append("/".join(PurePosixPath(source).parts[-2:]))

    def skip_archive(self, source: str, why: str) -> None:
        """Note an archive inside a folder or an archive. Raises BadInput with --strict."""
        if is_strict():
            raise BadInput(why, on=source, remedy="take it out, or leave --strict away")
        self._archives.append(f"{source} ({why})")

    def warnings(self) -> list[str]:
        """A sentence for each sort."""
        told = []
        if self._strangers:
            named = first_names(self._strangers, _NAMED)
            told.append(f"files without Kubernetes objects were skipped: {named}")
        if self._archives:
            named = first_names(self._archives, _NAMED)
            told.append(f"archives inside were not opened: {named}")
        return told


def dump_files(names: Sequence[str], skipped: SkippedFiles) -> Iterator[DumpFile]:
    """The files that `-f` names, in the order of the names. Raises BadInput."""
    for name in names:
        path = Path(name)
        if name == "-":
            yield DumpFile(STDIN, pieces_of_stdin(), dump=STDIN)
        elif path.is_dir():
            yield from _or_refused(_in_folder(path, skipped), name, "folder")
        elif name.endswith(ZSTD_SUFFIXES):
            raise BadInput("is packed with zstd", on=name, remedy="unpack it with 'zstd -d' first")
        elif holds_archive(path):
            yield from _or_refused(_in_archive(path, skipped), name, "archive")
        else:
            yield DumpFile(name, pieces_of(path), kind_of_path(name), dump=name)


def kind_of_path(name: str) -> Kind | None:
    """The kind of the objects in a file of that path: `NS/pods.json`, `nodes/NAME.yaml`,
    `core_v1_pods.json`, `cluster-resources/pods/NS.json`, `NAME-events.json`; None where the path
    does not tell.
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
    suffix = next((one for one in PACKED_SUFFIXES if name.endswith(one)), "")
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
                yield DumpFile(name, pieces_of(path), kind, found=True, dump=str(folder))


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
