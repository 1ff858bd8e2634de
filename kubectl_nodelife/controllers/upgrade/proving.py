"""Proving: do API server, lifecycle controller, scheduler and kubelet see the node as usable?

Steps P1 to P7, in order. What a step shows that is not the node's fault (a dead controller, a
scheduler that does not schedule, a quota) never fails a node: it closes the gate `proof`, and the
node's clock stands. A run of `upgrade prove` begins here; it has neither steps nor limits.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import leaving, manifests, marks
from kubectl_nodelife.controllers.upgrade.claiming import new_mark
from kubectl_nodelife.controllers.upgrade.claims import ClaimHold, why_skipped
from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.memory import ProofProgress
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE

TAINT_NS: Final = 60 * SECOND_NS
SCHEDULER_NS: Final = 60 * SECOND_NS
STEADY_NS: Final = 10 * SECOND_NS
GONE_NS: Final = 60 * SECOND_NS
RETRY_NS: Final = 60 * SECOND_NS
NO_IMAGE: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)


def claim_for_proof(p: UpgradePass) -> bool:
    """Take all nodes that `upgrade prove` names at once, as they are, and none while a gate holds.
    True if one is left to claim or to wait for.
    """
    waiting = []
    for name in p.selected:
        if name in p.marks:
            continue
        if why := why_not_taken(p, p.nodes[name]):
            p.skipped[name] = why
        else:
            waiting.append(name)
    _note_unproven(p)
    gate = next((ClaimHold(*gate) for gate in p.gates.items()), None)
    for name in waiting if p.phase is RunPhase.RUNNING else ():
        if gate is not None:
            p.holds[name] = gate
        elif not p.is_busy(name):
            _claim(p, p.nodes[name])
    return bool(waiting or p.in_flight or p.gone)


def why_not_taken(p: UpgradePass, node: Node) -> str:
    """Why the node is not proven; "" where it may be: what is not Ready is waited for, and a cordon
    by which a run left the node to a person stays.
    """
    name, document = node.name, p.document
    if name in p.foreign or name in document.given_back:
        return p.foreign.get(name) or document.given_back[name]
    if name in document.failed:
        return "not proven"
    earlier = marks.left_by_another(node, document.run)
    is_ours = earlier is not None and marks.has_our_cordon(node, earlier)
    policy = replace(p.policy, target=(), unhealthy="include", include_cordoned=is_ours)
    return why_skipped(node, policy, lease_is_fresh=p.fleet.is_fresh(name))


def _claim(p: UpgradePass, node: Node) -> None:
    earlier = marks.left_by_another(node, p.document.run)
    mark = new_mark(
        p,
        node,
        marks.CordonOwner.THEIRS if node.spec.unschedulable else marks.CordonOwner.NONE,
        shield=earlier.shield if earlier else (),
        earlier=replace(earlier, before=marks.NodeBefore()) if earlier else None,
    )
    p.advance(node, mark, marks.NodeEvent.CLAIMED_FOR_PROOF, "claimed for its proof")


def _note_unproven(p: UpgradePass) -> None:
    """A node that was to be proven and is no candidate is not proven, and the document says so."""
    noted = {*p.next.given_back, *p.next.failed}
    not_proven = tuple(name for name in p.skipped if name not in noted and name not in p.marks)
    if not_proven and not p.is_lease_busy:
        p.edit(failed=(*p.next.failed, *not_proven))
        for name in not_proven:
            p.fail_without_mark(name, p.nodes[name].uid, f"not proven: {p.skipped[name]}")


def prove(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """One pass over a node in Proving."""
    proof = p.memory.proof_of(node.name, p.now_ns)
    if not node.has_taint(marks.TAINT_UNPROVEN, NO_SCHEDULE):
        leaving.hold(p, node, mark, f"taint {marks.TAINT_UNPROVEN} was taken off by another client")
        return
    if marks.is_cordoned_meanwhile(node, mark):  # it stays; a canary that waits for it never comes
        pod = leaving.canary_of(p, node)
        if proof.deleted_ns is not None or proof.passed or (pod is not None and pod.spec.node_name):
            leaving.leave_cordon(p, node, mark)
        else:
            theirs = replace(mark, cordon=marks.CordonOwner.THEIRS)
            leaving.hold(p, node, theirs, "cordoned by another client while it was proven")
        return
    progress = p.progress(node.name, mark)
    if p.clock_stands(node.name, mark):
        progress.armed_ns = p.now_ns
    proof.fault = ""
    waiting = _steps(p, node, mark, proof)
    progress.waits_for = waiting
    if proof.fault:
        progress.armed_ns = p.now_ns if not p.is_aborting else progress.armed_ns
        progress.waits_for = proof.fault
    if not waiting:
        _release(p, node, mark)
    elif p.is_busy(node.name) or proof.deleted_ns is not None:
        return
    elif p.is_over(progress.armed_ns, p.policy.prove_timeout_ns):
        leaving.fail(p, node, mark, f"not proven in time: {progress.waits_for}")


def _steps(p: UpgradePass, node: Node, mark: marks.NodeMark, proof: ProofProgress) -> str:
    """The step that is waited for and why; "" where the canary has come and gone."""
    ours = mark.cordon is not marks.CordonOwner.THEIRS
    if ours and (waiting := p2_taint(p, node, mark, proof)):
        return f"P2: {waiting}"
    pod = leaving.canary_of(p, node)
    if proof.passed or proof.deleted_ns is not None:
        return _p7_gone(p, node, mark, proof)
    manifest = manifests.canary_manifest(p, node, mark)
    if pod is None or not _is_usable(pod, manifest):
        return _make(p, node, proof, pod, manifest)
    if pod.metadata.deletion_timestamp is not None:
        return "P3: an earlier canary is still terminating"
    if proof.uid != pod.uid:
        proof.uid, proof.seen_ns, proof.ready_since_ns = pod.uid, p.now_ns, None
        proof.refused, proof.restarts = "", _restarts(pod)
    if waiting := p3_scheduled(p, node, proof, pod):
        return f"P3: {waiting}"
    if waiting := p4_ready(p, proof, pod):
        return f"P4: {waiting}"
    p.memory.proven.add(node.name)
    proof.passed = True
    return _p7_gone(p, node, mark, proof)


def p2_taint(p: UpgradePass, node: Node, mark: marks.NodeMark, proof: ProofProgress) -> str:
    """The lifecycle controller takes the cordon's taint off: nothing else does."""
    taint, newest = f"taint {TAINT_NODE_UNSCHEDULABLE}", p.memory.cordon_taint_lost_ns.items()
    others = any(at >= proof.swapped_ns and name != node.name for name, at in reversed(newest))
    if node.has_taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE):
        if p.is_over(proof.swapped_ns, TAINT_NS):
            if not others:
                proof.fault = f"no node loses its {taint}"
            elif not p.clock_stands(node.name, mark):
                leaving.fail(p, node, mark, f"{taint} stays after the cordon")
        return f"{taint} is still there"
    if proof.missing_taint and not others:
        proof.fault = f"{taint} never came: no controller acts on cordons"
        return proof.fault
    return ""


