"""What `audit` and `repair` look at: a dump, or a live cluster at first sight, and judge it."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from kubectl_nodelife.answers.audit import PodAudit
from kubectl_nodelife.commands.dumps import load, source_of
from kubectl_nodelife.commands.flags import Connection
from kubectl_nodelife.commands.inputs import settings_of
from kubectl_nodelife.engine.cache import NODE_LEASE_NAMESPACE
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.kube.node import Lease, Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.outlook.audit.notes import NOTES
from kubectl_nodelife.outlook.audit.sweep import Audit, Seen, audit

FIRST_LOOK = "a first look: ages are what the objects tell"


class Look(NamedTuple):
    """One look at a cluster, judged, and what must be said with it."""

    seen: Seen
    audit: Audit
    settings: Settings
    source: dict[str, Any]
    moment: dict[str, str]
    now_ns: int
    warnings: tuple[str, ...]

    def answer(self) -> PodAudit:
        """What `audit` says of it."""
        return PodAudit(
            audit=self.audit,
            source=self.source,
            profile=self.settings.profile.name,
            moment=self.moment,
            now_ns=self.now_ns,
            warnings=(*self.warnings, *self.audit.warnings),
        )


def look_at_dump(
    filename: tuple[str, ...],
    namespace: str | None,
    *,
    now: str | None = None,
    profile: str | None = None,
    assignments: tuple[str, ...] = (),
) -> Look:
    """The pods of a dump, of one namespace or (None) of all. Raises BadInput."""
    snapshot = load(filename, now, profile)
    settings = settings_of(snapshot, assignments)
    pods: list[Pod] = []
    nodes: dict[str, Node] = {}
    renewals: dict[str, int | None] = {}
    for obj in snapshot.objects:
        if isinstance(obj, Pod):
            if namespace is None or obj.namespace == namespace:
                pods.append(obj)
        elif isinstance(obj, Node):
            nodes[obj.name] = obj
        elif isinstance(obj, Lease) and obj.namespace == NODE_LEASE_NAMESPACE:
            renewals[obj.name] = obj.spec.renew_time
    seen = Seen(
        pods,
        nodes if snapshot.has_read("Node") else None,
        renewals if snapshot.has_read("Lease") else None,
    )
    return Look(
        seen,
        audit(seen, settings, snapshot.moment_ns),
        settings,
        source_of(snapshot),
        snapshot.moment(),
        snapshot.moment_ns,
        tuple(snapshot.warnings),
    )


def look_at_cluster(
    connection: Connection,
    namespace: str | None,
    *,
    profile: str | None = None,
    assignments: tuple[str, ...] = (),
) -> Look:
    """The pods of a live cluster, of one namespace or (None) of all. Raises NodelifeError."""
    from kubectl_nodelife.commands.first_look import first_look

    sight = first_look(connection, profile, assignments)
    outlook = sight.outlook
    cache, now_ns = outlook.cache, outlook.now_ns
    pods = [p for p in cache.pods.values() if namespace is None or p.namespace == namespace]
    renewals: dict[str, int | None] = {}
    for name, heartbeat in cache.heartbeats.items():
        renewal = heartbeat.renewal(now_ns)
        if renewal is not None:
            renewals[name] = renewal[0]
    seen = Seen(pods, cache.nodes, renewals or None)
    return Look(
        seen,
        audit(seen, outlook.settings, now_ns),
        outlook.settings,
        sight.source,
        sight.moment,
        now_ns,
        tuple(sight.warnings),
    )


def namespace_of(connection: Connection, all_namespaces: bool, *, of_dump: bool) -> str | None:
    """The namespace to look in, None for all: of a dump all, unless one is named; of a cluster the
    context's own."""
    if all_namespaces:
        return None
    if connection.namespace or of_dump:
        return connection.namespace
    from kubectl_nodelife.commands.first_look import own_namespace

    return own_namespace(connection)


def check_classes(classes: tuple[str, ...]) -> None:
    """Raises BadInput for a class that there is not."""
    for name in classes:
        if name not in NOTES:
            near = difflib.get_close_matches(name, NOTES, 1)
            meant = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(NOTES)}"
            raise BadInput(f"no class {name!r}", on="--class", remedy=meant)


def check_now(now: str | None, filename: tuple[str, ...]) -> None:
    """Raises BadInput where a moment is given for a live cluster."""
    if now and not filename:
        raise BadInput("is for dumps", on="--now", remedy="name a dump with -f")
