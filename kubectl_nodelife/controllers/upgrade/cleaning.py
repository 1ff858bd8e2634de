"""Gives back the marks that a run has left, or keeps their nodes out of service: `upgrade clean`.

A node that was taken and not proven stays out of service and becomes Failed, for a person to
look at; `release_failed` takes even that back. What cannot be read, or what is another's
cordon, stays as it is, and a cordon that another took off is not put on again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.marks import (
    ANNOTATION,
    CONTROLLER,
    LABEL_RUN,
    LABEL_STATE,
    LEFT_TO_A_PERSON,
    TAINT_OUTDATED,
    TAINT_UNPROVEN,
    CordonOwner,
    NodeEvent,
    NodeMark,
    NodeState,
    Off,
    UnreadableMark,
    cordoned_by,
    has_our_cordon,
    is_uncordoned,
    left_again,
    mark_of,
    patch_marks,
    shield_off,
    states_with,
    transition,
    uncordon,
)
from kubectl_nodelife.engine.actions import Action, DeleteCanary, DeleteJob, MarkNode, NodeMarkPatch
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE
from kubectl_nodelife.kube.workload import Job

_TAINTS: Final = (TAINT_UNPROVEN, TAINT_OUTDATED)


class Leftover(NamedTuple):
    """A node with marks of a run, and the write that ends them; None where nothing is to be
    written.

    `stays`: a person is to decide about the node, whatever is written. `by_hand`: the kubectl lines
    that do the same.
    """

    node: Node
    state: str
    because: str
    patch: NodeMarkPatch | None
    by_hand: tuple[str, ...] = ()
    stays: bool = False


class LeftObject(NamedTuple):
    """A canary or a Job that a run has left, and its deletion."""

    obj: KubeObject
    deletion: Action

    @property
    def name(self) -> str:
        """kind/namespace/name"""
        kind, (namespace, name) = self.deletion.target
        return f"{kind.lower()}/{namespace}/{name}"

    @property
    def by_hand(self) -> str:
        """kubectl's line for it."""
        kind, (namespace, name) = self.deletion.target
        return f"kubectl delete {kind.lower()} {shlex.quote(name)} -n {shlex.quote(namespace)}"


def leftovers(
    nodes: Iterable[Node], *, proof_only: bool = False, release_failed: bool = False
) -> Iterator[Leftover]:
    """All that runs have left on these nodes. `proof_only`: the run was of `upgrade prove`."""
    for node in nodes:
        try:
            mark = mark_of(node)
        except UnreadableMark as error:
            yield _unreadable(node, str(error), release_failed=release_failed)
            continue
        if mark is not None and mark.earlier is not None and _was_left(mark, mark.earlier):
            earlier = mark.earlier
            yield (
                _released(node, earlier, NodeEvent.RELEASED, mark.state)
                if release_failed
                else _left_again(node, mark, earlier)
            )
        elif mark is None:
            if _our_taints(node) or LABEL_STATE in (node.metadata.labels or {}):
                yield _bare(node)
        elif mark.state in LEFT_TO_A_PERSON and not release_failed:
            yield _kept(node, mark)
        else:
            yield _taken_back(node, mark, _how(mark.state, proof_only, release_failed))


def _was_left(mark: NodeMark, earlier: NodeMark) -> bool:
    """True if a run left the node to a person before this proof. A kubelet may forge its mark."""
    return mark.state in states_with(left_again(earlier)) and earlier.state in LEFT_TO_A_PERSON


def _how(state: NodeState, proof_only: bool, release_failed: bool) -> NodeEvent:
    """The event of the table by which `clean` ends the marks of a node in that state."""
    if release_failed and state in states_with(NodeEvent.RELEASED):
        return NodeEvent.RELEASED
    if proof_only and state in states_with(NodeEvent.PROOF_CLEANED):
        return NodeEvent.PROOF_CLEANED
    return NodeEvent.CLEANED


def _taken_back(node: Node, mark: NodeMark, event: NodeEvent) -> Leftover:
    """Given back where nothing was done to the node, or all that was is proven; else Failed."""
    given_back = transition(mark.state, event).to is None
    return _released(node, mark, event, mark.state) if given_back else _failed(node, mark)


def _released(node: Node, mark: NodeMark, event: NodeEvent, state: NodeState) -> Leftover:
    """All marks off, and the cordon if it was ours. `state`: the one in which the node is."""
    schedulable = uncordon(node, mark)
    ours = "" if schedulable is None else ", and the cordon that was ours"
    if others := cordoned_by(node):
        ours = f"; the cordon stays: {others} put it on"
    because = f"its marks are taken off{ours}"
    annotations, labels = shield_off(mark)
    patch = patch_marks(
        transition(state, event).patch,
        node,
        because,
        was=state,
        mark=None,
        annotations=annotations,
        labels=labels,
        unschedulable=schedulable,
        remove=_our_taints(node),
    )
    return Leftover(node, str(mark.state), because, patch, _by_hand(node, patch))


def release_by_hand(node: Node, mark: NodeMark) -> tuple[str, ...]:
    """The kubectl lines that take a run's marks off a node, and its cordon where it is ours."""
    event = _how(mark.state, False, release_failed=True)
    return _released(node, mark, event, mark.state).by_hand


