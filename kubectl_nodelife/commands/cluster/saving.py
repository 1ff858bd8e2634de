"""The reads of `snapshot save` in their order, and the notes in its file.

Admission policies come first, since their expressions decide which pod annotations matter. Nodes
and their Leases come last and close together: the snapshot's moment is when the Leases are listed,
so that no node looks silent for as long as listing the pods took. A kind that may not be listed is
left out of the file's list of kinds; one that is not served has no objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from kubectl_nodelife import __version__
from kubectl_nodelife.commands.cluster.direct import bulk_client, server_now_ns
from kubectl_nodelife.daemon.paths import config_file
from kubectl_nodelife.daemon.settings import DetectedSettings, detect_settings, load_config
from kubectl_nodelife.engine.cache import Cache
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.kinds import DRAIN_KINDS, OPTIONAL_KINDS, Kind, kind_named
from kubectl_nodelife.kube.meta import KubeObject
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.kube.wellknown import ANNOTATION_KINDS, ANNOTATION_MOMENT, ANNOTATION_RUNNING
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.listwatch import served
from kubectl_nodelife.live.requests import Resource, resource_of
from kubectl_nodelife.live.target import Target
from kubectl_nodelife.outlook.diverge.observations import MANAGER
from kubectl_nodelife.snapshot import Redaction, SnapshotFile, count, is_control_plane, pages

_LAST: Final = ("Pod", "Node", "Lease")
_NAMESPACE_OF_MANAGER: Final = "kube-system"
_ADMISSION: Final = (
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
)
_MORE: Final = ("ControllerRevision", "Event", *OPTIONAL_KINDS)
_ALL: Final = dict.fromkeys((*DRAIN_KINDS, *_MORE))  # each once

KINDS: Final = (*_ADMISSION, *(k for k in _ALL if k not in (*_ADMISSION, *_LAST)), *_LAST)
"""All kinds that some verb reads of a dump, in the order of reading."""


class SaveResult(NamedTuple):
    """The outcome. `refused`: kind -> the server's words."""

    objects: int
    size_bytes: int
    moment: str
    refused: dict[str, str]


class SavePlan(NamedTuple):
    """The kinds that will be read, about how much that is, and those that may not be read."""

    kinds: list[str]
    objects: int
    refused: dict[str, str]


async def plan(client: Client) -> SavePlan:
    """Ask how many there are of each kind. Raises Failed where nothing may be listed."""
    kinds = await served(client, KINDS)
    counts = await asyncio.gather(*(_count(client, kind) for kind in kinds))
    refused = {k: n.what for k, n in zip(kinds, counts, strict=True) if isinstance(n, ApiError)}
    if len(refused) == len(kinds):
        remedy = "see 'kubectl nodelife rbac'"
        raise Failed(f"nothing may be listed: {refused['Node']}", on=client.server, remedy=remedy)
    objects = sum(n for n in counts if isinstance(n, int))
    return SavePlan([kind for kind in kinds if kind not in refused], objects, refused)


async def save(
    client: Client,
    target: Target,
    planned: SavePlan,
    file: SnapshotFile,
    redaction: Redaction | None,
    step: Callable[[int], None],
) -> SaveResult:
    """Read everything into the file; without a redaction as it is. Raises NodelifeError."""
    taking = _Taking(client, file, redaction, step)
    for kind in planned.kinds:
        try:
            await taking.kind(kind_named(kind))
        except ApiError as error:
            raise Failed(error.what, on=kind_named(kind).resource, remedy="try again") from None
    moment = format_micro_time(taking.moment_ns or server_now_ns(client))
    noted = {
        ANNOTATION_KINDS: ",".join(kind_named(kind).plural for kind in planned.kinds),
        ANNOTATION_MOMENT: moment,
        ANNOTATION_RUNNING: await _running(client, target, taking.control_plane),
        "nodelife.dev/made-by": f"kubectl-nodelife v{__version__}",
        "nodelife.dev/values": "as they are" if redaction is None else "digests",
    }
    if planned.refused:
        noted["nodelife.dev/not-read"] = ",".join(kind_named(k).plural for k in planned.refused)
    return SaveResult(file.written, file.finish(noted), moment, planned.refused)


@dataclass(slots=True)
class _Taking:
    """The state of one reading. `control_plane`: its pods, for what runs there."""

    client: Client
    file: SnapshotFile
    redaction: Redaction | None
    step: Callable[[int], None]
    control_plane: list[KubeObject] = field(default_factory=list)
    moment_ns: int = 0

    async def kind(self, kind: Kind) -> None:
        """Read and write all objects of a kind."""
        try:
            async for page in pages(self.client, resource_of(kind.name)):
                if kind.name == "Lease" and not self.moment_ns:
                    self.moment_ns = server_now_ns(self.client)
                for document in page:
                    self._take(kind.name, document)
                self.step(self.file.written)
        except ApiError as error:
            if error.code != 404:
                raise
        if kind.name == "Lease":
            await self._lease_of_the_manager(kind)

    async def _lease_of_the_manager(self, kind: Kind) -> None:
        """kube-controller-manager's Lease, by which `diverge -f` sees whether it lived; where it
        may not be read nothing else is missing.
        """
        wanted = Resource(kind, _NAMESPACE_OF_MANAGER, f"metadata.name={MANAGER}")
        with contextlib.suppress(ApiError):
            async for page in pages(self.client, wanted):
                for document in page:
                    names = document.get("metadata") or {}
                    if (names.get("namespace"), names.get("name")) == (
                        _NAMESPACE_OF_MANAGER,
                        MANAGER,
                    ):
                        self._take(kind.name, document)

    def _take(self, kind: str, document: dict[str, Any]) -> None:
        metadata = document.get("metadata") or {}
        if kind == "Pod" and is_control_plane(metadata.get("namespace", ""), metadata["name"]):
            self.control_plane.append(decode("Pod", document))
        if self.redaction is not None:
            if kind in _ADMISSION:
                self.redaction.admit(document)
            document = self.redaction(kind, document)
        self.file.add(document)


async def _count(client: Client, kind: str) -> int | ApiError:
    try:
        return await count(client, resource_of(kind))
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        return 0 if error.code == 404 else error


async def _running(client: Client, target: Target, control_plane: list[KubeObject]) -> str:
    """The release and the flags that run there, the user's own word on them included, as JSON."""
    cache = Cache()
    cache.fill(control_plane, 0)
    detected = await detect_settings(client, cache)
    section = load_config(config_file(os.environ)).section(target.server, target.context)
    flags = {name: str(value) for name, value in section.settings.items()} | detected.flags
    origins = dict.fromkeys(section.settings, "the config file, when the snapshot was taken")
    noted = DetectedSettings(section.profile or detected.version, flags, origins | detected.origins)
    return msgspec.json.encode(noted).decode()


async def save_cluster(
    target: Target,
    file: SnapshotFile,
    redaction: Redaction | None,
    begin: Callable[[int], Callable[[int], None]],
) -> SaveResult:
    """Save the cluster. `begin` receives about how many objects come. Raises NodelifeError."""
    async with bulk_client(target) as client:
        planned = await plan(client)
        return await save(client, target, planned, file, redaction, begin(planned.objects))
