"""What a finding says: why, since when, what to do, and whether the pod may be forced away."""

import re
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit.audit_pods import AuditInput, audit
from kubectl_nodelife.outlook.audit.classes import NOTES
from tests.pod_status.objects import NOW_NS, ago, marked, node, owner, pod
from tests.pod_status.sweeping import EVICTED, FIVE_MINUTES, LOST, OUT_OF_SERVICE, SETTINGS, sweep


def advice_for(of_node: Node, profile: str = "v1.36", **fields: Any) -> Any:
    dying = pod(metadata__deletionTimestamp=ago(600), **fields)
    seen = AuditInput([dying], {of_node.name: of_node}, None)
    (finding,) = audit(seen, make_settings(profile), NOW_NS).findings
    return finding.advice


def test_a_lost_node_may_be_forced_after_power_off_only() -> None:
    advice = advice_for(LOST)
    assert (advice.force_delete, advice.out_of_service_taint) == ("only-after-power-off",) * 2
    assert any("powered off" in line for line in advice.evidence_missing)
    assert advice.commands[0].startswith("kubectl taint node n1 node.kubernetes.io/out-of-service=")
    assert any("out-of-service:NoExecute-" in line for line in advice.undo)


def test_the_cloud_says_that_the_machine_is_off() -> None:
    off = node(ready="Unknown", taints=("node.cloudprovider.kubernetes.io/shutdown:NoSchedule",))
    advice = advice_for(off)
    assert any("shut down" in line for line in advice.evidence_found)
    assert not any("powered off" in line for line in advice.evidence_missing)


@pytest.mark.parametrize(
    "ready, heartbeat, expected",
    [
        pytest.param("False", 5, "never", id="says-it-is-not-ready"),
        pytest.param("False", 49, "never", id="said-so-49s-ago"),
        pytest.param("False", 50, "only-after-power-off", id="said-so-50s-ago"),
        pytest.param("False", None, "never", id="says-so-we-know-not-when"),
        pytest.param("Unknown", 49, "never", id="is-coming-back"),
        pytest.param("Unknown", 50, "only-after-power-off", id="silent"),
        pytest.param("Unknown", None, "only-after-power-off", id="silent-we-know-not-since-when"),
    ],
)
def test_a_kubelet_that_speaks_is_never_forced(
    ready: str, heartbeat: int | None, expected: str
) -> None:
    advice = advice_for(node(ready=ready, heartbeat=heartbeat))
    assert (advice.force_delete, advice.out_of_service_taint) == (expected, expected)
    assert bool(advice.commands) == bool(advice.undo) == (expected != "never")
    (said,) = [line for line in advice.evidence_missing if "reports" in line or "powered" in line]
    assert ("its kubelet reports" in said) == (expected == "never")


def test_what_is_missing_before_a_machine_is_called_off() -> None:
    lost = advice_for(LOST)
    assert any("cut off from the API server" in line for line in lost.evidence_missing)
    assert not any("a heartbeat" in line for line in lost.evidence_missing)
    assert any("10m old" in line for line in lost.evidence_found)
    unheard = advice_for(node(ready="Unknown", heartbeat=None))
    assert any("a heartbeat: none was read" in line for line in unheard.evidence_missing)
    sick = advice_for(node(ready="False", heartbeat=600))
    assert not any("cut off" in line for line in sick.evidence_missing)


def test_what_was_found_about_a_node_that_is_gone_or_out_of_service() -> None:
    dying = pod(metadata__deletionTimestamp=ago(600))
    (orphan,) = sweep(dying, nodes=(node(name="other"),)).findings
    assert orphan.advice is not None
    assert orphan.advice.evidence_found == ("there is no node n1",)
    assert orphan.advice.force_delete == "not-needed"
    off = advice_for(node(ready="Unknown", heartbeat=600, taints=(OUT_OF_SERVICE,)))
    assert any("an operator says that it is off" in line for line in off.evidence_found)
    assert off.evidence_missing == ()


