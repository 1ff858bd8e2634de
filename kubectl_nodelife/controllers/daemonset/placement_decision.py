"""Decides if a node should run a pod of a set, and names the rule that decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Toleration
from kubectl_nodelife.kube.taints import find_matching_untolerated_taint
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE

FITS = "Fits"
NODE_NAME = "NodeName"
NODE_SELECTOR = "NodeSelector"
NODE_AFFINITY = "NodeAffinity"
TAINT = "Taint"
HOST_PORT = "HostPort"
RESOURCES = "Resources"


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The answer for one set on one node.

    `rule` is a word from above, `subject` what it is about, `text` says it in half a sentence whose
    subject is the node.
    """

    want_to_run: bool
    """Counts as desired in the status; differs from `should_run` in 1.11 only."""
    should_run: bool
    """A pod may be made now; 1.11's shouldSchedule."""
    should_continue_running: bool
    rule: str
    subject: str
    text: str
    failed_placements: tuple[str, ...] = ()
    """Reasons to be told as `FailedPlacement` at each evaluation (1.11)."""


def yes(text: str = "no taint, selector or affinity rule forbids a pod") -> PlacementDecision:
    """The verdict of a node that nothing speaks against."""
    return PlacementDecision(True, True, True, FITS, "", text)


def no(rule: str, subject: str, text: str) -> PlacementDecision:
    """The verdict of a node that must not have a pod."""
    return PlacementDecision(False, False, False, rule, subject, text)


def judge_taints(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> PlacementDecision:
    """The verdict by taints alone: an untolerated NoSchedule taint lets a running pod stay."""
    found = find_matching_untolerated_taint(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE))
    if found is None:
        return yes()
    evicting = find_matching_untolerated_taint(taints, tolerations, (NO_EXECUTE,))
    if evicting is not None:
        return no(TAINT, str(evicting), f"its taint {evicting} is not tolerated")
    text = f"its taint {found} is not tolerated; a pod that runs may stay"
    return PlacementDecision(False, False, True, TAINT, str(found), text)
