"""The limits of an upgrade, and how a node is changed: the policy flags as one frozen value.

A policy is read from a mapping with the names of the flags in lowerCamelCase, as they stand in a
file of `kind: Upgrade`. Durations are ints of nanoseconds inside and Go durations (`5m`) in text.
Numbers of nodes are read as Kubernetes reads an IntOrString: `3` or `10%`.

It stands in the run's document, for all to read, with commands and manifests as digests alone, and
is never obeyed from there: anyone who may write a Lease shall not have anything run on an
operator's machine, or done by his rights. A person who goes on with a run gives the order again.

A maintenance window says when nodes may be claimed. `Mon-Fri 22:00-04:00 Europe/Berlin`: the days
are those on which the window begins, times are wall-clock times of the zone, UTC where none is
named; the end is excluded. Where a change to or from summer time skips or repeats a time, what
counts is the first instant at which the clock reads that time or later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.names import did_you_mean
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.selectors import parse_selector
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_duration, parse_duration
from kubectl_nodelife.kube.workload import IntOrString

LEASE_NAME: Final = "kubectl-nodelife-upgrade"
_PERCENT = re.compile(r"(\d{1,3})%", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
BOOT_ID_CHANGED = "changed"


class Duration(int):
    """A span in ns; a Go duration in text."""

    __slots__ = ()


def parse_int_or_string(value: object) -> IntOrString:
    """Read `3`, `"3"` or `"10%"`. Raises ValueError for anything else and for more than 100%."""
    text = str(value).strip()
    if (match := _PERCENT.fullmatch(text)) and int(match[1]) <= 100:
        return text
    if not isinstance(value, bool) and _NUMBER.fullmatch(text):
        return int(text)
    raise ValueError(f"{text!r} is neither a number such as 3 nor a percentage such as 10%")


class WorkMode(StrEnum):
    """How the node is changed (`--run`, `--job`, `--wait`, `--replace`, `--nothing`)."""

    RUN = "run"
    JOB = "job"
    WAIT = "wait"
    REPLACE = "replace"
    NOTHING = "nothing"


class NodeWork(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The work on a node. `command`: of `run`, and of `replace` where one was given. `manifest`:
    the Job of `job`, as it was read. `rerun_safe`: two at once do no harm, so that it is started
    again where a new leader cannot know whether it ran.
    """

    mode: WorkMode
    command: str = ""
    manifest: dict[str, Any] | None = None
    rerun_safe: bool = False

    @property
    def runs_command(self) -> bool:
        """True if the leader's machine runs a command for each node."""
        return bool(self.command) and self.mode in (WorkMode.RUN, WorkMode.REPLACE)


class UpgradeTarget(msgspec.Struct, frozen=True):
    """Evidence that a node was changed (`--target KEY=VALUE`). `kind` is `nodeInfo`, `label`,
    `annotation` or `condition`; `key` the field of `status.nodeInfo`, the label's or annotation's
    key, or the condition's type.
    """

    kind: str
    key: str
    value: str

    def is_met(self, node: Node, boot_id_before: str) -> bool:
        """True if the node shows it. `boot_id_before`: the bootID recorded at the claim."""
        if self.kind == "nodeInfo":
            shown = node_info(node).get(self.key, "")
            if self.key == "bootID" and self.value == BOOT_ID_CHANGED:
                return bool(shown and boot_id_before) and shown != boot_id_before
            return shown == self.value
        if self.kind == "condition":
            condition = node.status.condition(self.key)
            return condition is not None and condition.status == self.value
        shown_by = node.metadata.labels if self.kind == "label" else node.metadata.annotations
        return (shown_by or {}).get(self.key) == self.value

    def __str__(self) -> str:
        prefix = "" if self.kind == "nodeInfo" else f"{self.kind}:"
        return f"{prefix}{self.key}={self.value}"


