"""How a node leaves a run by the way it came, or by failing: given back, Failed, Held; and the end
of the run.

What is to be remembered of a node is written into the run's document first; the PATCH of the node
follows once the document shows it, so that a leader that ends in between loses nothing. At the end
of a run the phase is written first, then what is left of ours is taken off. Failed and Held nodes
keep their marks and are left to a person, but for one that carries neither a cordon of ours nor our
taint.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.document import RunPhase, Step
from kubectl_nodelife.controllers.upgrade.manifests import canary_name
from kubectl_nodelife.controllers.upgrade.marks import (
    CONTROLLER,
    LABEL_RUN,
    LEFT_TO_A_PERSON,
    TAINT_OUTDATED,
    TAINT_UNPROVEN,
    CordonOwner,
    NodeEvent,
    NodeMark,
    NodeState,
    has_our_cordon,
    is_uncordoned,
    left_again,
    outdated,
    patch_marks,
    shield_off,
    uncordon,
    unproven,
)
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import DeleteCanary, MarkNode
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, PREFER_NO_SCHEDULE

PROVEN: Final = "proven"


def give_back(p: UpgradePass, node: Node, mark: NodeMark, because: str, *, entry: bool) -> None:
    """End a drain: marks off, and the cordon if it is ours. `entry`: not again before a retry."""
    if entry and p.document.given_back.get(node.name) is None:
        p.edit(given_back={**p.next.given_back, node.name: because})
        return
    because = p.document.given_back.get(node.name) or because
    take_marks_off(p, node, mark, NodeEvent.GIVEN_BACK, because)


def take_marks_off(
    p: UpgradePass, node: Node, mark: NodeMark, event: NodeEvent, because: str
) -> None:
    """One PATCH: all marks but `outdated` off, and the cordon if it is ours."""
    annotations, labels = shield_off(mark)
    p.advance(
        node,
        mark,
        event,
        because,
        annotations=annotations,
        labels=labels,
        unschedulable=uncordon(node, mark),
        remove=(unproven(mark.run),),
    )


def end_proof(p: UpgradePass, node: Node, mark: NodeMark, fault: str) -> None:
    """A proof alone has ended; no mark of it stays. `fault`: why it failed, "" where it did not.

    The document keeps which nodes were proven, so that none is taken again.
    """
    name = node.name
    if fault and name not in p.document.failed:
        if name not in p.next.failed:
            p.edit(failed=(*p.next.failed, name))
        p.memory.failing.setdefault(name, fault)
    elif not fault and name not in p.document.given_back:
        p.edit(given_back={**p.next.given_back, name: PROVEN})
    elif fault:
        because = f"not proven: {p.memory.failing.get(name, fault)}"
        if mark.earlier is not None:
            taint = unproven(mark.run)
            p.advance(node, mark, left_again(mark.earlier), because, remove=(taint,))
        else:
            take_marks_off(p, node, mark, NodeEvent.PROOF_FAILED, because)
    else:
        still = ", and still cordoned" if node.spec.unschedulable else ""
        take_marks_off(p, node, mark, NodeEvent.PROOF_PASSED, f"{PROVEN}{still}")


def fail(p: UpgradePass, node: Node, mark: NodeMark, because: str) -> None:
    """The node was worked on and not proven: kept out of service, where that does no harm."""
    if p.document.proof_only:
        delete_canary(p, node, f"{node.name} is not proven")
        end_proof(p, node, mark, because)
        return
    if node.name not in p.document.failed:
        if node.name not in p.next.failed:
            p.edit(failed=(*p.next.failed, node.name))
            p.pause_after_failures(node.name, because)
        p.memory.failing.setdefault(node.name, because)
        return
    because = p.memory.failing.get(node.name, because)
    delete_canary(p, node, f"{node.name} failed")
    stays = _why_in_service(p, node, mark)
    cordons = not (stays or node.spec.unschedulable)
    if cordons:
        owner = CordonOwner.OURS
    elif node.spec.unschedulable and mark.cordon is CordonOwner.NONE:
        owner = CordonOwner.THEIRS
    else:
        owner = mark.cordon
    if stays:
        because = f"{because}; left in service: {stays}"
    p.advance(
        node,
        replace(mark, cordon=owner),
        NodeEvent.FAILED,
        because,
        unschedulable=True if cordons else None,
        remove=(unproven(mark.run),),
    )


def _why_in_service(p: UpgradePass, node: Node, mark: NodeMark) -> str:
    """Why a node that failed is not cordoned; "" where it is, or may be.

    It is read from what the node shows, so that another look, and another leader, say the same.
    """
    if node.spec.unschedulable:
        return ""
    if mark.state is NodeState.SETTLING and mark.cordon is CordonOwner.NONE:
        return "a newcomer that runs pods"
    if mark.state is NodeState.SOAKING and node.name not in p.fleet.unavailable:
        return "" if p.fleet.floor_holds_without(node.name) else "a cordon would break a floor"
    return ""


def hold(
    p: UpgradePass, node: Node, mark: NodeMark, because: str, *, cordon: CordonOwner | None = None
) -> None:
    """Leave the node alone: another intervened, or what happened is unknown. A person decides.

    `cordon`: whose it is now, None: as the mark says. Where our cordon was taken off by another
    program or person, the next one is not ours either.
    """
    delete_canary(p, node, f"{node.name} is held")
    if p.document.proof_only:
        end_proof(p, node, mark, because)
        return
    owner = cordon or (CordonOwner.NONE if is_uncordoned(node, mark) else mark.cordon)
    p.advance(node, replace(mark, cordon=owner), NodeEvent.INTERVENED, because)


def leave_cordon(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """Another program or person put a cordon on the node: it is theirs, and stays."""
    theirs = replace(mark, cordon=CordonOwner.THEIRS)
    p.update_mark(node, theirs, "cordoned by another client, whose cordon stays")


def end(p: UpgradePass, *, is_left: bool) -> None:
    """The run is over once nothing is in flight and nothing is left to claim."""
    if p.flying or p.awaited or p.next != p.document:
        return
    left = tuple(sorted([*p.names_in(*LEFT_TO_A_PERSON), *p.forged]))
    if p.phase is RunPhase.ABORTING:
        p.edit(phase=RunPhase.ABORTED, step=Step(), left=left)
    elif p.phase is RunPhase.RUNNING and not is_left and not p.document.asked:
        summary = f"{len(p.names_in(NodeState.DONE))} done"
        summary += f", {len(p.skipped)} skipped or left" if p.skipped else ""
        summary += f"; Failed or Held: {first_names(left, 5)}" if left else ""
        step = replace(p.next.step, nodes={})
        p.edit(phase=RunPhase.FINISHED, because=summary, step=step, left=left)


def clean_up(p: UpgradePass) -> bool:
    """After the end: canaries and Jobs go, then outdated taints and marks of Done.

    Returns whether all of them have gone; a write under way may yet fail. The marks go last, for by
    them the next leader knows that a run which has ended is not cleared away; but none waits for a
    deletion that is refused.
    """
    is_left = any([_delete_pods(p), _delete_jobs(p)])
    if is_left and not p.memory.refused:
        return False
    for name, node in p.nodes.items():
        mark = p.marks.get(name)
        is_outdated = node.has_taint(TAINT_OUTDATED, PREFER_NO_SCHEDULE)
        if not is_outdated and (mark is None or not _goes(node, mark)):
            continue
        is_left = True
        if p.is_busy(name):
            continue
        if mark is not None and _goes(node, mark):
            take_marks_off(p, node, mark, NodeEvent.RUN_OVER, "the run is over")
        else:
            old = (outdated(p.document.run),)
            p.emit(patch_marks(MarkNode, node, "the run is over", remove=old))
    return not is_left and not p.memory.pending.names_of("Node")


def _goes(node: Node, mark: NodeMark) -> bool:
    """True if the node's marks go at the end: of Done, and of those left to a person the ones that
    hold nothing back.
    """
    ours = has_our_cordon(node, mark) or node.has_taint(TAINT_UNPROVEN, NO_SCHEDULE)
    return mark.state is NodeState.DONE or (mark.state in LEFT_TO_A_PERSON and not ours)


def _delete_pods(p: UpgradePass) -> bool:
    """Canaries of this run, those of nodes that are gone too. Whether one has yet to be deleted."""
    is_left = False
    for pod in list(p.cache.pods.values()):
        meta = pod.metadata
        if meta.namespace != p.policy.namespace or meta.deletion_timestamp is not None:
            continue
        is_canary = (meta.labels or {}).get(LABEL_RUN) == p.document.run
        if not is_canary or not meta.name.startswith("nodelife-canary-"):
            continue
        is_left = True
        if not p.is_under_way("Pod", pod.key):
            _delete(p, pod, "the run is over", pod.spec.node_name)
    return is_left


def _delete_jobs(p: UpgradePass) -> bool:
    """Delete the run's Jobs. True if one of them is not marked as deleted so far."""
    is_left = False
    for found in p.cache.all("Job"):
        meta = found.metadata
        if (meta.labels or {}).get(LABEL_RUN) != p.document.run or meta.deletion_timestamp:
            continue
        is_left = True
        if not p.is_under_way("Job", found.key):
            p.delete_job(found, "the run is over")
    return is_left


def delete_idle_canaries(p: UpgradePass) -> None:
    """Failed and Held nodes need no canary any more."""
    for name in p.names_in(*LEFT_TO_A_PERSON):
        delete_canary(p, p.nodes[name], f"{name} is {p.marks[name].state}")


def canary_of(p: UpgradePass, node: Node) -> Pod | None:
    """The node's canary, where there is one."""
    return p.cache.pod(p.policy.namespace, canary_name(node.uid))


def delete_canary(p: UpgradePass, node: Node, because: str) -> None:
    """DELETE the node's canary where there is one that is not going already."""
    pod = canary_of(p, node)
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return
    if not p.is_under_way("Pod", pod.key):
        _delete(p, pod, because, node.name)


def _delete(p: UpgradePass, pod: Pod, because: str, node: str) -> None:
    p.emit(
        DeleteCanary(
            controller=CONTROLLER,
            because=because,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            node=node,
        )
    )
