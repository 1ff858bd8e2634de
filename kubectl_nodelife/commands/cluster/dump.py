"""`-f`: files, folders and standard input as one dump, with its moment, its profile, its kinds.

Folders and archives are read as other tools leave them (`dump_files`). Of an object that is there
twice the newer counts. The moment of a snapshot is what it says itself (`snapshot save`
notes it, and what ran there), else its newest sign of life, so that ages mean what they meant when
it was taken.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from kubectl_nodelife.commands.cluster.container_logs import without_logs
from kubectl_nodelife.commands.cluster.dump_files import SkippedFiles, dump_files, is_stranger
from kubectl_nodelife.commands.cluster.dump_parts import DumpPart, newest_sign, of_newest_dump
from kubectl_nodelife.commands.cluster.merging import MergedObjects
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.flag_values import SettingsError, parse_assignments
from kubectl_nodelife.engine.profiles import NEWEST, Profile, nearest_profile, parse_profile
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.load import InputError, Loaded, load_pieces
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.object_reader import Seen
from kubectl_nodelife.kube.times import format_micro_time, parse_time
from kubectl_nodelife.kube.unreadable import Unreadable, told
from kubectl_nodelife.kube.wellknown import ANNOTATION_MOMENT, ANNOTATION_RUNNING
from kubectl_nodelife.report.progress import progress_bar

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.settings import (
        DetectedSettings,  # which knows how to ask a cluster
    )

NEWEST_KUBELET = "the newest kubelet"
"""The origin of a profile that the nodes' kubelets tell."""

OWN_CLOCK = "this machine's clock"
"""The origin of a moment that nothing in the input tells."""

_NAMED: Final = 12
"""So many kinds that no decision reads are named; a support bundle has hundreds."""


class Dump(NamedTuple):
    """Objects and what is known about them.

    `kinds_read`: kinds of which the input speaks; `complete`: all. `running`: what the input notes
    of the controllers that ran there. `unreadable`: objects that cannot be read or decided on.
    """

    objects: list[KubeObject]
    moment_ns: int
    moment_origin: str
    profile: Profile
    profile_origin: str
    kinds_read: frozenset[str]
    complete: bool
    warnings: list[str]
    running: DetectedSettings | None = None
    unreadable: tuple[Unreadable, ...] = ()

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
    stand_in = dump.profile.stands_in()
    if stand_in is None:
        return dump
    if dump.profile_origin.startswith(f"{NEWEST_KUBELET}, "):
        stand_in = f"{dump.profile_origin}; {stand_in}"
    return dump._replace(warnings=[*dump.warnings, stand_in])


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
    found, noted = loaded.objects, loaded.annotations
    warnings = [*_passed_over(loaded.unknown_kinds), *twice, *told(loaded.unreadable)]
    moment_ns, moment_origin = _moment(found, now, warnings, noted.get(ANNOTATION_MOMENT, ""))
    running = _running(noted.get(ANNOTATION_RUNNING, ""), warnings)
    chosen, profile_origin = _noted_profile(running, profile) or choose_profile(found, profile)
    return Dump(
        found,
        moment_ns,
        moment_origin,
        chosen,
        profile_origin,
        frozenset(loaded.kinds_read),
        loaded.all_kinds,
        warnings,
        running,
        tuple(loaded.unreadable),
    )


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
    kept, older = of_newest_dump(parts)
    for _, source, loaded in kept:
        objects.add(loaded, source)
        merged.kinds_read |= loaded.kinds_read
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


def choose_profile(objects: Iterable[KubeObject], given: str | None) -> tuple[Profile, str]:
    """The profile and where it comes from: the flag, the newest kubelet, or the newest release."""
    if given:
        try:
            return parse_profile(given), "--profile"
        except ValueError as error:
            raise BadInput(str(error), on="--profile") from None
    versions: list[tuple[Profile, str]] = []
    for obj in objects:
        if isinstance(obj, Node) and obj.status.node_info.kubelet_version:
            version = obj.status.node_info.kubelet_version
            try:
                profile, known = nearest_profile(version)
            except ValueError:
                continue  # some other product's version scheme says nothing
            older = f", {version}, is older than any release known here"
            versions.append((profile, NEWEST_KUBELET + ("" if known else older)))
    if versions:
        return max(versions, key=lambda found: (found[0].minor, -len(found[1])))
    return parse_profile(NEWEST), "the newest release known here"


def _noted_profile(
    running: DetectedSettings | None, given: str | None
) -> tuple[Profile, str] | None:
    """The release that the snapshot notes, unless the user names one."""
    if running is None or given:
        return None
    try:
        return parse_profile(running.version), "the API server's version, noted in the snapshot"
    except ValueError:
        return None


def _running(text: str, warnings: list[str]) -> DetectedSettings | None:
    import msgspec

    if not text:
        return None
    from kubectl_nodelife.daemon.settings import DetectedSettings

    try:
        return msgspec.json.decode(text, type=DetectedSettings)
    except msgspec.MsgspecError as error:
        warnings.append(f"the annotation {ANNOTATION_RUNNING} cannot be decoded ({error})")
        return None


def settings_of(dump: Dump, assignments: Sequence[str]) -> Settings:
    """What the dump notes of the running controllers, with `--set FLAG=VALUE` on top.

    Raises BadInput.
    """
    if dump.running is None:
        return settings_from(dump.profile, assignments)
    from kubectl_nodelife.daemon.settings import RequestedSettings, resolve_settings

    wish = RequestedSettings(dump.profile.name, tuple(assignments))
    return resolve_settings(wish, dump.running, Cache(), "", "").settings


def settings_from(profile: Profile, assignments: Sequence[str]) -> Settings:
    """Settings of the profile with `--set FLAG=VALUE` on top. Raises BadInput."""
    try:
        return make_settings(profile, parse_assignments(assignments), origin="--set")
    except SettingsError as error:
        raise BadInput(str(error)) from None


def _moment(
    objects: Iterable[KubeObject], now: str | None, warnings: list[str], noted: str
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
    sign = newest_sign(objects)
    if sign is not None:
        return sign.time_ns, f"newest sign of life, {sign.told_by}"
    warnings.append("nothing in the input says when it was taken: ages count from now")
    return time.time_ns(), OWN_CLOCK
