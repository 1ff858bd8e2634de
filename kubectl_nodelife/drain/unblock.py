"""Finds for each stuck pod the cheapest change that lets it go, and tells none that does not.

Each candidate of `remedies` is applied to a copy of the cluster, and the drain of the pod's node is
played on that. Where none helps, the pod gets a sentence that says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.advice import operator_of
from kubectl_nodelife.drain.play import Play, play_kubectl
from kubectl_nodelife.drain.remedies import StuckPod, candidates
from kubectl_nodelife.drain.results import NEVER, PodPlan, Remedy
from kubectl_nodelife.drain.scope import Scope
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.duration import format_duration
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.times import MINUTE_NS
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.timing import MIDDLE
from kubectl_nodelife.sim.timing import SLOW as SLOW_TIMING
from kubectl_nodelife.workloads.owners import owner_chain

MOST_REASONS: Final = 40
"""Of a plan with more reasons why pods do not go only so many are looked into."""

MOST_NODES: Final = 10
"""On so many nodes of those that a reason concerns the change is tried."""


def add_remedies(play: Play, pods: Iterable[PodPlan]) -> None:
    """Set `remedy` or `hint` of each pod that does not go."""
    groups: dict[tuple[object, ...], list[PodPlan]] = {}
    for pod in pods:
        if pod.verdict == NEVER and (pod.gate != "none" or play.options.timeout_ns):
            if all(pod.name != there.name for there in play.scope.pods[pod.node]):
                pod.hint = "it lands there while kubectl starts: cordon the node before"
                continue
            own = pod.name if pod.gate in _OF_THE_POD else ""
            groups.setdefault((pod.gate, pod.reason, own), []).append(pod)
    for number, alike in enumerate(groups.values()):
        if number < MOST_REASONS:
            remedy, hint = _Unblocking(play, alike).found()
        else:
            remedy, hint = None, f"not looked into: there are more than {MOST_REASONS} reasons"
        for pod in alike:
            pod.remedy, pod.hint = remedy, hint


_OF_THE_POD: Final = frozenset({"finalizer", "namespace-terminating"})
"""Gates whose remedy names the pod."""


class _Unblocking:
    """Pods that do not go for one reason."""

    def __init__(self, play: Play, alike: list[PodPlan]) -> None:
        self._scope = play.scope
        self._options = play.options
        self._alike = alike
        self._first = alike[0]
        self._nodes = list(dict.fromkeys(pod.node for pod in alike))[:MOST_NODES]
        wanted = {(p.namespace, p.name) for p in alike if p.node in self._nodes}
        self._uids = {
            pod.uid for name in self._nodes for pod in play.scope.pods[name] if pod.key in wanted
        }

    def found(self) -> tuple[Remedy | None, str]:
        """The change that helps, or what is to be said instead."""
        longer = self._longer()
        if longer is not None:
            return longer, ""
        pod = next(p for p in self._scope.pods[self._first.node] if p.name == self._first.name)
        operator = operator_of(pod) if self._first.budgets else None
        if operator is not None and self._first.gate == "pdb":
            name, way = operator
            return None, f"{name} pins this budget by design: {way}; without it data may be lost"
        stuck = StuckPod(
            pod,
            self._first,
            self._gate(pod.uid),
            self._scope.snapshot,
            frozenset(self._scope.nodes),
            self._scope.times,
        )
        tried = []
        for change in candidates(stuck):
            snapshot = self._scope.snapshot.changed(change.objects, change.without)
            if self._go(snapshot, self._options):
                return Remedy(change.text, change.risk), ""
            tried.append(change.text)
        return None, self._nothing_helps(stuck, tried)

    def _gate(self, uid: str) -> str:
        """What keeps the pod: behind a namespace that goes there may be a finalizer."""
        reason = self._first.reason
        if self._first.gate == "namespace-terminating" and "finalizer" in reason:
            return "finalizer"
        return self._first.gate

    def _longer(self) -> Remedy | None:
        """A longer --timeout, where time is all that is missing."""
        options = self._options
        if not options.timeout_ns:
            return None
        play = self._play(self._scope.snapshot, replace(options, timeout_ns=0), slow=True)
        if not self._all_gone(play):
            return None
        took_ns = max((run.end_ns or 0) - run.start_ns for run in play.runs.values())
        wanted = format_duration(-(-took_ns // MINUTE_NS) * MINUTE_NS)
        return Remedy(f"--timeout={wanted}", "none; the drain may take so long")

    def _go(self, snapshot: PlanSnapshot, options: DrainOptions) -> bool:
        """True if all of the pods go on that cluster."""
        return self._all_gone(self._play(snapshot, options))

    def _play(self, snapshot: PlanSnapshot, options: DrainOptions, *, slow: bool = False) -> Play:
        scope = Scope(snapshot, self._nodes)
        timing = SLOW_TIMING if slow else MIDDLE
        return play_kubectl(scope, Admission(snapshot), options, timing, self._scope.nodes)

    def _all_gone(self, play: Play) -> bool:
        """True if every one of the pods is gone, or was never asked for because it is gone."""
        actors = play.world.actors
        return all(uid not in actors or actors[uid].gone for uid in self._uids)

    def _nothing_helps(self, stuck: StuckPod, tried: list[str]) -> str:
        if stuck.gate == "kubelet-unreachable":
            return stuck.snapshot.force_advice(stuck.pod).sentence
        if stuck.gate == "pdb-stale":
            return "evictions wait until kube-controller-manager syncs the budget: look at it"
        owned = [
            f"budget {b.name} belongs to {owner.kind} {owner.name}: change it there"
            for b in stuck.budgets()
            if (owner := controller_of(b.metadata)) is not None
        ]
        chain = owner_chain(stuck.pod, stuck.snapshot)
        if not owned and len(chain) > 1 and not tried:
            owned = [
                f"{chain[0].kind} {chain[0].name} belongs to {chain[-1].kind} {chain[-1].name}"
            ]
        if tried:
            owned.append(f"tried on the plan, and not enough: {'; '.join(tried)}")
        return "; ".join(["nothing cheap helps", *owned])
