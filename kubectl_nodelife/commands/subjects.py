"""Explanations of one object, from a dump, a first look or the daemon."""

from __future__ import annotations

from kubectl_nodelife.answers.explanation import Explanation
from kubectl_nodelife.commands.dumps import missing, source_of
from kubectl_nodelife.commands.inputs import Snapshot, settings_of
from kubectl_nodelife.daemon.sight import Sight
from kubectl_nodelife.errors import Failed
from kubectl_nodelife.outlook.explain import Section
from kubectl_nodelife.outlook.explain_node import node_sections
from kubectl_nodelife.outlook.explain_pod import pod_sections
from kubectl_nodelife.outlook.join import joined
from kubectl_nodelife.outlook.node import Outlook


def explanation_of_snapshot(
    snapshot: Snapshot, kind: str, namespace: str, name: str, assignments: tuple[str, ...]
) -> Explanation:
    """The explanation of one object of a dump. Raises Failed where the dump does not have it."""
    settings = settings_of(snapshot, assignments)
    cache = snapshot.cache()
    outlook, _ = joined(cache, settings, snapshot.moment_ns)
    return Explanation(
        kind=kind,
        namespace=namespace,
        name=name,
        source=source_of(snapshot),
        profile=settings.profile.name,
        moment=snapshot.moment(),
        sections=sections_of(outlook, kind, namespace, name),
        warnings=[*snapshot.warnings, *missing(snapshot, cache)],
    )


def explanation_of_sight(sight: Sight, kind: str, namespace: str, name: str) -> Explanation:
    """The explanation of one object of a live cluster. Raises Failed where it does not have it."""
    return Explanation(
        kind=kind,
        namespace=namespace,
        name=name,
        source=sight.source,
        profile=sight.outlook.settings.profile.name,
        moment=sight.moment,
        sections=sections_of(sight.outlook, kind, namespace, name),
        warnings=sight.warnings,
    )


def sections_of(outlook: Outlook, kind: str, namespace: str, name: str) -> list[Section]:
    """The sections about one object. Raises Failed where there is no such object."""
    if kind == "Node":
        node = outlook.cache.node(name)
        if node is None:
            raise Failed("not found", on=f"node {name}", remedy="check the name")
        return list(node_sections(outlook, outlook.node(node)))
    pod = outlook.cache.pod(namespace, name)
    if pod is None:
        remedy = "check the name, and the namespace with -n"
        raise Failed("not found", on=f"pod {namespace}/{name}", remedy=remedy)
    return list(pod_sections(outlook, pod))
