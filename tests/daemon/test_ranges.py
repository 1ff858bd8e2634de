"""Instants that hang on what cannot be seen are told as a range, and placed in its middle."""

from pathlib import Path

from kubectl_nodelife.controllers.nodelifecycle.memory import PHASE_HOLDS_NS, Memory
from kubectl_nodelife.daemon.changes import document
from kubectl_nodelife.engine.settings import make_settings
from kubectl_nodelife.kube.times import format_micro_time
from kubectl_nodelife.outlook.eviction_forecast import Range
from tests.daemon.lab import SECOND, T0, Lab, lease, make_lab, node, pod


async def silent_since(lab: Lab, seconds: int) -> None:
    """n1 renewed its lease last at T0; n2 and n3 are well."""
    nodes = [node(f"n{i}") for i in (1, 2, 3)]
    await lab.begin(*nodes, *(lease(f"n{i}") for i in (1, 2, 3)), pod("p1", "n1"))
    await lab.after(3, "n2", "n3")
    await lab.see(lease("n1", 3 * SECOND))
    await lab.after(seconds - 3, "n2", "n3")


async def test_the_first_loss_comes_within_a_period_and_what_follows_keeps_its_distance(
    tmp_path: Path,
) -> None:
    lab = make_lab(tmp_path)
    await silent_since(lab, 60)
    found = await lab.changes()
    lost = [c for c in found if c.action in ("SetNodeCondition", "MarkPodNotReady")]
    assert {c.action for c in lost} == {"SetNodeCondition", "MarkPodNotReady"}
    for change in lost:
        # The pass that notices the renewal at 3 s comes within 5 s, and the loss 50 s after it.
        assert (change.earliest_ns, change.latest_ns) == (T0 + 53 * SECOND, T0 + 58 * SECOND)
        assert change.time_ns == T0 + round(55.5 * SECOND)
        told = document(change)
        assert told["earliestTime"] == format_micro_time(T0 + 53 * SECOND)
        assert told["latestTime"] == format_micro_time(T0 + 58 * SECOND)


async def test_once_a_loss_has_shown_a_pass_there_is_no_range(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    await silent_since(lab, 53)
    gone = node("n1", "Unknown", reason="NodeStatusUnknown")
    before = lab.look().outlook.node(lab.decisions.host.cache.nodes["n2"]).unknown_in
    assert before is not None and before.high_ns - before.low_ns == 5 * SECOND
    await lab.see(gone)  # the running controller called it lost: one of its passes began
    begun = lab.now
    of_n2 = lab.look().outlook.node(lab.decisions.host.cache.nodes["n2"]).unknown_in
    assert of_n2 is not None and of_n2.low_ns == of_n2.high_ns
    await lab.after(75, "n3")  # n2 falls silent
    lost = [c for c in await lab.changes() if (c.action, c.name) == ("SetNodeCondition", "n2")]
    assert lost and all(c.earliest_ns is None for c in lost)
    assert {(c.time_ns - begun) % (5 * SECOND) for c in lost} == {0}


def test_a_range_has_its_middle() -> None:
    assert Range(2, 6).middle_ns == 4


def test_a_phase_that_was_seen_long_ago_is_not_known_any_more() -> None:
    memory = Memory(make_settings("v1.36"))
    assert not memory.knows_phase(0)
    memory.phase_seen_ns = 0
    assert memory.knows_phase(PHASE_HOLDS_NS - 1) and not memory.knows_phase(PHASE_HOLDS_NS)
