"""The daemon: plugs source, decision task, journal and server together until it is stopped.

It has no client that could write, unless it was ordered to enforce (`enforce/`). `process.py` makes
the process in which it runs. What its answers, page and metrics are made from is one `Sources`
(`cluster_view.py`); prometheus_client is imported for a daemon that serves metrics only.

`FileWatch` notices that the config or a kubeconfig file has changed, been replaced, appeared or
gone: watchdog watches their folders. Where the system does not tell of each change (a folder that
is not there yet, a network file system, a link, no watches left) it looks every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon.cluster_view import Sources, WatchedCluster
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.divergence_recorder import DivergenceRecorder
from kubectl_nodelife.daemon.enforce.enforcement import make_enforcement, pausing_orders
from kubectl_nodelife.daemon.flags import Options, target_now
from kubectl_nodelife.daemon.forked_answers import Foreteller
from kubectl_nodelife.daemon.gate import KINDS, NEEDS, Tee
from kubectl_nodelife.daemon.instance import Instance, notify_parent
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.daemon.logs import QuarantineLog, log, log_bug, log_end
from kubectl_nodelife.daemon.metrics import WHAT_IF_BUCKETS
from kubectl_nodelife.daemon.metrics.recorder import Histogram, MetricsRecorder, Values, timed
from kubectl_nodelife.daemon.notices import Notifier
from kubectl_nodelife.daemon.own_program import HandOver, OwnProgram
from kubectl_nodelife.daemon.paths import config_file, file_stamp, log_path, page_port_path
from kubectl_nodelife.daemon.server import (
    ADDRESS,
    Answer,
    AnswerPort,
    Query,
    Server,
    Stream,
    health,
    port_warning,
    up_seconds,
    whole,
)
from kubectl_nodelife.daemon.settings import FollowedSettings, RequestedSettings, load_config
from kubectl_nodelife.daemon.ui.host import OtherClusters, PageHost
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.errors import NodelifeError
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import DaemonClock, spread_warnings, steady_ns
from kubectl_nodelife.live.kubeconfig import kubeconfig_files
from kubectl_nodelife.live.listwatch import read_leases
from kubectl_nodelife.live.news import OtherCluster
from kubectl_nodelife.live.requests import DAEMON_PACING, ENFORCING_PACING, resource_of
from kubectl_nodelife.live.source import ListWatchSource
from kubectl_nodelife.live.target import Target, cluster_identity, connection_warnings
from kubectl_nodelife.outlook.view import WARMING_UP

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.endpoint import MetricsEndpoint

LOOK_SECONDS: Final = 5.0

_SETTLE_SECONDS = 0.2  # editors write in several steps
_SHARED: Final = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "virtiofs", "afs", "lustre")


class FileWatch(FileSystemEventHandler):
    """Calls `changed` once whenever one of the files is not what it was."""

    def __init__(self, files: Iterable[str], changed: Callable[[], Awaitable[None]]) -> None:
        self._files = [os.path.abspath(file) for file in files]
        self._changed = changed
        self._stamps = self._look()
        self._watched: dict[str, list[int]] = {}
        self._hint = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        self._loop = asyncio.get_running_loop()
        observer = Observer()
        try:
            while True:
                patience_s = None if self._watches_all(observer) else LOOK_SECONDS
                stamps = self._look()
                if stamps != self._stamps:
                    self._stamps = stamps
                    await self._changed()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_s):
                        await self._hint.wait()
                    await asyncio.sleep(_SETTLE_SECONDS)
                self._hint.clear()
        finally:
            observer.stop()

    def _watches_all(self, observer: BaseObserver) -> bool:
        """Watch the folders, and anew one that went and came again. True if each change of a file
        is told of: not where a folder is missing, another machine may write to it, or a link leads
        elsewhere.
        """
        folders = {os.path.dirname(file) for file in self._files}
        there = {folder: stamp[:2] for folder in folders if (stamp := file_stamp(folder))}
        try:
            if there != self._watched:
                observer.unschedule_all()
                for folder in there:
                    observer.schedule(self, folder)
                if not observer.is_alive():
                    observer.start()
                self._watched = there
        except OSError:  # no inotify watches left
            self._watched = {}
            return False
        links = any(os.path.realpath(file) != file for file in self._files)
        return there.keys() == folders and not links and not any(map(_is_shared, folders))

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called by watchdog's thread."""
        if self._loop is not None and event.event_type not in ("opened", "closed_no_write"):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._hint.set)

    def _look(self) -> list[list[int] | None]:
        return [file_stamp(file) for file in self._files]


