"""`kubectl nodelife sweep`: a study of many settings and many failures, on all cores or a cluster
of workers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kubectl_nodelife.commands.flags import Output, gathered_flags, max_file_size, output_flags
from kubectl_nodelife.dumps.file_size import read_named
from kubectl_nodelife.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NO, BadInput
from kubectl_nodelife.report import terminal
from kubectl_nodelife.report.formats import FORMATTERS

if TYPE_CHECKING:
    from kubectl_nodelife.engine.settings import Settings
    from kubectl_nodelife.sweep.points import Base, Point
    from kubectl_nodelife.sweep.pool import Pool
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
    from kubectl_nodelife.sweep.points import Terms, settled_points
    from kubectl_nodelife.sweep.pool import read_where
    from kubectl_nodelife.sweep.result import RunStore, runs_of
    from kubectl_nodelife.sweep.runs import Plan
    from kubectl_nodelife.sweep.study import read_study

    beside = Path(asked.filename).parent
    study = read_study(
        read_named(asked.filename), asked.filename, lambda name: read_named(str(beside / name))
    )
    where = read_where(asked.on)
    base, pods, warnings = read_base(study)
    terminal.warn(*warnings)
    points, today = settled_points(base, study.space, study.sampling)
    _refuse_too_many(len(points) * len(study.seeds), asked.filename)
    runs = runs_of(points, study.seeds)
    if len(runs) > _MOST_RUNS:
        _ask(asked, f"{len(runs):,} runs are more than {_MOST_RUNS:,}")
    terms = Terms(study.duration_ns, study.scheduler, study.controllers)
    plan = Plan(study.name, base, study.failures, terms, study.measures)
    folder = Path(asked.out or f"sweep-{study.name}")
    with RunStore(folder, plan, runs, resume=asked.resume) as store:
        played = _Sweep(asked, plan, runs, store)
        played.play(where, pods)
        result = _result(study, played, today, warnings)
        played.finish(result)
    _show(result, output)
    return _exit_code(result)


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


class _Sweep:
    """A study that is played: what failed, and whether it was interrupted."""

    def __init__(self, asked: SweepFlags, plan: Plan, runs: list[RunId], store: RunStore) -> None:
        self._asked = asked
        self.plan, self.runs, self.store = plan, runs, store
        self.failed: list[str] = []
        self.partial = False

    def play(self, where: int | str, pods: int) -> None:
        """Play the runs that the store lacks. Raises NodelifeError."""
        from kubectl_nodelife.daemon.paths import make_private, runtime_folder
        from kubectl_nodelife.sweep.pool import pool_at

        to_play = [run for run in self.runs if run.number not in self.store.found]
        if not to_play:
            return
        try:
            private = make_private(runtime_folder(os.environ))
            with pool_at(where, pods, private) as pool:
                pool.check_versions()
                self._gather(pool, to_play)
        except KeyboardInterrupt:
            self.partial = True

    def _gather(self, pool: Pool, to_play: list[RunId]) -> None:
        from kubectl_nodelife.report.live_line import progress_bar
        from kubectl_nodelife.sweep.runs import RunResult

        with progress_bar("playing", len(to_play)) as step:
            for done, played in enumerate(pool.play(self.plan, to_play, self._estimate), 1):
                if isinstance(played, RunResult):
                    self.store.add(played.number, played.measures)
                else:
                    self.failed += [_words_of(run, played.why) for run in played.runs]
                step(done)

    def _estimate(self, seconds: float) -> None:
        if seconds > _LONG_SECONDS:
            _ask(self._asked, f"the study will take about {seconds / 3600:.1f} hours")

    def finish(self, result: StudyResult) -> None:
        """Write what is there. Raises Failed."""
        from kubectl_nodelife.report.sweep import html_page

        self.store.finish({_DOCUMENT: _formatted(result), _PAGE: html_page(result).encode()})


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


def _result(study: Study, played: _Sweep, today: Point, warnings: list[str]) -> StudyResult:
    from kubectl_nodelife.sweep.result import summed_up

    return summed_up(
        played.plan,
        played.runs,
        played.store.found,
        study.assertions,
        today=today,
        failed=played.failed,
        warnings=warnings,
        partial=played.partial,
    )


def _show(result: StudyResult, output: Output) -> None:
    from kubectl_nodelife.report.sweep import html_page, study_page

    for failed in result.failed:
        terminal.warn(f"not played: {failed}")
    if output.format == _HTML:
        terminal.write(html_page(result))
    else:
        output.show(study_page(result))


def _exit_code(result: StudyResult) -> int:
    if result.partial:
        return EXIT_INTERRUPTED
    if result.failed:
        return EXIT_FAILED
    return EXIT_NO if result.broken else 0


def read_base(study: Study) -> tuple[Base, int, list[str]]:
    """(the base, how many pods it has, warnings). Raises BadInput, Failed."""
    from kubectl_nodelife.engine.settings import NEWEST
    from kubectl_nodelife.sim.fields import FieldPath
    from kubectl_nodelife.sim.scenario import read_generate
    from kubectl_nodelife.sweep.points import base_of_recipe

    kind, what = study.base
    if kind == "generate":
        recipe = read_generate(what, FieldPath(study.file, "spec.base.generate"))
        pods = (recipe.nodes or recipe.zones * recipe.nodes_per_zone) * recipe.pods_per_node
        return base_of_recipe(recipe, _settings(study, study.profile or NEWEST, {})), pods, []
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
        settings = _settings(study, study.profile, _flags(settings))
    events = only_document(content, path).get("spec", {}).get("events", [])
    base = base_of_cluster(
        *(setting.cluster, settings, setting.start_ns, setting.kinds_read),
        events=tuple(events),
        kubelet=scenario.kubelet,
    )
    return base, len(setting.cluster.pods), []


def _with_flags(study: Study, settings: Settings) -> Settings:
    return _settings(study, settings.profile.name, _flags(settings))


def _flags(settings: Settings) -> dict[str, Any]:
    from kubectl_nodelife.outlook.what_if.question import given_flags

    return {name: settings.flags[name] for name in given_flags(settings)}


def _settings(study: Study, profile: str, flags: dict[str, Any]) -> Settings:
    """Those flags, and the study's on top. Raises BadInput."""
    from kubectl_nodelife.engine.settings import SettingsError, make_settings

    try:
        return make_settings(profile, {**flags, **study.flags})
    except (SettingsError, ValueError) as error:
        raise BadInput(str(error), on=f"{study.file}: spec.flags") from None
