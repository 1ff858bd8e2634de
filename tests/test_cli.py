"""The frame of the command line, as a user and a script meet it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import IO

import click
import pytest

from kubectl_nodelife import __version__, cli, errors
from kubectl_nodelife.commands.flags import (
    CONNECTION_FLAGS,
    Connection,
    Output,
    connection_flags,
    output_flags,
)

ROOT = Path(__file__).parents[1]

# What no command may import before it is needed; yaml, msgspec and the rest cost tens of ms each.
HEAVY = {"kubernetes", "aiohttp", "asyncio", "yaml", "tabulate", "msgspec", "requests", "pydantic"}
HEAVY |= {"watchdog", "ssl", "logging", "sqlite3", "importlib.metadata", "urllib3"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and group, with the words that a user types."""

    def walk(
        words: str, group: click.Group, ctx: click.Context
    ) -> Iterator[tuple[str, click.Command]]:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None, f"{words} {name} is listed but does not exist"
            yield f"{words} {name}", command
            if isinstance(command, click.Group):
                inner = click.Context(command, parent=ctx, info_name=name)
                yield from walk(f"{words} {name}", command, inner)

    yield from walk(cli.PROGRAM, cli.nodelife, click.Context(cli.nodelife))


COMMANDS = dict(commands())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help_and_an_example(words: str) -> None:
    command = COMMANDS[words]
    assert command.help, f"{words} has no help text"
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{words} {param.opts[0]} has no help text"
    if not isinstance(command, click.Group):
        examples = cleandoc(command.help).partition("\b\nExample")[2].splitlines()[1:]
        lines = [line.strip() for line in examples]
        assert any(line.startswith(words) for line in lines), f"{words} shows no example of itself"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_example_is_accepted_by_its_parser(words: str) -> None:
    command = COMMANDS[words]
    for line in (command.help or "").splitlines():
        if line.strip().startswith(words + " "):
            args = line.split("#")[0].split("|")[0].split(">")[0].split()[len(words.split()) :]
            command.make_context(words, args, resilient_parsing=False)


def test_help_is_one_screen_of_verbs_by_what_one_wants(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: kubectl nodelife [flags] VERB")
    for verb, (_, line) in cli.VERBS.items():
        assert f"  {verb} " in shown and line in shown
    headings = [line.removesuffix(":") for line in shown.splitlines() if line.endswith(":")]
    assert headings == list(cli.VERB_GROUPS)
    assert len(shown.splitlines()) <= 42 and max(map(len, shown.splitlines())) <= 80


def test_help_of_a_verb_lists_the_common_connection_flags_alone(
    capsys: pytest.CaptureFixture,
) -> None:
    assert cli.main(["status", "--help"]) == 0
    shown = capsys.readouterr().out
    for flag in CONNECTION_FLAGS:
        assert (f"{flag.spellings[0]} " in shown) == flag.common


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture) -> None:
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl nodelife")


def test_options_lists_every_connection_flag(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["options"]) == 0
    shown = capsys.readouterr().out
    assert [f.field for f in CONNECTION_FLAGS if f.spellings[0] not in shown] == []


