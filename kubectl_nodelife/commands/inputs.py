"""`-f`: files, folders and standard input as one snapshot, with its moment, its profile, its kinds.

Follows kubectl's `-f` (a folder: its .json, .yaml and .yml files, not deeper). An object given
twice counts as it was given last. The moment of a snapshot is its newest sign of life, so that ages
mean what they meant when it was taken.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kubectl_nodelife.engine.cache import NODE_LEASE_NAMESPACE, Cache
from kubectl_nodelife.engine.events import Put
from kubectl_nodelife.engine.profiles import NEWEST, Profile, parse_profile
from kubectl_nodelife.engine.settings import Settings, SettingsError, make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import kind_of
from kubectl_nodelife.kube.load import InputError, load_objects
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.times import format_micro_time, parse_time

OWN_CLOCK = "this machine's clock"
"""The origin of a moment that nothing in the input tells."""

_SUFFIXES = (".json", ".yaml", ".yml")


class Snapshot(NamedTuple):
    """Objects and what is known about them.

    `kinds_read`: kinds of which the input speaks; `complete`: all.
    """

    objects: list[KubeObject]
    moment_ns: int
    moment_origin: str
    profile: Profile
    profile_origin: str
    kinds_read: frozenset[str]
    complete: bool
    warnings: list[str]

    def moment(self) -> dict[str, str]:
        """The moment and its origin, for reports."""
        return {"time": format_micro_time(self.moment_ns), "origin": self.moment_origin}

    def has_read(self, kind: str) -> bool:
        """Whether that kind was read, if only to find none."""
        return self.complete or kind in self.kinds_read

    def cache(self) -> Cache:
        """A cache filled with the objects."""
        cache = Cache()
        for obj in self.objects:
            cache.apply(Put(kind_of(obj), obj), self.moment_ns)
        return cache


def read_snapshot(
    names: Sequence[str],
    *,
    now: str | None = None,
    profile: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Snapshot:
    """Read `-f` arguments.

    Raises BadInput, with the file, the path in the document and the remedy.
    """
    objects: dict[tuple[str, str, str], KubeObject] = {}
    kinds: set[str] = set()
    unknown: Counter[str] = Counter()
    complete = False
    collecting = gc.isenabled()
    gc.disable()  # a first load only makes objects that stay
    try:
        for source, content in _contents(names):
            try:
                loaded = load_objects(content, source, progress=progress)
            except InputError as error:
                raise BadInput(str(error)) from None
            for obj in loaded.objects:
                objects[(kind_of(obj), *obj.key)] = obj
            kinds |= loaded.kinds_read
            unknown.update(loaded.unknown_kinds)
            complete = complete or loaded.all_kinds
    finally:
        if collecting:
            gc.enable()
            gc.freeze()
    warnings = []
    if unknown:
        counted = ", ".join(f"{kind} ({count})" for kind, count in sorted(unknown.items()))
        warnings.append(f"kinds that no decision here reads were passed over: {counted}")
    found = list(objects.values())
    moment_ns, moment_origin = _moment(found, now, warnings)
    chosen, profile_origin = choose_profile(found, profile)
    return Snapshot(
        found,
        moment_ns,
        moment_origin,
        chosen,
        profile_origin,
        frozenset(kinds),
        complete,
        warnings,
    )


def choose_profile(objects: Iterable[KubeObject], given: str | None) -> tuple[Profile, str]:
    """The profile and where it comes from: the flag, the newest kubelet, or the newest release."""
    if given:
        try:
            return parse_profile(given), "--profile"
        except ValueError as error:
            raise BadInput(str(error), on="--profile") from None
    versions = []
    for obj in objects:
        if isinstance(obj, Node) and obj.status.node_info.kubelet_version:
            try:
                versions.append(parse_profile(obj.status.node_info.kubelet_version))
            except ValueError:
                continue  # some other product's version scheme says nothing
    if versions:
        newest = max(versions, key=lambda p: p.minor)
        return newest, "the newest kubelet"
    return parse_profile(NEWEST), "the newest release known here"


def settings_from(profile: Profile, assignments: Sequence[str]) -> Settings:
    """Settings of the profile with `--set FLAG=VALUE` on top. Raises BadInput."""
    try:
        return make_settings(profile, parse_assignments(assignments), origin="--set")
    except SettingsError as error:
        raise BadInput(str(error)) from None


def parse_assignments(assignments: Iterable[str]) -> dict[str, object]:
    """`--set FLAG=VALUE` arguments as flags with their values. Raises BadInput."""
    flags: dict[str, object] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise BadInput(
                f"{assignment!r} is not FLAG=VALUE",
                on="--set",
                remedy="write for example --set node-monitor-grace-period=40s",
            )
        flags[name.removeprefix("--")] = value
    return flags


def _contents(names: Sequence[str]) -> Iterable[tuple[str, bytes]]:
    for name in names:
        if name == "-":
            yield "standard input", sys.stdin.buffer.read()
            continue
        path = Path(name)
        files = _files_in(path) if path.is_dir() else [path]
        for file in files:
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                raise BadInput(
                    f"cannot be read: {error.strerror}", on=str(file), remedy="check the path"
                ) from None


def _files_in(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.is_file())
    if not files:
        raise BadInput(
            "the folder holds no .json, .yaml or .yml file",
            on=str(folder),
            remedy="name a folder with what 'kubectl get -o json' printed",
        )
    return files


def _moment(objects: Iterable[KubeObject], now: str | None, warnings: list[str]) -> tuple[int, str]:
    if now is not None:
        try:
            return int(parse_time(now)), "--now"
        except ValueError as error:
            raise BadInput(str(error), on="--now") from None
    newest: tuple[int, str] | None = None
    for obj in objects:
        sign = _sign_of_life(obj)
        if sign is not None and (newest is None or sign[0] > newest[0]):
            newest = sign
    if newest is not None:
        return newest
    warnings.append("nothing in the input tells when it was taken: ages count from now")
    return time.time_ns(), OWN_CLOCK


def _sign_of_life(obj: KubeObject) -> tuple[int, str] | None:
    if isinstance(obj, Lease) and obj.namespace == NODE_LEASE_NAMESPACE:
        if obj.spec.renew_time is not None:
            return int(obj.spec.renew_time), f"newest sign of life, the lease of node {obj.name}"
    elif isinstance(obj, Node):
        ready = obj.ready()
        if ready is not None and ready.last_heartbeat_time is not None:
            at = int(ready.last_heartbeat_time)
            return at, f"newest sign of life, the status of node {obj.name}"
    return None
