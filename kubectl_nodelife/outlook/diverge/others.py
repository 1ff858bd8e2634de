"""Reports what writers other than kube-controller-manager did to nodes, and who they were.

Only the node lifecycle controller sets its taints: one added or removed by somebody else, which the
node's conditions do not ask for, is a difference. Everything else (other taints, cordons, drains,
deleted nodes) is allowed and reported as a note, because it explains what the controllers do next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubectl_nodelife.kube.wellknown import CONTROLLER_MANAGERS, NO_EXECUTE, NO_SCHEDULE
from kubectl_nodelife.outlook.diverge.observations import (
    CERTAIN,
    CORDONED,
    DRAINED,
    EXTRA,
    LIFECYCLE,
    LIKELY,
    OTHER_ACTOR,
    REMOVED,
    TAINTED,
    UNTAINTED,
    Divergence,
    Observations,
    ObservedWrite,
    WriteAuthor,
)
from kubectl_nodelife.outlook.replay.actors import of_manager, owner_of_taint


def others(record: Observations) -> Iterator[Divergence]:
    """Findings from what was seen, one for each node and thing done, oldest first."""
    alike: dict[tuple[str, ...], list[ObservedWrite]] = {}
    for seen in sorted(record.observed, key=lambda s: s.at_ns):
        if seen.at_ns >= record.since_ns and _is_told(seen):
            author = seen.author.manager if seen.author is not None else ""
            detail = "" if seen.what == DRAINED else seen.detail
            alike.setdefault((seen.what, seen.node, detail, author), []).append(seen)
    for group in alike.values():
        yield _finding(group)


def _is_told(seen: ObservedWrite) -> bool:
    manager = seen.author.manager if seen.author is not None else ""
    if seen.what in (CORDONED, REMOVED, DRAINED):
        return True
    if seen.what not in (TAINTED, UNTAINTED):
        return False
    if seen.own:
        return not seen.explained and manager not in ("", *CONTROLLER_MANAGERS)
    keeps_pods_off = seen.detail.endswith((f":{NO_EXECUTE}", f":{NO_SCHEDULE}"))
    return seen.what == TAINTED and keeps_pods_off and manager not in CONTROLLER_MANAGERS


def _finding(group: list[ObservedWrite]) -> Divergence:
    first = group[0]
    own = first.own and first.what in (TAINTED, UNTAINTED)
    return Divergence(
        kind=EXTRA if own else OTHER_ACTOR,
        object_kind="Node",
        name=first.node,
        node=first.node,
        message=_message(group),
        sure=CERTAIN if first.author is not None or first.what != TAINTED else LIKELY,
        note=not own,
        count=len(group),
        controller=LIFECYCLE if own else "",
        action=_ACTIONS[first.what],
        detail=first.detail if first.what in (TAINTED, UNTAINTED) else "",
        seen_ns=first.at_ns,
        author=first.author,
    )


_ACTIONS: Final = {
    TAINTED: "AddTaint",
    UNTAINTED: "RemoveTaint",
    CORDONED: "Cordon",
    REMOVED: "DeleteNode",
    DRAINED: "EvictPod",
}


def _message(group: list[ObservedWrite]) -> str:
    seen, by = group[0], _by(group[0].author)
    ready = {"True": "Ready", "": "without a status"}.get(seen.ready, f"Ready={seen.ready}")
    match seen.what:
        case "tainted" if seen.own:
            return (
                f"taint {seen.detail} of {seen.node} ({ready}) was added{by}; node-lifecycle adds "
                "it only where the node's conditions ask for it, and takes it off again"
            )
        case "untainted":
            return (
                f"taint {seen.detail} of {seen.node} ({ready}) was taken off{by}, while the node's "
                "conditions ask for it; node-lifecycle puts it back"
            )
        case "tainted":
            return f"{seen.node} was tainted {seen.detail}{by or _owner(seen.detail)}"
        case "cordoned":
            return f"{seen.node} was cordoned{by}"
        case "drained":
            pods = "1 pod" if len(group) == 1 else f"{len(group)} pods"
            return f"{pods} of {seen.node} left through the Eviction API: somebody drains it"
    who = by or ": a person, an autoscaler or a cloud controller; no controller here does that"
    return f"node {seen.node} ({ready}) was deleted{who}"


def _by(author: WriteAuthor | None) -> str:
    return f" by {of_manager(author.manager)}" if author is not None else ""


def _owner(taint: str) -> str:
    """Whose taint it is by its key, where nobody is named."""
    owner = owner_of_taint(taint)
    return f" ({owner})" if owner else " by somebody else"
