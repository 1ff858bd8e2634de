"""What draining a node asks of the cluster: which budgets it needs, and how much room."""

from __future__ import annotations

from kubectl_nodelife.drain.admission import Admission
from kubectl_nodelife.drain.scope import NO_REPLACEMENT, Scope
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.quantity import pod_requests
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.zones import zone_key
from kubectl_nodelife.sim.kubectl.filters import DELETE, REFUSE, decide
from kubectl_nodelife.sim.kubectl.options import DrainOptions
from kubectl_nodelife.workloads.eviction import ALWAYS_ALLOW, can_ignore_budgets
from kubectl_nodelife.workloads.force_advice import finalizers_that_hold
from kubectl_nodelife.workloads.owners import NEVER
from kubectl_nodelife.workloads.waves import BudgetKey, NodeLoad


def node_loads(scope: Scope, options: DrainOptions, admission: Admission) -> list[NodeLoad]:
    """The load of every planned node, in their order."""
    return [_load(name, scope, options, admission) for name in scope.nodes]


def _load(name: str, scope: Scope, options: DrainOptions, admission: Admission) -> NodeLoad:
    snapshot = scope.snapshot
    load = NodeLoad(name, zone_key(snapshot.nodes[name].metadata.labels))
    selector = options.selector() if options.pod_selector else None
    silent = snapshot.silent_kubelet(name) is not None and not snapshot.out_of_service(name)
    for pod in scope.pods[name]:
        if selector is not None and not matches(selector, pod.metadata.labels):
            continue
        decision = decide(pod, options, snapshot, snapshot.now_ns)
        if decision.verb == REFUSE:
            load.blocked, load.refused = f"kubectl refuses it: {decision.message}", True
            return load
        if decision.verb != DELETE:
            continue
        load.blocked = load.blocked or _blocked(pod, silent, scope, options, admission)
        _add_pod(load, pod, scope, options)
    return load


def _add_pod(load: NodeLoad, pod: Pod, scope: Scope, options: DrainOptions) -> None:
    for key in budgets_asked(pod, scope, options):
        load.budgets[key] = load.budgets.get(key, 0) + 1
    owner = controller_of(pod.metadata)
    rule = scope.rules.get(owner.uid, NO_REPLACEMENT) if owner is not None else NO_REPLACEMENT
    if rule.when != NEVER:
        load.pods += 1
        for resource, amount in pod_requests(pod).items():
            load.moving[resource] = load.moving.get(resource, 0) + amount


def budgets_asked(pod: Pod, scope: Scope, options: DrainOptions) -> tuple[BudgetKey, ...]:
    """The budgets that the pod's eviction will be held against."""
    if options.disable_eviction or can_ignore_budgets(pod):
        return ()
    keys = scope.budgets_of.get(pod.metadata.uid, ())
    if len(keys) == 1 and not pod.ready():
        policy = scope.ledgers[keys[0]].budget.spec.unhealthy_pod_eviction_policy
        if policy == ALWAYS_ALLOW:
            return ()
    return keys


def cap_of(scope: Scope, key: BudgetKey) -> int:
    """How many disruptions the budget allows at once when all that it expects are healthy."""
    status = scope.ledgers[key].budget.status
    return max(status.disruptions_allowed, status.expected_pods - status.desired_healthy, 0)


def _blocked(
    pod: Pod, silent: bool, scope: Scope, options: DrainOptions, admission: Admission
) -> str:
    """Why the pod can never go, where no run is needed to tell; "" otherwise."""
    if silent and pod.status.phase not in ("Succeeded", "Failed"):
        return "its kubelet is silent"
    if finalizers_that_hold(pod):
        return f"a finalizer holds {pod.namespace}/{pod.name}"
    if options.disable_eviction:
        return "a deletion is refused" if admission.refuses_deletion(pod) is not None else ""
    if admission.refuses_eviction(pod) is not None:
        return "an eviction is refused in admission"
    keys = budgets_asked(pod, scope, options)
    if len(keys) > 1:
        return f"two budgets match {pod.namespace}/{pod.name}"
    if keys and (cap_of(scope, keys[0]) == 0 or scope.ledgers[keys[0]].is_stale()):
        return f"budget {keys[0][1]} allows no eviction"
    return ""
