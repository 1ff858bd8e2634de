"""Matches what the running DaemonSet controller does with what our copy plans.

Its syncs follow at once from what the cluster shows, so that our copy can decide the same just
before the act is seen: `is_act` says when it must. Three things it cannot know: the hash that
upstream gives to a revision, which depends on how Go prints structs; which of equal nodes is next,
the order of a Go map; and the names of pods. A revision and a pod are recognised by what they are
(`engine.overlay`). What was planned under our hash goes on under the real one; and a pod made or
deleted on another of equal nodes takes the place of one that we had planned, and is noted as done
by another controller. Each kind has a watch of its own: an act that nothing explains yet is put off
a little (`defers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.daemonset import DaemonSetController
from kubectl_nodelife.controllers.daemonset.history import hash_label
from kubectl_nodelife.controllers.daemonset.memory import CONTROLLER, TrackedSet
from kubectl_nodelife.controllers.daemonset.template import NoTargetNodeError, get_target_node_name
from kubectl_nodelife.daemon.ledger import Ledger
from kubectl_nodelife.engine.actions import Action, CreateControllerRevision, CreatePod, DeletePod
from kubectl_nodelife.engine.cache import Key
from kubectl_nodelife.engine.events import Event, Gone, Put
from kubectl_nodelife.engine.overlay import Overlay
from kubectl_nodelife.engine.settlement import CONFIRMED
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import ControllerRevision, DaemonSet

_ACTED_ON: Final = ("Pod", "ControllerRevision")
PATIENCE_NS: Final = 500 * MILLISECOND_NS
"""For so long an act waits for what led to it."""

MOST_DEFERRED: Final = 100
"""So many acts may wait: what comes in bulk, as after a gap, is no race between watches."""

_CHANCE: Final = "which of equal nodes is next is chance"


class DaemonSetFollower:
    """Reads the controller's acts off the cluster. `controller` None: it is not looked at."""

    def __init__(
        self, controller: DaemonSetController | None, overlay: Overlay, ledger: Ledger
    ) -> None:
        self._controller = controller
        self._overlay = overlay
        self._ledger = ledger
        self._deferred: list[Put | Gone] = []
        self._deferred_since: dict[tuple[str, Key], int] = {}

    def pop_deferred(self) -> list[Put | Gone]:
        """The events that `defers` kept back, which are now to be brought again."""
        deferred, self._deferred = self._deferred, []
        targets = {event.target for event in deferred}
        self._deferred_since = {k: at for k, at in self._deferred_since.items() if k in targets}
        return deferred

    def defers(self, event: Event, act: bool, now_ns: int) -> bool:
        """True if an act waits for what led to it, which other watches may bring a moment later.

        Only what our copy would not do waits, and what is said of the same object after it.
        """
        if not isinstance(event, (Put, Gone)):
            return False
        target = event.target
        if target not in self._deferred_since:
            if not act or len(self._deferred) >= MOST_DEFERRED or self._is_expected(event):
                return False
            self._deferred_since[target] = now_ns
        if now_ns - self._deferred_since[target] > PATIENCE_NS:
            return False
        if act and self._is_expected(event) and all(e.target != target for e in self._deferred):
            del self._deferred_since[target]
            return False
        self._deferred.append(event)
        return True

    def _is_expected(self, event: Put | Gone) -> bool:
        """True if our copy has planned this act, or the same for another of equal nodes."""
        before, after = self._versions(event)
        present = after if after is not None else before
        if present is None or any(self._overlay.planned(event.target)):
            return True
        tracked = self._owner(present)
        if tracked is None:
            return False  # the set itself is still to come
        if not isinstance(present, Pod):
            plans = self._overlay.created(event.kind)
            return before is None and any(plan.shown_by(present) for plan in plans)
        if before is not None:
            return self._deleted_instead(tracked, present) is not None
        if not self._revision_is_known(tracked, present):
            return False  # under our own hash the pod would be an old one
        node = _node_of(present)
        if any(plan.node == node for plan in self._planned_creates(tracked.daemon_set.uid)):
            return True
        return self._created_instead(tracked, present) is not None

    def _revision_is_known(self, tracked: TrackedSet, pod: Pod) -> bool:
        """True if the revision that the pod names has been seen: it was made before the pod.

        A revision is called after its set and its hash (`snapshot` of upstream's update.go).
        """
        label = (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH, "")
        key = (pod.namespace, f"{tracked.daemon_set.name}-{label}")
        return not label or self._overlay.shown("ControllerRevision", key) is not None

    def is_act(self, event: Event) -> bool:
        """True if the event shows what the controller does, whose syncs follow at once from what
        was seen before: our copy is to decide what is due before it takes the event in.
        """
        if self._controller is None or not isinstance(event, (Put, Gone)):
            return False
        if event.kind not in _ACTED_ON:
            return False
        before, after = self._versions(event)
        present = after if after is not None else before
        owner = controller_of(present.metadata) if present is not None else None
        if owner is None or owner.kind != "DaemonSet":
            return False
        if before is None:
            return True
        if after is None:
            return not _is_going(before)
        if isinstance(after, ControllerRevision) and isinstance(before, ControllerRevision):
            return after.revision != before.revision
        return _is_going(after) and not _is_going(before)

    def before(self, event: Put | Gone, now_ns: int) -> tuple[Put | Gone, list[Event]]:
        """The event with the act that it shows for its cause, where our copy had planned that act
        for another of equal nodes; and what the view makes of plans that end with it.
        """
        if self._controller is None or not isinstance(event, Put):
            return event, []
        if event.kind == "DaemonSet":
            return event, self._begin_afresh(event.obj, now_ns)
        if event.kind != "Pod":
            return event, []
        before, pod = self._versions(event)
        tracked = self._owner(pod) if pod is not None else None
        if tracked is None or not isinstance(pod, Pod):
            return event, []
        swap: tuple[Action, Action] | None = None
        if before is None:
            swap = self._created_instead(tracked, pod)
        elif _is_going(pod) and not _is_going(before):
            swap = self._deleted_instead(tracked, pod)
        if swap is None:
            return event, []
        seen, planned = swap
        self._ledger.note(seen, now_ns, _node_of(pod), "")
        why = f"already done by another controller: {_CHANCE}"
        self._ledger.settle(seen, CONFIRMED, now_ns, why)
        why = f"{pod.name} on {_node_of(pod)} was first: {_CHANCE}"
        return Put("Pod", pod, seen), self._overlay.withdraw(planned, now_ns, why)

    def after(self, event: Event) -> list[Event]:
        """The events for the view that follow where the event has just settled plans: those under
        our own hash of a revision go on under the real one.
        """
        view: list[Event] = []
        for end in self._overlay.settled:
            planned = end.action
            if (
                isinstance(planned, CreateControllerRevision)
                and end.outcome == CONFIRMED
                and isinstance(event, Put)
                and isinstance(event.obj, ControllerRevision)
            ):
                for renamed in self._renamed(planned, event.obj):
                    self._ledger.amend(renamed)
                    view += self._overlay.amend(renamed)
        return view

    def _begin_afresh(self, shown: KubeObject, now_ns: int) -> list[Event]:
        """Give up plans for a set that was changed since: they would not be made any more."""
        old = self._overlay.shown("DaemonSet", shown.key)
        if not isinstance(old, DaemonSet) or not isinstance(shown, DaemonSet):
            return []
        if old.uid == shown.uid and old.spec == shown.spec and _is_going(old) is _is_going(shown):
            return []
        view: list[Event] = []
        for plan in list(self._overlay.pending()):
            if plan.controller == CONTROLLER and self._is_about(plan, old):
                view += self._overlay.withdraw(plan, now_ns, f"{shown.name} was changed")
        return view

    def _is_about(self, plan: Action, daemon_set: DaemonSet) -> bool:
        if isinstance(plan, CreatePod):
            return plan.owner_uid == daemon_set.uid
        kind, key = plan.target
        if kind == "DaemonSet":
            return key == daemon_set.key
        revision = plan.revision if isinstance(plan, CreateControllerRevision) else None
        obj = revision if revision is not None else self._overlay.shown(kind, key)
        owner = controller_of(obj.metadata) if obj is not None else None
        return owner is not None and owner.uid == daemon_set.uid

    def _created_instead(self, tracked: TrackedSet, pod: Pod) -> tuple[Action, Action] | None:
        """A pod made for a node that is as good as the one that we had planned one for."""
        node = _node_of(pod)
        facts = tracked.node_index.facts(node)
        if facts is None or facts.verdict is None or not facts.verdict.should_run:
            return None
        plans = list(self._planned_creates(tracked.daemon_set.uid))
        if any(plan.node == node for plan in plans):
            return None
        old = tracked.node_index.with_old
        for plan in reversed(plans):  # the last one is the least sure
            if (plan.node in old) is (node in old):
                because = f"seen in the cluster: it needs a pod as node {plan.node} does"
                return _by_another(plan, because, pod, node=node), plan
        return None

    def _deleted_instead(self, tracked: TrackedSet, pod: Pod) -> tuple[Action, Action] | None:
        """An old pod deleted where we had planned to delete the one of another node."""
        if pod.spec.node_name not in tracked.node_index.with_old:
            return None
        if any(isinstance(a, DeletePod) for a in self._overlay.planned(("Pod", pod.key))):
            return None
        for node in sorted(tracked.node_index.with_old):
            for other in tracked.pods.on_node(node) or ():
                for plan in self._overlay.planned(("Pod", other.key)):
                    if isinstance(plan, DeletePod) and plan.controller == CONTROLLER:
                        because = f"seen in the cluster: an old pod, as {other.name} on {node} is"
                        return _by_another(plan, because, pod), plan
        return None

    def _renamed(
        self, planned: CreateControllerRevision, shown: ControllerRevision
    ) -> Iterator[CreatePod]:
        """Our plans under our hash, as they are under the one that the revision really has."""
        ours, theirs = hash_label(planned.revision), hash_label(shown)
        owner = controller_of(shown.metadata)
        if ours == theirs or owner is None:
            return
        for plan in list(self._planned_creates(owner.uid)):
            if plan.revision == ours:
                meta = plan.manifest["metadata"]
                labels = {**meta["labels"], LABEL_CONTROLLER_REVISION_HASH: theirs}
                manifest = {**plan.manifest, "metadata": {**meta, "labels": labels}}
                yield replace(plan, manifest=manifest, revision=theirs)

    def _planned_creates(self, owner_uid: str) -> Iterator[CreatePod]:
        for action in self._overlay.created("Pod"):
            if isinstance(action, CreatePod) and action.owner_uid == owner_uid:
                yield action

    def _versions(self, event: Put | Gone) -> tuple[KubeObject | None, KubeObject | None]:
        """The object as the cluster showed it before, and as it does now."""
        after = event.obj if isinstance(event, Put) else None
        return self._overlay.shown(*event.target), after

    def _owner(self, obj: KubeObject) -> TrackedSet | None:
        assert self._controller is not None
        return self._controller.index.resolve(obj)


def _by_another(plan: Any, because: str, pod: Pod, **fields: str) -> Action:
    """The same act on another pod."""
    uid = {"pod_uid": pod.uid} if isinstance(plan, DeletePod) else {}
    seen: Action = replace(plan, pod=pod.name, because=because, cause=None, id=0, **uid, **fields)
    return seen


def _is_going(obj: KubeObject) -> bool:
    return obj.metadata.deletion_timestamp is not None


def _node_of(pod: Pod) -> str:
    """The node that the pod is on or for, "" where that is not known."""
    if pod.spec.node_name:
        return pod.spec.node_name
    try:
        return get_target_node_name(pod)
    except NoTargetNodeError:
        return ""
