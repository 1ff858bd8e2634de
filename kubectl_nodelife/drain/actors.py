"""The pods and owners that change while a plan is played.

Plain records, with the counts that an owner keeps and the pods that it creates next. What happens
to them is in `world`.
"""

from __future__ import annotations

from kubectl_nodelife.kube.meta import Time
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.workloads.budget_ledger import BudgetLedger
from kubectl_nodelife.workloads.eviction import TERMINAL_PHASES
from kubectl_nodelife.workloads.owners import (
    AT_ONCE,
    NEVER,
    WHEN_GONE,
    Replacement,
    back_off_ns,
    ordinal_of,
    successor,
)


class PlannedPod:
    """A pod while a plan is played. Instants are nanoseconds since the plan's moment.

    `pod` is the object as the API shows it. `node` is where it is, "" while it waits for one.
    `goes_ns`: when a marked pod's object will be gone, None where it stays. `held`: (gate, reason)
    of what keeps a marked pod from going. `replacement`: the pod that its
    owner made for it. `cause`: the pod that this one replaces.
    """

    __slots__ = (
        "cause",
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
        "replacement",
        "workload",
    )

    def __init__(
        self, pod: Pod, ledgers: tuple[BudgetLedger, ...], workload: Workload | None, node: str
    ) -> None:
        self.pod = pod
        self.ledgers = ledgers
        self.workload = workload
        self.node = node
        self.ready = pod.ready()
        self.going = pod.metadata.deletion_timestamp is not None
        self.gone_ns: int | None = None
        self.goes_ns: int | None = None
        self.created_ns: int | None = None
        self.placed_ns: int | None = None
        self.ready_ns: int | None = None
        self.held: tuple[str, str] | None = None
        self.replacement: PlannedPod | None = None
        self.cause: PlannedPod | None = None

    @property
    def uid(self) -> str:
        """metadata.uid"""
        return self.pod.metadata.uid

    @property
    def gone(self) -> bool:
        """Whether the object is gone."""
        return self.gone_ns is not None


class Workload:
    """An owner and its pods while a plan is played.

    `active`: pods that count as replicas; `leaving`: those that terminated at the beginning and are
    replaced once they are gone. `target`: how many it keeps up; never more than there
    were, because what kept it from making more will go on. `ready`: Ready pods; `entries`: how that
    number went, as (instant, number). `members`: a StatefulSet's pods by ordinal. `failures`: a
    Job's, those before the plan included; it makes no pod before `not_before_ns`.
    """

    __slots__ = (
        "active",
        "entries",
        "failures",
        "kind",
        "leaving",
        "members",
        "name",
        "namespace",
        "not_before_ns",
        "owed",
        "ready",
        "rule",
        "target",
        "uid",
    )

    def __init__(self, uid: str, namespace: str, kind: str, name: str, rule: Replacement) -> None:
        self.uid = uid
        self.namespace = namespace
        self.kind = kind
        self.name = name
        self.rule = rule
        self.active = 0
        self.leaving = 0
        self.target = 0
        self.ready = 0
        self.entries: list[tuple[int, int]] = []
        self.members: dict[int, PlannedPod] = {}
        self.owed: list[PlannedPod] = []
        self.failures = rule.failures
        self.not_before_ns = 0

    @property
    def keeps_names(self) -> bool:
        """Whether a new pod has the name of the old one and must wait for it to be gone."""
        return self.rule.when == WHEN_GONE and bool(self.members)

    def settle_target(self) -> None:
        """All pods are counted: fix how many the owner keeps up."""
        there = self.active + self.leaving
        self.target = there if self.rule.replicas is None else min(self.rule.replicas, there)

    def note_ready(self, at_ns: int, by: int) -> None:
        """One Ready pod more or less."""
        self.ready += by
        if self.entries and self.entries[-1][0] == at_ns:
            self.entries[-1] = (at_ns, self.ready)
        else:
            self.entries.append((at_ns, self.ready))

    def marked(self, actor: PlannedPod) -> bool:
        """A pod no longer counts as a replica; whether the owner makes a new one because of it."""
        self.active -= 1
        if self.rule.when == AT_ONCE and self.active < self.target:
            self.owed.append(actor)
            return True
        return False

    def gone(self, actor: PlannedPod) -> bool:
        """A pod's object is gone; whether the owner makes a new one because of it."""
        if self.rule.when != WHEN_GONE or self.active >= self.target:
            return False
        if not self.keeps_names:
            self.owed.append(actor)
        return True

    def note_failure(self, finished_ns: int) -> bool:
        """A pod of a Job has failed, or was deleted; whether the Job gives up because of it."""
        self.failures += 1
        self.not_before_ns = finished_ns + back_off_ns(self.failures)
        allowed = self.rule.failures_allowed
        if allowed is None or self.failures - self.rule.failures <= allowed:
            return False
        self.rule = Replacement(NEVER, why=f"its Job {self.name} has failed")
        self.owed.clear()
        return True

    def to_create(self) -> list[PlannedPod]:
        """The pods to make anew now, in order. Follows `updateStatefulSet` for pods with ordinals.

        In order, only the first is made that can be: one that terminates or is not Ready holds up
        all behind it.
        """
        if not self.keeps_names:
            owed, self.owed = self.owed, []
            return owed
        if self.active >= self.target:
            return []
        missing: list[PlannedPod] = []
        for ordinal in sorted(self.members):
            member = self.members[ordinal]
            if member.gone:
                missing.append(member)
            if self.rule.ordered and (member.gone or member.going or not member.ready):
                break
        return missing

    def adopt(self, actor: PlannedPod) -> None:
        """A pod of the owner is there, from the beginning or made anew."""
        if self.rule.when == WHEN_GONE:
            self.leaving += actor.going and actor.pod.status.phase not in TERMINAL_PHASES
            ordinal = ordinal_of(actor.pod.name)
            if ordinal >= 0 and self.kind == "StatefulSet":
                self.members[ordinal] = actor


def new_pod(old: Pod, number: int, now_ns: int) -> Pod:
    """The pod that an owner makes in place of `old`, with a name that nothing else has."""
    generated = old.metadata.generate_name or f"{old.metadata.name}-"
    return successor(old, f"{generated}new-{number}", f"new-{number}", Time(now_ns))
