"""`doctor` finds what is wrong, says what to do, and changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife import __version__, cli
from kubectl_nodelife.commands import doctor
from kubectl_nodelife.live.target import cluster_identity
from tests.loopback import sandbox, target_of


def checks(capsys: pytest.CaptureFixture, *words: str) -> dict[str, dict[str, str]]:
    assert cli.main(["doctor", "-o", "json", *words]) in (0, 4)
    return {item["check"]: item for item in json.loads(capsys.readouterr().out)["items"]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh home, with nothing on PATH."""
    for name in ("HOME", "NODELIFE_RUNTIME_DIR", "NODELIFE_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def program(folder: Path, name: str, text: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_with_nothing_there(capsys: pytest.CaptureFixture, home: Path) -> None:
    found = checks(capsys)
    assert found["program"]["result"] == found["kubectl"]["result"] == "warning"
    assert found["completion"]["remedy"] == "run: kubectl nodelife completion install"
    assert found["kubeconfig"]["result"] == "failed"
    assert "cluster" not in found
    capsys.readouterr()
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("The exit code is 0 all the same")
    assert cli.main(["doctor", "--exit-code"]) == 4
    assert "all the same" not in capsys.readouterr().out
    assert list(home.iterdir()) == []


def test_an_old_kubectl_is_told(capsys: pytest.CaptureFixture, home: Path) -> None:
    program(home, "kubectl", """echo '{"clientVersion": {"gitVersion": "v1.25.9"}}'""")
    program(home, "kubectl_complete-nodelife")
    program(home, "kubectl-nodelife", f"echo kubectl nodelife v{__version__}")
    found = checks(capsys)
    assert (found["kubectl"]["result"], found["kubectl"]["found"]) == ("warning", "v1.25.9")
    assert found["completion"]["result"] == found["program"]["result"] == "ok"


def test_another_program_on_path_is_told(capsys: pytest.CaptureFixture, home: Path) -> None:
    program(home, "kubectl-nodelife", "echo kubectl nodelife v0.1.0")
    found = checks(capsys)["program"]
    assert found["result"] == "warning"
    assert f"kubectl runs {home}/kubectl-nodelife, which is v0.1.0" in found["found"]


def test_a_cluster_that_is_not_there(capsys: pytest.CaptureFixture) -> None:
    found = checks(capsys, "--server", "http://127.0.0.1:9")
    assert found["cluster"]["result"] == "failed"
    assert found["daemon"]["found"] == "none runs"


async def test_a_cluster_that_answers_and_a_broken_journal(
    capsys: pytest.CaptureFixture, home: Path
) -> None:
    shown: dict[str, str] = {}
    import asyncio

    async with sandbox() as served:
        served.server.faults.forbid = {"pods", "leases"}
        identity = cluster_identity(target_of(served))
        folder = home / "nodelife_state_dir" / identity
        folder.mkdir(parents=True)
        for path in (folder, folder.parent):
            path.chmod(0o700)
        (folder / "journal.db").write_bytes(b"not a database, but long enough to be read")
        words = ["doctor", "-o", "json", "--kubeconfig", served.kubeconfig]
        assert await asyncio.to_thread(cli.main, words) == 0
        shown["text"] = capsys.readouterr().out
    found = {item["check"]: item for item in json.loads(shown["text"])["items"]}
    assert found["cluster"]["found"] == "Kubernetes v1.36.0"
    assert found["clock"]["result"] == "ok"
    assert found["rights"]["result"] == "warning"
    assert found["rights"]["found"] == "may not list pods, leases"
    assert found["journal"]["result"] == "failed"
    assert "file is not a database" in found["journal"]["found"]
    assert found["journal"]["remedy"].startswith("stop the daemon and move it away: mv ")


def test_a_clock_that_is_off_is_told(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def five_seconds_off(target: object) -> tuple[str, int]:
        return "v1.36.3", -5_000_000_000

    monkeypatch.setattr(doctor, "_ask_version", five_seconds_off)
    found = checks(capsys, "--server", "http://127.0.0.1:9")
    assert found["clock"]["found"] == "5.0s off the API server's"


READS = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list"]}


def role(*rules: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "rules": list(rules)}


NOT_RECONCILED = {"rbac.authorization.kubernetes.io/autoupdate": "false"}


@pytest.mark.parametrize(
    ("shown", "result", "words"),
    [
        (role(READS), "ok", "lets Leases be read"),
        (role({**READS, "verbs": ["*"]}), "ok", "lets Leases be read"),
        (role({**READS, "verbs": ["list", "watch"]}), "warning", "calls no silent node lost"),
        (role({**READS, "resourceNames": ["x"]}), "warning", "calls no silent node lost"),
        (role(READS, **NOT_RECONCILED), "warning", "autoupdate=false"),
        (None, "warning", "cannot be read"),
    ],
)
def test_whether_the_node_controller_may_read_leases(
    shown: dict[str, Any] | None,
    result: str,
    words: str,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def version(target: object) -> tuple[str, int]:
        return "v1.37.2", 0

    async def read(target: object) -> dict[str, Any] | None:
        return shown

    monkeypatch.setattr(doctor, "_ask_version", version)
    monkeypatch.setattr(doctor, "_read_role", read)
    found = checks(capsys, "--server", "http://127.0.0.1:9")["node controller"]
    assert found["result"] == result
    assert words in found["found"]


def test_before_v1_37_nobody_asks_for_that_role(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def version(target: object) -> tuple[str, int]:
        return "v1.36.3", 0

    monkeypatch.setattr(doctor, "_ask_version", version)
    assert "node controller" not in checks(capsys, "--server", "http://127.0.0.1:9")
