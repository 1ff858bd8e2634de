"""The daemon: plugs source, decision task, journal and server together until it is stopped.

It has no client that could write, unless it was ordered to enforce (`enforce/`). `process.py` makes
the process in which it runs. Metrics and notifications are built from its options (`make_metrics`);
prometheus_client is imported for a daemon that serves metrics only. Kinds that it does not watch
are listed for one question (`list_once.py`), with the daemon's own rights. `upgrade` is answered
from the watched nodes and the run's Lease, without the checks of nodes: they need kinds that are
read for `upgrade status` alone.

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
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from kubectl_nodelife import __version__
from kubectl_nodelife.daemon.cluster_view import WatchedCluster, blind_warnings, keep_summary, look
from kubectl_nodelife.daemon.decisions import DecisionTask
from kubectl_nodelife.daemon.divergence_recorder import DivergenceRecorder
from kubectl_nodelife.daemon.enforce.enforcement import (
    Enforcement,
    make_enforcement,
    pausing_orders,
)
from kubectl_nodelife.daemon.forked_answers import Foreteller, ForkedAnswers
from kubectl_nodelife.daemon.gate import Tee
from kubectl_nodelife.daemon.instance import Instance, card, notify_parent
from kubectl_nodelife.daemon.journal import Journal
from kubectl_nodelife.daemon.kinds import KINDS, NEEDS
from kubectl_nodelife.daemon.list_once import ListKinds, list_once
from kubectl_nodelife.daemon.logs import QuarantineLog, log, log_bug, log_end
from kubectl_nodelife.daemon.metrics.cluster_sample import read_run
from kubectl_nodelife.daemon.metrics.families import WHAT_IF_BUCKETS
from kubectl_nodelife.daemon.metrics.recorder import Measured, MetricsRecorder
from kubectl_nodelife.daemon.metrics.values import Histogram, timed
from kubectl_nodelife.daemon.notices import Notifier
from kubectl_nodelife.daemon.options import Options, target_now
from kubectl_nodelife.daemon.own_program import HandOver, OwnProgram
from kubectl_nodelife.daemon.paths import config_file, log_path, page_port_path
from kubectl_nodelife.daemon.server import (
    ADDRESS,
    Answer,
    AnswerPort,
    Query,
    Server,
    Stream,
    health,
    port_warning,
    sliced,
    up_seconds,
    whole,
)
from kubectl_nodelife.daemon.settings import (
    Config,
    DetectedSettings,
    RequestedSettings,
    control_plane_pods,
    detect_settings,
    load_config,
    resolve_settings,
)
from kubectl_nodelife.daemon.ui.host import OtherClusters, PageHost
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.errors import BadInput, NodelifeError
from kubectl_nodelife.kube.node import Lease
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import DaemonClock, spread_warnings, steady_ns
from kubectl_nodelife.live.kubeconfig import kubeconfig_files
from kubectl_nodelife.live.listwatch import read_leases
from kubectl_nodelife.live.news import OtherCluster
from kubectl_nodelife.live.requests import DAEMON_PACING, ENFORCING_PACING, resource_of
from kubectl_nodelife.live.source import ListWatchSource
from kubectl_nodelife.live.target import cluster_identity, connection_warnings
from kubectl_nodelife.outlook.upgrade_status import upgrade_status
from kubectl_nodelife.outlook.view import WARMING_UP, ClusterView

if TYPE_CHECKING:
    from kubectl_nodelife.daemon.metrics.endpoint import MetricsEndpoint

LOOK_SECONDS: Final = 5.0

_SETTLE_SECONDS = 0.2  # editors write in several steps
_SHARED: Final = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "virtiofs", "afs", "lustre")

Stamp = tuple[int, int, int, int] | None


class FileWatch(FileSystemEventHandler):
    """Calls `changed` once whenever one of the files is not what it was."""

    def __init__(self, files: Iterable[str], changed: Callable[[], Awaitable[None]]) -> None:
        self._files = [os.path.abspath(file) for file in files]
        self._changed = changed
        self._stamps = self._look()
        self._watched: dict[str, tuple[int, int]] = {}
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
        there = {folder: found[:2] for folder in folders if (found := _stamp(folder))}
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

    def _look(self) -> list[Stamp]:
        return [_stamp(file) for file in self._files]


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


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


_KEEP_SECONDS: Final = 2.0
_REREAD_SECONDS: Final = 30.0

Look = Callable[[], ClusterView]


MakeAnswers = Callable[
    [Look, Journal, Callable[[], int], Callable[[], list[str]], ListKinds, ForkedAnswers],
    tuple[dict[str, Answer], dict[str, Stream]],
]


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
        self.options = options
        self.target = target = client.session.target
        self.instance = instance
        self.journal = journal
        self.kubeconfig_warnings, self.settings_warnings = list[str](), list[str]()
        self.departure = HandOver(OwnProgram(options.environ), options)
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self.client = client
        self.cluster = WatchedCluster(instance.identity, target.context, target.server)
        self.config_path = config_file(dict(options.environ))
        enforces = bool(options.flags.orders.controllers)
        resources, pace = map(resource_of, KINDS), ENFORCING_PACING if enforces else DAEMON_PACING
        self.source = ListWatchSource(self.client, resources, pace)
        clock = DaemonClock(
            lambda: self.client.clock.now_ns(steady_ns()),
            dates_count_from_ns=lambda: self.client.clock.dates_count_from_ns,
        )
        self.tee = Tee(self.source)
        feed = self.tee.open() if enforces else self.source
        self.watcher = DecisionTask(
            *(feed, clock, journal.ledger, make_settings("newest"), list(NEEDS), self.settings),
            read_leases=lambda: read_leases(self.client),
        )
        self.enforcement = make_enforcement(options.flags.orders, self) if enforces else None
        self._take_limits(load_config(self.config_path))
        self.attendant = DivergenceRecorder(self.watcher, journal, self.client, self.cluster)
        self.what_if_times = Histogram(WHAT_IF_BUCKETS)
        self.foreteller = Foreteller(self.look)
        self.page, self.server = self._make_servers(make_answers)
        self.answer_port = AnswerPort(self.server, options.flags.answer_port or 0)
        self.metrics = make_metrics(options, self)
        self._quarantine_log = QuarantineLog()
        self._running = DetectedSettings()
        self._control_plane: frozenset[tuple[str, str]] = frozenset()

    def _make_servers(self, make_answers: MakeAnswers) -> tuple[PageHost, Server]:
        """The live page and the server on our socket, which give the same answers."""
        journal, clock = self.journal, self.watcher.clock
        forked = ForkedAnswers(ready=self._keep_summary)
        list_kinds = partial(list_once, self.client)
        answers, streams = make_answers(
            *(self.look, journal, clock.now_ns, self._blind),
            list_kinds,
            forked,
        )
        answers["upgrade"] = upgrade_answer(self.client, self.look, forked)
        streams["what_if"] = timed(streams["what_if"], self.what_if_times)
        answers["what_if"] = whole(streams["what_if"])
        enforcement = self.enforcement
        others = OtherClusters(self.instance, lambda: self.source.cluster.uid)
        asked_by_page = {**answers, "clusters": others.answer}
        page = PageHost(
            *(self.look, journal, clock.now_ns, asked_by_page, streams, list_kinds, self._always),
            lambda: enforcement is not None and enforcement.is_sending,
            page_port_path(dict(self.options.environ), self.instance.identity),
        )
        server = Server(
            self.cluster,
            {
                **answers,
                "diverge": self.attendant.answer,
                "health": self._health,
                "hello": _hello,
                "situation": page.situation,
            },
            {**streams, "diverge": self.attendant.watch},
            {
                "stop": self._order_stop,
                "reload": self._order_reload,
                **pausing_orders(self.enforcement, clock),
                **page.orders(),
            },
            lambda: self.source.cluster.uid,
        )
        return page, server

    def look(self) -> ClusterView:
        """The cluster as it can be shown now, with warnings about this daemon."""
        view = look(self.watcher, self.journal, self.cluster, self.foreteller.foretold)
        view.warnings += [*self.kubeconfig_warnings, *self.settings_warnings]
        view.warnings += self.departure.program.warnings()
        return view

    async def _keep_summary(self) -> None:
        await sliced(keep_summary(self.watcher.host.cache))

    def _blind(self) -> list[str]:
        return blind_warnings(self.watcher)

    async def settings(self, cache: Cache) -> Settings:
        """The settings as the running control plane, the user and the config have them."""
        self._control_plane = self._control_plane_now(cache)
        self._running = await detect_settings(self.client, cache, manager_role=True)
        return self._decide(cache)

    async def run(self) -> int:
        """Serve until stopped. The exit code. `departure` says whether another takes over."""
        bound = self.instance.bind()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if self.enforcement is not None:
            await self._preflight(self.enforcement)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self.reload()))
        await self._start_ports()
        await self.server.start(bound)
        self.instance.write_card(
            card(
                self.instance,
                context=self.target.context,
                server=self.target.server,
                arguments=self.options.arguments,
                secrets=list(self.options.secrets()),
            )
        )
        log.info(
            "began: version %s, pid %d, context %r, server %s",
            *(__version__, os.getpid(), self.target.context, self.target.server),
        )
        for warning in connection_warnings(self.target):
            log.warning("%s", warning)
        notify_parent(self.options.ready_fd, {"ready": True, "pid": os.getpid()})
        os.chdir("/")
        watch = FileWatch((*self._kubeconfig_files(), self.config_path), self.reload)
        parts: dict[str, Coroutine[Any, Any, None]] = {
            "source": self.source.run(),
            "watcher": self.watcher.run(),
            "journal": self.journal.run(self.watcher.clock.now_ns),
            "file watch": self._always("file watch", watch.run),
            "foreteller": self._always("foreteller", self.foreteller.run),
            "divergence": self._always("divergence", self.attendant.run),
            "housekeeping": self._always("housekeeping", self._keep),
        }
        if self.enforcement is not None:
            parts |= {"tee": self.tee.run(), "enforcement": self.enforcement.run()}
        if self.metrics is not None:
            parts["metrics"] = self._always("metrics", self.metrics.recorder.run)
            if self.metrics.notifier is not None:
                run = self.metrics.notifier.run
                parts["notifications"] = self._always("notifications", run)
        tasks = [loop.create_task(part, name=name) for name, part in parts.items()]
        try:
            return await self._until_stopped(tasks)
        finally:
            await self._end(tasks)

    async def _always(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a part on which no decision hangs; after a bug of ours in it, it begins anew."""
        while True:
            try:
                return await run()
            except Exception as error:
                quarantine, now_ns = self.watcher.host.cache.quarantine, time.time_ns()
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

    async def _preflight(self, enforcement: Enforcement) -> None:
        try:
            await enforcement.preflight()
        except BaseException:
            await enforcement.close()
            await self.client.close()
            raise

    async def _start_ports(self) -> None:
        """Listen where others than the socket's owner may ask. Raises BadInput."""
        metrics = self.metrics.endpoint if self.metrics is not None else None
        try:
            if metrics is not None:
                await metrics.start()
                log.info("serves %s", self.options.flags.metrics.url)
            if self.answer_port.port:
                await self.answer_port.start()
                log.info("serves answers at %s:%d", ADDRESS, self.answer_port.port)
        except NodelifeError:
            if self.enforcement is not None:
                await self.enforcement.close()
            await self.client.close()
            raise

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
        await self.journal.close()
        await self.client.close()
        log.info("ended after %.0fs", up_seconds(self._began))

    # Orders

    async def _order_stop(self, query: Query) -> dict[str, Any]:
        left = self.enforcement.left_behind() if self.enforcement is not None else []
        self._stop.set()
        return {"stopping": True, "leftBehind": left}

    async def _order_reload(self, query: Query) -> dict[str, Any]:
        await self.reload()
        return {"reloaded": True, "warnings": [*self.kubeconfig_warnings, *self.settings_warnings]}

    async def reload(self) -> None:
        """Read config and kubeconfig anew; what cannot be read changes nothing, and is logged."""
        log.info("reads its files again")
        self.kubeconfig_warnings = []
        await self._look_at_kubeconfig()
        if self.watcher.synced.is_set():
            cache = self.watcher.host.cache
            await self.watcher.change_settings(self._decide(cache))

    async def _look_at_kubeconfig(self) -> None:
        """Take new credentials for the same cluster; where our context leads to another, hold."""
        kept = "the daemon goes on with what it said before"
        try:
            target = target_now(self.options, self.instance.identity, self.target.context)
            same = cluster_identity(target) == self.instance.identity
        except (NodelifeError, OSError) as error:
            self.kubeconfig_warnings.append(
                f"the kubeconfig is of no use any more ({error}): {kept}"
            )
            return
        elsewhere = f"context {target.context!r} leads to {target.server} as {target.user_name!r}"
        await self.source.queue.put(OtherCluster("kubeconfig", "" if same else elsewhere))
        if same and target != self.target:
            log.info("takes new credentials from the kubeconfig")
            self.target = target
            self.client.session.take(target)
            if self.enforcement is not None:
                self.enforcement.take_credentials(target)

    def _decide(self, cache: Cache) -> Settings:
        """Settings from all that is known; the ones in force where the user's word is wrong."""
        target, warnings = self.target, []
        flags = self.options.flags.profile, self.options.flags.assignments
        try:
            config = load_config(self.config_path)
            requested = RequestedSettings(*flags, config)
            decided = resolve_settings(
                requested, self._running, cache, target.server, target.context
            )
            self._take_limits(config)
        except BadInput as error:
            warnings.append(f"{error}: left out")
            bare = RequestedSettings(config=load_config(os.devnull))
            decided = resolve_settings(bare, self._running, cache, target.server, target.context)
            if self.watcher.synced.is_set():
                decided = replace(decided, settings=self.watcher.settings)
        self.settings_warnings = [*warnings, *decided.warnings]
        log.info("follows %s (%s)", decided.settings.profile.name, decided.profile_origin)
        return decided.settings

    def _take_limits(self, config: Config) -> None:
        if self.enforcement is not None:
            target = self.target
            self.enforcement.take_limits(config.section(target.server, target.context))

    # Keeping house

    async def _keep(self) -> None:
        """Look after oneself: is the socket still there, and the program; say what changed."""
        logged = ""
        reread_at = time.monotonic() + _REREAD_SECONDS
        while True:
            await asyncio.sleep(_KEEP_SECONDS)
            await self.departure.look(has_socket=self.instance.owns_socket())
            if because := self.departure.because:
                successor = self.departure.successor
                log.warning("ends: %s%s", because, f"; {successor} takes over" * bool(successor))
                self._stop.set()
            self._quarantine_log.log_changes(self.watcher.host.cache.quarantine)
            now = "; ".join([self._state_line(), *self.departure.program.warnings()])
            if now != logged:
                log.info("%s", now)
                logged = now
            if time.monotonic() > reread_at and self.watcher.synced.is_set():
                reread_at = time.monotonic() + _REREAD_SECONDS
                cache = self.watcher.host.cache
                if self._control_plane_now(cache) != self._control_plane:
                    log.info("the control plane's pods have changed")
                    await self.watcher.change_settings(await self.settings(cache))

    def _state_line(self) -> str:
        watcher = self.watcher
        if not watcher.synced.is_set():
            errors = [s.error for s in self.source.states.values() if s.error]
            return f"still reads {', '.join(watcher.unread())}" + (
                f" ({errors[0]})" if errors else ""
            )
        if watcher.stands_still:
            return f"decides nothing: {watcher.stands_still}"
        cold = watcher.is_cold(watcher.clock.now_ns())
        return f"{WARMING_UP}{watcher.cold_because}" if cold else "watches"

    def _control_plane_now(self, cache: Cache) -> frozenset[tuple[str, str]]:
        pods = [(name, cache.pod("kube-system", name)) for _, name in control_plane_pods(cache)]
        return frozenset((name, pod.uid if pod is not None else "") for name, pod in pods)

    async def _health(self, query: Query) -> dict[str, Any]:
        more = {
            "upSeconds": up_seconds(self._began),
            "socket": self.instance.socket,
            "log": log_path(dict(self.options.environ), self.instance.runtime, self.cluster[0]),
            "asked": self.server.asked,
            **self.page.state(),
        }
        if self.enforcement is not None:
            more |= {"mode": "enforce", "enforcement": self.enforcement.state()}
        warnings = [
            *self.kubeconfig_warnings,
            *self.settings_warnings,
            *connection_warnings(self.target),
        ]
        if self.options.flags.metrics.bind_address:
            more["metrics"] = self.options.flags.metrics.url
            warnings += self.options.flags.metrics.warnings()
        if port := self.answer_port.port:
            more["answers"] = f"{ADDRESS}:{port}"
            warnings += port_warning(port, in_pod="KUBERNETES_SERVICE_HOST" in self.options.environ)
        warnings += [*spread_warnings(self.client.clock), *self.departure.program.warnings()]
        return health(self.watcher, self.journal, self.cluster, more, warnings)

    def _kubeconfig_files(self) -> tuple[str, ...]:
        return kubeconfig_files(self.options.overrides.kubeconfig, self.options.environ)


