"""From a run to answers: each pod's verdict, the gate that decides, a sentence with the numbers.

The run with the middle timing decides. A pod that kubectl got rid of is `ready` or `slow`, whatever
else is `never`; a gate is the last refusal's, made more precise where the run knows why nothing
changes: a budget that waits for a replacement with nowhere to go is not the budget's own fault.

A workload's outage while its pods move is none, fewer pods, or no pod at all.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from kubectl_nodelife.drain import results
from kubectl_nodelife.drain.play import PlannedPod, Play, Workload, new_pod, went
from kubectl_nodelife.drain.snapshot import Unread
from kubectl_nodelife.kube.deletion import grace_seconds
from kubectl_nodelife.kube.kinds import find_kind
from kubectl_nodelife.kube.meta import OwnerReference, controller_of
from kubectl_nodelife.kube.names import counted, first_names
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import SECOND_NS, format_duration, human_duration, in_seconds
from kubectl_nodelife.sim.disruption import BudgetLedger
from kubectl_nodelife.sim.kubectl.conversation import GONE, SKIPPED, TIMED_OUT, PodDeletion
from kubectl_nodelife.sim.kubectl.options import KEEP, REFUSE, Decision, decide, faults
from kubectl_nodelife.workloads.admission import GATE_NAMESPACE, GATE_WEBHOOK
from kubectl_nodelife.workloads.budgets import EvictionRefused, numbers, sync_failure
from kubectl_nodelife.workloads.owners import NEVER as NOT_REPLACED
from kubectl_nodelife.workloads.owners import owner_chain

ALTERNATIVES = 5
"""How many landing places are listed for a pod."""


class Judge:
    """Puts one run into answers."""

    def __init__(self, play: Play, unread: Unread) -> None:
        self._play = play
        self._world = play.world
        self._not_made = play.world.not_made
        self._snapshot = play.scope.snapshot
        self._options = play.options
        self._admission = play.scope.admission
        self._unread = unread
        self._selector = play.options.selector() if play.options.pod_selector else None
        self._begun_ns = min((run.start_ns for run in play.runs.values()), default=0)
        self._places: dict[str, list[results.PlannedPlacement]] = {}
        self._targets: dict[str, PodDeletion[PlannedPod]] = {
            target.actor.uid: target for run in play.runs.values() for target in run.targets
        }
        self._decisions = {
            actor.uid: decision for run in play.runs.values() for actor, decision in run.decisions
        }

    # --- a node's pods ---------------------------------------------------------------------------

    def pods(self, node: str) -> list[results.PodPlan]:
        """Every pod that the node has at the plan's moment, and those that land there before
        kubectl cordons, so that it lists them.
        """
        pods = [*self._play.scope.pods[node], *self._landed(node)]
        decisions = [self._decide(pod, node) for pod in pods]
        refused = any(decision.verb == REFUSE for decision in decisions)
        return [
            self._pod(pod, node, decision, refused)
            for pod, decision in zip(pods, decisions, strict=True)
        ]

    def _landed(self, node: str) -> list[Pod]:
        runs = self._play.runs
        if node not in runs:
            return []
        listed = ((actor, actor.placed_ns) for actor, _ in runs[node].decisions)
        begun_ns = self._begun_ns
        return [actor.pod for actor, at_ns in listed if at_ns is not None and at_ns <= begun_ns]

    def _decide(self, pod: Pod, node: str) -> Decision:
        """The decision of kubectl's filters on the pod when it was listed. Of one that was not:
        their decision on it as it is now.
        """
        decision = self._decisions.get(pod.metadata.uid)
        if decision is not None:
            return decision
        if self._selector is not None and not matches(self._selector, pod.metadata.labels):
            return Decision(KEEP, "pod-selector", "--pod-selector leaves it alone")
        run = self._play.runs.get(node)
        now_ns = self._snapshot.now_ns + (run.start_ns if run else 0)
        return decide(pod, self._options, self._snapshot, now_ns)

    def _pod(self, pod: Pod, node: str, decision: Decision, refused: bool) -> results.PodPlan:
        plan = self._blank(pod, node)
        if decision.verb == KEEP:
            plan.verdict, plan.gate, plan.reason = results.KEPT, decision.gate, decision.message
            if unread := self._unread.of_filters(pod, self._options):
                plan.verdict = results.UNKNOWN
                plan.reason = (
                    f"kubectl reads {', '.join(unread)} before it drains the node, and touches "
                    "nothing there where that fails; it was not read"
                )
            return plan
        self._add_faults(plan, pod)
        self._add_losses(plan, pod)
        if refused:
            plan.verdict = results.REFUSED
            if decision.verb == REFUSE:
                plan.gate, plan.reason = decision.gate, decision.message
            else:
                plan.reason = f"kubectl touches nothing on {node}: it objects to other pods there"
            return plan
        actor = self._world.actors[pod.metadata.uid]
        target = self._targets.get(pod.metadata.uid)
        self._add_times(plan, actor, target)
        self._judge(plan, actor, target)
        plan.landing = self._landing(pod, actor)
        if plan.landing and not plan.landing[0].node:
            plan.unplaced = actor.replacement is not None and actor.replacement.gone_ns is None
            if actor.replacement is None:
                plan.end = None  # its owner makes the next once this is gone, and there is no place
        self._add_doubts(plan, pod)
        return plan

    def _blank(self, pod: Pod, node: str) -> results.PodPlan:
        owner = controller_of(pod.metadata)
        return results.PodPlan(
            pod.namespace,
            pod.name,
            node,
            results.READY,
            owner=f"{owner.kind}/{owner.name}" if owner is not None else None,
            budgets=[name for _, name in self._play.scope.budgets_of(pod)],
            grace=grace_seconds(pod, self._options.requested_grace),
        )

    def _add_faults(self, plan: results.PodPlan, pod: Pod) -> None:
        objections = faults(pod, self._options, self._snapshot, self._snapshot.now_ns)
        plan.faults = [results.PodFault(pod.namespace, pod.name, *fault) for fault in objections]

    def _add_losses(self, plan: results.PodPlan, pod: Pod) -> None:
        """The loss that comes with the pod: itself, and what it keeps on its node."""
        if pod.status.phase in TERMINAL_PHASES:
            return
        owner = controller_of(pod.metadata)
        plan.gone_for_good = owner is None or self._is_gone(owner, pod.namespace)
        plan.data_lost = [v.name for v in pod.spec.volumes if v.empty_dir is not None]

    def _is_gone(self, owner: OwnerReference, namespace: str) -> bool:
        if self._snapshot.find(owner.kind, namespace, owner.name) is not None:
            return False
        is_kind = find_kind(owner.api_version, owner.kind) is not None
        return is_kind and self._snapshot.was_read(owner.kind)

    def _add_times(
        self, plan: results.PodPlan, actor: PlannedPod, target: PodDeletion[PlannedPod] | None
    ) -> None:
        if target is not None:
            plan.start = in_seconds(target.accepted_ns)
            plan.tries = len(target.refused) + (target.accepted_ns is not None)
        plan.gone = in_seconds(actor.gone_ns)
        if actor.gone_ns is None:
            return
        if actor.replacement is not None and actor.replacement.ready_ns is not None:
            plan.end = in_seconds(actor.replacement.ready_ns)

    # --- verdict and gate ------------------------------------------------------------------------

    def _judge(
        self, plan: results.PodPlan, actor: PlannedPod, target: PodDeletion[PlannedPod] | None
    ) -> None:
        if target is None or (not target.refused and target.accepted_ns is None):
            if target is not None and target.outcome == GONE:
                self._goes(plan, actor, target)
                return
            if target is None and actor.gone:
                plan.verdict, plan.reason = results.READY, self._gone_before(actor)
                return
            plan.verdict = results.NEVER
            plan.reason = self._not_reached(plan.node)
            return
        if went(target):
            self._goes(plan, actor, target)
            return
        plan.verdict = results.NEVER
        if target.accepted_ns is not None or (actor.going and actor.held is not None):
            self._stays(plan, actor, target)
        elif target.refusal is not None:
            plan.gate, plan.reason = self._refusal(actor, target)

    def _gone_before(self, actor: PlannedPod) -> str:
        """Why kubectl does not find the pod any more when it comes to its node."""
        deleted = self._world.deletions()
        by = next((action.controller for _, action in deleted if action.pod_uid == actor.uid), "")
        return f"{by or 'it'} {'deletes it' if by else 'goes'} before kubectl comes to its node"

    def _not_reached(self, node: str) -> str:
        stuck = next((r.name for r in self._play.runs.values() if r.end_ns is None), None)
        if stuck is not None and stuck != node:
            return f"kubectl never comes to {node}: draining {stuck} does not end"
        return "kubectl stops at another pod's refusal before it comes to this one"

    def _goes(
        self, plan: results.PodPlan, actor: PlannedPod, target: PodDeletion[PlannedPod]
    ) -> None:
        plan.verdict = results.SLOW if target.refused else results.READY
        if target.outcome == SKIPPED:
            plan.verdict = results.SLOW
            plan.gate = actor.held[0] if actor.held else "none"
            plan.reason = "kubectl stops waiting (--skip-wait-for-delete-timeout); its object stays"
            return
        if target.refused and target.refusal is not None:
            plan.gate = target.refusal.gate
            plan.reason = self._waits(actor, target)
        elif actor.ledgers:
            plan.reason = f"goes at the first try; {self._numbers(actor.ledgers[0])}"
        else:
            read = self._snapshot.was_read("PodDisruptionBudget")
            none = "no budget guards it" if read else "no budgets were read"
            plan.reason = f"goes at the first try; {none}"
        if actor.gone and actor.replacement is None and (why := self._not_made.get(actor.uid)):
            plan.reason += f"; {why}"
        if plan.gate == "none" and self._stranded(actor):
            plan.gate = "local-volume"
            plan.reason += "; its replacement waits for a volume on this node"

    def _waits(self, actor: PlannedPod, target: PodDeletion[PlannedPod]) -> str:
        count = len(target.refused)
        tries = counted(count, "time")
        if target.refusal is not None and target.refusal.gate == GATE_NAMESPACE:
            return f"namespace {actor.pod.namespace} is being deleted; kubectl waits until it went"
        names = ", ".join(ledger.budget.name for ledger in actor.ledgers)
        refilled = self._refilled_by(actor, target)
        if refilled:
            waited_ns = (target.accepted_ns or target.refused[-1]) - target.refused[0]
            return f"waits {human_duration(waited_ns)} for budget {names}: {refilled}"
        return f"refused {tries} by budget {names}, goes once it has refilled"

    def _refilled_by(self, actor: PlannedPod, target: PodDeletion[PlannedPod]) -> str:
        """The deeds of controllers by which the budget refilled meanwhile; "": none."""
        until_ns = target.accepted_ns
        if until_ns is None:
            return ""
        keys = {ledger.budget.key for ledger in actor.ledgers}
        deletions = []
        for after_ns, action in self._world.deletions():
            gone = self._world.actors.get(action.pod_uid)
            if gone is None or after_ns > until_ns:
                continue
            if keys & {ledger.budget.key for ledger in gone.ledgers}:
                deletions.append(
                    f"{action.controller} deletes {action.pod} at {human_duration(after_ns)}"
                )
        return first_names(deletions, 3)

    def _stranded(self, actor: PlannedPod) -> bool:
        replacement = actor.replacement
        if replacement is None or replacement.node:
            return False
        return bool(self._world.placement.needs(replacement.pod).pinned)

    def _stays(
        self, plan: results.PodPlan, actor: PlannedPod, target: PodDeletion[PlannedPod]
    ) -> None:
        """Its eviction is accepted, and kubectl does not see it go."""
        if actor.held is not None:
            plan.gate, plan.reason = actor.held
            if target.accepted_ns is None and target.refusal is not None:
                # kubectl's answer is that the namespace goes; it would wait for that.
                plan.gate = target.refusal.gate
                plan.reason = f"{target.refusal.message}; {plan.reason}"
        elif target.outcome == TIMED_OUT and plan.grace is not None:
            limit = format_duration(self._options.timeout_ns)
            plan.reason = (
                f"evicted, but its grace of {plan.grace} s is not over when --timeout={limit} is"
            )
        if actor.gone and self._options.timeout_ns:
            plan.reason += f"; it goes {plan.gone} s after the start, when kubectl has given up"

    def _numbers(self, ledger: BudgetLedger) -> str:
        """The budget's arithmetic at the plan's moment."""
        return numbers(self._play.scope.ledger(ledger.budget.key).budget)

    def _refusal(self, actor: PlannedPod, target: PodDeletion[PlannedPod]) -> tuple[str, str]:
        refusal = target.refusal
        assert refusal is not None
        if refusal.gate == GATE_WEBHOOK:
            return refusal.gate, self._webhook_fails(actor, target, refusal)
        if refusal.gate == GATE_NAMESPACE:
            return refusal.gate, refusal.message
        if not actor.ledgers or refusal.gate == "two-pdbs":
            names = " and ".join(ledger.budget.name for ledger in actor.ledgers)
            return refusal.gate, f"two budgets match it, {names}: the Eviction API refuses that"
        ledger = actor.ledgers[0]
        if target.outcome == TIMED_OUT and (late := self._refills_late(ledger, target)):
            return refusal.gate, f"{self._numbers(ledger)}; {late}"
        homeless = self._homeless(ledger)
        if refusal.gate in ("pdb", "unready-under-pdb") and homeless:
            why = self._world.placement.no_room(homeless[0].pod)
            return "landing", (
                f"{self._numbers(ledger)}; it cannot refill:"
                f" {counted(len(homeless), 'replacement')} of"
                f" {self._names(homeless)} with nowhere to go: {why}"
            )
        return refusal.gate, _why_refused(ledger, refusal)

    def _webhook_fails(
        self, actor: PlannedPod, target: PodDeletion[PlannedPod], refusal: EvictionRefused
    ) -> str:
        """The failure of a webhook's call, and when, where it could be called at the start."""
        if self._admission.refuses_eviction(actor.pod) or not target.refused:
            return refusal.message
        at = in_seconds(target.refused[-1]) or 0
        return (
            f"its try {len(target.refused)}, at {at:.1f}s, comes while the pods behind a webhook "
            f"move: {refusal.message}; kubectl gives the pod up"
        )

    def _refills_late(self, ledger: BudgetLedger, target: PodDeletion[PlannedPod]) -> str:
        """When the budget spares a pod again that kubectl does not ask for any more; "": never."""
        last_ns = target.refused[-1]
        spared = (e.at_ns for e in ledger.entries if e.at_ns >= last_ns and e.allowed > 0)
        at_ns = next(spared, None)
        if at_ns is None:
            return ""
        limit = format_duration(self._options.timeout_ns)
        return (
            f"it spares the next one {at_ns / SECOND_NS:.1f} s after the start, too late: kubectl"
            f" gives up after --timeout={limit}"
        )

    def _homeless(self, ledger: BudgetLedger) -> list[PlannedPod]:
        """Replacements that wait for a node, if the budget would refill once they were Ready."""
        waiting = [actor for actor in self._world.waiting if ledger in actor.ledgers]
        status = ledger.budget.status
        if ledger.healthy + len(waiting) > status.desired_healthy:
            return waiting
        return []

    def _names(self, actors: list[PlannedPod]) -> str:
        names = {a.workload.name for a in actors if a.workload is not None}
        return ", ".join(sorted(names))

    def _add_doubts(self, plan: results.PodPlan, pod: Pod) -> None:
        """`unknown` where nothing that was read stops it, and something else may."""
        nodes_unread = plan.gate == "landing" and not self._snapshot.was_read("Node")
        if plan.verdict not in (results.READY, results.SLOW) and not nodes_unread:
            return
        doubt = self._admission.doubt(pod, deletion=self._options.disable_eviction)
        missing = self._unread.of(pod, self._options)
        if doubt is not None:
            plan.verdict, plan.gate, plan.reason = results.UNKNOWN, GATE_WEBHOOK, doubt
        elif missing:
            plan.verdict = results.UNKNOWN
            plan.reason += results.NOT_READ
        elif unread := self._unread.unreadable_for(pod, bool(plan.budgets), self._options):
            plan.verdict = results.UNKNOWN
            plan.reason += f"; cannot be read: {', '.join(unread)}"

    # --- landing ---------------------------------------------------------------------------------

    def _landing(self, pod: Pod, actor: PlannedPod) -> list[results.PlannedPlacement]:
        if actor.workload is None or actor.workload.rule.when == NOT_REPLACED:
            return []
        if pod.status.phase in TERMINAL_PHASES:
            return []  # it did not count before the drain, so it is not missed
        replacement = actor.replacement
        if replacement is not None and replacement.node:
            return self._places_of(actor, replacement)
        return self._somewhere(actor)

    def _places_of(
        self, actor: PlannedPod, replacement: PlannedPod
    ) -> list[results.PlannedPlacement]:
        """Its node, those that it might have got by chance as well, and others where it fits."""
        equals = self._world.equals(replacement)
        chance = [name for name in equals if name != replacement.node]
        taken = (replacement.node, *chance)
        others = [p for p in self._somewhere(actor) if p.node and p.node not in taken]
        first = results.PlannedPlacement(node=replacement.node, by_chance=bool(chance))
        alike = [results.PlannedPlacement(node=name, by_chance=True) for name in chance]
        return [first, *alike, *others][:ALTERNATIVES]

    def _somewhere(self, actor: PlannedPod) -> list[results.PlannedPlacement]:
        """Places for another pod like this one, as the run leaves the nodes."""
        workload = actor.workload
        assert workload is not None
        # A StatefulSet's pods differ in their claims; all other replicas are alike.
        key = actor.uid if workload.keeps_names else workload.uid
        places = self._places.get(key)
        if places is None:
            pod = actor.replacement.pod if actor.replacement is not None else None
            if pod is None:
                pod = new_pod(actor.pod, 0, self._snapshot.now_ns)
            names = self._world.placement.candidates(pod, ALTERNATIVES)
            places = [results.PlannedPlacement(node=name) for name in names]
            if not places:
                reasons = self._world.placement.no_room(pod).reasons
                places = [
                    results.PlannedPlacement(reason=reason, nodes=count)
                    for reason, count in reasons
                ]
            self._places[key] = places
        return places


