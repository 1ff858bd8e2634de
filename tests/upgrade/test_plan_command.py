"""`upgrade plan` as it is called: formats, exit codes, what it refuses to plan."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife import cli
from tests.drain.build import budget, flattened, namespace, node, stateful_set
from tests.objects import write_list

BLUE = ("upgrade", "plan", "-l", "pool=blue")
LABELS = {"metadata": {"labels": {"pool": "blue"}}}


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Three nodes of a pool, one with a pod that cannot go."""
    nodes = [obj for name in ("a1", "a2", "a3") for obj in node(name, **LABELS)]
    db = budget("db", "db", healthy=1, desired=1, expected=1, minAvailable=1)
    objects = [*nodes, namespace(), namespace("nodelife"), stateful_set("db", "a3"), db]
    return write_list(tmp_path / "dump.json", flattened(tuple(objects)))


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main([*words])
    done = capsys.readouterr()
    return code, done.out, done.err


def test_formats_and_the_exit_code(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*BLUE, "--nothing", "-f", dump, "--read", "all")
    code, out, _ = call(capsys, *words)
    assert code == 0 and out.startswith("2 of 3 nodes are done in 2 steps, in about ")
    code, out, _ = call(capsys, *words, "-o", "json", "--exit-code")
    document: dict[str, Any] = json.loads(out)
    assert code == 4, "a node cannot be done"
    assert document["counts"] == {"selected": 3, "claim": 2, "skip": 1, "hold": 0}
    assert "kubectl auth can-i patch nodes --all-namespaces" in document["rights"]
    code, out, _ = call(capsys, *words, "--exclude", "a3", "-o", "name", "--exit-code")
    assert (code, out) == (0, "node/a1\nnode/a2\n")
    for output, begins in (("yaml", "apiVersion:"), ("html", "<!doctype")):
        assert call(capsys, *words, "-o", output)[1].startswith(begins)


def test_a_step_ends_with_its_last_node_and_not_with_the_run(
    dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the run's end the marks are taken off all nodes, which ends no step once more."""
    _, out, _ = call(capsys, *BLUE, "--nothing", "-f", dump, "--read", "all", "-o", "json")
    first, last = json.loads(out)["steps"]
    assert first["endSeconds"] <= last["startSeconds"] < last["endSeconds"]


def test_all_nodes_are_named_by_one_flag(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("upgrade", "plan", "--all", "--nothing", "-f", dump, "--read", "all", "-o", "name")
    assert call(capsys, *words)[:2] == (0, "node/a1\nnode/a2\n")


def test_a_file_of_kind_upgrade_stands_beside_the_dump(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "upgrade.yaml"
    path.write_text(
        "apiVersion: nodelife.dev/v1alpha1\nkind: Upgrade\n"
        "spec: {nodes: [a2], nothing: true, soak: 1m}\n"
    )
    words = ("upgrade", "plan", "-f", str(path), "-f", dump, "--read", "all", "-o", "name")
    assert call(capsys, *words)[:2] == (0, "node/a2\n")


@pytest.mark.parametrize(
    "words, code, says",
    [
        pytest.param(("--nothing",), 2, "no nodes are named", id="no nodes"),
        pytest.param(("a1", "--all", "--nothing"), 2, "--all names all nodes", id="all and one"),
        pytest.param(("-l", "pool=blue"), 2, "no work is named", id="no work"),
        pytest.param(("b9", "--nothing"), 1, 'nodes "b9" not found', id="an unknown node"),
        pytest.param(("-l", "x=y", "--nothing"), 1, "no node matches", id="no node"),
        pytest.param(
            ("a1", "--nothing", "--window", "nightly"), 2, "is no window such as", id="no window"
        ),
        pytest.param(("a1", "--nothing", "--soak", "0s"), 2, "must be above 0", id="no time"),
    ],
)
def test_what_it_refuses(
    words: tuple[str, ...],
    code: int,
    says: str,
    dump: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, out, err = call(capsys, "upgrade", "plan", *words, "-f", dump, "--read", "all")
    assert (found, out) == (code, "")
    assert says in err and err.count("\n") == 1