def _is_shared(folder: str) -> bool:
    """True if the folder is on a file system that other machines may change untold."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return False  # macOS: FSEvents tells of what this machine does there
    above = [m for m in mounts if m[0] == "/" or f"{folder}/".startswith(f"{m[0]}/")]
    _, kind = max(above, key=lambda mount: len(mount[0]), default=("", ""))
    return kind.startswith(_SHARED)


_KEEP_SECONDS: Final = 2.0
_REREAD_SECONDS: Final = 30.0

MakeAnswers = Callable[[Sources], tuple[dict[str, Answer], dict[str, Stream]]]


class Daemon:
    """One cluster's daemon, from `run` to its end."""

    def __init__(
        self,
        options: Options,
        client: Client,
        instance: Instance,
        journal: Journal,
        make_answers: MakeAnswers,
    ) -> None:
        self.options, self.client, self.instance = options, client, instance
        self.kubeconfig_warnings: list[str] = []
        self.hand_over = HandOver(OwnProgram(options.environ), options)
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self.config_path = config_file(dict(options.environ))
        flags, config = options.flags, load_config(self.config_path)
        requested = RequestedSettings(flags.profile, flags.assignments, config)
        self.settings = FollowedSettings(client, requested)
        enforces = bool(flags.orders.controllers)
        resources, pace = map(resource_of, KINDS), ENFORCING_PACING if enforces else DAEMON_PACING
        self.source = ListWatchSource(client, resources, pace)
        self.tee = Tee(self.source)
        clock = DaemonClock(
            lambda: client.clock.now_ns(steady_ns()),
            dates_count_from_ns=lambda: client.clock.dates_count_from_ns,
        )
        decisions = self.decisions = DecisionTask(
            *(self.tee.open(), clock, journal.ledger, make_settings("newest"), list(NEEDS)),
            self.settings.read,
            read_leases=lambda: read_leases(client),
        )
        self.settings.in_force = lambda: decisions.settings if decisions.synced.is_set() else None
        self.foreteller = Foreteller(lambda: self.sources.view())
        self.sources = Sources(
            WatchedCluster(instance.identity, self.target.context, self.target.server),
            *(client, decisions, journal, lambda: self.foreteller.foretold, self._warnings),
        )
        self.enforcement = None
        if enforces:
            self.enforcement = make_enforcement(options, self.sources, self.tee, self.settings)
            self.enforcement.take_limits(config.section(self.target.server, self.target.context))
        self.divergence = DivergenceRecorder(self.sources)
        self.what_if_times = Histogram(WHAT_IF_BUCKETS)
        self.page, self.server = self._make_servers(make_answers)
        self.answer_port = AnswerPort(self.server, flags.answer_port or 0)
        self.metrics = self._make_metrics()
        self._quarantine_log = QuarantineLog()

    @property
    def target(self) -> Target:
        """The cluster and who we are there, as the kubeconfig had it last."""
        return self.client.session.target

    def _make_servers(self, make_answers: MakeAnswers) -> tuple[PageHost, Server]:
        """The live page and the server on our socket, which give the same answers."""
        answers, streams = make_answers(self.sources)
        streams["what_if"] = timed(streams["what_if"], self.what_if_times)
        answers["what_if"] = whole(streams["what_if"])
        enforcement = self.enforcement
        others = OtherClusters(self.instance, lambda: self.source.cluster.uid)
        page = PageHost(
            *(self.sources, {**answers, "clusters": others.answer}, streams, self._always),
            lambda: enforcement is not None and enforcement.is_sending,
            page_port_path(dict(self.options.environ), self.instance.identity),
        )
        own = {"health": self._health, "hello": _hello, "situation": page.situation}
        orders = {"stop": self._order_stop, "reload": self._order_reload}
        server = Server(
            self.sources.cluster,
            {**answers, **own, "diverge": self.divergence.answer},
            {**streams, "diverge": self.divergence.watch},
            {**orders, **pausing_orders(enforcement), **page.orders()},
            lambda: self.source.cluster.uid,
        )
        return page, server

    def _make_metrics(self) -> Metrics | None:
        """None where neither metrics nor notifications were asked for."""
        options, notify = self.options.flags.metrics, self.options.flags.notify
        asked = bool(notify.command or notify.webhook)
        if not options.bind_address and not asked:
            return None
        recorder = MetricsRecorder(
            *(self.sources, self.divergence, self.enforcement, self._values),
            per_node=options.per_node,
        )
        notifier = None
        if asked:
            holds = recorder.conditions, self.sources.now_ns
            notifier = Notifier(*holds, notify, self.target.server, self.options.environ)
        if not options.bind_address:
            return Metrics(recorder, None, notifier)
        from kubectl_nodelife.daemon.metrics.endpoint import MetricsEndpoint

        return Metrics(recorder, MetricsEndpoint(recorder, options), notifier)

    def _values(self) -> Values:
        """The metrics of the page and of the answers."""
        return {
            "nodelife_ui_listeners": [((), self.page.listeners)],
            "nodelife_what_if_duration_seconds": [((), self.what_if_times.copy())],
        }

    def _warnings(self) -> list[str]:
        """What is wrong with this daemon's files."""
        return [*self._of_files(), *self.hand_over.program.warnings()]

    def _of_files(self) -> list[str]:
        """What is wrong with the config and the kubeconfig."""
        return [*self.kubeconfig_warnings, *self.settings.warnings]

    async def run(self) -> int:
        """Serve until stopped. The exit code. `hand_over` says whether another takes over."""
        bound = self.instance.bind()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        try:
            if self.enforcement is not None:
                await self.enforcement.preflight()
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self.reload()))
            await self._start_ports()
        except BaseException:
            if self.enforcement is not None:
                await self.enforcement.close()
            await self.client.close()
            raise
        await self.server.start(bound)
        self.instance.write_card(
            context=self.target.context,
            server=self.target.server,
            arguments=self.options.arguments,
            secrets=list(self.options.secrets()),
        )
        log.info(
            "began: version %s, pid %d, context %r, server %s",
            *(__version__, os.getpid(), self.target.context, self.target.server),
        )
        for warning in connection_warnings(self.target):
            log.warning("%s", warning)
        notify_parent(self.options.ready_fd, {"ready": True, "pid": os.getpid()})
        os.chdir("/")
        tasks = [loop.create_task(part, name=name) for name, part in self._parts().items()]
        try:
            return await self._until_stopped(tasks)
        finally:
            await self._end(tasks)

    def _parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs side by side until the end, by its name for people."""
        files = kubeconfig_files(self.options.overrides.kubeconfig, self.options.environ)
        watch = FileWatch((*files, self.config_path), self.reload)
        parts: dict[str, Coroutine[Any, Any, None]] = {
            "source": self.source.run(),
            "decisions": self.decisions.run(),
            "tee": self.tee.run(),
            "journal": self.sources.journal.run(self.sources.now_ns),
            "file watch": self._always("file watch", watch.run),
            "foreteller": self._always("foreteller", self.foreteller.run),
            "divergence": self._always("divergence", self.divergence.run),
            "housekeeping": self._always("housekeeping", self._keep),
        }
        if self.enforcement is not None:
            parts["enforcement"] = self.enforcement.run()
        if self.metrics is not None:
            parts["metrics"] = self._always("metrics", self.metrics.recorder.run)
            if self.metrics.notifier is not None:
                run = self.metrics.notifier.run
                parts["notifications"] = self._always("notifications", run)
        return parts

    async def _always(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part on which no decision hangs; after a bug of ours in it, it begins anew."""
        while True:
            try:
                return await run()
            except Exception as error:
                quarantine, now_ns = self.decisions.host.cache.quarantine, time.time_ns()
                bug = quarantine.failed(name, "its run", error, now_ns)
                log_bug(bug)
                await asyncio.sleep(bug.retry_ns() / 1e9)

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> int:
        stop = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        for task in done:
            if task is not stop and (error := task.exception()) is not None:
                log_end(task.get_name(), error)
                return 1
        return 0

    async def _start_ports(self) -> None:
        """Listen where others than the socket's owner may ask. Raises BadInput."""
        if self.metrics is not None and self.metrics.endpoint is not None:
            await self.metrics.endpoint.start()
            log.info("serves %s", self.options.flags.metrics.url)
        if self.answer_port.port:
            await self.answer_port.start()
            log.info("serves answers at %s:%d", ADDRESS, self.answer_port.port)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        if self.enforcement is not None:
            await self.enforcement.stop_sending()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.page.close()
        await self.answer_port.close()
        await self.server.close()
        if self.metrics is not None and self.metrics.endpoint is not None:
            await self.metrics.endpoint.close()
        if self.enforcement is not None:
            await self.enforcement.close()
        await self.sources.journal.close()
        await self.client.close()
        log.info("ended after %.0fs", up_seconds(self._began))

    # Orders

    async def _order_stop(self, query: Query) -> dict[str, Any]:
        remaining = self.enforcement.left_behind() if self.enforcement is not None else []
        self._stop.set()
        return {"stopping": True, "leftBehind": remaining}

    async def _order_reload(self, query: Query) -> dict[str, Any]:
        await self.reload()
        return {"reloaded": True, "warnings": self._of_files()}

    async def reload(self) -> None:
        """Read config and kubeconfig anew; what cannot be read changes nothing, and is logged."""
        log.info("reads its files again")
        self.kubeconfig_warnings = []
        await self._look_at_kubeconfig()
        if self.decisions.synced.is_set():
            cache = self.decisions.host.cache
            await self.decisions.change_settings(self.settings.decide(cache))

    async def _look_at_kubeconfig(self) -> None:
        """Take new credentials for the same cluster; where our context leads to another, hold."""
        goes_on = "the daemon goes on with what it said before"
        try:
            target = target_now(self.options, self.instance.identity, self.target.context)
            same = cluster_identity(target) == self.instance.identity
        except (NodelifeError, OSError) as error:
            self.kubeconfig_warnings.append(
                f"the kubeconfig is of no use any more ({error}): {goes_on}"
            )
            return
        elsewhere = f"context {target.context!r} leads to {target.server} as {target.user_name!r}"
        await self.source.queue.put(OtherCluster("kubeconfig", "" if same else elsewhere))
        if same and target != self.target:
            log.info("takes new credentials from the kubeconfig")
            self.client.session.take(target)
            if self.enforcement is not None:
                self.enforcement.take_credentials(target)

    async def _keep(self) -> None:
        """Look after oneself: is the socket still there, and the program; say what changed."""
        logged = ""
        reread_at = time.monotonic() + _REREAD_SECONDS
        while True:
            await asyncio.sleep(_KEEP_SECONDS)
            await self.hand_over.look(has_socket=self.instance.owns_socket())
            if because := self.hand_over.because:
                successor = self.hand_over.successor
                log.warning("ends: %s%s", because, f"; {successor} takes over" * bool(successor))
                self._stop.set()
            self._quarantine_log.log_changes(self.decisions.host.cache.quarantine)
            now = "; ".join([self._state_line(), *self.hand_over.program.warnings()])
            if now != logged:
                log.info("%s", now)
                logged = now
            if time.monotonic() > reread_at and self.decisions.synced.is_set():
                reread_at = time.monotonic() + _REREAD_SECONDS
                cache = self.decisions.host.cache
                if self.settings.has_other_pods(cache):
                    log.info("the control plane's pods have changed")
                    await self.decisions.change_settings(await self.settings.read(cache))

    def _state_line(self) -> str:
        decisions = self.decisions
        if not decisions.synced.is_set():
            errors = [s.error for s in self.source.states.values() if s.error]
            return f"still reads {', '.join(decisions.unread())}" + (
                f" ({errors[0]})" if errors else ""
            )
        if decisions.stands_still:
            return f"decides nothing: {decisions.stands_still}"
        cold = decisions.is_cold(decisions.clock.now_ns())
        line = f"{WARMING_UP}{decisions.cold_because}" if cold else "watches"
        refused = decisions.out_of_reach()
        why = next(iter(refused.values()), "")
        return f"{line}, without {', '.join(refused)} ({why})" if refused else line

    async def _health(self, query: Query) -> dict[str, Any]:
        instance = self.instance
        more = {
            "upSeconds": up_seconds(self._began),
            "socket": instance.socket,
            "log": log_path(dict(self.options.environ), instance.runtime, instance.identity),
            "asked": self.server.asked,
            **self.page.state(),
        }
        if self.enforcement is not None:
            more |= {"mode": "enforce", "enforcement": self.enforcement.state()}
        warnings = [*self._of_files(), *connection_warnings(self.target)]
        if self.options.flags.metrics.bind_address:
            more["metrics"] = self.options.flags.metrics.url
            warnings += self.options.flags.metrics.warnings()
        if port := self.answer_port.port:
            more["answers"] = f"{ADDRESS}:{port}"
            warnings += port_warning(port, in_pod="KUBERNETES_SERVICE_HOST" in self.options.environ)
        warnings += [*spread_warnings(self.client.clock), *self.hand_over.program.warnings()]
        return health(self.sources, more, warnings)


async def _hello(query: Query) -> dict[str, Any]:
    return {}


class Metrics(NamedTuple):
    """The recorder, what serves its values, and what notifies of them; None where not asked for."""

    recorder: MetricsRecorder
    endpoint: MetricsEndpoint | None
    notifier: Notifier | None
