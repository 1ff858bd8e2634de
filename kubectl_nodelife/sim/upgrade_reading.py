"""A scenario's events about upgrades, and how they are read.

`upgrade` begins a run: its policy is that of `upgrade start`, and `work` says what the work on a
node does to its machine and how long it takes. `upgradeCommand` is a command that a user runs
meanwhile, or the end of the leader's process.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, WorkMode, policy_from
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.sim.fields import (
    FieldPath,
    count,
    duration_ns,
    mapping,
    one_of,
    sequence,
    text,
    texts,
)

REBOOT, KUBELET, REPLACE = "reboot", "kubelet", "replace"
NEVER_RETURNS, NO_EFFECT, FLAPS, NO_NETWORK = "never-returns", "no-effect", "flaps", "cni"
NO_DRIVERS, LESS_GPU = "no-csi", "less-gpu"
CANARY_HANGS, DRAIN_NEVER = "canary-hangs", "drain-never"
FAULTS = (
    NEVER_RETURNS,
    NO_EFFECT,
    FLAPS,
    NO_NETWORK,
    NO_DRIVERS,
    LESS_GPU,
    CANARY_HANGS,
    DRAIN_NEVER,
)
COMMANDS = ("pause", "resume", "abort", "leader-dies")

_DURATIONS = {
    "duration": "duration_ns",
    "jitter": "jitter_ns",
    "down": "down_ns",
    "daemonPods": "daemon_pods_ns",
}
_WORK_FIELDS = ("mode", "kubeletVersion", "seed", *_DURATIONS)


class WorkAssumptions(msgspec.Struct, frozen=True):
    """The assumed work on a node, in ns: it lasts `duration_ns`, plus or minus `jitter_ns`.

    `reboot`: the machine is down for the last `down_ns` of it. `kubelet`: it ends with an exchanged
    kubelet, of `kubelet_version`, that of the target, or the next minor version. `replace`: another
    node comes so long after this one went. `daemon_pods_ns`: how long after the machine's return
    its pods are Ready.
    """

    mode: str = REBOOT
    duration_ns: int = 8 * MINUTE_NS
    jitter_ns: int = 0
    down_ns: int = 3 * MINUTE_NS
    daemon_pods_ns: int = 20 * SECOND_NS
    kubelet_version: str = ""
    seed: int = 0


class WorkFault(msgspec.Struct, frozen=True):
    """A fault of the work on some nodes, the first `times` times; 0: always."""

    nodes: tuple[str, ...]
    how: str
    times: int = 0


class UpgradeEvent(msgspec.Struct, frozen=True):
    """A user runs `upgrade start`."""

    policy: UpgradePolicy
    work: WorkAssumptions = WorkAssumptions()
    faults: tuple[WorkFault, ...] = ()


class UpgradeCommandEvent(msgspec.Struct, frozen=True):
    """A user runs `upgrade pause`, `resume` or `abort`; or the leader's process dies."""

    command: str


def read_upgrade(value: Any, at: FieldPath) -> UpgradeEvent:
    """The event `upgrade`. Raises BadInput."""
    upgrade = mapping(value, at, ("selector", "nodes", "policy", "work", "faults"))
    work = _read_work(upgrade.get("work", {}), at.key("work"))
    place = at.key("policy")
    given = dict(mapping(upgrade.get("policy", {}), place))
    if "selector" in upgrade:
        given["selector"] = text(upgrade["selector"], at.key("selector"))
    if "nodes" in upgrade:
        given["nodes"] = list(texts(upgrade["nodes"], at.key("nodes")))
    if not given.get("selector") and not given.get("nodes"):
        raise at.fault("names no nodes", "give selector or nodes")
    mode = WorkMode.REPLACE if work.mode == REPLACE else WorkMode.RUN
    given.setdefault("work", {"mode": mode.value, "command": "" if work.mode == REPLACE else "-"})
    try:
        policy = policy_from(given)
    except BadInput as error:
        raise place.fault(str(error)) from None
    faults = tuple(
        _read_fault(item, at.key("faults").item(i))
        for i, item in enumerate(sequence(upgrade.get("faults", []), at.key("faults")))
    )
    return UpgradeEvent(policy, work, faults)


def read_upgrade_command(value: Any, at: FieldPath) -> UpgradeCommandEvent:
    """The event `upgradeCommand`. Raises BadInput."""
    return UpgradeCommandEvent(one_of(value, at, COMMANDS))


def _read_work(value: Any, at: FieldPath) -> WorkAssumptions:
    work = mapping(value, at, _WORK_FIELDS)
    given: dict[str, Any] = {}
    if "mode" in work:
        given["mode"] = one_of(work["mode"], at.key("mode"), (REBOOT, KUBELET, REPLACE))
    if "kubeletVersion" in work:
        given["kubelet_version"] = text(work["kubeletVersion"], at.key("kubeletVersion"))
    if "seed" in work:
        given["seed"] = count(work["seed"], at.key("seed"), most=(1 << 48) - 1)
    for key, field in _DURATIONS.items():
        if key in work:
            given[field] = duration_ns(work[key], at.key(key))
    return WorkAssumptions(**given)


def _read_fault(value: Any, at: FieldPath) -> WorkFault:
    fault = mapping(value, at, ("nodes", "how", "times"))
    nodes = texts(fault.get("nodes"), at.key("nodes"))
    how = one_of(fault.get("how"), at.key("how"), FAULTS)
    times = count(fault.get("times", 0), at.key("times"), most=1000)
    return WorkFault(nodes, how, times)
