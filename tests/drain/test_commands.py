"""`drain-plan` and `budgets` from the command line: forms, flags, exit codes, hostile names."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from kubectl_nodelife.cli import main
from tests.drain.build import budget, node, pod, replica_set
from tests.drain.recorded import DRAINS
from tests.objects import write_list

ONE_AT_A_TIME = str(DRAINS / "budget-one-at-a-time" / "cluster.json")
NEVER = str(DRAINS / "budget-never" / "cluster.json")

Capture = pytest.CaptureFixture[str]


def test_json_is_as_agreed(capsys: Capture) -> None:
    assert main(["drain-plan", "a1", "-f", ONE_AT_A_TIME, "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["kind"], plan["apiVersion"]) == ("DrainPlan", "nodelife.dev/v1alpha1")
    assert plan["verdict"] == "slow" and plan["flagsNeeded"] == []
    assert set(plan["estimate"]) == {"lowSeconds", "highSeconds"}
    wave = plan["waves"][0]
    assert wave["index"] == 0 and wave["nodes"] == ["a1"] and wave["startSeconds"] > 0
    keys = {"namespace", "name", "node", "verdict", "gate", "reason"}
    keys |= {"startSeconds", "goneSeconds", "endSeconds", "landing"}
    assert all(keys <= set(one) for one in wave["pods"]) and len(wave["pods"]) == 3
    (of_node,) = plan["nodes"]
    assert of_node["command"].startswith("kubectl drain a1")
    assert {"name", "verdict", "faults", "kept", "command"} <= set(of_node)
    assert plan["notEvaluated"] == []
    assert plan["bound"]["wavesLowerBound"] == 1 and plan["bound"]["secondsLowerBound"] == 1.0


def test_the_same_input_gives_the_same_bytes(capsys: Capture) -> None:
    texts = []
    for _ in range(2):
        main(["drain-plan", "a1", "-f", ONE_AT_A_TIME, "-o", "json"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_yaml_says_the_same(capsys: Capture) -> None:
    main(["drain-plan", "a1", "-f", ONE_AT_A_TIME, "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out)["verdict"] == "slow"


def test_the_page_has_blockers_on_top(capsys: Capture) -> None:
    assert main(["drain-plan", "a1", "-f", NEVER]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "This drain does not finish"
    assert lines[2].startswith("never (pdb): default/web-") and "minAvailable 2" in lines[2]
    assert "to unblock: kubectl scale deployment web -n default --replicas=3" in lines[3]


@pytest.mark.parametrize(
    "arguments, code",
    [
        pytest.param(["a1", "-f", NEVER], 0, id="an-answer-is-no-failure"),
        pytest.param(["a1", "-f", NEVER, "--exit-code"], 4, id="the-answer-is-no"),
        pytest.param(["a1", "-f", ONE_AT_A_TIME, "--exit-code"], 0, id="the-answer-is-yes"),
        pytest.param(["a9", "-f", NEVER], 1, id="no-such-node"),
        pytest.param(["-f", NEVER], 2, id="no-nodes"),
        pytest.param(["a1", "--all", "-f", NEVER], 2, id="names-and-all"),
        pytest.param(["a1", "-f", NEVER, "--timeout", "soon"], 2, id="not-a-duration"),
        pytest.param(["a1", "-f", NEVER, "--pod-selector", "a=b=c"], 2, id="not-a-selector"),
        pytest.param(["a1", "-f", NEVER, "--max-per-zone", "1"], 2, id="a-wave-flag-alone"),
        pytest.param(["a1", "-f", NEVER, "--max-parallel", "0"], 2, id="no-node-at-a-time"),
        pytest.param(["a1", "-f", "/nonexistent.json"], 2, id="no-such-file"),
        pytest.param(["-l", "kubernetes.io/hostname=a1", "-f", ONE_AT_A_TIME], 0, id="selector"),
        pytest.param(["node/a1", "-f", ONE_AT_A_TIME], 0, id="kubectl-s-spelling"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, capsys: Capture) -> None:
    assert main(["drain-plan", *arguments]) == code
    if code in (1, 2):
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")


def test_names_are_those_that_can_be_drained(capsys: Capture) -> None:
    main(["drain-plan", "a1", "-f", ONE_AT_A_TIME, "-o", "name"])
    assert capsys.readouterr().out == "node/a1\n"
    main(["drain-plan", "a1", "-f", NEVER, "-o", "name"])
    assert capsys.readouterr().out == ""


def test_all_nodes_in_waves_as_a_script(capsys: Capture) -> None:
    arguments = ["--all", "-f", str(DRAINS / "plain" / "cluster.json"), "--ignore-daemonsets"]
    main(["drain-plan", *arguments, "--max-parallel", "2", "--maintenance", "5m", "-o", "commands"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "#!/bin/sh"
    (cordon,) = (line for line in lines if "k cordon" in line)
    assert {"a1", "a2", "a3"} <= set(cordon.split())
    drains = [line.split()[1:] for line in lines if line.startswith("  drain_all")]
    assert sorted(map(len, drains)) == [1, 2]
    assert sum(line.startswith("  back_all") for line in lines) == 2


def test_a_dump_may_be_said_to_be_whole(tmp_path: Path, capsys: Capture) -> None:
    """`kubectl get a,b -A -o json` leaves nothing of a kind without objects."""
    items = [*node("a1"), *node("a2"), *replica_set("web", "a1")]
    path = write_list(tmp_path / "dump.json", items)

    def verdict(*read: str) -> tuple[str, list[str]]:
        assert main(["drain-plan", "a1", "-f", path, "-o", "json", *read]) == 0
        plan = json.loads(capsys.readouterr().out)
        return plan["verdict"], [missing["kind"] for missing in plan["notEvaluated"]]

    assert verdict()[0] == "unknown"
    assert verdict("--read", "all") == ("ready", [])
    assert "PodDisruptionBudget" not in verdict("--read", "pdb,ns")[1]
    assert main(["drain-plan", "a1", "-f", path, "--read", "pods,nonsense"]) == 2
    assert "'nonsense' is no kind that is read here" in capsys.readouterr().err


def test_what_was_not_read_is_told_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    items = [*node("a1"), *node("a2"), *replica_set("web", "a1", "a1")]
    path = write_list(tmp_path / "dump.json", items)
    main(["drain-plan", "a1", "-f", path])
    told = [line for line in capsys.readouterr().out.splitlines() if "not read" in line]
    (line,) = [text for text in told if text.startswith("not evaluated")]
    assert "PodDisruptionBudget (a budget may hold evictions up or stop them)" in line


class Page(HTMLParser):
    """Elements that may not be there, and whether all are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and v]


