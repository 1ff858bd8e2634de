"""`kubectl nodelife sweep`: a study of many settings and many failures, on all cores or a cluster
of workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from kubectl_nodelife.commands.flags import Output, gathered_flags, max_file_size, output_flags
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NO, BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS

if TYPE_CHECKING:
    from kubectl_nodelife.engine.settings import Settings
    from kubectl_nodelife.sweep.points import Base, Point
    from kubectl_nodelife.sweep.result import RunStore, StudyResult
    from kubectl_nodelife.sweep.runs import Plan, RunId
    from kubectl_nodelife.sweep.study import Study


_HTML = "html"
_EXTRA = ("dask", "distributed", "pyarrow", "cryptography")
_MOST_RUNS = 100_000
_NO_MORE_RUNS = 10_000_000
_LONG_SECONDS = 3600.0
_DOCUMENT = "result.json"
_PAGE = "result.html"


class SweepFlags(NamedTuple):
    """The flags as given."""

    filename: str
    on: str = "local"
    out: str | None = None
    resume: bool = False
    yes: bool = False


_sweep_flags = gathered_flags(
    "asked",
    SweepFlags,
    """
-f --filename=PATH  The study.
--on=WHERE          local[:N] for processes of this machine, dask://HOST:8786 for a Dask scheduler.
--out=PATH          Folder of the results. Default: sweep-NAME.
--resume            Go on with what the folder has.
--yes               Do not ask before a study that takes long.
""",
    filename={"required": True},
    on={"show_default": True},
)


@click.command()
@_sweep_flags
@max_file_size
@output_flags(*FORMATTERS, _HTML)
def sweep(asked: SweepFlags, output: Output) -> int:
    """Play one cluster under many settings and many failures, and say what each setting buys.

    The study (kind Study) names a cluster, what is varied, what fails and how often, and what is
    measured. Each point of its space is played with each seed; the answer has quantiles, means with
    95 % intervals, the difference to today's settings on the same failures, and the points that no
    other one beats. Runs are kept as they come in the folder of --out: runs.jsonl, and at the end
    runs.parquet, result.json and result.html. Ctrl-C keeps what is there, --resume goes on. Exit
    code 4 where an assertion of the study does not hold.

    It needs Dask and pyarrow, which come with kubectl-nodelife[sweep].

    \b
    Examples:
      kubectl nodelife sweep -f studies/grace-period.yaml
      kubectl nodelife sweep -f studies/grace-period.yaml --on local:8 --out results --resume
      kubectl nodelife sweep -f studies/eviction-rate.yaml --on dask://scheduler:8786 -o json
    """
    _check_extra()
    from kubectl_nodelife.report.sweep import html_page, study_page
    from kubectl_nodelife.sweep.pool import read_where
    from kubectl_nodelife.sweep.result import RunStore, summed_up
    from kubectl_nodelife.sweep.study import read_study

    beside = Path(asked.filename).parent
    study = read_study(
        read_named(asked.filename), asked.filename, lambda name: read_named(str(beside / name))
    )
    where = read_where(asked.on)
    plan, runs, today, pods, warnings = _planned(asked, study)
    folder = Path(asked.out or f"sweep-{study.name}")
    with RunStore(folder, plan, runs, resume=asked.resume) as store:
        to_play = [run for run in runs if run.number not in store.found]
        failed, partial = _play(asked, plan, to_play, store, where, pods)
        result = summed_up(
            *(plan, runs, store.found, study.assertions),
            today=today,
            failed=failed,
            warnings=warnings,
            partial=partial,
        )
        page = html_page(result)
        store.finish({_DOCUMENT: _formatted(result), _PAGE: page.encode()})
    terminal.warn(*(f"not played: {each}" for each in failed))
    if output.format == _HTML:
        terminal.write(page)
    else:
        output.show(study_page(result))
    return _exit_code(result)


def _planned(asked: SweepFlags, study: Study) -> tuple[Plan, list[RunId], Point, int, list[str]]:
    """(the plan, its runs, the point of today, how many pods the base has, warnings, which are
    said). Raises BadInput, Failed.
    """
    from kubectl_nodelife.sweep.points import Terms, settled_points
    from kubectl_nodelife.sweep.result import runs_of
    from kubectl_nodelife.sweep.runs import Plan

    base, pods, warnings = read_base(study)
    terminal.warn(*warnings)
    points, today = settled_points(base, study.space, study.sampling)
    _refuse_too_many(len(points) * len(study.seeds), asked.filename)
    runs = runs_of(points, study.seeds)
    if len(runs) > _MOST_RUNS:
        _ask(asked, f"{len(runs):,} runs are more than {_MOST_RUNS:,}")
    terms = Terms(study.duration_ns, study.scheduler, study.controllers)
    plan = Plan(study.name, base, study.failures, terms, study.measures)
    return plan, runs, today, pods, warnings


def _refuse_too_many(runs: int, filename: str) -> None:
    """Raises BadInput for more than may be asked for, before they are made."""
    if runs > _NO_MORE_RUNS:
        raise BadInput(
            f"{runs:,} runs are more than can be played",
            on=filename,
            remedy="give fewer values, or a smaller repeat",
        )


def _check_extra() -> None:
    """Raises BadInput where the extra is not installed."""
    from importlib.util import find_spec

    for package in _EXTRA:
        if find_spec(package) is None:
            raise BadInput(
                f"the Python package {package} is missing",
                on="sweep",
                remedy="pip install 'kubectl-nodelife[sweep]'",
            )


def _play(
    asked: SweepFlags,
    plan: Plan,
    to_play: Sequence[RunId],
    store: RunStore,
    where: int | str,
    pods: int,
) -> tuple[list[str], bool]:
    """Play these runs; (those that failed and why, whether it was interrupted). Raises
    NodelifeError.
    """
    from kubectl_nodelife.daemon.paths import make_private, runtime_folder
    from kubectl_nodelife.report.live_line import progress_bar
    from kubectl_nodelife.sweep.pool import pool_at
    from kubectl_nodelife.sweep.runs import RunResult

    def estimated(seconds: float) -> None:
        if seconds > _LONG_SECONDS:
            _ask(asked, f"the study will take about {seconds / 3600:.1f} hours")

    failed: list[str] = []
    if not to_play:
        return failed, False
    try:
        private = make_private(runtime_folder(os.environ))
        with pool_at(where, pods, private) as pool:
            pool.check_versions()
            with progress_bar("playing", len(to_play)) as step:
                for done, played in enumerate(pool.play(plan, to_play, estimated), 1):
                    if isinstance(played, RunResult):
                        store.add(played.number, played.measures)
                    else:
                        failed += [_words_of(run, played.why) for run in played.runs]
                    step(done)
    except KeyboardInterrupt:
        return failed, True
    return failed, False


def _formatted(result: StudyResult) -> bytes:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def _words_of(run: RunId, why: str) -> str:
    point = ", ".join(f"{name}={value}" for name, value in run.point.items())
    return f"{point or 'the base'}, seed {run.seed}: {why}"


def _ask(asked: SweepFlags, what: str) -> None:
    """Raises BadInput without the user's consent."""
    if asked.yes:
        return
    if sys.stdin.isatty() and click.confirm(f"{what}: play them?", err=True):
        return
    raise BadInput(what, on=asked.filename, remedy="say --yes, or make the study smaller")


