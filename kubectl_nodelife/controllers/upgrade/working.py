"""Working: something changes the node, and it is watched for its end, its target and its deadline.

The intent of each try is written before its deed. What a leader that comes later cannot know,
whether a command ran, is settled by the node's target, by the person's word that a second run does
no harm, or by a person.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.gates import HOLDS_CLAIMS_ALONE, holding
from kubectl_nodelife.controllers.upgrade.job_manifest import UnsafeVariable, job_manifest
from kubectl_nodelife.controllers.upgrade.marks import NodeMark, is_uncordoned
from kubectl_nodelife.controllers.upgrade.policy import WorkMode
from kubectl_nodelife.controllers.upgrade.restoring import fail, hold, update_mark
from kubectl_nodelife.controllers.upgrade.sightings import WorkSight
from kubectl_nodelife.controllers.upgrade.tries import (
    UNKNOWN,
    finish,
    has_rebooted,
    is_met,
    job_key,
    next_try,
    run_again,
    start,
    stop,
    tell_end,
    variables,
)
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import (
    CreateJob,
)
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time, parse_time
from kubectl_nodelife.kube.workload import Job

TRY_AGAIN: Final = 75
"""EX_TEMPFAIL of sysexits.h: not now, and no failure."""
FIRST_WAIT_NS: Final = MINUTE_NS
LONGEST_WAIT_NS: Final = 10 * MINUTE_NS
RUN_AGAIN: Final = f"{UNKNOWN}; run again, for that does no harm"


def work(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """One pass over a node in Working."""
    if is_uncordoned(node, mark):
        hold(p, node, mark, "uncordoned by somebody else; the work may still be running")
        return
    p.sight(node.name, mark)
    seen = p.memory.work_of(node.name, mark.try_)
    if p.document.cut_off:
        stop(p, node, mark, seen)
        hold(p, node, mark, "cut off by abort --now")
        return
    _BY_MODE[p.policy.work.mode](p, node, mark, seen)
    if not p.is_busy(node.name):
        _watch_deadline(p, node, mark, seen)


def _by_command(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    if mark.work.again:
        _after_wait(p, node, mark, seen)
        return
    if seen.begun != mark.work.started:
        _after_change_of_leader(p, node, mark, seen)
        return
    if not seen.sent:
        start(p, node, mark, seen)
        return
    report = seen.report
    if report is None or report.code is None:
        p.sight(node.name, mark).waits_for = "the work is running"
        return
    tell_end(p, node, mark, seen, report.code)
    if report.code == 0 or is_met(p, node, mark):
        finish(p, node, mark, f"the work ended with exit code {report.code}")
    elif report.code == TRY_AGAIN:
        wait_ns = min(FIRST_WAIT_NS << mark.work.waits, LONGEST_WAIT_NS)
        again = format_time(p.view.clock_ns + wait_ns)
        waiting = replace(mark.work, code=TRY_AGAIN, again=again, waits=mark.work.waits + 1)
        update_mark(p, node, replace(mark, work=waiting), f"exit code 75: again at {again}")
    else:
        why = f"exit code {report.code}" + (f": {report.message}" if report.message else "")
        next_try(p, node, mark, why)


def _after_wait(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    """Exit code 75: the same try goes on at its time."""
    if is_met(p, node, mark):
        finish(p, node, mark, "the target is met")
        return
    p.sight(node.name, mark).waits_for = f"exit code 75: again at {mark.work.again}"
    due_ns = parse_time(mark.work.again) - p.view.clock_ns
    if due_ns > 0:
        p.wake(p.now_ns + due_ns)
    else:
        run_again(p, node, mark, seen, "tried again after exit code 75")


def _after_change_of_leader(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    """The try was begun by another leader."""
    if is_met(p, node, mark):
        finish(p, node, mark, "the target is met")
    elif mark.work.code is not None:
        next_try(p, node, mark, f"exit code {mark.work.code}")
    elif p.policy.target:
        p.sight(node.name, mark).waits_for = f"{UNKNOWN}; its target is watched for"
    elif p.policy.work.rerun_safe and p.policy.work.is_known:
        run_again(p, node, mark, seen, RUN_AGAIN)
    else:
        hold(p, node, mark, UNKNOWN)


def _by_job(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    manifest = p.policy.work.manifest
    namespace, name = job_key(p, node, mark)
    job = p.cache.get("Job", (namespace, name))
    if not isinstance(job, Job):
        if manifest is None or p.is_under_way("Job", (namespace, name)):
            return
        seconds = int(p.policy.work_timeout_ns) // SECOND_NS
        told = variables(p, node, mark)
        try:
            made = job_manifest(manifest, name, p.policy.namespace, told, seconds)
        except UnsafeVariable as error:
            fail(p, node, mark, f"its Job cannot be made: {error}")
            return
        p.emit(
            CreateJob(
                controller="upgrade",
                because=f"try {mark.try_} of {p.policy.tries}",
                namespace=namespace,
                name=name,
                node=node.name,
                manifest=made,
            )
        )
        return
    ended = {c.type: c for c in job.status.conditions if c.status == "True"}
    if "Complete" in ended:
        tell_end(p, node, mark, seen, 0)
        finish(p, node, mark, f"Job {name} is complete")
    elif "Failed" in ended:
        tell_end(p, node, mark, seen, None)
        if is_met(p, node, mark) and has_rebooted(node, mark):
            finish(p, node, mark, f"Job {name} died with the reboot, and the target is met")
        else:
            next_try(p, node, mark, f"Job {name} failed: {ended['Failed'].message}")
    else:
        p.sight(node.name, mark).waits_for = f"Job {name} is running"


def _by_waiting(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    if is_met(p, node, mark):
        tell_end(p, node, mark, seen, None)
        finish(p, node, mark, "the target is met")
    else:
        targets = ", ".join(str(target) for target in p.policy.target)
        p.sight(node.name, mark).waits_for = f"target {targets}"


def _by_replacement(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    """Over when the object is gone (`gone_nodes.py`); here the command that may bring it about."""
    p.sight(node.name, mark).waits_for = "the node is to be replaced"
    if not p.policy.work.command:
        return
    if seen.begun == mark.work.started and not seen.sent:
        start(p, node, mark, seen)
    elif seen.report is not None and seen.report.code is not None:
        tell_end(p, node, mark, seen, seen.report.code)
        if seen.report.code != 0:
            next_try(p, node, mark, f"exit code {seen.report.code}")


def _by_nothing(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    finish(p, node, mark, "nothing is to be done")


_Mode = Callable[[UpgradePass, Node, NodeMark, WorkSight], None]
_BY_MODE: Final[dict[WorkMode, _Mode]] = {
    WorkMode.RUN: _by_command,
    WorkMode.JOB: _by_job,
    WorkMode.WAIT: _by_waiting,
    WorkMode.REPLACE: _by_replacement,
    WorkMode.NOTHING: _by_nothing,
}


def _watch_deadline(p: UpgradePass, node: Node, mark: NodeMark, seen: WorkSight) -> None:
    sight = p.sight(node.name, mark)
    if not p.is_over(sight.armed_ns, p.policy.work_timeout_ns):
        return
    stop(p, node, mark, seen)
    if p.policy.work.mode is not WorkMode.REPLACE and is_met(p, node, mark):
        finish(p, node, mark, "the target is met")
        return
    gate = holding(p, but=HOLDS_CLAIMS_ALONE)
    by_command = p.policy.work.mode is WorkMode.RUN and not mark.work.again
    if by_command and seen.begun != mark.work.started and mark.work.code is None:
        if p.policy.work.rerun_safe and p.policy.work.is_known and not (gate or p.is_aborting):
            run_again(p, node, mark, seen, RUN_AGAIN, new_clock=True)
        else:
            hold(p, node, mark, UNKNOWN)
    elif gate:
        fail(p, node, mark, f"the work did not end in time ({sight.waits_for})")
    else:
        next_try(p, node, mark, "it did not end in time")
