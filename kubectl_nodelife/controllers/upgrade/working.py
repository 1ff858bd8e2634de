"""Working: something changes the node, and it is watched for its end, its target and its deadline.

The intent of each try is written first, and the work begins once the cluster shows it. Whether a
command ran, which a leader that comes later cannot know, is settled by the node's target, by the
person's word that a second run does no harm, or by a person.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade import manifests, marks
from kubectl_nodelife.controllers.upgrade.gates import closed_gate
from kubectl_nodelife.controllers.upgrade.leaving import fail, hold
from kubectl_nodelife.controllers.upgrade.memory import WorkProgress
from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import StartWork, StopWork, WorkDone, of_node
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.workload import Job

UNKNOWN: Final = "unknown whether it ran"
RUN_AGAIN: Final = f"{UNKNOWN}; run again, for that does no harm"


def run_again(p: UpgradePass, node: Node, mark: marks.NodeMark, *, new_clock: bool = False) -> None:
    """The same try once more, since that does no harm: written first, begun once that is seen. It
    is for a leader's death, and costs no try. `new_clock`: it has the whole time of a try.
    """
    if not closed_gate(p) and not p.is_aborting:
        p.memory.intend(node.name, mark.try_, p.stamp)
        fresh = replace(mark.work, started=p.stamp)
        again = p.entered(mark, mark.state) if new_clock else mark
        p.update_mark(node, replace(again, work=fresh), RUN_AGAIN)


def start(p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress) -> None:
    """The command begins on the leader's machine."""
    seen.sent, seen.code = True, None
    progress = p.progress(node.name, mark)
    if p.is_over(progress.armed_ns, p.policy.work_timeout_ns):
        progress.armed_ns = p.now_ns  # no command begins with its time over already
    variables = manifests.work_variables(p, node, mark)
    withheld = (f"; {name} is not given: {why}" for name, why in variables.withheld.items())
    because, mode = f"try {mark.try_} of {p.policy.tries}{''.join(withheld)}", p.policy.work.mode
    env = variables.values
    p.decide(StartWork, because, **of_node(node), try_=mark.try_, mode=mode, env=env)


def job_key(p: UpgradePass, node: Node, mark: marks.NodeMark) -> tuple[str, str]:
    """(namespace, name) of the Job of this try."""
    meta = (p.policy.work.manifest or {}).get("metadata") or {}
    name = f"nodelife-{mark.run}-{manifests.short_hash(node.uid)}-{mark.try_}"
    return meta.get("namespace") or p.policy.namespace, name


def _is_for(job: Job, node: Node, mark: marks.NodeMark) -> bool:
    """True if the run made the Job for the node. Others that may make Jobs can guess its name."""
    ours = (job.metadata.labels or {}).get(marks.LABEL_RUN) == mark.run
    return ours and any(owner.uid == node.uid for owner in job.metadata.owner_references)


def work_done(p: UpgradePass, node: Node, mark: marks.NodeMark, because: str) -> None:
    """The work is done: what it did is checked from here on."""
    ended = replace(mark.work, ended=p.stamp)
    p.advance(node, replace(mark, work=ended), marks.NodeEvent.WORK_DONE, because)


def begin(p: UpgradePass, node: Node, mark: marks.NodeMark, because: str) -> None:
    """The first try: the intent is written; the work begins once it is seen."""
    p.memory.intend(node.name, 1, p.stamp)
    started = replace(mark, work=marks.WorkMark(started=p.stamp), try_=1)
    p.advance(node, started, marks.NodeEvent.DRAINED, because)


def next_try(p: UpgradePass, node: Node, mark: marks.NodeMark, why: str) -> None:
    """A try failed: the next one, written first; none is left: Failed."""
    if mark.try_ >= p.policy.tries or p.is_aborting:
        fail(p, node, mark, f"the work failed: {why}")
        return
    if gate := closed_gate(p):
        p.progress(node.name, mark).waits_for = f"{why}; the next try waits for {gate}"
        return
    number = mark.try_ + 1
    p.memory.intend(node.name, number, p.stamp)
    again = replace(mark, try_=number, work=marks.WorkMark(started=p.stamp))
    p.advance(node, again, marks.NodeEvent.TRY_FAILED, f"{why}; try {number} of {p.policy.tries}")


def stop(p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress) -> None:
    """End what may still run: the process group, or the Job with its pods."""
    if p.policy.work.mode is WorkMode.JOB:
        job = p.cache.get("Job", job_key(p, node, mark))
        if isinstance(job, Job) and _is_for(job, node, mark):
            p.delete(job, "its time is over", node.name)
    if seen.runs:
        p.decide(StopWork, "its time is over", **of_node(node), try_=mark.try_)


def record_end(
    p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress, code: int | None
) -> None:
    """A record of the work's end, once a try."""
    if not seen.reported:
        seen.reported = True
        p.decide(WorkDone, "the work ended", **of_node(node), try_=mark.try_, code=code)


def is_met(p: UpgradePass, node: Node, mark: marks.NodeMark) -> bool:
    """True if the node shows every target; False where there is none."""
    return p.policy.is_target_met(node, mark.before.boot_id)


