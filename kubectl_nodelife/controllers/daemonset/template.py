"""From a set's template to its pods: what every daemon pod tolerates, and where each is put.

Follows `CreatePodTemplate`, `AddOrUpdateDaemonPodTolerations`,
`ReplaceDaemonSetPodNodeNameNodeAffinity` and `GetTargetNodeName`
(`pkg/controller/daemon/util/daemonset_util.go`) and `GetPodFromTemplate`
(`pkg/controller/controller_utils.go`).

A template is plain JSON in a set (revisions compare and hash all of it). Here it is read into typed
slices once for each template, and written out again as a pod's manifest with nothing lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from kubectl_nodelife.controllers.daemonset.behaviour import Behaviour
from kubectl_nodelife.kube import wellknown
from kubectl_nodelife.kube.codec import convert
from kubectl_nodelife.kube.meta import OwnerReference, new_controller_ref
from kubectl_nodelife.kube.pod import Pod, PodSpec, Toleration
from kubectl_nodelife.kube.workload import DaemonSet

TEMPLATE_GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"
CRITICAL_POD_ANNOTATION = "scheduler.alpha.kubernetes.io/critical-pod"
TAINT_NODE_OUT_OF_DISK = "node.kubernetes.io/out-of-disk"
NODE_FIELD_SELECTOR_KEY = "metadata.name"
OWN_SCHEDULER_NAME = "kubernetes.io/daemonset-controller"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000

Json = dict[str, Any]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_SEMANTIC_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


class NoTargetNodeError(ValueError):
    """A pod is neither bound nor does its affinity name exactly one node."""


def is_critical(
    namespace: str, annotations: dict[str, str] | None, priority: int | None, rules: Behaviour
) -> bool:
    """True if the template's pods are critical, up to 1.16. Follows `IsCriticalPod`."""
    gate = rules.critical_pod_annotation
    if priority is not None and priority >= SYSTEM_CRITICAL_PRIORITY:
        return gate or rules.critical_by_priority
    annotated = (annotations or {}).get(CRITICAL_POD_ANNOTATION) == ""
    return gate and namespace == "kube-system" and annotated


def default_tolerations(host_network: bool, critical: bool, rules: Behaviour) -> list[Json]:
    """The tolerations, for ever, of daemon pods besides their template's, in upstream's order."""
    wanted = [
        (wellknown.TAINT_NODE_NOT_READY, wellknown.NO_EXECUTE),
        (wellknown.TAINT_NODE_UNREACHABLE, wellknown.NO_EXECUTE),
        (wellknown.TAINT_NODE_DISK_PRESSURE, wellknown.NO_SCHEDULE),
        (wellknown.TAINT_NODE_MEMORY_PRESSURE, wellknown.NO_SCHEDULE),
    ]
    if rules.tolerates_pid_pressure:
        wanted.append((wellknown.TAINT_NODE_PID_PRESSURE, wellknown.NO_SCHEDULE))
    if rules.tolerates_unschedulable:
        wanted.append((wellknown.TAINT_NODE_UNSCHEDULABLE, wellknown.NO_SCHEDULE))
    if host_network and rules.tolerates_network_unavailable:
        wanted.append((wellknown.TAINT_NODE_NETWORK_UNAVAILABLE, wellknown.NO_SCHEDULE))
    if critical and rules.tolerates_out_of_disk:
        wanted += [
            (TAINT_NODE_OUT_OF_DISK, wellknown.NO_EXECUTE),
            (TAINT_NODE_OUT_OF_DISK, wellknown.NO_SCHEDULE),
        ]
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]


def add_or_update_tolerations(present: list[Json], wanted: list[Json]) -> list[Json]:
    """`wanted` put in place of those equal in key, operator, effect and value, or appended.

    So a user's tolerationSeconds is lost, as upstream. Follows `AddOrUpdateToleration`.
    """
    result = list(present)
    for toleration in wanted:
        for index, old in enumerate(result):
            if _same_toleration(old, toleration):
                result[index] = toleration
                break
        else:
            result.append(toleration)
    return result


def _same_toleration(one: Json, other: Json) -> bool:
    fields = ("key", "operator", "effect", "value")
    return all((one.get(field) or "") == (other.get(field) or "") for field in fields)


