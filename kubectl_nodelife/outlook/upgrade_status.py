"""`upgrade status`: how a run stands, from the nodes' annotations and the run's Lease alone.

Anyone who may read nodes and that Lease gets the same answer, on any machine, whether or not a
leader is there. What only the leader can know (gates, budgets, what a node waits for, how long the
run still takes) it has written on the Lease with its last renewal. Of each node: its state, its
clock, what it waits for, and what that says of its checks. Nothing is decided again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claims import is_selected, turn_of, why_skipped, zone_name
from kubectl_nodelife.controllers.upgrade.counts import CLUSTER, ScopeBudget, scope_of
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
from kubectl_nodelife.kube.node import Lease, Node
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
    view = RunNodes(nodes, lease, now_ns, warnings)
    run, report, nodes_now = view.run, view.report, view.nodes
    asked = _readable("what is asked of the leader", partial(request_on, lease), warnings)
    every = {row["name"]: row for row in view.rows()}
    shown = view.named(names, every) if names else every
    if labels is not None:
        labelled = {n for n, node in nodes_now.items() if matches(labels, node.metadata.labels)}
        shown = {name: row for name, row in shown.items() if name in labelled}
    if missing := [name for name in names if name not in shown]:
        raise NotFound("nodes", missing[0], among=nodes_now)
    return document(
        "UpgradeStatus",
        source=source,
        run=run.run if run is not None else "",
        phase=str(run.phase) if run is not None else NO_RUN,
        because=run.because if run is not None else "",
        leader=_leader(lease, now_ns),
        request=asked and {"verb": str(asked.verb), "because": asked.because},
        step=_step(run),
        budgets=[_budget(*budget) for budget in report.budgets.items()],
        gates=_gates(run, now_ns, report),
        holds=[
            {"what": what, "by": hold.by, "because": str(hold)}
            for what, hold in report.holds.items()
        ],
        counts=dict(sorted(Counter(row["state"] for row in every.values()).items())),
        nodes=[shown[name] for name in sorted(shown)],
        estimate=None if asked and asked.verb is Verb.ABORT else _estimate(view),
        lowest=_lowest(report),
        failures=sorted(run.failed) if run is not None else [],
        notEvaluated=list(_not_evaluated(view)),
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


def _marks(
    nodes: Iterable[Node], run: RunDocument | None, lease: Lease | None, warnings: list[str]
) -> dict[str, NodeMark | None]:
    """The marks by node; None where one is there and cannot be read.

    One of an epoch that the Lease has not come to is no leader's: its node is shown as Held.
    """
    marks: dict[str, NodeMark | None] = {}
    led = (lease.spec.lease_transitions or 0) if lease is not None else 0
    for node in nodes:
        try:
            mark = mark_of(node)
        except UnreadableMark as error:
            marks[node.name] = None
            warnings.append(f"node {node.name}: its annotation cannot be read: {error}")
        else:
            if mark is None:
                continue
            if run is not None and is_beyond_epoch(mark, run.run, led):
                because = f"its annotation has epoch {mark.epoch}, and the run's Lease is at {led}"
                mark = replace(mark, state=NodeState.HELD, reason=f"forged, or foreign: {because}")
            marks[node.name] = mark
    return marks


def _leader(lease: Lease | None, now_ns: int) -> Json:
    """The leader, or since when there is none. Only watching shows whether a holder still runs."""
    spec = lease.spec if lease is not None else None
    renewed = spec.renew_time if spec is not None else None
    silent_s = max(0, now_ns - renewed) // SECOND_NS if renewed is not None else None
    lasts = spec.lease_duration_seconds if spec is not None else None
    holder = (spec.holder_identity or "") if spec is not None else ""
    return {
        "holder": holder,
        "alive": bool(holder and silent_s is not None and lasts is not None and silent_s <= lasts),
        "renewedSecondsAgo": silent_s,
        "epoch": spec.lease_transitions if spec is not None else None,
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


def _gates(run: RunDocument | None, now_ns: int, report: LeaderReport) -> list[Json]:
    """The gates that hold: a pause by the Lease, the others as was reported."""
    gates: list[Json] = []
    if run is None or run.phase in OVER:
        return gates
    if run.phase is RunPhase.PAUSED:
        gates.append({"gate": "paused", "because": run.because, "toldSecondsAgo": None})
    ago = seconds_since(now_ns, report.at)
    return gates + [
        {"gate": gate, "because": why, "toldSecondsAgo": ago}
        for gate, why in report.gates.items()
        if gate != "paused"
    ]


def _report(run: RunDocument | None, lease: Lease | None, *, is_led: bool) -> LeaderReport:
    """The part of the last report on this run that still holds. Of a run that is over only the low
    points do; of a leader that went its gates and holds do not.
    """
    report = report_on(lease)
    if run is None or (report.run and report.run != run.run):
        return LeaderReport()
    if run.phase in OVER:
        return LeaderReport(run=run.run, lowest=report.lowest)
    return report if is_led else replace(report, gates={}, holds={})


def _lowest(report: LeaderReport) -> Json:
    """The fewest nodes that were available in each scope, as the leaders saw it."""

    lows = {
        scope_of(key): {"available": available, "at": at}
        for key, (available, at) in report.lowest.items()
    }
    every = lows.get(CLUSTER, {})
    return {
        "all": every.get("available"),
        "at": every.get("at"),
        "byPool": {scope.pool: low for scope, low in lows.items() if scope.kind == "pool"},
        "byZone": {
            f"{scope.pool}/{scope.zone}": low for scope, low in lows.items() if scope.kind == "zone"
        },
    }


def _estimate(view: RunNodes) -> Json | None:
    """How long the run still takes, as its leader foretold it; None where it is over, or where
    nothing is left, or no leader has said.
    """
    run, time_left = view.run, view.report.left
    if run is None or run.phase in OVER or time_left is None:
        return None
    since = "now" if view.is_led else "when a leader goes on"
    if run.phase is RunPhase.PAUSED:
        since = "when the run is resumed"
    elif view.is_led and time_left.is_held:
        since = "when what holds it ends"
    return {
        "nodes": time_left.nodes,
        "lowSeconds": round(time_left.low),
        "expectedSeconds": round(time_left.expected),
        "highSeconds": round(time_left.high),
        "from": since,
        "toldSecondsAgo": seconds_since(view.now_ns, view.report.at),
        "assumptions": list(time_left.rests_on),
    }


def _not_evaluated(view: RunNodes) -> Iterator[str]:
    """Sentences on what reading alone cannot show."""
    run = view.run
    if run is None or run.phase in OVER:
        return
    if not view.report.at:
        yield "gates, budgets, and what nodes wait for: no leader has reported anything so far"
    elif not view.is_led:
        ago = human_seconds(seconds_since(view.now_ns, view.report.at) or 0)
        yield (
            "gates and what holds a claim are unknown: no leader answers; budgets, and what each"
            f" node waits for, are as they were {ago} ago"
        )


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
    into its state. A node in Soaking for which nothing is waited passes all of its checks. Of each
    `result` is passed, waits, not reached, not evaluated; `because`: what is waited for; `shows`:
    what the check proves.
    """
    names = CHECKS.get(state, ())
    waiting, _, because = waits_for.partition(": ")
    if waiting not in names:
        passes = is_told and not waits_for and state is NodeState.SOAKING
        results = ["passed" if passes else "not evaluated"] * len(names)
    else:
        reached = names.index(waiting)
        later = len(names) - reached - 1
        results = [*["passed"] * reached, "waits", *["not reached"] * later]
    return [
        {
            "check": name,
            "result": result,
            "because": because if result == "waits" else "",
            "shows": SHOWS[name],
        }
        for name, result in zip(names, results, strict=True)
    ]