def _why_refused(ledger: BudgetLedger, refusal: EvictionRefused) -> str:
    """Why the budget refuses, in a sentence with the numbers as they are at the end."""
    budget = ledger.budget
    counts = numbers(budget)
    if refusal.gate == "pdb-stale":
        failure = sync_failure(budget.status)
        return (
            f"the status of budget {budget.name} is of generation"
            f" {budget.status.observed_generation}, its spec of {budget.metadata.generation}:"
            " the disruption controller "
            + ("has not looked at it" if failure is None else f"fails on it: {failure}")
        )
    if refusal.gate == "pdb-sync-failed":
        failure = sync_failure(budget.status)
        return f"the sync of budget {budget.name} failed, so nothing may go: {failure}"
    if refusal.gate == "unready-under-pdb":
        policy = budget.spec.unhealthy_pod_eviction_policy or "IfHealthyBudget"
        return f"it is not Ready, and {counts}; {policy} protects it until the others are healthy"
    return f"{counts}; {_why_none(ledger)}"


def _why_none(ledger: BudgetLedger) -> str:
    status = ledger.budget.status
    if status.desired_healthy >= status.expected_pods:
        return "it can never spare one"
    unready = ledger.matched - ledger.healthy
    if unready > 0:
        verb = "is" if unready == 1 else "are"
        return f"{unready} of its pods {verb} not Ready, and nothing that was read changes that"
    return "it does not refill"


