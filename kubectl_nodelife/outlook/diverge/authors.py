"""Who wrote a field of a node at some instant, by its managedFields."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.kube.node import Node
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.outlook.diverge.observations import WriteAuthor

_NEAR_NS: Final = 5 * SECOND_NS
"""managedFields have whole seconds, by the server's clock."""


def author_of(node: Node, field: str, at_ns: int) -> WriteAuthor | None:
    """Who wrote the field at about that instant; None where that is not told."""
    writer = node.managers.writer_of(field)
    if writer is None or abs(writer.time_ns - at_ns) > _NEAR_NS:
        return None
    return WriteAuthor(writer.name, writer.operation, writer.time_ns)
