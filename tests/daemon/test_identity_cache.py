"""What connection flags meant the last time, as long as nothing that decides it has changed."""

import os
from pathlib import Path
from typing import Any

import pytest

from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.daemon.paths import CACHE_FILE, CachedIdentity, recall, remember

KNOWN = CachedIdentity("0123456789abcdef0123", "https://10.0.0.1", "prod", "shop")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text("a")
    return path


def recalled(folder: Path, environ: dict[str, str], **flags: Any) -> str | None:
    known = recall(str(folder), Connection(**flags), environ)
    return known.identity if known else None


def note(folder: Path, environ: dict[str, str], *files: Path, **flags: Any) -> None:
    paths = tuple(str(f) for f in files)
    remember(str(folder), Connection(**flags), environ, KNOWN, paths)


def test_the_same_flags_and_files_are_known(tmp_path: Path, config: Path) -> None:
    environ = {"KUBECONFIG": str(config)}
    assert recalled(tmp_path, environ) is None
    note(tmp_path, environ, config)
    assert recalled(tmp_path, environ) == KNOWN.identity
    found = recall(str(tmp_path), Connection(), environ)
    assert found is not None
    assert (found.server, found.context, found.namespace) == ("https://10.0.0.1", "prod", "shop")


@pytest.mark.parametrize(
    "flags",
    [{"context": "b"}, {"impersonate": "eve"}, {"server": "https://x"}, {"user": "u"}],
    ids=str,
)
def test_other_flags_are_not(tmp_path: Path, config: Path, flags: dict[str, Any]) -> None:
    environ = {"KUBECONFIG": str(config)}
    note(tmp_path, environ, config)
    assert recalled(tmp_path, environ, **flags) is None


def test_namespace_and_token_do_not_matter(tmp_path: Path, config: Path) -> None:
    environ = {"KUBECONFIG": str(config)}
    note(tmp_path, environ, config)
    assert recalled(tmp_path, environ, namespace="x", token="t") == KNOWN.identity


def test_another_kubeconfig_with_the_same_context_is_not(tmp_path: Path, config: Path) -> None:
    other = tmp_path / "other"
    other.write_text("a")
    note(tmp_path, {"KUBECONFIG": str(config)}, config)
    assert recalled(tmp_path, {"KUBECONFIG": str(other)}) is None


@pytest.mark.parametrize("change", ["written", "replaced", "removed"])
def test_a_changed_file_is_not(tmp_path: Path, config: Path, change: str) -> None:
    environ = {"KUBECONFIG": str(config)}
    note(tmp_path, environ, config)
    before = config.stat()
    if change == "written":
        config.write_text("other, of another size")
    elif change == "replaced":
        new = tmp_path / "new"
        new.write_text("b")
        os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(new, config)
    else:
        config.unlink()
    assert recalled(tmp_path, environ) is None


def test_a_file_that_was_missing_and_is_there_now_is_not(tmp_path: Path, config: Path) -> None:
    late = tmp_path / "late"
    environ = {"KUBECONFIG": f"{late}:{config}"}
    note(tmp_path, environ, late, config)
    assert recalled(tmp_path, environ) == KNOWN.identity
    late.write_text("now it is there")
    assert recalled(tmp_path, environ) is None


def test_a_relative_path_means_another_file_elsewhere(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    note(tmp_path, {}, config, kubeconfig="config")
    assert recalled(tmp_path, {}, kubeconfig="config") == KNOWN.identity
    monkeypatch.chdir(tmp_path / "below")
    assert recalled(tmp_path, {}, kubeconfig="config") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"{}": {"files": 3}}'])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, config: Path, content: str) -> None:
    (tmp_path / CACHE_FILE).write_text(content)
    environ = {"KUBECONFIG": str(config)}
    assert recalled(tmp_path, environ) is None
    note(tmp_path, environ, config)
    assert recalled(tmp_path, environ) == KNOWN.identity


def test_it_is_private_and_has_a_limit(tmp_path: Path, config: Path) -> None:
    for number in range(250):
        note(tmp_path, {"KUBECONFIG": str(config)}, config, context=f"c{number}")
    assert (tmp_path / CACHE_FILE).stat().st_mode & 0o777 == 0o600
    environ = {"KUBECONFIG": str(config)}
    assert recalled(tmp_path, environ, context="c0") is None
    assert recalled(tmp_path, environ, context="c249") == KNOWN.identity


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, config: Path) -> None:
    note(tmp_path / "none", {"KUBECONFIG": str(config)}, config)
