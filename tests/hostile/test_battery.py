"""The battery (`battery.py`): every way to be believed that was found so far is tried again."""

from typing import Any

import pytest

from kubectl_nodelife.commands.daemon import _enforcement
from tests.deep import one_of
from tests.enforce.simulated_api import Fault, Sent
from tests.hostile.battery import Scenario, Stand, faults_found
from tests.hostile.scenarios import SCENARIOS, lying


@pytest.mark.parametrize("scenario", one_of(15, SCENARIOS), ids=lambda row: row.name)
def test_nothing_is_believed_and_nothing_is_given_up(scenario: Scenario) -> None:
    found, stand = faults_found(scenario)
    assert found == []
    assert stand.judged.total() > 10, "a judge that saw nothing has judged nothing"


def test_there_are_at_least_thirty() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS) >= 30


def test_daemon_status_says_that_the_lease_cannot_be_understood() -> None:
    """Whoever looks why nothing is written finds the Lease, and what is wrong with it."""
    told: list[dict[str, Any]] = []

    def look(stand: Stand) -> None:
        told.append(stand.processes[0].enforcement.state())

    garbled = [lying(target, "no-number", 12, 40).lies for target in ("lease-put", "lease-get")]

    def lies(stand: Stand, sent: Sent) -> Fault | None:
        return next((fault for lie in garbled if (fault := lie(stand, sent))), None)

    found, _ = faults_found(Scenario("a-lease-of-no-number", lies, ((32, look),)))
    assert found == []
    (state,) = told
    assert not state["enforcing"] and "cannot be understood" in state["because"]
    page = "\n".join(_enforcement(state))
    assert "the Lease is not held" in page and "cannot be understood" in page
