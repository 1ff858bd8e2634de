"""`-f`: files, folders and standard input as one dump, with its moment, its profile, its kinds.

Folders and archives are read as other tools leave them (`dump_files`). Of an object that is there
twice the newer counts. The moment of a snapshot is what it says itself (`snapshot save`
notes it, and what ran there), else its newest sign of life, so that ages mean what they meant when
it was taken.

One input may hold dumps of several moments: a must-gather holds archives of the Insights Operator
that are hours older; a folder of bundles, or two names, may hold the same cluster of two days. What
is deleted since must not appear again: what a newer dump has of a kind is the whole of it,
so that of an older one only kinds count that the newer lacks, and Events, which are history.

`kubectl cluster-info dump` without `--output-directory` prints Lists one after another, and between
them each container's log between two lines that name it (kubectl/pkg/cmd/clusterinfo/
clusterinfo_dump.go); these are taken out. A log may hold anything, Kubernetes objects included, and
need not end with a line's end.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kubectl_nodelife.dumps.dump_files import SkippedFiles, dump_files, is_stranger
from kubectl_nodelife.dumps.moment import (
    ClockSign,
    DoubtedClock,
    agreed_sign,
    clock_behind,
    clocks_ahead,
    clocks_of,
    newest_sign,
)
from kubectl_nodelife.engine import settings
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.field_managers import NOBODY
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import Loaded, load_pieces
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node, kubelet_versions
from kubectl_nodelife.kube.object_reader import Seen
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS, age, format_micro_time, parse_time
from kubectl_nodelife.kube.unreadable import InputError, Ref, Unreadable, unreadable_sentences
from kubectl_nodelife.kube.wellknown import (
    ANNOTATION_MOMENT,
    ANNOTATION_RUNNING,
    NAMESPACE_NODE_LEASE,
)
from kubectl_nodelife.report.live_line import progress_bar

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.settings import DetectedSettings


NOTED_VERSION = "the API server's version, noted in the snapshot"
"""The origin of a profile that follows from what a snapshot notes."""

UNDATED = "nothing in the input says when it was taken: ages count from now"

OWN_CLOCK = "this machine's clock"
"""The origin of a moment that nothing in the input shows."""

_MOST_NAMES: Final = 3

_NAMED: Final = 12
"""So many kinds that no decision reads are named; a support bundle has hundreds."""


APART_NS: Final = 15 * MINUTE_NS
"""So long the reading of one dump may take, with kubelets that post a status every 5 minutes."""
_HISTORY: Final = frozenset({"Event"})
_BEGINS: Final = b"==== START logs for container "
_ENDS: Final = b"==== END logs for container "
_CLOSES: Final = b" ===="
_LONGEST_LINE: Final = 1 << 10
"""Of the lines around a log; names are far shorter."""


class Dump(NamedTuple):
    """Objects and what is known about them.

    `kinds_read`: kinds that the input covers; `complete`: all. `running`: what the input notes
    of the controllers that ran there. `unreadable`: objects that cannot be read or decided on.
    `release_warnings`: whose behaviour stands in for the release's.
    `doubted`: nodes whose age is not known, for a clock is wrong. `nodes_listed`: False where one
    Node was read by itself, so that others may exist.
    """

    objects: list[KubeObject]
    moment_ns: int
    moment_origin: str
    profile: settings.Profile
    profile_origin: str
    kinds_read: frozenset[str]
    complete: bool
    warnings: list[str]
    running: DetectedSettings | None = None
    unreadable: tuple[Unreadable, ...] = ()
    release_warnings: tuple[str, ...] = ()
    doubted: tuple[DoubtedClock, ...] = ()
    nodes_listed: bool = True

    def moment(self) -> dict[str, str]:
        """The moment and its origin, for reports."""
        return {"time": format_micro_time(self.moment_ns), "origin": self.moment_origin}

    def has_read(self, kind: str) -> bool:
        """True if that kind was read, if only to find none."""
        return self.complete or kind in self.kinds_read


def load(
    filename: Sequence[str], now: str | None, profile: str | None, seen: Seen | None = None
) -> Dump:
    """Read `-f` with a progress bar on a terminal. Raises BadInput."""
    with progress_bar("reading objects") as step:
        dump = read_dump(filename, now=now, profile=profile, progress=step, seen=seen)
    return dump._replace(warnings=[*dump.warnings, *dump.release_warnings])


def read_dump(
    names: Sequence[str],
    *,
    now: str | None = None,
    profile: str | None = None,
    progress: Callable[[int], None] | None = None,
    seen: Seen | None = None,
) -> Dump:
    """Read `-f` arguments; `seen` is shown each object as it came.

    Raises BadInput, with the file, the path in the document and the remedy.
    """
    collecting = gc.isenabled()
    gc.disable()  # a first load only makes objects that stay
    try:
        loaded, twice = _merged(names, progress, seen)
    finally:
        if collecting:
            gc.enable()
            gc.freeze()
    objects, noted = loaded.objects, loaded.annotations
    warnings = [
        *_passed_over(loaded.unknown_kinds),
        *twice,
        *unreadable_sentences(loaded.unreadable),
        *_left_out(loaded.left_out),
    ]
    clocks = clocks_of(objects)
    moment_ns, moment_origin = _moment(clocks, now, warnings, noted.get(ANNOTATION_MOMENT, ""))
    running = _running(noted.get(ANNOTATION_RUNNING, ""), warnings)
    noted_release = (running.version if running is not None else "", NOTED_VERSION)
    followed = settings.followed_release(
        ((profile or "", "--profile"),), noted_release, kubelet_versions(objects)
    )
    objects, doubted = _without_wrong_clocks(objects, clocks, moment_ns, followed.profile, warnings)
    return Dump(
        objects,
        moment_ns,
        moment_origin,
        followed.profile,
        followed.origin,
        frozenset(loaded.kinds_read),
        loaded.all_kinds,
        warnings,
        running,
        (*loaded.unreadable, *_unlisted_nodes(loaded, warnings)),
        tuple(followed.warnings),
        doubted,
        not _is_single_node(loaded),
    )


def _left_out(sentences: Sequence[str]) -> Iterator[str]:
    """The fields that were left out of objects, the first ones by name."""
    yield from sentences[:_MOST_NAMES]
    if len(sentences) > _MOST_NAMES:
        yield f"{len(sentences) - _MOST_NAMES} more fields are left out, on which nothing depends"


def _is_single_node(loaded: Loaded) -> bool:
    """True if the only Node that was read stood outside a list."""
    if not loaded.single_node or loaded.all_kinds:
        return False
    return {obj.metadata.name for obj in loaded.objects if type(obj) is Node} == {
        loaded.single_node
    }


def _unlisted_nodes(loaded: Loaded, warnings: list[str]) -> list[Unreadable]:
    """The nodes of which pods speak, and which no list that was read had the chance to show: only a
    list of nodes knows what does not exist."""
    nodes = {obj.metadata.name for obj in loaded.objects if type(obj) is Node}
    if ("Node" in loaded.kinds_read and not _is_single_node(loaded)) or loaded.all_kinds:
        return []
    nodes |= {each.key[1] for each in loaded.unreadable if each.kind == "Node"}
    bound = {obj.spec.node_name for obj in loaded.objects if type(obj) is Pod}
    names = sorted(name for name in bound - nodes if name)
    if names:
        exist = f"{first_names(names, _MOST_NAMES)} {'exists' if len(names) == 1 else 'exist'}"
        warnings.append(
            f"no list of nodes was read: whether {exist} is not known, and nothing is decided "
            "about pods there"
        )
    return [Unreadable("Node", ("", name), "no list of nodes was read") for name in names]


def _without_wrong_clocks(
    objects: list[KubeObject],
    clocks: Sequence[ClockSign],
    moment_ns: int,
    profile: settings.Profile,
    warnings: list[str],
) -> tuple[list[KubeObject], tuple[DoubtedClock, ...]]:
    """The objects without the Lease whose age is not to be believed, and whose that was."""
    warnings += (clock.sentence for clock in clocks_ahead(clocks, moment_ns))
    behind = clock_behind(
        clocks, moment_ns, settings.make_settings(profile).node_monitor_grace_period_ns
    )
    if behind is None:
        return objects, ()
    warnings.append(f"{behind.node}: {behind.sentence}; its age is not evaluated")
    lease = ("Lease", (NAMESPACE_NODE_LEASE, behind.node))
    return [obj for obj in objects if (kind_of(obj), obj.key) != lease], (behind,)


def _merged(
    names: Sequence[str], progress: Callable[[int], None] | None, seen: Seen | None
) -> tuple[Loaded, list[str]]:
    """All inputs as one, and what is to be said of objects in it twice. Raises BadInput."""
    objects, skipped = MergedObjects(), SkippedFiles()
    merged = Loaded()
    parts: list[DumpPart] = []
    for file in dump_files(names, skipped):
        begins = next(file.pieces, b"")
        pieces = chain((begins,), file.pieces) if begins else file.pieces
        pieces = without_logs(pieces, file.source)
        try:
            loaded = load_pieces(pieces, file.source, progress, kind=file.kind, seen=seen)
        except InputError as error:
            if not is_stranger(file, begins, error):
                raise BadInput(str(error)) from None
            skipped.skip(file.source, error)
        else:
            parts.append(DumpPart(file.dump, file.source, loaded))
    newest, older = of_newest_dump(parts)
    for _, source, loaded in newest:
        objects.add(loaded, source)
        merged.kinds_read |= loaded.kinds_read
        merged.left_out += loaded.left_out
        merged.single_node = loaded.single_node or merged.single_node
        merged.unknown_kinds.update(loaded.unknown_kinds)
        merged.annotations |= loaded.annotations
        merged.all_kinds = merged.all_kinds or loaded.all_kinds
    merged.objects = list(objects.readable.values())
    merged.unreadable = list(objects.unreadable.values())
    read = merged.objects or merged.unreadable or merged.kinds_read or merged.unknown_kinds
    if not read and not merged.annotations:  # a snapshot of nothing says so in its notes
        what = "no file of it holds a Kubernetes object"
        raise BadInput(what, on=", ".join(names), remedy="name what 'kubectl get -o json' printed")
    return merged, [*older, *objects.warnings(), *skipped.warnings()]


def _passed_over(unknown: Counter[str]) -> list[str]:
    if not unknown:
        return []
    counted = ", ".join(f"{kind} ({count})" for kind, count in sorted(unknown.items())[:_NAMED])
    if len(unknown) > _NAMED:
        counted += f" and {len(unknown) - _NAMED} more kinds"
    return [f"kinds that no decision here reads were passed over: {counted}"]


def _running(text: str, warnings: list[str]) -> DetectedSettings | None:
    if not text:
        return None
    from kubectl_nodelife.daemon.settings import DetectedSettings

    try:
        return msgspec.json.decode(text, type=DetectedSettings)
    except msgspec.MsgspecError as error:
        warnings.append(f"the annotation {ANNOTATION_RUNNING} cannot be decoded ({error})")
        return None


def settings_of(dump: Dump, assignments: Sequence[str]) -> settings.Settings:
    """The settings of the running controllers that the dump notes, with `--set FLAG=VALUE` on top.

    Raises BadInput.
    """
    if dump.running is None:
        try:
            return settings.make_settings(dump.profile, settings.parse_assignments(assignments))
        except settings.SettingsError as error:
            raise BadInput(str(error), on="--set") from None
    from kubectl_nodelife.daemon.settings import RequestedSettings, resolve_settings

    requested = RequestedSettings(dump.profile.name, tuple(assignments))
    return resolve_settings(requested, dump.running, Cache(), "", "").settings


def _moment(
    clocks: Sequence[ClockSign], now: str | None, warnings: list[str], noted: str
) -> tuple[int, str]:
    if now is not None:
        try:
            return int(parse_time(now)), "--now"
        except ValueError as error:
            raise BadInput(str(error), on="--now") from None
    if noted:
        try:
            return int(parse_time(noted)), "noted in the snapshot"
        except ValueError:
            warnings.append(f"the annotation {ANNOTATION_MOMENT} is no time")
    sign = agreed_sign(clocks)
    if sign is not None:
        return sign.time_ns, f"newest sign of life, {sign.source}"
    warnings.append(UNDATED)
    return time.time_ns(), OWN_CLOCK


class DumpPart(NamedTuple):
    """The content of one file. `dump`: the name or archive that it belongs to."""

    dump: str
    source: str
    loaded: Loaded


def of_newest_dump(parts: Sequence[DumpPart]) -> tuple[list[DumpPart], list[str]]:
    """The parts without what a newer dump among them has, and a sentence on each older dump.

    A dump in which nothing shows its moment counts as of any.
    """
    moments = _moments(parts)
    newest_ns = max(moments.values(), default=0)
    older = {name for name, at_ns in moments.items() if newest_ns - at_ns > APART_NS}
    newest = [part for part in parts if part.dump not in older]
    read = {kind for part in newest for kind in part.loaded.kinds_read} - _HISTORY
    warnings = []
    for name in sorted(older, key=lambda name: -moments[name]):
        mine = [part for part in parts if part.dump == name]
        kinds = {kind for part in mine for kind in part.loaded.kinds_read}
        more = kinds - read
        newest += [_only(part, more) for part in mine]
        read |= more - _HISTORY
        if more == kinds:
            continue
        older_by = age(moments[name], newest_ns)
        rest = f"of it only {', '.join(sorted(more))} counts" if more else "nothing of it counts"
        warnings.append(f"{name} is {older_by} older than the newest dump here: {rest}")
    return newest, warnings


def _moments(parts: Iterable[DumpPart]) -> Mapping[str, int]:
    moments: dict[str, int] = {}
    for part in parts:
        sign = newest_sign(part.loaded.objects)
        times = [sign.time_ns] if sign is not None else []
        with suppress(ValueError):  # most note none
            times.append(int(parse_time(part.loaded.annotations.get(ANNOTATION_MOMENT, ""))))
        for at_ns in times:
            moments[part.dump] = max(at_ns, moments.get(part.dump, at_ns))
    return moments


def _only(part: DumpPart, kinds: set[str]) -> DumpPart:
    loaded = part.loaded
    return part._replace(
        loaded=Loaded(
            objects=[obj for obj in loaded.objects if kind_of(obj) in kinds],
            unreadable=[one for one in loaded.unreadable if one.kind in kinds],
            unknown_kinds=loaded.unknown_kinds,
            kinds_read=loaded.kinds_read & kinds,
        )
    )


class MergedObjects:
    """Objects by kind and key. The newer resourceVersion counts, in whatever order they come; where
    two differ and nothing shows which is newer, the input is refused: order must not decide it.
    """

    def __init__(self) -> None:
        self.readable: dict[Ref, KubeObject] = {}
        self.unreadable: dict[Ref, Unreadable] = {}
        self._sources: dict[Ref, str] = {}
        self._twice: list[str] = []

    def add(self, loaded: Loaded, source: str) -> None:
        """Take in what a file holds. Raises BadInput."""
        for obj in loaded.objects:
            ref = kind_of(obj), obj.key
            before = self.readable.get(ref)
            if before is None or self._is_newer(obj, before, ref, source):
                self.readable[ref] = obj
                self._sources[ref] = source
                self.unreadable.pop(ref, None)
        for each in loaded.unreadable:
            ref = each.kind, each.key
            self.readable.pop(ref, None)
            self.unreadable[ref] = each

    def warnings(self) -> list[str]:
        """The sentence about objects that are there twice."""
        if not self._twice:
            return []
        more = f", and of {len(self._twice) - 1} more" if len(self._twice) > 1 else ""
        return [f"the newer resourceVersion counts of {self._twice[0]}{more}"]

    def _is_newer(self, obj: KubeObject, before: KubeObject, ref: Ref, source: str) -> bool:
        if obj == before:
            return False
        name = f"{ref[0]} {'/'.join(filter(None, ref[1]))}"
        where = f"in {self._sources[ref]} and in {source}"
        old, new = before.metadata.resource_version, obj.metadata.resource_version
        if isinstance(obj, Node) and isinstance(before, Node) and _alike(obj, before):
            return bool(obj.managers)
        if not (old.isdecimal() and new.isdecimal()) or int(old) == int(new):
            what = f"is {where}, not alike, and no resourceVersion says which is newer"
            raise BadInput(what, on=name, remedy="take one of them out")
        self._twice.append(f"{name}, {where}")
        return int(new) > int(old)


def _alike(one: Node, other: Node) -> bool:
    """True if they differ in managedFields at most, as `kubectl get` prints them or does not."""
    plain, also = (msgspec.structs.replace(n.metadata, managed_fields=NOBODY) for n in (one, other))
    return plain == also and (one.spec, one.status) == (other.spec, other.status)


def without_logs(pieces: Iterator[bytes], source: str) -> Iterator[bytes]:
    """The pieces of a file without the logs in it, none of them empty.

    Raises InputError where a log has no end.
    """
    held, end = b"", b""
    starts_line = True
    for piece in pieces:
        text = held + piece if held else piece
        while True:
            if end:
                at = text.find(end)
                if at < 0:
                    held = text[-len(end) :]
                    break
                text, end, starts_line = b"\n" + text[at + len(end) :], b"", True
            at = _begin_of_log(text, starts_line)
            line = text[at : at + _LONGEST_LINE]
            name, closes, _ = line.removeprefix(_BEGINS).partition(_CLOSES)
            if not line.startswith(_BEGINS) or not closes:
                shown, held = text[:at], text[at:]
                if len(held) > _LONGEST_LINE:  # a line like those, and none of them
                    shown, held = text, b""
                if shown:
                    starts_line = shown.endswith(b"\n")
                    yield shown
                break
            if at:
                yield text[:at]
            end = _ENDS + name + _CLOSES
            text = text[at + len(_BEGINS) :]
    if end:
        whose = end.removeprefix(_ENDS).removesuffix(_CLOSES).decode(errors="replace")
        what = f"is cut off in the logs of container {whose}"
        raise InputError(what, source=source, remedy="write it again")
    if held:
        yield held


def _begin_of_log(text: bytes, starts_line: bool) -> int:
    """Where a log begins, or may begin with what comes next; the length where none does."""
    if starts_line and (text.startswith(_BEGINS) or _BEGINS.startswith(text)):
        return 0
    at = text.find(b"\n" + _BEGINS)
    if at >= 0:
        return at + 1
    last = text.rfind(b"\n") + 1
    if last and _BEGINS.startswith(text[last:]):
        return last
    return len(text)
