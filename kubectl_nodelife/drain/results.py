"""A plan: pods, nodes, waves, budgets, workloads, and how our own waves are cut.

Its encoding is the contract's DrainPlan.
Seconds are floats counted from the moment of the plan; None: never, or not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import field

from kubectl_nodelife.document import document
from kubectl_nodelife.drain import CORDON_BY_WAVE as CORDON_BY_WAVE
from kubectl_nodelife.drain import CORDON_FIRST as CORDON_FIRST
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.times import in_seconds
from kubectl_nodelife.workloads.budgets import LedgerEntry


@dataclass(frozen=True, slots=True)
class WaveOptions:
    """How our own waves are cut; None everywhere but in `maintenance_ns` means no such limit.

    `low_water_percent`: free share of cpu and memory to keep over all nodes that stay.
    `maintenance_ns`: how long a node is out of service once it is drained. `cordon`: all nodes
    first, or those of a wave when it begins; None: the better of the two, where nodes come back.
    """

    max_parallel: int
    max_per_zone: int | None = None
    low_water_percent: float | None = None
    maintenance_ns: int = 0
    cordon: str | None = None


READY: Final = "ready"
SLOW: Final = "slow"
UNKNOWN: Final = "unknown"
NEVER: Final = "never"
REFUSED: Final = "refused"
KEPT: Final = "kept"

NOT_READ: Final = "; what was not read may stop it"
"""The end of a pod's reason that is `unknown` only because of what was not read."""

NONE: Final = "none"
DEGRADED: Final = "degraded"
FULL: Final = "full"
OUTAGE_ORDER: Final = {FULL: 0, DEGRADED: 1, NONE: 2}
"""The outages of a workload, the worst first."""

_MOST_NAMES: Final = 4

WORST_FIRST: Final = (REFUSED, NEVER, UNKNOWN, SLOW, READY)


def worst(verdicts: list[str]) -> str:
    """The worst of the verdicts, `kept` aside; `ready` where there is none."""
    for verdict in WORST_FIRST:
        if verdict in verdicts:
            return verdict
    return READY


class Remedy(msgspec.Struct, frozen=True, rename="camel"):
    """The cheapest change that lets a pod go, as a replay of the plan has shown, and its cost."""

    change: str
    risk: str


class PlannedPlacement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a replacement can go (`node`), or why it cannot (`reason`, on so many `nodes`).
    `by_chance`: among the nodes of the best score, of which the scheduler takes any.
    """

    node: str = ""
    reason: str = ""
    nodes: int = 0
    by_chance: bool = False


class PodFault(msgspec.Struct, rename="camel"):
    """An objection of kubectl to a pod, and the flag that lifts it."""

    namespace: str
    name: str
    gate: str
    message: str
    flag: str


class PodPlan(msgspec.Struct, rename="camel"):
    """One pod of a planned node.

    `start`: its eviction is accepted; `gone`: its object is gone; `end`: its replacement is Ready.
    `tries`: how often kubectl asks. `unplaced`: its replacement is made, and finds no node.
    `gone_for_good`: it is not replaced; `data_lost`: its emptyDir volumes, whose data goes with it.
    `hint`: what is to be said where no `remedy` was found.
    """

    namespace: str
    name: str
    node: str
    verdict: str
    gate: str = "none"
    reason: str = ""
    start: float | None = field(default=None, name="startSeconds")
    gone: float | None = field(default=None, name="goneSeconds")
    end: float | None = field(default=None, name="endSeconds")
    landing: list[PlannedPlacement] = []
    unplaced: bool = False
    faults: list[PodFault] = []
    remedy: Remedy | None = field(default=None, name="unblock")
    hint: str | None = field(default=None, name="unblockHint")
    gone_for_good: bool = False
    data_lost: list[str] = field(default_factory=list, name="emptyDirsLost")
    owner: str | None = None
    budgets: list[str] = []
    grace: int | None = field(default=None, name="graceSeconds")
    tries: int = 0


class KeptPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that stays on its node, and why."""

    namespace: str
    name: str
    gate: str
    reason: str


class NodePlan(msgspec.Struct, rename="camel"):
    """One node of a plan. `command` is the kubectl line that drains it. `may_fail`: how, where that
    hangs on what is not known, such as how long its pods take; "" where it does not.
    """

    name: str
    zone: str
    verdict: str
    faults: list[PodFault]
    kept: list[KeptPod]
    command: str
    start: float | None = field(default=None, name="startSeconds")
    end: float | None = field(default=None, name="endSeconds")
    pods: int = 0
    attached_volumes: int = 0
    may_fail: str = ""


class Estimate(msgspec.Struct, rename="camel"):
    """How long a plan or a wave takes, at least and at most."""

    low: float = field(name="lowSeconds")
    high: float = field(name="highSeconds")