NODE_INFO_FIELDS: Final = {
    "kubeletVersion": "kubelet_version",
    "osImage": "os_image",
    "kernelVersion": "kernel_version",
    "containerRuntimeVersion": "container_runtime_version",
    "bootID": "boot_id",
}
"""Targets of `status.nodeInfo`, and the fields that hold them."""


def parse_target(text: str) -> UpgradeTarget:
    """Read `kubeletVersion=v1.36.3`, `bootID=changed`, `label:K=V` and so on. Raises ValueError."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("label", "annotation", "condition"):
        kind, rest = "nodeInfo", text
    key, equals, value = rest.partition("=")
    if kind == "nodeInfo" and key not in NODE_INFO_FIELDS:
        allowed = ", ".join(sorted(NODE_INFO_FIELDS))
        raise ValueError(
            f"target {text!r}: {key!r} is none of {allowed}, label:KEY, annotation:KEY and"
            " condition:TYPE"
        )
    if not key or not equals:
        raise ValueError(f"target {text!r} is not KEY=VALUE")
    return UpgradeTarget(kind, key, value)


def node_info(node: Node) -> dict[str, str]:
    """`status.nodeInfo` in the API's names; fields that are empty are left out."""
    return encode(node.status.node_info)


def _name(field: str) -> str:
    """The name of a field in a file: lowerCamelCase, durations without their unit."""
    first, *rest = field.removesuffix("_ns").split("_")
    return first + "".join(word.capitalize() for word in rest)


PAUSE_IMAGE: Final = "registry.k8s.io/pause:3.10"
"""The canary's, where none is named: Kubernetes' own. A node's word on what images it has counts
for nothing, since a kubelet may write anything into its Node."""


class UpgradePolicy(msgspec.Struct, frozen=True, kw_only=True, rename=_name):
    """The flags of `upgrade plan` and `upgrade start`, with their defaults.

    `canary`: how many nodes the first step takes, or `canary_nodes`: which. `unhealthy`: `skip` or
    `include` nodes that were NotReady before. `window`: none: always. `drain`: kubectl drain's own
    flags by their names. `require`: TYPE=STATUS conditions. `canary_template`: a user's own pod.
    """

    work: NodeWork = NodeWork(WorkMode.NOTHING)
    selector: str = ""
    nodes: tuple[str, ...] = ()
    exclude: str = ""
    include_control_plane: bool = False
    target: tuple[UpgradeTarget, ...] = ()

    max_unavailable: IntOrString = "10%"
    min_available: IntOrString | None = None
    cluster_min_available: IntOrString | None = None
    max_per_zone: IntOrString | None = None
    max_parallel: int | None = None
    low_water: float = 10.0
    zones: int = 1
    pools: tuple[str, ...] = ()
    pool_label: str = ""
    allow_dark_zone: bool = False

    canary: int = 1
    canary_nodes: tuple[str, ...] = ()
    soak_ns: Duration = Duration(5 * MINUTE_NS)
    node_soak_ns: Duration = Duration(MINUTE_NS)
    max_failures: int = 0
    drain_timeout_ns: Duration = Duration(15 * MINUTE_NS)
    work_timeout_ns: Duration = Duration(30 * MINUTE_NS)
    return_timeout_ns: Duration = Duration(15 * MINUTE_NS)
    prove_timeout_ns: Duration = Duration(5 * MINUTE_NS)
    ready_for_ns: Duration = Duration(60 * SECOND_NS)
    retries: int = 1
    expect_work_ns: Duration | None = None

    window: tuple[str, ...] = ()
    gate: str = ""
    unhealthy: str = "skip"
    include_cordoned: bool = False
    accept_unknown: bool = False
    shield: bool = True
    mark_outdated: bool = True
    require: tuple[str, ...] = ()
    allow_less: bool = False

    namespace: str = "nodelife"
    lease_namespace: str = "kube-system"
    canary_image: str = PAUSE_IMAGE
    canary_template: dict[str, Any] | None = None
    drain: dict[str, Any] = {}

    @property
    def lease_key(self) -> tuple[str, str]:
        """(namespace, name) of the run's Lease."""
        return (self.lease_namespace, LEASE_NAME)

    @property
    def canary_width(self) -> int:
        """How many nodes the first step takes."""
        return len(self.canary_nodes) or self.canary

    @property
    def tries(self) -> int:
        """How often the work is tried in all."""
        return 1 + self.retries

    def is_target_met(self, node: Node, boot_id_before: str) -> bool:
        """True if the node shows every target; False where there is none."""
        return bool(self.target) and all(t.is_met(node, boot_id_before) for t in self.target)