def _is_usable(pod: Pod, manifest: manifests.Manifest) -> bool:
    """True if the canary is of this policy, and can still become Ready or has succeeded."""
    wanted = manifest["metadata"]["annotations"][manifests.ANNOTATION_SPEC]
    if (pod.metadata.annotations or {}).get(manifests.ANNOTATION_SPEC, wanted) != wanted:
        return False
    if pod.status.phase == "Succeeded":
        return pod.spec.restart_policy == "Never"
    return pod.status.phase != "Failed"


def _make(
    p: UpgradePass, node: Node, proof: ProofProgress, pod: Pod | None, manifest: manifests.Manifest
) -> str:
    """Create the canary, after deleting one that ended, or that an older policy made."""
    if pod is not None:
        leaving.delete_canary(p, node, "made anew")
        reason = pod.status.reason or pod.status.phase
        return f"P3: the canary ended ({reason}) and is made anew"
    if not manifest["spec"]["containers"][0].get("image"):
        proof.fault = "no image for the canary is known: give --canary-image"
        return f"P3: {proof.fault}"
    if proof.refused and not p.is_over(proof.refused_ns, RETRY_NS):
        proof.fault = f"the canary is refused: {proof.refused}"
        return f"P3: {proof.fault}"
    if proof.refused:
        proof.fault = f"the canary was refused: {proof.refused}"
    key = (p.policy.namespace, manifests.canary_name(node.uid))
    if not p.is_under_way("Pod", key):
        because = f"proves that {node.name} can be scheduled to and runs pods"
        p.create("Pod", key, node, manifest, because)
    return "P3: the canary is being created"