class WavePlan(msgspec.Struct, rename="camel"):
    """Nodes that are drained together, with every pod of theirs.

    `estimate`: how long the wave takes from its start to its end.
    """

    index: int
    start: float | None = field(name="startSeconds")
    end: float | None = field(name="endSeconds")
    nodes: list[str]
    pods: list[PodPlan]
    estimate: Estimate | None = None


class BudgetPoint(msgspec.Struct, rename="camel"):
    """A budget's status from an instant on."""

    at: float
    healthy: int
    desired: int
    allowed: int

    @classmethod
    def of(cls, entry: LedgerEntry) -> BudgetPoint:
        """As the ledger has it."""
        return cls(in_seconds(entry.at_ns), *entry[1:])


class BudgetPlan(msgspec.Struct, rename="camel"):
    """A budget over the time of the plan, and its arithmetic at the beginning."""

    namespace: str
    name: str
    rule: str
    expected: int
    desired: int
    healthy: int
    allowed: int
    points: list[BudgetPoint]


class WorkloadPlan(msgspec.Struct, rename="camel", kw_only=True):
    """The outage of one workload as users notice it (none, degraded, full), and for how long.

    `kind`, `name`: the controller of its pods; `top`: who owns that in the end, `Deployment/web`.
    `seconds` is None where it does not end, or (`end_known` False) something still comes.
    """

    namespace: str
    kind: str
    name: str
    top: str = field(default="", name="topOwner")
    outage: str
    seconds: float | None
    ready: int
    lowest: int = field(name="lowestReady")
    evicted: int
    time_to_ready: float | None = field(name="timeToReadySeconds")
    time_to_ready_from: str
    end_known: bool = True


class KindNotRead(msgspec.Struct, rename="camel"):
    """A kind that was not read although the plan hangs on it."""

    kind: str
    why: str


class Bound(msgspec.Struct, rename="camel"):
    """The lower bounds that no plan can beat; see `bounds`."""

    waves: int = field(name="wavesLowerBound")
    seconds: float = field(name="secondsLowerBound")


class Cordon(msgspec.Struct, rename="camel"):
    """When the nodes of waves of our own are cordoned (`CORDON_...`), and why then."""

    when: str
    because: str


class EvictionWebhook(msgspec.Struct, frozen=True, rename="camel"):
    """A webhook that is asked about the eviction of `pods`, each as namespace/name. `selects`: by
    which rules, in words.

    `failing`: why it certainly cannot be called, "" where it can or that is not known.
    """

    configuration: str
    name: str
    selects: str
    failure_policy: str
    timeout_seconds: int
    failing: str
    pods: list[str]

    def sentence(self) -> str:
        """In a sentence: which webhook is asked about what, and what comes of no answer."""
        names = first_names(self.pods, _MOST_NAMES)
        asked = f"is asked about {names} (it selects {self.selects})"
        name = f"{self.name} of {self.configuration}"
        if not self.failing:
            fails = "refuses the eviction" if self.failure_policy == "Fail" else "lets it go on"
            return f"{name} {asked}; no answer within {self.timeout_seconds}s {fails}."
        if self.failure_policy == "Ignore":
            return f"{name} {asked}; it cannot be called and is ignored: {self.failing}."
        return f"{name} {asked}; it cannot be called, so that every eviction fails: {self.failing}."


class DrainPlan(msgspec.Struct, rename="camel", kw_only=True):
    """The answer to "will this drain finish, when, and what exactly stops it?".

    `together`: the largest set of its nodes that was found to go at once, None if not looked for.
    `maintenance`: for so many seconds a drained node is out of service, 0 where it stays so.
    `webhooks`: that are asked before one of its pods is evicted.
    """

    verdict: str
    flags_needed: list[str]
    estimate: Estimate | None
    with_flags: DrainPlan | None = None
    waves: list[WavePlan]
    nodes: list[NodePlan]
    not_evaluated: list[KindNotRead]
    bound: Bound
    cordon: Cordon | None = None
    together: list[str] | None = None
    maintenance: float = field(default=0.0, name="maintenanceSeconds")
    budgets: list[BudgetPlan] = []
    workloads: list[WorkloadPlan] = []
    webhooks: list[EvictionWebhook] = []
    assumptions: list[str] = []
    warnings: list[str] = []
    own_waves: bool = False

    def document(self, source: dict[str, Any]) -> dict[str, Any]:
        """The contract's DrainPlan. `source`: where the objects are from, and of which moment."""
        return document("DrainPlan", source=source, **msgspec.to_builtins(self))

    def stranded(self) -> list[PodPlan]:
        """Pods whose replacement is made and finds no node, where all nodes were read. Pods that
        their owner does not make anew yet, since another is not Ready, are none of them."""
        if any(lack.kind == "Node" for lack in self.not_evaluated):
            return []
        return [pod for pod in self.pods() if pod.unplaced]

    def pods(self) -> list[PodPlan]:
        """All pods of all waves."""
        return [pod for wave in self.waves for pod in wave.pods]
