"""The real DaemonSet controller's acts, from the audit log, against what the daemon told of them.

An act is *planned* where our copy had decided it on what the cluster showed before; *by chance*
where it had planned the same for another of several equal nodes; *missed* where it told nothing;
*extra* is what it planned and nobody did, but for plans whose place such an act of chance took.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tests.real.audited import Json, writes

ACTIONS = (
    "CreateControllerRevision",
    "UpdateControllerRevision",
    "DeleteControllerRevision",
    "CreatePod",
    "DeletePod",
)
_CONTROLLER = "daemon-set-controller"
_CREATED = " was created"
_CHANCE = "is chance"


class Comparison(NamedTuple):
    """One kind of act. `missed` and `extra` name the objects."""

    action: str
    real: int
    planned: int
    by_chance: int
    missed: list[str]
    extra: list[str]

    def line(self) -> str:
        """A line of a table."""
        counts = (self.real, self.planned, self.by_chance, len(self.missed), len(self.extra))
        return f"{self.action:26}" + "".join(f"{count:11}" for count in counts)


HEADER = f"{'':26}" + "".join(
    f"{word:>11}" for word in ("real", "planned", "by chance", "missed", "extra")
)


def compare(audit: Iterable[Json], changes: Iterable[Json]) -> list[Comparison]:
    """A row for each kind of act."""
    real = _real_acts(audit)
    ours = [c for c in changes if c["controller"] == "daemonset"]
    return [
        _row(action, real[action], [c for c in ours if c["action"] == action]) for action in real
    ]


def _row(action: str, real: set[str], ours: list[Json]) -> Comparison:
    confirmed = [c for c in ours if c["outcome"] == "confirmed"]
    chance = [c for c in confirmed if _CHANCE in _why(c)]
    told = {_name(c) for c in confirmed}
    void = [c for c in ours if c["outcome"] != "confirmed" and _CHANCE not in _why(c)]
    return Comparison(
        action,
        real=len(real),
        planned=len(confirmed) - len(chance),
        by_chance=len(chance),
        missed=sorted(real - told),
        extra=sorted(told - real) + sorted(f"{c['object']['name']}: {_why(c)}" for c in void),
    )


def _name(change: Json) -> str:
    """The object's real name: a new one's was made up by our copy."""
    why = _why(change)
    return why.removesuffix(_CREATED) if why.endswith(_CREATED) else change["object"]["name"]


def _why(change: Json) -> str:
    return str(change.get("settledBecause", "still open"))


def _real_acts(audit: Iterable[Json]) -> dict[str, set[str]]:
    verbs = {"create": "Create", "update": "Update", "patch": "Update", "delete": "Delete"}
    kinds = {"pods": "Pod", "controllerrevisions": "ControllerRevision"}
    acts: dict[str, set[str]] = {action: set() for action in ACTIONS}
    for write in writes(audit):
        if write.who != _CONTROLLER or write.subresource:
            continue
        if write.accepted and write.resource in kinds:
            acts[verbs[write.verb] + kinds[write.resource]].add(write.name)
    return acts
