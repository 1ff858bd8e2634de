"""What a TAB offers: from tables, a daemon and a kubeconfig; through kubectl, bash, zsh, fish."""

import os
import pty
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kubectl_nodelife import cli
from kubectl_nodelife.commands.completion import FILE_METAVARS, METAVAR_SOURCES, candidates
from kubectl_nodelife.commands.flags import CONNECTION_FLAGS
from tests.daemon.fake import SERVER, FakeDaemon, known_cluster

ROOT = Path(__file__).parents[2]
NODES = {"server": SERVER, "items": [["worker-1", "Ready, zone a"], ["worker-2", "NotReady"]]}

KUBECTL = shutil.which("kubectl")

# Values of which nothing can be said: they are numbers, moments or words of the user's own.
FREE = {
    "TEXT",
    "LEVEL",
    *("TIME", "DURATION", "SECONDS", "N", "NAME=N", "PERCENT", "SIZE", "WORD", "KEY", "CLASS"),
    *("C[,C...]", "NAME", "UID", "URL", "TOKEN", "KEY=VALUE", "SELECTOR", "FORMAT", "None"),
    "all|none|NAME,...",
    *("KEY=VALUE:EFFECT", "KINDS", "TEXT"),
    *("CMD", "[CMD]", "N|P%", "N|NAMES", "NAMES", "NAMES|SELECTOR", "TYPE=STATUS", "IMAGE"),
    *("NODES", "[BUDGET...]", "REPOSITORY"),
    "'DAYS FROM-TO ZONE'",
    "NS/KIND/NAME|SELECTOR",
    "LIST",
    *(
        "FIELD=VALUE[,...]",
        "KEY[,...]",
        "HOST:PORT",
        "PORT",
        "OLD=NEW[,...]",
        "NS/KIND/NAME|SELECTOR",
    ),
    "NS/KIND/NAME|node/NAME",
}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home in which the kubeconfig is known; its path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="nl", dir="/tmp") as name:
        folder = Path(name)
        environ = {
            "HOME": name,
            "KUBECONFIG": f"{name}/config",
            "NODELIFE_RUNTIME_DIR": f"{name}/r",
            "PYTHONPATH": str(ROOT),
        }
        for key, value in environ.items():
            monkeypatch.setenv(key, value)
        known_cluster(folder / "r", folder / "config", environ)
        yield folder


@pytest.fixture
def daemon(home: Path) -> Iterator[FakeDaemon]:
    """A daemon that knows two nodes."""
    with FakeDaemon(home / "r", NODES) as made:
        yield made


def offered(*words: str) -> list[str]:
    return [value for value, _ in candidates(cli.nodelife, list(words[:-1]), words[-1])[0]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["stat"], ["status"]),
        (["status", "--cont"], ["--context", "--contexts"]),
        (["status", "-o", "j"], ["json"]),
        (["status", "--output=j"], ["json"]),  # cobra's scripts add the flag
        (["status", "-o=j"], ["json"]),
        (["--context", "x", "status", "-o", "na"], ["name"]),
        (["explain", ""], ["node", "pod", "zone", "daemonset", "budget"]),
        (["explain", "node", "a", ""], []),
        (["status", "--set", "node-monitor-p"], ["node-monitor-period="]),
        (["daemonset", "--profile", "v1.3"], [f"v1.3{n}" for n in range(8, -1, -1)]),
        (["daemonset", "und"], ["undo"]),
        (["what-if", "--each", "zo"], ["zone"]),
        (["what-if", "lo"], ["lose"]),
        (["what-if", "lose", "z"], ["zone"]),
        (["what-if", "lose", "link", ""], ["node", "zone"]),
        (["what-if", "delete", ""], ["node", "pod"]),
        (["what-if", "set", "node-monitor-p"], ["node-monitor-period="]),
        (["what-if", "set", "tol"], ["toleration-seconds="]),
        (["what-if", "lose", "node", "a", "--and", "dr"], ["drain"]),
        (["sweep", "--on", "lo"], ["local"]),
        (["help", "stat"], ["status"]),
        (["help", "daemonset", "und"], ["undo"]),
        (["help", "status", ""], []),
    ],
)
def test_words_flags_and_values(words: list[str], expected: list[str], home: Path) -> None:
    assert offered(*words) == expected


def test_directives(home: Path) -> None:
    def directive(*words: str) -> int:
        return candidates(cli.nodelife, list(words[:-1]), words[-1])[1]

    assert directive("stat") == 4  # no files
    assert directive("status", "--set", "node-monitor-p") == 6  # nor a space behind =
    assert directive("status", "-f", "") == 0
    assert directive("snapshot", "save", "") == 0
    assert directive("--cache-dir", "") == 16


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status", ""], ["worker-1", "worker-2"]),
        (["status", "worker-1", ""], ["worker-2"]),
        (["explain", "node", "w"], ["worker-1", "worker-2"]),
        (["what-if", "lose", "node", "worker-2", "w"], ["worker-1"]),
        (["what-if", "cordon", "worker-1", "--and", "drain", ""], ["worker-1", "worker-2"]),
    ],
)
def test_names_come_from_the_daemon(
    words: list[str], expected: list[str], daemon: FakeDaemon
) -> None:
    assert offered(*words) == expected
    assert "/v1/names?kind=nodes" in daemon.requests[-1]


