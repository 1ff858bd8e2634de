"""The output and the patches of `kubectl rollout` for a DaemonSet.

Follows `staging/src/k8s.io/kubectl/pkg/polymorphichelpers/{rollout_status,history,rollback}.go`.
Messages are kubectl's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_nodelife.controllers.daemonset.history import match, revision_order
from kubectl_nodelife.controllers.daemonset.node_status_index import ROLLING_UPDATE
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet

CHANGE_CAUSE_ANNOTATION = "kubernetes.io/change-cause"
NO_HISTORY = "No rollout history found."


class RolloutError(ValueError):
    """The question has no answer: a wrong strategy, or a revision that is not there."""


@dataclass(frozen=True)
class RolloutState:
    """How far an update is, in kubectl's words, and whether it is over."""

    message: str
    done: bool


def rollout_status(daemon_set: DaemonSet) -> RolloutState:
    """The message of `kubectl rollout status`, by the set's own status.

    Raises RolloutError for a strategy other than RollingUpdate. Follows
    `DaemonSetStatusViewer.Status`.
    """
    if daemon_set.spec.update_strategy.type != ROLLING_UPDATE:
        raise RolloutError(f"rollout status is only available for {ROLLING_UPDATE} strategy type")
    status, name = daemon_set.status, daemon_set.name
    if daemon_set.metadata.generation > status.observed_generation:
        return RolloutState("Waiting for daemon set spec update to be observed...\n", False)
    desired, updated = status.desired_number_scheduled, status.updated_number_scheduled
    if updated < desired:
        text = f"{updated} out of {desired} new pods have been updated...\n"
    elif status.number_available < desired:
        text = f"{status.number_available} of {desired} updated pods are available...\n"
    else:
        return RolloutState(f'daemon set "{name}" successfully rolled out\n', True)
    return RolloutState(f'Waiting for daemon set "{name}" rollout to finish: {text}', False)


def history_of(
    daemon_set: DaemonSet, revisions: Iterable[ControllerRevision]
) -> list[ControllerRevision]:
    """The set's revisions, ascending: those that match its selector and that it controls."""
    selector = daemon_set.spec.selector
    found = (
        revision
        for revision in revisions
        if (owner := controller_of(revision.metadata)) is not None
        and owner.uid == daemon_set.uid
        and revision.namespace == daemon_set.namespace
        and matches(selector, revision.metadata.labels)
    )
    return sorted(found, key=revision_order)


def change_cause(revision: ControllerRevision) -> str:
    """The revision's change cause, "" where none was given."""
    return (revision.metadata.annotations or {}).get(CHANGE_CAUSE_ANNOTATION, "")


def revision_of_number(history: Sequence[ControllerRevision], number: int) -> ControllerRevision:
    """The revision with that number. Raises RolloutError."""
    for revision in history:
        if revision.revision == number:
            return revision
    raise RolloutError("unable to find the specified revision")


def template_of(revision: ControllerRevision) -> dict[str, Any]:
    """The pod template that a revision holds, without the patch directive."""
    template = ((revision.data or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


@dataclass(frozen=True)
class Rollback:
    """The effect of `kubectl rollout undo`. `skipped`: none, the template is that already."""

    revision: ControllerRevision
    message: str
    skipped: bool

    @property
    def patch(self) -> dict[str, Any]:
        """The strategic merge patch of the set."""
        return self.revision.data or {}


def rollback(
    daemon_set: DaemonSet, history: Sequence[ControllerRevision], to_revision: int = 0
) -> Rollback:
    """Go back to a revision; 0 is the one before the present.

    Raises RolloutError. Follows `DaemonSetRollbacker.Rollback`.
    """
    target = _rollback_target(history, to_revision)
    if match(daemon_set.spec.template, target):
        same = f"current template already matches revision {target.revision}"
        return Rollback(target, f"skipped rollback ({same})", True)
    return Rollback(target, "rolled back", False)


def _rollback_target(history: Sequence[ControllerRevision], to_revision: int) -> ControllerRevision:
    if to_revision == 0:
        if len(history) < 2:
            raise RolloutError("no last revision to roll back to")
        return sorted(history, key=revision_order)[-2]
    for revision in history:
        if revision.revision == to_revision and to_revision > 0:
            return revision
    raise RolloutError(f"unable to find specified revision {to_revision} in history")
