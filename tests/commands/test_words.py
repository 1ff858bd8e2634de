"""Small words of the command line: help, hints, what is not there, a first look, watched lines."""

import os
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubectl_nodelife import cli
from kubectl_nodelife.commands.answering.status import StatusLines, finished
from kubectl_nodelife.commands.ask import say_first_look
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.dumps.dump import load
from kubectl_nodelife.outlook.status import NodeLifeStatus, status_steps

DUMP = str(Path(__file__).parents[1] / "dumps" / "two-zones")


def err(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """stderr of a command line that fails."""
    assert cli.main(list(words)) != 0
    return capsys.readouterr().err


def test_help_verb_is_verb_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "status"]) == 0
    asked = capsys.readouterr().out
    assert cli.main(["status", "--help"]) == 0
    assert capsys.readouterr().out == asked
    assert cli.main(["help"]) == 0
    assert "Usage: kubectl nodelife" in capsys.readouterr().out
    assert 'unknown command "stats"' in err(capsys, "help", "stats")


def test_hints_are_given_only_where_they_are_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean status?" in err(capsys, "statsu")
    assert "did you mean" not in err(capsys, "frobnicate")


@pytest.mark.parametrize(
    "words",
    [
        ("status", "x"),
        ("explain", "node", "x"),
        ("drain-plan", "x"),
        ("explain", "pod", "x", "-n", "shop"),
        ("repair", "x", "-n", "shop"),
        ("explain", "budget", "x", "-n", "shop"),
        ("daemonset", "x", "-n", "shop"),
    ],
)
def test_not_found_is_worded_alike_everywhere(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    line = err(capsys, *words, "-f", DUMP).splitlines()[-1]
    assert line.startswith("error: ") and 'x" not found; ' in line


def test_a_dump_given_to_simulate_on_stdin_is_recognised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file it is played; of stdin there is nothing left to read."""
    with open(f"{DUMP}/nodes.json", "rb") as file:
        monkeypatch.setattr("kubectl_nodelife.commands.simulate.read_stdin", file.read)
        said = err(capsys, "simulate", "-f", "-")
    assert "standard input: is a dump, not a scenario; name its file" in said


def test_a_first_look_is_said_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # a socket's path must be short
        monkeypatch.setenv("NODELIFE_RUNTIME_DIR", f"{short}/state/run")
        for _ in range(3):
            say_first_look("a first look")
        assert capsys.readouterr().err == "a first look\n"
        os.utime(f"{short}/state/run/first-look", (0, 0))
        say_first_look("a first look")
        assert capsys.readouterr().err == "a first look\n"
        # The folders that it makes are the user's alone, as a daemon and its journal want them.
        assert os.stat(f"{short}/state").st_mode & 0o077 == 0


def status() -> NodeLifeStatus:
    """The dump's."""
    view = view_of_dump(load([DUMP], None, None), ("Node", "Lease", "Pod"))
    return finished(status_steps(view))


def test_watching_tells_nodes_that_are_gone_and_zones_that_change() -> None:
    made, lines = status(), StatusLines({})
    assert lines.news(made).count("\n") == 7
    assert lines.news(made) == ""
    stopped = replace(made.zones[0], state="PartialDisruption", why="3 of 4 not ready")
    later = replace(made, nodes=made.nodes[1:], zones=[stopped, *made.zones[1:]])
    assert lines.news(later) == (
        "worker-a1: deleted\nzone eu-1/eu-1a: Normal -> PartialDisruption: 3 of 4 not ready\n"
    )
    assert '"deleted"' in second_document(made, later)


def second_document(first: NodeLifeStatus, later: NodeLifeStatus) -> str:
    """What a watched document says the second time."""
    lines = StatusLines({"output": ["json"]})
    lines.news(first)
    return lines.news(later)
