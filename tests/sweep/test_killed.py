"""Workers, the scheduler and the client are killed; two workers are started by hand, as docs say.

What is played in spite of it, or by --resume, has the bytes of a study that nothing happened to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopback import free_port
from tests.sweep.test_sweep import FILES, ROOT, command, content, run, study

SECONDS = 90
PIECE = 400
RUNS = 48


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a study of some seconds, its results)."""
    folder = tmp_path_factory.mktemp("undisturbed")
    path = study(folder, repeat=RUNS // 2)
    done = run("-f", str(path), "--on", "local:2", "--out", str(folder / "whole"))
    assert done.returncode == 0, done.stderr
    return path, folder / "whole"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def dask(*words: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]]
    return subprocess.Popen(
        program, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


class ByHand:
    """A scheduler and workers that were started by hand."""

    def __init__(self) -> None:
        self.port = str(free_port())
        self.url, self.on = f"tcp://127.0.0.1:{self.port}", f"dask://127.0.0.1:{self.port}"
        self.scheduler = self.start_scheduler()
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> subprocess.Popen[bytes]:
        quiet = ("--no-dashboard", "--no-show")
        return dask("scheduler", "--host", "127.0.0.1", "--port", self.port, *quiet)

    def start_worker(self) -> None:
        """One process, without a nanny that would start it again."""
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        self.workers.append(dask("worker", self.url, *words))

    def with_two_workers(self) -> ByHand:
        """Start what is lacking, and wait for them."""
        if self.scheduler.poll() is not None:
            self.scheduler = self.start_scheduler()
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            self.start_worker()
        self.wait_for_workers(2)
        return self

    def end(self) -> None:
        """Nothing of it goes on."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def wait_for_workers(self, many: int) -> None:
        from distributed import Client

        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                with Client(self.url, timeout=2, set_as_default=False) as client:
                    client.wait_for_workers(many, timeout=SECONDS)
                    return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("the workers did not come")


@pytest.fixture(scope="module")
def one_scheduler() -> Iterator[ByHand]:
    made = ByHand()
    yield made
    made.end()


@pytest.fixture
def by_hand(one_scheduler: ByHand) -> ByHand:
    """A scheduler with two workers, each of which a test may kill."""
    return one_scheduler.with_two_workers()


def begun(path: Path, on: str, out: Path) -> subprocess.Popen[str]:
    """The study, when it has written some runs."""
    running = subprocess.Popen(
        command("-f", str(path), "--on", on, "--out", str(out)),
        env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = out / FILES[0]
    end = time.monotonic() + SECONDS
    while not (lines.exists() and lines.stat().st_size > PIECE):
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)
    return running


def ended(running: subprocess.Popen[str]) -> tuple[int, str]:
    """(its exit code, what it said)."""
    stderr = running.communicate(timeout=2 * SECONDS)[1]
    return running.returncode, stderr


def test_two_workers_started_by_hand(
    undisturbed: tuple[Path, Path], by_hand: ByHand, tmp_path: Path
) -> None:
    path, whole = undisturbed
    done = run("-f", str(path), "--on", by_hand.on, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert content(tmp_path) == content(whole)


def test_a_killed_worker_costs_its_task(
    undisturbed: tuple[Path, Path], by_hand: ByHand, tmp_path: Path
) -> None:
    path, whole = undisturbed
    running = begun(path, by_hand.on, tmp_path / "out")
    by_hand.workers[0].send_signal(signal.SIGKILL)
    assert ended(running) == (0, "")
    assert content(tmp_path / "out") == content(whole)


def test_new_workers_take_over_from_those_that_are_all_killed(
    undisturbed: tuple[Path, Path], by_hand: ByHand, tmp_path: Path
) -> None:
    path, whole = undisturbed
    running = begun(path, by_hand.on, tmp_path / "out")
    for worker in by_hand.workers:
        worker.kill()
    by_hand.start_worker()
    assert ended(running) == (0, "")
    assert content(tmp_path / "out") == content(whole)


@pytest.mark.parametrize("killed", ["workers", "scheduler"])
def test_workers_or_a_scheduler_that_are_gone_are_told_in_a_line(
    undisturbed: tuple[Path, Path], by_hand: ByHand, tmp_path: Path, killed: str
) -> None:
    path, whole = undisturbed
    running = begun(path, by_hand.on, tmp_path / "out")
    for process in [by_hand.scheduler] if killed == "scheduler" else by_hand.workers:
        process.kill()
    code, said = ended(running)
    assert code == 3, said
    assert said.count("\n") == 1 and "--resume" in said
    done = run("-f", str(path), "--on", "local:2", "--out", str(tmp_path / "out"), "--resume")
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "out") == content(whole)


def test_a_killed_client_goes_on(undisturbed: tuple[Path, Path], tmp_path: Path) -> None:
    path, whole = undisturbed
    running = begun(path, "local:2", tmp_path / "out")
    running.kill()
    running.communicate()
    before = len((tmp_path / "out" / FILES[0]).read_bytes().splitlines())
    assert 0 < before < RUNS
    done = run("-f", str(path), "--on", "local:2", "--out", str(tmp_path / "out"), "--resume")
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "out") == content(whole)


def test_no_scheduler_is_told_in_a_line(undisturbed: tuple[Path, Path], tmp_path: Path) -> None:
    on = f"dask://127.0.0.1:{free_port()}"
    done = run("-f", str(undisturbed[0]), "--on", on, "--out", str(tmp_path))
    assert done.returncode == 3
    assert done.stderr == f"error: {on}: no scheduler answers; start one: dask scheduler\n"
