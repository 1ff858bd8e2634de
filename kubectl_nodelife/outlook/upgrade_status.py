"""`upgrade status`: how a run stands, from the nodes' annotations and the run's Lease alone.

Anyone who may read nodes and that Lease gets the same answer, on any machine, whether or not a
leader is there. What only the leader can know (gates, budgets, what a node waits for, how long the
run still takes) it has written on the Lease with its last renewal. Of each node: its state, its
clock, what it waits for, and what that says of its checks. Nothing is decided again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claims import is_selected, turn_of, why_skipped, zone_name
from kubectl_nodelife.controllers.upgrade.counts import (
    CLUSTER,
    NodeScope,
    ScopeBudget,
    scope_of,
)
from kubectl_nodelife.controllers.upgrade.document import (
    OVER,
    RunDocument,
    RunPhase,
    UnreadableDocument,
    Verb,
    document_of,
    gone_nodes,
    request_on,
)
from kubectl_nodelife.controllers.upgrade.marks import (
    LIMITS,
    NodeMark,
    NodeState,
    UnreadableMark,
    is_beyond_epoch,
    mark_of,
)
from kubectl_nodelife.controllers.upgrade.policy import UpgradePolicy, policy_of_spec
from kubectl_nodelife.controllers.upgrade.report import LeaderReport, report_on
from kubectl_nodelife.document import document
from kubectl_nodelife.errors import BadInput, NotFound
from kubectl_nodelife.kube.meta import LabelSelector
from kubectl_nodelife.kube.node import Lease, LeaseSpec, Node
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS, human_seconds, parse_time

NO_RUN: Final = "None"
Json = dict[str, Any]
T = TypeVar("T")


def upgrade_status(
    nodes: Iterable[Node],
    lease: Lease | None,
    now_ns: int,
    source: Json,
    names: Collection[str] = (),
    labels: LabelSelector | None = None,
) -> Json:
    """The UpgradeStatus. `now_ns`: the API server's time. `names`: only these nodes, if any;
    `labels`: only the run's nodes that have them. Raises NotFound for a name that nothing has.
    """
    warnings: list[str] = []
    view = _RunView(nodes, lease, now_ns, warnings)
    run, report = view.run, view.report
    every = {row["name"]: row for row in view.rows()}
    asked = _readable("what is asked of the leader", partial(request_on, lease), warnings)
    shown = view.named(names, every) if names else every
    if labels is not None:
        labelled = {n for n, node in view.nodes.items() if matches(labels, node.metadata.labels)}
        shown = {name: row for name, row in shown.items() if name in labelled}
    if missing := [name for name in names if name not in shown]:
        raise NotFound("nodes", missing[0], among=view.nodes)
    return document(
        "UpgradeStatus",
        source=source,
        run=run.run if run is not None else "",
        phase=str(run.phase) if run is not None else NO_RUN,
        because=run.because if run is not None else "",
        leader=view.leader,
        request=asked and {"verb": str(asked.verb), "because": asked.because},
        step=_step(run),
        budgets=[_budget(*budget) for budget in report.budgets.items()],
        gates=list(view.gates()),
        holds=[
            {"what": what, "by": hold.by, "because": str(hold)}
            for what, hold in report.holds.items()
        ],
        counts=dict(sorted(Counter(row["state"] for row in every.values()).items())),
        nodes=[shown[name] for name in sorted(shown)],
        estimate=None if asked and asked.verb is Verb.ABORT else view.estimate(),
        lowest=lowest_document(
            {
                scope_of(key): {"available": available, "at": at}
                for key, (available, at) in report.lowest.items()
            }
        ),
        failures=sorted(run.failed) if run is not None else [],
        notEvaluated=list(view.not_evaluated()),
        warnings=warnings,
    )


def has_trouble(status: Json) -> bool:
    """True if `--exit-code` is to say so: Paused, a node Failed or Held, or gate `proof`."""
    bad = {str(NodeState.FAILED), str(NodeState.HELD)}
    return (
        status["phase"] == RunPhase.PAUSED
        or any(node["state"] in bad for node in status["nodes"])
        or any(gate["gate"] == "proof" for gate in status["gates"])
    )


def _readable(what: str, read: Callable[[], T], warnings: list[str]) -> T | None:
    """What is read; None, and a warning, where it cannot be."""
    try:
        return read()
    except (UnreadableDocument, BadInput) as error:
        warnings.append(f"{what} cannot be read: {error}")
        return None


def _leader(lease: Lease | None, now_ns: int) -> Json:
    """The leader, or since when there is none. Only watching shows whether a holder still runs."""
    spec = lease.spec if lease is not None else LeaseSpec()
    renewed, lasts, holder = spec.renew_time, spec.lease_duration_seconds, spec.holder_identity
    silent_s = max(0, now_ns - renewed) // SECOND_NS if renewed is not None else None
    return {
        "holder": holder or "",
        "alive": bool(holder and silent_s is not None and lasts is not None and silent_s <= lasts),
        "renewedSecondsAgo": silent_s,
        "epoch": spec.lease_transitions,
    }


def _step(run: RunDocument | None) -> Json | None:
    """Where the growth is; None for no run, and for a proof alone, which has no steps."""
    if run is None or run.proof_only:
        return None
    step = run.step
    return {"pool": step.pool, "k": step.k, "window": step.window, "nodes": sorted(step.nodes)}


def _budget(scope: str, numbers: tuple[int, int, int, int]) -> Json:
    budget = ScopeBudget(scope_of(scope), *numbers)
    return {
        "scope": str(budget.scope),
        "base": budget.base,
        "available": budget.available,
        "unavailable": budget.unavailable,
        "floor": budget.floor,
        "mostUnavailable": budget.most_unavailable,
        "slots": budget.slots,
    }


def lowest_document(lows: Mapping[NodeScope, Json]) -> Json:
    """The low point of the cluster, and those of each pool and zone, as documents show them."""
    every = lows.get(CLUSTER, {})
    return {
        "all": every.get("available"),
        "at": every.get("at"),
        "byPool": {scope.pool: low for scope, low in lows.items() if scope.kind == "pool"},
        "byZone": {
            f"{scope.pool}/{scope.zone}": low for scope, low in lows.items() if scope.kind == "zone"
        },
    }


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
    "P2": "the taint of the cordon is taken off by the lifecycle controller",
    "P3": "the canary pod is scheduled to the node",
    "P4": "the canary pod is Ready, has an address and does not restart",
    "P7": "the canary pod is deleted and goes",
}
CHECKS: Final = {
    NodeState.SETTLING: tuple(check for check in SHOWS if check.startswith("S")),
    NodeState.PROVING: tuple(check for check in SHOWS if check.startswith("P")),
    NodeState.SOAKING: ("S2", "S4", "S5", "S7"),
}
"""The checks of a state, in the order in which the leader goes through them."""


def checks_of(state: NodeState, waits_for: str, *, is_told: bool) -> list[Json]:
    """The checks of a node by its leader's word: those before the one that is waited for passed.

    `waits_for`: as `S4: Ready for 20s of 60s`; `is_told`: the leader has spoken since the node came
    into its state. A node in Soaking for which nothing is waited passes all of its checks.
    `result`: passed, waits, not reached, not evaluated; `shows`: what the check proves.
    """
    names = CHECKS.get(state, ())
    waiting, _, because = waits_for.partition(": ")
    passes = waiting in names or (is_told and not waits_for and state is NodeState.SOAKING)
    result, checks = "passed" if passes else "not evaluated", []
    for name in names:
        waits = name == waiting
        checks.append(
            {
                "check": name,
                "result": "waits" if waits else result,
                "because": because if waits else "",
                "shows": SHOWS[name],
            }
        )
        result = "not reached" if waits else result
    return checks


class _RunView:
    """A run as nodes and Lease show it. `open`: the run, where it is under way; `report`: the part
    of the leader's last report that still holds; `is_led`: whether that leader still runs.
    """

    def __init__(
        self, nodes: Iterable[Node], lease: Lease | None, now_ns: int, warnings: list[str]
    ) -> None:
        """`warnings` gets what cannot be read."""
        self._now_ns, self._warnings = now_ns, warnings
        document = partial(document_of, lease)
        run = self.run = _readable("the run's document on its Lease", document, warnings)
        self.open = run if run is not None and run.phase not in OVER else None
        self.policy: UpgradePolicy | None = None
        if run is not None and run.spec:
            policy = partial(policy_of_spec, run.spec)
            self.policy = _readable("the run's policy", policy, warnings)
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self.leader = _leader(lease, now_ns)
        self.is_led: bool = self.leader["alive"]
        report = report_on(lease)
        if run is None or (report.run and report.run != run.run):
            report = LeaderReport()
        elif self.open is None:
            report = LeaderReport(run=run.run, lowest=report.lowest)
        elif not self.is_led:
            report = replace(report, gates={}, holds={})
        self.report = report

    def _ago(self, then: str) -> int | None:
        """How many seconds ago an RFC 3339 instant was; None for none."""
        return (self._now_ns - parse_time(then)) // SECOND_NS if then else None

    def gates(self) -> Iterator[Json]:
        """The gates that hold: a pause by the Lease, the others as was reported."""
        if self.open is None:
            return
        if self.open.phase is RunPhase.PAUSED:
            yield {"gate": "paused", "because": self.open.because, "toldSecondsAgo": None}
        for gate, why in self.report.gates.items():
            if gate != "paused":
                ago = self._ago(self.report.at)
                yield {"gate": gate, "because": why, "toldSecondsAgo": ago}

    def estimate(self) -> Json | None:
        """How long the run still takes, as its leader foretold it; None where it is over, or where
        nothing is left, or no leader has said.
        """
        time_left = self.report.left
        if self.open is None or time_left is None:
            return None
        since = "now" if self.is_led else "when a leader goes on"
        if self.open.phase is RunPhase.PAUSED:
            since = "when the run is resumed"
        elif self.is_led and time_left.is_held:
            since = "when what holds it ends"
        return {
            "nodes": time_left.nodes,
            "lowSeconds": round(time_left.low),
            "expectedSeconds": round(time_left.expected),
            "highSeconds": round(time_left.high),
            "from": since,
            "toldSecondsAgo": self._ago(self.report.at),
            "assumptions": list(time_left.rests_on),
        }

    def not_evaluated(self) -> Iterator[str]:
        """Sentences on what reading alone cannot show."""
        if self.open is None:
            return
        if not self.report.at:
            yield "gates, budgets, and what nodes wait for: no leader has reported anything so far"
        elif not self.is_led:
            ago = human_seconds(self._ago(self.report.at) or 0)
            yield (
                "gates and what holds a claim are unknown: no leader answers; budgets, and what"
                f" each node waits for, are as they were {ago} ago"
            )

    def named(self, names: Collection[str], every: dict[str, Json]) -> dict[str, Json]:
        """The rows of these nodes. `every`: those of all that the run is about."""
        because = "the run is not about this node" if self.run else "no run is under way"
        return {
            name: every.get(name) or self._row(name, "NotSelected", because)
            for name in names
            if name in every or name in self.nodes
        }

    def rows(self) -> Iterator[Json]:
        """A row for each node that the run is about."""
        followed = set()
        for name, node in self.nodes.items():
            try:
                mark = mark_of(node)
            except UnreadableMark as error:
                self._warnings.append(f"node {name}: its annotation cannot be read: {error}")
                yield self._row(name, "Unreadable", "its annotation cannot be read")
                continue
            run = self.open
            if mark is None:
                yield from self._unclaimed(name, node)
            elif run is not None and not run.proof_only and mark.run != run.run:
                # A proof alone takes up what an earlier run left.
                because = f"{mark.state} in run {mark.run}; this run leaves it alone"
                yield self._row(name, "Skipped", because) | {"run": mark.run}
            else:
                followed.add(mark.for_)
                yield self._marked(name, mark)
        named = self.run
        gone = gone_nodes(named.step.nodes, named.failed, self.nodes) if named is not None else {}
        for name, entry in gone.items():
            if name not in followed:
                row = self._row(name, "Gone", "its object is gone; waiting for its newcomer")
                yield row | {"pool": entry.pool, "zone": entry.zone}

    def _unclaimed(self, name: str, node: Node) -> Iterator[Json]:
        """The row of a node without a mark, where the run is about it."""
        run, policy = self.run, self.policy
        if run is None or policy is None:
            return
        why = run.given_back.get(name)
        if why is None and self.open is not None and is_selected(node, policy):
            why = self.report.skipped.get(name) or why_skipped(node, policy)
        if why is not None:
            held = self.report.holds.get(name, "its turn has not come")
            yield self._row(name, "Skipped" if why else "Waiting", why or str(held))

    def _row(self, name: str, state: str, because: str) -> Json:
        node = self.nodes.get(name)
        policy = self.policy or UpgradePolicy()
        return {
            "name": name,
            "pool": turn_of(node, policy) if node is not None else "",
            "zone": zone_name(node) if node is not None else "",
            "state": state,
            "sinceSeconds": None,
            "deadlineSeconds": None,
            "because": because,
            "checks": [],
        }

    def _marked(self, name: str, mark: NodeMark) -> Json:
        """The row of a node with a mark of the run. A mark of an epoch that the Lease has not come
        to is no leader's: its node is shown as Held.
        """
        led = self.leader["epoch"] or 0
        if self.run is not None and is_beyond_epoch(mark, self.run.run, led):
            because = f"its annotation has epoch {mark.epoch}, and the run's Lease is at {led}"
            mark = replace(mark, state=NodeState.HELD, reason=f"forged, or foreign: {because}")
        is_told = self.report.at > mark.since
        waits_for = self.report.waits.get(name, "") if is_told else ""
        last = "" if self.is_led or not waits_for else "before its leader went: "
        because = f"{last}{waits_for}" if waits_for else mark.reason
        return self._row(name, str(mark.state), because) | {
            "sinceSeconds": self._ago(mark.since),
            "deadlineSeconds": self._left(name, mark, is_told=is_told),
            "checks": checks_of(mark.state, waits_for, is_told=is_told),
            "run": mark.run,
            "try": mark.try_,
            "cordon": str(mark.cordon),
            "for": mark.for_ or None,
        }

    def _left(self, name: str, mark: NodeMark, *, is_told: bool) -> int | None:
        """For how long the node may still be in its state, by its leader's clock: for all of the
        state's time while that stands, as it does where nobody leads: the next one begins anew.
        """
        deadline = self.report.deadlines.get(name, mark.deadline) if is_told else mark.deadline
        stands = not deadline or (self.run is not None and not self.is_led)
        if mark.deadline and stands and self.policy is not None and mark.state in LIMITS:
            return int(getattr(self.policy, LIMITS[mark.state])) // SECOND_NS
        ago = self._ago(deadline)
        return None if ago is None else -ago
