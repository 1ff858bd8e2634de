"""A plan as values: pods, nodes, waves, budgets, workloads. No text layout, no I/O.

Seconds are floats counted from the moment of the plan; None: never, or not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kubectl_nodelife.drain.webhooks import EvictionWebhook

READY: Final = "ready"
SLOW: Final = "slow"
UNKNOWN: Final = "unknown"
NEVER: Final = "never"
REFUSED: Final = "refused"
KEPT: Final = "kept"

NOT_READ: Final = "; what was not read may stop it"
"""The end of a pod's reason that is `unknown` only because of what was not read."""

WORST_FIRST: Final = (REFUSED, NEVER, UNKNOWN, SLOW, READY)


def worst(verdicts: list[str]) -> str:
    """The worst of the verdicts, `kept` aside; `ready` where there is none."""
    for verdict in WORST_FIRST:
        if verdict in verdicts:
            return verdict
    return READY


@dataclass(frozen=True, slots=True)
class Remedy:
    """The cheapest change that lets a pod go, as a replay of the plan has shown, and its cost."""

    change: str
    risk: str


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """Where a replacement can go (`node`), or why it cannot (`reason`, on so many `nodes`)."""

    node: str = ""
    reason: str = ""
    nodes: int = 0


@dataclass(slots=True)
class PodFault:
    """An objection of kubectl to a pod, and the flag that lifts it."""

    namespace: str
    name: str
    gate: str
    message: str
    flag: str


@dataclass(slots=True)
class PodPlan:
    """One pod of a planned node.

    `start`: its eviction is accepted; `gone`: its object is gone; `end`: its replacement is Ready.
    `tries`: how often kubectl asks. `gone_for_good`: nobody makes it anew; `data_lost`: its
    emptyDir volumes, whose data goes with it. `hint`: what is to be said where no `remedy` was
    found.
    """

    namespace: str
    name: str
    node: str
    verdict: str
    gate: str = "none"
    reason: str = ""
    start: float | None = None
    gone: float | None = None
    end: float | None = None
    landing: list[PlannedPlacement] = field(default_factory=list)
    faults: list[PodFault] = field(default_factory=list)
    gone_for_good: bool = False
    data_lost: list[str] = field(default_factory=list)
    remedy: Remedy | None = None
    hint: str = ""
    owner: str = ""
    budgets: list[str] = field(default_factory=list)
    grace: int | None = None
    tries: int = 0


@dataclass(slots=True)
class NodePlan:
    """One node of a plan. `command` is the kubectl line that drains it."""

    name: str
    zone: str
    verdict: str
    command: str
    faults: list[PodFault]
    kept: list[PodPlan]
    start: float | None = None
    end: float | None = None
    pods: int = 0
    attached_volumes: int = 0


@dataclass(slots=True)
class WavePlan:
    """Nodes that are drained together, with every pod of theirs.

    `estimate`: how long the wave takes from its start to its end.
    """

    index: int
    start: float | None
    end: float | None
    nodes: list[str]
    pods: list[PodPlan]
    estimate: Estimate | None = None


@dataclass(slots=True)
class BudgetPoint:
    """A budget's status from an instant on."""

    at: float
    healthy: int
    desired: int
    allowed: int


@dataclass(slots=True)
class BudgetPlan:
    """A budget over the time of the plan, and its arithmetic at the beginning."""

    namespace: str
    name: str
    rule: str
    expected: int
    desired: int
    healthy: int
    allowed: int
    points: list[BudgetPoint]


@dataclass(slots=True)
class WorkloadPlan:
    """The outage of one workload as users notice it (none, degraded, full), and for how long.

    `kind`, `name`: the controller of its pods; `top`: who owns that in the end, `Deployment/web`.
    `seconds` is None where it does not end, or (`end_known` False) something still comes.
    """

    namespace: str
    kind: str
    name: str
    outage: str
    seconds: float | None
    ready: int
    lowest: int
    evicted: int
    time_to_ready: float | None
    time_to_ready_from: str
    top: str = ""
    end_known: bool = True


@dataclass(slots=True)
class Estimate:
    """How long the whole plan takes, at least and at most."""

    low: float
    high: float


@dataclass(slots=True)
class KindNotRead:
    """A kind that was not read although the plan hangs on it."""

    kind: str
    why: str


@dataclass(slots=True)
class Bound:
    """The lower bounds that no plan can beat; see `bounds`."""

    waves: int
    seconds: float


@dataclass(slots=True)
class Cordon:
    """When the nodes of waves of our own are cordoned (`options.CORDON_...`), and why then."""

    when: str
    because: str


@dataclass(slots=True)
class DrainPlan:
    """The answer to "will this drain finish, when, and what exactly stops it?".

    `together`: the largest set of its nodes that was found to go at once, None if not looked for.
    `maintenance`: for so many seconds a drained node is out of service, 0 where it stays so.
    `webhooks`: that are asked before one of its pods is evicted.
    """

    verdict: str
    flags_needed: list[str]
    estimate: Estimate | None
    waves: list[WavePlan]
    nodes: list[NodePlan]
    not_evaluated: list[KindNotRead]
    bound: Bound
    budgets: list[BudgetPlan] = field(default_factory=list)
    workloads: list[WorkloadPlan] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    with_flags: DrainPlan | None = None
    own_waves: bool = False
    cordon: Cordon | None = None
    together: list[str] | None = None
    maintenance: float = 0.0
    webhooks: list[EvictionWebhook] = field(default_factory=list)

    def stranded(self) -> list[PodPlan]:
        """Pods that go and whose replacement finds no node."""
        return [
            pod
            for pod in self.pods()
            if pod.gone is not None and pod.landing and not pod.landing[0].node
        ]

    def pods(self) -> list[PodPlan]:
        """All pods of all waves."""
        return [pod for wave in self.waves for pod in wave.pods]
