"""Carries out people's requests: pause, resume, abort; and for single nodes retry, skip and so on.

A request stands on the run's Lease and is struck off in the PATCH that records its effect. What is
asked for a node is written into the document, and stays there until it is done.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claiming import control_plane_in_flight
from kubectl_nodelife.controllers.upgrade.document import (
    ALL,
    OVER,
    Ask,
    RunPhase,
    UnreadableDocument,
    UpgradeRequest,
    Verb,
    request_on,
)
from kubectl_nodelife.controllers.upgrade.leaving import take_marks_off
from kubectl_nodelife.controllers.upgrade.marks import (
    LEFT_TO_A_PERSON,
    CordonOwner,
    NodeEvent,
    NodeMark,
    WorkMark,
)
from kubectl_nodelife.controllers.upgrade.newcomers import named
from kubectl_nodelife.controllers.upgrade.policy import node_info
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node


def take(p: UpgradePass) -> None:
    """Take the request on the Lease into the document."""
    try:
        request = request_on(p.lease)
    except UnreadableDocument:
        p.strikes_request = True  # of no version of ours: its meaning is unknown
        return
    if request is None or p.phase in OVER:
        p.strikes_request = request is not None
        return
    p.strikes_request = True
    if request.verb is Verb.PAUSE:
        if p.phase is RunPhase.RUNNING:
            because = request.because or f"paused by {request.by or 'a person'}"
            p.edit(phase=RunPhase.PAUSED, because=because)
    elif request.verb is Verb.ABORT:
        because = request.because or f"aborted by {request.by or 'a person'}"
        p.edit(phase=RunPhase.ABORTING, because=because, cut_off=p.next.cut_off or request.now)
    elif p.phase is not RunPhase.ABORTING:
        _resume(p, request)


def asks_to_stop(p: UpgradePass) -> bool:
    """True if a person asks that the run be paused or aborted."""
    try:
        request = request_on(p.lease)
    except UnreadableDocument:
        return False
    return request is not None and request.verb in (Verb.PAUSE, Verb.ABORT)


def _resume(p: UpgradePass, request: UpgradeRequest) -> None:
    """Ends a pause, forgives the failures so far, and notes what is asked for single nodes."""
    asked = dict(p.next.asked)
    left = sorted(name for name, mark in p.marks.items() if mark.state in LEFT_TO_A_PERSON)
    given_back = dict(p.next.given_back)
    for names, ask in (
        (request.retry, Ask.RETRY),
        (request.assume_done, Ask.ASSUME_DONE),
        (request.skip, Ask.SKIP),
    ):
        for name in _meant(names, left):
            asked[name] = ask
    for name in given_back.keys() & set(_meant(request.retry, sorted(given_back))):
        del given_back[name]
        if name not in left:
            asked.pop(name, None)
    p.edit(
        phase=RunPhase.RUNNING,
        because="",
        failed=(),
        asked=asked,
        given_back=given_back,
        base_counts=p.fleet.base_counts() if request.rebase else p.next.base_counts,
    )
    p.memory.hands_off.clear()
    p.memory.failing.clear()
    p.memory.tail = None
    p.memory.roomless.clear()


def _meant(names: Iterable[str], all_names: list[str]) -> list[str]:
    return all_names if ALL in names else list(names)


def do_asked(p: UpgradePass) -> None:
    """Do for each node what was asked, and strike it off once that is seen."""
    asked = dict(p.next.asked)
    for name, ask in p.document.asked.items():
        node, mark = p.nodes.get(name), p.marks.get(name)
        if ask is Ask.SKIP and name in p.next.step.nodes and (node is None or mark is None):
            nodes = {n: e for n, e in p.next.step.nodes.items() if n != name}
            p.edit(step=replace(p.next.step, nodes=nodes))
        if ask is Ask.SKIP and name not in p.next.given_back:
            p.edit(given_back={**p.next.given_back, name: "skipped by a person"})
            continue
        if node is None or mark is None or mark.state not in LEFT_TO_A_PERSON:
            asked.pop(name, None)
        elif not p.is_busy(name):
            _DO[ask](p, node, mark)
    if asked != p.next.asked:
        p.edit(asked=asked)


def _retry(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """Claim anew; a slot where it is available, and not while its work still runs."""
    seen = p.memory.work_of(node.name, mark.try_)
    if seen.sent and (seen.report is None or seen.report.code is None):
        p.holds[node.name] = ("work", "its work still runs")
        return
    hold = p.fleet.counts.hold(node.name) or control_plane_in_flight(p, node)
    if hold or p.gates or p.phase is not RunPhase.RUNNING:
        p.holds[node.name] = ("slots", hold) if hold else next(iter(p.gates.items()), ("phase", ""))
        return
    if node.name not in p.document.step.nodes:
        nodes = {**p.next.step.nodes, node.name: named(p, node)}
        p.edit(step=replace(p.next.step, nodes=nodes))
        return
    p.fleet.claim(node.name)
    p.claimed.append(node.name)
    cordons = not node.spec.unschedulable
    info = node_info(node)
    before = replace(mark.before, uid=node.uid, boot_id=info.get("bootID", ""), node_info=info)
    again = replace(
        mark,
        claimed=p.stamp,
        try_=1,
        work=WorkMark(),
        before=before,
        cordon=CordonOwner.OURS if cordons else mark.cordon,
    )
    p.memory.forget(node.name)
    p.advance(
        node,
        again,
        NodeEvent.RETRIED,
        "claimed anew, as a person asked",
        unschedulable=True if cordons else None,
    )


def _assume_done(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    """The work counts as done: only the proof is still to come."""
    p.memory.forget(node.name)
    p.advance(node, mark, NodeEvent.ASSUMED_DONE, "the work counts as done, as a person said")


def _skip(p: UpgradePass, node: Node, mark: NodeMark) -> None:
    take_marks_off(p, node, mark, NodeEvent.SKIPPED, "skipped, as a person asked")


_DO = {Ask.RETRY: _retry, Ask.ASSUME_DONE: _assume_done, Ask.SKIP: _skip}