def _exit_code(result: StudyResult) -> int:
    if result.partial:
        return EXIT_INTERRUPTED
    if result.failed:
        return EXIT_FAILED
    return EXIT_NO if result.broken else 0


def read_base(study: Study) -> tuple[Base, int, list[str]]:
    """(the base, how many pods it has, warnings). Raises BadInput, Failed."""
    from kubectl_nodelife.engine.settings import NEWEST, make_settings
    from kubectl_nodelife.sim.fields import FieldPath
    from kubectl_nodelife.sim.scenario import read_generate
    from kubectl_nodelife.sweep.points import base_of_recipe

    kind, what = study.base
    if kind == "generate":
        recipe = read_generate(what, FieldPath(study.file, "spec.base.generate"))
        pods = (recipe.nodes or recipe.zones * recipe.nodes_per_zone) * recipe.pods_per_node
        settings = _with_flags(study, make_settings(NEWEST), study.profile)
        return base_of_recipe(recipe, settings), pods, []
    path = str(Path(study.file).parent / what)
    return _of_scenario(study, path) if kind == "scenario" else _of_dump(study, path)


def _of_dump(study: Study, path: str) -> tuple[Base, int, list[str]]:
    from kubectl_nodelife.commands.cluster.look import view_of_dump
    from kubectl_nodelife.dumps.dump import load
    from kubectl_nodelife.kube.kinds import KINDS
    from kubectl_nodelife.sweep.points import base_of_cluster

    dump = load((path,), None, study.profile or None)
    kinds = [kind.name for kind in KINDS]
    view = view_of_dump(dump, kinds)
    settings = _with_flags(study, view.settings)
    read = frozenset(kinds) - view.unread.keys()
    base = base_of_cluster(view.cache, settings, view.now_ns, read)
    return base, len(view.cache.pods), view.warnings


def _of_scenario(study: Study, path: str) -> tuple[Base, int, list[str]]:
    from kubectl_nodelife.commands.simulate import read_given, settings_of
    from kubectl_nodelife.sim.scenario import assemble, only_document, parse_scenario
    from kubectl_nodelife.sweep.points import base_of_cluster

    content = read_named(path)
    scenario = parse_scenario(content, path)
    setting = assemble(scenario, read_given(scenario))
    settings = _with_flags(study, settings_of(setting, ()))
    if study.profile:
        settings = _with_flags(study, settings, study.profile)
    events = only_document(content, path).get("spec", {}).get("events", [])
    base = base_of_cluster(
        *(setting.cluster, settings, setting.start_ns, setting.kinds_read),
        events=tuple(events),
        kubelet=scenario.kubelet,
    )
    return base, len(setting.cluster.pods), []


def _with_flags(study: Study, settings: Settings, profile: str = "") -> Settings:
    """The flags that were given, and the study's on top, by that profile, or ("") by their own.
    Raises BadInput.
    """
    from kubectl_nodelife.engine.settings import SettingsError, make_settings
    from kubectl_nodelife.outlook.what_if.question import given_flags

    flags = {name: settings.flags[name] for name in given_flags(settings)}
    try:
        return make_settings(profile or settings.profile.name, {**flags, **study.flags})
    except (SettingsError, ValueError) as error:
        raise BadInput(str(error), on=f"{study.file}: spec.flags") from None