def test_a_claim_that_is_only_read_is_no_hazard() -> None:
    read = {"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    assert advice_for(LOST, spec__volumes=[read, {"name": "e", "emptyDir": {}}]).hazards == ()


def test_out_of_service_does_it_by_itself() -> None:
    assert advice_for(node(ready="Unknown", taints=(OUT_OF_SERVICE,))).force_delete == "not-needed"


def test_the_taint_is_of_no_use_before_1_26() -> None:
    advice = advice_for(LOST, profile="v1.25")
    assert advice.out_of_service_taint == "unavailable"
    assert not any("taint" in command for command in advice.commands)
    assert not any("taint" in line for line in advice.undo)


def test_hazards_of_a_stateful_pod() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    advice = advice_for(
        LOST,
        metadata__ownerReferences=owner("StatefulSet", "db"),
        metadata__finalizers=["a/b"],
        spec__volumes=[volume],
    )
    text = " ".join(advice.hazards)
    assert "StatefulSet db" in text and "claim data" in text and "a/b" in text


def test_the_documentation_lists_every_class() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pod-status.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (wrong|note) \|", page, re.MULTILINE)
    assert rows == [(name, note.severity) for name, note in NOTES.items()]


def test_an_eviction_waits_for_the_taint() -> None:
    subject = marked(spec__tolerations=FIVE_MINUTES)
    (finding,) = sweep(subject, nodes=(LOST,)).findings
    assert finding.eviction is not None
    assert finding.eviction.due_ns is None
    assert finding.eviction.because.startswith("evicted 5m after the node's NoExecute taint")


def test_a_ready_node_that_was_not_heard_of_since_is_named_so() -> None:
    dying = pod(metadata__deletionTimestamp=ago(300))
    for heartbeat, said in ((301, True), (299, False)):
        (finding,) = sweep(dying, nodes=(node(heartbeat=heartbeat),)).findings
        assert ("has not reported since" in finding.because) is said


def told(subject: Pod, of_node: Node) -> Any:
    (finding, *_) = sweep(subject, nodes=(of_node,)).findings
    return finding


def test_what_to_do_where_that_is_not_what_the_class_says() -> None:
    dying = pod(metadata__deletionTimestamp=ago(600))
    off = node(ready="Unknown", taints=(OUT_OF_SERVICE,))
    assert "nothing has to be forced" in told(dying, off).what_to_do
    assert "repair the node" in told(dying, node(ready="False")).what_to_do
    assert "coming back" in told(dying, node(ready="Unknown", heartbeat=5)).what_to_do
    assert "once the machine of n1 is known to be off" in told(dying, LOST).what_to_do
    job = pod(**EVICTED, metadata__ownerReferences=owner("Job"))
    assert "its Job counts it" in told(job, node()).what_to_do
    assert "its Job" not in told(pod(**EVICTED), node()).what_to_do
    ended = pod(status__phase="Succeeded")
    assert "1.25" in told(ended, node()).what_to_do
    unready = [{"name": "c", "ready": False, "state": {"running": {}}}]
    on_paper = pod(status__containerStatuses=unready)
    assert "kubelet's log" in told(on_paper, node()).what_to_do
    assert "fenced" in told(pod(), LOST).what_to_do


def test_each_finding_says_why_in_a_sentence_of_its_own() -> None:
    unready = [{"name": "c", "ready": False, "state": {"running": {}}}]
    gate: dict[str, Any] = {"spec__readinessGates": [{"conditionType": "g"}]}
    waits = ("False", "ReadinessGatesNotReady", "x")
    sentences = {
        told(pod(status__phase="Failed"), LOST).because: "its phase is Failed",
        told(pod(), LOST).because: "node n1 is Ready=Unknown",
        told(pod(status__containerStatuses=unready), node()).because: "unready status: [c]",
        told(
            pod(**gate, conditions={"Ready": waits, "g": "True"}), node()
        ).because: "gates are all",
        told(pod(**gate, conditions={"Ready": waits, "g": "False"}), node()).because: '"g" is not',
        told(pod(conditions={"ContainersReady": "False"}), node()).because: "does not fit",
        told(pod(conditions={"Ready": ("False", "X", "")}), node()).because: "Ready is False (X)",
        told(pod(**EVICTED), node()).because: "the kubelet evicted it",
    }
    for sentence, part in sentences.items():
        assert part in sentence


def test_a_deleted_pod_whose_node_was_not_read() -> None:
    dying = pod(metadata__deletionTimestamp=ago(600))
    (finding,) = audit(AuditInput([dying], None, None), SETTINGS, NOW_NS).findings
    assert finding.name == "terminating-slow"
    assert "read the nodes too" in finding.what_to_do
    unbound = pod(metadata__deletionTimestamp=ago(600), spec__nodeName="")
    (finding,) = audit(AuditInput([unbound], None, None), SETTINGS, NOW_NS).findings
    assert finding.name == "orphaned" and "never bound" in finding.because


def test_known_issues_of_the_very_shape_come_first() -> None:
    lost, sick = told(pod(), LOST), told(pod(), node(ready="False"))
    ended = told(pod(status__phase="Succeeded"), node())
    unready = [{"name": "c", "ready": False, "state": {"running": {}}}]
    on_paper = told(pod(status__containerStatuses=unready), node())
    first = [f.known_issues[:1] for f in (lost, sick, ended, on_paper)]
    assert first == [
        ("kubernetes/kubernetes#112733",),
        ("kubernetes/kubernetes#125618",),
        ("kubernetes/kubernetes#108594",),
        (),
    ]


def test_a_mark_is_as_old_as_its_transition() -> None:
    (finding,) = sweep(marked(since=100), nodes=(LOST,)).findings
    assert finding.since_ns == NOW_NS - 100 * 10**9
