"""`kubectl nodelife simulate`: a scenario in, what Kubernetes would do out; and `sandbox`: the
simulated cluster served as a Kubernetes API on loopback.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubectl_nodelife.commands.flags import Output, duration_ns, max_file_size, output_flags
from kubectl_nodelife.controllers import CONTROLLERS, IN_KUBELETS, make_controllers
from kubectl_nodelife.dumps.file_size import read_named, read_stdin
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS

if TYPE_CHECKING:
    from kubectl_nodelife.engine.controller import Controller
    from kubectl_nodelife.engine.settings import Settings
    from kubectl_nodelife.sandbox.tls import Sandbox
    from kubectl_nodelife.sim.run import Run, RunSummary
    from kubectl_nodelife.sim.scenario import Given, Scenario, Setting
    from kubectl_nodelife.sim.upgrade_run import MakeDecider


_STDIN = "-"
_HTML = "html"


@click.command()
@click.argument("subject", nargs=-1, metavar="[NODE | pod NAME]")
@click.option(
    "-f", "--filename", required=True, metavar="PATH", help="A scenario, - for stdin; or a dump."
)
@click.option("--until", metavar="DURATION", help="End so long after the start, if that is sooner.")
@click.option("--profile", metavar="v1.N", help="Kubernetes release whose behaviour is followed.")
@click.option(
    "--workers-seed",
    type=click.IntRange(0),
    metavar="N",
    help="Let the taint manager's 8 workers run apart, by chance that N decides: their races show.",
)
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@max_file_size
@output_flags(*FORMATTERS, _HTML)
def simulate(
    subject: tuple[str, ...],
    filename: str,
    until: str | None,
    profile: str | None,
    workers_seed: int | None,
    assignments: tuple[str, ...],
    output: Output,
) -> None:
    """Play a scenario on a virtual cluster and say what Kubernetes does, when and why.

    An hour takes seconds. Nothing outside is read but the scenario and its snapshot, and nothing is
    written. The same scenario gives the same output, to the byte. Asked for a node it shows only
    what is about it and its pods, for a pod only what is about that, each with its causes.

    \b
    Examples:
      kubectl nodelife simulate -f zone-outage.yaml
      kubectl nodelife simulate -f dump/ --until 10m
      kubectl nodelife simulate node a1 -f zone-outage.yaml -o wide
      kubectl nodelife simulate -f zone-outage.yaml --workers-seed 7
      kubectl nodelife simulate -f zone-outage.yaml -o html > course.html
      kubectl nodelife simulate -f zone-outage.yaml --set node-monitor-grace-period=20s -o json
    """
    from kubectl_nodelife.sim.present import assumed_of
    from kubectl_nodelife.sim.run import summarize_run
    from kubectl_nodelife.sim.scenario import PASS_DRIFT_NS, assemble

    scenario = _read_scenario(filename, profile)
    setting = assemble(scenario, read_given(scenario))
    settings = settings_of(setting, assignments)
    if (stand_in := setting.profile.stands_in()) is not None:
        terminal.warn(stand_in)
    setting = setting.under(settings)
    terminal.warn(*(assumed_of(setting) if scenario.join else ()))
    terminal.warn(*settings.doubts(_heartbeat_ns(setting, settings)))
    names, until_ns = setting.scenario.controllers, _until_ns(until)
    controllers = make_controllers(
        settings, names, pass_drift_ns=PASS_DRIFT_NS, workers_seed=workers_seed
    )
    done = _play(setting, controllers, until_ns, _decider_for(setting, settings))
    summary = summarize_run(done, settings, _zone_metrics(controllers))
    if subject:
        summary = _narrow(summary, done, subject)
    if not setting.cluster.nodes:
        terminal.warn("the cluster has no nodes")
    _show(summary, output)


def _show(summary: RunSummary, output: Output) -> None:
    from kubectl_nodelife.report.narration import html_page, narration_page

    if output.format == _HTML:
        terminal.write(html_page(summary))
    else:
        output.show(narration_page(summary))


def _read_scenario(filename: str, profile: str | None) -> Scenario:
    from msgspec.structs import replace

    from kubectl_nodelife.dumps.dump_files import SUFFIXES
    from kubectl_nodelife.engine.settings import parse_profile
    from kubectl_nodelife.sim.scenario import parse_scenario

    if os.path.isdir(filename) or filename.endswith(SUFFIXES):
        scenario = _scenario_of_dump(filename)
    else:
        content, name = _content(filename)
        try:
            scenario = parse_scenario(content, name)
        except BadInput:
            if not _is_dump(content, name):
                raise
            scenario = _scenario_of_dump(filename)
    if profile is not None:
        try:
            scenario = replace(scenario, profile=parse_profile(profile))
        except ValueError as error:
            raise BadInput(str(error), on="--profile") from None
    return scenario


def _content(filename: str) -> tuple[bytes, str]:
    """The bytes of a file or of stdin, and what it is called."""
    if filename == _STDIN:
        return read_stdin(), "standard input"
    return read_named(filename), filename


def _scenario_of_dump(filename: str) -> Scenario:
    """The scenario in which the cluster of a dump goes on from there, and nothing happens to it."""
    from kubectl_nodelife.sim.scenario import Scenario

    if filename == _STDIN:
        raise BadInput("is a dump, not a scenario", on="standard input", remedy="name its file")
    path = os.path.abspath(filename)
    return Scenario(
        file=path, name=os.path.basename(path), snapshot=os.path.basename(path), join=True
    )


def _is_dump(content: bytes, name: str) -> bool:
    """True if the file holds objects of a cluster."""
    from kubectl_nodelife.kube.load import InputError, load_objects

    try:
        return bool(load_objects(content, name).objects)
    except InputError:
        return False


def read_given(scenario: Scenario) -> Given | None:
    """The snapshot that the scenario names, by a path relative to its own."""
    from kubectl_nodelife.dumps.dump import OWN_CLOCK, UNDATED, read_dump
    from kubectl_nodelife.kube.kinds import KINDS
    from kubectl_nodelife.report.live_line import progress_bar
    from kubectl_nodelife.sim.scenario import Given

    if not scenario.snapshot:
        return None
    path = Path(scenario.file).parent / scenario.snapshot
    with progress_bar("reading objects") as step:
        snapshot = read_dump([str(path)], progress=step)
    dated = snapshot.moment_origin != OWN_CLOCK
    for warning in snapshot.warnings:
        if dated or warning != UNDATED:
            terminal.warn(warning)
    kinds = frozenset(k.name for k in KINDS) if snapshot.complete else snapshot.kinds_read
    moment_ns = snapshot.moment_ns if dated else None
    return Given(snapshot.objects, kinds, moment_ns, snapshot.profile, snapshot.unreadable)


def settings_of(setting: Setting, assignments: tuple[str, ...]) -> Settings:
    """The scenario's flags with `--set` on top. Raises BadInput."""
    from kubectl_nodelife.engine.settings import SettingsError, make_settings, parse_assignments

    scenario = setting.scenario
    on_top = parse_assignments(assignments)
    flags = {**scenario.flags, **on_top}
    origins = {name: "--set" if name in on_top else scenario.file for name in flags}
    try:
        return make_settings(setting.profile, flags, origins=origins)
    except SettingsError as error:
        try:
            make_settings(setting.profile, scenario.flags)
        except SettingsError as own:
            raise BadInput(str(own), on=f"{scenario.file}: spec.flags") from None
        raise BadInput(str(error), on="--set") from None


