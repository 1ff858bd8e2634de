"""The archive on this machine: which Python its launcher takes, and that everything works there."""

import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_nodelife import __version__
from release.manifest import archive_name
from release.platforms import PYTHONS
from tests.release.users import User, pythons, sandbox

VERSION = f"Client Version: v{__version__}\n"
NAME = f"python{sys.version_info[0]}.{sys.version_info[1]}"
THIS = pythons()[NAME.removeprefix("python")]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64",
    reason="the archive for linux/amd64 is tried, and this is another machine",
)

IMPORT_ALL = """
import importlib, pathlib, sys
lib = pathlib.Path(sys.argv[1])
sys.path.append(str(lib))
names = {".".join(p.relative_to(lib).with_suffix("").parts).removesuffix(".__init__")
         for p in (lib / "kubectl_nodelife").rglob("*.py") if p.name != "__main__.py"}
names |= {".".join(p.relative_to(lib).parts).split(".cpython-")[0]
          for p in lib.rglob("*.cpython-%d%d-*.so" % sys.version_info[:2])}
assert len(names) > 300, len(names)
names.remove("kubectl_nodelife.sweep.pool")  # of `sweep`: Dask is an extra, too
for name in sorted(names):
    if not name.endswith("_testcapi"):
        importlib.import_module(name)
inside = [m for m in sys.modules.values() if getattr(m, "__file__", None)]
print(sum(m.__file__.startswith(str(lib)) for m in inside), "modules")
"""