def _failed(node: Node, mark: NodeMark) -> Leftover:
    """Taken and not proven: it stays out of service. A cordon that is not ours is not made ours."""
    because = f"was {mark.state} and is not proven: kept out of service as Failed"
    cordons = mark.state is NodeState.PROVING and not node.spec.unschedulable
    owner = CordonOwner.NONE if is_uncordoned(node, mark) else mark.cordon
    failed = replace(
        mark,
        state=NodeState.FAILED,
        reason=f"cleaned up while {mark.state}",
        deadline="",
        cordon=CordonOwner.OURS if cordons else owner,
    )
    patch = patch_marks(
        transition(mark.state, NodeEvent.CLEANED).patch,
        node,
        because,
        was=mark.state,
        mark=failed,
        unschedulable=True if cordons else None,
        remove=_our_taints(node),
    )
    return Leftover(node, str(mark.state), because, patch, _to_release(node, failed), stays=True)


def _kept(node: Node, mark: NodeMark) -> Leftover:
    """Failed or Held: a person decides. One with neither cordon nor taint of ours is released, and
    what is not to be done any more is no longer outdated.
    """
    if not has_our_cordon(node, mark) and not node.has_taint(TAINT_UNPROVEN, NO_SCHEDULE):
        return _released(node, mark, NodeEvent.CLEANED, mark.state)
    because = f"{mark.state}: {mark.reason or 'a person decides'}"
    old = tuple(taint for taint in node.spec.taints if taint.key == TAINT_OUTDATED)
    patch = patch_marks(MarkNode, node, because, remove=old) if old else None
    return Leftover(node, str(mark.state), because, patch, _to_release(node, mark), stays=True)


def _left_again(node: Node, mark: NodeMark, earlier: NodeMark) -> Leftover:
    """Its proof was given up: it is left to a person as it was before."""
    because = f"{earlier.state}: its proof did not end"
    patch = patch_marks(
        transition(mark.state, left_again(earlier)).patch,
        node,
        because,
        was=mark.state,
        mark=earlier,
        remove=_our_taints(node),
    )
    lines = _to_release(node, earlier)
    return Leftover(node, str(earlier.state), because, patch, lines, stays=True)


def _bare(node: Node) -> Leftover:
    """A taint or label of ours without an annotation, as on nodes that were still to be done."""
    because = "a mark of a run that is over"
    label: Off = {LABEL_STATE: None} if LABEL_STATE in (node.metadata.labels or {}) else {}
    patch = patch_marks(MarkNode, node, because, labels=label, remove=_our_taints(node))
    return Leftover(node, "", because, patch, _by_hand(node, patch))


def _unreadable(node: Node, error: str, *, release_failed: bool) -> Leftover:
    """Whose cordon it is cannot be known, so that it stays."""
    because = f"its annotation cannot be read ({error}); a cordon stays"
    if not release_failed:
        return Leftover(node, "Unreadable", because, None, (annotation_off(node),), stays=True)
    patch = patch_marks(MarkNode, node, because, mark=None, remove=_our_taints(node))
    return Leftover(node, "Unreadable", because, patch, _by_hand(node, patch))


def left_objects(found: Iterable[KubeObject]) -> Iterator[LeftObject]:
    """Those of these Pods and Jobs that a run has made for a node."""
    for obj in found:
        labelled = LABEL_RUN in (obj.metadata.labels or {})
        if labelled and any(owner.kind == "Node" for owner in obj.metadata.owner_references):
            yield LeftObject(obj, _deletion(obj))


def _deletion(obj: KubeObject) -> Action:
    because = "left by a run"
    namespace, name = obj.key
    if isinstance(obj, Job):
        return DeleteJob(
            controller=CONTROLLER,
            because=because,
            namespace=namespace,
            name=name,
            node="",
            object_uid=obj.uid,
        )
    return DeleteCanary(
        controller=CONTROLLER,
        because=because,
        namespace=namespace,
        pod=name,
        pod_uid=obj.uid,
        node="",
    )


def _our_taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.key in _TAINTS)


def _to_release(node: Node, mark: NodeMark) -> tuple[str, ...]:
    """The proof, and for a node that is proven what takes our marks off, the cordon last."""
    uncordons = f"kubectl uncordon {shlex.quote(node.name)}"
    marks = [line for line in release_by_hand(node, mark) if line != uncordons]
    ours = (uncordons,) if mark.cordon is CordonOwner.OURS else ()
    return (f"kubectl nodelife upgrade prove {shlex.quote(node.name)}", *marks, *ours)


def annotation_off(node: Node) -> str:
    """The kubectl line that takes a mark off which says nothing that can be believed."""
    return f"kubectl annotate node {shlex.quote(node.name)} {ANNOTATION}-"


def _by_hand(node: Node, patch: NodeMarkPatch) -> tuple[str, ...]:
    """kubectl's lines for the same; the API takes them one after another."""
    lines, name = [], shlex.quote(node.name)
    if patch.unschedulable is False:
        lines.append(f"kubectl uncordon {name}")
    taints = (f"{taint.key}:{taint.effect}-" for taint in patch.remove_taints)
    lines += [f"kubectl taint node {name} {shlex.quote(taint)}" for taint in taints]
    if patch.annotations:
        keys = " ".join(f"{key}-" for key in patch.annotations)
        lines.append(f"kubectl annotate node {name} {keys}")
    if patch.labels:
        keys = " ".join(f"{key}-" for key in patch.labels)
        lines.append(f"kubectl label node {name} {keys}")
    return tuple(lines)
