"""The verb, on processes of this machine: files, bytes, exit codes, going on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("runs.jsonl", "runs.parquet", "result.json")
SPEC = """
apiVersion: nodelife.dev/v1alpha1
kind: Study
metadata: {name: small}
spec:
  base: {generate: {zones: 3, nodesPerZone: 4, podsPerNode: 8, daemonSets: 1}}
  space: {flags.node-monitor-grace-period: [20s, 50s]}
  failures:
    - kind: flap
      share: 0.5
      every: {exponential: {mean: 10m}}
      silence: {lognormal: {median: 1m}}
  repeat: %d
  duration: %s
  assert: [%s]
"""


def study(folder: Path, *, repeat: int = 4, hours: str = "1h", asserts: str = "") -> Path:
    path = folder / "study.yaml"
    path.write_text(SPEC % (repeat, hours, asserts))
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "kubectl_nodelife", "sweep", *words]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


def content(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in FILES]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a study, the results of one worker)."""
    folder = tmp_path_factory.mktemp("once")
    path = study(folder)
    done = run("-f", str(path), "--on", "local:1", "--out", str(folder / "one"))
    assert done.returncode == 0, done.stderr
    return path, folder / "one"


def test_two_workers_and_another_hash_seed_give_the_same_bytes(
    once: tuple[Path, Path], tmp_path: Path
) -> None:
    path, one = once
    done = run("-f", str(path), "--on", "local:2", "--out", str(tmp_path), PYTHONHASHSEED="7")
    assert done.returncode == 0, done.stderr
    assert content(tmp_path) == content(one)


def test_going_on_repeats_nothing_and_gives_the_same_bytes(
    once: tuple[Path, Path], tmp_path: Path
) -> None:
    path, one = once
    lines = (one / FILES[0]).read_bytes().splitlines(keepends=True)
    (tmp_path / FILES[0]).write_bytes(b"".join(lines[:5]) + lines[5][:20])
    done = run("-f", str(path), "--on", "local:1", "--out", str(tmp_path), "--resume")
    assert done.returncode == 0, done.stderr
    assert content(tmp_path) == content(one)


def test_runs_that_are_all_there_need_no_worker(once: tuple[Path, Path], tmp_path: Path) -> None:
    path, one = once
    (tmp_path / FILES[0]).write_bytes((one / FILES[0]).read_bytes())
    words = ("-f", str(path), "--on", "dask://127.0.0.1:1", "--out", str(tmp_path), "--resume")
    done = run(*words, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((one / "result.json").read_bytes())


@pytest.mark.parametrize(
    ("asserts", "code", "line"),
    [
        ("mean evictions < 1", 4, "asserted: mean evictions < 1: does not hold"),
        ("mean evictions < 1000", 0, "asserted: mean evictions < 1000: holds at every point"),
    ],
)
def test_an_assertion_gives_the_exit_code(
    once: tuple[Path, Path], tmp_path: Path, asserts: str, code: int, line: str
) -> None:
    (tmp_path / FILES[0]).write_bytes((once[1] / FILES[0]).read_bytes())
    path = study(tmp_path, asserts=asserts)
    done = run("-f", str(path), "--out", str(tmp_path), "--resume", "--on", "dask://127.0.0.1:1")
    assert done.returncode == code, done.stderr
    assert line in done.stdout


def test_ctrl_c_keeps_what_is_there(tmp_path: Path) -> None:
    path, out = study(tmp_path, repeat=400, hours="4h"), tmp_path / "out"
    with subprocess.Popen(
        command("-f", str(path), "--on", "local:2", "--out", str(out), "-o", "json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True,
    ) as running:  # fmt: skip
        lines = out / FILES[0]
        while running.poll() is None and not (lines.exists() and lines.stat().st_size):
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: workers get it, too
        stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130, stderr
    found = json.loads(stdout)
    assert found["partial"] and 0 < found["runs"] < found["planned"] == 800
    assert len(lines.read_bytes().splitlines()) == found["runs"]
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--on", "moon"), "--on: 'moon' is no place to play; give local, local:N or dask://"),
        (("--on", "local:0"), "--on: 'local:0' is no place to play"),
    ],
)
def test_bad_flags_are_told_in_a_line(tmp_path: Path, words: tuple[str, ...], line: str) -> None:
    done = run("-f", str(study(tmp_path)), *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert line in done.stderr


def test_a_long_study_asks(tmp_path: Path) -> None:
    done = run("-f", str(study(tmp_path, repeat=60_000)), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "120,000 runs are more than 100,000; say --yes, or make" in done.stderr


HIDE = """
import sys
from importlib.abc import MetaPathFinder
class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "distributed":
            raise ModuleNotFoundError(name=name)
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *a: None if name == "distributed" else found(name, *a)
sys.meta_path.insert(0, Hidden())
sys.argv = ["kubectl-nodelife", "sweep", "-f", "none.yaml"]
from kubectl_nodelife import cli
raise SystemExit(cli.main())
"""


def test_without_the_extra_it_says_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", HIDE], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "error: sweep: the Python package distributed is missing; "
        "pip install 'kubectl-nodelife[sweep]'\n"
    )
