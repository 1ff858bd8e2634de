"""Predicts a DaemonSet's update: what is replaced next, what it waits for, how long it takes;
what each revision changed, and what an undo does.

What `daemonset undo` does is the patch, and what the set's controller makes of it: read off a play
of that controller on the patched set, up to the end of its first sync. Pods that it relabels run on
as they are (kubernetes#111280), the others are replaced.

Two pod templates are compared path by path. Lists of named things (containers, env, volumes, ports)
are compared by name, so that a container inserted in front does not make all that follow look
changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset.history import hash_label
from kubectl_nodelife.controllers.daemonset.node_status_index import NodeUpdateState, UpdateBudget
from kubectl_nodelife.controllers.daemonset.rolling_update import (
    UpdateImpossibleError,
    budget_of,
    nodes_using_budget,
)
from kubectl_nodelife.engine.actions import DeleteControllerRevision, SetPodLabel
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.times import MINUTE_NS, format_time, human_seconds
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet, default_pod_template
from kubectl_nodelife.outlook.daemonset.kubectl_rollout import (
    Rollback,
    RolloutState,
    change_cause,
    rollback,
    rollout_status,
    template_of,
)
from kubectl_nodelife.outlook.daemonset.rollout_verdict import (
    GOES_ON,
    NEVER,
    RolloutVerdict,
    hindrances,
    ready_seconds,
    rollout_verdict,
    taken_for_good,
)
from kubectl_nodelife.outlook.daemonset.view import (
    SetView,
    lacking_to_count,
    other_images,
    trouble_of,
)

if TYPE_CHECKING:
    from kubectl_nodelife.sim.present import Branch

DEFAULT_GRACE_SECONDS = 30
_IDENTITY = ("name", "containerPort", "mountPath", "key")

_AT_MOST_NS = 10 * MINUTE_NS
_KINDS = ("DaemonSet", "ControllerRevision", "Node", "Pod")


class BudgetUser(msgspec.Struct, frozen=True, rename="camel"):
    """A node that eats the budget: what it counts as, and why.

    `stuck`: it will not come free by itself.
    """

    node: str
    counts_as: str
    because: str
    stuck: bool


class RolloutEstimate(msgspec.Struct, frozen=True, rename="camel"):
    """How long the update still takes, by how long pods took to be Ready so far."""

    low_seconds: float
    high_seconds: float
    basis: str


class RolloutOutlook(msgspec.Struct, frozen=True):
    """One set's update. `old_nodes` None: not known; `budget` None: not known, or an error.

    `loses`: pods that the update takes for good; `odd`: pods whose image is not that of their
    revision; `error`: why it cannot go on; `missing_parts`:
    what cannot be said, and why.
    """

    view: SetView
    state: RolloutState
    verdict: RolloutVerdict
    old_nodes: int | None = None
    budget: UpdateBudget | None = None
    used: list[BudgetUser] = []
    next: list[str] = []
    waits_for: list[str] = []
    loses: list[str] = []
    odd: list[str] = []
    estimate: RolloutEstimate | None = None
    error: str = ""
    missing_parts: str = ""

    def document(self) -> dict[str, Any]:
        """The outlook as plain values."""
        budget = self.budget
        return {
            "message": self.state.message.rstrip("\n"),
            "done": self.state.done,
            **msgspec.to_builtins(self.verdict),
            "nodesWithOldPods": self.old_nodes,
            "budget": None
            if budget is None
            else {
                "desired": budget.desired,
                "maxUnavailable": budget.max_unavailable,
                "maxSurge": budget.max_surge,
                "used": len(self.used),
            },
            "budgetUsedBy": msgspec.to_builtins(self.used),
            "next": self.next,
            "waitsFor": self.waits_for,
            "takenForGood": self.loses,
            "odd": self.odd,
            "estimate": self.estimate,
            "error": self.error or None,
            "notEvaluated": self.missing_parts or None,
        }

    def fingerprint(self) -> object:
        """The part that is worth a new line when it changes: all but the time that goes by."""
        verdict = (self.verdict.verdict, self.verdict.node, self.verdict.pod)
        return (self.state, verdict, self.next, self.waits_for, self.error, self.missing_parts)


def rollout_outlook(view: SetView) -> RolloutOutlook:
    """The update of a set. Raises RolloutError for a strategy other than RollingUpdate."""
    state = rollout_status(view.daemon_set)
    missing = lacking_to_count(view.unread) or ("" if view.knows_updated else "revisions")
    if missing:
        why = f"no {missing} were read: what the update does next is not known"
        return RolloutOutlook(view, state, RolloutVerdict(GOES_ON), missing_parts=why)
    old_nodes = len(view.node_index.with_old)
    try:
        budget = budget_of(view.tracked, view.node_index.tally.desired)
    except UpdateImpossibleError as error:
        verdict = RolloutVerdict(NEVER, f"the update cannot go on: {error}")
        return RolloutOutlook(view, state, verdict, old_nodes, error=str(error))
    using = nodes_using_budget(view.tracked, view.node_index, budget)
    stuck = {h.node for h in hindrances(view, using) if h.verdict == NEVER}
    used = [_budget_user(view, node, wave, node in stuck) for node, wave in using.items()]
    verdict = rollout_verdict(view, state, budget, using)
    upcoming = []
    if (step := view.update_step()) is not None:
        upcoming += [f"delete {doomed.pod.name}: {doomed.because}" for doomed in step.delete]
        upcoming += [f"create a pod on {node}: {because}" for node, because in step.create]
    waits = [] if upcoming or not old_nodes else list(_waits_for(view.after_create_step, budget))
    loses = [
        f"the update deletes {pod.name} on {node}, and none is made while {why} stands"
        for node, pod, why in taken_for_good(view)
    ]
    estimate = None if verdict.verdict == NEVER else _estimate(view, budget, old_nodes)
    odd = list(other_images(view))
    return RolloutOutlook(
        view, state, verdict, old_nodes, budget, used, upcoming, waits, loses, odd, estimate
    )


def _budget_user(view: SetView, node: str, wave: NodeUpdateState, stuck: bool) -> BudgetUser:
    troubles = [(pod.name, trouble_of(view, pod)) for pod in view.pods_on(node)]
    words = [f"{name}: {trouble.words}" for name, trouble in troubles if trouble is not None]
    if words:
        return BudgetUser(node, wave.value, "; ".join(words), stuck)
    is_none = wave is NodeUpdateState.NONE
    because = "a pod is to be made" if is_none else "not available for long enough yet"
    return BudgetUser(node, wave.value, because, False)


def _waits_for(view: SetView, budget: UpdateBudget) -> Iterator[str]:
    limit, name = budget.limit
    using = nodes_using_budget(view.tracked, view.node_index, budget)
    if len(using) >= limit:
        yield f"{len(using)} of {name} {limit} in use: by {first_names(list(using), 3)}"


def _estimate(view: SetView, budget: UpdateBudget, old_nodes: int) -> RolloutEstimate | None:
    """Rounds still to go, each as long as pods took to be Ready. minReadySeconds may count twice in
    a round: by chance the controller forgets the later of two instants, and looks again only after
    as long as that (docs/deviations.md).

    None without such experience.
    """
    times = sorted(filter(None, (ready_seconds(pod) for pod in view.pods())))
    at_once, _ = budget.limit
    if not times or not old_nodes or at_once <= 0:
        return None
    rounds = -(-old_nodes // at_once)
    settled = view.daemon_set.spec.min_ready_seconds
    grace = view.tracked.template.spec.termination_grace_period_seconds
    stop = 0 if budget.max_surge else DEFAULT_GRACE_SECONDS if grace is None else grace
    low = rounds * (times[len(times) // 2] + settled)
    high = rounds * (times[-1] + 2 * settled + stop)
    half, last = human_seconds(times[len(times) // 2]), human_seconds(times[-1])
    basis = (
        f"{counted(rounds, 'round')} of {at_once}; of {len(times)} pods half"
        f" were Ready within {half}, all within {last}"
    )
    return RolloutEstimate(round(low, 1), round(high, 1), basis)


def revision_changes(old: dict[str, Any], new: dict[str, Any]) -> list[TemplateChange]:
    """The changes between two templates; a default that only one of them spells out is none."""
    return template_changes(default_pod_template(old), default_pod_template(new))


class RevisionRow(msgspec.Struct, frozen=True):
    """One revision, and what changed from the one before it. `pods` None: not known."""

    revision: ControllerRevision
    cause: str
    current: bool
    pods: int | None
    changes: list[TemplateChange]

    def document(self) -> dict[str, Any]:
        """The row as plain values."""
        created = self.revision.metadata.creation_timestamp
        return {
            "revision": self.revision.revision,
            "name": self.revision.name,
            "hash": hash_label(self.revision),
            "changeCause": self.cause or None,
            "created": None if created is None else format_time(created),
            "current": self.current,
            "pods": self.pods,
            "changes": self.changes,
            "template": template_of(self.revision),
        }


def history_rows(view: SetView) -> list[RevisionRow]:
    """The set's revisions, ascending."""
    rows = []
    before: dict[str, Any] | None = None
    labels = [
        (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH) for pod in view.pods()
    ]
    for revision in view.revisions:
        template, is_current = template_of(revision), revision is view.current
        pods = labels.count(hash_label(revision)) if "Pod" not in view.unread else None
        changes = [] if before is None else revision_changes(before, template)
        rows.append(RevisionRow(revision, change_cause(revision), is_current, pods, changes))
        before = template
    return rows


