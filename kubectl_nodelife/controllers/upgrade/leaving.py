"""How nodes leave a run: given back, Failed, Held; the end of the run; and `upgrade clean`.

What is to be remembered of a node is written into the run's document first; the PATCH of the node
follows once the document shows it, so that a leader that ends in between loses nothing. At the end
of a run the phase is written first, then what is left of ours is taken off.

`clean` makes a node Failed that was taken and not proven; `release_failed` takes even that back.
What cannot be read, or what is another's cordon, stays as it is, and a cordon that another took off
is not put on again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.document import RunPhase, Step
from kubectl_nodelife.controllers.upgrade.manifests import CANARY, canary_name
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass, deletion
from kubectl_nodelife.engine.actions import Action, NodeMarkPatch
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, PREFER_NO_SCHEDULE

PROVEN: Final = "proven"


def give_back(
    p: UpgradePass, node: Node, mark: marks.NodeMark, because: str, *, entry: bool
) -> None:
    """End a drain: marks off, and the cordon if it is ours. `entry`: not again before a retry."""
    if entry and p.document.given_back.get(node.name) is None:
        p.note_given_back({node.name: because})
        return
    because = p.document.given_back.get(node.name) or because
    take_marks_off(p, node, mark, marks.NodeEvent.GIVEN_BACK, because)


def take_marks_off(
    p: UpgradePass, node: Node, mark: marks.NodeMark, event: marks.NodeEvent, because: str
) -> None:
    """One PATCH: all marks but `outdated` off, and the cordon if it is ours."""
    taint, notes = marks.unproven(mark.run), marks.shield_off(mark)
    cordon = marks.uncordon(node, mark)
    p.advance(node, mark, event, because, notes=notes, unschedulable=cordon, remove=(taint,))


def end_proof(p: UpgradePass, node: Node, mark: marks.NodeMark, fault: str) -> None:
    """A proof alone has ended; no mark of it stays. `fault`: why it failed, "" where it did not.
    The document keeps which nodes were proven, so that none is taken again.
    """
    name = node.name
    if fault and name not in p.document.failed:
        _note_failing(p, name, fault)
    elif not fault and name not in p.document.given_back:
        p.note_given_back({name: PROVEN})
    elif fault:
        because = f"not proven: {p.memory.of(name).failing or fault}"
        if mark.earlier is not None:
            taint = marks.unproven(mark.run)
            p.advance(node, mark, marks.left_again(mark.earlier), because, remove=(taint,))
        else:
            take_marks_off(p, node, mark, marks.NodeEvent.PROOF_FAILED, because)
    else:
        still = ", and still cordoned" if node.spec.unschedulable else ""
        take_marks_off(p, node, mark, marks.NodeEvent.PROOF_PASSED, f"{PROVEN}{still}")


def _note_failing(p: UpgradePass, name: str, because: str) -> None:
    """The document names the node as failed, and its Event will say why, at first."""
    p.note_failed(name, because)
    seen = p.memory.of(name)
    seen.failing = seen.failing or because


def fail(p: UpgradePass, node: Node, mark: marks.NodeMark, because: str) -> None:
    """The node was worked on and not proven: kept out of service, where that does no harm."""
    if p.document.proof_only:
        delete_canary(p, node, f"{node.name} is not proven")
        end_proof(p, node, mark, because)
        return
    if node.name not in p.document.failed:
        _note_failing(p, node.name, because)
        return
    because = p.memory.of(node.name).failing or because
    delete_canary(p, node, f"{node.name} failed")
    stays, owner = _why_in_service(p, node, mark), mark.cordon
    cordons = not (stays or node.spec.unschedulable)
    if cordons:
        owner = marks.CordonOwner.OURS
    elif marks.is_cordoned_meanwhile(node, mark):
        owner = marks.CordonOwner.THEIRS
    if stays:
        because = f"{because}; left in service: {stays}"
    p.advance(
        node,
        replace(mark, cordon=owner),
        marks.NodeEvent.FAILED,
        because,
        unschedulable=True if cordons else None,
        remove=(marks.unproven(mark.run),),
    )


def _why_in_service(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    """Why a node that failed is not cordoned; "" where it is, or may be.

    It is read from what the node shows, so that another look, and another leader, say the same.
    """
    if node.spec.unschedulable:
        return ""
    if mark.state is marks.NodeState.SETTLING and mark.cordon is marks.CordonOwner.NONE:
        return "a newcomer that runs pods"
    if mark.state is marks.NodeState.SOAKING and not p.fleet.counts.node(node.name).unavailable:
        return "" if p.fleet.floor_holds_without(node.name) else "a cordon would break a floor"
    return ""


def hold(p: UpgradePass, node: Node, mark: marks.NodeMark, because: str) -> None:
    """Leave the node alone: another intervened, or what happened is unknown. A person decides.
    Where our cordon was taken off by another, the next one is not ours either.
    """
    delete_canary(p, node, f"{node.name} is held")
    if p.document.proof_only:
        end_proof(p, node, mark, because)
        return
    owner = marks.CordonOwner.NONE if marks.is_uncordoned(node, mark) else mark.cordon
    p.advance(node, replace(mark, cordon=owner), marks.NodeEvent.INTERVENED, because)


def leave_cordon(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """Another program or person put a cordon on the node: it is theirs, and stays."""
    theirs = replace(mark, cordon=marks.CordonOwner.THEIRS)
    p.update_mark(node, theirs, "cordoned by another client, whose cordon stays")


def end(p: UpgradePass, *, is_left: bool) -> None:
    """The run is over once nothing is in flight and nothing is left to claim."""
    if p.in_flight or p.gone or p.next != p.document:
        return
    for_a_person = tuple(sorted([*p.names_in(*marks.LEFT_TO_A_PERSON), *p.fleet.epochs_ahead]))
    if p.phase is RunPhase.ABORTING:
        p.edit(phase=RunPhase.ABORTED, step=Step(), left=for_a_person)
    elif p.phase is RunPhase.RUNNING and not is_left and not p.document.asked:
        summary = f"{len(p.names_in(marks.NodeState.DONE))} done"
        summary += f", {len(p.skipped)} skipped or left" if p.skipped else ""
        summary += f"; Failed or Held: {first_names(for_a_person, 5)}" if for_a_person else ""
        step = replace(p.next.step, nodes={})
        p.edit(phase=RunPhase.FINISHED, because=summary, step=step, left=for_a_person)


def clean_up(p: UpgradePass) -> bool:
    """After the end: canaries and Jobs go, then outdated taints and marks of Done.

    Returns whether all of them have gone; a write under way may yet fail. The marks go last, for by
    them the next leader knows that a run which has ended is not cleared away; but none waits for a
    deletion that is refused.
    """
    is_left = _delete_objects(p)
    if is_left and not p.memory.refused:
        return False
    for name, node in p.nodes.items():
        mark = p.marks.get(name)
        is_outdated = node.has_taint(marks.TAINT_OUTDATED, PREFER_NO_SCHEDULE)
        if not is_outdated and (mark is None or not _goes(node, mark)):
            continue
        is_left = True
        if p.is_busy(name):
            continue
        if mark is not None and _goes(node, mark):
            take_marks_off(p, node, mark, marks.NodeEvent.RUN_OVER, "the run is over")
        else:
            old = (marks.outdated(p.document.run),)
            p.emit(marks.patch_marks(node, "the run is over", remove=old))
    return not is_left and not p.memory.pending.names_of("Node")


def _goes(node: Node, mark: marks.NodeMark) -> bool:
    """True if the node's marks go at the end: of Done, and those that hold nothing back."""
    ours = marks.has_our_cordon(node, mark) or node.has_taint(marks.TAINT_UNPROVEN, NO_SCHEDULE)
    return mark.state is marks.NodeState.DONE or (mark.state in marks.LEFT_TO_A_PERSON and not ours)


