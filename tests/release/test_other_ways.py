"""Other ways in: pip into an environment, pipx, uv, `bin/install`; each from a fresh home."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from release import lock
from release.__main__ import WHEELS
from release.platforms import BY_NAME
from tests.release.users import KUBECTL, User, pythons, tool

ROOT = Path(__file__).parents[2]
PYTHON = pythons()[f"{sys.version_info[0]}.{sys.version_info[1]}"]
# How this machine reaches its package index is not the user's to know.
REACH = {name: value for name, value in os.environ.items() if name.startswith(("SSL_", "PIP_"))}
PROGRAMS = {"kubectl-nodelife", "kubectl_complete-nodelife"}


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody with a fresh home."""
    return User(tmp_path / "home", PYTHON)


def wheel_of(release: Path) -> Path:
    return next(release.glob("*.whl"))


def borrow_packages(environment: Path) -> None:
    """Let an environment use the packages of this one, which need not be downloaded again."""
    folder = next((environment / "lib").glob("python3.*/site-packages"))
    (folder / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")


def told(user: User, program: Path) -> dict[str, str]:
    shown = json.loads(user.ok(program, "version", "-o", "json"))
    return dict(shown["clientVersion"])


def test_pip_into_an_environment(release: Path, user: User, commit) -> None:
    environment = user.home / "venv"
    user.ok(PYTHON, "-m", "venv", environment)
    user.ok(environment / "bin/pip", "install", "-q", "--no-deps", wheel_of(release))
    borrow_packages(environment)
    assert {p.name for p in (environment / "bin").glob("kubectl*")} == PROGRAMS
    found = told(user, environment / "bin/kubectl-nodelife")
    assert found["version"] == f"v{__version__}"
    assert (found["installedBy"], found["commit"]) == ("pip", commit.hash)
    offered = user.ok(environment / "bin/kubectl_complete-nodelife", "stat")
    assert offered.startswith("status\t")
    if KUBECTL is not None:
        path = f"{environment}/bin:{Path(KUBECTL).parent}"
        assert "Client Version" in user.ok(KUBECTL, "nodelife", "version", PATH=path)


@pytest.mark.skipif(not tool("pipx"), reason="there is no pipx on this machine")
def test_pipx(release: Path, user: User) -> None:
    pipx = tool("pipx")
    user.ok(pipx, "install", "--python", PYTHON, wheel_of(release), **REACH)
    programs = user.home / ".local/bin"
    assert {p.name for p in programs.iterdir()} == PROGRAMS
    assert told(user, programs / "kubectl-nodelife")["installedBy"] == "pipx"
    user.ok(pipx, "uninstall", "kubectl-nodelife")
    assert list(programs.iterdir()) == []


@pytest.mark.skipif(not tool("uv"), reason="there is no uv on this machine")
def test_uv_tool(release: Path, user: User) -> None:
    uv = tool("uv")
    user.ok(uv, "tool", "install", "--python", PYTHON, wheel_of(release), **REACH)
    programs = user.home / ".local/bin"
    assert {p.name for p in programs.glob("kubectl*")} == PROGRAMS
    assert told(user, programs / "kubectl-nodelife")["installedBy"] == "uv"
    user.ok(uv, "tool", "uninstall", "kubectl-nodelife")
    assert not (programs / "kubectl-nodelife").exists()


def test_bin_install_below_a_prefix(release: Path, user: User, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    wheels = tmp_path / "wheels"  # what the release was made of need not be downloaded again
    wheels.mkdir()
    for wheel in WHEELS.glob("[0-9a-f]*/*.whl"):  # not of a download that was cut off
        (wheels / wheel.name).symlink_to(wheel)
    environ = {"NODELIFE_PYTHON": PYTHON, "PIP_FIND_LINKS": str(wheels), **REACH}
    before = subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT)
    shown = user.ok(ROOT / "bin/install", "--prefix", prefix, seconds=600, **environ)
    assert shown == f"{prefix}/bin/kubectl-nodelife\n"
    assert subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT) == before
    installed = user.ok(prefix / "lib/kubectl-nodelife/bin/pip", "list", "--format=freeze")
    pins = {f"{pin.name}=={pin.version}" for pin in lock.read(BY_NAME["linux-amd64"])}
    assert pins <= {line.lower().replace("_", "-") for line in installed.splitlines()}
    page = prefix / "share/man/man1/kubectl-nodelife-drain-plan.1"
    assert (
        b"nodes finish, when, and if never, what exactly stops it?\n.SH SYNOPSIS"
        in page.read_bytes()
    )
    assert {p.name for p in (prefix / "bin").iterdir()} == PROGRAMS
    assert told(user, prefix / "bin/kubectl-nodelife")["version"] == f"v{__version__}"
    assert (prefix / "share/doc/kubectl-nodelife/LICENSE").exists()
    user.ok(ROOT / "bin/install", "--uninstall", f"--prefix={prefix}")
    assert [p for p in prefix.rglob("*") if p.is_symlink() or not p.is_dir()] == []


def test_bin_install_wants_an_absolute_prefix(user: User) -> None:
    done = user.run(ROOT / "bin/install", "--prefix", "here")
    assert (done.returncode, done.stderr) == (
        2, "error: --prefix here: give an absolute path\n"
    )  # fmt: skip
