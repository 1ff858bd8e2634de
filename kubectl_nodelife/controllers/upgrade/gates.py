"""Gates: what holds a run for a while, and lifts by itself or by a person's word.

A gate holds claims, evictions and the start of work (`window`: claims alone), never what heals; but
`blind` holds every write. Evidence of a gate is what this leader saw.
"""

from __future__ import annotations

from operator import is_
from typing import Final

from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.fleet import NORMAL
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.memory import EvictedPod
from kubectl_nodelife.controllers.upgrade.policy import closes_ns, opens_ns
from kubectl_nodelife.controllers.upgrade.upgrade_pass import PROOF, UpgradePass
from kubectl_nodelife.engine.actions import SetGate
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import zone_display
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time

BLIND: Final = "blind"
ZONE: Final = "zone"
DISPLACED: Final = "displaced"
COMMAND: Final = "command"
WINDOW: Final = "window"
PAUSED: Final = "paused"

CLEAR_NS: Final = 60 * SECOND_NS
"""So long `blind` and `zone` must have had no reason before they lift."""
EVICTED_NS: Final = 30 * MINUTE_NS
REPLACED_NS: Final = 10 * MINUTE_NS
DISPLACED_PERCENT: Final = 10
PASSES: Final = 2


def evaluate(p: UpgradePass) -> None:
    """Which gates hold now, with the sentence of each; a SetGate for each that changed."""
    reasons = {
        BLIND: _lingering(p, BLIND, p.host.blind) or _cold(p),
        ZONE: _lingering(p, ZONE, _zone(p)),
        DISPLACED: _displaced(p),
        PROOF: _proof(p),
        COMMAND: _command(p),
        WINDOW: _window(p),
        PAUSED: (p.document.because or "paused") if p.phase is RunPhase.PAUSED else "",
    }
    p.gates = {gate: because for gate, because in reasons.items() if because}
    _report_changes(p)


def after_proofs(p: UpgradePass) -> None:
    """Proofs of this pass may have closed the gate, or opened it."""
    if because := _proof(p):
        p.gates[PROOF] = because
    else:
        p.gates.pop(PROOF, None)
    _report_changes(p)


def _report_changes(p: UpgradePass) -> None:
    """A SetGate for each gate that holds or lifts since it was last reported."""
    reported = p.memory.gates
    for gate in sorted(reported.keys() ^ p.gates.keys()):
        because = p.gates.get(gate) or f"no longer: {reported[gate]}"
        p.decide(SetGate, because, gate=gate, holds=gate in p.gates)
    p.memory.gates = dict(p.gates)


def closed_gate(p: UpgradePass) -> str:
    """The gate, and why, that holds evictions and the start of work; "" for none."""
    closed = (f"{gate}: {because}" for gate, because in p.gates.items() if gate != WINDOW)
    return next(closed, "")


def _lingering(p: UpgradePass, gate: str, because: str) -> str:
    """The reason, or for a while after the last one that there was one."""
    clear = p.memory.gate_clear_ns
    if because:
        clear[gate] = p.now_ns
        return because
    last = clear.get(gate)
    if last is None or p.is_over(last, CLEAR_NS):
        return ""
    return f"lifts after {CLEAR_NS // SECOND_NS}s without a reason"


def _cold(p: UpgradePass) -> str:
    if p.is_over(p.memory.began_ns, p.ports.grace_period_ns):
        return ""
    seconds = p.ports.grace_period_ns // SECOND_NS
    return f"this leader has watched for less than one grace period ({seconds}s)"


def is_merely_cold(p: UpgradePass) -> bool:
    """True if all is seen, and only the leader's first grace period is not over."""
    return not _lingering(p, BLIND, p.host.blind)


def _zone(p: UpgradePass) -> str:
    states = p.fleet.zone_states()
    sick = [zone for zone, state in states.items() if state not in (NORMAL, "Initial")]
    if not sick:
        return ""
    zones = {p.readings[name].zone_key for name in p.selected}
    return ", ".join(
        f"{zone_display(z) or 'the nodes without a zone'} is {states[z]}, {p.fleet.down_in(z)}"
        f"{failed_and_down(p, z)}"
        for z in sorted(zones.intersection(sick))
    )


