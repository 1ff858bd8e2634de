"""The API server's answers to an eviction or a deletion."""

from __future__ import annotations

from typing import Final, NamedTuple

from kubectl_nodelife.workloads.eviction import EvictionRefused

GATE_NAMESPACE: Final = "namespace-terminating"
"""The gate of a refusal because the pod's namespace is being deleted."""


class Accepted(NamedTuple):
    """The eviction or deletion was accepted."""


class Missing(NamedTuple):
    """404: the pod is gone."""


class Conflict(NamedTuple):
    """The API server itself tries again in a moment: another eviction wrote to the budget."""


ACCEPTED = Accepted()
MISSING = Missing()
CONFLICT = Conflict()
Answer = Accepted | Missing | Conflict | EvictionRefused
