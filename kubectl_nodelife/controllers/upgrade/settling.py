"""Settling: is the node back? Checks S1 to S9, in this order; the first that fails is shown. And
Soaking, in which it serves again and is watched for a while.

Evidence must be newer than the end of the work by when the leader saw changes, not by comparing
clocks: a node's Ready=True stands for a whole grace period after its kubelet fell silent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.leaving import fail, hold, leave_cordon
from kubectl_nodelife.controllers.upgrade.memory import ProofProgress
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import parse_quantity
from kubectl_nodelife.kube.storage import CSINode
from kubectl_nodelife.kube.times import SECOND_NS, parse_time
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, NO_SCHEDULE, TAINT_NODE_UNSCHEDULABLE, TRUE
from kubectl_nodelife.kube.workload import DaemonSet

RENEWALS: Final = 3
BREAKS: Final = 3
PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
KEPT_PERCENT: Final = 95
CLOCK_DOUBT_NS: Final = 2 * SECOND_NS
_MEASURED: Final = ("cpu", "memory")
_NOT_EXTENDED: Final = ("hugepages-", "attachable-volumes-")
_OURS: Final = (marks.TAINT_UNPROVEN, marks.TAINT_OUTDATED, TAINT_NODE_UNSCHEDULABLE)


def settle(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """One pass over a node in Settling."""
    if marks.is_uncordoned(node, mark):
        hold(p, node, mark, "uncordoned by another client before it was proven")
        return
    if marks.is_cordoned_meanwhile(node, mark):
        leave_cordon(p, node, mark)
        return
    progress = p.progress(node.name, mark)
    if p.clock_stands(node.name, mark):
        progress.armed_ns = p.now_ns
    watch_ready(p, node, mark)
    waiting = first_failing(p, node, mark)
    progress.waits_for = waiting
    if not waiting:
        open_for_proof(p, node, mark)
    elif progress.breaks >= BREAKS and not p.clock_stands(node.name, mark):
        fail(p, node, mark, f"flaps: Ready broke {progress.breaks} times")
    elif p.is_over(progress.armed_ns, p.policy.return_timeout_ns):
        effect = "no effect: " if waiting.startswith("S3") else ""
        fail(p, node, mark, f"{effect}did not come back in time: {waiting}")


def watch_ready(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """Take note of the Lease's renewals and of breaks of Ready, since the state was entered."""
    progress = p.progress(node.name, mark)
    beat = p.cache.heartbeat(node.name)
    renewed = beat.renewal(p.now_ns) if beat is not None else None
    if progress.renewed is None:
        progress.renewed = renewed
    elif renewed is not None and renewed != progress.renewed:
        progress.renewed = renewed
        progress.renewals += 1
    schedule = beat.schedule if beat is not None else None
    if renewed is not None and schedule is not None and progress.renewals < RENEWALS:
        p.wake((renewed[0] or 0) + schedule.every_ns)  # no event reports what is known beforehand
    if node.is_ready and not p.host.blind:
        if progress.ready_since_ns is None:
            progress.ready_since_ns = p.now_ns
    elif progress.ready_since_ns is not None:
        progress.ready_since_ns = None
        progress.breaks += 0 if p.host.blind else 1


