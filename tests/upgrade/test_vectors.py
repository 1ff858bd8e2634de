"""The decision vectors of upgrades: a state, what is observed, and what follows.

A number is the vector's row. Unless a test says otherwise: a pool of one zone, growth over, the
defaults of the policy, phase Running, no gate, each node Ready and drainable.
"""

from msgspec.structs import replace

from kubectl_nodelife.controllers.upgrade.claims import DrainVerdict
from kubectl_nodelife.controllers.upgrade.document import RunPhase
from kubectl_nodelife.controllers.upgrade.marks import LABEL_RUN
from kubectl_nodelife.kube.meta import ObjectMeta, OwnerReference
from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Toleration
from kubectl_nodelife.kube.storage import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
)
from kubectl_nodelife.kube.times import MINUTE_NS, SECOND_NS
from kubectl_nodelife.kube.workload import Condition, Job, JobStatus
from tests.upgrade.stand import Stand
from tests.upgrade.stand_cluster import RUN, START_NS
from tests.upgrade.vector_cases import (
    DRAINING,
    FAILED,
    HELD,
    NEW,
    REBOOTED,
    SETTLING,
    TARGET,
    WORKING,
    one,
    stand,
    words,
    working,
)


def test_15_never_by_two_budgets_is_skipped_with_the_planners_sentence() -> None:
    s = stand(2)
    s.verdicts["n0"] = DrainVerdict("never", "p is under two budgets: merge them")
    s.settle()
    assert s.claimed() == ["n1"]
    assert "p is under two budgets" in s.skipped["n0"]


def test_16_ready_goes_before_slow() -> None:
    s = stand(2, maxUnavailable=1)
    s.verdicts["n0"] = DrainVerdict("slow")
    s.settle()
    assert s.claimed() == ["n1"]


def test_17_hold_label_others_mark_deletion_and_target_are_named() -> None:
    s = stand(4, **TARGET)
    s.label("n0", **{"nodelife.dev/upgrade-hold": ""})
    s.edit("n1", spec={"taints": (Taint("karpenter.sh/disrupted", "NoSchedule"),)})
    gone = s.node("n2")
    s.put(replace(gone, metadata=replace(gone.metadata, deletion_timestamp=START_NS)))
    s.edit("n3", node_info=NEW)
    s.settle()
    assert s.claimed() == []
    assert "upgrade-hold" in s.skipped["n0"]
    assert "karpenter.sh/disrupted" in s.skipped["n1"]
    assert "being deleted" in s.skipped["n2"]
    assert "is there already" in s.skipped["n3"]


def test_18_claim_answered_409_and_then_cordoned_or_still_a_candidate() -> None:
    s = Stand(nodes=["x"], maxUnavailable=1)
    s.add_nodes("x", "y", "z")
    s.refuse["ClaimNode"] = (409, "the object has been modified")
    for _ in range(4):
        s.step()
    assert "x" in s.claimed() and s.state("x") == ""
    s.refuse.clear()
    s.step()
    assert s.state("x") == DRAINING, "still a candidate: decided anew in the next pass"
    other = Stand(nodes=["x"], maxUnavailable=1)
    other.add_nodes("x", "y", "z")
    other.refuse["ClaimNode"] = (409, "the object has been modified")
    for _ in range(3):
        other.step()
    other.refuse.clear()
    other.edit("x", spec={"unschedulable": True})
    other.settle()
    assert other.state("x") == "" and other.skipped["x"] == "cordoned by others"


def attach(s: Stand, volume: str) -> None:
    spec = VolumeAttachmentSpec("csi", "x", VolumeAttachmentSource(volume))
    s.put(VolumeAttachment(metadata=ObjectMeta(name=f"a-{volume}"), spec=spec))


def test_19_a_volume_of_a_pod_that_left_holds_the_drain_until_its_deadline() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "n1", "n2")
    attach(s, "pv-1")
    s.mark("x", DRAINING)
    s.run(14 * 60, every=30)
    assert s.state("x") == DRAINING and "pv-1" in s.waits_for("x")
    s.run(2 * 60, every=30)
    assert s.state("x") == "" and not s.node("x").spec.unschedulable
    assert "x" in s.document.given_back and not s.document.failed


