"""Runs of a study on Dask workers: processes of this machine, or a scheduler that runs already.

The plan is sent once and is itself the result of a task, so that it outlives every worker; tasks
are some seconds of runs, sized from the first. The task of a worker that is killed is played again.
Workers that are started here get only the part of this process's environment that a program needs
to run, and they use TLS among themselves.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import dask
from distributed import Client, LocalCluster, Security, wait
from distributed.client import FuturesCancelledError
from distributed.scheduler import KilledWorker

from kubectl_nodelife import __version__
from kubectl_nodelife.errors import BadInput, Failed, NodelifeError, Unreachable
from kubectl_nodelife.sweep.runs import Plan, RunId, RunResult, play_runs

LOCAL: Final = "local"
SCHEME: Final = "dask://"

_ENVIRONMENT: Final[tuple[str, ...]] = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TZ",
    "PYTHONPATH",
    "PYTHONHASHSEED",
)
_TASK_SECONDS: Final = 2.0
_MOST_OF_A_TASK: Final = 500
_FIRST: Final = 4
_RETRIES: Final = 3
_LOOK_SECONDS: Final = 5.0
_WITHOUT_WORKERS_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 10
_MEGABYTE: Final = 1 << 20
_LEAST_MEMORY: Final = 512 * _MEGABYTE
_MEMORY: Final = 256 * _MEGABYTE
_MEMORY_A_POD: Final = 4096


class FailedRuns(NamedTuple):
    """A task that failed in its last try too: its runs, and why."""

    runs: list[RunId]
    why: str


class TaskResult(NamedTuple):
    """The outcome of a task: its results, and the seconds of each run."""

    results: list[RunResult]
    seconds: list[float]


class Pool:
    """A connection to a scheduler. `workers`: how many processes there are to begin with;
    `address`: as messages name it."""

    def __init__(self, client: Client, address: str) -> None:
        self.client, self.address = client, address

    @property
    def workers(self) -> int:
        """How many workers there are now."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def check_versions(self) -> None:
        """Raises BadInput where a worker has another version of Python or of this program."""
        ours = _versions()
        if not self.workers:
            remedy = f"start workers: dask worker {self.address.replace(SCHEME, 'tcp://')}"
            raise Unreachable("there are no workers", on=self.address, remedy=remedy)
        try:
            versions = self.client.run(_versions)
        except Exception as error:
            what = f"workers do not know us: {error}"
            remedy = "install kubectl-nodelife[sweep] of this version on each worker"
            raise BadInput(what, on=self.address, remedy=remedy) from None
        for worker, theirs in sorted(versions.items()):
            if theirs != ours:
                what = f"{worker} has {' '.join(theirs)}, this is {' '.join(ours)}"
                raise BadInput(what, on=self.address, remedy="use the same versions")

    def play(
        self, plan: Plan, runs: Sequence[RunId], estimate: Callable[[float], None]
    ) -> Iterator[RunResult | FailedRuns]:
        """Play the runs; yields the results, in their order. `estimate` is called once with the
        seconds that the rest will last. Raises Unreachable if the scheduler or all workers go."""
        try:
            yield from _Playing(self, plan, runs, estimate).results()
        except (CancelledError, FuturesCancelledError, OSError) as error:
            remedy = "start it again, and go on with --resume"
            what = f"the scheduler is gone ({type(error).__name__})"
            raise Unreachable(what, on=self.address, remedy=remedy) from None


