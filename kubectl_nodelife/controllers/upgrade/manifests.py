"""What is made for a node: the canary pod of its proof, and the Job of its work.

The canary goes through the scheduler and the kubelet like any pod: bound by affinity, not by
nodeName. It tolerates the taint of the proof and what the node was tainted with before the run,
meets restricted Pod Security, and ends by itself if it is not deleted.

The Job (`--job FILE`) is the user's manifest, bound to the node. `$(NODE)` and the other variables
are put in wherever they stand in a text, a shell's among them: what a node says of itself must hold
nothing that a shell would obey. The Job is found again by its name: a second create is answered
with 409.

The variables are those of `--run`, too. A kubelet writes its own Node: its addresses, and its
provider id where none is set. One that reported another machine's would have the operator's
command go there. So an address is passed on only if it is one of a machine on a network, and both
only if one Node alone claims them and they are what they were when the plan was made (or, of a node
that came later, when it was first seen).
"""

from __future__ import annotations

import copy
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kubectl_nodelife.controllers.upgrade import marks
from kubectl_nodelife.controllers.upgrade.claims import pool_name, zone_name
from kubectl_nodelife.controllers.upgrade.fleet import reported_addresses
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import first_names
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kube.wellknown import (
    NO_EXECUTE,
    NO_SCHEDULE,
    TAINT_NODE_NOT_READY,
    TAINT_NODE_UNREACHABLE,
    TAINT_NODE_UNSCHEDULABLE,
)

CANARY: Final = "nodelife-canary-"
"""How the names of canaries begin."""
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
    return f"{CANARY}{short_hash(node_uid)}"


def canary_manifest(p: UpgradePass, node: Node, mark: marks.NodeMark) -> Manifest:
    """The pod that the policy makes for the node. Of the user's own template only name, namespace,
    labels, affinity, tolerations, owner and deadline are set.
    """
    policy, template, name = p.policy, p.policy.canary_template, canary_name(node.uid)
    pod: Manifest = copy.deepcopy(template) if template else {"spec": _small(policy.canary_image)}
    pod["apiVersion"], pod["kind"] = "v1", "Pod"
    meta = pod.setdefault("metadata", {})
    meta.pop("generateName", None)
    meta["name"], meta["namespace"] = name, policy.namespace
    labels = {marks.LABEL_RUN: mark.run, LABEL_CANARY: name}
    meta["labels"] = {**(meta.get("labels") or {}), **labels}
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    annotations = {**(meta.get("annotations") or {}), **({} if template else safe)}
    meta["ownerReferences"] = _owned_by(node.name, node.uid, controller=True)
    spec = pod["spec"]
    stays_cordoned = policy.include_cordoned or mark.earlier is not None
    tolerates_cordon = stays_cordoned and mark.cordon is marks.CordonOwner.THEIRS
    ours = _tolerations(mark, tolerates_cordon=tolerates_cordon)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *ours]
    spec.get("affinity", {}).get("nodeAffinity", {}).pop(_REQUIRED, None)
    _bind(spec, node.name)
    spec["activeDeadlineSeconds"] = int(policy.prove_timeout_ns) // SECOND_NS + OWN_DEADLINE_S
    meta["annotations"] = {**annotations, ANNOTATION_SPEC: _digest(spec)}
    return pod


def _owned_by(name: str, uid: str, **more: bool) -> list[Manifest]:
    """Owned by the node; a person's drain is not kept from deleting what has such an owner."""
    node = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return [{**node, **more, "blockOwnerDeletion": False}]


def _bind(pod: Manifest, node: str) -> None:
    """Only this node: terms are alternatives, so that each of them has to say so."""
    affinity = pod.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    ours = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity[_REQUIRED] = {
        "nodeSelectorTerms": [
            {**term, "matchFields": [*(term.get("matchFields") or ()), ours]} for term in terms
        ]
    }


def _tolerations(mark: marks.NodeMark, *, tolerates_cordon: bool) -> list[Manifest]:
    cordon, unproven, *_ = _TOLERATIONS
    tolerations: list[Manifest] = [unproven]
    for taint in mark.before.taints:
        if not taint.key.startswith(_KUBERNETES):
            same = {"operator": "Equal", "value": taint.value} if taint.value else _EXISTS
            tolerations.append({"key": taint.key, **same, "effect": taint.effect})
    return [*tolerations, cordon] if tolerates_cordon else tolerations


def _small(image: str) -> Manifest:
    """A pod that asks for nearly nothing and may do nothing."""
    container = {
        "name": "canary",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "16Mi"}},
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


INTERNAL_IP: Final = "INTERNAL_IP"
PROVIDER_ID: Final = "PROVIDER_ID"
PLAIN: Final = re.compile(r"[A-Za-z0-9._:/@%+=,~\[\]-]*", re.ASCII)
"""Nothing that a shell would obey."""
_OPTION: Final = re.compile(r"(^|/)-")
"""A provider id, or the last part of one, that a command would take for an option."""
_NAMED: Final = 3
_OF_THE_NODE: Final = ("NODE", "NODE_UID", PROVIDER_ID, INTERNAL_IP, "POOL", "ZONE")
VARIABLES: Final = (*_OF_THE_NODE, "RUN", "TRY", "TARGET")
_REFERENCE = re.compile(r"\$\((" + "|".join(VARIABLES) + r")\)")
_EXISTS: Final = {"operator": "Exists"}
_TOLERATIONS: Final = (
    {"key": TAINT_NODE_UNSCHEDULABLE, **_EXISTS, "effect": NO_SCHEDULE},
    {"key": marks.TAINT_UNPROVEN, **_EXISTS, "effect": NO_SCHEDULE},
    {"key": TAINT_NODE_NOT_READY, **_EXISTS, "effect": NO_EXECUTE},
    {"key": TAINT_NODE_UNREACHABLE, **_EXISTS, "effect": NO_EXECUTE},
)
"""Of the Job: what a node under work is marked with; of the canary the second, or the first two."""