@pytest.fixture(scope="session")
def unpacked(release: Path) -> Iterator[Path]:
    """The archive, in a folder that another user may enter, with a space in its name."""
    with tempfile.TemporaryDirectory(prefix="node life ") as name:
        os.chmod(name, 0o755)
        with tarfile.open(release / archive_name("linux-amd64")) as tar:
            tar.extractall(name, filter="tar")
        yield Path(name) / "nodelife"


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody with this Python only."""
    return User(tmp_path / "home", THIS, path="/bin-of-nobody")


@pytest.fixture
def launcher(unpacked: Path, user: User) -> Path:
    """The launcher as krew links to it. The few programs that it needs are there."""
    for name in ("sh", "readlink", "mkdir", "mv"):
        program = shutil.which(name)
        assert program is not None
        user.link(program, name)
    return user.link(unpacked / "kubectl-nodelife", "kubectl-nodelife")


def remembered(user: User) -> str:
    return (user.home / f".cache/nodelife/python-{__version__}").read_text().splitlines()[1]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_module_can_be_imported(python: str, unpacked: Path) -> None:
    if python not in pythons():
        pytest.skip(f"there is no CPython {python} on this machine")
    done = subprocess.run(
        [pythons()[python], "-I", "-S", "-B", "-c", IMPORT_ALL, unpacked / "lib"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("modules\n")


@pytest.mark.parametrize("python", PYTHONS)
def test_it_runs_and_remembers_where_python_is(
    python: str, unpacked: Path, launcher: Path, tmp_path: Path
) -> None:
    if python not in pythons():
        pytest.skip(f"there is no CPython {python} on this machine")
    other = User(tmp_path / "other", path=str(launcher.parent))
    (launcher.parent / NAME).unlink()
    other.link(pythons()[python], f"python{python}")
    assert f"Python Version: {python}." in other.ok(launcher, "version", "-o", "wide")
    assert os.path.samefile(remembered(other), pythons()[python])
    other.environ["PATH"] = str(launcher.parent)
    assert other.ok(launcher, "version") == VERSION


def test_a_credential_plugin_runs(launcher: Path, user: User) -> None:
    """It stands on the official client, of which the archive leaves out what is loaded by name."""
    token = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
    token += '"status": {"token": "abc"}}'
    user.script("plugin", f"touch \"$HOME/asked\"; echo '{token}'")
    user.link(shutil.which("touch") or "", "touch")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(user.bin / "plugin"),
              "interactiveMode": "Never"}  # fmt: skip
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
    }
    (user.home / "config").write_text(json.dumps(config))
    done = user.run(launcher, "status", KUBECONFIG=str(user.home / "config"))
    assert (user.home / "asked").exists(), done.stderr
    assert "127.0.0.1:9" in done.stderr and "a bug" not in done.stderr


def test_the_newest_python_is_taken_and_python3_last(launcher: Path, user: User) -> None:
    user.script("python3.14", "echo 3.14.0 of another kind; exit 1")
    user.script("python3", f'exec "{THIS}" "$@"')
    assert user.ok(launcher, "version") == VERSION
    assert os.path.samefile(remembered(user), THIS)


def test_a_shim_is_asked_once(launcher: Path, user: User) -> None:
    (user.bin / NAME).unlink()
    user.script(NAME, f'echo asked >>"$HOME/log"; exec "{THIS}" "$@"')
    for _ in range(3):
        assert user.ok(launcher, "version") == VERSION
    assert (user.home / "log").read_text() == "asked\n"


def test_the_remembered_python_may_be_removed(launcher: Path, user: User) -> None:
    copy = user.home / "copy"
    copy.symlink_to(THIS)
    user.ok(launcher, "version", NODELIFE_PYTHON=str(copy))
    memory = user.home / f".cache/nodelife/python-{__version__}"
    memory.write_text("\n/no/such/python3.12\n")
    assert user.ok(launcher, "version") == VERSION
    assert os.path.samefile(remembered(user), THIS)


def test_the_remembered_python_may_become_another(launcher: Path, user: User) -> None:
    user.ok(launcher, "version")
    old = next(
        (p for p in ("/root/.pyenv/versions/3.10.13/bin/python3",) if os.path.exists(p)),
        shutil.which("python3.10"),
    )
    if old is None:
        pytest.skip("there is no Python on this machine that is too old")
    memory = user.home / f".cache/nodelife/python-{__version__}"
    memory.write_text(f"\n{old}\n")
    assert user.ok(launcher, "version") == VERSION
    assert os.path.samefile(remembered(user), THIS)


def test_nodelife_python_is_taken_first_and_said_if_it_does_not_fit(
    launcher: Path, user: User
) -> None:
    user.script("wrong", "echo 3.9.1; exit 1")
    done = user.run(launcher, "version", NODELIFE_PYTHON="wrong")
    assert done.stdout == VERSION
    assert done.stderr == (
        f"warning: NODELIFE_PYTHON does not fit: wrong (3.9.1); {remembered(user)} is used\n"
    )
    assert user.run(launcher, "version", NODELIFE_PYTHON="wrong").stderr == ""
    assert user.run(launcher, "version", NODELIFE_PYTHON=THIS).stderr == ""


def test_without_a_fit_one_line_says_what_was_tried(launcher: Path, user: User) -> None:
    (user.bin / NAME).unlink()
    user.script("python3", "echo 3.9.18; exit 1")
    user.script("python3.13", "exit 127")
    done = user.run(launcher, "status")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == (
        "error: no Python found that fits, of python3.14 (not found), python3.13 (does not run), "
        "python3.12 (not found), python3.11 (not found), python3 (3.9.18); install CPython 3.11 "
        "to 3.14, or name one in NODELIFE_PYTHON\n"
    )


def test_nothing_of_the_users_python_gets_in(launcher: Path, user: User) -> None:
    evil = user.home / "evil"
    evil.mkdir()
    (evil / "click.py").write_text("raise SystemExit('not ours')")
    (evil / "sitecustomize.py").write_text("raise SystemExit('not ours')")
    assert user.ok(launcher, "--help", PYTHONPATH=str(evil), PYTHONSTARTUP="x", PYTHONHOME="/x")


def test_what_other_versions_remembered_goes(launcher: Path, user: User) -> None:
    remove = shutil.which("rm")
    assert remove is not None
    user.link(remove, "rm")
    cache = user.home / ".cache/nodelife"
    cache.mkdir(parents=True)
    for name in ("python-0.0.1", "python-0.1.0", "something-else"):
        (cache / name).write_text("\n/gone/python3\n")
    user.ok(launcher, "version")
    left = {path.name for path in cache.iterdir() if path.is_file()}
    assert left == {f"python-{__version__}", "something-else"}


def test_without_a_home_nothing_is_remembered(launcher: Path, user: User) -> None:
    del user.environ["HOME"]
    assert user.ok(launcher, "version") == VERSION
    assert not (user.home / ".cache").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_a_read_only_store_keeps_bytecode_in_the_cache(unpacked: Path) -> None:
    nobody = 65534
    python = next((p for p in ("/usr/bin/python3.11", "/usr/bin/python3") if os.path.exists(p)), "")
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, nobody, nobody)
        environ = {"HOME": home, "PATH": "/usr/bin:/bin", "NODELIFE_PYTHON": python}
        done = subprocess.run(
            [unpacked / "kubectl-nodelife", "version"],
            env=environ, cwd="/", capture_output=True, text=True, user=nobody, group=nobody,
        )  # fmt: skip
        if done.returncode == 127:
            pytest.skip(f"the system's own Python does not fit: {done.stderr}")
        assert (done.stdout, done.stderr) == (VERSION, "")
        kept = Path(home, ".cache/nodelife/bytecode").rglob("quick.*.pyc")
        assert next(kept, None) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="running as root takes root")
def test_a_run_as_root_leaves_nothing_in_a_users_home(unpacked: Path, user: User) -> None:
    """sudo often keeps HOME: krew could not remove what root would leave in its store."""
    home = user.home / "of-a-user"
    store = home / ".krew/store/nodelife"
    shutil.copytree(unpacked, store)
    for path in (home, *home.rglob("*")):
        os.chown(path, 65534, 65534)
    before = set(home.rglob("*"))
    for name in ("sh", "mkdir", "mv"):
        user.link(shutil.which(name) or "", name)
    assert user.ok(store / "kubectl-nodelife", "version", HOME=str(home)) == VERSION
    assert set(home.rglob("*")) == before
    assert user.ok(store / "kubectl-nodelife", "version") == VERSION
    assert set(home.rglob("*")) == before
    assert next((user.home / ".cache/nodelife/bytecode").rglob("quick.*.pyc"), None) is not None


def test_an_archive_for_another_machine_says_so(launcher: Path, user: User) -> None:
    (user.bin / NAME).unlink()
    user.script("uname", "echo Linux aarch64")
    done = user.run(launcher, "version")
    assert (done.returncode, done.stderr) == (
        127,
        "error: this is the archive for Linux x86_64, and this machine is Linux aarch64: install "
        "the archive for it\n",
    )


def test_the_sandbox_runs_from_the_archive(launcher: Path, user: User) -> None:
    with sandbox(user, [launcher]) as kubeconfig:
        shown = user.ok(launcher, "status", "--no-daemon", KUBECONFIG=kubeconfig)
        assert "r1/a" in shown, shown


def test_it_starts_as_cheaply_as_from_an_environment(launcher: Path, user: User) -> None:
    """An alarm, not a measurement: processor time, since others are busy too."""
    ours = [Path(sys.prefix, "bin/python"), "-m", "kubectl_nodelife", "version"]

    def used(words: list[str | Path]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        user.ok(*words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(used([launcher, "version"]), used(ours)) for _ in range(12)]
    assert min(pair[0] for pair in pairs) < min(pair[1] for pair in pairs) + 0.025
