"""Which checks of a node pass, told to those who only look on: `upgrade status`.

The rules are those by which the controller decides (`settling.py`, `proving.py`, `soaking.py`),
asked here in a pass over what a reader has read. What takes watching for a while (renewals of a
Lease, Ready without a break, a canary's ten seconds) is not evaluated; the leader tells of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from kubectl_nodelife.controllers.upgrade.canary import canary_of
from kubectl_nodelife.controllers.upgrade.canary_service import waits_for_endpoint
from kubectl_nodelife.controllers.upgrade.marks import (
    TAINT_UNPROVEN,
    CordonOwner,
    NodeMark,
    NodeState,
)
from kubectl_nodelife.controllers.upgrade.proving import p2_taint, p3_scheduled, p4_ready
from kubectl_nodelife.controllers.upgrade.settling import (
    CHECKS,
    is_ready,
    s5_conditions,
    s7_daemon_pods,
)
from kubectl_nodelife.controllers.upgrade.sightings import ProofSight
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.wellknown import NO_SCHEDULE

PASSED: Final = "passed"
WAITS: Final = "waits"
NOT_EVALUATED: Final = "not evaluated"
NOT_REACHED: Final = "not reached"
NOT_ASKED: Final = "not asked"
NOT_SHOWN: Final = "not shown"

SHOWS: Final = {
    "S1": "the node's object is there",
    "S2": "its kubelet renews its Lease",
    "S3": "the target is met",
    "S4": "Ready without a break",
    "S5": "no pressure, and the conditions asked for",
    "S6": "no new taint keeps pods off",
    "S7": "its daemon pods are available",
    "S8": "its CSI drivers are registered",
    "S9": "its allocatable resources are there again",
    "P1": "the taint for the proof is seen",
    "P2": "the taint of the cordon is taken off by the lifecycle controller",
    "P3": "the canary pod is scheduled to the node",
    "P4": "the canary pod is Ready, has an address and does not restart",
    "P5": "the canary's Service has its endpoint",
    "P6": "the user's own canary template passes",
    "P7": "the canary pod is deleted and goes",
}
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "S7": ("Pod", "DaemonSet"),
    "S8": ("CSINode",),
    "P3": ("Pod",),
    "P5": ("Service", "EndpointSlice"),
}
_BY_WATCHING: Final = {
    "S2": "only the leader counts renewals",
    "S4": "Ready now; only the leader sees for how long without a break",
    "P4": "Ready now; only the leader counts its ten seconds",
}


class CheckResult(NamedTuple):
    """One check of a node. `result`: passed, waits, not evaluated, not reached, not asked, not
    shown; `because`: what is waited for, or why it is so.
    """

    check: str
    result: str
    because: str = ""


def checks_of(p: UpgradePass, node: Node, mark: NodeMark, waits_for: str = "") -> list[CheckResult]:
    """The checks of the node's state, in their order; none in states without checks.

    `waits_for`: what a living leader says it waits for, as `S4: Ready for 20s of 60s`. What only
    watching tells is taken from it: the checks before that one have passed.
    """
    evaluate = _EVALUATE.get(mark.state)
    if evaluate is None:
        return []
    found = list(evaluate(p, node, mark))
    said, _, because = waits_for.partition(": ")
    names = [result.check for result in found]
    if said not in names:
        return found
    reached = names.index(said)
    for index, result in enumerate(found[: reached + 1]):
        if result.result in (NOT_EVALUATED, NOT_REACHED):
            passed = CheckResult(result.check, PASSED, "as the leader saw it")
            found[index] = passed if index < reached else CheckResult(said, WAITS, because)
    return found


def _settling(p: UpgradePass, node: Node, mark: NodeMark) -> Iterator[CheckResult]:
    for name, check in CHECKS.items():
        if name == "S2":
            yield CheckResult(name, NOT_EVALUATED, _BY_WATCHING[name])
        elif name == "S4":
            yield _by_watching(name, is_ready(node))
        else:
            yield _result(p, name, lambda check=check: check(p, node, mark))  # type: ignore[misc]


def _soaking(p: UpgradePass, node: Node, mark: NodeMark) -> Iterator[CheckResult]:
    yield CheckResult("S2", NOT_EVALUATED, _BY_WATCHING["S2"])
    yield _result(p, "S4", lambda: is_ready(node))
    yield _result(p, "S5", lambda: s5_conditions(p, node, mark))
    yield _result(p, "S7", lambda: s7_daemon_pods(p, node, mark))


def _proving(p: UpgradePass, node: Node, mark: NodeMark) -> Iterator[CheckResult]:
    """One after another: what comes after the first that does not pass is not reached."""
    goes_on = True
    for name, step in _STEPS.items():
        if not goes_on:
            yield CheckResult(name, NOT_REACHED)
            continue
        result = step(p, node, mark)
        yield result
        goes_on = result.result not in (WAITS, NOT_EVALUATED)


def _p1(p: UpgradePass, node: Node, mark: NodeMark) -> CheckResult:
    there = node.has_taint(TAINT_UNPROVEN, NO_SCHEDULE)
    return _of("P1", "" if there else f"taint {TAINT_UNPROVEN} is not there")


def _p2(p: UpgradePass, node: Node, mark: NodeMark) -> CheckResult:
    if mark.cordon is CordonOwner.THEIRS or mark.for_ or p.document.proof_only:
        return CheckResult("P2", NOT_SHOWN, "there was no cordon of ours to take off")
    return _of("P2", p2_taint(p, node, mark, ProofSight(p.now_ns)))


def _p3(p: UpgradePass, node: Node, mark: NodeMark) -> CheckResult:
    def scheduled() -> str:
        pod = canary_of(p, node)
        if pod is None:
            return "there is no canary pod"
        is_going = pod.metadata.deletion_timestamp is not None
        return "" if is_going else p3_scheduled(p, node, ProofSight(p.now_ns), pod)

    return _result(p, "P3", scheduled)


def _p4(p: UpgradePass, node: Node, mark: NodeMark) -> CheckResult:
    pod = canary_of(p, node)
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return CheckResult("P4", PASSED)
    sight = ProofSight(p.now_ns, uid=pod.uid)
    sight.restarts = sum(s.restart_count for s in pod.status.container_statuses or ())
    waiting = p4_ready(p, sight, pod)
    if sight.ready_since_ns is not None:
        return CheckResult("P4", NOT_EVALUATED, _BY_WATCHING["P4"])
    return _of("P4", waiting)


def _p5(p: UpgradePass, node: Node, mark: NodeMark) -> CheckResult:
    pod = canary_of(p, node)
    if not p.policy.canary_service:
        return CheckResult("P5", NOT_ASKED, "--canary-service is not given")
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return CheckResult("P5", PASSED)
    return _result(p, "P5", lambda: waits_for_endpoint(p, node, mark, pod))


def _p6(p: UpgradePass, node: Node, mark: NodeMark) -> CheckResult:
    if p.document.spec.get("canaryTemplate"):
        return CheckResult("P6", PASSED, "the canary pod is the user's own: see P4")
    return CheckResult("P6", NOT_ASKED, "--canary-template is not given")


def _p7(p: UpgradePass, node: Node, mark: NodeMark) -> CheckResult:
    return CheckResult("P7", WAITS, "the canary pod is terminating")


def _by_watching(name: str, waiting: str) -> CheckResult:
    if waiting:
        return CheckResult(name, WAITS, waiting)
    return CheckResult(name, NOT_EVALUATED, _BY_WATCHING[name])


def _result(p: UpgradePass, name: str, check: Callable[[], str]) -> CheckResult:
    unread = _unread(p, _NEEDS.get(name, ()))
    return CheckResult(name, NOT_EVALUATED, unread) if unread else _of(name, check())


def _of(name: str, waiting: str) -> CheckResult:
    return CheckResult(name, WAITS if waiting else PASSED, waiting)


def _unread(p: UpgradePass, kinds: tuple[str, ...]) -> str:
    missing = [kind for kind in kinds if kind in p.view.unread]
    return f"{' and '.join(missing)} could not be read" if missing else ""


_Step = Callable[[UpgradePass, Node, NodeMark], CheckResult]
_Evaluate = Callable[[UpgradePass, Node, NodeMark], Iterator[CheckResult]]
_STEPS: Final[dict[str, _Step]] = {
    "P1": _p1,
    "P2": _p2,
    "P3": _p3,
    "P4": _p4,
    "P5": _p5,
    "P6": _p6,
    "P7": _p7,
}
_EVALUATE: Final[dict[NodeState, _Evaluate]] = {
    NodeState.SETTLING: _settling,
    NodeState.PROVING: _proving,
    NodeState.SOAKING: _soaking,
}