class WorkVariables(NamedTuple):
    """`values`: the environment; `withheld`: which of them are empty, and why."""

    values: dict[str, str]
    withheld: dict[str, str]


def work_variables(p: UpgradePass, node: Node, mark: marks.NodeMark) -> WorkVariables:
    """The variables that are passed to the work on the node in this try."""
    address, provider_id = reported_addresses(node)
    before = p.memory.addresses.get(node.uid, (address, provider_id))
    others = [other for other in p.nodes.values() if other.uid != node.uid]
    doubts = {
        INTERNAL_IP: _doubt_address(address, before[0], others),
        PROVIDER_ID: _doubt_provider_id(provider_id, before[1], others),
    }
    withheld = {name: why for name, why in doubts.items() if why}
    values = {
        "NODE": node.name,
        "NODE_UID": node.uid,
        PROVIDER_ID: "" if PROVIDER_ID in withheld else provider_id,
        INTERNAL_IP: "" if INTERNAL_IP in withheld else address,
        "POOL": pool_name(node, p.policy),
        "ZONE": zone_name(node),
        "RUN": mark.run,
        "TRY": str(mark.try_),
        "TARGET": ",".join(str(target) for target in p.policy.target),
    }
    return WorkVariables(values, withheld)


def _doubt_address(address: str, before: str, others: Iterable[Node]) -> str:
    """Why the address is not passed on, "" where it is, or where there is none."""
    if not address:
        return ""
    ip = _ip(address)
    if ip is None:
        return f"{address[:60]!r} is no address of a machine on a network"
    if address != before:
        return f"it was {before or 'unknown'} at the plan and is {address} now"
    # as whatever kind of address the others report it
    named = [node.name for node in others if ip in (_ip(a.address) for a in node.status.addresses)]
    return f"{address} is reported by {_and_others(named)} too" if named else ""


def _doubt_provider_id(provider_id: str, before: str, others: Iterable[Node]) -> str:
    if PLAIN.fullmatch(provider_id) is None or _OPTION.search(provider_id):
        return f"a shell might obey {provider_id[:60]!r}"
    if provider_id != before:
        return f"it was {before[:60] or 'unknown'} at the plan and is {provider_id[:60]} now"
    named = [node.name for node in others if provider_id and node.spec.provider_id == provider_id]
    return f"{provider_id[:60]} is claimed by {_and_others(named)} too" if named else ""


def _and_others(names: list[str]) -> str:
    return f"node {first_names(sorted(names), _NAMED)}"


@lru_cache(maxsize=1 << 14)
def _ip(text: str) -> str | None:
    """The address in one spelling, None for what leads to no other machine, or to several."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return None
        ip = ip.ipv4_mapped or ip
    nowhere = ip.is_loopback or ip.is_unspecified or ip.is_multicast or ip.is_link_local
    return None if nowhere else str(ip)


class UnsafeVariable(ValueError):
    """A node's own words would be put into the manifest, and a shell may read them there."""


def check_job_manifest(manifest: Any, on: str) -> None:
    """Raises BadInput where it is no Job of batch/v1 with a pod template. `on`: its file."""
    of = manifest if isinstance(manifest, dict) else {}
    if (of.get("apiVersion"), of.get("kind")) != ("batch/v1", "Job"):
        raise BadInput("is no Job of batch/v1", on=on)
    template = (of.get("spec") or {}).get("template") or {}
    if not (template.get("spec") or {}).get("containers"):
        raise BadInput("its pod template has no containers", on=on)


def job_manifest(
    manifest: Mapping[str, Any],
    namespace: str,
    name: str,
    variables: WorkVariables,
    deadline_s: int,
) -> Manifest:
    """The Job for the node that the variables describe. `namespace`, `deadline_s`: where the
    manifest names none. Raises UnsafeVariable, for one that is withheld as well.
    """
    job: Manifest = _fill(copy.deepcopy(dict(manifest)), variables)
    values = variables.values
    meta = job.setdefault("metadata", {})
    meta.pop("generateName", None)
    meta["name"] = name
    meta.setdefault("namespace", namespace)
    meta["ownerReferences"] = _owned_by(values["NODE"], values["NODE_UID"])
    spec = job["spec"]
    spec["podReplacementPolicy"] = "Failed"
    spec.setdefault("activeDeadlineSeconds", deadline_s)
    template = spec["template"]
    for labelled in (meta, template.setdefault("metadata", {})):
        labelled["labels"] = {**(labelled.get("labels") or {}), marks.LABEL_RUN: values["RUN"]}
    pod = template["spec"]
    pod["tolerations"] = [*(pod.get("tolerations") or ()), *_TOLERATIONS]
    _bind(pod, values["NODE"])
    return job


def _fill(value: Any, variables: WorkVariables) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _checked(match[1], variables), value)
    if isinstance(value, dict):
        return {key: _fill(each, variables) for key, each in value.items()}
    return [_fill(each, variables) for each in value] if isinstance(value, list) else value


def _checked(name: str, variables: WorkVariables) -> str:
    if name in variables.withheld:
        raise UnsafeVariable(f"$({name}) is not given: {variables.withheld[name]}")
    value = variables.values[name]
    if name in _OF_THE_NODE and PLAIN.fullmatch(value) is None:
        raise UnsafeVariable(f"$({name}) is {value[:60]!r}, which a shell might obey")
    return value
