"""A workload whose pods spread over the nodes that take them, as a remedy."""

from __future__ import annotations

from msgspec.structs import replace

from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.meta import controller_of
from kubectl_nodelife.kube.names import subject
from kubectl_nodelife.kube.pod import Pod, PodSpec
from kubectl_nodelife.workloads.owners import owner_chain


def honoring_taints(pod: Pod, snapshot: PlanSnapshot) -> tuple[str, tuple[Pod, ...]] | None:
    """The change in words, and the pods of its owner after that; None where it changes nothing.

    By default a cordoned or tainted node counts as an empty domain of a constraint, which nothing
    can fill (`nodeTaintsPolicy` Ignore, podtopologyspread/common.go).
    """
    chain = owner_chain(pod, snapshot)
    constraints = pod.spec.topology_spread_constraints
    counted = [c for c in constraints if c.when_unsatisfiable == "DoNotSchedule"]
    if not chain or all(c.node_taints_policy == "Honor" for c in counted):
        return None
    owner, top = controller_of(pod.metadata), chain[-1]
    alike = snapshot.pods_by_namespace.get(pod.namespace, ())
    pods = tuple(
        replace(other, spec=_honoring(other.spec))
        for other in alike
        if controller_of(other.metadata) == owner
    )
    name = subject(top.kind.lower(), top.name)
    return f"nodeTaintsPolicy: Honor in the topologySpreadConstraints of {name}", pods


def _honoring(spec: PodSpec) -> PodSpec:
    constraints = (
        replace(constraint, node_taints_policy="Honor")
        for constraint in spec.topology_spread_constraints
    )
    return replace(spec, topology_spread_constraints=tuple(constraints))
