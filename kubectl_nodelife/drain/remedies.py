"""Changes that may let a stuck pod go: what to do, what it risks, and the cluster once it is done.

The candidates come first, the cheapest one first. `add_remedies` applies each to a copy of the
cluster and plays the drain of the pod's node on that: a pod gets the cheapest change that lets it
go, or a sentence that says that there is none.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kubectl_nodelife.drain.budget_survey import operator_of
from kubectl_nodelife.drain.notices import ignoring
from kubectl_nodelife.drain.play import Play, play_kubectl
from kubectl_nodelife.drain.remedy_candidate import (
    RemedyCandidate,
    honoring_taints,
    made_ready,
    more_for,
    placed_on,
    scaled_up,
)
from kubectl_nodelife.drain.results import CORDON_FIRST, NEVER, PodPlan, Remedy, WaveOptions
from kubectl_nodelife.drain.snapshot import PlanSnapshot, Scope
from kubectl_nodelife.drain.waves import play_waves
from kubectl_nodelife.kube.admission import ValidatingAdmissionPolicyBinding
from kubectl_nodelife.kube.deletion import delete_pod
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.names import first_names, subject
from kubectl_nodelife.kube.node import Node, Taint
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.service import Service, selects
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS, format_duration
from kubectl_nodelife.kube.wellknown import NO_EXECUTE, TAINT_NODE_OUT_OF_SERVICE
from kubectl_nodelife.kube.workload import PodDisruptionBudget, PodDisruptionBudgetStatus
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.sim.timing import MIDDLE, TimesToReady
from kubectl_nodelife.sim.timing import SLOW as SLOW_TIMING
from kubectl_nodelife.workloads import force_advice
from kubectl_nodelife.workloads.admission import Admission
from kubectl_nodelife.workloads.budgets import EvictionRefused, decide_eviction
from kubectl_nodelife.workloads.owners import owner_chain

HOSTNAME: Final = "kubernetes.io/hostname"
_MOST_TRIED: Final = 5
"""Of alike candidates: nodes to uncordon, budgets to delete, webhooks to repair."""


class StuckPod(NamedTuple):
    """A pod that does not go. `planned`: the nodes of the plan."""

    pod: Pod
    plan: PodPlan
    gate: str
    snapshot: PlanSnapshot
    planned: frozenset[str]
    times: TimesToReady

    def avoided(self) -> list[Node]:
        """The nodes that take new pods and are of no use to them: those whose kubelets are late,
        and those of the plan, until the drain cordons them."""
        late = sorted(self.snapshot.late.keys() - self.planned)
        nodes = (self.snapshot.nodes[name] for name in (*late, *sorted(self.planned)))
        return [node for node in nodes if not node.spec.unschedulable]

    def budgets(self) -> list[PodDisruptionBudget]:
        """The budgets that match it."""
        return self.snapshot.budgets_of(self.pod)

    def waiting(self) -> list[str] | None:
        """The budget's pods on no node; None where it is the pod's replacement that lacks one."""
        if self.gate == "landing":
            return None
        members = members_of(self.snapshot, self.budgets()[0])
        return [pod.name for pod in members if not pod.spec.node_name]


def candidates(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """The changes that come into question for the gate that holds the pod."""
    for propose in _OF_GATE.get(stuck.gate, ()):
        yield from propose(stuck)


def members_of(snapshot: PlanSnapshot, budget: PodDisruptionBudget) -> list[Pod]:
    """The pods that count for the budget, and are not being deleted."""
    return [
        pod
        for pod in snapshot.pods_by_namespace.get(budget.namespace, ())
        if pod.metadata.deletion_timestamp is None
        and pod.status.phase not in TERMINAL_PHASES
        and matches(budget.spec.selector, pod.metadata.labels)
    ]


# --- budgets -------------------------------------------------------------------------------------


def _mend(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """As many of the budget's pods as are missing become Ready."""
    missing, unready = _missing(stuck, stuck.budgets()[0])
    if 0 < missing <= len(unready):
        names = first_names([f"{pod.name} ({_trouble(pod)})" for pod in unready[:missing]], 3)
        text = f"repair {names}, so that {missing} more of the budget's pods are Ready"
        yield RemedyCandidate(text, "none", tuple(made_ready(pod) for pod in unready[:missing]))