def test_19_volumes_that_cannot_be_read_are_not_taken_for_detached() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "n1", "n2")
    s.mark("x", DRAINING)
    s.unread = ("VolumeAttachment",)
    s.run(60)
    assert s.state("x") == DRAINING and "cannot be read" in s.waits_for("x")


def test_19_a_volume_of_a_daemon_pod_that_stays_holds_nothing() -> None:
    from kubectl_nodelife.kube.pod import PersistentVolumeClaimVolume, Volume

    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "n1", "n2")
    pod = s.add_pod("d", "x", owner="ds", kind="DaemonSet")
    volume = Volume(name="v", persistent_volume_claim=PersistentVolumeClaimVolume("c"))
    s.put(replace(pod, spec=replace(pod.spec, volumes=(volume,))))
    claim = PersistentVolumeClaimSpec(volume_name="pv-1")
    s.put(PersistentVolumeClaim(metadata=ObjectMeta(name="c", namespace="default"), spec=claim))
    attach(s, "pv-1")
    s.mark("x", DRAINING)
    s.settle()
    assert s.state("x") == WORKING


def test_20_never_for_60s_while_draining_is_given_back_without_a_failure() -> None:
    s = Stand(grown=False, maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.add_pod("p", "x")
    s.write(step=replace(s.document.step, pool=""))
    s.mark("x", DRAINING)
    s.verdicts["x"] = DrainVerdict("never", "p never goes")
    s.verdicts["y"] = s.verdicts["z"] = DrainVerdict("slow")
    s.run(55)
    assert s.state("x") == DRAINING
    s.run(10)
    assert s.state("x") == "" and s.document.given_back == {"x": "p never goes"}
    assert s.skipped["x"] == "p never goes" and not s.document.failed
    s.run(301)
    assert s.document.step.k == 0, "a step with no Done is played again"
    assert s.claimed() == ["y"]


def test_a_node_that_another_program_takes_while_it_is_drained_is_given_back() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.verdicts["x"] = DrainVerdict("slow")
    s.add_pod("p", "x")
    s.settle()
    assert s.state("x") == DRAINING
    s.edit("x", spec={"taints": (Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule"),)})
    s.settle()
    assert s.state("x") == "" and not s.node("x").spec.unschedulable
    assert "autoscaler is about to delete it" in s.skipped["x"] and not s.document.given_back
    assert "StartWork" not in words(s.did)


def test_21_uncordoned_while_draining_is_held_and_nothing_more_is_evicted() -> None:
    s = one(DRAINING)
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.add_pod("p", "x")
    s.mark("x", DRAINING)
    s.edit("x", spec={"unschedulable": False})
    s.settle()
    assert s.went_through("x") == [HELD] and "EvictPod" not in words(s.did)
    assert s.document.left == ("x",)


def test_22_paused_while_draining_is_given_back_at_its_deadline_without_entry() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.add_pod("p", "x")
    s.write(phase=RunPhase.PAUSED)
    s.mark("x", DRAINING)
    s.run(14 * 60, every=30)
    assert s.state("x") == DRAINING
    s.run(2 * 60, every=30)
    assert s.state("x") == "" and not s.document.given_back and not s.document.failed
    assert not {"EvictPod", "StartWork"} & set(words(s.did))


def test_24_run_and_a_new_leader_without_a_target() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.mark("x", WORKING)
    s.lead(2)
    s.settle()
    assert s.state("x") == HELD and s.mark_of("x").reason == "unknown whether it ran"
    assert "StartWork" not in words(s.did)


def test_24_run_and_a_new_leader_whose_target_is_not_met() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5, **TARGET)
    s.add_nodes("x", "y")
    s.mark("x", WORKING)
    s.lead(2)
    s.run(29 * 60, every=30)
    assert s.state("x") == WORKING
    s.run(2 * 60, every=30)
    assert s.state("x") == HELD and "StartWork" not in words(s.did)


JOB_WORK = {
    "mode": "job",
    "manifest": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    },
}


def job_name(s: Stand) -> str:
    from kubectl_nodelife.controllers.upgrade.manifests import short_hash

    return f"nodelife-r1-{short_hash(s.node('x').uid)}-1"


def put_job(s: Stand, *conditions: str) -> None:
    found = tuple(Condition(type=c, status="True") for c in conditions)
    meta = ObjectMeta(
        name=job_name(s),
        namespace="default",
        uid="u-job",
        labels={LABEL_RUN: RUN},
        owner_references=(OwnerReference("Node", "x", s.node("x").uid, "v1"),),
    )
    s.put(Job(metadata=meta, status=JobStatus(conditions=found)))


def test_25_a_job_that_exists_already_is_watched() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5, work=JOB_WORK)
    s.add_nodes("x", "y")
    s.mark("x", WORKING)
    s.refuse["CreateJob"] = (409, "already exists")
    s.step()
    assert "CreateJob" in words(s.did)
    put_job(s)
    s.settle()
    assert s.state("x") == WORKING and words(s.did).count("CreateJob") == 1
    put_job(s, "Complete")
    s.settle()
    assert s.state("x") == SETTLING


def test_26_a_job_that_died_with_the_reboot_that_it_made() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5, work=JOB_WORK, **TARGET)
    s.add_nodes("x", "y")
    s.mark("x", WORKING)
    put_job(s, "Failed")
    s.edit("x", node_info=REBOOTED)
    s.settle()
    assert s.state("x") == SETTLING