def test_the_namespace_is_sent_along(daemon: FakeDaemon) -> None:
    offered("-n", "prod", "explain", "pod", "x")
    assert "kind=pods&prefix=x&namespace=prod" in daemon.requests[-1]


def test_contexts_come_from_the_kubeconfig(home: Path) -> None:
    (home / "config").write_text(
        "contexts: [{name: b, context: {cluster: c}}, {name: a, context: {cluster: d}}]"
    )
    assert offered("status", "--context", "") == ["a", "b"]
    assert offered("status", "--context=a") == ["a"]


def test_without_a_daemon_there_are_no_names_and_none_is_started(home: Path) -> None:
    before = set(home.rglob("*"))
    assert offered("status", "") == []
    assert set(home.rglob("*")) == before


def test_a_daemon_of_another_cluster_is_not_believed(home: Path) -> None:
    with FakeDaemon(home / "r", {**NODES, "server": "https://other"}):
        assert offered("status", "") == []


def test_a_daemon_that_hangs_is_not_waited_for(home: Path) -> None:
    with FakeDaemon(home / "r", b"") as made:
        made._socket.close()
        os.unlink(made.path)
        import socket

        hung = socket.socket(socket.AF_UNIX)
        hung.bind(made.path)
        hung.listen()
        began = time.monotonic()
        assert offered("status", "") == []
        assert time.monotonic() - began < 1.0
        hung.close()


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    def walk(words: str, group: click.Group) -> Iterator[tuple[str, click.Parameter]]:
        ctx = click.Context(group)
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield from ((f"{words}{name}", param) for param in command.params)
            if isinstance(command, click.Group):
                yield from walk(f"{words}{name} ", command)

    yield from walk("", cli.nodelife)


def test_of_every_parameter_it_is_known_what_it_stands_for() -> None:
    connection = {spelling for flag in CONNECTION_FLAGS for spelling in flag.spellings}
    unknown = {
        f"{words} {param.opts[0]} {param.metavar}"
        for words, param in parameters()
        if not (isinstance(param, click.Option) and (param.is_flag or param.opts[0] in connection))
        and not isinstance(param.type, click.Choice)
        and str(param.metavar) not in {*FREE, *METAVAR_SOURCES, *FILE_METAVARS}
    }
    assert unknown == set(), "give the metavar a row in commands/completion.py, or one in FREE"


# Through the programs of a user


