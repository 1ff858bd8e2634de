"""The fate of pods and of their owners while a plan is played.

Plain records, filled by `world`; what happens to pods is decided by the parts of the simulated
cluster.
"""

from __future__ import annotations

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger
from kubectl_nodelife.workloads.owners import WHEN_GONE, Replacement, successor


class PlannedPod:
    """A pod while a plan is played. Instants are nanoseconds since the plan's moment.

    `pod` is the object as the API shows it, or last did. `node` is where it is, "" while it waits
    for one. `goes_ns`: when a marked pod's object will be gone, or was; None where it stays.
    `held`: (gate, reason) of what keeps a marked pod from going. `refusal`: why it was last
    refused. `replacement`: the pod that its owner made for it.
    """

    __slots__ = (
        "created_ns",
        "goes_ns",
        "going",
        "gone_ns",
        "held",
        "ledgers",
        "node",
        "placed_ns",
        "pod",
        "ready",
        "ready_ns",
        "refusal",
        "replacement",
        "workload",
    )

    def __init__(
        self, pod: Pod, ledgers: tuple[BudgetLedger, ...], workload: Workload | None
    ) -> None:
        self.pod = pod
        self.ledgers = ledgers
        self.workload = workload
        self.node = pod.spec.node_name
        self.ready = pod.ready()
        self.going = pod.metadata.deletion_timestamp is not None
        self.gone_ns: int | None = None
        self.goes_ns: int | None = None
        self.created_ns: int | None = None
        self.placed_ns: int | None = None
        self.ready_ns: int | None = None
        self.held: tuple[str, str] | None = None
        self.refusal = ""
        self.replacement: PlannedPod | None = None

    @property
    def uid(self) -> str:
        """metadata.uid"""
        return self.pod.metadata.uid

    @property
    def gone(self) -> bool:
        """True if the object is gone."""
        return self.gone_ns is not None


class Workload:
    """An owner while a plan is played.

    `ready`: Ready pods; `entries`: how that number went, as (instant, number).
    """

    __slots__ = ("entries", "kind", "name", "namespace", "ready", "rule", "uid")

    def __init__(
        self, uid: str, namespace: str, kind: str, name: str, rule: Replacement, ready: int
    ) -> None:
        self.uid = uid
        self.namespace = namespace
        self.kind = kind
        self.name = name
        self.rule = rule
        self.ready = ready
        self.entries: list[tuple[int, int]] = [(0, ready)]

    @property
    def keeps_names(self) -> bool:
        """True if a new pod has the name of the old one and must wait for it to be gone."""
        return self.rule.when == WHEN_GONE and self.kind == "StatefulSet"

    def note_ready(self, at_ns: int, by: int) -> None:
        """One Ready pod more or less."""
        self.ready += by
        if self.entries[-1][0] == at_ns:
            self.entries[-1] = (at_ns, self.ready)
        else:
            self.entries.append((at_ns, self.ready))


def new_pod(old: Pod, number: int, now_ns: int) -> Pod:
    """The pod that an owner makes in place of `old`, with a name that nothing else has."""
    generated = old.metadata.generate_name or f"{old.metadata.name}-"
    return successor(old, f"{generated}new-{number}", f"new-{number}", Time(now_ns))
