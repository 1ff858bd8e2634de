"""What goes wrong in a simulated upgrade, made from a seed."""

import random
from typing import Any

import msgspec

from tests.sim.documents import Json
from tests.upgrade.fleet_objects import NODES

_JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": "default"},
    "spec": {
        "template": {"spec": {"containers": [{"name": "c", "image": "registry.example/u:1"}]}}
    },
}
MODES: tuple[tuple[Json, Json], ...] = (
    ({}, {"work": {"mode": "run", "command": "-"}}),
    ({}, {"work": {"mode": "wait"}}),
    ({}, {"work": {"mode": "job", "manifest": _JOB}}),
    ({"mode": "kubelet"}, {"target": ["kubeletVersion=v1.37.0"]}),
    ({"mode": "replace"}, {"work": {"mode": "replace"}, "target": []}),
)
"""What the work is besides a command that may be run twice: (scenario's work, policy)."""


KINDS = ("dies", "asleep", "cut_off", "lags", "errors", "people", "machines")
ACTS = ("cordon", "uncordon", "edit", "strip", "delete", "pause", "resume", "untaint")


class Plan(msgspec.Struct, frozen=True):
    """What goes wrong, made from a seed.

    `dies_at`: numbers of actions at which the leader dies, before (even) or after (odd) the call.
    `asleep`, `cut_off`, `lags`: (minute, seconds); a leader that lags is told late of what happens,
    and its calls get through. `errors`: share of calls that fail; `lost`: of those, the share that
    is done all the same. `people`: (minute, what, node). `machines`: (node, how).
    `races`: share of claims that a person's cordon comes before by a moment. `budgets`: whether
    workloads have them; without, zones are taken faster. `abort_at`: the minute of `upgrade abort`,
    0 for none.
    """

    dies_at: tuple[int, ...] = ()
    back_after_s: int = 60
    asleep: tuple[tuple[int, int], ...] = ()
    cut_off: tuple[tuple[int, int], ...] = ()
    knows_it_is_cut_off: bool = True
    errors: float = 0.0
    lost: float = 0.5
    people: tuple[tuple[int, str, str], ...] = ()
    machines: tuple[tuple[str, str], ...] = ()
    policy: Json = {}
    work: Json = {}
    seed: int = 0
    abort_at: int = 0
    lags: tuple[tuple[int, int], ...] = ()
    races: float = 0.0
    budgets: bool = True

    @property
    def is_mild(self) -> bool:
        """True if nothing but the leader and its calls has faults: all nodes must be done."""
        return not (self.people or self.machines or self.abort_at or self.races)


def plan_of(seed: int) -> Plan:
    """The faults of a seed: one to three kinds of them."""
    chance = random.Random(seed)
    kinds = chance.sample(KINDS, 2)
    made: dict[str, Any] = {"seed": seed, "back_after_s": chance.choice((5, 60, 400))}
    if "dies" in kinds:
        made["dies_at"] = tuple(sorted(chance.sample(range(1, 160), chance.randint(1, 4))))
    for kind in ("asleep", "cut_off", "lags"):
        if kind in kinds:
            lengths = (5, 30, 50, 120, 900)
            made[kind] = tuple(
                (chance.randint(1, 40), chance.choice(lengths)) for _ in range(chance.randint(1, 3))
            )
    made["knows_it_is_cut_off"] = chance.random() < 0.5
    if "errors" in kinds:
        made["errors"], made["lost"] = chance.choice((0.05, 0.3)), chance.random()
    if "people" in kinds:
        made["people"] = tuple(
            (chance.randint(1, 40), chance.choice(ACTS), chance.choice(NODES)) for _ in range(4)
        )
        made["races"] = 0.2
    if "lags" in kinds:
        made["people"] = made.get("people", ()) + tuple(
            (minute + i % 2, "cordon", name)
            for minute, _ in made["lags"]
            for i, name in enumerate(chance.sample(NODES, 3))
        )
    if "machines" in kinds:
        hows = ("never-returns", "no-effect", "flaps", "cni", "canary-hangs", "drain-never")
        made["machines"] = tuple(
            (name, chance.choice(hows)) for name in chance.sample(NODES, chance.randint(1, 3))
        )
        made["policy"] = {"maxFailures": chance.choice((0, 1, 20))}
    if chance.random() < 0.3:
        made["work"] = {"jitter": "60s", "seed": seed}
    if chance.random() < 0.15:
        made["abort_at"] = chance.randint(2, 30)
    work, policy = chance.choice(MODES) if chance.random() < 0.5 else ({}, {})
    if chance.random() < 0.5:
        policy = {**policy, "zones": 1}
    if chance.random() < 0.5 and "mode" not in work:
        work = {**work, "down": "75s", "duration": "100s"}
    made["budgets"] = chance.random() < 0.7
    if chance.random() < 0.2:
        policy = {**policy, "includeCordoned": True}
        made["people"] = (*made.get("people", ()), (0, "cordon", chance.choice(NODES)))
    made["work"] = {**made.get("work", {}), **work}
    made["policy"] = {**made.get("policy", {}), **policy}
    return Plan(**made)