def test_27_exit_75_is_a_failed_try_as_any_other() -> None:
    s = working()
    s.ends("x", 75)
    s.settle()
    assert s.mark_of("x").try_ == 2 and words(s.did).count("StartWork") == 2


def test_27_exit_1_is_tried_again_and_fails_the_second_time() -> None:
    s = working()
    s.ends("x", 1)
    s.settle()
    assert s.mark_of("x").try_ == 2 and words(s.did).count("StartWork") == 2
    s.ends("x", 1, try_=2)
    s.settle()
    assert s.state("x") == FAILED and s.document.failed == ("x",)


def test_27_exit_255_with_the_target_met_is_no_failure() -> None:
    s = working(**TARGET)
    s.edit("x", node_info=REBOOTED)
    s.ends("x", 255)
    s.settle()
    assert s.state("x") == SETTLING


def test_28_work_of_31_minutes_is_cut_off_as_a_failed_try() -> None:
    s = working()
    s.run(29 * 60, every=30)
    assert "StopWork" not in words(s.did)
    s.run(2 * 60, every=30)
    assert "StopWork" in words(s.did) and s.mark_of("x").try_ == 2


def test_8_a_cordoned_node_never_jumps_the_queue() -> None:
    s = stand(3, maxUnavailable=1)
    s.edit("n0", spec={"unschedulable": True})
    s.settle()
    assert s.claimed() == [] and s.skipped["n0"] == "cordoned by others"


def test_a_pod_that_tolerates_the_cordon_and_came_later_is_kept() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y")
    s.mark("x", DRAINING)
    s.add_pod(
        "late",
        "x",
        born_ns=s.now_ns + SECOND_NS,
        tolerations=(Toleration(operator="Exists"),),
    )
    s.now_ns += MINUTE_NS
    s.settle()
    assert s.state("x") == WORKING and "EvictPod" not in words(s.did)


def test_a_drain_is_over_only_on_pods_that_were_listed_after_the_claim() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.pods_listed_ns = {"x": s.now_ns - SECOND_NS}
    s.settle()
    assert s.state("x") == DRAINING and "since the claim" in s.waits_for("x")
    assert s.controller.last is not None and s.controller.last.to_list == {"x"}
    s.add_pod("late", "x")
    s.pods_listed_ns = {"x": s.now_ns}
    s.settle()
    assert "EvictPod" in words(s.did) and s.state("x") == WORKING