def workload_plans(play: Play) -> list[results.WorkloadPlan]:
    """The workloads that lose a pod, those that suffer most first."""
    evicted: Counter[str] = Counter()
    for run in play.runs.values():
        for target in run.targets:
            if target.accepted_ns is not None and target.actor.workload is not None:
                evicted[target.actor.workload.uid] += 1
    plans = [_plan(play, play.world.workloads[uid], count) for uid, count in evicted.items()]
    return sorted(
        plans, key=lambda plan: (results.OUTAGE_ORDER[plan.outage], plan.namespace, plan.name)
    )


def _plan(play: Play, workload: Workload, evicted: int) -> results.WorkloadPlan:
    before = workload.entries[0][1]
    lowest = min(ready for _, ready in workload.entries)
    if before == 0 or lowest >= before:
        outage, limit = results.NONE, 0
    elif lowest == 0:
        outage, limit = results.FULL, 0
    else:
        outage, limit = results.DEGRADED, before - 1
    pod = play.scope.pods_of(workload.uid)[0]
    top = owner_chain(pod, play.scope.snapshot)[-1]
    took = play.scope.times.time_to_ready(pod)
    return results.WorkloadPlan(
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        outage=outage,
        seconds=0.0 if outage == results.NONE else _time_at_most(workload, limit),
        ready=before,
        lowest=lowest,
        evicted=evicted,
        time_to_ready=None if took is None else round(took.middle_ns / SECOND_NS, 1),
        time_to_ready_from="none of its pods is Ready" if took is None else took.source,
        top=f"{top.kind}/{top.name}",
        end_known=play.world.branch.engine.rests,
    )


def _time_at_most(workload: Workload, limit: int) -> float | None:
    """For how long there were at most `limit` Ready pods; None: to the end of the run and on."""
    entries = workload.entries
    if entries[-1][1] <= limit:
        return None
    spans = ((end - begin, ready) for (begin, ready), (end, _) in pairwise(entries))
    return round(sum(span_ns for span_ns, ready in spans if ready <= limit) / SECOND_NS, 1)
