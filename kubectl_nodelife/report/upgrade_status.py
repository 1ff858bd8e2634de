"""The page of `upgrade status`: run, leader, gates, budgets, and a line for each node in work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubectl_nodelife.kube.duration import human_duration
from kubectl_nodelife.kube.enumeration import counted, first_names
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.report.formats import Block
from kubectl_nodelife.report.screen import BAD, GOOD, WARN, Toned
from kubectl_nodelife.report.table import Column, Table

_COLUMNS: Final = (
    Column("node"),
    Column("pool"),
    Column("zone"),
    Column("state"),
    Column("since"),
    Column("left"),
    Column("try", wide=True),
    Column("cordon", wide=True),
    Column("because"),
)
_BUDGET_COLUMNS: Final = (
    Column("scope"),
    Column("nodes"),
    Column("available"),
    Column("floor"),
    Column("most out", wide=True),
    Column("slots"),
)
_SHOWN: Final = 5
_TONES: Final = {"Done": GOOD, "Failed": BAD, "Held": WARN, "Gone": WARN, "Unreadable": BAD}


class UpgradeStatusPage:
    """An UpgradeStatus document as an answer."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def blocks(self, *, wide: bool) -> Iterable[Block]:
        """The run, what holds it, its nodes, and the budgets."""
        status = self._status
        yield "\n".join(_head(status))
        if status["nodes"]:
            yield Table(_COLUMNS, [_row(node) for node in status["nodes"]])
        if status["budgets"]:
            yield Table(_BUDGET_COLUMNS, [_budget(budget) for budget in status["budgets"]])

    def document(self) -> object:
        """The UpgradeStatus."""
        return self._status

    def names(self) -> Iterable[str]:
        """The nodes that the run has marked."""
        return (f"node/{node['name']}" for node in self._status["nodes"])


def _head(status: dict[str, Any]) -> Iterable[str]:
    if not status["run"]:
        yield "No upgrade is under way, and none was."
        return
    because = f": {status['because']}" if status["because"] else ""
    yield f"Run {status['run']}: {status['phase']}{because}"
    yield _leader(status["leader"])
    if (wish := status["wish"]) is not None:
        yield f"Asked of the leader: {wish['verb']}" + (
            f" ({wish['because']})" if wish["because"] else ""
        )
    if status["phase"] in ("Running", "Paused"):
        yield _step(status["step"])
    for gate in status["gates"]:
        yield f"Held by gate {gate['gate']}: {gate['because']}"
    for hold in status["holds"][:_SHOWN]:
        yield f"Waits: {hold['what']}: {hold['because']}"
    if status["skipped"]:
        some = [f"{node['name']} ({node['because']})" for node in status["skipped"]]
        yield f"Skipped: {first_names(some, _SHOWN, '; ')}"
    if status["failures"]:
        yield f"Failed: {', '.join(status['failures'])}"
    if status["counts"]:
        yield "Nodes: " + ", ".join(f"{n} {state}" for state, n in status["counts"].items())


def _step(step: dict[str, Any]) -> str:
    """Where the run's growth is."""
    names, pool = ", ".join(step["nodes"]), f" of pool {step['pool']}" if step["pool"] else ""
    if step["window"] < 0:
        return "Before the first step: no node was claimed yet"
    if step["window"]:
        limit = counted(step["window"], "node")
        return f"Step {step['k']}{pool} takes {limit}: {names or 'none was chosen yet'}"
    return f"Steps are over{pool}: nodes are taken whenever the limits allow" + (
        f"; chosen: {names}" if names else ""
    )


def _leader(leader: dict[str, Any]) -> str:
    ago = leader["renewedSecondsAgo"]
    since = f"{_span(ago)} ago" if ago is not None else "at a time not told"
    if not leader["holder"]:
        return f"No leader; the last one left {since}"
    if leader["alive"]:
        return f"Leader {leader['holder']}, heard {since}"
    return f"No leader: {leader['holder']} was last heard {since}; start or resume goes on"


def _row(node: dict[str, Any]) -> tuple[object, ...]:
    state = node["state"]
    left = node.get("deadlineSeconds")
    return (
        node["name"],
        node["pool"],
        node["zone"],
        Toned(state, _TONES[state]) if state in _TONES else state,
        _span(node.get("sinceSeconds")),
        _span(left) if left is None or left >= 0 else f"-{_span(-left)}",
        node.get("try", ""),
        node.get("cordon", ""),
        node["because"],
    )


def _budget(budget: dict[str, Any]) -> tuple[object, ...]:
    keys = ("scope", "base", "available", "floor", "mostUnavailable", "slots")
    return tuple(budget[key] for key in keys)


def _span(seconds: int | None) -> str:
    return "" if seconds is None else human_duration(seconds * SECOND_NS)
