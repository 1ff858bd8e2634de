"""Reads the cluster that a study is about: a dump or snapshot, a scenario, or a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubectl_nodelife.commands.cluster.dump import load
from kubectl_nodelife.commands.cluster.file_size import read_named
from kubectl_nodelife.commands.cluster.look import view_of_dump
from kubectl_nodelife.commands.simulate import read_given, settings_of
from kubectl_nodelife.engine.flag_values import SettingsError
from kubectl_nodelife.engine.profiles import NEWEST
from kubectl_nodelife.engine.settings import Settings, make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.outlook.what_if.question import given_flags
from kubectl_nodelife.sim.fields import FieldPath
from kubectl_nodelife.sim.scenario import assemble
from kubectl_nodelife.sim.scenario_document import only_document, parse_scenario, read_generate
from kubectl_nodelife.sweep.base import Base, base_of_cluster, base_of_recipe
from kubectl_nodelife.sweep.study import Study


def read_base(study: Study) -> tuple[Base, int, list[str]]:
    """(the base, how many pods it has, warnings). Raises BadInput, Failed."""
    kind, what = study.base
    if kind == "generate":
        recipe = read_generate(what, FieldPath(study.file, "spec.base.generate"))
        pods = (recipe.nodes or recipe.zones * recipe.nodes_per_zone) * recipe.pods_per_node
        return base_of_recipe(recipe, _settings(study, study.profile or NEWEST, {})), pods, []
    path = str(Path(study.file).parent / what)
    return _of_scenario(study, path) if kind == "scenario" else _of_dump(study, path)


def _of_dump(study: Study, path: str) -> tuple[Base, int, list[str]]:
    dump = load((path,), None, study.profile or None)
    kinds = [kind.name for kind in KINDS]
    view = view_of_dump(dump, kinds)
    settings = _with_flags(study, view.settings)
    read = frozenset(kinds) - view.unread.keys()
    base = base_of_cluster(view.cache, settings, view.now_ns, read)
    return base, len(view.cache.pods), view.warnings


def _of_scenario(study: Study, path: str) -> tuple[Base, int, list[str]]:
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
    return {name: settings.flags[name] for name in given_flags(settings)}


def _settings(study: Study, profile: str, flags: dict[str, Any]) -> Settings:
    """Those flags, and the study's on top. Raises BadInput."""
    try:
        return make_settings(profile, {**flags, **study.flags})
    except (SettingsError, ValueError) as error:
        raise BadInput(str(error), on=f"{study.file}: spec.flags") from None
