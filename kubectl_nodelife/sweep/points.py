"""What a point of a study makes of its base: cluster, settings, and the question to play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings, SettingsError, make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.duration import format_duration, parse_duration
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.what_if.question import TOLERATION_FLAGS, Question, restamped
from kubectl_nodelife.sim.kubelet_terms import KubeletTerms
from kubectl_nodelife.sim.scenario import CONTROLLER_NAMES, FEWEST_PODS
from kubectl_nodelife.sweep.base import Base, zones_of
from kubectl_nodelife.sweep.space import (
    FLAG,
    GENERATED_ONLY,
    MIN_AVAILABLE,
    RENEWS,
    REPLICAS,
    TOLERATION,
    ZONES,
    LatinHypercube,
    Point,
    Value,
    points_of,
)

_BUDGET: Final = "PodDisruptionBudget"


class Terms(msgspec.Struct, frozen=True):
    """What all runs of a study have in common besides the cluster."""

    duration_ns: int
    scheduler: str = FEWEST_PODS
    controllers: tuple[str, ...] = CONTROLLER_NAMES


class Judged(NamedTuple):
    """The settings of a study's base, and those of a point."""

    today: Settings
    then: Settings


def settings_at(base: Base, point: Mapping[str, Value]) -> Judged:
    """Raises BadInput where a flag is not known, or its value is none."""
    flags: dict[str, Any] = dict(base.flags)
    for name, value in point.items():
        if name.startswith(FLAG):
            flags[name.removeprefix(FLAG)] = value
        elif name == TOLERATION:
            flags |= dict.fromkeys(TOLERATION_FLAGS, value)
    try:
        today = make_settings(base.profile, base.flags)
        return Judged(today, make_settings(base.profile, flags))
    except SettingsError as error:
        raise BadInput(str(error), on="spec.space") from None


def _checked(base: Base, point: Mapping[str, Value]) -> Judged:
    """The settings of a point. Raises BadInput where the base cannot be as the point has it."""
    judged = settings_at(base, point)
    for name in GENERATED_ONLY:
        if name in point and base.recipe is None:
            remedy = "vary it on a base of generate"
            raise BadInput("cannot be varied on a cluster that is given", on=name, remedy=remedy)
    return judged


def question_at(base: Base, point: Mapping[str, Value], terms: Terms) -> Question:
    """The base as the point has it, to be played for the study's duration. Raises BadInput."""
    judged = _checked(base, point)
    recipe = base.recipe
    if recipe is not None and ZONES in point:
        recipe = zones_of(recipe, int(point[ZONES]))
    if recipe is not None and REPLICAS in point:
        recipe = replace(recipe, replicas=int(point[REPLICAS]))
    cluster = base.cluster(recipe)
    if TOLERATION in point:
        cluster = restamped(cluster, judged.today, judged.then)
    if MIN_AVAILABLE in point:
        cluster = _with_budgets(cluster, point[MIN_AVAILABLE])
    kubelet = base.kubelet
    if RENEWS in point:
        every_ns = parse_duration(str(point[RENEWS]))
        kubelet = replace(kubelet, lease_renew_interval_ns=every_ns)
    return Question(
        *(cluster, judged.then, base.start_ns, base.kinds_read, (), terms.duration_ns),
        kubelet=kubelet,
        scheduler=terms.scheduler,
        controllers=terms.controllers,
    )


def _with_budgets(cluster: Cache, min_available: Value) -> Cache:
    """The cluster with this in all its budgets."""
    changed = cluster.copy()
    wanted = min_available if isinstance(min_available, str) else int(min_available)
    for key, found in cluster.objects.get(_BUDGET, {}).items():
        assert isinstance(found, PodDisruptionBudget)
        spec = replace(found.spec, min_available=wanted, max_unavailable=None)
        changed.set(_BUDGET, key, replace(found, spec=spec))
    return changed


def today_of(base: Base, names: Mapping[str, object]) -> Point:
    """The point at which nothing of the space is changed; a name is left out that has no one value
    in the base."""
    settings = make_settings(base.profile, base.flags)
    found: Point = {}
    for name in names:
        if name.startswith(FLAG):
            value = settings.flags.get(name.removeprefix(FLAG))
            if value is not None:
                found[name] = value if isinstance(value, (str, int, float)) else str(value)
        elif name == TOLERATION:
            seconds = set(settings.default_toleration_seconds)
            found |= {name: seconds.pop()} if len(seconds) == 1 else {}
        elif name == ZONES and base.recipe is not None:
            found[name] = base.recipe.zones
        elif name == REPLICAS and base.recipe is not None and base.recipe.replicas:
            found[name] = base.recipe.replicas
        elif name == RENEWS and base.recipe is not None:
            found[name] = format_duration(KubeletTerms().renew_every_ns)
    return found


def settled_points(
    base: Base, space: Mapping[str, Sequence[Value]], sampling: LatinHypercube | None
) -> tuple[list[Point], Point]:
    """(the points that are played, that at which nothing is changed, which is one of them). A
    flag's value is as the flag's own help shows it. Raises BadInput."""
    today = today_of(base, space)
    points: list[Point] = []
    for point in points_of(space, sampling):
        settled = _settled(_checked(base, point).then, point)
        if settled not in points:
            points.append(settled)
    return (points if today in points else [today, *points]), today


def _settled(settings: Settings, point: Point) -> Point:
    flags = settings.flags
    return {
        name: flags[name.removeprefix(FLAG)]
        if name.startswith(FLAG)
        else format_duration(parse_duration(str(value)))
        if name == RENEWS
        else value
        for name, value in point.items()
    }
