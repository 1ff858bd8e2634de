"""What the running controllers show of their passes and tokens, our copy goes by."""

import json
from pathlib import Path

import pytest

from tests.daemon.lab import SECOND, Lab, lease, make_lab, node, unreachable

RATE = {"node_eviction_rate": "0.05"}  # a token every 20 s


async def with_lost_nodes(folder: Path, *names: str) -> Lab:
    """A daemon that has just called these nodes lost, of eight in the zone."""
    lab = make_lab(folder, **RATE)
    everybody = [f"n{number}" for number in range(8)]
    well = [name for name in everybody if name not in names]
    await lab.begin(*map(node, everybody), *map(lease, everybody))
    await lab.after(57, *well)
    return lab


def lost_node(name: str, *effects: str) -> object:
    taints = tuple(unreachable(effect, 57 * SECOND) for effect in effects)
    return node(name, "Unknown", reason="NodeStatusUnknown", taints=taints)


async def test_a_node_that_was_taken_too_early_goes_back_into_the_queue(tmp_path: Path) -> None:
    lab = await with_lost_nodes(tmp_path, "n0", "n1")
    plans = [t for t in await lab.told() if t[0] == "AddTaint"]
    assert ("AddTaint", "n0", "would") in plans
    for name in ("n0", "n1"):
        await lab.see(lost_node(name, "NoSchedule"))
    await lab.see(lost_node("n1", "NoSchedule", "NoExecute"))  # the token went to the other
    no_execute = [
        (c.name, c.outcome, c.why)
        for c in await lab.changes()
        if c.action == "AddTaint" and "NoExecute" in c.detail
    ]
    assert no_execute == [
        ("n0", "superseded", "the zone's token went to node n1"),
        ("n1", "confirmed", "already done by another controller, 18.999s before ours"),
    ]
    came_ns = lab.now
    await lab.after(19, *(f"n{number}" for number in range(2, 8)))
    assert not [c for c in await lab.changes(outcome="would") if c.action == "AddTaint"]
    await lab.after(2, *(f"n{number}" for number in range(2, 8)))
    (again,) = [c for c in await lab.changes(outcome="would") if c.action == "AddTaint"]
    assert again.name == "n0" and again.time_ns - came_ns >= 20 * SECOND


async def test_the_next_pass_is_a_period_after_the_running_controllers(tmp_path: Path) -> None:
    lab = await with_lost_nodes(tmp_path)
    lifecycle = lab.decisions.host.lifecycle
    assert lifecycle is not None and lifecycle.next_pass_ns is not None
    await lab.after(1.7, every=0.1)
    await lab.see(lost_node("n0"))
    assert lifecycle.next_pass_ns == lab.now + 5 * SECOND
    await lab.after(0.3, every=0.1)
    await lab.see(lost_node("n1"))  # of the same pass
    assert lifecycle.next_pass_ns == lab.now + 4_700_000_000


@pytest.mark.parametrize("acts", [True, False], ids=["controllers-act", "nobody-acts"])
async def test_a_zone_that_stops_ends_what_was_planned_and_not_done(
    tmp_path: Path, acts: bool
) -> None:
    lab = await with_lost_nodes(tmp_path, "n0")
    if acts:
        await lab.see(lost_node("n0", "NoSchedule"))
    await lab.after(70, "n5", "n6", "n7")
    states = [c for c in await lab.changes() if c.action == "SetZoneState"]
    assert [json.loads(c.detail)["to"] for c in states][-1] == "PartialDisruption"
    taints = [c for c in await lab.changes(node="n0") if "NoExecute" in c.detail]
    (planned,) = [c for c in taints if c.action == "AddTaint"]
    assert planned.outcome == ("superseded" if acts else "would")