def _delete_objects(p: UpgradePass) -> bool:
    """Canaries and Jobs of this run go, also those of nodes that are gone. Whether one is left."""
    namespace, run, is_left = p.policy.namespace, p.document.run, False
    pods = (pod for pod in p.cache.pods.values() if pod.namespace == namespace)
    for obj in (*(pod for pod in pods if pod.name.startswith(CANARY)), *p.cache.all("Job")):
        ours = (obj.metadata.labels or {}).get(marks.LABEL_RUN) == run
        if ours and obj.metadata.deletion_timestamp is None:
            is_left = True
            p.delete(obj, "the run is over", obj.spec.node_name if isinstance(obj, Pod) else "")
    return is_left


def canary_of(p: UpgradePass, node: Node) -> Pod | None:
    """The node's canary, where there is one."""
    return p.cache.pod(p.policy.namespace, canary_name(node.uid))


def delete_canary(p: UpgradePass, node: Node, because: str) -> None:
    """DELETE the node's canary where there is one that is not going already."""
    pod = canary_of(p, node)
    if pod is not None and pod.metadata.deletion_timestamp is None:
        p.delete(pod, because, node.name)


_TAINTS: Final = (marks.TAINT_UNPROVEN, marks.TAINT_OUTDATED)


class Leftover(NamedTuple):
    """A node with marks of a run, and the write that ends them, if any. `stays`: a person is to
    decide about the node, whatever is written. `by_hand`: the kubectl lines that do the same.
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
            mark = marks.mark_of(node)
        except marks.UnreadableMark as error:
            yield _unreadable(node, str(error), release_failed=release_failed)
            continue
        if mark is None:
            if _our_taints(node) or marks.LABEL_STATE in (node.metadata.labels or {}):
                yield _bare(node)
            continue
        state, earlier = mark.state, mark.earlier
        # A kubelet may forge its mark: only a proof has an earlier one, of a node left to a person.
        if (
            earlier is not None
            and state in marks.states_with(marks.left_again(earlier))
            and earlier.state in marks.LEFT_TO_A_PERSON
        ):
            if release_failed:
                yield _released(node, earlier, marks.NodeEvent.RELEASED, state)
            else:
                yield _left_again(node, state, earlier)
        elif state in marks.LEFT_TO_A_PERSON and not release_failed:
            yield _kept(node, mark)
        else:
            event = _how(state, proof_only, release_failed)
            given_back = marks.transition(state, event).to is None
            yield _released(node, mark, event, state) if given_back else _failed(node, mark)


def _how(state: marks.NodeState, proof_only: bool, release_failed: bool) -> marks.NodeEvent:
    """The event of the table by which `clean` ends the marks of a node in that state."""
    if release_failed and state in marks.states_with(marks.NodeEvent.RELEASED):
        return marks.NodeEvent.RELEASED
    if proof_only and state in marks.states_with(marks.NodeEvent.PROOF_CLEANED):
        return marks.NodeEvent.PROOF_CLEANED
    return marks.NodeEvent.CLEANED


def _leftover(
    node: Node,
    state: str,
    because: str,
    row: marks.Transition | None = None,
    *,
    mark: marks.NodeMark | UnsetType | None = UNSET,
    **patch: Any,
) -> Leftover:
    """Our taints go with the change that `patch_marks` makes; with a mark the node stays."""
    taints = _our_taints(node)
    write = marks.patch_marks(node, because, row, mark=mark, remove=taints, **patch)
    lines = _to_release(node, mark) if mark else _by_hand(node, write)
    return Leftover(node, str(state), because, write, lines, stays=bool(mark))


def _released(
    node: Node, mark: marks.NodeMark, event: marks.NodeEvent, state: marks.NodeState
) -> Leftover:
    """All marks off, and the cordon if it was ours. `state`: the one in which the node is."""
    cordon = marks.uncordon(node, mark)
    ours = "" if cordon is None else ", and the cordon that was ours"
    if others := marks.cordoned_by(node):
        ours = f"; the cordon stays: {others} put it on"
    because, row = f"its marks are taken off{ours}", marks.transition(state, event)
    notes = marks.shield_off(mark)
    return _leftover(node, mark.state, because, row, mark=None, notes=notes, unschedulable=cordon)


def release_by_hand(node: Node, mark: marks.NodeMark) -> tuple[str, ...]:
    """The kubectl lines that take a run's marks off a node, and its cordon where it is ours."""
    event = _how(mark.state, False, release_failed=True)
    return _released(node, mark, event, mark.state).by_hand