def first_failing(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    """`S4: what is waited for`, of the first check that does not pass; "" where all do."""
    for name, check in CHECKS.items():
        if waiting := check(p, node, mark):
            return f"{name}: {waiting}"
    return ""


def _s1_object(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    is_other = not mark.for_ and mark.before.uid not in ("", node.uid)
    return "another object has the node's name" if is_other else ""


def _s2_lease(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    seen = p.progress(node.name, mark).renewals
    return "" if seen >= RENEWALS else f"Lease renewed {seen} of {RENEWALS} times since the work"


def _s3_target(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    targets = p.policy.target if not p.document.proof_only else ()
    unmet = (target for target in targets if not target.is_met(node, mark.before.boot_id))
    return next((f"target {target} is not met" for target in unmet), "")


def _s4_ready(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    progress = p.progress(node.name, mark)
    if progress.ready_since_ns is None:
        return why_not_ready(node) or "Ready has only begun to be watched"
    if p.is_over(progress.ready_since_ns, p.policy.ready_for_ns):
        return ""
    seconds = (p.now_ns - progress.ready_since_ns) // SECOND_NS
    return f"Ready for {seconds}s of {p.policy.ready_for_ns // SECOND_NS}s"


def why_not_ready(node: Node) -> str:
    """Why the node is not Ready; "" where it is."""
    if (ready := node.ready()) is None:
        return "there is no Ready condition"
    return "" if node.is_ready else f"Ready is {ready.status} ({ready.reason})"


def s5_conditions(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    """Pressures, and what `--require` asks for."""
    for condition in node.status.conditions:
        if condition.type in PRESSURES and condition.status == TRUE:
            return f"{condition.type} is True ({condition.reason})"
    for wanted in p.policy.require:
        type_, _, status = wanted.partition("=")
        shown = node.status.condition(type_)
        if shown is None or shown.status != status:
            return f"{type_} is {shown.status if shown else 'missing'}, not {status}"
    return ""


def _s6_taints(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    before = {(taint.key, taint.effect) for taint in mark.before.taints}
    for taint in node.spec.taints:
        keeps_off = taint.effect in (NO_SCHEDULE, NO_EXECUTE) and taint.key not in _OURS
        if keeps_off and (taint.key, taint.effect) not in before:
            return f"taint {taint} was not there before"
    return ""


def s7_daemon_pods(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    """A pod of each DaemonSet that should run here: available, and not from before a reboot."""
    by_owner: dict[str, list[Pod]] = {}
    for pod in p.cache.pods_on(node.name):
        owner = controller_of(pod.metadata)
        if owner is not None and owner.kind == "DaemonSet":
            by_owner.setdefault(owner.uid, []).append(pod)
    for daemon_set in p.ports.daemon_sets(p.cache, node):
        pods = by_owner.get(daemon_set.uid, [])
        reasons = [_why_not_up(p, node, mark, daemon_set, pod) for pod in pods]
        if "" not in reasons:
            what = f"DaemonSet {daemon_set.namespace}/{daemon_set.name}"
            return f"{what}: {reasons[0] if reasons else 'no pod here'}"
    return ""


def _why_not_up(
    p: UpgradePass, node: Node, mark: marks.NodeMark, daemon_set: DaemonSet, pod: Pod
) -> str:
    condition = pod.status.condition("Ready")
    if pod.metadata.deletion_timestamp is not None:
        return f"pod {pod.name} is terminating"
    if condition is None or condition.status != TRUE:
        return f"pod {pod.name} is not Ready"
    if daemon_set.spec.min_ready_seconds:
        since = condition.last_transition_time or p.clock_ns
        left_ns = since + daemon_set.spec.min_ready_seconds * SECOND_NS - p.clock_ns
        if left_ns > 0:
            p.wake(p.now_ns + left_ns)
            return f"pod {pod.name} is not available yet"
    before, now = mark.before.boot_id, node.status.node_info.boot_id
    if before and now != before and not mark.for_ and not _is_restarted(p, node, mark, pod):
        return f"pod {pod.name} is Ready, but was started before the reboot"
    return ""


def _is_restarted(p: UpgradePass, node: Node, mark: marks.NodeMark, pod: Pod) -> bool:
    """True if none of its containers is from before the work. A leader that did not see them goes
    by their start, and allows for two seconds between clocks.
    """
    statuses = pod.status.container_statuses or ()
    before_work = p.memory.of(node.name).containers
    if before_work is not None:
        return bool(statuses) and not any(status.container_id in before_work for status in statuses)
    began = parse_time(mark.work.started) if mark.work.started else 0
    starts = [s.state.running.started_at for s in statuses if s.state.running is not None]
    return bool(starts) and all(at is not None and at + CLOCK_DOUBT_NS > began for at in starts)


def _s8_csi(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    if mark.before.csi is None or "CSINode" in p.host.unread:
        return ""  # not evaluated
    missing = sorted(set(mark.before.csi) - set(csi_drivers(p, node) or ()))
    return f"CSI driver {missing[0]} is not registered" if missing else ""


def csi_drivers(p: UpgradePass, node: Node) -> tuple[str, ...] | None:
    """The drivers that are registered on the node; None where they were not read."""
    if "CSINode" in p.host.unread:
        return None
    csi_node = p.cache.get("CSINode", ("", node.name))
    if not isinstance(csi_node, CSINode):
        return ()
    return tuple(sorted(driver.name for driver in csi_node.spec.drivers))


def _s9_allocatable(p: UpgradePass, node: Node, mark: marks.NodeMark) -> str:
    if p.policy.allow_less:
        return ""
    for name, before in sorted(mark.before.allocatable.items()):
        now = (node.status.allocatable or {}).get(name, 0)
        is_extended = "/" in name and not name.startswith(_NOT_EXTENDED)
        kept = 100 if is_extended else 0
        kept = KEPT_PERCENT if name in _MEASURED else kept
        if parse_quantity(now) * 100 < parse_quantity(before) * kept:
            return f"allocatable {name} is {now}, before {before}"
    return ""


Check = Callable[[UpgradePass, Node, marks.NodeMark], str]
CHECKS: Final[dict[str, Check]] = {
    "S1": _s1_object,
    "S2": _s2_lease,
    "S3": _s3_target,
    "S4": _s4_ready,
    "S5": s5_conditions,
    "S6": _s6_taints,
    "S7": s7_daemon_pods,
    "S8": _s8_csi,
    "S9": _s9_allocatable,
}


def open_for_proof(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """The swap, one PATCH: cordon off if it is ours, `unproven` on, `outdated` off."""
    ours = mark.cordon is marks.CordonOwner.OURS
    missing = ours and not node.has_taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)
    p.memory.of(node.name).proof = ProofProgress(p.now_ns, missing_taint=missing)
    p.advance(
        node,
        replace(mark, cordon=marks.CordonOwner.NONE if ours else mark.cordon),
        marks.NodeEvent.SETTLED,
        "back, and all checks pass: opened for its canary",
        unschedulable=False if ours else None,
        add=(marks.unproven(mark.run),),
        remove=(marks.outdated(mark.run),),
    )


def soak(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """One pass over a node in Soaking: S2, S4, S5 and S7 must go on holding."""
    if marks.is_cordoned_meanwhile(node, mark):
        leave_cordon(p, node, mark)
        return
    progress = p.progress(node.name, mark)
    if p.clock_stands(node.name, mark):
        progress.armed_ns = p.now_ns
        return
    broken = (
        ("" if p.fleet.is_fresh(node.name) else "its Lease is no longer renewed")
        or why_not_ready(node)
        or s5_conditions(p, node, mark)
        or s7_daemon_pods(p, node, mark)
    )
    progress.waits_for = broken
    if broken:
        fail(p, node, mark, f"broke after its release: {broken}")
    elif p.is_over(progress.armed_ns, p.policy.node_soak_ns):
        by_others = mark.cordon is marks.CordonOwner.THEIRS
        because = "cordoned by others" if by_others else "in service, and nothing broke"
        p.advance(node, mark, marks.NodeEvent.SOAKED, because)
