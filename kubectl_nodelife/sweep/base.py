"""The cluster of a study as it is sent to workers: a recipe, or redacted objects.

What is sent says nothing that a snapshot would not keep (`snapshot/redact`), and is sent once. A
cluster that is made from a recipe has its Leases, each renewed at a moment of its own.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.kube.encode import encode
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.kube.load import decode
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.outlook.what_if.question import given_flags
from kubectl_nodelife.sim.generate import Generate, generate, with_leases
from kubectl_nodelife.sim.kubelet_terms import KubeletTerms
from kubectl_nodelife.sim.scenario import DEFAULT_TIME_NS
from kubectl_nodelife.snapshot.redact import KEY_BYTES, Redaction

_TERMS: Final = KubeletTerms()
_ALL_KINDS: Final = frozenset(kind.name for kind in KINDS)


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
