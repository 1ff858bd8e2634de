"""`status` and `explain` on dumps:

the numbers, the contract's document, what was not read is said.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.cli import main
from tests.objects import write_list

DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command line."""
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def status(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The document of `status -o json`."""
    code, out, _ = run(capsys, "status", "-f", str(DUMP), "-o", "json", *words)
    assert code == 0
    document: dict[str, Any] = json.loads(out)
    return document


def test_a_lost_node_shows_its_next_deletion(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {n["name"]: n for n in status(capsys)["nodes"]}
    lost = nodes["worker-a2"]
    assert lost["ready"] == "Unknown"
    assert "unknownInSeconds" not in lost
    # The NoExecute taint was added at 15:04:22; the pod tolerates it for 300s.
    added = next(t for t in lost["taints"] if t["effect"] == "NoExecute")
    assert added["key"] == "node.kubernetes.io/unreachable"
    assert lost["pods"]["evicting"] == 1
    assert lost["pods"]["nextEvictionSeconds"] == pytest.approx(162.8, abs=0.1)
    assert lost["verdict"]["next"]["action"].startswith("DeletePod shop/web-")


def test_a_silent_node_shows_how_long_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {n["name"]: n for n in status(capsys)["nodes"]}
    silent = nodes["worker-b2"]
    assert silent["verdict"]["state"] == "silent"
    assert silent["leaseAgeSeconds"] + silent["unknownInEarliestSeconds"] == pytest.approx(50)
    # Nobody outside knows when the monitor passes begin: within a period, placed in the middle.
    assert silent["unknownInLatestSeconds"] == silent["unknownInEarliestSeconds"] + 5
    assert silent["unknownInSeconds"] == silent["unknownInEarliestSeconds"] + 2.5
    assert nodes["worker-a1"]["verdict"]["state"] == "healthy"
    assert nodes["worker-b1"]["verdict"]["state"] == "pressure"
    assert nodes["worker-b3"]["verdict"]["state"] == "cordoned"


def test_settings_given_change_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    document = status(capsys, "--set", "node-monitor-grace-period=15s")
    silent = next(n for n in document["nodes"] if n["name"] == "worker-b2")
    assert silent["unknownInSeconds"] == 0
    assert silent["verdict"]["state"] == "overdue"
    assert document["settings"]["node-monitor-grace-period"]["origin"] == "--set"


def test_zones_show_the_rule_that_applies(capsys: pytest.CaptureFixture[str]) -> None:
    zones = {z["name"]: z for z in status(capsys)["zones"]}
    assert zones["eu-1/eu-1a"]["brake"]["timersRunning"] == 1
    assert zones["eu-1/eu-1a"] | {"because": "", "brake": {}} == {
        "name": "eu-1/eu-1a",
        "state": "Normal",
        "nodes": 3,
        "notReady": 1,
        "threshold": 0.55,
        "rate": 0.1,
        "queued": [],
        "because": "",
        "brake": {},
        "metrics": {
            "evictionsNumber": 0,
            "zoneHealth": 66.667,
            "zoneSize": 3,
            "unhealthyNodesInZone": 1,
        },
    }


def test_names_selectors_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "status", "worker-a1", "-f", str(DUMP), "-o", "name")
    assert (code, out) == (0, "node/worker-a1\n")
    zone = "topology.kubernetes.io/zone=eu-1b"
    code, out, _ = run(capsys, "status", "-f", str(DUMP), "-l", zone, "-o", "name")
    assert out.split() == ["node/worker-b1", "node/worker-b2", "node/worker-b3"]
    assert run(capsys, "status", "-f", str(DUMP), "--exit-code")[0] == 4
    assert run(capsys, "status", "worker-a1", "-f", str(DUMP), "--exit-code")[0] == 0
    code, _, err = run(capsys, "status", "nobody", "-f", str(DUMP))
    assert (code, err) == (1, 'error: nodes "nobody" not found; check the name\n')


def test_without_leases_no_age_is_evaluated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("nodes.json", "pods.json"):
        shutil.copy(DUMP / name, tmp_path)
    code, out, err = run(capsys, "status", "-f", str(tmp_path), "-o", "json")
    assert code == 0
    assert "no node Lease was read" in err
    assert all("unknownInSeconds" not in n for n in json.loads(out)["nodes"])
    states = {n["name"]: n["verdict"]["state"] for n in json.loads(out)["nodes"]}
    assert states["worker-b2"] == "healthy"


def test_a_dump_without_nodes_is_no_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copy(DUMP / "pods.json", tmp_path)
    code, out, err = run(capsys, "status", "-f", str(tmp_path))
    assert (code, out) == (0, "")
    assert err.endswith("No resources found\n")


@pytest.mark.parametrize(
    "content, says",
    [
        pytest.param(b"{", "", id="cut-off"),
        pytest.param(b"\x00\x01\x02\xff\xfe", "", id="binary-noise"),
        pytest.param(b"a: [", "", id="broken-yaml"),
        pytest.param(b"just text\n", "", id="no-kubernetes-object"),
        pytest.param(b'{"kind": "Node", "apiVersion": "v1", "metadata": {}}', "name", id="no-name"),
        pytest.param(b'{"metadata": {"name": "x"}}', "kind", id="no-kind"),
        pytest.param(b"", "empty", id="empty-file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "dump.json"
    file.write_bytes(content)
    code, out, err = run(capsys, "status", "-f", str(file))
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert str(file) in err and says in err


@pytest.mark.parametrize(
    "words, says",
    [
        pytest.param(("-f", "/does/not/exist"), "/does/not/exist", id="missing-file"),
        pytest.param(("--profile", "v1.9"), "unknown profile", id="unknown-profile"),
        pytest.param(("--set", "node-monitor-period"), "FLAG=VALUE", id="not-an-assignment"),
        pytest.param(("--set", "node-monitor-perod=5s"), "node-monitor-period", id="unknown-flag"),
        pytest.param(("--set", "node-monitor-period=-5s"), "negative", id="negative-duration"),
        pytest.param(("--set", "pod-eviction-timeout=5m"), "removed in v1.27", id="flag-gone"),
        pytest.param(("--set", "node-eviction-rate=much"), "malformed", id="malformed-value"),
        pytest.param(("--now", "yesterday"), "RFC 3339", id="bad-moment"),
        pytest.param(("-l", "a=(b"), "selector", id="bad-selector"),
        pytest.param(("x", "-l", "a=b"), "not both", id="names-and-selector"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    code, out, err = run(capsys, "status", "-f", str(DUMP), *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and says in err and "Traceback" not in err


def test_explain_adds_up_term_by_term(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", "pod", "web-787768cc7c-g999x", "-n", "shop", "-f", str(DUMP), "-o", "json")
    code, out, _ = run(capsys, *words)
    assert code == 0
    answer = next(a for a in json.loads(out)["answers"] if "terms" in a)
    lows = [t["lowSeconds"] for t in answer["terms"]]
    assert answer["total"]["lowSeconds"] == pytest.approx(sum(lows))
    assert 300 in lows
    origins = " ".join(t["origin"] for t in answer["terms"])
    assert "node-monitor-grace-period 50s (default of v1.36)" in origins


@pytest.mark.parametrize(
    "words",
    [("node", "worker-a2"), ("node/worker-a2",), ("pod", "db-0", "-n", "shop"), ("pod/shop/db-0",)],
)
def test_explain_takes_both_ways_to_name(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, _ = run(capsys, "explain", *words, "-f", str(DUMP))
    assert code == 0 and "?" in out


def test_explain_tells_why_a_pod_stays_terminating(capsys: pytest.CaptureFixture[str]) -> None:
    pod = "search-c867d6c96-zm77b"
    code, out, _ = run(capsys, "explain", "pod", pod, "-n", "shop", "-f", str(DUMP))
    assert code == 0
    assert "only its kubelet can finish that" in out
    assert "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in out


def test_a_release_older_than_known_says_whose_behaviour_is_followed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, err = run(capsys, "status", "-f", str(DUMP), "--profile", "v1.12", "-o", "json")
    assert "profile v1.12: the behaviour of v1.16, the oldest known, is followed" in err
    assert json.loads(out)["profile"] == "v1.12"


def test_without_the_gate_only_status_posts_are_signs_of_life(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--profile", "v1.16", "--set", "feature-gates=NodeLease=false")
    nodes = {n["name"]: n for n in status(capsys, *words)["nodes"]}
    silent = nodes["worker-b2"]
    # The grace period counts from the last status post, whatever its Lease says.
    assert silent["unknownInEarliestSeconds"] + silent["statusAgeSeconds"] == pytest.approx(40)
    assert "status was last posted" in silent["verdict"]["because"]
    code, out, _ = run(capsys, "explain", "node", "worker-b2", "-f", str(DUMP), *words)
    assert code == 0
    assert "Its Lease does not count: the gate NodeLease is off" in out
    assert "lease was renewed" not in out


def test_a_terminal_shows_the_fifty_first_and_says_how_many_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those in trouble first; a pipe has all, as have --all and names that are given."""
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number:02}"},
            "status": {"conditions": [ready | ({"status": "False"} if number == 69 else {})]},
        }
        for number in range(70)
    ]
    dump = write_list(tmp_path / "nodes.json", items)
    question = ("status", "-f", dump)

    def rows(*words: str) -> list[str]:
        out = run(capsys, *question, *words)[1]
        return [line for line in out.splitlines() if line.startswith("n")]

    assert len(rows()) == 70
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = run(capsys, *question)[1]
    assert "20 more nodes that are not in trouble: --all shows them." in out
    shown = rows()
    assert len(shown) == 50 and shown[0].startswith("n69")
    assert len(rows("--all")) == 70 and len(rows("n68")) == 1
    assert len(rows("-o", "name")) == 70
