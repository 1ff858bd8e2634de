"""What `status` says of a node's checks: the leader's word for the one that it waits for."""

from kubectl_nodelife.controllers.upgrade.marks import NodeState
from kubectl_nodelife.controllers.upgrade.report import report_of
from kubectl_nodelife.controllers.upgrade.settling import CHECKS as SETTLING
from kubectl_nodelife.outlook.upgrade_status import CHECKS, checks_of
from tests.upgrade.stand import Stand


def told(state: NodeState, waits_for: str, *, is_told: bool = True) -> dict[str, str]:
    """check -> result, with what is waited for."""
    found = checks_of(state, waits_for, is_told=is_told)
    return {c["check"]: f"{c['result']}: {c['because']}".removesuffix(": ") for c in found}


def worked_on(**policy: object) -> Stand:
    s = Stand(**{"target": ["kubeletVersion=v1.36.0"], **policy})
    s.add_nodes("x", "y", "z", version="v1.36.0")
    s.mark("x", NodeState.SETTLING)
    s.run(1)
    return s


def test_what_stands_before_the_check_that_is_waited_for_has_passed() -> None:
    found = told(NodeState.SETTLING, "S4: Ready for 20s of 60s")
    assert list(found) == list(SETTLING), "in the order in which the leader evaluates them"
    assert {found[check] for check in ("S1", "S2", "S3")} == {"passed"}
    assert found["S4"] == "waits: Ready for 20s of 60s"
    assert {found[check] for check in ("S5", "S9")} == {"not reached"}


def test_without_a_word_of_the_leader_no_check_is_evaluated() -> None:
    assert set(told(NodeState.SETTLING, "").values()) == {"not evaluated"}
    assert set(told(NodeState.PROVING, "no scheduler").values()) == {"not evaluated"}
    assert set(told(NodeState.SOAKING, "", is_told=False).values()) == {"not evaluated"}
    assert told(NodeState.DONE, "") == {}


def test_a_node_in_soaking_of_which_nothing_is_said_passes() -> None:
    assert set(told(NodeState.SOAKING, "").values()) == {"passed"}


def test_whatever_the_leader_waits_for_is_one_of_the_checks_that_are_shown() -> None:
    s = worked_on()
    waited = set()
    for _ in range(120):
        assert s.controller.last is not None
        state, waits_for = s.state("x"), report_of(s.controller.last).waits.get("x", "")
        if state in (NodeState.SETTLING, NodeState.PROVING) and waits_for:
            check = waits_for.partition(":")[0]
            assert check in CHECKS[NodeState(state)], waits_for
            assert told(NodeState(state), waits_for)[check].startswith("waits: ")
            waited.add(check)
        s.run(2, every=2)
    assert {"S2", "S4", "P4"} <= waited and NodeState.DONE in s.went_through("x")