def _until_ns(until: str | None) -> int | None:
    if until is None:
        return None
    until_ns = duration_ns(until, "--until")
    if until_ns <= 0:
        raise BadInput(f"{until} is not after the start", on="--until")
    return until_ns


def _heartbeat_ns(setting: Setting, settings: Settings) -> int:
    """How long the scenario's healthy kubelets are silent between two signs of life."""
    kubelet = setting.scenario.kubelet
    posts_ns = kubelet.post_every_ns
    return min(kubelet.renew_every_ns, posts_ns) if settings.leases_count else posts_ns


def _zone_metrics(controllers: Iterable[Controller]) -> dict[str, dict[str, float]]:
    """The node lifecycle controller's metrics of each zone, by the zone's name."""
    from kubectl_nodelife.controllers.nodelifecycle import NodeLifecycleController
    from kubectl_nodelife.outlook.zone import zone_metrics

    lifecycle = next((c for c in controllers if isinstance(c, NodeLifecycleController)), None)
    if lifecycle is None:
        return {}
    memory = lifecycle.memory
    return zone_metrics(memory, memory.settings)


def _decider_for(setting: Setting, settings: Settings) -> MakeDecider | None:
    """The controller of the scenario's upgrade; imported only where there is one."""
    from kubectl_nodelife.sim.events import UpgradeCommandEvent, UpgradeEvent

    of_upgrades = (UpgradeEvent, UpgradeCommandEvent)
    if not any(isinstance(event.what, of_upgrades) for event in setting.scenario.events):
        return None
    from kubectl_nodelife.upgrade.answers import decider_for

    return decider_for(settings)


def _play(
    setting: Setting,
    controllers: Sequence[Controller],
    until_ns: int | None,
    make_decider: MakeDecider | None,
) -> Run:
    from kubectl_nodelife.report.live_line import progress_bar
    from kubectl_nodelife.sim.run import run

    duration_ns = setting.scenario.duration_ns
    total_ns = duration_ns if until_ns is None else min(duration_ns, until_ns)
    with progress_bar("simulating", total_ns) as step:
        return run(
            setting, controllers, until_ns=until_ns, progress=step, make_decider=make_decider
        )


