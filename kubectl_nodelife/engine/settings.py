"""How the controllers of a release are set: which release is followed, its behaviour, its flags.

Since and until which release each behaviour holds is one table; code asks
`profile.has("decide_on_current")`, never for a version number. A profile newer than what is
described behaves as the newest that is, a beta; older than v1.16 as v1.16 (the DaemonSet controller
alone also knows v1.11).

Another table holds every flag of kube-controller-manager that touches these controllers, with its
defaults per release, and a third the feature gates; `Settings` is what controllers read, in ns and
numbers, with where each is from. Names and value syntax are the flags' own, so that a line of a
real command works here. The value of a flag is a duration (ns), a rate in nodes a second, a
fraction, a whole number, a bool, or the text of --feature-gates, each read as the commands of
Kubernetes read it. `parse_assignments` reads the arguments of `--set`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final, NamedTuple, get_origin, get_type_hints

import msgspec

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import format_duration, parse_duration

NEWEST: Final = "v1.37"
BETA: Final = "v1.38"
"""A release that is not out yet, described as its beta is (v1.38.0-beta.0)."""
OLDEST: Final = "v1.11"
FIRST_DESCRIBED: Final = 16

_RELEASE: Final = r"v?1\.(\d{1,2})(?:[.+-].*)?"

Span = tuple[int, int | None]
"""First minor release with a behaviour, first one without it again; None: no end."""

SWITCHES: Final[dict[str, Span]] = {
    "decide_on_current": (34, None),  # taint decision on the condition after this pass (#120816)
    "requeue_untainted": (18, None),  # a node waiting without its taint is queued anew (#89059)
    "pod_retry": (17, None),  # nodesToRetry and the pod queue (#84445)
    "monitor_workers": (27, None),  # a pass looks at eight nodes at once (#114296)
    "pod_not_ready_event": (19, None),  # Warning NodeNotReady on each marked pod (#87743)
    "classic_eviction": (0, 27),  # eviction without taints can be configured
    "evicted_node_map": (17, 27),
    "lease_gate": (0, 17),  # NodeLease can be switched off
    "noschedule_gate": (0, 17),  # TaintNodesByCondition can be switched off
    "beta_zone_labels_only": (0, 17),
    "beta_labels_are_truth": (0, 19),
    "exclusion_gates": (0, 21),  # NodeDisruptionExclusion, LegacyNodeRoleBehavior
    "infinite_cancels": (17, None),  # an infinite toleration cancels a pending timer (#93722)
    "sticky_timer_keys": (0, 33),  # a timed worker's key stays after success (#129577)
    "disruption_target": (26, None),
    "gc_quarantine": (17, None),
    "gc_sets_phase": (26, None),  # with PodDisruptionConditions only, at first
    "gc_always_sets_phase": (29, None),  # JobPodReplacementPolicy is on
    "gc_out_of_service": (26, None),  # by its gate's default
    "gc_evicted_first": (27, None),
    "separate_taint_eviction": (29, None),  # a controller of its own, with a client of its own
    "drains_daemon_sets_by_kind": (0, 34),  # kubectl drain looks at an owner's kind alone (#128779)
    "lease_circuit_breaker": (37, None),  # the Lease is read before a node is lost (#138698)
    "health_follows_node": (38, None),  # a deleted node is forgotten
    "refusals_name_budget": (37, None),  # a 403 of an eviction has the cause DisruptionBudget
    "syncs_every_budget": (38, None),  # a pod's change syncs each budget that it concerns
    "pops_backoff_queue": (33, None),  # an idle scheduler tries a pod before its back-off is over
    "empty_selector_spreads": (38, None),  # labelSelector: {} in a spread constraint counts pods
    "dry_run_ends": (37, None),  # kubectl drain --disable-eviction waits for nobody in a dry run
    "waiting_for_detach": (37, None),  # no longer "Multi-Attach error" in FailedAttachVolume
    "eviction_tells_version": (38, None),  # the Status of an eviction has the pod's version
    "detach_when_node_is_gone": (38, None),  # nothing is mounted on a deleted node (#136029)
}


class Profile(msgspec.Struct, frozen=True):
    """A release, as `v1.N`."""

    minor: int

    @property
    def name(self) -> str:
        """`v1.N`"""
        return f"v1.{self.minor}"

    def stands_in(self) -> str | None:
        """The sentence that says whose behaviour is followed instead of this release's, if any."""
        if self.minor < FIRST_DESCRIBED:
            what = f"v1.{FIRST_DESCRIBED}, the oldest known, is followed (DaemonSets: v1.11)"
        elif self.minor > parse_profile(BETA).minor:
            what = f"{BETA}, a beta and the newest known, is followed"
        elif self.is_beta:
            what = "its beta is followed, which may change before the release"
        else:
            return None
        return f"profile {self.name}: the behaviour of {what}"

    @property
    def is_beta(self) -> bool:
        """True if the release is not out yet, as far as is known here."""
        return self.minor == parse_profile(BETA).minor

    def has(self, switch: str) -> bool:
        """True if the release has that behaviour. Raises KeyError for an unknown switch."""
        return holds(SWITCHES[switch], max(self.minor, FIRST_DESCRIBED))