def failed_and_down(p: UpgradePass, zone_key: str) -> str:
    """Which nodes of the zone the run has Failed and are not Ready, and how to go on; "" for none.

    They hold their zone until they are repaired or gone: no word of a person makes them well.
    """
    failed = ((name, p.readings[name]) for name in p.names_in(NodeState.FAILED))
    names = [name for name, node in failed if node.is_down and node.zone_key == zone_key]
    if not names:
        return ""
    shown, them = first_names(names, 3), "it" if len(names) == 1 else "them"
    return (
        f" ({shown} Failed and not Ready: repair {them} and `upgrade resume --retry all`, or delete"
        f" {them} and `upgrade resume --rebase`)"
    )


def _displaced(p: UpgradePass) -> str:
    """More than a tenth of the pods that we evicted have no Ready replacement ten minutes after."""
    late_ns, known = p.now_ns - EVICTED_NS, p.memory.evicted
    evicted = p.memory.evicted = {key: pod for key, pod in known.items() if pod.at_ns >= late_ns}
    missing = _without_replacement(p)
    if not missing or len(missing) * 100 <= DISPLACED_PERCENT * len(evicted):
        return ""
    share = len(missing) * 100 // len(evicted)
    return (
        f"{len(missing)} of {len(evicted)} evicted pods ({share} %) have no Ready replacement"
        f" after {REPLACED_NS // MINUTE_NS} min, {missing[0]} among them"
    )


def _without_replacement(p: UpgradePass) -> list[str]:
    """The pods, evicted ten minutes ago or more, in whose place no pod of their owner was Ready.
    Each Ready pod that the owner made since takes the place of one that was evicted.
    """
    missing = []
    owners = {pod.owner_uid for pod in p.memory.evicted.values() if pod.owner_uid}
    pods_of = {uid: p.cache.pods_of(uid) for uid in owners}
    for key, pod in p.memory.evicted.items():
        if not pod.owner_uid:
            continue
        if _is_replaced(p, pod, pods_of[pod.owner_uid]):
            pod.owner_uid = ""
        elif p.is_over(pod.at_ns, REPLACED_NS):
            missing.append("/".join(key))
    return missing


def _is_replaced(p: UpgradePass, pod: EvictedPod, others: list[Pod]) -> bool:
    """True if one of the owner's pods takes its place; asked again when one of them has changed."""
    seen = pod.others
    if len(seen) == len(others) and all(map(is_, seen, others)):
        return False
    pod.others, taken = others, p.memory.replacements
    for other in others:
        born = other.metadata.creation_timestamp or 0
        if born + SECOND_NS <= pod.clock_ns or other.uid in taken:
            continue
        if other.ready() or other.status.phase == "Succeeded":
            taken.add(other.uid)
            return True
    return False


def _proof(p: UpgradePass) -> str:
    """A proof that shows a fault which is not the node's."""
    for name in p.names_in(NodeState.PROVING):
        proof = p.memory.of(name).proof
        if proof is not None and proof.fault:
            return f"{name}: {proof.fault}"
    return ""


def _command(p: UpgradePass) -> str:
    """The `--gate` command failed; it must pass twice to lift. Not before its first end."""
    if not p.policy.gate:
        return ""
    if p.host.gate_command is None:
        return "the gate command has not ended yet"
    runs, passes = p.memory.gate_passes
    if p.host.gate_runs != runs:
        new = p.host.gate_runs - runs
        first = runs == 0 and not p.memory.gates.get(COMMAND)
        passes = 0 if p.host.gate_command else (PASSES if first else passes + new)
        p.memory.gate_passes = (p.host.gate_runs, passes)
    if p.host.gate_command:
        return p.host.gate_command
    return "" if passes >= PASSES else "the gate command passed once, and must pass twice"


def _window(p: UpgradePass) -> str:
    windows = p.policy.window
    if not windows or closes_ns(windows, p.clock_ns) is not None:
        return ""
    if (opens := opens_ns(windows, p.clock_ns)) is None:
        return "no maintenance window opens within two weeks"
    p.wake(p.now_ns + opens - p.clock_ns)
    return f"closed until {format_time(opens)}"
