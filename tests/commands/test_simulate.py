"""`simulate`: formats, narrowing, overrides, and what it says about bad input."""

import json
from pathlib import Path

import pytest
import yaml

from kubectl_nodelife.cli import main
from tests.objects import node
from tests.sim.documents import document

SCENARIO = str(Path(__file__).parents[1] / "scenarios" / "zone-outage.yaml")
DUMP = Path(__file__).parents[1] / "dumps" / "two-zones"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["simulate", *words])
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on stderr of bad input."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_json_is_the_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "-f", SCENARIO, "-o", "json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["kind"] == "Timeline"
    assert {"at", "controller", "action", "object", "detail", "reason", "cause"} <= set(
        document["records"][0]
    )


def test_yaml_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-f", SCENARIO, "--until", "2m")
    _, as_json, _ = run(capsys, *words, "-o", "json")
    _, as_yaml, _ = run(capsys, *words, "-o", "yaml")
    told, also = json.loads(as_json), yaml.safe_load(as_yaml)
    assert also["records"] == told["records"]
    assert also["final"] == told["final"]


def test_wide_has_a_line_for_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "-f", SCENARIO, "-o", "wide")
    _, told, _ = run(capsys, "-f", SCENARIO, "-o", "json")
    lines = out.split("\n\n")[1].splitlines()
    assert lines[0].split()[:3] == ["#", "AT", "BY"]
    assert len(lines) - 1 == len(json.loads(told)["records"])


def test_names_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "-f", SCENARIO, "-o", "name")
    lines = out.splitlines()
    assert "node/a1" in lines
    assert len(lines) == len(set(lines))


def test_until_cuts_the_run_off(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "-f", SCENARIO, "-o", "json", "--until", "100s")
    document = json.loads(out)
    assert document["duration"] == 100
    assert max(record["at"] for record in document["records"]) <= 100


def test_only_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "-f", SCENARIO, "-o", "json", "node", "a1")
    records = json.loads(out)["records"]
    nodes = {r["object"]["name"] for r in records if r["object"]["kind"] == "Node"}
    assert nodes == {"a1"}
    assert all(r["cause"] is None or r["cause"] < i for i, r in enumerate(records))


def test_settings_on_top(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        capsys, "-f", SCENARIO, "--profile", "v1.29", "--set", "node-monitor-grace-period=20s"
    )
    assert "Settings that mattered (profile v1.29):" in out
    assert "node-monitor-grace-period=20s (--set)" in out
    assert f"node-eviction-rate=0.1 ({SCENARIO})" in out
    assert "node-monitor-period=5s (default of v1.29)" in out


def test_a_snapshot_beside_the_scenario(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "dump").symlink_to(DUMP)
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "apiVersion: nodelife.dev/v1alpha1\nkind: Scenario\n"
        "spec: {snapshot: dump, start: join, duration: 10m}\n"
    )
    code, out, _ = run(capsys, "-f", str(scenario), "-o", "json")
    document = json.loads(out)
    assert code == 0
    assert {n["name"] for n in document["final"]["nodes"]} >= {"worker-a2"}
    assert not document["start"].startswith("2026-01-01T00:00:00")


def test_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(SCENARIO).open() as file:
        monkeypatch.setattr("sys.stdin", file)
        code, out, _ = run(capsys, "-f", "-", "-o", "name")
    assert code == 0 and out


def test_an_empty_cluster_is_no_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("{apiVersion: nodelife.dev/v1alpha1, kind: Scenario}")
    code, out, err = run(capsys, "-f", str(scenario))
    assert code == 0
    assert out.startswith("Nothing happened.")
    assert "no nodes" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-f", "nowhere.yaml"), "nowhere.yaml: cannot be read"),
        (("-f", SCENARIO, "--until", "soon"), "--until: 'soon' is not a duration"),
        (("-f", SCENARIO, "--until", "0s"), "--until"),
        (("-f", SCENARIO, "--profile", "v9"), "--profile: unknown profile 'v9'"),
        (("-f", SCENARIO, "--set", "node-eviction-rte=1"), "did you mean node-eviction-rate?"),
        (("-f", SCENARIO, "--set", "pod-eviction-timeout=1m"), "removed in v1.27"),
        (("-f", SCENARIO, "--set", "node-monitor-period"), "--set: 'node-monitor-period' is not"),
        (("-f", SCENARIO, "z9"), "node z9 never exists"),
        (("-f", SCENARIO, "zone", "a"), "which object is meant is unclear from 'zone a'"),
        (("-f", SCENARIO, "pod", "x/y"), "pod x/y never exists"),
    ],
)
def test_bad_words(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str) -> None:
    assert told in refused(capsys, *words)


def test_a_bad_flag_in_the_scenario_names_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "{apiVersion: nodelife.dev/v1alpha1, kind: Scenario,"
        " spec: {flags: {node-monitor-grace-period: -5s}}}"
    )
    told = refused(capsys, "-f", str(scenario))
    assert f"{scenario}: spec.flags: flag node-monitor-grace-period" in told


def test_a_missing_snapshot_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "{apiVersion: nodelife.dev/v1alpha1, kind: Scenario, spec: {snapshot: gone.json}}"
    )
    assert "gone.json: cannot be read" in refused(capsys, "-f", str(scenario))


def test_control_characters_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    scenario = tmp_path / "s.json"
    node = {"kind": "Node", "metadata": {"name": "a\x1b[31m"}}
    spec = {"objects": [node], "events": [{"at": "1s", "cordon": {"nodes": ["a\x1b[31m"]}}]}
    scenario.write_text(json.dumps(document(**spec)))
    for output in ("table", "wide", "json", "yaml", "name"):
        code, out, err = run(capsys, "-f", str(scenario), "-o", output)
        assert code == 0
        assert "\x1b" not in out + err


def test_the_end_counts_zones_as_the_controller_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    excluded = "node.kubernetes.io/exclude-disruption"
    nodes = [node("n1"), node("n2"), node("n3", labels={excluded: ""})]
    stop = {"at": "30s", "kubelet": {"nodes": ["n1", "n3"], "heartbeats": "stop"}}
    scenario = document(profile="v1.36", objects=nodes, events=[stop], duration="3m")
    path = tmp_path / "excluded.yaml"
    path.write_text(json.dumps(scenario))
    assert main(["simulate", "-f", str(path), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (zone,) = shown["final"]["zones"]
    assert (zone["nodes"], zone["notReady"]) == (2, 1)
    assert zone["metrics"] == {
        "evictionsNumber": 2,  # upstream counts a taint of an excluded node as well
        "zoneHealth": 50.0,
        "zoneSize": 2,
        "unhealthyNodesInZone": 1,
    }
    events = [r["detail"] for r in shown["records"] if r["action"] == "RecordEvent"]
    assert "Node n1 status is now: NodeNotReady" in [e.get("message") for e in events]
