"""Which function plays the vectors of which topic.

An adapter module exports `TOPICS`, topic -> function of one case, which raises AssertionError
where the case does not hold. A topic says which system a vector belongs to, so the name of the
folder that vectors come from does not matter.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.conformance import (
    api_budgets,
    ds_vectors,
    kubectl_drain,
    nl_calls,
    nl_controller,
    nl_podgc,
    nl_queue,
    nl_taint_manager,
    nl_vocabulary,
    ps_drift,
    ps_expect,
)

Case = dict[str, Any]
Adapter = Callable[[Case], None]

ADAPTERS = (
    api_budgets,
    ds_vectors,
    kubectl_drain,
    nl_calls,
    nl_controller,
    nl_podgc,
    nl_queue,
    nl_taint_manager,
    nl_vocabulary,
    ps_drift,
    ps_expect,
)

CASE_KEYS = frozenset(
    {
        "basis",
        "expect",
        "expect_derived",
        "given",
        "id",
        "note",
        "profile",
        "requires",
        "source",
        "steps",
        "topic",
    }
)


def topics() -> Mapping[str, Adapter]:
    """Every topic that has an adapter. Raises ValueError where two adapters claim one topic."""
    found: dict[str, Adapter] = {}
    for module in ADAPTERS:
        for topic, adapter in module.TOPICS.items():
            if topic in found:
                raise ValueError(f"two adapters for topic {topic!r}")
            found[topic] = adapter
    return found
