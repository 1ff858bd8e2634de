"""The disruption controller of the sandbox: keeps the status of budgets up to date.

The arithmetic is `workloads/budgets.py`; here is only when it is done: soon after a pod or a budget
of a namespace changed, and when a disrupted pod's two minutes are over.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.times import MILLISECOND_NS
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.sandbox.served import ServedApi
from kubectl_nodelife.workloads.budgets import budget_status, disrupted_pods
from kubectl_nodelife.workloads.scales import ScaleUnknown

_DELAY_NS = 20 * MILLISECOND_NS


class BudgetStatuses:
    """Recomputes the budgets of namespaces in which something changed."""

    def __init__(self, api: ServedApi) -> None:
        self._api = api
        self._due: dict[str, int] = {}
        api.on_pod(self._pod_changed)
        for budget in api.store.all("PodDisruptionBudget"):
            self.changed(budget.namespace)

    def changed(self, namespace: str, delay_ns: int = _DELAY_NS) -> None:
        """Something in the namespace may count for its budgets."""
        at_ns = self._api.now_ns + delay_ns
        self._due[namespace] = min(at_ns, self._due.get(namespace, at_ns))

    def next_due(self) -> int | None:
        """When the next computation is due."""
        return min(self._due.values(), default=None)

    def run(self, now_ns: int) -> None:
        """Compute what is due."""
        for namespace in [name for name, at_ns in self._due.items() if at_ns <= now_ns]:
            del self._due[namespace]
            self._sync(namespace, now_ns)

    def find(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """An owner, as `workloads.scales.Owners` wants it."""
        return self._api.store.get(kind, (namespace, name))

    def was_read(self, kind: str) -> bool:
        """Every kind is known here."""
        return True

    def _pod_changed(self, old: Pod | None, new: Pod | None, cause: Action | None) -> None:
        pod = new or old
        assert pod is not None
        self.changed(pod.namespace)

    def _sync(self, namespace: str, now_ns: int) -> None:
        budgets = [
            budget
            for budget in self._api.store.all("PodDisruptionBudget")
            if isinstance(budget, PodDisruptionBudget) and budget.namespace == namespace
        ]
        if not budgets:
            return
        keys, _ = self._api.served.collections["Pod"].page(None, 0, namespace)
        pods = [self._api.store.pods[key] for key in keys]
        for budget in budgets:
            matched = [p for p in pods if matches(budget.spec.selector, p.metadata.labels)]
            try:
                status = budget_status(budget, matched, self, now_ns)
            except ScaleUnknown:
                continue
            if status != budget.status:
                self._api.put("PodDisruptionBudget", replace(budget, status=status))
            _, ends_ns = disrupted_pods(matched, status.disrupted_pods, now_ns)
            if ends_ns is not None:
                self.changed(namespace, max(ends_ns - now_ns, 0) + _DELAY_NS)
