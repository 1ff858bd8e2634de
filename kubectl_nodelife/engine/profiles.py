"""Which release's behaviour is followed: a profile name and the switches that depend on it.

The switches are one table, since and until which release each behaviour holds; code asks
`profile.has("decide_on_current")`, never for a version number. A profile newer than what is
described behaves as the newest; older than v1.16 as v1.16 (the DaemonSet controller alone also
knows v1.11).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

NEWEST: Final = "v1.36"
OLDEST: Final = "v1.11"
FIRST_DESCRIBED: Final = 16

_RELEASE: Final = r"v?1\.(\d{1,2})(?:[.+-].*)?"

Span = tuple[int, int | None]
"""First minor release with a behaviour, first one without it again; None: no end."""

SWITCHES: Final[dict[str, Span]] = {
    "decide_on_current": (34, None),  # taint decision on the condition after this pass (#120816)
    "requeue_untainted": (18, None),  # a node waiting without its taint is queued anew (#89059)
    "pod_retry": (17, None),  # nodesToRetry and the pod queue (#84445)
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
    "drains_daemon_sets_by_kind": (0, 34),  # kubectl drain looks at an owner's kind alone (#128779)
}


def nearest_profile(text: str) -> tuple[Profile, bool]:
    """(`text` as a Profile, True), or the oldest one and False for a release older than that.

    Raises ValueError for what is no release of Kubernetes.
    """
    match = re.fullmatch(_RELEASE, text.strip())
    if match is not None and int(match[1]) < int(OLDEST.removeprefix("v1.")):
        return parse_profile(OLDEST), False
    return parse_profile(text), True


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
            known = f"v1.{FIRST_DESCRIBED}, the oldest known, is followed (DaemonSets: v1.11)"
        elif self.minor > parse_profile(NEWEST).minor:
            known = f"{NEWEST}, the newest known, is followed"
        else:
            return None
        return f"profile {self.name}: the behaviour of {known}"

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
            f"unknown profile {text!r}: name a Kubernetes release from {OLDEST} to {NEWEST}"
        )
    return Profile(int(match[1]))
