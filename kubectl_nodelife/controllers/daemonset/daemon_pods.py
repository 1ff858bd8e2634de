"""The pods of one set, by the node they are on or are meant for, kept up with every change.

Follows `getDaemonPods` and `getNodesToDaemonPods` (`pkg/controller/daemon/daemon_controller.go`),
which build the map anew in every sync; a test holds this index against that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.claim import Claim, claim_object
from kubectl_nodelife.controllers.daemonset.template import NoTargetNodeError, get_target_node_name
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import DaemonSet

Key = tuple[str, str]

_FINISHED = ("Succeeded", "Failed")


def is_left_out(pod: Pod, rules: Behaviour) -> bool:
    """Whether a claimed pod does not count any more: finished, and terminating besides."""
    return (
        rules.finished_terminating_left_out
        and pod.metadata.deletion_timestamp is not None
        and pod.status.phase in _FINISHED
    )


class DaemonPods:
    """Claimed pods by node, those to adopt or release, and the hashes that claimed pods carry."""

    def __init__(self, daemon_set: DaemonSet, rules: Behaviour) -> None:
        self._set = daemon_set
        self._rules = rules
        self.by_node: dict[str, dict[Key, Pod]] = {}
        self.to_adopt: dict[Key, Pod] = {}
        self.to_release: dict[Key, Pod] = {}
        self.hashes: Counter[str] = Counter()

    def observe(self, old: Pod | None, new: Pod | None) -> Iterator[str]:
        """Take in a change of one pod; yields the nodes whose pods of the set are others now."""
        if old is not None:
            yield from self._drop(old)
        if new is not None:
            yield from self._add(new)

    def on_node(self, node: str) -> list[Pod] | None:
        """The set's pods on a node that count, or None where the map has no entry."""
        pods = self.by_node.get(node)
        return None if pods is None else list(pods.values())

    def has_pod_bound_to(self, node: str) -> bool:
        """Whether a claimed pod is on the node."""
        return any(pod.spec.node_name == node for pod in self.by_node.get(node, {}).values())

    def claimed(self) -> Iterator[Pod]:
        """All pods in the map."""
        for pods in self.by_node.values():
            yield from pods.values()

    def live_hashes(self) -> set[str]:
        """The hash labels that claimed pods carry, finished terminating pods among them."""
        return {label for label, count in self.hashes.items() if count > 0}

    def _add(self, pod: Pod) -> Iterator[str]:
        claim = claim_object(self._set, pod)
        if claim is Claim.KEEP:
            yield from self._keep(pod, 1)
        elif claim is Claim.ADOPT:
            self.to_adopt[pod.key] = pod
        elif claim is Claim.RELEASE:
            self.to_release[pod.key] = pod

    def _drop(self, pod: Pod) -> Iterator[str]:
        self.to_adopt.pop(pod.key, None)
        self.to_release.pop(pod.key, None)
        if claim_object(self._set, pod) is Claim.KEEP:
            yield from self._keep(pod, -1)

    def _keep(self, pod: Pod, count: int) -> Iterator[str]:
        label = (pod.metadata.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH)
        try:
            node = get_target_node_name(pod)
        except NoTargetNodeError:
            return
        if label:
            self.hashes[label] += count
        if is_left_out(pod, self._rules):
            return
        if count > 0:
            self.by_node.setdefault(node, {})[pod.key] = pod
        else:
            pods = self.by_node.get(node)
            if pods is not None and pods.pop(pod.key, None) is not None and not pods:
                del self.by_node[node]
        yield node