def p3_scheduled(p: UpgradePass, node: Node, proof: ProofProgress, pod: Pod) -> str:
    """Scheduled to this node, by the scheduler."""
    condition = pod.status.condition("PodScheduled")
    if pod.spec.node_name == node.name and (condition is None or condition.status == "True"):
        return ""
    if condition is None:
        if p.is_over(proof.seen_ns, SCHEDULER_NS):
            proof.fault = "the scheduler has not looked at the canary for 60 s"
        return "the scheduler has not looked at the canary yet"
    if condition.status == "True":
        return f"the canary was scheduled to {pod.spec.node_name}"
    return f"{condition.reason}: {condition.message}"


def p4_ready(p: UpgradePass, proof: ProofProgress, pod: Pod) -> str:
    """Ready, with an address, and steady: the same pod, without a restart, for ten seconds."""
    if pod.status.phase == "Succeeded":
        return ""
    restarts = _restarts(pod)
    if restarts != proof.restarts:
        proof.restarts, proof.ready_since_ns = restarts, None
        return f"the canary restarted, {restarts} times by now"
    if not pod.ready() or not pod.status.pod_ip:
        proof.ready_since_ns = None
        waiting = _waiting_reason(pod)
        reason, _, _ = waiting.partition(":")
        if reason in NO_IMAGE and not p.has_proven:
            proof.fault = f"the canary's image cannot be pulled: {waiting}"
        return f"the canary is not Ready: {waiting}" if waiting else "the canary is not Ready"
    if proof.ready_since_ns is None:
        proof.ready_since_ns = p.now_ns
    if p.is_over(proof.ready_since_ns, STEADY_NS):
        return ""
    return "the canary has been Ready for less than 10 s"


def _waiting_reason(pod: Pod) -> str:
    of_pod = pod.status
    for status in (*(of_pod.init_container_statuses or ()), *(of_pod.container_statuses or ())):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
    return ""


def _restarts(pod: Pod) -> int:
    return sum(status.restart_count for status in pod.status.container_statuses or ())


def _p7_gone(p: UpgradePass, node: Node, mark: marks.NodeMark, proof: ProofProgress) -> str:
    """The canary is deleted, and goes: the kubelet can stop pods."""
    pod = leaving.canary_of(p, node)
    if pod is None or (proof.uid and pod.uid != proof.uid):
        return ""
    if pod.metadata.deletion_timestamp is None:
        leaving.delete_canary(p, node, "it has shown what it was to show")
        proof.deleted_ns = p.now_ns  # its minute begins once the deletion is seen
        refused = p.memory.refused.get(("Pod", pod.key))
        if refused is not None:
            proof.fault = f"the canary's deletion is refused: {refused[1]}"
        return "P7: the canary is being deleted"
    if proof.deleted_ns is None:
        proof.deleted_ns = p.now_ns
    if p.is_over(proof.deleted_ns, GONE_NS) and not p.clock_stands(node.name, mark):
        because = "cannot stop pods: its canary is still there 60 s after its deletion"
        leaving.fail(p, node, mark, because)
    return "P7: the canary is terminating"


def _release(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """Taint and shield off: the node serves again, and is watched for a while."""
    if p.document.proof_only:
        leaving.end_proof(p, node, mark, "")
        return
    stays = "; a person's cordon stays" if mark.cordon is marks.CordonOwner.THEIRS else ""
    event, because = marks.NodeEvent.PROVEN, f"proven and released{stays}"
    taints, notes = (marks.unproven(mark.run),), marks.shield_off(mark)
    p.advance(node, replace(mark, shield=()), event, because, notes=notes, remove=taints)
