"""Where a pod's claims let it go. Rows are titled as those of kube-scheduler's
plugins/volumebinding/binder_test.go (TestFindPodVolumesWithoutProvisioning, -WithProvisioning) and
of component-helpers/scheduling/corev1/helpers_test.go (TestMatchTopologySelectorTerms).
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from kubectl_nodelife.kube import pod, storage
from kubectl_nodelife.kube.meta import KubeObject, LabelSelectorRequirement, ObjectMeta
from kubectl_nodelife.kube.node import Node, NodeMeta
from kubectl_nodelife.workloads import scheduling

ZONE = "topology.kubernetes.io/zone"
WAIT = storage.StorageClass(
    metadata=ObjectMeta(name="wait"),
    provisioner=scheduling.NO_PROVISIONER,
    volume_binding_mode=scheduling.WAIT_FOR_FIRST_CONSUMER,
)
NODE = Node(metadata=NodeMeta(name="n1", labels={"key1": "value1", ZONE: "a"}))


class Read(NamedTuple):
    """What was read of a cluster's storage."""

    objects: Sequence[KubeObject]
    all_read: bool = True

    def _get(self, type_: type[KubeObject], name: str) -> KubeObject | None:
        return next((o for o in self.objects if type(o) is type_ and o.name == name), None)

    def claim(self, namespace: str, name: str) -> storage.PersistentVolumeClaim | None:
        found = self._get(storage.PersistentVolumeClaim, name)
        return found if isinstance(found, storage.PersistentVolumeClaim) else None

    def volume(self, name: str) -> storage.PersistentVolume | None:
        found = self._get(storage.PersistentVolume, name)
        return found if isinstance(found, storage.PersistentVolume) else None

    def storage_class(self, name: str) -> storage.StorageClass | None:
        found = self._get(storage.StorageClass, name)
        return found if isinstance(found, storage.StorageClass) else None

    def free_volumes(self, class_name: str) -> list[storage.PersistentVolume]:
        volumes = [o for o in self.objects if isinstance(o, storage.PersistentVolume)]
        free = [v for v in volumes if v.spec.claim_ref is None]
        return [v for v in free if v.spec.storage_class_name == class_name]

    def volumes_read(self) -> bool:
        return self.all_read


def claim(volume: str = "", class_name: str = "wait", **more: str) -> storage.PersistentVolumeClaim:
    return storage.PersistentVolumeClaim(
        metadata=ObjectMeta(name="pvc", namespace="ns"),
        spec=storage.PersistentVolumeClaimSpec(volume_name=volume, storage_class_name=class_name),
        status=storage.PersistentVolumeClaimStatus(**more),
    )


def volume(
    of_node: str = "", *, bound: bool = False, labels: dict[str, str] | None = None
) -> storage.PersistentVolume:
    term = pod.NodeSelectorTerm(
        match_expressions=(LabelSelectorRequirement("key1", "In", (of_node,)),)
    )
    required = pod.NodeSelector(node_selector_terms=(term,)) if of_node else None
    return storage.PersistentVolume(
        metadata=ObjectMeta(name="pv", labels=labels),
        spec=storage.PersistentVolumeSpec(
            node_affinity=storage.VolumeNodeAffinity(required=required),
            storage_class_name="wait",
            claim_ref=storage.ClaimReference("ns", "pvc") if bound else None,
        ),
    )


def provisioned(*terms: storage.TopologySelectorTerm) -> storage.StorageClass:
    return storage.StorageClass(
        metadata=ObjectMeta(name="wait"),
        provisioner="csi.example.com",
        volume_binding_mode=scheduling.WAIT_FOR_FIRST_CONSUMER,
        allowed_topologies=terms,
    )


def topology(**wanted: str) -> storage.TopologySelectorTerm:
    found = (
        storage.TopologySelectorLabelRequirement(key, (value,)) for key, value in wanted.items()
    )
    return storage.TopologySelectorTerm(match_label_expressions=tuple(found))


UNBOUND = claim()
IMMEDIATE = storage.StorageClass(metadata=ObjectMeta(name="wait"), provisioner="csi.example.com")

