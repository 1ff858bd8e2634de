"""Each rule of repair by itself, on objects read anew after the class was found."""

from typing import Any

import pytest
from msgspec.structs import replace

from kubectl_nodelife.engine.settings import parse_profile
from kubectl_nodelife.kube.pod import Pod, PodCondition
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.kubelet.machine import PodTable
from kubectl_nodelife.kubelet.releases import rules_for
from kubectl_nodelife.outlook.audit.classes import Classification
from kubectl_nodelife.outlook.audit.repair_plan import FirstSeen, refusals
from kubectl_nodelife.workloads.force_advice import NodeReadiness
from tests.pod_status.objects import NOW_NS, ago, health, marked, pod

STUCK = Classification("stuck-not-ready", PodCondition(type="Ready", status="True"))
GATED = Classification("stuck-not-ready", PodCondition(type="Ready", status="False"))
GRACE_NS = 50 * SECOND_NS
SIDECAR = [{"name": "s", "restartPolicy": "Always"}]


def against(
    subject: Pod | None = None,
    node: NodeReadiness | None = None,
    found: Classification = STUCK,
    seen_for_s: int = 300,
    profile: str = "v1.36",
) -> tuple[str, ...]:
    """The refusals of a repair of which nothing else speaks against."""
    return refusals(
        subject or marked(),
        node or health(),
        found,
        FirstSeen(NOW_NS - seen_for_s * SECOND_NS, "9"),
        rules_for(parse_profile(profile)),
        GRACE_NS,
        NOW_NS,
    )


def test_nothing_speaks_against_it() -> None:
    assert against() == ()


@pytest.mark.parametrize(
    "subject, refusal",
    [
        pytest.param(marked(metadata__deletionTimestamp=ago(1)), "it is terminating", id="deleted"),
        pytest.param(marked(status__phase="Succeeded"), "its phase is Succeeded", id="ended"),
        pytest.param(marked(status__phase=""), "its phase is not set", id="no-phase"),
        pytest.param(
            marked(conditions={"ContainersReady": "False"}),
            "its containers are not all ready",
            id="containers-ready-false",
        ),
        pytest.param(
            marked(conditions={"ContainersReady": None}),
            "its containers are not all ready",
            id="no-containers-ready",
        ),
        pytest.param(
            marked(status__containerStatuses=[{"name": "c", "state": {"running": {}}}]),
            "its containers are not all ready",
            id="a-container-is-not-ready",
        ),
        pytest.param(
            pod(),
            "its Ready condition was not made by the node controller",
            id="ready-again",
        ),
        pytest.param(
            marked(conditions={"Ready": ("False", "Why", "")}),
            "its Ready condition was not made by the node controller",
            id="a-reason",
        ),
        pytest.param(
            marked(conditions={"Ready": ("False", "", "why")}),
            "its Ready condition was not made by the node controller",
            id="a-message",
        ),
        pytest.param(
            marked(conditions={"Ready": None}),
            "its Ready condition was not made by the node controller",
            id="no-ready",
        ),
    ],
)
def test_the_pod_is_not_what_it_was(subject: Pod, refusal: str) -> None:
    assert refusal in against(subject)


def test_the_class_alone_is_not_enough() -> None:
    (refusal,) = against(found=Classification("lagging"))
    assert "lagging" in refusal
    assert against(found=GATED) == ("its readiness gates are not all True",)
    assert against(found=Classification("stuck-not-ready")) == (
        "its readiness gates are not all True",
    )


@pytest.mark.parametrize(
    "node, refusal",
    [
        pytest.param(health(ready="Unknown"), "is not Ready", id="lost"),
        pytest.param(NodeReadiness("n1", exists=False), "is not Ready", id="gone"),
        pytest.param(NodeReadiness("n1", exists=False, ready="True"), "is not Ready", id="odd"),
        pytest.param(health(ready_for=59), "for less than 60s", id="young"),
        pytest.param(
            replace(health(), ready_since_ns=None), "does not say since when", id="does-not-say"
        ),
    ],
)
def test_the_node_is_not_what_it_was(node: NodeReadiness, refusal: str) -> None:
    (said,) = against(node=node)
    assert refusal in said


def test_the_limits_themselves_are_enough() -> None:
    assert against(node=health(ready_for=60)) == ()
    assert against(seen_for_s=60) == ()
    assert against(seen_for_s=59) == ("it is not proven to have been so for 60s",)
    assert against(node=health(heartbeat=49)) == ()
    assert len(against(node=health(heartbeat=50))) == 1


def test_a_sidecar_must_run_from_1_29_on() -> None:
    waits: dict[str, Any] = {
        "spec__initContainers": SIDECAR,
        "status__initContainerStatuses": [{"name": "s", "ready": True, "state": {"waiting": {}}}],
    }
    assert against(marked(**waits)) == ("container s is not reported as running and ready",)
    assert against(marked(**waits), profile="v1.28") == ()
    ordinary = {**waits, "spec__initContainers": [{"name": "s"}]}
    assert against(marked(**ordinary)) == ()


# -- the pod table, which the kubelet's side stands on

FILE = {"kubernetes.io/config.source": "file"}
MIRROR = {**FILE, "kubernetes.io/config.mirror": "x"}


def static(uid: str = "s") -> Pod:
    return pod(metadata__uid=uid, metadata__annotations=FILE)


def mirror(uid: str = "m") -> Pod:
    return pod(metadata__uid=uid, metadata__annotations=MIRROR)


def test_a_mirror_belongs_to_the_pod_of_its_name() -> None:
    table = PodTable()
    table.set(mirror())
    assert (table.translate_uid("m"), table.mirror_uids()) == ("m", {})
    table.set(static())
    assert (table.translate_uid("m"), table.mirror_uids()) == ("s", {"s": "m"})
    assert table.by_uid("m") is None and table.mirror_of(static()) == mirror()
    assert len(table) == 1


def test_only_the_very_pod_is_removed() -> None:
    table = PodTable()
    for known in (static(), mirror()):
        table.set(known)
    table.remove(mirror("other"))
    table.remove(static("other"))
    assert table.mirror_uids() == {"s": "m"}
    table.remove(mirror())
    assert table.mirror_uids() == {"s": ""}
    table.remove(mirror())
    table.remove(static())
    assert (len(table), table.mirror_uids()) == (0, {})


def test_a_pod_made_anew_keeps_its_name_when_the_old_one_goes() -> None:
    table = PodTable()
    for known in (mirror(), static("old"), static("new")):
        table.set(known)
    table.remove(static("old"))
    assert table.translate_uid("m") == "new"