def holds(span: Span, minor: int) -> bool:
    """True if the behaviour is that of the release 1.`minor`. For every table of releases."""
    since, until = span
    return since <= minor and (until is None or minor < until)


def spans_of(rules: type) -> dict[str, Span]:
    """The spans that the fields of `rules` are annotated with."""
    hints = get_type_hints(rules, include_extras=True)
    spans = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name: hint.__metadata__[0] for name, hint in spans.items()}


def parse_profile(text: str) -> Profile:
    """`v1.36`, `1.36`, `v1.36.3+k3s1` or `current` as a Profile.

    Raises ValueError for anything else, and for a release older than v1.11.
    """
    if text in ("current", "newest"):
        return parse_profile(NEWEST)
    match = re.fullmatch(_RELEASE, text.strip())
    if match is None or int(match[1]) < int(OLDEST.removeprefix("v1.")):
        raise ValueError(
            f"unknown profile {text!r}: name a Kubernetes release from {OLDEST} to {NEWEST} "
            f"({BETA}: beta)"
        )
    return Profile(int(match[1]))


class FollowedRelease(NamedTuple):
    """The release whose behaviour is followed, where that is from, and what is to be said of it."""

    profile: Profile
    origin: str
    warnings: list[str]


def followed_release(
    named: Iterable[tuple[str, str]], server: tuple[str, str], kubelets: Iterable[str]
) -> FollowedRelease:
    """The one rule, for a live cluster and for one in a file: what a user names, else the API
    server's version, else the newest kubelet's, else the newest release that is described.

    `named`, `server`: (version, whose word it is), "" for none. A release older than all that are
    known here is followed as the oldest. Raises BadInput for what a user names and nobody knows.
    """
    for text, origin in named:
        if text:
            try:
                return _followed(parse_profile(text), origin)
            except ValueError as error:
                raise BadInput(str(error), on=origin) from None
    text, origin = server
    if (nearest := _nearest(text, origin)) is not None:
        return nearest
    by_kubelet = [_nearest(version, "the newest kubelet") for version in set(kubelets)]
    newest = max(filter(None, by_kubelet), key=_age, default=None)
    return newest or _followed(parse_profile(NEWEST), "the newest release known here")


def _age(release: FollowedRelease) -> tuple[int, int]:
    """The later, the newer: of two that the oldest stands in for, the one that is known."""
    return release.profile.minor, -len(release.origin)


def _nearest(text: str, origin: str) -> FollowedRelease | None:
    """None for what is no release of Kubernetes: another product's versions say nothing."""
    match = re.fullmatch(_RELEASE, text.strip())
    if match is None:
        return None
    if int(match[1]) >= int(OLDEST.removeprefix("v1.")):
        return _followed(parse_profile(text), origin)
    older = f"{origin}, {text.strip()}, is older than any release known here"
    return _followed(parse_profile(OLDEST), older, f"{older}; ")


def _followed(profile: Profile, origin: str, before: str = "") -> FollowedRelease:
    stand_in = profile.stands_in()
    return FollowedRelease(profile, origin, [] if stand_in is None else [before + stand_in])


