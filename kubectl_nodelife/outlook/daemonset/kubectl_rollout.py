"""The output and the patches of `kubectl rollout` for a DaemonSet, and what `daemonset undo` does.

Follows `staging/src/k8s.io/kubectl/pkg/polymorphichelpers/{rollout_status,history,rollback}.go`.
Messages are kubectl's own. What follows an undo is read off a play of the set's own controller on
the patched set, up to the end of its first sync: pods that it relabels run on as they are
(kubernetes#111280), the others are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.history import hash_label, match, revision_order
from kubectl_nodelife.controllers.daemonset.rolling_update import ROLLING_UPDATE
from kubectl_nodelife.engine.actions import DeleteControllerRevision, SetPodLabel
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.outlook.daemonset.rollout_outlook import TemplateChange, revision_changes
from kubectl_nodelife.outlook.daemonset.view import SetView

if TYPE_CHECKING:
    from kubectl_nodelife.sim.present import Branch


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
    desired = status.desired_number_scheduled
    if status.updated_number_scheduled < desired:
        updated = status.updated_number_scheduled
        text = f"{updated} out of {desired} new pods have been updated...\n"
        return RolloutState(f'Waiting for daemon set "{name}" rollout to finish: {text}', False)
    if status.number_available < desired:
        text = f"{status.number_available} of {desired} updated pods are available...\n"
        return RolloutState(f'Waiting for daemon set "{name}" rollout to finish: {text}', False)
    return RolloutState(f'daemon set "{name}" successfully rolled out\n', True)


def history_of(
    daemon_set: DaemonSet, revisions: Iterable[ControllerRevision]
) -> list[ControllerRevision]:
    """The set's revisions, ascending: those that match its selector and that it controls."""
    found = []
    for revision in revisions:
        owner = controller_of(revision.metadata)
        if owner is None or owner.uid != daemon_set.uid:
            continue
        if revision.namespace == daemon_set.namespace and matches(
            daemon_set.spec.selector, revision.metadata.labels
        ):
            found.append(revision)
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
        number = target.revision
        message = f"skipped rollback (current template already matches revision {number})"
        return Rollback(target, message, True)
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


_AT_MOST_NS = 10 * MINUTE_NS
_KINDS = ("DaemonSet", "ControllerRevision", "Node", "Pod")


class UndoEffects(msgspec.Struct, frozen=True, rename="camel"):
    """Pods by what becomes of them, and the revision that the set then has."""

    revision: int
    name: str
    replaced: int
    kept: int
    relabelled: int
    revisions_deleted: list[str]


class UndoOutlook(msgspec.Struct, frozen=True):
    """The patch by which a set goes back to a revision, and what would follow from it."""

    view: SetView
    plan: Rollback
    changes: list[TemplateChange]
    follows: UndoEffects | None
    effects: list[str]


def undo_outlook(view: SetView, to_revision: int) -> UndoOutlook:
    """Going back to a revision, 0: the one before. Raises RolloutError."""
    plan = rollback(view.daemon_set, view.revisions, to_revision)
    changes = revision_changes(view.daemon_set.spec.template, template_of(plan.revision))
    if plan.skipped:
        return UndoOutlook(view, plan, changes, None, [])
    follows = _effects(view, plan) if view.read.pods and view.read.nodes else None
    return UndoOutlook(view, plan, changes, follows, list(_sentences(view, plan, follows)))


def _effects(view: SetView, plan: Rollback) -> UndoEffects:
    branch = _first_sync(view, plan)
    store, names = branch.world.api.store, {revision.name for revision in view.revisions}
    kept = max(
        (r for r in store.all("ControllerRevision") if r.name in names),
        key=lambda found: found.revision if isinstance(found, ControllerRevision) else -1,
    )
    assert isinstance(kept, ControllerRevision)
    acts = [action for _, action in branch.timeline.entries]
    relabelled = {act.pod for act in acts if isinstance(act, SetPodLabel)}
    others = [pod for pod in view.pods() if pod.name not in relabelled]
    label = LABEL_CONTROLLER_REVISION_HASH
    keep = sum((pod.metadata.labels or {}).get(label) == hash_label(kept) for pod in others)
    return UndoEffects(
        revision=kept.revision,
        name=kept.name,
        replaced=len(others) - keep,
        kept=keep,
        relabelled=len(relabelled),
        revisions_deleted=[a.name for a in acts if isinstance(a, DeleteControllerRevision)],
    )


def _sentences(view: SetView, plan: Rollback, follows: UndoEffects | None) -> Iterator[str]:
    if follows is None:
        yield "no pods or nodes were read: how many are replaced is not known"
        return
    number = plan.revision.revision
    if follows.revision != number and not follows.revisions_deleted:
        yield f"revision {number} is renumbered to {follows.revision}; the number {number} is gone"
    if follows.revisions_deleted:
        others = first_names(follows.revisions_deleted, 3)
        yield (
            f"{follows.name} and {others} hold the same template: {follows.name} is kept as "
            f"revision {follows.revision}, {others} deleted"
        )
    if follows.relabelled:
        yield (
            f"{counted(follows.relabelled, 'pod')} relabelled and not replaced: the image that "
            f"runs now goes on under the hash of {follows.name}"
        )
    if view.daemon_set.spec.update_strategy.type == "RollingUpdate":
        replaced = counted(follows.replaced, "pod")
        yield f"{replaced} to be replaced, {follows.kept} with that revision already"
    else:
        yield f"no pod is replaced by itself (OnDelete); {follows.kept} have that revision already"


def _first_sync(view: SetView, plan: Rollback) -> Branch:
    """The play of the patched set, until its controller has synced it once."""
    from kubectl_nodelife.sim.present import join  # other questions about a set play nothing

    old = view.daemon_set
    generation = old.metadata.generation + 1
    patched = replace(
        old,
        metadata=replace(old.metadata, generation=generation),
        spec=replace(old.spec, template=template_of(plan.revision)),
    )
    cluster = Cache()
    objects = [*view.cache.nodes.values(), *view.all_pods(), *view.revisions]
    cluster.fill([*objects, patched], view.now_ns)
    present = join(cluster, view.settings, view.now_ns, _KINDS)
    branch = present.begin(_AT_MOST_NS, controllers=("daemonset",))
    while branch.step():
        found = branch.world.api.store.get("DaemonSet", old.key)
        if isinstance(found, DaemonSet) and found.status.observed_generation >= generation:
            break
    return branch