def policy_from(mapping: Mapping[str, Any]) -> UpgradePolicy:
    """The policy of a mapping in lowerCamelCase (`{"maxUnavailable": "10%", "soak": "5m"}`). Raises
    BadInput for an unknown name, a value of another type, and a time of 0.
    """
    field_names = {field.encode_name for field in msgspec.structs.fields(UpgradePolicy)}
    if unknown := sorted(set(mapping) - field_names):
        raise BadInput(
            f"{unknown[0]!r} is not a field of an upgrade's policy",
            remedy=did_you_mean(unknown[0], sorted(field_names)),
        )
    try:
        values = {name: _parsed(name, value) for name, value in mapping.items()}
        policy = msgspec.convert(values, UpgradePolicy, dec_hook=_read, from_attributes=True)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadInput(f"the upgrade's policy cannot be read: {error}") from None
    _check(policy)
    return policy


def policy_mapping(policy: UpgradePolicy) -> dict[str, Any]:
    """The inverse of `policy_from`: every field that is set, in JSON's types."""
    mapping: dict[str, Any] = msgspec.to_builtins(policy, enc_hook=int)
    mapping["target"] = [str(target) for target in policy.target]
    for field in msgspec.structs.fields(UpgradePolicy):
        if field.name.endswith("_ns") and (value := getattr(policy, field.name)) is not None:
            mapping[field.encode_name] = format_duration(value)
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(mapping))
    return {name: value for name, value in plain.items() if value is not None}


_LEAST = {"canary": 1, "max_parallel": 1, "zones": 0, "retries": 0, "max_failures": 0}


def _check(policy: UpgradePolicy) -> None:
    for field in msgspec.structs.fields(UpgradePolicy):
        value = getattr(policy, field.name)
        if isinstance(value, Duration) and value <= 0:
            raise BadInput(f"{field.encode_name} is {format_duration(value)}; it must be above 0")
    for name, least in _LEAST.items():
        value = getattr(policy, name)
        if value is not None and value < least:
            raise BadInput(f"{_name(name)} is {value}; it must be at least {least}")
    if not 0 <= policy.low_water <= 100:
        raise BadInput(f"lowWater is {policy.low_water:g}; it is a percentage")
    if policy.unhealthy not in ("skip", "include"):
        raise BadInput(f"unhealthy is {policy.unhealthy!r}; it is skip or include")
    if policy.work.mode is WorkMode.WAIT and not policy.target:
        raise BadInput("--wait needs a --target: nothing else says when the work is done")
    for text in policy.require:
        if text.count("=") != 1:
            raise BadInput(f"require {text!r} is not TYPE=STATUS")
    excluded = policy.exclude if is_selector(policy.exclude) else ""
    for flag, parse, texts in (
        ("--window", parse_window, policy.window),
        ("--selector", parse_selector, (policy.selector,)),
        ("--exclude", parse_selector, (excluded,)),
    ):
        try:
            for text in texts:
                parse(text)
        except ValueError as error:
            raise BadInput(str(error), on=flag) from None


def is_selector(exclude: str) -> bool:
    """True if `--exclude` is a label selector, and no names with commas between them."""
    return any(character in exclude for character in "=!( ")


