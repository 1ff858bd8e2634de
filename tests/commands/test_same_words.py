"""The same words everywhere: names, --all, folders and dumps, and the name that was meant."""

import json
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.commands.sandbox import SCENARIO, content_at
from kubectl_nodelife.errors import NotFound
from kubectl_nodelife.sandbox.cluster import read_beginning
from tests.objects import manifest, write_list

DUMP = str(Path(__file__).parents[1] / "dumps" / "two-zones")
Capture = pytest.CaptureFixture[str]


def ask(capsys: Capture, *words: str, code: int = 0) -> tuple[str, str]:
    """What a verb prints of the dump."""
    assert main([*words, "-f", DUMP]) == code
    said = capsys.readouterr()
    return said.out, said.err


def test_a_name_alone_is_explained_where_one_object_has_it(capsys: Capture) -> None:
    assert ask(capsys, "explain", "db-0") == ask(capsys, "explain", "pod", "db-0", "-n", "shop")
    assert ask(capsys, "explain", "worker-a1") == ask(capsys, "explain", "node", "worker-a1")
    _, err = ask(capsys, "explain", "web-9", code=1)
    assert "not found; did you mean web?" in err or "not found" in err


def test_a_name_that_several_objects_have_is_not_guessed(tmp_path: Path, capsys: Capture) -> None:
    pods = [
        manifest("Pod", "twin", space, spec={"nodeName": "a1", "containers": []})
        for space in ("a", "b")
    ]
    path = write_list(tmp_path / "dump.json", pods)
    assert main(["explain", "twin", "-f", path]) == 2
    assert "2 objects have the name 'twin'; write one of pod/a/twin, pod/b/twin" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "words, meant",
    [
        (("status", "worker-a9"), "worker-a"),
        (("explain", "node", "wrker-a1"), "worker-a1"),
        (("explain", "pod", "db-0"), "shop/db-0"),
        (("explain", "budget", "wbe", "-n", "shop"), "shop/web"),
        (("drain-plan", "worker-a11"), "worker-a1"),
        (("budgets", "wed"), "web"),
        (("upgrade", "plan", "worker-a11", "--nothing"), "worker-a1"),
        (("daemonset", "log-agnt", "-n", "kube-system"), "kube-system/log-agent"),
        (("daemonset", "log-agnt", "-A"), "log-agent"),
        (("explain", "daemonset", "log-agnt", "-n", "kube-system"), "kube-system/log-agent"),
        (("daemonset", "status", "ds/log-agnt", "-n", "kube-system"), "kube-system/log-agent"),
        (("daemonset", "undo", "ds/log-agnt", "-n", "kube-system"), "kube-system/log-agent"),
        (("repair", "bd-0", "-n", "shop"), "shop/db-0"),
        (("repair", "--fenced", "worker-a11"), "worker-a1"),
        (("replay", "--drain", "worker-a21"), "worker-a2"),
    ],
)
def test_the_name_that_was_meant_is_offered(
    capsys: Capture, words: tuple[str, ...], meant: str
) -> None:
    _, err = ask(capsys, *words, code=1)
    assert "not found; did you mean " + meant in err


@pytest.mark.parametrize("output", ["table", "markdown", "json", "yaml"])
@pytest.mark.parametrize(
    ("kind", "verb", "name"),
    [("budget", "budgets", "web"), ("daemonset", "daemonset", "log-agent")],
)
def test_a_budget_and_a_daemonset_have_one_answer_each(
    capsys: Capture, kind: str, verb: str, name: str, output: str
) -> None:
    rest = ("-n", "shop" if kind == "budget" else "kube-system", "-o", output)
    by_name, _ = ask(capsys, verb, name, *rest)
    assert by_name == ask(capsys, "explain", kind, name, *rest)[0] and name in by_name


def test_a_name_like_no_other_is_to_be_checked() -> None:
    assert "check the name" in str(NotFound("nodes", "x", among=["worker-1"]))