def hostile(tmp_path: Path) -> str:
    """A cluster whose budget and pods carry names that no API server would take."""
    bad = "<script>alert(1)</script>\n; rm -rf /\u001b[31m"
    objects = [
        *node("a1"),
        *node("a2"),
        *replica_set("web", "a1", metadata={"labels": {"app": bad}}),
        budget(bad, bad, healthy=1, desired=1, expected=1, minAvailable=1),
        pod(f"p{bad}", "a1"),
    ]
    return write_list(tmp_path / "cluster.json", objects)


def test_hostile_names_stay_text(tmp_path: Path, capsys: Capture) -> None:
    path = hostile(tmp_path)
    main(["drain-plan", "a1", "-f", path, "-o", "html"])
    text = capsys.readouterr().out
    page = Page()
    page.feed(text)
    assert "script" not in page.tags and not page.outside and "svg" in page.tags
    main(["drain-plan", "a1", "-f", path, "-o", "commands"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["echo 'no node of this plan can be drained' >&2", "exit 1"]
    assert all(line.startswith("#") for line in lines[:-2])
    for form in ("table", "wide", "commands", "html"):
        main(["drain-plan", "a1", "-f", path, "-o", form])
        assert "\x1b" not in capsys.readouterr().out


def test_budgets(capsys: Capture) -> None:
    assert main(["budgets", "-f", NEVER, "--exit-code"]) == 4
    out = capsys.readouterr().out
    assert "never" in out and "spares none, ever" in out
    assert main(["budgets", "-f", ONE_AT_A_TIME, "--exit-code", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "BudgetList" and found["items"][0]["disruptionsAllowed"] == 1
    assert main(["budgets", "-f", NEVER, "-o", "name"]) == 0
    assert capsys.readouterr().out == "poddisruptionbudget/web\n"
    assert main(["budgets", "-n", "nowhere", "-f", NEVER]) == 0
    assert capsys.readouterr().out == ""
