"""Soaking, and the end of a run.

In Soaking a node serves again and is watched for a while; then it is Done. At the end of a run the
phase is written first, then what is left of ours is taken off. Failed and Held nodes keep their
marks and are left to a person, but for one that carries neither a cordon of ours nor our taint.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.automaton import LEFT_TO_A_PERSON, NodeEvent, patch_marks
from kubectl_nodelife.controllers.upgrade.canary import delete_canary
from kubectl_nodelife.controllers.upgrade.document import RunPhase, Step
from kubectl_nodelife.controllers.upgrade.marks import (
    LABEL_RUN,
    TAINT_OUTDATED,
    TAINT_UNPROVEN,
    CordonOwner,
    NodeMark,
    NodeState,
    has_our_cordon,
    is_cordoned_meanwhile,
    outdated,
)
from kubectl_nodelife.controllers.upgrade.restoring import fail, leave_cordon, take_marks_off
from kubectl_nodelife.controllers.upgrade.settling import (
    s2_is_fresh,
    s5_conditions,
    s7_daemon_pods,
    why_not_ready,
)
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import (
    DeleteCanary,
    MarkNode,
)
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, PREFER_NO_SCHEDULE


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
            p.emit(
                DeleteCanary(
                    controller="upgrade",
                    because="the run is over",
                    namespace=meta.namespace,
                    pod=meta.name,
                    pod_uid=meta.uid,
                    node=pod.spec.node_name,
                )
            )
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


def soak(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """One pass over a node in Soaking: S2, S4, S5 and S7 must go on holding."""
    if is_cordoned_meanwhile(node, mark):
        leave_cordon(p, node, mark)
        return
    progress = p.progress(node.name, mark)
    if p.clock_stands(node.name, mark):
        progress.armed_ns = p.now_ns
        return
    broken = (
        s2_is_fresh(p, node, mark)
        or why_not_ready(node)
        or s5_conditions(p, node, mark)
        or s7_daemon_pods(p, node, mark)
    )
    progress.waits_for = broken
    if broken:
        fail(p, node, mark, f"broke after its release: {broken}")
    elif p.is_over(progress.armed_ns, p.policy.node_soak_ns):
        by_others = mark.cordon is CordonOwner.THEIRS
        because = "cordoned by others" if by_others else "in service, and nothing broke"
        p.advance(node, mark, NodeEvent.SOAKED, because)