class _Playing:
    """One study on one client."""

    def __init__(
        self, pool: Pool, plan: Plan, runs: Sequence[RunId], estimate: Callable[[float], None]
    ) -> None:
        self._pool, self._runs, self._estimate = pool, runs, estimate
        self._plan = pool.client.submit(_held, plan, pure=False)
        self._next = 0
        self._size = _FIRST
        self._under_way: dict[Any, list[RunId]] = {}
        self._tries: dict[int, int] = {}
        self._found: dict[int, RunResult | FailedRuns] = {}
        self._seen_workers = time.monotonic()

    def results(self) -> Iterator[RunResult | FailedRuns]:
        """See `Pool.play`."""
        self._begin_tasks(1)
        place = 0
        while place < len(self._runs):
            number = self._runs[place].number
            if number not in self._found:
                self._wait()
                continue
            played = self._found.pop(number)
            place += len(played.runs) if isinstance(played, FailedRuns) else 1
            yield played

    def _begin_tasks(self, at_most: int) -> None:
        while self._next < len(self._runs) and len(self._under_way) < at_most:
            runs = list(self._runs[self._next : self._next + self._size])
            self._next += len(runs)
            self._submit(runs)

    def _submit(self, runs: list[RunId]) -> None:
        future = self._pool.client.submit(_play, self._plan, runs, retries=_RETRIES, pure=False)
        self._under_way[future] = runs

    def _wait(self) -> None:
        """Take the finished tasks, and submit more."""
        tasks = list(self._under_way)
        try:
            ended = wait(tasks, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED")
        except TimeoutError:
            self._look_for_workers()
            return
        for future in ended.done:
            self._take(future, self._under_way.pop(future))
        self._begin_tasks(3 * max(1, self._pool.workers) + 2)

    def _take(self, future: Any, runs: list[RunId]) -> None:
        if future.status == "cancelled":
            raise CancelledError
        if future.status == "error":
            self._failed(runs, future.exception())
            return
        played: TaskResult = future.result()
        if runs[0] is self._runs[0]:
            self._size_up(played.seconds)
        for result in played.results:
            self._found[result.number] = result

    def _size_up(self, seconds: Sequence[float]) -> None:
        """Size tasks by the first one, whose first run makes the point's present, too."""
        a_run = max(min(seconds), 1e-4)
        self._size = max(1, min(_MOST_OF_A_TASK, round(_TASK_SECONDS / a_run)))
        workers = max(1, self._pool.workers)
        to_play = len(self._runs) - len(seconds)
        self._size = max(1, min(self._size, -(-to_play // workers)))
        self._estimate(to_play * a_run / workers)

    def _failed(self, runs: list[RunId], error: BaseException | None) -> None:
        """Submit again where a worker died of it, then each run alone; else the run has failed."""
        if isinstance(error, NodelifeError) and not isinstance(error, Failed):
            raise error
        first = runs[0].number
        tries = self._tries[first] = self._tries.get(first, 0) + 1
        if isinstance(error, KilledWorker) and tries <= _RETRIES:
            self._submit(runs)
            return
        if len(runs) > 1:
            for run in runs:
                self._submit([run])
            return
        why = "its workers were killed" if isinstance(error, KilledWorker) else str(error)
        self._found[first] = FailedRuns(runs, why or type(error).__name__)

    def _look_for_workers(self) -> None:
        """Raises Unreachable where there has been no worker for some time."""
        now = time.monotonic()
        if self._pool.workers:
            self._seen_workers = now
        elif now - self._seen_workers > _WITHOUT_WORKERS_SECONDS:
            remedy = "start workers, and go on with --resume"
            raise Unreachable("no worker is left", on="sweep", remedy=remedy)


def _held(plan: Plan) -> Plan:
    """The plan as a task's result: made again where the workers that had it are gone."""
    return plan


def _play(plan: Plan, runs: Sequence[RunId]) -> TaskResult:
    results, seconds = [], []
    for run in runs:
        began = time.perf_counter()
        results += play_runs(plan, [run])
        seconds.append(time.perf_counter() - began)
    return TaskResult(results, seconds)


def _versions() -> tuple[str, str]:
    major_minor = ".".join(platform.python_version_tuple()[:2])
    return f"kubectl-nodelife {__version__}", f"Python {major_minor}"


def read_where(text: str) -> int | str:
    """`local` or `local:N` -> how many processes (0: the cores), `dask://HOST:PORT` -> itself.
    Raises BadInput."""
    if text.startswith(SCHEME) and len(text) > len(SCHEME):
        return text
    name, colon, many = text.partition(":")
    if name == LOCAL and (not colon or (many.isdecimal() and int(many) > 0)):
        return int(many) if colon else 0
    remedy = "give local, local:N or dask://HOST:8786"
    raise BadInput(f"{text!r} is no place to play", on="--on", remedy=remedy)


@contextmanager
def pool_at(where: int | str, pods: int, private: str) -> Iterator[Pool]:
    """A pool at a place of `read_where`, for clusters of so many pods. `private`: a folder that
    nobody else can enter, for what Dask writes here. Raises Unreachable.
    """
    logging.disable(logging.CRITICAL)  # what users need to see is raised
    settings = {
        "distributed.scheduler.allowed-failures": 10,
        "distributed.admin.large-graph-warning-threshold": "1GB",
        "distributed.comm.timeouts.connect": f"{_CONNECT_SECONDS}s",
    }
    with dask.config.set(settings):
        if isinstance(where, str):
            with _connected(where) as pool:
                yield pool
        else:
            with _only_environment(), _local(where, pods, private) as pool:
                yield pool


@contextmanager
def _connected(address: str) -> Iterator[Pool]:
    has_tls = dask.config.get("distributed.comm.tls.client.cert", None)
    url = address.replace(SCHEME, "tls://" if has_tls else "tcp://", 1)
    try:
        client = Client(url, timeout=_CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError):
        remedy = "start one: dask scheduler"
        raise Unreachable("no scheduler answers", on=address, remedy=remedy) from None
    try:
        yield Pool(client, address)
    finally:
        client.close(timeout=2)


_NO_PAGES: Final[dict[str, list[str]]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask's HTTP pages show what is computed, with the logs of its processes, to every user of the
machine who finds their ports."""


@contextmanager
def _local(processes: int, pods: int, private: str) -> Iterator[Pool]:
    many = processes or _cores()
    memory = max(_LEAST_MEMORY, _MEMORY + pods * _MEMORY_A_POD)
    scratch = TemporaryDirectory(prefix="sweep-", dir=private, ignore_cleanup_errors=True)
    with scratch as local_directory, dask.config.set(_NO_PAGES):
        cluster = LocalCluster(
            n_workers=many,
            threads_per_worker=1,
            processes=True,
            memory_limit=memory,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            security=Security.temporary(),
            preload=[__name__],
            silence_logs=logging.CRITICAL,
            local_directory=local_directory,
        )
        try:
            with Client(cluster) as client:
                yield Pool(client, LOCAL)
        finally:
            with suppress(TimeoutError):  # workers that still run end with us
                cluster.close(timeout=5)


@contextmanager
def _only_environment() -> Iterator[None]:
    """Workers that are started meanwhile, or again, inherit only what a program needs."""
    before = dict(os.environ)
    wanted = {name: before[name] for name in _ENVIRONMENT if name in before}
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def dask_setup(worker: object) -> None:
    """Called by Dask in each process that is started here, before it works: it ignores Ctrl-C,
    which a terminal sends to it as well. The client handles that and ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