_NUMBER = re.compile(r"[+-]?(\d{1,400}\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)

_COUNT = re.compile(r"[+-]?\d{1,10}", re.ASCII)

_FLOAT32_MOST = 3.4028234663852886e38

_INT32_LIMIT = 1 << 31


class SettingsError(ValueError):
    """A flag or gate that is unknown, not in the profile, or malformed.

    The text says which, and what to do.
    """


def parse_value(name: str, kind: str, text: str) -> float | str:
    """The value of a flag of that kind. Raises SettingsError."""
    try:
        return _PARSERS[kind](text)
    except ValueError as error:
        raise SettingsError(f"flag {name}: malformed value {text!r}: {error}") from None


def check_flag(name: str, text: str) -> None:
    """Raises SettingsError for a flag that no release has, and for a malformed value."""
    if name not in FLAGS:
        _check_flag(name, parse_profile(NEWEST))
    parse_value(name, FLAGS[name].type, text)


def normal_value(kind: str, text: str) -> str:
    """The value as the flag itself would print it, so that equal settings look equal."""
    if kind == "duration":
        return format_duration(parse_duration(text))
    if kind == "bool":
        return "true" if parse_bool(text) else "false"
    return text


def _duration(text: str) -> int:
    value = parse_duration(text)
    if value < 0:
        raise ValueError("a duration must not be negative")
    return value


def _rate(text: str) -> float:
    value = _number(text)
    if value is None or not 0 <= value <= _FLOAT32_MOST:
        raise ValueError("a rate is a number of nodes a second, 0 or more")
    return value


def _qps(text: str) -> float:
    """A negative one means no limit, as in client-go."""
    value = _number(text.removeprefix("-"))
    if value is None or value > _FLOAT32_MOST:
        raise ValueError("give requests a second, or a negative number for no limit")
    return -value if text.startswith("-") else value


def _fraction(text: str) -> float:
    value = _number(text)
    if value is None or not 0 <= value <= 1:
        raise ValueError("give a fraction from 0 to 1")
    return value


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _count(text: str) -> int:
    if _COUNT.fullmatch(text) is None or not -_INT32_LIMIT <= int(text) < _INT32_LIMIT:
        raise ValueError("give a whole number of at most 32 bits")
    return int(text)


def parse_bool(text: str) -> bool:
    """As Go's strconv.ParseBool. Raises ValueError."""
    lowered = text.lower()
    if lowered in ("true", "t", "1"):
        return True
    if lowered in ("false", "f", "0"):
        return False
    raise ValueError("give true or false")


_CLIENT_QPS: Final = 5.0
_CLIENT_BURST: Final = 10
_PARSERS: Final[dict[str, Callable[[str], float | str]]] = {
    "duration": _duration,
    "rate": _rate,
    "qps": _qps,
    "fraction": _fraction,
    "count": _count,
    "bool": parse_bool,
    "gates": str,
}


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """The flags with their values, a leading `--` left out. Raises BadInput."""
    flags: dict[str, str] = {}
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


_ALWAYS = 0
_NEVER = 10_000


class Flag(msgspec.Struct, frozen=True):
    """One flag. `defaults`: (first minor release, default), rising; `until`: first without it."""

    name: str
    type: str
    defaults: tuple[tuple[int, str], ...]
    until: int = _NEVER
    origin: str = "kube-controller-manager"

    def default(self, minor: int) -> str:
        """The default in that release."""
        return [value for since, value in self.defaults if since <= minor][-1]


class Gate(msgspec.Struct, frozen=True):
    """A feature gate: `stages` are (first minor release, on by default), rising.

    `locked`: the release from which it cannot be switched; `until`: the first that does not know
    it; `oldest`: the oldest release that the gate's controller can follow.
    """

    name: str
    stages: tuple[tuple[int, bool], ...]
    locked: int = _NEVER
    until: int = _NEVER
    oldest: int = FIRST_DESCRIBED

    def default(self, minor: int) -> bool | None:
        """On or off in that release; None where the release does not know it."""
        minor = max(minor, self.oldest)
        if minor >= self.until or minor < self.stages[0][0]:
            return None
        return [on for since, on in self.stages if since <= minor][-1]


FLAGS: Final = {
    flag.name: flag
    for flag in (
        Flag("node-monitor-period", "duration", ((_ALWAYS, "5s"),)),
        Flag("node-monitor-grace-period", "duration", ((_ALWAYS, "40s"), (32, "50s"))),
        Flag("node-startup-grace-period", "duration", ((_ALWAYS, "1m0s"),)),
        Flag("node-eviction-rate", "rate", ((_ALWAYS, "0.1"),)),
        Flag("secondary-node-eviction-rate", "rate", ((_ALWAYS, "0.01"),)),
        Flag("large-cluster-size-threshold", "count", ((_ALWAYS, "50"),)),
        Flag("unhealthy-zone-threshold", "fraction", ((_ALWAYS, "0.55"),)),
        Flag("pod-eviction-timeout", "duration", ((_ALWAYS, "5m0s"),), until=27),
        Flag("enable-taint-manager", "bool", ((_ALWAYS, "true"),), until=27),
        Flag("terminated-pod-gc-threshold", "count", ((_ALWAYS, "12500"),)),
        Flag("concurrent-daemonset-syncs", "count", ((_ALWAYS, "2"),)),
        Flag("kube-api-qps", "qps", ((_ALWAYS, "20"),)),
        Flag("kube-api-burst", "count", ((_ALWAYS, "30"),)),
        Flag(
            "default-not-ready-toleration-seconds",
            "count",
            ((_ALWAYS, "300"),),
            origin="kube-apiserver",
        ),
        Flag(
            "default-unreachable-toleration-seconds",
            "count",
            ((_ALWAYS, "300"),),
            origin="kube-apiserver",
        ),
        Flag("feature-gates", "gates", ((_ALWAYS, ""),)),
    )
}

GATES: Final = {
    gate.name: gate
    for gate in (
        Gate("TaintBasedEvictions", ((6, False), (13, True)), locked=18, until=27),
        Gate("TaintNodesByCondition", ((8, False), (12, True)), locked=17, until=27),
        Gate("NodeLease", ((12, False), (14, True)), locked=17, until=27),
        Gate("NodeDisruptionExclusion", ((16, False), (19, True)), locked=21, until=27),
        Gate("LegacyNodeRoleBehavior", ((16, True), (21, False)), locked=21, until=22),
        Gate("PodDisruptionConditions", ((25, False), (26, True)), locked=31),
        Gate("NodeOutOfServiceVolumeDetach", ((24, False), (26, True)), locked=28),
        Gate("SeparateTaintEvictionController", ((29, True),), locked=34, until=38),
        Gate("TaintTolerationComparisonOperators", ((35, False),)),
        Gate("ScheduleDaemonSetPods", ((11, False), (12, True)), locked=17, until=19, oldest=11),
        Gate("ExperimentalCriticalPodAnnotation", ((5, False),), until=16, oldest=11),
        Gate("DaemonSetUpdateSurge", ((21, False), (22, True)), locked=25, until=27),
    )
}


class Settings(msgspec.Struct, frozen=True):
    """Effective settings. Durations in ns, rates in nodes a second."""

    profile: Profile
    flags: dict[str, str]
    origins: dict[str, str]
    gates: dict[str, bool]
    node_monitor_period_ns: int
    node_monitor_grace_period_ns: int
    node_startup_grace_period_ns: int
    node_eviction_rate: float
    secondary_node_eviction_rate: float
    large_cluster_size_threshold: int
    unhealthy_zone_threshold: float
    pod_eviction_timeout_ns: int
    taint_mode: bool
    terminated_pod_gc_threshold: int

    @property
    def taint_manager(self) -> bool:
        """True if NoExecute taints evict pods: always, since enable-taint-manager was removed."""
        return self.flags.get("enable-taint-manager", "true") == "true"

    @property
    def kube_api_qps(self) -> float:
        """Requests a second of each controller's client; below 0: no limit. 0 is client-go's 5."""
        return _qps(self.flags["kube-api-qps"]) or _CLIENT_QPS

    @property
    def kube_api_burst(self) -> int:
        """How many requests a client may send at once; 0 is client-go's 10."""
        return int(self.flags["kube-api-burst"]) or _CLIENT_BURST

    @property
    def leases_count(self) -> bool:
        """True if a renewed Lease is a sign of life: not where the gate NodeLease is off."""
        return self.gate("NodeLease") or not self.profile.has("lease_gate")

    @property
    def default_toleration_seconds(self) -> tuple[int, int]:
        """How long pods tolerate not-ready and unreachable where they do not say it, in seconds."""
        not_ready = self.flags["default-not-ready-toleration-seconds"]
        return int(not_ready), int(self.flags["default-unreachable-toleration-seconds"])

    def doubts(self, heartbeat_ns: int) -> list[str]:
        """Settings that upstream's comments forbid and its flags allow, one sentence each.

        `heartbeat_ns`: how long a healthy kubelet may be silent between two signs of life. Follows
        the constraints that the comment of `nodeMonitorGracePeriod` names in
        node_lifecycle_controller.go.
        """
        name, grace_ns = "node-monitor-grace-period", self.node_monitor_grace_period_ns
        grace, beat = self.flags[name], format_duration(heartbeat_ns)
        doubts = []
        if grace_ns <= heartbeat_ns:
            doubts.append(
                f"{name} {grace} is not longer than the {beat} between two heartbeats: healthy"
                f" nodes are called lost between them; give it several times {beat}"
            )
        elif grace_ns < 2 * heartbeat_ns:
            doubts.append(
                f"{name} {grace} is less than twice the {beat} between two heartbeats: one late"
                f" heartbeat makes a node Unknown; give it several times {beat}"
            )
        timeout_ns = self.pod_eviction_timeout_ns
        if "pod-eviction-timeout" in self.flags and not self.taint_mode and timeout_ns <= grace_ns:
            doubts.append(
                f"pod-eviction-timeout {self.flags['pod-eviction-timeout']} is not longer than"
                f" {name} {grace}: pods are evicted as soon as their node is called lost"
            )
        return doubts

    def gate(self, name: str) -> bool:
        """True if the gate is on; a gate that the release does not know is off."""
        return self.gates.get(name, False)


def make_settings(
    profile: Profile | str,
    flags: Mapping[str, object] | None = None,
    origins: Mapping[str, str] | None = None,
) -> Settings:
    """Defaults of the profile with these flags on top.

    `origins` names a flag's source where it is not `--set`. Raises SettingsError.
    """
    if isinstance(profile, str):
        try:
            profile = parse_profile(profile)
        except ValueError as error:
            raise SettingsError(str(error)) from None
    minor = profile.minor
    given = {name: _text(name, value) for name, value in (flags or {}).items()}
    for name in given:
        _check_flag(name, profile)
    effective = {
        f.name: given.get(f.name, f.default(minor)) for f in FLAGS.values() if minor < f.until
    }
    where = dict.fromkeys(effective, f"default of {profile.name}")
    where |= {name: (origins or {}).get(name, "--set") for name in given}
    gates = _gates(effective["feature-gates"], profile)
    value = {name: parse_value(name, FLAGS[name].type, text) for name, text in effective.items()}
    normal = {name: normal_value(FLAGS[name].type, text) for name, text in effective.items()}
    taint_mode = bool(value.get("enable-taint-manager", True)) and (
        gates.get("TaintBasedEvictions", True) or not profile.has("classic_eviction")
    )
    return Settings(
        profile=profile,
        flags=normal,
        origins=where,
        gates=gates,
        node_monitor_period_ns=_at_least_1ms(int(value["node-monitor-period"])),
        node_monitor_grace_period_ns=int(value["node-monitor-grace-period"]),
        node_startup_grace_period_ns=int(value["node-startup-grace-period"]),
        node_eviction_rate=float(value["node-eviction-rate"]),
        secondary_node_eviction_rate=float(value["secondary-node-eviction-rate"]),
        large_cluster_size_threshold=int(value["large-cluster-size-threshold"]),
        unhealthy_zone_threshold=float(value["unhealthy-zone-threshold"]),
        pod_eviction_timeout_ns=int(value.get("pod-eviction-timeout", 0)),
        taint_mode=taint_mode,
        terminated_pod_gc_threshold=int(value["terminated-pod-gc-threshold"]),
    )


def _at_least_1ms(period_ns: int) -> int:
    if period_ns < 1_000_000:
        raise SettingsError(
            f"flag node-monitor-period: {format_duration(period_ns)} is too short: use 1ms or more"
        )
    return period_ns


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise SettingsError(f"flag {name}: the value must be text or a number, got {value!r}")


def _check_flag(name: str, profile: Profile) -> None:
    flag = FLAGS.get(name)
    present = [f.name for f in FLAGS.values() if profile.minor < f.until]
    if flag is None:
        near = difflib.get_close_matches(name, present, 1)
        hint = f"did you mean {near[0]}?" if near else f"known flags: {', '.join(present)}"
        raise SettingsError(f"unknown flag {name} in profile {profile.name}: {hint}")
    if profile.minor >= flag.until:
        near = difflib.get_close_matches(name, present, 1, cutoff=0.3)
        hint = f"; the nearest that it has is {near[0]}" if near else ""
        raise SettingsError(
            f"flag {name} does not exist in profile {profile.name}: "
            f"it was removed in v1.{flag.until}{hint}"
        )


def _gates(text: str, profile: Profile) -> dict[str, bool]:
    """The gates of the release with their states. Raises SettingsError."""
    minor = profile.minor
    states = {name: on for name, g in GATES.items() if (on := g.default(minor)) is not None}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = part.partition("=")
        gate = GATES.get(name)
        if gate is None or name not in states:
            near = difflib.get_close_matches(name, states, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(states))}"
            raise SettingsError(
                f"flag feature-gates: unknown gate {name!r} in profile {profile.name}: {hint}"
            )
        if not equals:
            raise SettingsError(f"flag feature-gates: {part!r} lacks a value: write {name}=true")
        try:
            wanted = parse_bool(value)
        except ValueError as error:
            raise SettingsError(f"flag feature-gates: {part!r}: {error}") from None
        if minor >= gate.locked and wanted != states[name]:
            raise SettingsError(
                f"flag feature-gates: cannot set {name} to {value} in profile {profile.name}: "
                f"it is locked to {str(states[name]).lower()} since v1.{gate.locked}"
            )
        states[name] = wanted
    return states
