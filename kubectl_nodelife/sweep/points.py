"""The base of a study, and what a point makes of it: cluster, settings, and the question to play.

A base is the cluster as it is sent to workers, once: a recipe, or redacted objects, which say
nothing that a snapshot would not keep (`snapshot/redact`). A cluster that is made from a recipe has
its Leases, each renewed at a moment of its own.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings, SettingsError, make_settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.duration import format_duration, parse_duration
from kubectl_nodelife.kube.encode import encode
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.workload import PodDisruptionBudget
from kubectl_nodelife.outlook.what_if.question import (
    TOLERATION_FLAGS,
    Question,
    given_flags,
    restamped,
)
from kubectl_nodelife.sim.generate import Generate, generate, with_leases
from kubectl_nodelife.sim.kubelet_state import KubeletTerms
from kubectl_nodelife.sim.scenario import CONTROLLER_NAMES, DEFAULT_TIME_NS, FEWEST_PODS
from kubectl_nodelife.snapshot.redact import KEY_BYTES, Redaction
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

_TERMS: Final = KubeletTerms()
_ALL_KINDS: Final = frozenset(kind.name for kind in KINDS)


_BUDGET: Final = "PodDisruptionBudget"


class Base(msgspec.Struct, frozen=True):
    """A cluster at a moment (ns since the epoch), and how its controllers run: a release and flags.

    `recipe`: what to make; None where `objects` has the cluster. `events`: what happens in every
    run besides, and `kubelet` what is said of kubelets, as a scenario has it. `digest` tells
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
        made = recipe or self.recipe
        found = Cache()
        if made is not None:
            objects = with_leases(generate(made, self.start_ns, self.profile), self.start_ns)
        else:
            objects = _unpacked(self.objects)
        found.fill(objects, self.start_ns)
        return found


def base_of_recipe(recipe: Generate, settings: Settings) -> Base:
    """A cluster that each worker makes."""
    text = f"{recipe!r} {settings.profile.name} {_flags(settings)!r}"
    digest = sha256(text.encode()).hexdigest()
    return Base(
        DEFAULT_TIME_NS, settings.profile.name, _flags(settings), _ALL_KINDS, digest, recipe
    )


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
    told = [
        *documents,
        settings.profile.name,
        _flags(settings),
        start_ns,
        list(events),
        repr(kubelet),
    ]
    digest = sha256(msgspec.json.encode(told, order="sorted")).hexdigest()
    redact = Redaction(secrets.token_bytes(KEY_BYTES))
    for document in documents:
        redact.admit(document)
    kept = [redact(document["kind"], document) for document in documents]
    packed = zlib.compress(msgspec.json.encode(kept))
    return Base(
        *(start_ns, settings.profile.name, _flags(settings), kinds_read, digest),
        objects=packed,
        events=events,
        kubelet=kubelet,
    )


def _flags(settings: Settings) -> dict[str, Any]:
    return {name: settings.flags[name] for name in sorted(given_flags(settings))}


def _objects(cluster: Cache) -> Iterator[KubeObject]:
    yield from cluster.nodes.values()
    for kind in sorted(cluster.objects):
        yield from cluster.objects[kind].values()
    yield from cluster.pods.values()


def _unpacked(objects: bytes) -> Iterator[KubeObject]:
    for document in msgspec.json.decode(zlib.decompress(objects)):
        yield decode(document["kind"], document)


def zones_of(recipe: Generate, zones: int) -> Generate:
    """The same number of nodes in so many zones."""
    nodes = recipe.nodes or recipe.zones * recipe.nodes_per_zone
    return replace(recipe, zones=zones, nodes_per_zone=-(-nodes // zones), nodes=nodes)


class Terms(msgspec.Struct, frozen=True):
    """The common part of all runs of a study, besides the cluster."""

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