def _narrow(summary: RunSummary, done: Run, words: tuple[str, ...]) -> RunSummary:
    """The story of a node with its pods, or of a pod. Raises BadInput."""
    from kubectl_nodelife.kube.names import NODE, POD, parse_subject
    from kubectl_nodelife.sim.run import narrowed

    kind, namespace, name = parse_subject(words, (NODE, POD), NODE)
    key = ("", name) if kind == NODE else (namespace or "default", name)
    narrower = narrowed(summary, done, kind, key)
    if narrower is None:
        raise BadInput(
            f"{kind.lower()} {'/'.join(filter(None, key))} never exists in this scenario",
            remedy="check the name, and the namespace of a pod",
        )
    return narrower


NAMES = (*CONTROLLERS, IN_KUBELETS)
SCENARIO = b"""
apiVersion: nodelife.dev/v1alpha1
kind: Scenario
metadata: {name: sandbox}
spec:
  generate: {zones: 3, nodesPerZone: 3, podsPerNode: 8, daemonSets: 2}
  kubelet: {podStartDuration: 2s, podStopDuration: 2s}
"""


@click.command()
@click.option("-f", "--filename", metavar="PATH", help="A scenario, or a dump: a file or a folder.")
@click.option(
    "--controllers",
    default="all",
    show_default=True,
    metavar="all|none|NAME,...",
    help=f"Our controllers that run inside: {', '.join(NAMES)}.",
)
@click.option("--set", "assignments", multiple=True, metavar="FLAG=VALUE", help="A setting.")
@max_file_size
@click.option(
    "-v", "--v", "level", type=click.IntRange(0), default=0, metavar="LEVEL", help="1: requests."
)
def sandbox(
    filename: str | None, controllers: str, assignments: tuple[str, ...], level: int
) -> None:
    """Serve a simulated cluster on loopback until it is interrupted. Nothing of yours is touched.

    Prints one line to evaluate, `export KUBECONFIG=PATH`, as soon as it serves; Ctrl-C ends it, and
    that file goes with it. Annotate a node
    with sandbox.nodelife.dev/heartbeats=stop (or start) to silence (or wake) its kubelet,
    and with sandbox.nodelife.dev/reboot=20s to reboot its machine.

    \b
    Examples:
      kubectl nodelife sandbox
      kubectl nodelife sandbox -f zone-outage.yaml --controllers none
      kubectl nodelife sandbox -f dump/
      kubectl nodelife sandbox --set node-monitor-grace-period=20s
    """
    import asyncio

    from kubectl_nodelife.kubelet.releases import rules_for
    from kubectl_nodelife.sandbox.cluster import SandboxCluster, read_beginning
    from kubectl_nodelife.sandbox.tls import make_sandbox
    from kubectl_nodelife.sim.scenario import STATUS_MANAGERS

    beginning = read_beginning(filename, SCENARIO, time.time_ns(), content_at)
    settings = settings_of(beginning.setting, assignments)
    wanted = _wanted(controllers)
    cluster = SandboxCluster(
        beginning.setting.under(settings),
        make_controllers(settings, wanted),
        documents=beginning.documents,
        status_rules=rules_for(settings.profile) if STATUS_MANAGERS in wanted else None,
    )
    served = make_sandbox(cluster, f"{beginning.setting.profile.name}.0", verbose=level > 0)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(served))


def content_at(path: str) -> bytes:
    """The bytes of a file; of a folder of them, one List of all their objects. Raises BadInput."""
    if not os.path.isdir(path):
        return read_named(path)
    import msgspec

    from kubectl_nodelife.dumps.dump import read_dump
    from kubectl_nodelife.kube.kinds import Kind

    items: list[dict[str, Any]] = []

    def keep(kind: Kind, document: Any) -> None:
        fields = document if isinstance(document, dict) else msgspec.json.decode(document)
        items.append({"apiVersion": kind.api_version, "kind": kind.name, **fields})

    read_dump([path], seen=keep)
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def _wanted(names: str) -> list[str]:
    """The names of the controllers to run inside. Raises BadInput."""
    if names in ("none", "all"):
        return list(NAMES) if names == "all" else []
    wanted = names.split(",")
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        raise BadInput(
            f"there is no controller {unknown[0]!r}",
            on="--controllers",
            remedy=f"name some of {', '.join(NAMES)}, or all, or none",
        )
    return wanted


async def _serve(served: Sandbox) -> None:
    """Serve until SIGTERM, SIGINT, or SIGHUP of a terminal that goes (not where nohup keeps it)."""
    import asyncio

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    ends = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ends.append(signal.SIGHUP)
    for number in ends:
        loop.add_signal_handler(number, stopped.set)
    async with served:
        terminal.note(f"serves until Ctrl-C or SIGTERM; {served.kubeconfig} is taken away then")
        terminal.write(f"export KUBECONFIG={served.kubeconfig}\n")
        terminal.flush()
        await served.run_until(stopped)
