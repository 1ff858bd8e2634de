"""The tries of a node's work: the intent is written first, the deed follows once that is seen."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.canary import short_hash
from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.gates import HOLDS_CLAIMS_ALONE, holding
from kubectl_nodelife.controllers.upgrade.marks import NodeMark, NodeState, WorkMark
from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.controllers.upgrade.restoring import fail, update_mark
from kubectl_nodelife.controllers.upgrade.selection import pool_name, zone_name
from kubectl_nodelife.controllers.upgrade.sightings import WorkSight
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import (
    DeleteJob,
    StartWork,
    StopWork,
    WorkDone,
)
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import Job

UNKNOWN: Final = "unknown whether it ran"


def run_again(
    p: UpgradePass,
    node: Node,
    mark: NodeMark,
    seen: WorkSight,
    because: str,
    *,
    new_clock: bool = False,
) -> None:
    """The same try once more: written first, begun once that is seen.

    `new_clock`: it has the whole time of a try. Only a leader's death asks for that, so that it
    costs no try; after exit code 75 the try's clock goes on.
    """
    gate = holding(p, but=HOLDS_CLAIMS_ALONE)
    if p.policy.work.is_known and not gate and not p.is_aborting:
        intend(seen, p.stamp)
        fresh = replace(mark.work, started=p.stamp, code=None, again="")
        again = p.entered(mark, mark.state) if new_clock else mark
        update_mark(p, node, replace(again, work=fresh), because)


def intend(seen: WorkSight, stamp: str) -> None:
    """This leader writes an intent, with that stamp, and knows nothing of its deed yet."""
    seen.begun, seen.sent, seen.report, seen.told = stamp, False, None, False


def start(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    """The deed: the command begins on the leader's machine."""
    seen.sent = True
    sight = p.sight(node.name, mark)
    if p.is_over(sight.armed_ns, p.policy.work_timeout_ns):
        sight.armed_ns = p.now_ns  # no command begins with its time over already
    seconds = int(p.policy.work_timeout_ns) // SECOND_NS
    p.emit(
        StartWork(
            controller="upgrade",
            because=f"try {mark.try_} of {p.policy.tries}",
            node=node.name,
            node_uid=node.uid,
            try_=mark.try_,
            mode=p.policy.work.mode,
            env=variables(p, node, mark),
            timeout_seconds=seconds,
        )
    )


def variables(p: UpgradePass, node: Node, mark: NodeMark) -> dict[str, str]:
    """What the work is told of its node."""
    addresses = {a.type: a.address for a in reversed(node.status.addresses)}
    return {
        "NODE": node.name,
        "NODE_UID": node.uid,
        "PROVIDER_ID": node.spec.provider_id,
        "INTERNAL_IP": addresses.get("InternalIP", ""),
        "POOL": pool_name(node, p.policy),
        "ZONE": zone_name(node),
        "RUN": mark.run,
        "TRY": str(mark.try_),
        "TARGET": ",".join(str(target) for target in p.policy.target),
    }


def job_key(p: UpgradePass, node: Node, mark: NodeMark) -> tuple[str, str]:
    """(namespace, name) of the Job of this try."""
    meta = (p.policy.work.manifest or {}).get("metadata") or {}
    name = f"nodelife-{mark.run}-{short_hash(node.uid)}-{mark.try_}"
    return meta.get("namespace") or p.policy.namespace, name


def _delete_job(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    key = job_key(p, node, mark)
    job = p.cache.get("Job", key)
    if isinstance(job, Job) and not p.is_under_way("Job", key):
        p.delete(DeleteJob, job, "its time is over", node.name)


def finish(p: UpgradePass, node: Node, mark: NodeMark, because: str) -> None:
    """The work is done: what it did is checked from here on."""
    ended = replace(mark.work, again="", ended=p.stamp)
    p.change(node, p.entered(mark, NodeState.SETTLING, work=ended), because, was=mark.state)


def begin(p: UpgradePass, node: Node, mark: NodeMark, because: str) -> None:
    """The first try: the intent is written; the deed follows once it is seen."""
    intend(p.memory.work_of(node.name, 1), p.stamp)
    started = p.entered(mark, NodeState.WORKING, work=WorkMark(started=p.stamp), try_=1)
    p.change(node, started, because, was=mark.state)


def next_try(p: UpgradePass, node: Node, mark: NodeMark, why: str) -> None:
    """A try failed: the next one, written first; none is left: Failed."""
    if mark.try_ >= p.policy.tries or p.phase is RunPhase.ABORTING:
        fail(p, node, mark, f"the work failed: {why}")
        return
    gate = holding(p, but=HOLDS_CLAIMS_ALONE)
    if gate or not p.policy.work.is_known:
        p.sight(node.name, mark).waits_for = f"{why}; the next try waits for {gate or 'a resume'}"
        return
    number = mark.try_ + 1
    intend(p.memory.work_of(node.name, number), p.stamp)
    again = p.entered(mark, NodeState.WORKING, try_=number, work=WorkMark(started=p.stamp))
    p.change(node, again, f"{why}; try {number} of {p.policy.tries}", was=mark.state)


def stop(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    """End what may still run: the process group, or the Job with its pods."""
    if p.policy.work.mode is WorkMode.JOB:
        _delete_job(p, node, mark)
    if seen.sent and (seen.report is None or seen.report.code is None):
        p.emit(
            StopWork(
                controller="upgrade",
                because="its time is over",
                node=node.name,
                node_uid=node.uid,
                try_=mark.try_,
            )
        )


def tell_end(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight, code: int | None) -> None:
    """A record of the work's end, once a try."""
    if not seen.told:
        seen.told = True
        p.emit(
            WorkDone(
                controller="upgrade",
                because="the work ended",
                node=node.name,
                node_uid=node.uid,
                try_=mark.try_,
                code=code,
            )
        )


def is_met(p: UpgradePass, node: Node, mark: NodeMark) -> bool:
    """Whether the node shows every target; False where there is none."""
    return p.policy.is_target_met(node, mark.before.boot_id)


def has_rebooted(node: Node, mark: NodeMark) -> bool:
    """Whether the bootID is another than at the claim."""
    now, before = node.status.node_info.boot_id, mark.before.boot_id
    return bool(now and before) and now != before