ROWS: dict[str, tuple[Sequence[KubeObject], str | None]] = {
    "all-bound": ([claim("pv"), volume("value1", bound=True)], None),
    "bound-pvc,pv-different-node": (
        [claim("pv"), volume("other", bound=True)],
        scheduling.REASON_NODE_CONFLICT,
    ),
    "bound-pvc,pv-gone": ([claim("pv")], scheduling.REASON_NO_VOLUME),
    "bound-pvc,pv-same-zone": ([claim("pv"), volume(bound=True, labels={ZONE: "a__b"})], None),
    "bound-pvc,pv-other-zone": (
        [claim("pv"), volume(bound=True, labels={ZONE: "c"})],
        scheduling.REASON_ZONE,
    ),
    "unbound-pvc": ([UNBOUND, WAIT], scheduling.REASON_BIND_CONFLICT),
    "unbound-pvc,pv-same-node": ([UNBOUND, WAIT, volume("value1")], None),
    "unbound-pvc,pv-different-node": (
        [UNBOUND, WAIT, volume("other")],
        scheduling.REASON_BIND_CONFLICT,
    ),
    "unbound-pvc,pv-anywhere": ([UNBOUND, WAIT, volume()], None),
    "unbound-pvc,pv-of-another-claim": (
        [UNBOUND, WAIT, volume("value1", bound=True)],
        scheduling.REASON_BIND_CONFLICT,
    ),
    "immediate-unbound-pvc": ([UNBOUND, IMMEDIATE], scheduling.REASON_UNBOUND),
    "unbound-pvc,class-gone": ([UNBOUND], scheduling.REASON_UNBOUND),
    "unbound-pvc,no-class": ([claim(class_name="")], scheduling.REASON_UNBOUND),
    "one-provisioned": ([UNBOUND, provisioned()], None),
    "topology-satisfied": ([UNBOUND, provisioned(topology(key1="value1"))], None),
    "topology-unsatisfied": (
        [UNBOUND, provisioned(topology(key1="other"))],
        scheduling.REASON_BIND_CONFLICT,
    ),
    "topology-needs-both": (
        [UNBOUND, provisioned(topology(key1="value1", key2="value2"))],
        scheduling.REASON_BIND_CONFLICT,
    ),
    "topology-second-term": (
        [UNBOUND, provisioned(topology(key1="other"), topology(key1="value1"))],
        None,
    ),
    "nil-or-empty-term-matches-no-objects": (
        [UNBOUND, provisioned(topology())],
        scheduling.REASON_BIND_CONFLICT,
    ),
    "prebound-pvc,claim-lost": (
        [claim("pv", phase="Lost")],
        'persistentvolumeclaim "pvc" bound to non-existent persistentvolume "pv"',
    ),
    "pvc-not-found": ([], 'persistentvolumeclaim "pvc" not found'),
}


@pytest.mark.parametrize(("objects", "reason"), ROWS.values(), ids=ROWS.keys())
def test_where_a_claim_lets_a_pod_go(objects: Sequence[KubeObject], reason: str | None) -> None:
    read = Read(objects)
    needs = scheduling.volume_needs(using(), read)
    assert (needs.nowhere or scheduling.volume_reason(needs, NODE, read)) == reason


@pytest.mark.parametrize("objects", [[], [claim("pv")], [UNBOUND]])
def test_what_was_not_read_rules_no_node_out(objects: list[KubeObject]) -> None:
    read = Read(objects, all_read=False)
    needs = scheduling.volume_needs(using(), read)
    assert (needs.nowhere, needs.unknown) == ("", ("pvc",))
    assert scheduling.volume_reason(needs, NODE, read) is None


def using() -> pod.Pod:
    claimed = pod.Volume(
        name="data", persistent_volume_claim=pod.PersistentVolumeClaimVolume(claim_name="pvc")
    )
    meta = ObjectMeta(name="p", namespace="ns", uid="p")
    return pod.Pod(metadata=meta, spec=pod.PodSpec(volumes=(claimed,)))
