"""The namespace controller of the virtual cluster: the pods of a namespace that is deleted end.

Follows pkg/controller/namespace (namespaceDeletionGracePeriod): some seconds after a namespace
began to terminate, its content is deleted; that nothing is created in it meanwhile is admission's
work. Left out: content other than pods, and the removal of the Namespace itself.
"""

from __future__ import annotations

from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.workload import Namespace
from kubectl_nodelife.sim.api import WorldPart
from kubectl_nodelife.sim.timeline import OWNER
from kubectl_nodelife.workloads.admission import ends_pods_ns


class NamespaceController(WorldPart):
    """Follows the Namespaces, and deletes the pods of those that terminate."""

    def begin(self) -> None:
        """Take over the namespaces that terminate already, and follow them all from now on."""
        for namespace in self._api.store.all("Namespace"):
            self._follow(namespace)
        self._api.on_object(self._object_changed)

    def _object_changed(self, kind: str, old: KubeObject | None, new: KubeObject | None) -> None:
        if kind != "Namespace" or new is None:
            return
        if old is None or old.metadata.deletion_timestamp is None:
            self._follow(new)

    def _follow(self, namespace: KubeObject) -> None:
        now_ns = self._api.now_ns
        ends_ns = ends_pods_ns(namespace, now_ns) if isinstance(namespace, Namespace) else None
        if ends_ns is not None:
            self._agenda.add(max(now_ns, ends_ns), OWNER, self._end_pods, namespace.name)

    def _end_pods(self, namespace: str, at_ns: int) -> None:
        pods = [pod for pod in self._api.store.pods.values() if pod.namespace == namespace]
        for pod in pods:
            if pod.metadata.deletion_timestamp is None:
                self._api.delete_pod(pod, "its namespace is being deleted")
