"""Where the daemon's files are, and whose."""

import os
import stat
from pathlib import Path

import pytest

from kubectl_nodelife.daemon import paths
from kubectl_nodelife.daemon.paths import (
    SOCKET_PATH_BYTES,
    check_private,
    config_file,
    journal_path,
    log_path,
    make_private,
    runtime_folder,
    socket_path,
    state_folder,
)
from kubectl_nodelife.errors import Failed

IDENTITY = "0123456789abcdef0123"


@pytest.mark.parametrize(
    ("environ", "login", "folder"),
    [
        pytest.param({"NODELIFE_RUNTIME_DIR": "/r"}, True, "/r", id="own-variable"),
        pytest.param({"HOME": "/h"}, True, "/run/user/{uid}/nodelife", id="login-folder"),
        pytest.param(
            {"HOME": "/h", "XDG_RUNTIME_DIR": "/x"},
            True,
            "/run/user/{uid}/nodelife",
            id="login-folder-whatever-xdg-says",
        ),
        pytest.param({"HOME": "/h", "XDG_RUNTIME_DIR": "/x"}, False, "/x/nodelife", id="xdg"),
    ],
)
def test_runtime_folder(
    environ: dict[str, str], login: bool, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: login)
    assert runtime_folder(environ) == folder.format(uid=os.geteuid())


def test_without_a_login_folder_it_is_below_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda p: real(p) and not str(p).startswith("/run/user"))
    home = Path("/tmp") / f"nl{os.getpid()}"  # short: a socket's path has a limit
    home.mkdir()
    try:
        assert runtime_folder({"HOME": str(home)}) == f"{home}/.local/state/nodelife/run"
    finally:
        home.rmdir()


def test_a_path_too_long_for_a_socket_is_replaced(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    folder = runtime_folder({"NODELIFE_RUNTIME_DIR": str(long)})
    assert folder == f"/tmp/nodelife-{os.geteuid()}"
    assert len(socket_path(folder, IDENTITY)) <= SOCKET_PATH_BYTES


def test_state_and_config_follow_xdg() -> None:
    assert state_folder({"HOME": "/h"}) == "/h/.local/state/nodelife"
    assert state_folder({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == "/s/nodelife"
    assert config_file({"HOME": "/h"}) == "/h/.config/nodelife/config.yaml"
    assert config_file({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == "/c/nodelife/config.yaml"


@pytest.mark.parametrize(
    "environ",
    [{"XDG_RUNTIME_DIR": "x", "XDG_STATE_HOME": "y"}, {"HOME": "x"}, {"NODELIFE_RUNTIME_DIR": "x"}],
)
def test_a_relative_path_is_no_folder_below_wherever_one_stands(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDG: one that is not absolute is ignored. To make `x` ended in a RecursionError."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths.os.path, "isdir", lambda folder: False)
    found = runtime_folder({"HOME": str(tmp_path), **environ})
    assert found.startswith("/")
    assert "x" not in (found, state_folder(environ)) and state_folder(environ).startswith("/")
    assert make_private(str(tmp_path / "made"))


def test_a_folder_is_made_for_its_user_alone_with_those_above(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private(str(folder))
    for made in (folder, folder.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_others_may_not_enter(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(
        Failed, match=rf"others may enter it \(mode 0755\); run: chmod 700 {folder}"
    ):
        check_private(str(folder))


def test_a_link_or_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(Failed, match="is not a folder"):
            check_private(str(tmp_path / name))


def test_somebody_elses_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(Failed, match=r"belongs to uid \d+, not to you"):
        check_private(str(folder))


def test_a_home_that_cannot_be_written_leaves_memory_and_the_runtime_folder(tmp_path: Path) -> None:
    (tmp_path / "home").touch()  # no folder can be made below it, not even by root
    environ = {"HOME": str(tmp_path / "home")}
    assert journal_path(environ, IDENTITY) == ":memory:"
    assert log_path(environ, "/run/x", IDENTITY) == f"/run/x/{IDENTITY}.log"


def test_each_cluster_has_a_folder_of_its_own(tmp_path: Path) -> None:
    environ = {"NODELIFE_STATE_DIR": str(tmp_path / "state")}
    assert journal_path(environ, IDENTITY) == f"{tmp_path}/state/{IDENTITY}/journal.db"
    assert log_path(environ, "/run/x", IDENTITY) == f"{tmp_path}/state/{IDENTITY}/daemon.log"
    assert stat.S_IMODE((tmp_path / "state" / IDENTITY).stat().st_mode) == 0o700
