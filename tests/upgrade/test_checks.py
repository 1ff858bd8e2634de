"""What `status` says of a node's checks: the controller's own rules, asked by one who looks on."""

from __future__ import annotations

from kubectl_nodelife.controllers.upgrade.document import document_of
from kubectl_nodelife.controllers.upgrade.fleet_counts import NodeReadings
from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.memory import UpgradeMemory
from kubectl_nodelife.controllers.upgrade.ports import HostState
from kubectl_nodelife.controllers.upgrade.settling import checks_of
from kubectl_nodelife.controllers.upgrade.upgrade_pass import UpgradePass
from kubectl_nodelife.kube.node import Lease
from tests.upgrade.stand import Stand
from tests.upgrade.stand_cluster import LEASE_KEY


def seen(s: Stand, name: str, waits_for: str = "", unread: tuple[str, ...] = ()) -> dict[str, str]:
    """check -> result, with what is waited for, as a reader without any memory sees it."""
    lease = s.cache.get("Lease", LEASE_KEY)
    assert isinstance(lease, Lease)
    ports = s.controller.ports
    host = HostState(unread=unread)
    memory = UpgradeMemory(s.now_ns, NodeReadings(s.policy, ports.zones))
    document = document_of(lease)
    assert document is not None
    p = UpgradePass(s.cache, host, s.now_ns, s.policy, ports, memory, lease, document, 0)
    found = checks_of(p, s.node(name), s.mark_of(name), waits_for)
    return {c.check: f"{c.result}: {c.because}".removesuffix(": ") for c in found}


def worked_on(**policy: object) -> Stand:
    s = Stand(**{"target": ["kubeletVersion=v1.36.0"], **policy})
    s.add_nodes("x", "y", "z", version="v1.36.0")
    s.mark("x", NodeState.SETTLING)
    s.run(1)
    return s


def test_in_settling_what_only_the_leader_watches_is_not_evaluated() -> None:
    found = seen(worked_on(), "x")
    assert list(found) == ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9"]
    assert found["S2"] == "not evaluated: only the leader counts renewals"
    assert found["S4"].startswith("not evaluated: Ready now")
    assert {found[c] for c in ("S1", "S3", "S5", "S6", "S7", "S8", "S9")} == {"passed"}


def test_the_leaders_word_fills_in_what_it_alone_sees() -> None:
    found = seen(worked_on(), "x", "S4: Ready for 20s of 60s")
    assert found["S2"] == "passed: as the leader saw it"
    assert found["S4"] == "waits: Ready for 20s of 60s"


def test_what_is_there_to_see_is_judged_by_the_controllers_rule_whatever_the_leader_said() -> None:
    s = worked_on(target=["kubeletVersion=v1.37.0"])
    found = seen(s, "x", "S6: taint a:NoSchedule was not there before")
    assert found["S3"] == "waits: target kubeletVersion=v1.37.0 is not met"
    assert found["S6"] == "passed"


def test_kinds_that_cannot_be_read_leave_their_checks_open() -> None:
    found = seen(worked_on(), "x", unread=("CSINode", "DaemonSet"))
    assert found["S7"] == "not evaluated: DaemonSet could not be read"
    assert found["S8"] == "not evaluated: CSINode could not be read"


def test_states_without_checks_have_none() -> None:
    s = Stand()
    s.add_nodes("x", "y", "z")
    s.mark("x", NodeState.DONE)
    assert seen(s, "x") == {}


def test_a_proof_is_told_step_by_step() -> None:
    s = worked_on()
    s.scheduler = False
    s.run(120)
    assert s.state("x") == NodeState.PROVING
    found = seen(s, "x")
    assert list(found) == ["P1", "P2", "P3", "P4", "P6", "P7"]
    assert found["P1"] == found["P2"] == "passed"
    assert found["P3"] == "waits: the scheduler has not looked at the canary yet"
    assert found["P4"] == found["P7"] == "not reached"
    s.scheduler = True
    s.run(5)
    found = seen(s, "x")
    assert found["P3"] == "passed" and found["P4"].startswith("not evaluated: Ready now")
    assert found["P7"] == "not reached"
    told = seen(s, "x", "P4: the canary has been Ready for less than 10 s")
    assert told["P4"] == "waits: the canary has been Ready for less than 10 s"


def test_a_taint_that_is_missing_shows_in_the_first_step_of_a_proof() -> None:
    s = worked_on()
    s.scheduler = False
    s.run(120)
    s.edit("x", spec={"taints": ()})
    assert seen(s, "x")["P1"] == "waits: taint nodelife.dev/unproven is not there"


def test_a_reader_and_the_leader_agree_from_the_end_of_the_work_to_the_end() -> None:
    """Whatever the controller waits for, a reader with its word names the same check."""
    s = worked_on()
    told = set()
    for _ in range(120):
        progress = s.controller.memory.nodes.get("x")
        waits_for = progress.waits_for if progress is not None else ""
        if s.state("x") in (NodeState.SETTLING, NodeState.PROVING) and waits_for:
            waiting = [c for c, r in seen(s, "x", waits_for).items() if r.startswith("waits")]
            assert waiting[:1] == [waits_for.partition(":")[0]], waits_for
            told.add(waiting[0])
        s.run(2, every=2)
    assert {"S2", "S4", "P4"} <= told and NodeState.DONE in s.went_through("x")
