"""A node is named in the same ways by every verb, and so are other objects: kubectl's own."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kubectl_nodelife.cli import main, nodelife
from kubectl_nodelife.commands.groups import DefaultGroup
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.subjects import (
    BUDGET,
    DAEMON_SET,
    NODE,
    POD,
    ZONE,
    Subject,
    parse_names,
    parse_subject,
    parse_subjects,
)

DUMP = Path(__file__).parents[1] / "wild" / "node-09-kubelet-clock-wrong" / "first.json"
SPELLINGS = ("w-behind", "node/w-behind", "nodes/w-behind", "node w-behind", "no/w-behind")

# Verb -> the words before and behind a node's name. A verb that takes a node and is not here fails.
TAKES_A_NODE = {
    "status": ((), ()),
    "explain": ((), ()),
    "changes": ((), ()),
    "replay": ((), ()),
    "what-if": (("lose",), ("--until", "1m")),
    "drain-plan": ((), ("--ignore-daemonsets", "--force")),
}
# They write, or need more than a dump; their names go through the same function.
ELSEWHERE = {"drain", "simulate"} | {
    f"upgrade {verb}" for verb in ("plan", "start", "status", "prove")
}


def takers(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Each command below the group that has an argument for nodes."""
    ctx = click.Context(group)
    found = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group) and not isinstance(command, DefaultGroup):
            found |= takers(command, (*path, name))
        elif any(
            "NODE" in str(p.metavar) or "KIND NAME" in str(p.metavar) or "ACT" in str(p.metavar)
            for p in command.params
            if isinstance(p, click.Argument)
        ):
            found[" ".join((*path, name))] = command
    return found


def test_the_table_names_every_verb_that_takes_a_node() -> None:
    assert set(takers(nodelife)) == TAKES_A_NODE.keys() | ELSEWHERE


@pytest.mark.parametrize("verb", TAKES_A_NODE)
def test_every_verb_takes_each_spelling(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, behind = TAKES_A_NODE[verb]
    answers = set()
    for spelling in SPELLINGS:
        words = [verb, *before, *spelling.split(), *behind, "-f", str(DUMP)]
        code = main(words)
        out, err = capsys.readouterr()
        assert code == 0, (words, err)
        answers.add(out)
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a", [Subject(NODE, "", "a")]),
        ("a b a", [Subject(NODE, "", "a"), Subject(NODE, "", "b")]),
        ("node", [Subject(NODE, "", "node")]),
        ("node a b", [Subject(NODE, "", "a"), Subject(NODE, "", "b")]),
        ("node/a pod/web", [Subject(NODE, "", "a"), Subject(POD, "", "web")]),
        ("pod shop/web", [Subject(POD, "shop", "web")]),
        ("pods web", [Subject(POD, "", "web")]),
        ("po/shop/web", [Subject(POD, "shop", "web")]),
        ("ds/agent", [Subject(DAEMON_SET, "", "agent")]),
        ("daemonsets.apps tools/agent", [Subject(DAEMON_SET, "tools", "agent")]),
        ("pdb/web", [Subject(BUDGET, "", "web")]),
        ("zone us-east/us-east-1a", [Subject(ZONE, "", "us-east/us-east-1a")]),
        ("zone/us-east/us-east-1a", [Subject(ZONE, "", "us-east/us-east-1a")]),
    ],
)
def test_what_words_mean(words: str, expected: list[Subject]) -> None:
    assert parse_subjects(words.split(), (NODE, POD, DAEMON_SET, BUDGET, ZONE), NODE) == expected


@pytest.mark.parametrize("words", ["pod a", "deploy/a", "shop/a", "node/", "node/a/b", "ds/a"])
def test_what_names_no_node(words: str) -> None:
    with pytest.raises(BadInput, match=r"is unclear from .*; write node/NAME"):
        parse_names(words.split())


@pytest.mark.parametrize("words", ["", "node a b", "pod/a/b/c"])
def test_what_is_not_one_object(words: str) -> None:
    with pytest.raises(BadInput, match="which object is meant is unclear"):
        parse_subject(words.split(), (NODE, POD), NODE)
