"""The points of a study, and what each makes of the base: cluster, settings, and the question to
play.

A base is the cluster as it is sent to workers, once: a recipe, or redacted objects, which have
nothing that a snapshot would not keep (`snapshot`). A cluster that is made from a recipe has its
Leases, each renewed at a moment of its own.

The space of a study is what is varied. A point gives each name of the space a value. `grid` plays
every combination, in the order in which the names are written, the last one fastest;
`latinHypercube` plays N points, of which each name's values are spread evenly.
"""

from __future__ import annotations

import math
import random
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from itertools import product
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings, SettingsError, make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.codec import encode
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.redaction import KEY_BYTES
from kubectl_nodelife.kube.times import format_duration, parse_duration
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.what_if import question
from kubectl_nodelife.sim.fields import FieldPath, count, mapping, sequence
from kubectl_nodelife.sim.generate import Generate, generate, with_leases
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.scenario import CONTROLLER_NAMES, DEFAULT_TIME_NS, FEWEST_PODS
from kubectl_nodelife.snapshot import Redaction

_TERMS: Final = KubeletTerms()
_ALL_KINDS: Final = frozenset(kind.name for kind in KINDS)


_BUDGET: Final = "PodDisruptionBudget"


class Base(msgspec.Struct, frozen=True):
    """A cluster at a moment (ns since the epoch), and how its controllers run: a release and flags.

    `recipe`: what to make; None where `objects` has the cluster. `events`: what else happens in
    every run, and `kubelet` the settings of kubelets, as a scenario has them. `digest` tells
    clusters apart.
    """

    start_ns: int
    profile: str
    flags: dict[str, Any]
    kinds_read: frozenset[str]
    digest: str
    recipe: Generate | None = None
    objects: bytes = b""
    events: tuple[Any, ...] = ()
    kubelet: KubeletTerms = KubeletTerms()

    def cluster(self, recipe: Generate | None = None) -> Cache:
        """The cluster, or another one by a recipe like its own."""
        recipe_used = recipe or self.recipe
        cluster = Cache()
        if recipe_used is not None:
            made = generate(recipe_used, self.start_ns, self.profile)
            cluster.fill(with_leases(made, self.start_ns), self.start_ns)
        else:
            documents = msgspec.json.decode(zlib.decompress(self.objects))
            cluster.fill((decode(each["kind"], each) for each in documents), self.start_ns)
        return cluster


def base_of_recipe(recipe: Generate, settings: Settings) -> Base:
    """A cluster that each worker makes."""
    profile, flags = settings.profile.name, _flags(settings)
    digest = sha256(f"{recipe!r} {profile} {flags!r}".encode()).hexdigest()
    return Base(DEFAULT_TIME_NS, profile, flags, _ALL_KINDS, digest, recipe)


def base_of_cluster(
    cluster: Cache,
    settings: Settings,
    start_ns: int,
    kinds_read: frozenset[str],
    events: tuple[Any, ...] = (),
    kubelet: KubeletTerms = _TERMS,
) -> Base:
    """A cluster that was read. `events`, `kubelet`: as of Base."""
    documents = [encode(obj) for obj in _objects(cluster)]
    flags, profile = _flags(settings), settings.profile.name
    inputs = [*documents, profile, flags, start_ns, list(events), repr(kubelet)]
    digest = sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()
    redact = Redaction(secrets.token_bytes(KEY_BYTES))
    for document in documents:
        redact.admit(document)
    redacted = [redact(document["kind"], document) for document in documents]
    packed = zlib.compress(msgspec.json.encode(redacted))
    common = (start_ns, profile, flags, kinds_read, digest)
    return Base(*common, objects=packed, events=events, kubelet=kubelet)


def _flags(settings: Settings) -> dict[str, Any]:
    return {name: settings.flags[name] for name in sorted(question.given_flags(settings))}


def _objects(cluster: Cache) -> Iterator[KubeObject]:
    yield from cluster.nodes.values()
    for kind in sorted(cluster.objects):
        yield from cluster.objects[kind].values()
    yield from cluster.pods.values()