def _failed(node: Node, mark: marks.NodeMark) -> Leftover:
    """Taken and not proven: it stays out of service. A cordon that is not ours is not made ours."""
    cordons = mark.state is marks.NodeState.PROVING and not node.spec.unschedulable
    owner = marks.CordonOwner.NONE if marks.is_uncordoned(node, mark) else mark.cordon
    failed = replace(
        mark,
        state=marks.NodeState.FAILED,
        reason=f"cleaned up while {mark.state}",
        deadline="",
        cordon=marks.CordonOwner.OURS if cordons else owner,
    )
    because = f"was {mark.state} and is not proven: kept out of service as Failed"
    row = marks.transition(mark.state, marks.NodeEvent.CLEANED)
    return _leftover(
        node, mark.state, because, row, mark=failed, unschedulable=True if cordons else None
    )


def _kept(node: Node, mark: marks.NodeMark) -> Leftover:
    """Failed or Held: a person decides. One with neither cordon nor taint of ours is released, and
    what is not to be done any more is no longer outdated.
    """
    if _goes(node, mark):
        return _released(node, mark, marks.NodeEvent.CLEANED, mark.state)
    because = f"{mark.state}: {mark.reason or 'a person decides'}"
    old = tuple(taint for taint in node.spec.taints if taint.key == marks.TAINT_OUTDATED)
    patch = marks.patch_marks(node, because, remove=old) if old else None
    return Leftover(node, str(mark.state), because, patch, _to_release(node, mark), stays=True)


