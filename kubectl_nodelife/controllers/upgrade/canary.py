"""The canary: a small pod that must be scheduled to one node, run there, and be stopped again.

It goes through the scheduler and the kubelet like any pod: bound by affinity, not by nodeName. It
tolerates the taint of the proof and what the node was tainted with before the run, meets restricted
Pod Security, and ends by itself if it is not deleted.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN, TAINT_UNPROVEN, NodeMark
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.engine.actions import (
    CreateCanary,
    DeleteCanary,
)
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import TAINT_NODE_UNSCHEDULABLE

LABEL_CANARY: Final = "nodelife.dev/canary"
ANNOTATION_SPEC: Final = "nodelife.dev/canary-spec"
OWN_DEADLINE_S: Final = 300
_KUBERNETES: Final = "node.kubernetes.io/"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

Manifest = dict[str, Any]


def short_hash(text: str) -> str:
    """Eight hexadecimal digits, for names that are found again."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def canary_name(node_uid: str) -> str:
    """The name of the node's canary."""
    return f"nodelife-canary-{short_hash(node_uid)}"


def canary_manifest(
    node: Node,
    mark: NodeMark,
    *,
    namespace: str,
    image: str,
    deadline_s: int,
    tolerates_cordon: bool = False,
    template: Mapping[str, Any] | None = None,
) -> Manifest:
    """The pod for the node. `template`: the user's own, of which only name, namespace, labels,
    affinity, tolerations, owner and deadline are set.
    """
    pod: Manifest = copy.deepcopy(dict(template)) if template else {"spec": _small(image)}
    pod["apiVersion"], pod["kind"] = "v1", "Pod"
    meta = pod.setdefault("metadata", {})
    meta.pop("generateName", None)
    meta["name"], meta["namespace"] = canary_name(node.uid), namespace
    meta["labels"] = {
        **(meta.get("labels") or {}),
        LABEL_RUN: mark.run,
        LABEL_CANARY: canary_name(node.uid),
    }
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    annotations = {**(meta.get("annotations") or {}), **({} if template else safe)}
    meta["ownerReferences"] = [owned_by(node)]
    spec = pod["spec"]
    spec["tolerations"] = [
        *(spec.get("tolerations") or ()),
        *_tolerations(mark, tolerates_cordon=tolerates_cordon),
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity[_REQUIRED] = {"nodeSelectorTerms": [term]}
    spec["activeDeadlineSeconds"] = deadline_s + OWN_DEADLINE_S
    meta["annotations"] = {**annotations, ANNOTATION_SPEC: _digest(spec)}
    return pod


def owned_by(node: Node) -> Manifest:
    """The owner reference to the node; a person's drain is not kept from deleting what has it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node.name,
        "uid": node.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _tolerations(mark: NodeMark, *, tolerates_cordon: bool) -> list[Manifest]:
    found: list[Manifest] = [
        {"key": TAINT_UNPROVEN, "operator": "Exists", "effect": "NoSchedule"},
    ]
    for taint in mark.before.taints:
        if not taint.key.startswith(_KUBERNETES):
            same = {"operator": "Equal", "value": taint.value} if taint.value else {}
            same = same or {"operator": "Exists"}
            found.append({"key": taint.key, **same, "effect": taint.effect})
    if tolerates_cordon:
        found.append(
            {"key": TAINT_NODE_UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}
        )
    return found


def _small(image: str) -> Manifest:
    """A pod that asks for nearly nothing and may do nothing."""
    container = {
        "name": "canary",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "requests": {"cpu": "1m", "memory": "16Mi"},
            "limits": {"memory": "16Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "containers": [container],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _digest(spec: Manifest) -> str:
    """Of what the policy says of the pod, not of what the node does."""
    of_node = ("affinity", "tolerations", "activeDeadlineSeconds")
    of_policy = {key: value for key, value in spec.items() if key not in of_node}
    return short_hash(json.dumps(of_policy, sort_keys=True))


def canary_of(p: UpgradePass, node: Node) -> Pod | None:
    """The node's canary, where there is one."""
    return p.cache.pod(p.policy.namespace, canary_name(node.uid))


def wanted_canary(p: UpgradePass, node: Node, mark: NodeMark) -> Manifest:
    """The manifest that this policy makes for the node."""
    image = p.policy.canary_image
    return canary_manifest(
        node,
        mark,
        namespace=p.policy.namespace,
        image=image,
        deadline_s=int(p.policy.prove_timeout_ns) // SECOND_NS,
        tolerates_cordon=mark.cordon == "theirs"
        and (p.policy.include_cordoned or mark.earlier is not None),
        template=p.policy.canary_template,
    )


def is_as_wanted(pod: Pod, manifest: Manifest) -> bool:
    """True if the pod was made from this manifest; not one of an older `--canary-image`."""
    wanted = manifest["metadata"]["annotations"][ANNOTATION_SPEC]
    return bool((pod.metadata.annotations or {}).get(ANNOTATION_SPEC, wanted) == wanted)


def create_canary(p: UpgradePass, node: Node, manifest: Manifest) -> None:
    """POST it, where no write on it is under way."""
    key = (p.policy.namespace, canary_name(node.uid))
    if not p.is_under_way("Pod", key):
        p.emit(
            CreateCanary(
                controller="upgrade",
                because=f"proves that {node.name} can be scheduled to and runs pods",
                namespace=key[0],
                pod=key[1],
                node=node.name,
                manifest=manifest,
            )
        )


def delete_canary(p: UpgradePass, node: Node, because: str) -> None:
    """DELETE the node's canary where there is one that is not going already."""
    pod = canary_of(p, node)
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return
    if not p.is_under_way("Pod", pod.key):
        p.emit(
            DeleteCanary(
                controller="upgrade",
                because=because,
                namespace=pod.namespace,
                pod=pod.name,
                pod_uid=pod.uid,
                node=node.name,
            )
        )
