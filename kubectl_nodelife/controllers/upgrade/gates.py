"""Gates: what holds a run for a while, and lifts by itself or by a person's word.

A gate holds claims, evictions and the start of work (`window`: claims alone), never what heals; but
`blind` holds every write. Evidence of a gate is what this leader saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.upgrade_pass import PROOF, UpgradePass
from kubectl_nodelife.controllers.upgrade.windows import closes_ns, opens_ns, parse_window
from kubectl_nodelife.engine.actions import SetGate
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_time
from kubectl_nodelife.kube.zones import zone_display

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
NORMAL: Final = "Normal"


def evaluate(p: UpgradePass) -> None:
    """Which gates hold now, with the sentence of each; a SetGate for each that changed."""
    reasons = {
        BLIND: _lingering(p, BLIND, p.view.blind) or _cold(p),
        ZONE: _lingering(p, ZONE, _zone(p)),
        DISPLACED: _displaced(p),
        PROOF: _proof(p),
        COMMAND: _command(p),
        WINDOW: _window(p),
        PAUSED: (p.document.because or "paused") if p.phase is RunPhase.PAUSED else "",
    }
    p.gates = {gate: because for gate, because in reasons.items() if because}
    tell(p)


def after_proofs(p: UpgradePass) -> None:
    """Proofs of this pass may have closed the gate, or opened it."""
    because = _proof(p)
    if because:
        p.gates[PROOF] = because
    else:
        p.gates.pop(PROOF, None)
    tell(p)


def tell(p: UpgradePass) -> None:
    """A SetGate for each gate that holds or lifts since it was last told."""
    known = p.memory.gates
    for gate in sorted(known.keys() ^ p.gates.keys()):
        because = p.gates.get(gate) or f"no longer: {known[gate]}"
        p.emit(SetGate(controller="upgrade", because=because, gate=gate, holds=gate in p.gates))
    p.memory.gates = dict(p.gates)


def holding(p: UpgradePass, *, but: frozenset[str] = frozenset()) -> str:
    """What holds evictions and the start of work: `gate: because`, "" for nothing."""
    for gate, because in p.gates.items():
        if gate not in but:
            return f"{gate}: {because}"
    return ""


HOLDS_CLAIMS_ALONE: Final = frozenset({WINDOW})


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


def _zone(p: UpgradePass) -> str:
    states = p.ports.zones.states(p.cache, p.now_ns)
    zones = {p.readings[name].zone_key for name in p.selected}
    bad = [
        f"{zone_display(z) or 'the nodes without a zone'} is {states[z]}, {p.census.down_in(z)}"
        for z in sorted(zones)
        if states.get(z, NORMAL) not in (NORMAL, "Initial")
    ]
    return ", ".join(bad)


def _displaced(p: UpgradePass) -> str:
    """More than a tenth of the pods that we evicted have no Ready replacement ten minutes after."""
    evicted = p.memory.evicted
    for key in [k for k, pod in evicted.items() if p.now_ns - pod.at_ns > EVICTED_NS]:
        del evicted[key]
    missing = list(_without_replacement(p))
    if not missing or len(missing) * 100 <= DISPLACED_PERCENT * len(evicted):
        return ""
    share = len(missing) * 100 // len(evicted)
    return (
        f"{len(missing)} of {len(evicted)} evicted pods ({share} %) have no Ready replacement"
        f" after {REPLACED_NS // MINUTE_NS} min, {missing[0]} among them"
    )


def _without_replacement(p: UpgradePass) -> Iterator[str]:
    """The pods, evicted ten minutes ago or more, in whose place no pod of their owner was Ready.

    Each Ready pod that the owner made since takes the place of one that was evicted.
    """
    taken = p.memory.replacements
    for (namespace, name), pod in p.memory.evicted.items():
        if not pod.owner_uid or pod.is_replaced:
            continue  # nobody makes it anew, or somebody has
        for other in p.cache.pods_of(pod.owner_uid):
            born = other.metadata.creation_timestamp or 0
            serves = other.ready() or other.status.phase == "Succeeded"
            if other.uid not in taken and serves and born + SECOND_NS > pod.clock_ns:
                pod.is_replaced = True
                taken.add(other.uid)
                break
        else:
            if p.is_over(pod.at_ns, REPLACED_NS):
                yield f"{namespace}/{name}"


def _proof(p: UpgradePass) -> str:
    """A proof that shows a fault which is not the node's."""
    for name, proof in sorted(p.memory.proofs.items()):
        mark = p.marks.get(name)
        if proof.fault and mark is not None and mark.state is NodeState.PROVING:
            return f"{name}: {proof.fault}"
    return ""


def _command(p: UpgradePass) -> str:
    """The `--gate` command failed; it must pass twice to lift. Not before its first end."""
    if not p.policy.gate:
        return ""
    if p.view.gate_command is None:
        return "the gate command has not ended yet"
    runs, passes = p.memory.gate_passes
    if p.view.gate_runs != runs:
        new = p.view.gate_runs - runs
        first = runs == 0 and not p.memory.gates.get(COMMAND)
        passes = 0 if p.view.gate_command else (PASSES if first else passes + new)
        p.memory.gate_passes = (p.view.gate_runs, passes)
    if p.view.gate_command:
        return p.view.gate_command
    return "" if passes >= PASSES else "the gate command passed once, and must pass twice"


def _window(p: UpgradePass) -> str:
    windows = [parse_window(text) for text in p.policy.window]
    if not windows or closes_ns(windows, p.view.clock_ns) is not None:
        return ""
    opens = opens_ns(windows, p.view.clock_ns)
    if opens is None:
        return "no maintenance window opens within two weeks"
    p.wake(p.now_ns + opens - p.view.clock_ns)
    return f"closed until {format_time(opens)}"