@pytest.fixture
def path(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with the program, as a wheel or krew would put it there."""
    folder = home / "bin"
    folder.mkdir()
    program = folder / "kubectl-nodelife"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m kubectl_nodelife "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_install_and_uninstall(path: Path, daemon: FakeDaemon) -> None:
    shim = path / "kubectl_complete-nodelife"
    assert run("kubectl-nodelife", "completion", "uninstall").stdout == "there is none\n"
    for _ in range(2):
        assert run("kubectl-nodelife", "completion", "install").stdout == f"{shim} installed\n"
    assert run(str(shim), "status", "worker-1", "w").stdout == "worker-2\tNotReady\n:4\n"
    assert run("kubectl-nodelife", "completion", "uninstall").stdout == f"{shim} removed\n"
    assert not shim.exists()
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    done = run("kubectl-nodelife", "completion", "install")
    assert (done.returncode, done.stderr) == (
        1, f"error: {shim}: is not a script of ours; move it away\n"
    )  # fmt: skip
    assert run("kubectl-nodelife", "completion", "uninstall").returncode == 1


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine")
def test_kubectl_asks_the_shim(path: Path, daemon: FakeDaemon) -> None:
    run("kubectl-nodelife", "completion", "install")
    done = run(str(KUBECTL), "__complete", "nodelife", "status", "worker-")
    assert done.stdout == "worker-1\tReady, zone a\nworker-2\tNotReady\n:4\n"
    done = run(str(KUBECTL), "__completeNoDesc", "nodelife", "explain", "node", "worker-2")
    assert done.stdout == "worker-2\n:4\n"


BASH_HELPER = Path("/usr/share/bash-completion/bash_completion")


def needs_kubectl(shell: str) -> None:
    if KUBECTL is None:
        pytest.skip("there is no kubectl on this machine")
    if shell == "bash" and not BASH_HELPER.exists():
        pytest.skip("there is no bash-completion on this machine, which kubectl's own needs")


def typed(words: list[str], start: str, line: str, wanted: str, seconds: float = 30.0) -> str:
    """What an interactive shell shows after `start` and the keys of `line`, until `wanted`.

    A TAB that finds a daemon too busy to answer in time offers nothing: it is pressed again.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PS1"], os.environ["TERM"] = "> ", "dumb"
        os.execvp(words[0], words)
    shown = ""
    try:
        os.write(terminal, f"{start}\necho re''ady\n".encode())
        end, sent, again = time.monotonic() + seconds, False, 0.0
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
            if not sent and re.search(r"^ready", shown, re.M):
                os.write(terminal, line.encode())
                shown, sent, again = "", True, time.monotonic() + 3
            elif sent and time.monotonic() > again:
                os.write(terminal, b"\t")
                again += 3
            if sent and wanted in shown:
                return shown
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    raise AssertionError(f"{wanted!r} was not shown in: {shown!r}")


CONTEXTS = "contexts: [{name: lab, context: {}}, {name: 'arn:aws:live', context: {}}]\n"
FLAGS_WITH_EQUALS = {"--context=la": "--context=lab ", "-o=js": "-o=json "}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("status worker-\t\t", "worker-2"),
        ("expl\t", "explain "),
        ("status --set node-monitor-p\t", "period="),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_the_program(
    shell: str, line: str, wanted: str, path: Path, daemon: FakeDaemon
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    start = f'eval "$(kubectl-nodelife completion {shell})"'
    words = ["bash", "--norc", "--noprofile", "-i"]
    if shell == "zsh":
        start, words = f"autoload -Uz compinit; compinit -u -D; {start}", ["zsh", "-f", "-i"]
    typed(words, start, f"kubectl-nodelife {line}", wanted)


@pytest.mark.parametrize("flag", FLAGS_WITH_EQUALS)
@pytest.mark.parametrize("program", ["kubectl-nodelife", "kubectl nodelife"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_value_behind_an_equals_sign_is_completed_in_place(
    shell: str, program: str, flag: str, path: Path, home: Path
) -> None:
    (home / "config").write_text(CONTEXTS)
    line = f"{program} status {flag}"
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    start = {
        "bash": f"source {BASH_HELPER}; source <(COMMAND completion bash)",
        "zsh": "autoload -Uz compinit; compinit -u -D; source <(COMMAND completion zsh)",
        "fish": "COMMAND completion fish | source",
    }[shell].replace("COMMAND", program.split()[0])
    if program == "kubectl nodelife":
        needs_kubectl(shell)
        run("kubectl-nodelife", "completion", "install")
    if shell == "fish":
        done = run("fish", "--no-config", "-c", f"{start}; complete -C '{line}'")
        assert done.stdout.partition("\t")[0].strip() == FLAGS_WITH_EQUALS[flag].strip()
        return
    words = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    typed(words, start, f"{line}\t", f"{program} status {FLAGS_WITH_EQUALS[flag]}")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_the_plugin(shell: str, path: Path, daemon: FakeDaemon) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    needs_kubectl(shell)
    run("kubectl-nodelife", "completion", "install")
    start = f"source {BASH_HELPER}; source <(kubectl completion bash)"
    words = ["bash", "--norc", "--noprofile", "-i"]
    if shell == "zsh":
        start = "autoload -Uz compinit; compinit -u -D; source <(kubectl completion zsh)"
        words = ["zsh", "-f", "-i"]
    typed(words, start, "kubectl nodelife explain node worker-1\t", "worker-1 ")
    typed(words, start, "kubectl nodelife status worker-\t\t", "worker-2")


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish on this machine")
def test_fish_completes_the_program(path: Path, daemon: FakeDaemon) -> None:
    script = "kubectl-nodelife completion fish | source; complete -C 'kubectl-nodelife status w'"
    done = run("fish", "--no-config", "-c", script)
    assert done.stdout == "worker-1\tReady, zone a\nworker-2\tNotReady\n", done.stderr


def test_a_tab_takes_a_moment(
    path: Path, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alarm for heavy imports, not a measurement: processor time, since others are busy too."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    took = []
    for _ in range(8):
        before = used()
        run("kubectl-nodelife", "__complete", "status", "w")
        took.append(used() - before)
    assert min(took) < 0.15


def test_what_cannot_be_completed_fails_silently(path: Path, home: Path) -> None:
    done = run("kubectl-nodelife", "__complete", "no-such-verb", "")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


GRAMMAR = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nodelife-tools/venv")
PARSE = """
import sys, tree_sitter, tree_sitter_powershell
language = tree_sitter.Language(tree_sitter_powershell.language())
root = tree_sitter.Parser(language).parse(sys.stdin.buffer.read()).root_node
sys.exit(root.has_error)
"""


def parses_as_powershell(text: str) -> bool:
    done = subprocess.run([GRAMMAR / "bin/python", "-c", PARSE], input=text, text=True)
    return done.returncode == 0


@pytest.mark.skipif(
    not any(GRAMMAR.glob("lib/python3*/site-packages/tree_sitter_powershell")),
    reason="there is no grammar of PowerShell on this machine; .ci/release-tools brings it",
)
def test_the_script_for_powershell_is_powershell() -> None:
    """PowerShell itself is in no registry that a Debian machine has: its grammar must do."""
    text = (ROOT / "kubectl_nodelife/commands/shells/powershell").read_text()
    assert parses_as_powershell(text)
    for piece in ("{", "}", "(", '"', "$_ -notmatch"):
        assert not parses_as_powershell(text.replace(piece, piece[:-1], 1)), piece
