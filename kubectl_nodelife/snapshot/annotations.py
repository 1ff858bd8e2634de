"""The annotations of objects that some decision or answer here reads: the one table.

All others go from a snapshot. A test finds every annotation key that the code reads and holds it
against this table. Besides these a key stays that an admission policy or a webhook's match
conditions read as an annotation (`keys_read`), because they are evaluated too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubectl_nodelife.kube.cel import Unknown
from kubectl_nodelife.kube.cel.parser import Node, parse
from kubectl_nodelife.kube.wellknown import ANNOTATION_CONFIG_MIRROR, ANNOTATION_CONFIG_SOURCE

KEPT: Final = {
    ANNOTATION_CONFIG_MIRROR: "a mirror pod: the API cannot evict it",
    ANNOTATION_CONFIG_SOURCE: "a kubelet's own pods, from a file or from the API",
    "deprecated.daemonset.template.generation": "which pods are of the present template",
    "scheduler.alpha.kubernetes.io/critical-pod": "tolerations of DaemonSet pods before v1.16",
    "controller.kubernetes.io/pod-deletion-cost": "which pods a ReplicaSet gives up first",
    "kubernetes.io/change-cause": "the words of a revision in `rollout history`",
    "nodelife.dev/upgrade": "the state of a node's upgrade",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "a shield of an upgrade",
    "karpenter.sh/do-not-disrupt": "a shield of an upgrade",
    "nodelife.dev/canary-spec": "whether a canary is of the manifest that is tried",
    "weave.works/kured-reboot-in-progress": "a node that kured reboots is not available",
    "machineconfiguration.openshift.io/state": "nor is one whose machine config is applied",
    "cluster.x-k8s.io/machine": "whose machine Cluster API may replace during an upgrade",
    "sandbox.nodelife.dev/heartbeats": "a kubelet that the sandbox has silenced",
}
"""Annotation key -> what depends on it."""

_ANNOTATIONS: Final = "annotations"


def keys_read(expressions: Iterable[str]) -> set[str]:
    """The annotation keys that the CEL expressions of one object read: `annotations['k']`,
    `annotations.k`, `'k' in annotations`, what a macro over annotations compares. A variable may be
    annotations where one of the expressions speaks of them.
    """
    parsed = []
    for text in expressions:
        try:
            parsed.append(parse(text))
        except Unknown:  # nor will it be evaluated
            continue
    if not any(_speaks_of(node, _ANNOTATIONS) for node in parsed):
        return set()
    return {key for node in parsed for part in _parts(node) for key in _keys_of(part)}


def _keys_of(node: Node) -> Iterator[str]:
    """The keys that this node itself reads."""
    match node:
        case ("index" | "optional", base, ("literal", str(key))) if _may_be_annotations(base):
            yield key
        case ("select", base, str(key)) if _may_be_annotations(base):
            yield key
        case ("chain", ("literal", str(key)), steps):
            if any(word == "in" and _may_be_annotations(right) for word, right in steps):
                yield key
        case ("method", _, base, arguments) if _may_be_annotations(base):
            for part in _parts(arguments):
                match part:
                    case ("literal", str(key)):
                        yield key


def _may_be_annotations(base: Node) -> bool:
    match base:
        case ("select", _, "annotations") | ("select", ("name", "variables"), _):
            return True
        case ("index" | "optional", _, ("literal", "annotations")):
            return True
        case ("method", "orValue", inner, _):
            return _may_be_annotations(inner)
    return False


def _speaks_of(node: Node, word: str) -> bool:
    return any(part == ("literal", word) or (part[:1] == ("select",) and part[2] == word)
               for part in _parts(node))  # fmt: skip


def _parts(node: Any) -> Iterator[tuple[Any, ...]]:
    """The node and all below it."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            yield part
        if isinstance(part, (tuple, list)):
            waiting += part