def zones_of(recipe: Generate, zones: int) -> Generate:
    """The same number of nodes in so many zones."""
    nodes = recipe.nodes or recipe.zones * recipe.nodes_per_zone
    return replace(recipe, zones=zones, nodes_per_zone=-(-nodes // zones), nodes=nodes)


class Terms(msgspec.Struct, frozen=True):
    """The common part of all runs of a study, besides the cluster."""

    duration_ns: int
    scheduler: str = FEWEST_PODS
    controllers: tuple[str, ...] = CONTROLLER_NAMES


def _settings_at(base: Base, point: Mapping[str, Value]) -> tuple[Settings, Settings]:
    """The settings of the base, and those of the point. Raises BadInput where a flag is not known,
    its value is invalid, or the base cannot have what the point sets.
    """
    flags: dict[str, Any] = dict(base.flags)
    for name, value in point.items():
        if name.startswith(FLAG):
            flags[name.removeprefix(FLAG)] = value
        elif name == TOLERATION:
            flags |= dict.fromkeys(question.TOLERATION_FLAGS, value)
    try:
        settings = make_settings(base.profile, base.flags), make_settings(base.profile, flags)
    except SettingsError as error:
        raise BadInput(str(error), on="spec.space") from None
    for name in GENERATED_ONLY:
        if name in point and base.recipe is None:
            remedy = "vary it on a base of generate"
            raise BadInput("cannot be varied on a cluster that is given", on=name, remedy=remedy)
    return settings


def question_at(base: Base, point: Mapping[str, Value], terms: Terms) -> question.Question:
    """The base as the point has it, to be played for the study's duration. Raises BadInput."""
    today, then = _settings_at(base, point)
    recipe = base.recipe
    if recipe is not None and ZONES in point:
        recipe = zones_of(recipe, int(point[ZONES]))
    if recipe is not None and REPLICAS in point:
        recipe = replace(recipe, replicas=int(point[REPLICAS]))
    cluster = base.cluster(recipe)
    if TOLERATION in point:
        cluster = question.restamped(cluster, today, then)
    if MIN_AVAILABLE in point:
        cluster = _with_budgets(cluster, point[MIN_AVAILABLE])
    kubelet = base.kubelet
    if RENEWS in point:
        every_ns = parse_duration(str(point[RENEWS]))
        kubelet = replace(kubelet, lease_renew_interval_ns=every_ns)
    return question.Question(
        *(cluster, then, base.start_ns, base.kinds_read, (), terms.duration_ns),
        kubelet=kubelet,
        scheduler=terms.scheduler,
        controllers=terms.controllers,
    )


def _with_budgets(cluster: Cache, min_available: Value) -> Cache:
    """The cluster with this minAvailable in all its budgets."""
    changed = cluster.copy()
    wanted = min_available if isinstance(min_available, str) else int(min_available)
    for key, budget in cluster.objects.get(_BUDGET, {}).items():
        assert isinstance(budget, PodDisruptionBudget)
        spec = replace(budget.spec, min_available=wanted, max_unavailable=None)
        changed.set(_BUDGET, key, replace(budget, spec=spec))
    return changed


def today_of(base: Base, names: Mapping[str, object]) -> Point:
    """The point at which nothing of the space is changed; a name is left out that has no one value
    in the base."""
    settings = make_settings(base.profile, base.flags)
    point: Point = {}
    for name in names:
        if name.startswith(FLAG):
            value = settings.flags.get(name.removeprefix(FLAG))
            if value is not None:
                point[name] = value if isinstance(value, (str, int, float)) else str(value)
        elif name == TOLERATION:
            seconds = set(settings.default_toleration_seconds)
            point |= {name: seconds.pop()} if len(seconds) == 1 else {}
        elif name == ZONES and base.recipe is not None:
            point[name] = base.recipe.zones
        elif name == REPLICAS and base.recipe is not None and base.recipe.replicas:
            point[name] = base.recipe.replicas
        elif name == RENEWS and base.recipe is not None:
            point[name] = format_duration(KubeletTerms().renew_every_ns)
    return point


def settled_points(
    base: Base, space: Mapping[str, Sequence[Value]], sampling: LatinHypercube | None
) -> tuple[list[Point], Point]:
    """(the points that are played, that at which nothing is changed, which is one of them). A
    flag's value is as the flag's own help shows it. Raises BadInput."""
    size = math.prod(map(len, space.values()))
    if sampling is None and size > MOST_POINTS:
        what = f"the grid has {size:,} points; a study has {MOST_POINTS:,} at most"
        remedy = "give fewer values, or sampling: {latinHypercube: N}"
        raise BadInput(what, on="space", remedy=remedy)
    today = today_of(base, space)
    by_text: dict[str, Point] = {}
    for point in points_of(space, sampling):
        settled = _settled(_settings_at(base, point)[1], point)
        by_text.setdefault(repr(settled), settled)
    points = list(by_text.values())
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


Value = str | int | float | bool
Point = dict[str, Value]

FLAG: Final = "flags."
TOLERATION: Final = "tolerationSeconds"
REPLICAS: Final = "replicas"
MIN_AVAILABLE: Final = "budgets.minAvailable"
ZONES: Final = "zones"
RENEWS: Final = "leaseRenewInterval"
NAMES: Final = (TOLERATION, REPLICAS, MIN_AVAILABLE, ZONES, RENEWS)
GENERATED_ONLY: Final = (REPLICAS, ZONES)
_WHOLE: Final = (TOLERATION, REPLICAS, ZONES)
_RANGE: Final = ("from", "to", "step", "log")
_MOST_VALUES: Final = 10_000
MOST_POINTS: Final = 100_000


class LatinHypercube(msgspec.Struct, frozen=True):
    """So many points; which values meet is drawn by the seed."""

    points: int
    seed: int


def read_space(value: Any, at: FieldPath) -> dict[str, tuple[Value, ...]]:
    """Names -> their values. Raises BadInput."""
    axes = {}
    for name, given in mapping(value, at).items():
        place = at.key(name)
        if not (name in NAMES or (name.startswith(FLAG) and len(name) > len(FLAG))):
            raise place.fault("is not varied", f"known here: flags.NAME, {', '.join(NAMES)}")
        values = _range(given, place) if isinstance(given, dict) else _list(given, place)
        axes[name] = tuple(_checked_axis(name, each, place) for each in values)
        if len(set(axes[name])) < len(axes[name]):
            raise place.fault("has a value twice")
    return axes


def _list(value: Any, at: FieldPath) -> list[Value]:
    items = sequence(value, at)
    if not items:
        raise at.fault("has no values")
    for number, item in enumerate(items):
        if not isinstance(item, (str, int, float)):
            raise at.item(number).fault("is no value", "give text or a number")
    return items


def _checked_axis(name: str, value: Value, at: FieldPath) -> Value:
    if name in _WHOLE and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise at.fault(f"{value!r} is no whole number")
    if name in GENERATED_ONLY and value == 0:
        raise at.fault("0 is out of range", "give a number from 1")
    if name == RENEWS:
        try:
            good = parse_duration(str(value)) > 0
        except ValueError:
            good = False
        if not good:
            raise at.fault(f"{value!r} is no interval", "write a Go duration, such as 10s")
    return value


def _range(value: dict[str, Any], at: FieldPath) -> list[Value]:
    """`{from, to, step}`, or `{from, to, log: N}`: numbers, or durations."""
    given = mapping(value, at, _RANGE)
    if not {"from", "to"} <= given.keys() or ("step" in given) == ("log" in given):
        raise at.fault("is no range", "give from and to, and either step or log")
    are_durations = isinstance(given["from"], str)
    low, high = (_number(given[key], at.key(key), are_durations) for key in ("from", "to"))
    if high < low:
        raise at.fault("to is less than from")
    if "step" in given:
        step = _number(given["step"], at.key("step"), are_durations)
        if step <= 0 or (high - low) / step >= _MOST_VALUES:
            raise at.key("step").fault(f"must be above 0 and make at most {_MOST_VALUES} values")
        numbers = [low + step * i for i in range(int((high - low) // step) + 1)]
    else:
        many = count(given["log"], at.key("log"), least=2, most=_MOST_VALUES)
        if low <= 0:
            raise at.key("from").fault("must be above 0 for log")
        ratio = float(high / low) ** (1 / (many - 1))
        numbers = [_rounded(float(low) * ratio**i) for i in range(many)]
    if are_durations:
        return [format_duration(round(n)) for n in numbers]
    return [int(n) if n == int(n) else float(n) for n in numbers]


def _rounded(number: float) -> Decimal:
    """To three figures, so that a value can be read."""
    return Decimal(f"{number:.3g}")


def _number(value: Any, at: FieldPath, is_duration: bool) -> Decimal:
    """A number, or the ns of a duration. Raises BadInput."""
    if is_duration and isinstance(value, str):
        try:
            return Decimal(parse_duration(value))
        except ValueError as error:
            raise at.fault(str(error), "write a Go duration: 20s, 1m") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise at.fault(f"{value!r} is no number", "give numbers, or durations throughout")
    return Decimal(str(value))


def read_sampling(value: Any, at: FieldPath) -> LatinHypercube | None:
    """None for the grid. Raises BadInput."""
    if value == "grid":
        return None
    given = mapping(value, at, ("latinHypercube", "seed"))
    if "latinHypercube" not in given:
        raise at.fault("is no way to sample", "give grid, or {latinHypercube: N, seed: S}")
    points = count(given["latinHypercube"], at.key("latinHypercube"), least=1, most=MOST_POINTS)
    return LatinHypercube(points, count(given.get("seed", 1), at.key("seed"), most=1 << 48))


def points_of(space: Mapping[str, Sequence[Value]], sampling: LatinHypercube | None) -> list[Point]:
    """The points, each with a value for each name."""
    if sampling is None:
        return [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    chance = random.Random(sampling.seed)
    columns: list[list[Value]] = []
    for values in space.values():
        strata = list(range(sampling.points))
        chance.shuffle(strata)
        columns.append([values[i * len(values) // sampling.points] for i in strata])
    points = [dict(zip(space, row, strict=True)) for row in zip(*columns, strict=True)]
    return points or [{}]
