"""The quick way of `status`: what it imports, which forms it takes, and that it means the same."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kubectl_nodelife import quick
from kubectl_nodelife.commands.flags import in_click_spelling
from kubectl_nodelife.commands.status import status
from tests.daemon.fake import FakeDaemon, known_cluster

ROOT = Path(__file__).parents[2]

DENIED = {
    *("kubernetes", "aiohttp", "asyncio", "yaml", "tabulate", "msgspec", "click", "watchdog"),
    *("ssl", "sqlite3", "logging", "requests", "urllib", "http", "subprocess", "typing"),
    *("dataclasses", "importlib.metadata", "kubectl_nodelife.cli", "kubectl_nodelife.live"),
}


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nl", dir="/tmp") as folder:
        yield Path(folder)


def environ(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "KUBECONFIG": str(home / "config"),
        "NODELIFE_RUNTIME_DIR": str(home / "r"),
        "PYTHONPATH": str(ROOT),
    }


def run(home: Path, *args: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *options, "-m", "kubectl_nodelife", *args]
    return subprocess.run(command, env=environ(home), capture_output=True, text=True, timeout=60)


def imported(stderr: str) -> set[str]:
    """The modules of `-X importtime`, each with its packages."""
    names = set()
    for line in stderr.splitlines():
        if line.startswith("import time:"):
            name = line.rpartition("|")[2].strip()
            parts = name.split(".")
            names |= {".".join(parts[: n + 1]) for n in range(len(parts))}
    return names


def test_status_through_the_daemon_imports_next_to_nothing(home: Path) -> None:
    known_cluster(home / "r", home / "config", environ(home))
    with FakeDaemon(home / "r", {"text": "NAME\nn1\n", "warnings": ["mind the gap"]}) as daemon:
        # -S: what site-packages' .pth files import is not ours
        done = run(home, "status", options=("-S", "-X", "importtime"))
        assert done.stdout == "NAME\nn1\n"
        assert "Warning: mind the gap" in done.stderr
        found = imported(done.stderr)
        assert "kubectl_nodelife.daemon.client" in found
        assert not found & DENIED, f"rule: the quick way imports none of these: {found & DENIED}"
        asked = "GET /v1/status?output=table&headers=true&leading=- HTTP/1.0"
        assert daemon.requests[0].startswith(asked)


def test_an_answer_of_another_cluster_is_not_taken(home: Path) -> None:
    known_cluster(home / "r", home / "config", environ(home))
    with FakeDaemon(home / "r", {"text": "NAME\nn1\n", "server": "https://other"}):
        done = run(home, "status")
        assert (done.stdout, done.returncode) == ("", 1)
        assert (
            "the daemon watches https://other, but the kubeconfig means https://10.0.0.1:6443; "
            "run: kubectl nodelife daemon restart"
        ) in done.stderr


@pytest.mark.parametrize(
    ("answer", "args", "code", "out", "err"),
    [
        ({"text": "x", "inTrouble": True}, ["--exit-code"], 4, "x\n", ""),
        ({"text": "x", "inTrouble": True}, [], 0, "x\n", ""),
        ({"text": "", "note": "No resources found"}, [], 0, "", "No resources found\n"),
        (
            {"error": {"what": "not found", "on": "node n9", "remedy": "check", "exitCode": 1}},
            ["n9"],
            1,
            "",
            "error: node n9: not found; check\n",
        ),
        (b"nonsense", [], 3, "", "error: {path}: the daemon's answer cannot be decoded: nonsense; "
         "run: kubectl nodelife daemon restart\n"),
    ],
)  # fmt: skip
def test_what_the_user_sees(
    home: Path, answer: object, args: list[str], code: int, out: str, err: str
) -> None:
    known_cluster(home / "r", home / "config", environ(home))
    with FakeDaemon(home / "r", answer) as daemon:  # type: ignore[arg-type]
        done = run(home, "status", *args)
        assert (done.returncode, done.stdout) == (code, out)
        assert done.stderr == err.replace("{path}", daemon.path)


def test_a_reader_that_goes_away_is_no_error(home: Path) -> None:
    known_cluster(home / "r", home / "config", environ(home))
    text = "".join(f"node-{n}   True\n" for n in range(20_000))
    with FakeDaemon(home / "r", {"text": text}):
        command = f"{sys.executable} -P -m kubectl_nodelife status; echo code $? >&2"
        done = subprocess.run(
            ["bash", "-c", f"({command}) | head -1"],
            env={**environ(home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == "node-0   True\n"
        assert done.stderr == "code 141\n"


FORMS = [
    "",
    "n1 n2",
    "-o wide",
    "-owide",
    "-o=json n1",
    "--output yaml",
    "--output=name --no-headers",
    "-l a=b",
    "--selector a=b,c!=d",
    "--selector=a",
    "--exit-code -o json",
    "--context prod",
    "--context=prod n1",
    "--kubeconfig /x/y",
    "--no-headers n1 --exit-code",
]
NOT_QUICK = [
    "-w",
    "-f dump",
    "-n x",
    "--profile v1.30",
    "--set a=b",
    "--help",
    "-o",
    "-o go-template",
    "-o -w",
    "--output=",
    "-l a n1",
    "--no-headers=true",
    "--token x",
    "--frobnicate",
    "-- n1",
    "--as eve",
]


@pytest.mark.parametrize("words", FORMS)
def test_the_quick_forms_mean_what_they_mean_to_click(words: str) -> None:
    args = words.split()
    parsed = quick.parse(["status", *args])
    if words == "-owide":
        assert parsed is None, "click must take this one"
        return
    assert parsed is not None
    given, nodes = parsed
    ctx = status.make_context("status", in_click_spelling(status, args))
    params = ctx.params
    assert tuple(nodes) == params["nodes"]
    assert given.get("output", "table") == params["output"]
    assert given.get("selector") == params["selector"]
    assert given.get("context") == params["context"]
    assert given.get("kubeconfig") == params["kubeconfig"]
    assert ("no_headers" in given) == params["no_headers"]
    assert ("exit_code" in given) == params["exit_code"]
    assert not any(params[other] for other in ("filename", "watch", "no_daemon", "profile", "now"))


@pytest.mark.parametrize("words", NOT_QUICK)
def test_other_forms_go_the_whole_way(words: str) -> None:
    assert quick.parse(["status", *words.split()]) is None


def test_every_flag_of_status_is_known_to_be_quick_or_not() -> None:
    """A new flag of status must be thought of here: as it stands, it goes the whole way."""
    quick_flags = {*quick._WITH_VALUE, *quick._SWITCHES}
    options = [p for p in status.params if isinstance(p, click.Option)]
    for option in options:
        for name in option.opts:
            value = ["x"] if not option.is_flag else []
            taken = quick.parse(["status", name, *value]) is not None
            assert taken == (name in quick_flags and name not in ("-o", "--output"))