async def _hello(query: Query) -> dict[str, Any]:
    return {}


def upgrade_answer(
    client: Client, look: Callable[[], ClusterView], forked: ForkedAnswers
) -> Answer:
    """The answer; the Lease is read for each question, and a child answers."""

    def status_of(lease: Lease | None, query: Query) -> dict[str, Any]:
        view = look()
        names = query.get("node", ())
        nodes = list(view.cache.nodes.values())
        status = upgrade_status(nodes, lease, view.now_ns, view.source, names)
        return {**status, "warnings": [*view.warnings, *status["warnings"]]}

    async def upgrade_now(query: Query) -> dict[str, Any]:
        return await forked.answer(lambda: read_run(client), lambda lease: status_of(lease, query))

    return upgrade_now


class Metrics(NamedTuple):
    """The recorder, what serves its values, and what notifies of them; None where not asked for."""

    recorder: MetricsRecorder
    endpoint: MetricsEndpoint | None
    notifier: Notifier | None


def make_metrics(options: Options, daemon: Measured) -> Metrics | None:
    """None where neither was asked for."""
    notify = options.flags.notify
    asked = bool(notify.command or notify.webhook)
    if not options.flags.metrics.bind_address and not asked:
        return None
    recorder = MetricsRecorder(daemon, per_node=options.flags.metrics.per_node)
    notifier = None
    if asked:
        notifier = Notifier(recorder, notify, daemon.cluster.server, options.environ)
    if not options.flags.metrics.bind_address:
        return Metrics(recorder, None, notifier)
    from kubectl_nodelife.daemon.metrics.endpoint import MetricsEndpoint

    return Metrics(recorder, MetricsEndpoint(recorder, options.flags.metrics), notifier)
