"""Where a pod's claims let it go. Rows are titled as those of kube-scheduler's
plugins/volumebinding/binder_test.go (TestFindPodVolumesWithoutProvisioning, -WithProvisioning) and
of component-helpers/scheduling/corev1/helpers_test.go (TestMatchTopologySelectorTerms).
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from kubectl_nodelife.kube.meta import KubeObject, LabelSelectorRequirement, ObjectMeta
from kubectl_nodelife.kube.node import Node, NodeMeta
from kubectl_nodelife.kube.pod import (
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolumeClaimVolume,
    Pod,
    PodSpec,
    Volume,
)
from kubectl_nodelife.kube.storage import (
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from kubectl_nodelife.workloads.scheduling import (
    NO_PROVISIONER,
    REASON_BIND_CONFLICT,
    REASON_NO_VOLUME,
    REASON_NODE_CONFLICT,
    REASON_UNBOUND,
    REASON_ZONE,
    WAIT_FOR_FIRST_CONSUMER,
    volume_needs,
    volume_reason,
)

ZONE = "topology.kubernetes.io/zone"
WAIT = StorageClass(
    metadata=ObjectMeta(name="wait"),
    provisioner=NO_PROVISIONER,
    volume_binding_mode=WAIT_FOR_FIRST_CONSUMER,
)
NODE = Node(metadata=NodeMeta(name="n1", labels={"key1": "value1", ZONE: "a"}))


class Read(NamedTuple):
    """What was read of a cluster's storage."""

    objects: Sequence[KubeObject]
    all_read: bool = True

    def _get(self, type_: type[KubeObject], name: str) -> KubeObject | None:
        return next((o for o in self.objects if type(o) is type_ and o.name == name), None)

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        found = self._get(PersistentVolumeClaim, name)
        return found if isinstance(found, PersistentVolumeClaim) else None

    def volume(self, name: str) -> PersistentVolume | None:
        found = self._get(PersistentVolume, name)
        return found if isinstance(found, PersistentVolume) else None

    def storage_class(self, name: str) -> StorageClass | None:
        found = self._get(StorageClass, name)
        return found if isinstance(found, StorageClass) else None

    def free_volumes(self, class_name: str) -> list[PersistentVolume]:
        volumes = [o for o in self.objects if isinstance(o, PersistentVolume)]
        free = [v for v in volumes if v.spec.claim_ref is None]
        return [v for v in free if v.spec.storage_class_name == class_name]

    def volumes_read(self) -> bool:
        return self.all_read


def claim(volume: str = "", class_name: str = "wait", **more: str) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name="pvc", namespace="ns"),
        spec=PersistentVolumeClaimSpec(volume_name=volume, storage_class_name=class_name),
        status=PersistentVolumeClaimStatus(**more),
    )


def volume(
    of_node: str = "", *, bound: bool = False, labels: dict[str, str] | None = None
) -> PersistentVolume:
    term = NodeSelectorTerm(match_expressions=(LabelSelectorRequirement("key1", "In", (of_node,)),))
    required = NodeSelector(node_selector_terms=(term,)) if of_node else None
    return PersistentVolume(
        metadata=ObjectMeta(name="pv", labels=labels),
        spec=PersistentVolumeSpec(
            node_affinity=VolumeNodeAffinity(required=required),
            storage_class_name="wait",
            claim_ref=ClaimReference("ns", "pvc") if bound else None,
        ),
    )


def provisioned(*terms: TopologySelectorTerm) -> StorageClass:
    return StorageClass(
        metadata=ObjectMeta(name="wait"),
        provisioner="csi.example.com",
        volume_binding_mode=WAIT_FOR_FIRST_CONSUMER,
        allowed_topologies=terms,
    )


def topology(**wanted: str) -> TopologySelectorTerm:
    found = (TopologySelectorLabelRequirement(key, (value,)) for key, value in wanted.items())
    return TopologySelectorTerm(match_label_expressions=tuple(found))


UNBOUND = claim()
IMMEDIATE = StorageClass(metadata=ObjectMeta(name="wait"), provisioner="csi.example.com")

ROWS: dict[str, tuple[Sequence[KubeObject], str | None]] = {
    "all-bound": ([claim("pv"), volume("value1", bound=True)], None),
    "bound-pvc,pv-different-node": (
        [claim("pv"), volume("other", bound=True)],
        REASON_NODE_CONFLICT,
    ),
    "bound-pvc,pv-gone": ([claim("pv")], REASON_NO_VOLUME),
    "bound-pvc,pv-same-zone": ([claim("pv"), volume(bound=True, labels={ZONE: "a__b"})], None),
    "bound-pvc,pv-other-zone": (
        [claim("pv"), volume(bound=True, labels={ZONE: "c"})],
        REASON_ZONE,
    ),
    "unbound-pvc": ([UNBOUND, WAIT], REASON_BIND_CONFLICT),
    "unbound-pvc,pv-same-node": ([UNBOUND, WAIT, volume("value1")], None),
    "unbound-pvc,pv-different-node": ([UNBOUND, WAIT, volume("other")], REASON_BIND_CONFLICT),
    "unbound-pvc,pv-anywhere": ([UNBOUND, WAIT, volume()], None),
    "unbound-pvc,pv-of-another-claim": (
        [UNBOUND, WAIT, volume("value1", bound=True)],
        REASON_BIND_CONFLICT,
    ),
    "immediate-unbound-pvc": ([UNBOUND, IMMEDIATE], REASON_UNBOUND),
    "unbound-pvc,class-gone": ([UNBOUND], REASON_UNBOUND),
    "unbound-pvc,no-class": ([claim(class_name="")], REASON_UNBOUND),
    "one-provisioned": ([UNBOUND, provisioned()], None),
    "topology-satisfied": ([UNBOUND, provisioned(topology(key1="value1"))], None),
    "topology-unsatisfied": ([UNBOUND, provisioned(topology(key1="other"))], REASON_BIND_CONFLICT),
    "topology-needs-both": (
        [UNBOUND, provisioned(topology(key1="value1", key2="value2"))],
        REASON_BIND_CONFLICT,
    ),
    "topology-second-term": (
        [UNBOUND, provisioned(topology(key1="other"), topology(key1="value1"))],
        None,
    ),
    "nil-or-empty-term-matches-no-objects": (
        [UNBOUND, provisioned(topology())],
        REASON_BIND_CONFLICT,
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
    needs = volume_needs(using(), read)
    assert (needs.nowhere or volume_reason(needs, NODE, read)) == reason


@pytest.mark.parametrize("objects", [[], [claim("pv")], [UNBOUND]])
def test_what_was_not_read_rules_no_node_out(objects: list[KubeObject]) -> None:
    read = Read(objects, all_read=False)
    needs = volume_needs(using(), read)
    assert (needs.nowhere, needs.unknown) == ("", ("pvc",))
    assert volume_reason(needs, NODE, read) is None


def using() -> Pod:
    claimed = Volume(
        name="data", persistent_volume_claim=PersistentVolumeClaimVolume(claim_name="pvc")
    )
    meta = ObjectMeta(name="p", namespace="ns", uid="p")
    return Pod(metadata=meta, spec=PodSpec(volumes=(claimed,)))
