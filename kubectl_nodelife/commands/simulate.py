"""`kubectl nodelife simulate`: a scenario in, what Kubernetes would do out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubectl_nodelife.commands.flags import Output, duration_ns, max_file_size, output_flags
from kubectl_nodelife.controllers import make_controllers
from kubectl_nodelife.dumps.file_size import read_named, read_stdin
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS

if TYPE_CHECKING:
    from kubectl_nodelife.engine.controller import Controller
    from kubectl_nodelife.engine.settings import Settings
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
