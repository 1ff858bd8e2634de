"""Nodes, pods and leases for the tests of pod status, in a few words each."""

from typing import Any

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.pod import Pod
from kubectl_nodelife.kube.times import SECOND_NS, format_micro_time, parse_time
from kubectl_nodelife.workloads.force_advice import NodeReadiness, node_readiness
from tests import objects
from tests.objects import typed

NOW_NS: int = parse_time("2026-01-01T12:00:00Z")
LONG_AGO_S = 86_400


def ago(seconds: float) -> str:
    """The instant so many seconds before now, as the API writes it."""
    return format_micro_time(NOW_NS - round(seconds * SECOND_NS))


def node(
    name: str = "n1",
    ready: str | None = "True",
    *,
    ready_for: float = LONG_AGO_S,
    heartbeat: float | None = 5,
    reason: str = "",
    taints: tuple[str, ...] = (),
) -> Node:
    """A node; `heartbeat`: seconds since its last status post, None for none."""
    given = [objects.taint(*text.split(":")) for text in taints]
    beat = None if heartbeat is None else ago(heartbeat)
    about = {"heartbeat": beat, "taints": given, "version": "7"}
    return typed(objects.node(name, ready, reason, since=ago(ready_for), **about))


def health(**of_node: Any) -> NodeReadiness:
    """The health of such a node, without a lease."""
    return node_readiness(node(**of_node), None)


def pod(name: str = "web", **fields: Any) -> Pod:
    """A healthy pod on n1; `fields` are merged into its JSON, with `__` between the keys of a path.

    `conditions` maps type -> status, or (status, reason, message), or None to leave it out.
    """
    conditions = {"Initialized": "True", "Ready": "True", "ContainersReady": "True"}
    conditions |= fields.pop("conditions", {})
    since = fields.pop("since", LONG_AGO_S)
    container = {"name": "c", "ready": True, "state": {"running": {"startedAt": ago(LONG_AGO_S)}}}
    raw = objects.pod(
        name,
        namespace="shop",
        uid=f"u-{name}",
        version="9",
        conditions=[_condition(type_, word, since) for type_, word in conditions.items() if word],
        status={"containerStatuses": [container]},
        containers=[{"name": "c"}],
        restartPolicy="Always",
    )
    for path, value in fields.items():
        *parents, key = path.split("__")
        place = raw
        for parent in parents:
            place = place[parent]
        place[key] = value
    return typed(raw)


def marked(name: str = "web", *, since: float = 300, **fields: Any) -> Pod:
    """A pod that the node controller marked so many seconds ago."""
    return pod(
        name, conditions={"Ready": "False"} | fields.pop("conditions", {}), since=since, **fields
    )


def owner(kind: str, name: str = "owner") -> list[dict[str, Any]]:
    """Owner references with that controller."""
    return [{"kind": kind, "name": name, "uid": "u-owner", "controller": True}]


def _condition(type_: str, word: Any, since: float) -> objects.Document:
    says = (word,) if isinstance(word, str) else word
    return objects.condition(type_, *says, changed=ago(since))