class TemplateChange(msgspec.Struct, frozen=True):
    """One path. `old` or `new` None: it was or is not there."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.path}: + {_short(self.new)}"
        if self.new is None:
            return f"{self.path}: - {_short(self.old)}"
        return f"{self.path}: {_short(self.old)} -> {_short(self.new)}"


def template_changes(old: dict[str, Any], new: dict[str, Any]) -> list[TemplateChange]:
    """The changes, in path order of the new template, what is gone last."""
    return list(_changes_at("", old, new))


def _changes_at(path: str, old: Any, new: Any) -> Iterator[TemplateChange]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*new, *old]):
            if key != "creationTimestamp":
                where = f"{path}.{key}" if path else key
                yield from _changes_at(where, old.get(key), new.get(key))
        return
    if isinstance(old, list) and isinstance(new, list):
        before, after = _by_identity(old), _by_identity(new)
        if before is not None and after is not None:
            for name in dict.fromkeys([*after, *before]):
                yield from _changes_at(f"{path}[{name}]", before.get(name), after.get(name))
            return
    yield TemplateChange(path, old, new)


def _by_identity(items: list[Any]) -> dict[str, Any] | None:
    """The items by name, or None where they have none, or not all different ones."""
    for field in _IDENTITY:
        if all(isinstance(item, dict) and field in item for item in items):
            by_name = {str(item[field]): item for item in items}
            if len(by_name) == len(items):
                return by_name
    return {} if not items else None


def _short(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
    follows = None if lacking_to_count(view.unread) else _effects(view, plan)
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
    metadata = replace(old.metadata, generation=generation)
    spec = replace(old.spec, template=template_of(plan.revision))
    patched = replace(old, metadata=metadata, spec=spec)
    cluster = Cache()
    objects = [*view.cache.nodes.values(), *view.all_pods(), *view.revisions]
    cluster.fill([*objects, patched], view.now_ns)
    present = join(cluster, view.settings, view.now_ns, _KINDS)
    branch = present.begin(_AT_MOST_NS, controllers=("daemonset",))
    while branch.step():
        daemon_set = branch.world.api.store.get("DaemonSet", old.key)
        if (
            isinstance(daemon_set, DaemonSet)
            and daemon_set.status.observed_generation >= generation
        ):
            break
    return branch