def _let_go(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """Pods of the budget that are not Ready and may be evicted already are made anew: as many as
    are missing. By hand, or by draining the one node that they are on first.
    """
    budget, now_ns = stuck.budgets()[0], stuck.snapshot.now_ns
    missing, unready = _missing(stuck, budget)
    going = [pod for pod in unready if pod.spec.node_name and controller_of(pod.metadata)]
    going = [
        pod
        for pod in going
        if not isinstance(decide_eviction(pod, [budget], now_ns, dry_run=True), EvictionRefused)
    ][: max(0, missing)]
    if not going or len(going) < missing:
        return
    names = " ".join(shlex.quote(pod.name) for pod in going)
    many, nodes = len(going) > 1, {pod.spec.node_name for pod in going}
    text = f"kubectl delete pod {names} -n {shlex.quote(budget.namespace)}"
    text += f", whose eviction{'s are' if many else ' is'} allowed already"
    if len(nodes) == 1 and not nodes & {stuck.plan.node}:
        text += f", or drain {min(nodes)} first"
    risk = f"what keeps {'them' if many else 'it'} from being Ready may keep the next one, too"
    marked = [(pod, delete_pod(pod, now_ns, None)) for pod in going]
    terminating = tuple(after for _, after in marked if after is not None)
    gone = tuple(pod for pod, after in marked if after is None)
    yield RemedyCandidate(text, risk, terminating, gone)


def _missing(stuck: StuckPod, budget: PodDisruptionBudget) -> tuple[int, list[Pod]]:
    """How many more of its pods must be Ready for the budget to spare one; those that are not."""
    missing = budget.status.desired_healthy + 1 - budget.status.current_healthy
    return missing, [pod for pod in members_of(stuck.snapshot, budget) if not pod.ready()]


def _trouble(pod: Pod) -> str:
    """Why the pod is not Ready, in the kubelet's or the scheduler's word."""
    if not pod.spec.node_name:
        return "Pending, on no node"
    for container in pod.status.container_statuses or ():
        if container.state.waiting is not None and container.state.waiting.reason:
            return container.state.waiting.reason
    return "not Ready"


def _scale(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """The least number of pods more with which the budget's arithmetic spares one, if it is small.

    Nothing where the owner is not one that can be scaled by hand. Whether the pods find room, on a
    node whose kubelet is at work, the play shows.
    """
    more = more_for(stuck.budgets()[0])
    if stuck.times.time_to_ready(stuck.pod) is None:
        return
    scaled = scaled_up(stuck.pod, more, stuck.snapshot)
    if scaled is None:
        return
    avoided, more_pods = stuck.avoided(), (o for o in scaled.objects if isinstance(o, Pod))
    scaling = RemedyCandidate(scaled.command, _SCALED, scaled.objects, more=tuple(more_pods))
    if not avoided:
        yield scaling
    else:
        yield scaling.with_pods(placed_on(avoided, scaling.more, stuck.snapshot))
        yield scaling.with_cordoned(avoided)


_SCALED: Final = "it takes room, and lasts until a user scales down"


def _allow_one(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    risk = "one pod fewer serves while its replacement starts"
    owner = controller_of(stuck.pod.metadata)
    if owner is not None and _siblings(stuck) == 1:
        risk = f"{owner.kind} {owner.name} has this one pod: none serves until the next is Ready"
    rule = {"minAvailable": None, "maxUnavailable": 1}
    if stuck.budgets()[0].spec.min_available is None:
        del rule["minAvailable"]
    yield from _patched(stuck, rule, risk, min_available=None, max_unavailable=1)


def _siblings(stuck: StuckPod) -> int:
    owner = controller_of(stuck.pod.metadata)
    pods = stuck.snapshot.pods_by_namespace.get(stuck.pod.namespace, ())
    return sum(1 for pod in pods if controller_of(pod.metadata) == owner)


def _always_allow(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    risk = "pods that are still starting may be evicted too"
    rule = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
    yield from _patched(stuck, rule, risk, unhealthy_pod_eviction_policy="AlwaysAllow")


def _count_pods(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """An integer minAvailable needs no scale of an owner."""
    least = max(0, len(members_of(stuck.snapshot, stuck.budgets()[0])) - 1)
    rule = {"maxUnavailable": None, "minAvailable": least}
    risk = "the number must be kept up by hand when the workload is scaled"
    yield from _patched(stuck, rule, risk, max_unavailable=None, min_available=least)


def _patched(
    stuck: StuckPod, rule: dict[str, Any], risk: str, **fields: Any
) -> Iterator[RemedyCandidate]:
    """A budget with other rules, unless its owner would set them back."""
    budget = stuck.budgets()[0]
    if controller_of(budget.metadata) is not None:
        return
    patch = shlex.quote(json.dumps({"spec": rule}, separators=(",", ":")))
    command = f"kubectl patch {_named('pdb', budget)} --type merge -p {patch}"
    # The controller writes a status for the new rules: none is there yet.
    unseen = replace(budget.metadata, generation=0)
    spec = replace(budget.spec, **fields)
    changed = PodDisruptionBudget(metadata=unseen, spec=spec, status=PodDisruptionBudgetStatus())
    yield RemedyCandidate(command, risk, (changed,))


def _delete_budget(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    for budget in stuck.budgets()[:_MOST_TRIED]:
        others = " and ".join(b.name for b in stuck.budgets() if b.key != budget.key)
        text = f"kubectl delete {_named('pdb', budget)}, or narrow its selector"
        yield RemedyCandidate(text, f"{others} alone guards the pod then", without=(budget,))


# --- room, admission, and what keeps a deleted pod -----------------------------------------------


def _uncordon(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """A cordoned node takes pods again: for the pod's replacement, or for pods of its budget that
    are on no node."""
    nodes, waiting = stuck.snapshot.nodes, stuck.waiting()
    if waiting is not None and not waiting:
        return
    closed = [n for n in nodes.values() if n.spec.unschedulable and n.name not in stuck.planned]
    for node in closed[:_MOST_TRIED]:
        if stuck.snapshot.silent_kubelet(node.name) is None:
            spec = replace(node.spec, unschedulable=False, taints=_uncordoned(node))
            why = "it was cordoned for a reason"
            whom = f", for {first_names(waiting, 3)} on no node" if waiting else ""
            command = f"kubectl uncordon {shlex.quote(node.name)}{whom}"
            yield RemedyCandidate(command, why, (replace(node, spec=spec),))


def _honor_taints(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    if stuck.waiting() != [] and (honoring := honoring_taints(stuck.pod, stuck.snapshot)):
        yield RemedyCandidate(honoring[0], "the roll-out makes all its pods anew", honoring[1])


def _another_node(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """One more node like the one that is drained."""
    drained = stuck.snapshot.nodes[stuck.plan.node]
    shape = ", ".join(
        f"{name} {amount}"
        for name, amount in (drained.status.allocatable or {}).items()
        if name in ("cpu", "memory")
    )
    meta = drained.metadata
    name = f"{drained.name}-another"
    labels = {**(meta.labels or {}), HOSTNAME: name}
    meta = replace(meta, name=name, uid=name, labels=labels)
    spec = replace(drained.spec, unschedulable=False, taints=_uncordoned(drained))
    another = replace(drained, metadata=meta, spec=spec)
    yield RemedyCandidate(
        f"add a node like {drained.name} ({shape})", "none but its cost", (another,)
    )


def _uncordoned(node: Node) -> tuple[Taint, ...]:
    return tuple(t for t in node.spec.taints if t.key != "node.kubernetes.io/unschedulable")


def _keep_answering(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """One pod more behind each webhook whose pods are all on nodes that are drained."""
    snapshot, admission = stuck.snapshot, Admission(stuck.snapshot)
    for service in snapshot.all_of(Service):
        pods = snapshot.pods_by_namespace.get(service.namespace, ())
        behind = [pod for pod in pods if selects(service, pod) and pod.ready()]
        if not behind or not admission.calls(service.key):
            continue
        nodes = {pod.spec.node_name for pod in behind}
        scaled = scaled_up(behind[0], 1, snapshot) if nodes <= stuck.planned else None
        if scaled is not None:
            text = f"{scaled.command} first, so that {service.name} answers while its pods move"
            last = f", or drain {min(nodes)} last" if stuck.planned - nodes else ""
            yield RemedyCandidate(text + last, _SCALED, _at_work(scaled.objects, snapshot))


def _at_work(objects: Iterable[KubeObject], snapshot: PlanSnapshot) -> tuple[KubeObject, ...]:
    """The same once the pods among them have been placed and are Ready; those without room stay."""
    placement = snapshot.branch(MIDDLE).world.scheduler.placement
    ready = []
    for obj in objects:
        node = placement.place(obj) if isinstance(obj, Pod) else None
        if isinstance(obj, Pod) and node is not None:
            obj = made_ready(replace(obj, spec=replace(obj.spec, node_name=node)))
        ready.append(obj)
    return tuple(ready)


def _let_past_admission(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """Each webhook configuration and policy binding in turn, to find the one that refuses."""
    snapshot = stuck.snapshot
    proposed: list[tuple[str, KubeObject]] = []
    for configuration, places in ignoring(snapshot, stuck.pod):
        patch = [
            {"op": "add", "path": f"/webhooks/{place}/failurePolicy", "value": "Ignore"}
            for place in places
        ]
        text = shlex.quote(json.dumps(patch, separators=(",", ":")))
        proposed.append((f"json -p {text}", configuration))
    for binding in snapshot.all_of(ValidatingAdmissionPolicyBinding):
        audits = replace(binding, spec=replace(binding.spec, validation_actions=("Audit",)))
        proposed.append(("""merge -p '{"spec":{"validationActions":["Audit"]}}'""", audits))
    for patch_words, obj in proposed[: 4 * _MOST_TRIED]:
        kind = type(obj).__name__
        text = f"repair what {kind} {obj.name} asks, or exempt the pod from it; else kubectl patch"
        text += f" {subject(kind.lower(), obj.name)} --type {patch_words}"
        yield RemedyCandidate(text, "what it protects is not protected meanwhile", (obj,))


def _drop_finalizers(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    pod = stuck.pod
    finalizers = tuple(
        f for f in pod.metadata.finalizers if f in force_advice.REMOVED_BY_THE_CLUSTER
    )
    changed = replace(pod, metadata=replace(pod.metadata, finalizers=finalizers))
    yield RemedyCandidate(
        f"let the controller of the finalizer finish; else kubectl patch {_named('pod', pod)}"
        ' --type merge -p \'{"metadata":{"finalizers":null}}\'',
        "what the finalizer was to clean up stays behind",
        (changed,),
    )


def _fence(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    """The same advice as `explain`, `audit` and `repair` give."""
    snapshot, pod = stuck.snapshot, stuck.pod
    advice = snapshot.force_advice(pod)
    if advice.force_delete != force_advice.AFTER_POWER_OFF:
        return
    text = f"bring the kubelet of {stuck.plan.node} back; or, {advice.sentence}"
    risk = "if the machine still runs, its pods and their replacements write to the same volumes"
    if advice.out_of_service_taint == force_advice.AFTER_POWER_OFF:
        node = snapshot.nodes[stuck.plan.node]
        taint = Taint(key=TAINT_NODE_OUT_OF_SERVICE, value="nodeshutdown", effect=NO_EXECUTE)
        spec = replace(node.spec, taints=(*node.spec.taints, taint))
        yield RemedyCandidate(text, risk, (replace(node, spec=spec),))
    else:
        yield RemedyCandidate(text, risk, without=(pod,))


def _named(resource: str, obj: KubeObject) -> str:
    return f"{subject(resource, obj.name)} -n {shlex.quote(obj.metadata.namespace)}"


def _delete_pod(stuck: StuckPod) -> Iterator[RemedyCandidate]:
    pod = stuck.pod
    marked = delete_pod(pod, stuck.snapshot.now_ns, None)
    yield RemedyCandidate(
        f"kubectl delete {_named('pod', pod)}, which the namespace controller should have done",
        "none: the namespace goes anyway",
        () if marked is None else (marked,),
        (pod,) if marked is None else (),
    )


Propose = Callable[[StuckPod], Iterable[RemedyCandidate]]
_OF_GATE: Final[dict[str, tuple[Propose, ...]]] = {
    "pdb": (_uncordon, _honor_taints, _let_go, _mend, _scale, _allow_one),
    "unready-under-pdb": (_always_allow, _mend),
    "two-pdbs": (_delete_budget,),
    "pdb-sync-failed": (_count_pods,),
    "landing": (_uncordon, _honor_taints, _another_node),
    "webhook": (_keep_answering, _let_past_admission),
    "finalizer": (_drop_finalizers,),
    "kubelet-unreachable": (_fence,),
    "namespace-terminating": (_delete_pod,),
}


MOST_REASONS: Final = 40
"""Of a plan with more reasons why pods do not go only so many are looked into."""

MOST_NODES: Final = 10
"""On so many nodes of those that a reason concerns the change is tried."""


def add_remedies(play: Play, pods: Iterable[PodPlan], named: Sequence[str]) -> None:
    """Set `remedy` or `hint` of each pod that does not go.

    `named`: the nodes of the whole command, which are cordoned, also where fewer are played.
    """
    groups: dict[tuple[object, ...], list[PodPlan]] = {}
    for pod in pods:
        if pod.verdict == NEVER and (pod.gate != "none" or play.options.timeout_ns):
            if all(pod.name != there.name for there in play.scope.pods[pod.node]):
                pod.hint = "it lands there while kubectl starts: cordon the node before"
                continue
            own = pod.name if pod.gate in _OF_THE_POD else ""
            groups.setdefault((pod.gate, pod.reason, own), []).append(pod)
    tried: list[_Tried] = []
    for number, alike in enumerate(groups.values()):
        if number < MOST_REASONS:
            remedy, hint = _Unblocking(play, alike, named, tried).found()
        else:
            remedy, hint = None, f"not looked into: there are more than {MOST_REASONS} reasons"
        for pod in alike:
            pod.remedy, pod.hint = remedy, hint or None


_OF_THE_POD: Final = frozenset({"finalizer", "namespace-terminating"})
"""Gates whose remedy names the pod."""


class _Tried(NamedTuple):
    """A change, the nodes that were drained with it, and the uids of the pods that did not go."""

    change: RemedyCandidate
    nodes: list[str]
    stuck: Collection[str]


def _stuck_in(play: Play) -> Collection[str]:
    """The uids of the pods that do not go; one never asked for because it is gone is none."""
    return {uid for uid, actor in play.world.actors.items() if not actor.gone}


class _Unblocking:
    """Pods that do not go for one reason. A change is tried on the plan: the nodes that it drains
    before theirs are drained in the play, too.
    """

    def __init__(
        self, play: Play, alike: list[PodPlan], named: Sequence[str], tried: list[_Tried]
    ) -> None:
        self._tried = tried
        self._scope = play.scope
        self._named = named
        self._options = play.options
        self._alike = alike
        self._first = alike[0]
        stuck = list(dict.fromkeys(pod.node for pod in alike))[:MOST_NODES]
        wanted = {(p.namespace, p.name) for p in alike if p.node in stuck}
        self._uids = {
            pod.uid for name in stuck for pod in play.scope.pods[name] if pod.key in wanted
        }
        order = list(play.scope.nodes)
        before = order[: max(map(order.index, stuck))]
        self._drained = [n for n in before if n not in stuck and play.empties(n)][-MOST_NODES:]
        self._nodes = [name for name in order if name in (*self._drained, *stuck)]

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
        gate, of, named = self._gate(pod), self._scope, frozenset(self._named)
        stuck = StuckPod(pod, self._first, gate, of.snapshot, named, of.times)
        in_turns = self._in_turns()
        if in_turns is not None:
            for also in _honor_taints(stuck) if stuck.gate == "landing" else ():
                if self._uids.isdisjoint(self._stuck_after(also)):
                    both = f"{in_turns.change}, or {also.text} ({also.risk})"
                    return Remedy(both, in_turns.risk), ""
            return in_turns, ""
        tried = []
        for change in candidates(stuck):
            if (found := self._that_lasts(change)) is not None:
                return Remedy(found.text, found.risk), ""
            tried.append(change.text)
        return None, self._nothing_helps(stuck, tried)

    def _gate(self, pod: Pod) -> str:
        """The gate that keeps the pod; of a namespace that goes it may be a finalizer."""
        if self._first.gate == "namespace-terminating" and force_advice.finalizers_that_hold(pod):
            return "finalizer"
        return self._first.gate

    def _longer(self) -> Remedy | None:
        """A longer --timeout, where time is all that is missing."""
        options = self._options
        if not options.timeout_ns:
            return None
        play = self._play(self._scope.snapshot, options.without_timeout(), slow=True)
        if not self._all_gone(play):
            return None
        took_ns = max((run.end_ns or 0) - run.start_ns for run in play.runs.values())
        wanted = format_duration(-(-took_ns // MINUTE_NS) * MINUTE_NS)
        return Remedy(f"--timeout={wanted}", "none; the drain may take so long")

    def _in_turns(self) -> Remedy | None:
        """Nodes that are drained before take pods again before the next one is drained."""
        if self._first.gate not in ("landing", "pdb") or not self._drained:
            return None
        scope = Scope(self._scope.snapshot, self._nodes)
        turns = WaveOptions(1, maintenance_ns=SECOND_NS, cordon=CORDON_FIRST)
        cut = [[name] for name in self._nodes]
        if not self._all_gone(play_waves(scope, self._options, turns, cut, MIDDLE, self._named)):
            return None
        names = " ".join(map(shlex.quote, self._drained))
        text = f"kubectl uncordon {names} once drained, before {self._first.node} is"
        return Remedy(text, "the work on it must be done by then")

    def _that_lasts(self, change: RemedyCandidate) -> RemedyCandidate | None:
        """The change if it lets the pods go, with nodes cordoned first where pods that wait for a
        node may land on them before the drain begins, and hold it up; None if it does not help.
        """
        if not self._uids.isdisjoint(self._stuck_after(change)):
            return None
        there = {obj.name for obj in change.objects if isinstance(obj, Node)}
        names = [name for name in dict.fromkeys((*self._nodes, *self._named)) if name not in there]
        nodes = [self._scope.snapshot.nodes[name] for name in names]
        nodes = [node for node in nodes if not node.spec.unschedulable]
        later = change.after_landing_on(nodes, self._scope.snapshot)
        if later is None or self._uids.isdisjoint(self._stuck_after(later)):
            return change
        cordoned = change.with_cordoned(nodes)
        return cordoned if self._uids.isdisjoint(self._stuck_after(cordoned)) else None

    def _stuck_after(self, change: RemedyCandidate) -> Collection[str]:
        """The uids of pods that do not go after the change, which may be tried already: a webhook
        denies each pod in words of its own, and the change is one.
        """
        for tried in self._tried:
            if (tried.change, tried.nodes) == (change, self._nodes):
                return tried.stuck
        snapshot = self._scope.snapshot.changed(change.objects, change.without)
        play = self._play(snapshot, self._options)
        self._tried.append(_Tried(change, self._nodes, _stuck_in(play)))
        return self._tried[-1].stuck

    def _play(self, snapshot: PlanSnapshot, options: DrainOptions, *, slow: bool = False) -> Play:
        scope = Scope(snapshot, self._nodes)
        timing = SLOW_TIMING if slow else MIDDLE
        return play_kubectl(scope, options, timing, self._named)

    def _all_gone(self, play: Play) -> bool:
        return self._uids.isdisjoint(_stuck_in(play))

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
