"""Another kube-controller-manager takes over while the daemon watches: it remembers nothing.

Upstream such a one counts every node as new: it strips the NoExecute taints of lost nodes
(`markNodeAsReachable`), counts grace periods and tolerations from its own start, and queues lost
nodes anew.
"""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.daemon.changes import ChangeRecord
from kubectl_nodelife.daemon.divergence_recorder import POLL_SECONDS, LeaseWatch
from kubectl_nodelife.daemon.gate import ManagerBegan
from kubectl_nodelife.kube.meta import MicroTime
from kubectl_nodelife.kube.node import LeaseSpec, Node
from tests.daemon.lab import SECOND, T0, Lab, lease, make_lab, node, pod, unreachable

HOLDER = "cp-1_2"


async def found(lab: Lab, action: str) -> list[ChangeRecord]:
    """What the journal holds of these actions, oldest first."""
    changes = sorted(await lab.changes(), key=lambda c: (c.time_ns, c.id))
    return [c for c in changes if c.action == action]


def lost(*effects: str) -> Node:
    """n1, which another controller called lost and tainted with these effects."""
    taints = tuple(unreachable(effect, -100 * SECOND) for effect in effects)
    return node("n1", "Unknown", posted_ns=-200 * SECOND, taints=taints, reason="NodeStatusUnknown")


async def beside_an_outage(tmp_path: Path) -> Lab:
    """A lab in which n1 is lost and tainted for 100 s, and n2 to n4 are well."""
    lab = make_lab(tmp_path)
    well = [node(f"n{i}") for i in (2, 3, 4)]
    leases = [lease(f"n{i}") for i in (2, 3, 4)]
    await lab.begin(lost("NoSchedule", "NoExecute"), *well, *leases, pod("p1", "n1"))
    return lab


async def test_taints_are_stripped_and_timers_begin_afresh(tmp_path: Path) -> None:
    lab = await beside_an_outage(tmp_path)
    await lab.after(20, "n2", "n3", "n4")
    [timer] = await found(lab, "ScheduleEviction")
    assert timer.outcome == "would"
    began = lab.now
    await lab.tell(ManagerBegan(began, HOLDER))
    told = await lab.told()
    assert ("ScheduleEviction", "p1", "superseded") in told
    assert ("RemoveTaint", "n1", "would") in told
    await lab.see(lost("NoSchedule"))  # the new one did it
    assert ("RemoveTaint", "n1", "confirmed") in await lab.told()
    await lab.after(1, "n2", "n3", "n4")
    assert ("AddTaint", "n1", "would") in await lab.told()
    await lab.see(lost("NoSchedule", "NoExecute"))
    *ended, anew = await found(lab, "ScheduleEviction")
    assert {c.outcome for c in ended} == {"superseded"}
    assert anew.outcome != "superseded" and anew.time_ns > began
    assert f"{HOLDER} began as the kube-controller-manager" in lab.decisions.cold_because


async def test_a_silent_node_has_a_whole_grace_period_from_then_on(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    nodes = [node(f"n{i}") for i in (1, 2, 3)]
    await lab.begin(*nodes, *(lease(f"n{i}") for i in (1, 2, 3)))
    await lab.after(48, "n2", "n3")
    began = lab.now
    await lab.after(3, "n2", "n3")  # it is known only when the lease is read
    await lab.tell(ManagerBegan(began, HOLDER))
    await lab.after(46, "n2", "n3")  # 49 s after it began
    assert [t for t in await lab.told() if t[2] == "would"] == []
    await lab.after(7, "n2", "n3")
    lost_at = {c.time_ns for c in await found(lab, "SetNodeCondition")}
    # Its passes come every 5 s from its beginning; the one that finds 50 s over is the 11th.
    assert lost_at == {began + 55 * SECOND}


def test_the_lease_is_read_often_while_nobody_renews_it() -> None:
    watch = LeaseWatch()
    spec = LeaseSpec("cp-1_1", 15, renew_time=MicroTime(900 * SECOND))

    def note(at_s: float, **changed: Any) -> None:
        nonlocal spec
        spec = replace(spec, **changed)
        watch.note(spec, round((1000 + at_s) * SECOND))

    note(0)
    note(5, renew_time=MicroTime(905 * SECOND))
    assert watch.pause_s == POLL_SECONDS and watch.leader is None
    note(10)
    assert watch.pause_s == 0.5
    note(10.5, holder_identity="")
    note(21, holder_identity=HOLDER, renew_time=MicroTime(920_900 * SECOND // 1000))
    assert watch.leader is not None and watch.leader[1] == HOLDER
    assert watch.pause_s == POLL_SECONDS
    for at_s in range(26, 300, 5):
        note(at_s)
    assert watch.pause_s == POLL_SECONDS  # not for ever


async def test_what_the_new_one_did_before_it_was_known_is_not_foretold_again(
    tmp_path: Path,
) -> None:
    lab = await beside_an_outage(tmp_path)
    await lab.after(20, "n2", "n3", "n4")
    began = lab.now
    await lab.see(lost("NoSchedule"))
    anew = unreachable("NoExecute", began + SECOND - T0)
    node = lost("NoSchedule")
    await lab.see(replace(node, spec=replace(node.spec, taints=(*node.spec.taints, anew))))
    lab.pass_by(2)
    await lab.tell(ManagerBegan(began, HOLDER))
    await lab.after(1, "n2", "n3", "n4")
    told = [t for t in await lab.told() if t[0] in ("AddTaint", "RemoveTaint")]
    assert {outcome for _, _, outcome in told} == {"confirmed"} and len(told) == 2
