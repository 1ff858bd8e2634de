"""What `kubectl drain` of its node would do to one pod."""

from __future__ import annotations

from dataclasses import dataclass

from kubectl_nodelife.drain.plan import make_plan
from kubectl_nodelife.drain.results import REFUSED, DrainPlan, PodFault, PodPlan
from kubectl_nodelife.drain.snapshot import PlanSnapshot
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.sim.kubectl.options import DrainOptions


@dataclass(frozen=True, slots=True)
class PodInDrain:
    """The plan's word on the pod (None: kubectl does not touch it), the objections of kubectl that
    flags must lift before, and the kinds that the plan lacks."""

    planned: PodPlan | None
    lifted: list[PodFault]
    lacking: list[str]


def pod_in_drain(snapshot: PlanSnapshot, pod: Pod) -> PodInDrain:
    """What `kubectl drain NODE --ignore-daemonsets` does to the pod, with the flags that kubectl
    asks for. Raises KeyError for a pod on a node that is not there."""
    plan = make_plan(snapshot, [pod.spec.node_name], DrainOptions(ignore_daemonsets=True))
    found, lifted = _find(plan, pod), []
    if found is not None and found.verdict == REFUSED and plan.with_flags is not None:
        lifted = found.faults
        plan = plan.with_flags
        found = _find(plan, pod)
    return PodInDrain(found, lifted, [lack.kind for lack in plan.not_evaluated])


def _find(plan: DrainPlan, pod: Pod) -> PodPlan | None:
    planned = [p for wave in plan.waves for p in wave.pods]
    planned += [p for node in plan.nodes for p in node.kept]
    return next((p for p in planned if (p.namespace, p.name) == pod.key), None)
