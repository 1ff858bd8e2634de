"""Which release's behaviour is followed: a profile name and the switches that depend on it.

The switches are one table, since and until which release each behaviour holds; code asks
`profile.has("decide_on_current")`, never for a version number. A profile newer than what is
described behaves as the newest that is, a beta; older than v1.16 as v1.16 (the DaemonSet controller
alone also knows v1.11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from kubectl_nodelife.errors import BadInput

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
