"""The pods of one set, by the node they are on or are meant for, kept up with every change.

Follows `getDaemonPods` and `getNodesToDaemonPods` (`pkg/controller/daemon/daemon_controller.go`),
which build the map anew in every sync; a test holds this index against that. Which pods (and
revisions) are a set's, to keep, adopt, release or leave alone, follows
`BaseControllerRefManager.ClaimObject` (`pkg/controller/controller_ref_manager.go`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from enum import Enum

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.controllers.daemonset.template import NoTargetNodeError, get_target_node_name
from kubectl_nodelife.copy_on_write import copy_of_dict, fork_dict
from kubectl_nodelife.kube.meta import KubeObject, controller_of
from kubectl_nodelife.kube.pod import TERMINAL_PHASES, Pod
from kubectl_nodelife.kube.selectors import matches
from kubectl_nodelife.kube.wellknown import LABEL_CONTROLLER_REVISION_HASH
from kubectl_nodelife.kube.workload import DaemonSet

Key = tuple[str, str]


def is_left_out(pod: Pod, rules: Behaviour) -> bool:
    """True if a claimed pod does not count any more: finished, and terminating besides."""
    return (
        rules.finished_terminating_left_out
        and pod.metadata.deletion_timestamp is not None
        and pod.status.phase in TERMINAL_PHASES
    )


class DaemonPods:
    """Claimed pods by node, those to adopt or release, and the hashes that claimed pods carry."""

    def __init__(self, daemon_set: DaemonSet, rules: Behaviour) -> None:
        self._set = daemon_set
        self._rules = rules
        self.by_node: dict[str, dict[Key, Pod]] = {}
        self.to_adopt: dict[Key, Pod] = {}
        self.to_release: dict[Key, Pod] = {}
        self.hashes: dict[str, int] = {}

    def fork(self) -> DaemonPods:
        """Another map of the same pods."""
        other = copy(self)
        self.by_node, other.by_node = fork_dict(self.by_node, copy_of_dict)
        self.to_adopt, other.to_adopt = fork_dict(self.to_adopt)
        self.to_release, other.to_release = fork_dict(self.to_release)
        other.hashes = dict(self.hashes)
        return other

    def fill(self, pods: Iterable[Pod]) -> None:
        """Take in pods that the set controls, many at once."""
        matching: dict[str, str] | None = None
        for pod in pods:
            labels = pod.metadata.labels
            if labels is matching or claim_object(self._set, pod) is Claim.KEEP:
                matching = labels
                self._keep(pod, 1)
            else:
                for _ in self.observe(None, pod):
                    pass

    def observe(self, old: Pod | None, new: Pod | None) -> Iterator[str]:
        """Take in a change of one pod; yields the nodes whose pods of the set are others now."""
        if old is not None and new is not None and self._has_new_status(old, new):
            yield new.spec.node_name
            return
        nodes = {
            self._drop(old) if old is not None else "",
            self._add(new) if new is not None else "",
        }
        yield from nodes - {""}

    def _has_new_status(self, old: Pod, new: Pod) -> bool:
        """True if the pod is in the map and nothing but its status is new; it is taken in then."""
        if old.metadata is not new.metadata or old.spec is not new.spec:
            return False
        pods = self.by_node.get(new.spec.node_name)
        key = new.key
        if pods is None or key not in pods or new.metadata.deletion_timestamp is not None:
            return False
        del pods[key]
        pods[key] = new
        return True

    def on_node(self, node: str) -> list[Pod] | None:
        """The set's pods on a node that count, or None where the map has no entry."""
        pods = self.by_node.get(node)
        return None if pods is None else list(pods.values())

    def claimed(self) -> Iterator[Pod]:
        """All pods in the map."""
        for pods in self.by_node.values():
            yield from pods.values()

    def live_hashes(self) -> set[str]:
        """The hash labels that claimed pods carry, finished terminating pods among them."""
        return {label for label, count in self.hashes.items() if count > 0}

    def _add(self, pod: Pod) -> str:
        claim = claim_object(self._set, pod)
        if claim is Claim.KEEP:
            return self._keep(pod, 1)
        if claim is Claim.ADOPT:
            self.to_adopt[pod.key] = pod
        elif claim is Claim.RELEASE:
            self.to_release[pod.key] = pod
        return ""

    def _drop(self, pod: Pod) -> str:
        self.to_adopt.pop(pod.key, None)
        self.to_release.pop(pod.key, None)
        if claim_object(self._set, pod) is Claim.KEEP:
            return self._keep(pod, -1)
        return ""

    def _keep(self, pod: Pod, count: int) -> str:
        """Put a claimed pod into the map, or take it out; its node, "" where it has none."""
        node = pod.spec.node_name
        if not node:
            try:
                node = get_target_node_name(pod)
            except NoTargetNodeError:
                return ""
        meta = pod.metadata
        label = (meta.labels or {}).get(LABEL_CONTROLLER_REVISION_HASH)
        if label:
            self.hashes[label] = self.hashes.get(label, 0) + count
        if meta.deletion_timestamp is not None and is_left_out(pod, self._rules):
            return ""
        key = (meta.namespace, meta.name)
        pods = self.by_node.get(node)
        if count > 0:
            if pods is None:
                self.by_node[node] = {key: pod}
            else:
                pods[key] = pod
        elif pods is not None and pods.pop(key, None) is not None and not pods:
            del self.by_node[node]
        return node


class Claim(Enum):
    """The four ways in which a set treats an object that may be its own."""

    KEEP = "ours already"
    ADOPT = "an orphan that matches"
    RELEASE = "ours, but it no longer matches"
    IGNORE = "not ours"


def claim_object(daemon_set: DaemonSet, obj: KubeObject) -> Claim:
    """How the set stands to an object of its namespace."""
    owner = controller_of(obj.metadata)
    deleting = daemon_set.metadata.deletion_timestamp is not None
    if owner is not None:
        if owner.uid != daemon_set.uid:
            return Claim.IGNORE
        if matches(daemon_set.spec.selector, obj.metadata.labels):
            return Claim.KEEP
        return Claim.IGNORE if deleting else Claim.RELEASE
    if deleting or not matches(daemon_set.spec.selector, obj.metadata.labels):
        return Claim.IGNORE
    return Claim.IGNORE if obj.metadata.deletion_timestamp is not None else Claim.ADOPT
