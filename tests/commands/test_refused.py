"""A server that takes no credentials: one line says which, and what to do; no note comes first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife import cli
from kubectl_nodelife.errors import EXIT_FAILED
from tests.raw_server import Request, in_a_thread, raw_server


async def refuse(request: Request) -> bool:
    """As kube-apiserver refuses."""
    await request.status(401, "Unauthorized")
    return True


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """A kubeconfig and its server, which refuses the user u; with a folder of its own."""
    monkeypatch.setenv("NODELIFE_RUNTIME_DIR", str(tmp_path / "run"))
    with in_a_thread(raw_server()) as server:
        server.sickness = refuse
        yield server.kubeconfig(tmp_path, {"token": "expired"}), server.url


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["explain", "node", "a1"],
        ["audit", "-A"],
        ["repair", "-A", "--dry-run=client"],
        ["what-if", "--each", "node"],
        ["drain-plan", "a1"],
        ["budgets", "-A"],
    ],
    ids=lambda words: words[0],
)
def test_it_says_which_server_refuses_whom(
    words: list[str], kubeconfig: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, server = kubeconfig
    assert cli.main([*words, "--kubeconfig", path]) == EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    # To plain HTTP no credentials are sent, and a warning says so.
    assert [line for line in err.splitlines() if not line.startswith("Warning: ")] == [
        f"error: {server} (401): Unauthorized; the server does not take the credentials of user "
        "u: log in anew, or check --context, --user and --token"
    ]
