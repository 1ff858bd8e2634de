"""What should have come long ago is overdue, in every verb, and not "in 0s"."""

import pytest

from tests.wild.reports import Report, first_lines, sections

Capture = pytest.CaptureFixture[str]
NEVER_CAME = "node-02-noexecute-never-came"
TAINT_MISSING, PODS_LEFT = "noschedule-only-1.20.json", "noexecute-but-not-evicted-1.34.json"


@pytest.fixture
def report(capsys: Capture) -> Report:
    return Report(NEVER_CAME, capsys)


def test_a_taint_that_never_came(report: Report) -> None:
    said = first_lines(report.ask("status", dump=TAINT_MISSING))
    assert "infra-1: unreachable, taint unreachable:NoExecute overdue since" in said
    assert "2026-09-20T06:00:10Z (5h59m)" in said
    assert "overdue too: infra-2 since 2026-09-20T06:00:20Z" in said
    (node,) = report.ask("status", "infra-1", "-o", "json", dump=TAINT_MISSING).document["nodes"]
    upcoming = node["verdict"]["next"]
    assert upcoming["inSeconds"] is None and upcoming["overdueSince"] == "2026-09-20T06:00:10Z"
    for subject in (("node", "infra-1"), ("pod", "web-7c-a")):
        told = report.ask("explain", *subject, dump=TAINT_MISSING)
        assert "was due at 2026-09-20T06:00:10Z, 5h59m ago" in first_lines(told)
        assert "In 0s" not in told.out and "In 300s" not in told.out


def test_pods_whose_seconds_are_over(report: Report) -> None:
    said = first_lines(report.ask("status", dump=PODS_LEFT))
    assert "deletion of default/web-7c-a overdue since 2026-09-20T06:05:05Z (5h54m)" in said
    for subject in (("node", "infra-2"), ("pod", "auth-0")):
        told = report.ask("explain", *subject, dump=PODS_LEFT)
        assert "was due at 2026-09-20T06:05:05Z, 5h54m ago" in first_lines(told)
        assert "tolerate that for ever" not in told.out


def test_the_table_and_the_audit_say_overdue_too(report: Report) -> None:
    said = report.ask("status", dump=PODS_LEFT).out
    assert "overdue too: default/auth-0 on infra-2 since 2026-09-20T06:05:05Z" in said
    assert said.count("  overdue  ") == 2
    said = report.ask("audit", "-A", dump=PODS_LEFT).out
    assert said.count("its deletion is overdue since 2026-09-20T06:05:05Z (5h54m)") == 2
    assert "evicted now" not in said and "Do: nothing" not in said
    assert "see why taint-eviction does not delete it" in said


def test_an_audit_says_that_the_taint_of_a_node_is_overdue(report: Report) -> None:
    said = report.ask("audit", "-A", dump=TAINT_MISSING).out
    for since in ("06:00:10Z (5h59m)", "06:00:20Z (5h59m)"):
        assert f"the node's NoExecute taint, which is overdue since 2026-09-20T{since}" in said
    assert "Do: see why node-lifecycle does not taint its node" in said
    assert "Do: nothing" not in said
    told = report.ask("explain", "pod", "web-7c-a", dump=TAINT_MISSING).out
    assert "Do: see why node-lifecycle does not taint its node" in told
    (first, _) = report.ask("audit", "-A", "-o", "json", dump=TAINT_MISSING).document["findings"]
    assert first["eviction"]["taintOverdueSince"] == "2026-09-20T06:00:20Z"


def test_status_and_diverge_agree(report: Report) -> None:
    for dump, due in ((TAINT_MISSING, "06:00:10"), (PODS_LEFT, "06:05:05")):
        assert due in report.ask("diverge", dump=dump).out
        assert due in report.ask("status", dump=dump).out


def test_pod_gc_that_is_refused(capsys: Capture) -> None:
    report = Report("node-14-podgc-refused-duplicate-ports", capsys)
    said = first_lines(report.ask("explain", "pod", "nginx-77-term", dump="dump.json"))
    assert "overdue: node ip-9 does not exist" in said and "116m ago" in said
    assert "nothing has to be forced" not in said
    assert "of nginx-77-term: overdue: node ip-9" in report.ask("audit", "-A", dump="dump.json").out


def test_a_finalizer_that_pod_gc_cannot_take_off(capsys: Capture) -> None:
    report = Report("node-15-finalizer-on-lost-node", capsys)
    said = first_lines(report.ask("explain", "pod", "grafana-68-old", dump="dump.json"))
    assert "foregroundDeletion has held it for 23h" in said and "the garbage collector" in said
    assert "so pod-gc deletes the pod" not in said


def test_a_static_pod_under_a_taint_that_it_does_not_tolerate(capsys: Capture) -> None:
    report = Report("node-05-mirror-pod-under-noexecute", capsys)
    said = first_lines(report.ask("status", dump="before.json"))
    assert "deletion of kube-system/nllb-gpu-1 now" in said
    told = report.ask(
        *("explain", "pod", "nllb-gpu-1", "-n", "kube-system", "-o", "json"), dump="before.json"
    )
    found = sections(told)
    who = found["Who replaces it, and when?"][0]
    assert who == "The kubelet of gpu-1, from its manifest; node gpu-1 exists."
    assert any("Give its manifest a toleration" in s for said in found.values() for s in said)


def test_finished_pods_are_not_evicted(capsys: Capture) -> None:
    report = Report("node-18-graceful-shutdown", capsys)
    (node,) = report.ask("status", "n2", "-o", "json", dump="dump.json").document["nodes"]
    assert node["pods"]["evicting"] == 0 and "nextEvictionSeconds" not in node["pods"]
    said = first_lines(report.ask("explain", "pod", "q-0", dump="dump.json"))
    assert "It has finished (Failed, Terminated)" in said
    assert "StatefulSet q deletes it and makes it again" in said
    report = Report("node-13-disk-pressure", capsys)
    told = report.ask("explain", "pod", "dep-5-ev0", "-n", "web", dump="dump.json")
    assert "ReplicaSet dep-5 does not count it: it is replaced already." in first_lines(told)
    assert "Terminating for ever" not in told.out


def test_a_kubelet_under_pressure_evicts_running_pods(capsys: Capture) -> None:
    report = Report("node-13-disk-pressure", capsys)
    said = first_lines(report.ask("explain", "node", "dev-big", dump="dump.json"))
    assert "DiskPressure (KubeletHasDiskPressure) for 15m" in said
    assert "its kubelet evicts running pods, 6 so far" in said


def test_pods_that_go_in_ten_seconds_are_said_to(capsys: Capture) -> None:
    report = Report("node-04-short-toleration-loop", capsys)
    said = first_lines(report.ask("explain", "node", "solo", dump="after.json"))
    assert "is deleted in 10s, unless the NoExecute taint is taken off solo before" in said
    assert "; 2 in all" in said and "Never" not in said
    told = report.ask("explain", "node", "solo", "--taint", "hello:NoExecute", dump="before.json")
    assert first_lines(told).startswith(
        "Node solo with hello:NoExecute: in 10s it loses 2 pods: default/nginx-6b-a,"
    )