def work(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """One pass over a node in Working."""
    if marks.is_uncordoned(node, mark):
        hold(p, node, mark, "uncordoned by another client; the work may still be running")
        return
    p.progress(node.name, mark)
    seen = p.memory.work_of(node.name, mark.try_)
    if p.document.cut_off:
        stop(p, node, mark, seen)
        hold(p, node, mark, "cut off by abort --now")
        return
    _BY_MODE[p.policy.work.mode](p, node, mark, seen)
    if not p.is_busy(node.name):
        _watch_deadline(p, node, mark, seen)


def _by_command(p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress) -> None:
    if seen.begun != mark.work.started:
        _after_change_of_leader(p, node, mark)
        return
    if not seen.sent:
        start(p, node, mark, seen)
        return
    if seen.code is None:
        p.progress(node.name, mark).waits_for = "the work is running"
        return
    record_end(p, node, mark, seen, seen.code)
    if seen.code == 0 or is_met(p, node, mark):
        work_done(p, node, mark, f"the work ended with exit code {seen.code}")
    else:
        next_try(p, node, mark, f"exit code {seen.code}")


def _after_change_of_leader(p: UpgradePass, node: Node, mark: marks.NodeMark) -> None:
    """The try was begun by another leader."""
    if is_met(p, node, mark):
        work_done(p, node, mark, "the target is met")
    elif p.policy.target:
        p.progress(node.name, mark).waits_for = f"{UNKNOWN}; its target is watched for"
    elif p.policy.work.rerun_safe:
        run_again(p, node, mark)
    else:
        hold(p, node, mark, UNKNOWN)


def _by_job(p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress) -> None:
    namespace, name = job_key(p, node, mark)
    job = p.cache.get("Job", (namespace, name))
    if not isinstance(job, Job):
        if p.policy.work.manifest is not None and not p.is_under_way("Job", (namespace, name)):
            _create_job(p, node, mark, p.policy.work.manifest)
        return
    if not _is_for(job, node, mark):
        hold(p, node, mark, f"Job {namespace}/{name} was made by another client")
        return
    ended = {c.type: c for c in job.status.conditions if c.status == "True"}
    if "Complete" in ended:
        record_end(p, node, mark, seen, 0)
        work_done(p, node, mark, f"Job {name} is complete")
    elif "Failed" in ended:
        record_end(p, node, mark, seen, None)
        now, before = node.status.node_info.boot_id, mark.before.boot_id
        if is_met(p, node, mark) and now and before and now != before:
            work_done(p, node, mark, f"Job {name} died with the reboot, and the target is met")
        else:
            next_try(p, node, mark, f"Job {name} failed: {ended['Failed'].message}")
    else:
        p.progress(node.name, mark).waits_for = f"Job {name} is running"


def _create_job(
    p: UpgradePass, node: Node, mark: marks.NodeMark, manifest: manifests.Manifest
) -> None:
    seconds = p.policy.work_timeout_ns // SECOND_NS
    variables, key = manifests.work_variables(p, node, mark), job_key(p, node, mark)
    try:
        job = manifests.job_manifest(manifest, *key, variables, seconds)
    except manifests.UnsafeVariable as error:
        fail(p, node, mark, f"its Job cannot be made: {error}")
    else:
        p.create("Job", key, node, job, f"try {mark.try_} of {p.policy.tries}")


def _by_waiting(p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress) -> None:
    if is_met(p, node, mark):
        record_end(p, node, mark, seen, None)
        work_done(p, node, mark, "the target is met")
    else:
        targets = ", ".join(str(target) for target in p.policy.target)
        p.progress(node.name, mark).waits_for = f"target {targets}"


def _by_replacement(p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress) -> None:
    """Over when the object is gone (`newcomers.py`); here the command for it."""
    p.progress(node.name, mark).waits_for = "the node is to be replaced"
    if not p.policy.work.command:
        return
    if seen.begun == mark.work.started and not seen.sent:
        start(p, node, mark, seen)
    elif seen.code is not None:
        record_end(p, node, mark, seen, seen.code)
        if seen.code != 0:
            next_try(p, node, mark, f"exit code {seen.code}")


_Mode = Callable[[UpgradePass, Node, marks.NodeMark, WorkProgress], None]
_BY_MODE: Final[dict[WorkMode, _Mode]] = {
    WorkMode.RUN: _by_command,
    WorkMode.JOB: _by_job,
    WorkMode.WAIT: _by_waiting,
    WorkMode.REPLACE: _by_replacement,
    WorkMode.NOTHING: lambda p, node, mark, seen: work_done(p, node, mark, "nothing is to be done"),
}


def _watch_deadline(p: UpgradePass, node: Node, mark: marks.NodeMark, seen: WorkProgress) -> None:
    progress, mode, gate = p.progress(node.name, mark), p.policy.work.mode, closed_gate(p)
    if not p.is_over(progress.armed_ns, p.policy.work_timeout_ns):
        return
    stop(p, node, mark, seen)
    if mode is not WorkMode.REPLACE and is_met(p, node, mark):
        work_done(p, node, mark, "the target is met")
    elif mode is WorkMode.RUN and seen.begun != mark.work.started:
        if p.policy.work.rerun_safe and not (gate or p.is_aborting):
            run_again(p, node, mark, new_clock=True)
        else:
            hold(p, node, mark, UNKNOWN)
    elif gate:
        fail(p, node, mark, f"the work did not end in time ({progress.waits_for})")
    else:
        next_try(p, node, mark, "it did not end in time")