def _left_again(node: Node, state: marks.NodeState, earlier: marks.NodeMark) -> Leftover:
    """Its proof was given up: it is left to a person as it was before."""
    because = f"{earlier.state}: its proof did not end"
    row = marks.transition(state, marks.left_again(earlier))
    return _leftover(node, earlier.state, because, row, mark=earlier)


def _bare(node: Node) -> Leftover:
    """A taint or label of ours without an annotation, as on nodes that were still to be done."""
    has_label = marks.LABEL_STATE in (node.metadata.labels or {})
    notes = marks.Notes(labels={marks.LABEL_STATE: None}) if has_label else marks.NO_NOTES
    return _leftover(node, "", "a mark of a run that is over", notes=notes)


def _unreadable(node: Node, error: str, *, release_failed: bool) -> Leftover:
    """Whose cordon it is cannot be known, so that it stays."""
    because = f"its annotation cannot be read ({error}); a cordon stays"
    if release_failed:
        return _leftover(node, "Unreadable", because, mark=None)
    return Leftover(node, "Unreadable", because, None, (annotation_off(node),), stays=True)


def left_objects(objects: Iterable[KubeObject]) -> Iterator[LeftObject]:
    """Those of these Pods and Jobs that a run has made for a node."""
    for obj in objects:
        labelled = marks.LABEL_RUN in (obj.metadata.labels or {})
        if labelled and any(owner.kind == "Node" for owner in obj.metadata.owner_references):
            yield LeftObject(obj, deletion(obj, "left by a run"))


def _our_taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if taint.key in _TAINTS)


def _to_release(node: Node, mark: marks.NodeMark) -> tuple[str, ...]:
    """The proof, and for a node that is proven what takes our marks off, the cordon last."""
    uncordons = f"kubectl uncordon {shlex.quote(node.name)}"
    lines = [line for line in release_by_hand(node, mark) if line != uncordons]
    ours = (uncordons,) if mark.cordon is marks.CordonOwner.OURS else ()
    return (f"kubectl nodelife upgrade prove {shlex.quote(node.name)}", *lines, *ours)


def annotation_off(node: Node) -> str:
    """The kubectl line that takes a mark off which says nothing that can be believed."""
    return f"kubectl annotate node {shlex.quote(node.name)} {marks.ANNOTATION}-"


def _by_hand(node: Node, patch: NodeMarkPatch) -> tuple[str, ...]:
    """kubectl's lines for the same; the API takes them one after another."""
    lines, name = [], shlex.quote(node.name)
    if patch.unschedulable is False:
        lines.append(f"kubectl uncordon {name}")
    taints = (f"{taint.key}:{taint.effect}-" for taint in patch.remove_taints)
    lines += [f"kubectl taint node {name} {shlex.quote(taint)}" for taint in taints]
    for verb, keys in (("annotate", patch.annotations), ("label", patch.labels)):
        if keys:
            lines.append(f"kubectl {verb} node {name} {' '.join(f'{key}-' for key in keys)}")
    return tuple(lines)