def test_version(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"Client Version: v{__version__}\n"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["vesion"], 'unknown command "vesion", did you mean version?; see'),
        (["frobnicate"], 'unknown command "frobnicate"; see'),
        (["--contxt=a", "version"], "unknown flag: --contxt, did you mean --context?; see"),
        (["--tokn=a", "version"], "unknown flag: --tokn, did you mean --token?; see"),
        (["version", "--foo"], "unknown flag: --foo; see"),
        (["status", "--exitcode"], "unknown flag: --exitcode, did you mean --exit-code?; see"),
        (["version", "--oputt", "json"], "unknown flag: --oputt, did you mean --output?; see"),
        (
            ["version", "-o", "go-template"],
            'unable to match a printer suitable for the output format "go-template", '
            "allowed formats are: json,table,wide,yaml; see 'kubectl nodelife version --help'",
        ),
        (["version", "extra"], "got unexpected extra argument (extra); see"),
        (["--insecure-skip-tls-verify=x", "version"], 'invalid argument "x" for "--insecure-skip'),
        (["--context", "a"], "missing command; see 'kubectl nodelife --help'"),
        (["ev\x1b[31mil\r\n"], 'unknown command "ev^[[31mil\\r\\n"; see'),
    ],
)
def test_wrong_usage_is_one_line_and_2(
    args: list[str], line: str, capsys: pytest.CaptureFixture
) -> None:
    assert cli.main(args) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {line}")
    assert shown.err.count("\n") == 1 and shown.out == ""


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Lets a test register a verb `probe` that runs a function of its own."""

    def register(command: click.Command) -> None:
        module = type(sys)("probe_module")
        module.probe = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "kubectl_nodelife.commands.probe_module", module)
        monkeypatch.setitem(cli.nodelife.verbs, "probe", ("probe_module:probe", "A probe."))

    yield register


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.Failed("denied", on="node n1", remedy="ask"), 1, "error: node n1: denied; ask\n"),
        (errors.BadInput("empty\x1b[2J", on="a\rb"), 2, "error: a\\rb: empty^[[2J\n"),
        (errors.Unreachable("no daemon"), 3, "error: no daemon\n"),
        (errors.Refused("not without a lease"), 5, "error: not without a lease\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
        (SystemExit(7), 7, ""),
        (MemoryError(), 1, "error: out of memory\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "error: /x: Permission denied\n"),
        (click.exceptions.Exit(4), 4, ""),
    ],
)
def test_each_failure_has_its_line_and_code(
    error: BaseException, code: int, line: str, verb, capsys: pytest.CaptureFixture
) -> None:
    @click.command()
    def probe() -> None:
        raise error

    verb(probe)
    assert cli.main(["probe"]) == code
    assert capsys.readouterr().err == line


def test_a_command_may_return_its_exit_code(verb) -> None:
    verb(click.Command("probe", callback=lambda: 4))
    assert cli.main(["probe"]) == 4


@pytest.mark.parametrize("writable", [True, False])
def test_a_bug_leaves_a_report_and_no_bare_traceback(
    writable: bool, verb, monkeypatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    @click.command()
    @connection_flags
    def probe(connection: Connection) -> None:
        raise KeyError("n1\x1b[31m")

    verb(probe)
    folder = tmp_path if writable else tmp_path / "missing"
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert cli.main(["--token=s3cret", "probe", "--token", "s3cret"]) == 1
    shown = capsys.readouterr().err
    first = shown.splitlines()[0]
    assert first.startswith("error: a bug in kubectl nodelife at test_cli.py:")
    assert "KeyError" in first and "please report it" in first
    report = next(tmp_path.iterdir()).read_text() if writable else shown
    assert (shown.count("\n") == 1) == writable
    assert "Traceback" in report and __version__ in report
    assert "--token=*** probe --token ***" in report
    assert "s3cret" not in report and "\x1b" not in report + shown


CONNECTION_CASES: list[tuple[Sequence[str], Sequence[str], Connection]] = [
    ([], [], Connection()),
    (["--context", "a"], [], Connection(context="a")),
    ([], ["--context=a"], Connection(context="a")),
    (["--context", "a", "-n", "x"], ["--context", "b"], Connection(context="b", namespace="x")),
    (["-n=x"], ["-s=https://h"], Connection(namespace="x", server="https://h")),
    (["--as-group", "a"], ["--as-group=b"], Connection(impersonate_groups=("a", "b"))),
    (["--insecure-skip-tls-verify=true"], [], Connection(insecure_skip_tls_verify=True)),
    ([], ["--disable-compression=false"], Connection()),
    (["--kubeconfig", "k", "--token", "t"], ["--as-uid", "1"],
     Connection(kubeconfig="k", token="t", impersonate_uid="1")),
]  # fmt: skip


@pytest.mark.parametrize(("before", "behind", "expected"), CONNECTION_CASES)
def test_connection_flags_before_and_behind_the_verb(
    before: list[str], behind: list[str], expected: Connection, verb
) -> None:
    seen = []

    @click.command()
    @connection_flags
    def probe(connection: Connection) -> None:
        seen.append(connection)

    verb(probe)
    assert cli.main([*before, "probe", *behind]) == 0
    assert seen == [expected]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], ("table", True)),
        (["-o", "json"], ("json", True)),
        (["-ojson"], ("json", True)),
        (["-o=json"], ("json", True)),
        (["--output=name", "--no-headers"], ("name", False)),
        (["--no-headers=true"], ("table", False)),
        (["--no-headers=false"], ("table", True)),
    ],
)
def test_output_flags_in_kubectl_spellings(
    args: list[str], expected: tuple[str, bool], verb
) -> None:
    seen = []

    @click.command()
    @output_flags()
    def probe(output: Output) -> None:
        seen.append((output.format, output.headers))

    verb(probe)
    assert cli.main(["probe", *args]) == 0
    assert seen == [expected]


def test_what_stands_behind_a_double_dash_is_left_alone(verb) -> None:
    seen = []

    @click.command()
    @click.option("--force", is_flag=True)
    @click.argument("words", nargs=-1)
    def probe(force: bool, words: tuple[str, ...]) -> None:
        seen.append((force, words))

    verb(probe)
    assert cli.main(["probe", "--force=true", "--", "--force=false"]) == 0
    assert seen == [(True, ("--force=false",))]


@pytest.mark.parametrize("words", [["--help"], ["version"], ["options"], ["vesion"]])
def test_light_paths_import_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kubectl_nodelife", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "kubectl_nodelife.cli" in imported
    assert imported & HEAVY == set()


def run_into(stdout: int | IO[str], words: str, unbuffered: str) -> tuple[int, str]:
    """Exit code and stderr of the command line as a process that writes to `stdout`."""
    done = subprocess.run(
        [sys.executable, "-m", "kubectl_nodelife", words],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "options"])
def test_a_reader_that_goes_away_is_no_error(words: str, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert run_into(writing, words, unbuffered) == (141, "")
    os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "options"])
def test_a_full_disk_is_told(words: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        code, line = run_into(full, words, unbuffered)
    assert (code, line) == (1, "error: cannot write the output: No space left on device\n")


def test_a_broken_connection_is_not_taken_for_a_gone_reader(
    verb, monkeypatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, right = socket.socketpair()
    right.close()
    verb(click.Command("probe", callback=lambda: left.sendall(b"x")))
    assert cli.main(["probe"]) == 1
    assert "BrokenPipeError" in capsys.readouterr().err


@pytest.mark.skipif(not (ROOT / ".venv/stamp").exists(), reason="it would make an environment")
def test_the_launcher_works_through_a_link_from_anywhere(tmp_path: Path) -> None:
    link = tmp_path / "kubectl-nodelife"
    link.symlink_to(ROOT / "bin" / "kubectl-nodelife")
    done = subprocess.run([link, "version"], cwd=tmp_path, text=True, capture_output=True)
    assert done.stdout == f"Client Version: v{__version__}\n"


@pytest.mark.parametrize("output", ["yaml", "markdown"])
@pytest.mark.parametrize(
    "verb", [("status",), ("daemonset", "status", "ds", "x", "-n", "d"), ("changes",), ("diverge",)]
)
def test_watching_refuses_formats_whose_pieces_are_no_document(
    verb: tuple[str, ...], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*verb, "-w", "-o", output]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"error: -o {output}: is not for watching; use -o json\n"
