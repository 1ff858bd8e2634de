"""What `daemonset undo` does to a DaemonSet: the patch, and what its controller makes of it.

What follows is read off a play of the set's own controller on the patched set, up to the end of its
first sync: pods that it relabels run on as they are (kubernetes#111280), the others are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.history import hash_label
from kubectl_nodelife.engine.actions import DeleteControllerRevision, SetPodLabel
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import Rollback, rollback, template_of
from kubectl_nodelife.outlook.daemonset.rollout_outlook import TemplateChange, revision_changes
from kubectl_nodelife.outlook.daemonset.view import SetView

if TYPE_CHECKING:
    from kubectl_nodelife.sim.present import Branch

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