def test_budgets_by_name(capsys: Capture) -> None:
    document = json.loads(ask(capsys, "budgets", "web", "-o", "json")[0])
    assert [item["name"] for item in document["items"]] == ["web"]


@pytest.mark.parametrize(
    ("selector", "names"), [("tier=front", []), ("tier notin (front)", ["web", "db"])]
)
def test_budgets_by_label(capsys: Capture, selector: str, names: list[str]) -> None:
    document = json.loads(ask(capsys, "budgets", "-A", "-l", selector, "-o", "json")[0])
    assert [item["name"] for item in document["items"]] == names
    _, err = ask(capsys, "budgets", "-A", "-l", "tier in front", code=2)
    assert "--selector" in err


@pytest.mark.parametrize("nodes", [(), ("--nodes",)])
def test_daemon_sets_by_label(capsys: Capture, nodes: tuple[str, ...]) -> None:
    """The dump's one set has no labels of its own."""
    out, _ = ask(capsys, "daemonset", "-A", "-l", "!app", *nodes)
    assert "log-agent" in out and out == ask(capsys, "daemonset", "-A", *nodes)[0]
    out, err = ask(capsys, "daemonset", "-A", "-l", "app", *nodes)
    assert "log-agent" not in out and "No resources found" in err
    _, err = ask(capsys, "daemonset", "log-agent", "-l", "app", code=2)
    assert "give names or a selector, not both" in err


@pytest.mark.parametrize("verb", ["audit", "repair"])
def test_findings_by_label_of_their_pods(capsys: Capture, verb: str) -> None:
    def pods(*words: str) -> set[str]:
        asked = (verb, "-A", "--class", "marked-node-down", *words, "-o", "json")
        told = json.loads(ask(capsys, *asked)[0] or "{}")
        return {each["name"] for each in told.get("findings") or told.get("steps") or ()}

    assert pods() == {"log-agent-plj8x", "web-787768cc7c-fkqf9"}
    assert pods("-l", "app=web") == {"web-787768cc7c-fkqf9"}
    assert pods("-l", "app!=web") == {"log-agent-plj8x"}
    assert not pods("-l", "app=nothing")


def test_repair_takes_names_or_a_selector(capsys: Capture) -> None:
    _, err = ask(capsys, "repair", "web-0", "-l", "app=web", "--dry-run=client", code=2)
    assert "give names or a selector, not both" in err


def test_all_nodes_of_all_sets(capsys: Capture) -> None:
    out, _ = ask(capsys, "daemonset", "-A", "--nodes")
    one, _ = ask(capsys, "daemonset", "log-agent", "-n", "kube-system", "--nodes")
    assert out == f"daemonset kube-system/log-agent\n{one}"
    _, err = ask(capsys, "daemonset", "-A", "--nodes", "-o", "json", code=2)
    assert "name the set" in err


def test_an_upgrade_of_all_nodes(capsys: Capture) -> None:
    told = json.loads(ask(capsys, "upgrade", "plan", "--all", "--nothing", "-o", "json")[0])
    assert len(told["nodes"]) == 6
    _, err = ask(capsys, "upgrade", "plan", "--all", "worker-a1", "--nothing", code=2)
    assert "--all" in err


def test_a_dump_goes_on_in_a_simulation(capsys: Capture) -> None:
    """worker-b2 is silent in it, and is called lost."""
    out, _ = ask(capsys, "simulate", "--until", "5m", "-o", "json")
    lost = [r for r in json.loads(out)["records"] if r["action"] == "SetNodeCondition"]
    assert {record["object"]["name"] for record in lost} >= {"worker-b2"}


def test_a_sandbox_begins_with_a_folder() -> None:
    beginning = read_beginning(DUMP, SCENARIO, 0, content_at)
    kinds = [document["kind"] for _, document in beginning.documents]
    assert kinds.count("Node") == 6 and kinds.count("Pod") == 21