def replace_node_name_affinity(affinity: Json | None, node_name: str) -> Json:
    """The affinity with one required term: the node of that name.

    Preferred terms and pod affinity stay. Follows `ReplaceDaemonSetPodNodeNameNodeAffinity`.
    """
    field = {"key": NODE_FIELD_SELECTOR_KEY, "operator": "In", "values": [node_name]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    node_affinity = {
        **((affinity or {}).get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    return {**(affinity or {}), "nodeAffinity": node_affinity}


def get_target_node_name(pod: Pod) -> str:
    """The node a pod is bound to, or is meant for by its affinity. Follows `GetTargetNodeName`.

    Raises NoTargetNodeError.
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            if field.key == NODE_FIELD_SELECTOR_KEY and field.operator == "In":
                if len(field.values) != 1:
                    raise NoTargetNodeError(
                        f"the matchFields value of {NODE_FIELD_SELECTOR_KEY!r} of pod"
                        f" {pod.namespace}/{pod.name} is not 1"
                    )
                return field.values[0]
    raise NoTargetNodeError(f"no node name found for pod {pod.namespace}/{pod.name}")


def knows_match_fields(kubelet_version: str) -> bool:
    """True if a kubelet can run pods whose affinity names a node: those from v1.11.0 on can.

    Follows `matchFieldVersion` of v1.12.10; a version that cannot be read is an old one.
    """
    match = _SEMANTIC_VERSION.fullmatch(kubelet_version)
    if match is None:
        return False
    release = (int(match[1]), int(match[2]), int(match[3]))
    return release > (1, 11, 0) or (release == (1, 11, 0) and not match[4])


def template_generation(daemon_set: DaemonSet) -> int | None:
    """The template generation in the set's annotation, or None.

    Follows `GetTemplateGeneration`; an annotation that is no integer counts as absent.
    """
    text = (daemon_set.metadata.annotations or {}).get(TEMPLATE_GENERATION_ANNOTATION, "")
    return int(text) if _INTEGER.fullmatch(text) else None


@dataclass(frozen=True)
class PodTemplate:
    """One set's template, read once. `rules` decide what daemon pods tolerate."""

    daemon_set: DaemonSet
    rules: Behaviour

    @property
    def raw(self) -> Json:
        """The template as the API shows it."""
        return self.daemon_set.spec.template

    @cached_property
    def metadata(self) -> Json:
        """Its metadata, {} where there is none."""
        return self.raw.get("metadata") or {}

    @cached_property
    def raw_spec(self) -> Json:
        """Its pod spec, {} where there is none."""
        return self.raw.get("spec") or {}

    @cached_property
    def spec(self) -> PodSpec:
        """The pod spec as typed slices, without the default tolerations.

        Raises InputError where the template is not a pod template.
        """
        return convert({"spec": self.raw_spec}, Pod, "", "").spec

    @cached_property
    def critical(self) -> bool:
        """True if 1.11 takes the pods for critical."""
        annotations = self.metadata.get("annotations")
        namespace = self.daemon_set.namespace
        return is_critical(namespace, annotations, self.spec.priority, self.rules)

    @cached_property
    def trial_tolerations(self) -> tuple[Toleration, ...]:
        """The tolerations of a pod that is made, and of the trial pod of a placement decision."""
        return convert({"spec": {"tolerations": self._tolerations}}, Pod, "", "").spec.tolerations

    @cached_property
    def _tolerations(self) -> list[Json]:
        wanted = default_tolerations(self.spec.host_network, self.critical, self.rules)
        present = [t or {} for t in self.raw_spec.get("tolerations") or []]  # null is Go's zero
        return add_or_update_tolerations(present, wanted)

    def labels(self, revision_hash: str) -> dict[str, str]:
        """The labels of a new pod. Follows `CreatePodTemplate`."""
        labels = dict(self.metadata.get("labels") or {})
        generation = template_generation(self.daemon_set)
        if generation is not None:
            labels[wellknown.LABEL_POD_TEMPLATE_GENERATION] = str(generation)
        if revision_hash:
            labels[wellknown.LABEL_CONTROLLER_REVISION_HASH] = revision_hash
        return labels

    def binds_itself(self, kubelet_version: str) -> bool:
        """True if a pod for a node with that kubelet is bound here and not by a scheduler."""
        if self.rules.simulated_predicates:
            return True
        return self.rules.binds_for_old_kubelets and not knows_match_fields(kubelet_version)

    def pod_manifest(
        self, name: str, node_name: str, revision_hash: str, kubelet_version: str
    ) -> Json:
        """The manifest of the set's pod for one node, under a name of our choosing."""
        metadata: Json = {
            "name": name,
            "generateName": f"{self.daemon_set.name}-",
            "namespace": self.daemon_set.namespace,
            "labels": self.labels(revision_hash),
            "ownerReferences": [msgspec.to_builtins(controller_reference(self.daemon_set))],
        }
        for key in ("annotations", "finalizers"):
            if self.metadata.get(key):
                metadata[key] = self.metadata[key]
        spec = {**self.raw_spec, "tolerations": self._tolerations}
        if self.binds_itself(kubelet_version):
            spec["nodeName"] = node_name
            if self.rules.own_scheduler_name:
                spec["schedulerName"] = OWN_SCHEDULER_NAME
        else:
            spec["affinity"] = replace_node_name_affinity(spec.get("affinity"), node_name)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def controller_reference(daemon_set: DaemonSet) -> OwnerReference:
    """The owner reference that daemon pods and revisions carry."""
    return new_controller_ref("DaemonSet", daemon_set)
