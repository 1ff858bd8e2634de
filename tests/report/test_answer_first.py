"""Every verb begins with its answer: at most three lines with a verb, before any table."""

import re
from pathlib import Path

import pytest

from kubectl_nodelife.cli import main
from kubectl_nodelife.errors import EXIT_DONE
from tests.drain.build import node, pod
from tests.objects import write_list
from tests.report.test_every_screen import ROOT, hard_dump, verbs

TWO_ZONES = str(ROOT / "tests/dumps/two-zones")
STUCK_PODS = str(ROOT / "tests/dumps/stuck-pods.yaml")
MOST_LINES = 3

VERB = re.compile(
    r"\b(is|are|was|were|be|has|have|had|does|do|takes?|keeps?|needs?|refuses|finishes|ends?|stops?"
    r"|runs?|agrees|became|find|finds|disrupts?|says?|should|can|passed|failed)\b"
)
TABLE = re.compile(r"\S {3,}\S")

MORE = [
    ["explain", "budget", "web", "-n", "shop"],
    ["explain", "daemonset", "log-agent", "-n", "kube-system"],
    ["daemonset", "log-agent", "-n", "kube-system", "--nodes"],
    ["repair", "--class", "stale-ready"],
    ["what-if", "lose", "node", "worker-a1"],
    ["what-if", "--each", "node"],
]
"""Forms whose objects only the first dump has."""


def plays() -> list[object]:
    """Each verb on each dump. The path of the dump that a test makes is filled in."""
    dumps = [
        ("two-zones", TWO_ZONES, "worker-a1", "db-0", "shop"),
        ("stuck-pods", STUCK_PODS, "lost", "fine", "shop"),
        ("hard", "", "a2", "p" * 60 + "-" + "q" * 60, "default"),
    ]
    typed = [
        pytest.param(path, words, id=f"{name} {' '.join(words)}")
        for name, path, *names in dumps
        for words in verbs(*names)
        if "wide" not in words and words[:2] != ["daemonset", "status"]  # whose words are kubectl's
    ]
    return [
        *typed,
        *(pytest.param(TWO_ZONES, words, id=f"two-zones {' '.join(words)}") for words in MORE),
    ]


def answer_of(shown: str) -> list[str]:
    """The first block of a page."""
    return shown.split("\n\n", 1)[0].splitlines()


@pytest.mark.parametrize("path, words", plays())
def test_the_answer_comes_first(
    path: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*words, "-f", path or hard_dump(tmp_path)])
    said = capsys.readouterr()
    assert code == EXIT_DONE, said.err
    if not said.out:  # nothing of the kind is there, which stderr says
        assert re.search(r"No .* found|Nothing was found of .* from .* to ", said.err), said.err
        return
    answer = answer_of(said.out)
    assert len(answer) <= MOST_LINES, answer
    assert VERB.search(answer[0]), answer[0]
    assert not any(TABLE.search(line) for line in answer), answer


@pytest.mark.parametrize(
    "words, answer",
    [
        pytest.param(
            ["status"],
            "3 of 6 nodes are in trouble; the worst is worker-a2: unreachable, deletion of",
            id="status",
        ),
        pytest.param(["status", "--trouble"], "3 of 6 nodes are in trouble", id="trouble-alone"),
        pytest.param(["status", "worker-a1"], "None of 1 node is in trouble.", id="one-node"),
        pytest.param(
            ["budgets"], "1 of 2 budgets keeps 5 nodes from being drained now.", id="budgets"
        ),
        pytest.param(
            ["budgets", "db", "-n", "shop"],
            "PodDisruptionBudget shop/db: ok: pods may go.",
            id="a-budget-that-holds-nothing",
        ),
        pytest.param(
            ["daemonset", "-A"],
            "1 of 1 DaemonSet is not as it should be; the first is kube-system/log-agent",
            id="daemonset",
        ),
        pytest.param(
            ["daemonset", "log-agent", "-n", "kube-system", "--nodes"],
            "kube-system/log-agent should run on 5 of 6 nodes and is Ready on 5 of those",
            id="daemonset-nodes",
        ),
        pytest.param(
            ["changes", "--since", "9999h"],
            "11 changes were seen or planned from 2026-11-21T15:03:03Z to 2026-11-21T15:05:18Z: "
            "11 confirmed by the cluster.",
            id="changes",
        ),
        pytest.param(
            ["replay", "--since", "1h"],
            "From 2026-11-21T14:06:35Z to 2026-11-21T15:06:35Z 1 node became not Ready "
            "(worker-a2), and 1 pod was deleted.",
            id="replay",
        ),
        pytest.param(["repair"], "There is nothing to repair.", id="repair"),
        pytest.param(
            ["explain", "node", "worker-a2"],
            "Node worker-a2 is unreachable: its kubelet stopped posting",
            id="explain-node",
        ),
    ],
)
def test_what_it_says(words: list[str], answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "-f", TWO_ZONES]) == EXIT_DONE
    shown = " ".join(answer_of(capsys.readouterr().out))
    assert shown.startswith(answer)


def test_a_budget_with_nothing_wrong_says_of_what_and_when(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "budget", "db", "-n", "shop", "-f", TWO_ZONES]) == EXIT_DONE
    shown = capsys.readouterr().out
    assert "Nothing was found as of this moment, in its selector, its rule, its status" in shown


def test_an_audit_of_pods_that_say_too_little_gives_no_all_clear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [*node("a2"), pod("p", "a2")]
    path = write_list(tmp_path / "dump.json", objects)
    assert main(["audit", "-f", path]) == EXIT_DONE
    shown = capsys.readouterr().out
    assert shown.startswith("Nothing was found, but most pods say too little to be judged.")
