"""A node is named in the same ways by every verb, and so are other objects: kubectl's own."""

import functools
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from kubectl_nodelife.cli import main, nodelife
from kubectl_nodelife.commands.cluster import look as cluster
from kubectl_nodelife.commands.cluster.look import DrainLook
from kubectl_nodelife.commands.flags import DefaultGroup, Where
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.names import (
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
from kubectl_nodelife.outlook.what_if.acts import _VERBS

DUMP = Path(__file__).parents[1] / "wild" / "node-09-kubelet-clock-wrong" / "first.json"
SPELLINGS = ("w-behind", "node/w-behind", "nodes/w-behind", "node w-behind", "no/w-behind")

# The words before a node's name -> those behind it. A verb that takes a node and is not here fails.
TAKES_A_NODE = {
    "status": "",
    "explain": "",
    "changes": "",
    "replay": "",
    "drain-plan": "--ignore-daemonsets --force",
    "simulate": "--until 1m",
    "upgrade plan": "--nothing",
    **{f"what-if {act}": "--until 1m" for act in ("lose", "cordon", "uncordon", "drain", "delete")},
    **{f"what-if {act}": "maintenance:NoExecute --until 1m" for act in ("taint", "untaint")},
}
# These write, or ask a cluster: what is no node's name is refused as by the others.
OF_A_CLUSTER = ("drain", "upgrade start", "upgrade status", "upgrade prove")


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
    verbs = {"what-if" if words.startswith("what-if") else words for words in TAKES_A_NODE}
    assert set(takers(nodelife)) == verbs | set(OF_A_CLUSTER)
    assert {f"what-if {act}" for act in _VERBS} - TAKES_A_NODE.keys() == {"what-if set"}


@pytest.mark.parametrize("verb", TAKES_A_NODE)
def test_every_verb_takes_each_spelling(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = set()
    for spelling in SPELLINGS:
        words = [*f"{verb} {spelling} {TAKES_A_NODE[verb]}".split(), "-f", str(DUMP)]
        code = main(words)
        out, err = capsys.readouterr()
        assert code == 0, (words, err)
        answers.add(out)
    assert len(answers) == 1


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_drain_takes_each_spelling(
    spelling: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cluster is the dump here: the names are looked for in what was read."""
    of_cluster = cluster.look_for_drain
    look = functools.partial(_look_at_dump, of_cluster)
    monkeypatch.setattr(cluster, "look_for_drain", look)
    words = ["drain", *spelling.split(), "--ignore-daemonsets", "--force", "--dry-run=client"]
    assert main(words) == 0, capsys.readouterr().err
    assert "w-behind" in capsys.readouterr().out


def _look_at_dump(of_cluster: Callable[..., DrainLook], where: Where, read: str = "") -> DrainLook:
    return of_cluster(where._replace(filename=(str(DUMP),)), read)


@pytest.mark.parametrize("verb", ["upgrade start --nothing", "upgrade status", "upgrade prove"])
def test_what_is_no_node_is_refused_before_a_cluster_is_asked(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb.split(), "ds/w-behind"]) == 2
    assert "is unclear from 'ds/w-behind'; write node/NAME" in capsys.readouterr().err


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
    told = "which object is meant is unclear" if words else "no object is named; write node/NAME"
    with pytest.raises(BadInput, match=told):
        parse_subject(words.split(), (NODE, POD), NODE)


def test_a_kind_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    dump = str(Path(__file__).parents[1] / "dumps" / "two-zones")
    assert main(["explain", "nodes", "-f", dump]) == 2
    assert capsys.readouterr().err == "error: which node?; give its name\n"