def _parsed(name: str, value: Any) -> Any:
    """Numbers of nodes and targets are text in a file and values inside."""
    if name in _AMOUNTS and value is not None:
        return parse_int_or_string(value)
    if name == "target":
        if not isinstance(value, (list, tuple)) or not all(isinstance(t, str) for t in value):
            raise ValueError(f"target is {value!r}; it must be a list of KEY=VALUE")
        return tuple(parse_target(text) for text in value)
    return value


def _read(type_: type, value: Any) -> Any:
    if type_ is Duration:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a duration such as 90s or 5m")
        return Duration(parse_duration(value))
    raise NotImplementedError(f"no decoding for {type_!r}")


_AMOUNTS = ("maxUnavailable", "minAvailable", "clusterMinAvailable", "maxPerZone")
_HIDDEN: Final = ("gate", "canaryTemplate")
"""Fields with commands and manifests besides the work."""
_WORK: Final = "work"
_SHOWN_OF_WORK: Final = ("mode", "rerunSafe")


def shown_policy(policy: UpgradePolicy) -> dict[str, Any]:
    """The policy in the names of a file of kind Upgrade, with digests of what is not to be read."""
    shown = policy_mapping(policy)
    work = shown[_WORK]
    hidden = {name: value for name, value in work.items() if name not in _SHOWN_OF_WORK and value}
    shown[_WORK] = {name: work[name] for name in _SHOWN_OF_WORK if name in work}
    if hidden:
        shown[_WORK]["digest"] = _digest(hidden)
    for field in _HIDDEN:
        if shown.get(field):
            shown[field] = _digest(shown[field])
    return shown


def policy_of_spec(spec: Mapping[str, Any]) -> UpgradePolicy:
    """The policy that a document shows, to be told and never to be obeyed. Raises BadInput."""
    mapping = {name: value for name, value in spec.items() if name not in _HIDDEN}
    work = mapping.get(_WORK)
    if isinstance(work, Mapping):
        mapping[_WORK] = {name: work[name] for name in _SHOWN_OF_WORK if name in work}
    return policy_from(mapping)


def policy_digest(policy: UpgradePolicy) -> str:
    """A digest of work and policy, of what is shown of them."""
    return _digest(shown_policy(policy))


def _digest(value: Any) -> str:
    text = msgspec.json.encode(value, order="deterministic")
    return f"sha256:{hashlib.sha256(text).hexdigest()[:16]}"


DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MINUTES: Final = 24 * 60
LOOK_AHEAD_DAYS: Final = 15
DAY_NS: Final = DAY_MINUTES * MINUTE_NS

_WINDOW = re.compile(
    r"(?:(?P<days>[A-Za-z][A-Za-z,-]*) )?(?P<from>\d\d?:\d\d)-(?P<to>\d\d?:\d\d)(?: (?P<zone>\S+))?"
)
_EXAMPLE: Final = 'such as "Mon-Fri 22:00-04:00 Europe/Berlin"'

