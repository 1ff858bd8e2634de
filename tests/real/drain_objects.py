"""What a cluster to drain is made of: set-ups, and manifests of what they hold.

Each set-up has a namespace and nodes of its own, named after it, so that all of them live side by
side on one control plane. Most begin with one node, on which every pod lands, and get others once
the pods are Ready.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.objects import manifest

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
EVICTION: Json = {"operations": ["CREATE"], "resources": ["pods/eviction"]}
DELETION: Json = {"operations": ["DELETE"], "resources": ["pods"]}


@dataclass(frozen=True)
class Setup:
    """One cluster and the drain of some of its nodes.

    `nodes`, `later`: names and labels, there from the beginning or once the pods are there.
    `pods`: how many get a node, and how many of them become Ready. `then`: objects that come once
    pods are Ready and budgets have counted them. `silent`: the node whose kubelet falls silent when
    all that is done; the drain begins when the cluster knows.
    `before`: (verb, path, patch) of requests made `settles_s` before all is recorded. `as_printed`:
    kubectl is run with the command that the plan prints, not with `flags`. `stopped_after_s`:
    kubectl is ended then.
    """

    name: str
    objects: tuple[Json, ...]
    pods: tuple[int, int]
    flags: str = ""
    nodes: dict[str, Json] = field(default_factory=lambda: {"a1": {}})
    later: dict[str, Json] = field(default_factory=lambda: {"a2": {}})
    drained: tuple[str, ...] = ("a1",)
    silent: str = ""
    before: tuple[tuple[str, str, Json | None], ...] = ()
    settles_s: float = 1.5
    as_printed: bool = False
    then: tuple[Json, ...] = ()
    stopped_after_s: float = 60.0

    def node(self, name: str) -> str:
        """A node's full name."""
        return f"{self.name}-{name}"

    def command(self) -> str:
        """The drain."""
        words = ["kubectl", "drain", *(self.node(name) for name in self.drained)]
        return " ".join([*words, *self.flags.split()])

    def namespace(self) -> Json:
        """The namespace."""
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}

    def placed(self, objects: tuple[Json, ...]) -> list[Json]:
        """The objects, in the namespace and bound to the nodes of this set-up."""
        return [_placed(obj, self.name) for obj in objects]


CLUSTER_SCOPED = (
    "PersistentVolume",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
)


def _placed(obj: Json, name: str) -> Json:
    obj = {**obj, "metadata": dict(obj["metadata"])}
    if obj["kind"] not in CLUSTER_SCOPED:
        obj["metadata"]["namespace"] = name
    if obj["kind"] == "Pod":
        obj["spec"] = _on_nodes(obj["spec"], name)
    elif "template" in obj.get("spec", {}):
        template = obj["spec"]["template"]
        template = {**template, "spec": _on_nodes(template["spec"], name)}
        obj["spec"] = {**obj["spec"], "template": template}
    return obj


def _on_nodes(spec: Json, name: str) -> Json:
    return {**spec, "nodeSelector": {"setup": name, **spec.get("nodeSelector", {})}}


# --- manifests ---------------------------------------------------------------------------------


def pod_spec(**fields: Any) -> Json:
    """A pod's spec; it takes one second to stop unless `fields` say otherwise."""
    container = {"name": "c", "image": "app", "resources": fields.pop("resources", {})}
    return {"terminationGracePeriodSeconds": 1, "containers": [container], **fields}


def bare_pod(name: str, labels: Json | None = None, **fields: Any) -> Json:
    """A pod without a controller. `fields` go into its spec or its metadata."""
    meta: Json = {"name": name, "labels": {"app": name, **(labels or {})}}
    for member in ("finalizers", "annotations"):
        if member in fields:
            meta[member] = fields.pop(member)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec(**fields)}


def workload(kind: str, name: str, spec: Json, labels: Json | None, pod: Json) -> Json:
    """An owner of pods with the label app=NAME."""
    labels = {"app": name, **(labels or {})}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": name}}}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**pod)}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**selector, "template": template, **spec},
    }


def deployment(name: str, replicas: int, labels: Json | None = None, **pod: Any) -> Json:
    """A Deployment. `pod` goes into the pods' spec."""
    return workload("Deployment", name, {"replicas": replicas}, labels, pod)


def stateful_set(name: str, replicas: int, spec: Json | None = None, **pod: Any) -> Json:
    """A StatefulSet. `spec` goes into its own spec, `pod` into the pods'."""
    return workload("StatefulSet", name, {"replicas": replicas, **(spec or {})}, None, pod)


def job(name: str, parallelism: int, labels: Json | None = None, **spec: Any) -> Json:
    """A Job, in which each pod succeeds once. `spec` goes into its own spec."""
    spec = {"parallelism": parallelism, "completions": parallelism, **spec}
    return workload("Job", name, spec, labels, {"restartPolicy": "Never"})


def daemon_set(name: str) -> Json:
    """A DaemonSet."""
    return workload("DaemonSet", name, {}, None, {})


def budget(name: str, **spec: Any) -> Json:
    """A budget for the pods with the label app=NAME, unless `spec` has another selector."""
    spec = {"selector": {"matchLabels": {"app": name}}, **spec}
    meta = {"name": name}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta,
        "spec": spec,
    }


def guarded(owner: Json, **spec: Any) -> tuple[Json, Json]:
    """A workload and a budget for its pods."""
    return owner, budget(owner["metadata"]["name"], **spec)


def spread(app: str, **fields: Any) -> list[Json]:
    """A topology spread constraint over nodes that must hold."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
            **fields,
        }
    ]


def apart(app: str) -> Json:
    """An affinity: never two of them on one node."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def volumes(setup: str, claims: tuple[str, ...], key: str, value: str) -> list[Json]:
    """A class without a provisioner, and a volume for each claim, on nodes with that label."""
    class_name = f"{setup}-disks"
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    made: list[Json] = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{setup}-{claim}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class_name,
                "claimRef": {"namespace": setup, "name": claim},
                "csi": {"driver": "disks.example.com", "volumeHandle": claim},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        }
        for claim in claims
    ]
    storage_class = manifest("StorageClass", class_name, provisioner="kubernetes.io/no-provisioner")
    return [storage_class, *made]


def with_disks(setup: str, name: str, replicas: int) -> Json:
    """A StatefulSet whose pods have a claim each, NAME-0 and so on, called disk."""
    claim = {
        "metadata": {"name": "disk"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"{setup}-disks",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return stateful_set(name, replicas, {"volumeClaimTemplates": [claim]})


def policy(setup: str, on: Json | None = None, **spec: Any) -> list[Json]:
    """A policy in the set-up's namespace and its binding: on evictions, or what the rule `on` says.

    `spec` has the rest.
    """
    rule = {"apiGroups": [""], "apiVersions": ["v1"], **(on or EVICTION)}
    constraints = {"resourceRules": [rule]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": setup}}
    group = "admissionregistration.k8s.io/v1"
    return [
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": setup},
            "spec": {"failurePolicy": "Fail", "matchConstraints": constraints, **spec},
        },
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": setup},
            "spec": {
                "policyName": setup,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": here},
            },
        },
    ]


def lonely_webhook(setup: str, failure_policy: str) -> Json:
    """A webhook for evictions in the namespace whose service does not exist."""
    service = {"namespace": setup, "name": "guard"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], **EVICTION}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": setup},
        "webhooks": [
            {
                "name": "guard.example.com",
                "rules": [rule],
                "failurePolicy": failure_policy,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": setup}},
                "clientConfig": {"service": service},
            }
        ],
    }