class RunNodes:
    """A run as nodes and Lease show it. `marks`: None for an annotation that cannot be read.

    `report`: the leader's last report; `is_led`: whether it still runs.
    """

    def __init__(
        self, nodes: Iterable[Node], lease: Lease | None, now_ns: int, warnings: list[str]
    ) -> None:
        """`warnings` gets what cannot be read."""
        document = partial(document_of, lease)
        run = self.run = _readable("the run's document on its Lease", document, warnings)
        self.policy: UpgradePolicy | None = None
        if run is not None and run.spec:
            policy = partial(policy_of_spec, run.spec)
            self.policy = _readable("the run's policy", policy, warnings)
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
        self.marks = _marks(self.nodes.values(), run, lease, warnings)
        self.is_led: bool = _leader(lease, now_ns)["alive"]
        self.report = _report(run, lease, is_led=self.is_led)
        self.now_ns = now_ns

    def named(self, names: Collection[str], every: dict[str, Json]) -> dict[str, Json]:
        """The rows of these nodes. `every`: those of all that the run is about."""
        because = "the run is not about this node" if self.run else "no run is under way"
        return {
            name: every.get(name) or self._row(name, "NotSelected", because)
            for name in names
            if name in every or name in self.nodes
        }

    def _is_of_another(self, mark: NodeMark) -> bool:
        """True if it is another run's, whose nodes the run under way leaves alone. A proof alone
        takes up what an earlier run left.
        """
        run = self.run
        return not (run is None or run.phase in OVER or run.proof_only) and mark.run != run.run

    def rows(self) -> Iterator[Json]:
        """A row for each node that the run is about."""
        followed = set()
        for name, mark in self.marks.items():
            if mark is None:
                yield self._row(name, "Unreadable", "its annotation cannot be read")
            elif self._is_of_another(mark):
                because = f"{mark.state} in run {mark.run}; this run leaves it alone"
                yield self._row(name, "Skipped", because) | {"run": mark.run}
            else:
                followed.add(mark.for_)
                yield self._marked(name, mark)
        for name, why in self._unclaimed():
            held = self.report.holds.get(name, "its turn has not come")
            yield self._row(name, "Skipped" if why else "Waiting", why or str(held))
        run = self.run
        gone = gone_nodes(run.step.nodes, run.failed, self.nodes) if run is not None else {}
        for name, entry in gone.items():
            if name not in followed:
                row = self._row(name, "Gone", "its object is gone; waiting for its newcomer")
                yield row | {"pool": entry.pool, "zone": entry.zone}

    def _unclaimed(self) -> Iterator[tuple[str, str]]:
        """The nodes without a mark of the run, and why each is left out; "" for one that waits."""
        run, policy = self.run, self.policy
        if run is None or policy is None:
            return
        over = run.phase in OVER
        for name, node in self.nodes.items():
            if name in self.marks:
                continue
            if name in run.given_back:
                yield name, run.given_back[name]
            elif not over and is_selected(node, policy):
                yield name, self.report.skipped.get(name) or why_skipped(node, policy)

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
        is_told = self.report.at > mark.since
        waits_for = self.report.waits.get(name, "") if is_told else ""
        last = "" if self.is_led or not waits_for else "before its leader went: "
        because = f"{last}{waits_for}" if waits_for else mark.reason
        checks = checks_of(mark.state, waits_for, is_told=is_told)
        return self._row(name, str(mark.state), because) | {
            "sinceSeconds": seconds_since(self.now_ns, mark.since),
            "deadlineSeconds": self._left(name, mark, is_told=is_told),
            "checks": checks,
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
        ago = seconds_since(self.now_ns, deadline)
        return None if ago is None else -ago


def seconds_since(now_ns: int, then: str) -> int | None:
    """How long ago an RFC 3339 instant was; None for none."""
    return (now_ns - parse_time(then)) // SECOND_NS if then else None