Span = tuple[int, int]
"""Begin and end, nanoseconds since the epoch; the end is excluded."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that comes again each week. `days`: 0 is Monday. Minutes count from midnight, more
    than a day's on the day after.
    """

    days: frozenset[int]
    begin_minutes: int
    end_minutes: int
    zone: ZoneInfo

    def spans(self, after_ns: int) -> Iterator[Span]:
        """The window's spans that end after the instant, in order, for two weeks."""
        today = datetime.fromtimestamp(after_ns // SECOND_NS, self.zone).date()
        for ahead in range(-2, LOOK_AHEAD_DAYS):
            day = today + timedelta(days=ahead)
            if day.weekday() in self.days:
                begin_ns = _instant_ns(day, self.begin_minutes, self.zone)
                end_ns = _instant_ns(day, self.end_minutes, self.zone)
                if end_ns > max(after_ns, begin_ns):
                    yield begin_ns, end_ns


def parse_window(text: str) -> Window:
    """The window that the text describes. Raises ValueError, with what is wrong."""
    match = _WINDOW.fullmatch(" ".join(text.split()))
    if match is None:
        raise ValueError(f"{text!r} is no window {_EXAMPLE}")
    begin, end = _minutes(match["from"]), _minutes(match["to"])
    if begin == DAY_MINUTES:
        raise ValueError(f"{text!r}: a window begins before 24:00")
    zone = match["zone"] or "UTC"
    try:
        info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{text!r}: {zone} is no time zone of this machine's database") from None
    end += 0 if end > begin else DAY_MINUTES
    return Window(_days(match["days"] or "Mon-Sun"), begin, end, info)


def closes_ns(windows: Sequence[str], now_ns: int) -> int | None:
    """When the windows that are open now, and what follows at once, close; None: none is."""
    spans = _open_spans(tuple(windows), now_ns // DAY_NS)
    return next((end for begin, end in spans if begin <= now_ns < end), None)


def opens_ns(windows: Sequence[str], now_ns: int) -> int | None:
    """When the next window begins, None where none does within two weeks."""
    spans = _open_spans(tuple(windows), now_ns // DAY_NS)
    return next((begin for begin, _ in spans if begin > now_ns), None)


def fits_ns(windows: Sequence[str], now_ns: int, high_ns: int) -> int | None:
    """When what takes up to `high_ns` may begin at the earliest, so that it ends while a window is
    open: now without windows; None where that is not within two weeks.
    """
    if not windows:
        return now_ns
    spans = _open_spans(tuple(windows), now_ns // DAY_NS)
    begins = (max(begin, now_ns) for begin, end in spans if max(begin, now_ns) + high_ns <= end)
    return next(begins, None)


def longest_ns(windows: Sequence[str], now_ns: int) -> int:
    """How long the windows are open at a stretch, at most, in the next weeks; 0 without windows."""
    spans = _open_spans(tuple(windows), now_ns // DAY_NS)
    return max((end - begin for begin, end in spans if end > now_ns), default=0)


@lru_cache(maxsize=64)
def _open_spans(windows: tuple[str, ...], day: int) -> tuple[Span, ...]:
    """When any of the windows is open, for two weeks from that day since the epoch on, in order.
    Windows that meet are one span."""
    after_ns, joined = day * DAY_NS, list[Span]()
    for begin_ns, end_ns in sorted(
        s for text in windows for s in parse_window(text).spans(after_ns)
    ):
        if joined and begin_ns <= joined[-1][1]:
            begin_ns, last_ns = joined.pop()
            end_ns = max(end_ns, last_ns)
        joined.append((begin_ns, end_ns))
    return tuple(joined)


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > DAY_MINUTES:
        raise ValueError(f"{text} is no time of day")
    return total


def _days(text: str) -> frozenset[int]:
    """The weekdays of `Mon-Fri`, `Sat,Sun`, `Fri-Mon`. Raises ValueError."""
    days: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = _day(first), _day(last if dash else first)
        days |= {(begin + n) % 7 for n in range((end - begin) % 7 + 1)}
    return frozenset(days)


def _day(text: str) -> int:
    name = text.capitalize()
    if name not in DAYS:
        raise ValueError(f"{text!r} is no day; the days are {', '.join(DAYS)}")
    return DAYS.index(name)


def _instant_ns(day: date, minutes: int, zone: ZoneInfo) -> int:
    """The first instant at which the zone's clock reads that day and time, or later."""
    naive = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)
    at = int(naive.replace(tzinfo=zone).timestamp())
    then = datetime.fromtimestamp(at, zone)
    if then.replace(tzinfo=None) != naive:  # skipped: the minute in which the zone's offset changes
        early = int(naive.replace(tzinfo=zone, fold=1).timestamp())
        moments = (datetime.fromtimestamp(s, zone) for s in range(early, at, 60))
        changed = (m for m in moments if m.utcoffset() == then.utcoffset())
        at = int(next(changed, then).timestamp())
    return at * SECOND_NS
