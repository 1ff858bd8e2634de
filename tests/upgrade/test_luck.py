"""Plans of upgrades where the scheduler's choice among nodes of the same score is chance."""

from kubectl_nodelife.outlook.upgrade_plan import upgrade_plan_document
from kubectl_nodelife.report.upgrade_plan import headline
from kubectl_nodelife.upgrade.findings import UpgradePlan
from tests.drain.build import Json
from tests.drain.test_luck import BOTH, crowded
from tests.upgrade.test_plan import blue, plan, reasons

BY_CHANCE = "if replacements land on other nodes of the same score"


def tight(*names: str, cpu: str = "4", **policy: Json) -> UpgradePlan:
    return plan(blue("a1"), *crowded(*names, cpu=cpu), **policy)


def test_a_node_that_chance_alone_empties_is_neither_sure_nor_never() -> None:
    found = tight(*BOTH[::-1])
    (a1,) = found.nodes
    assert (a1.decision, a1.by_chance) == ("claim", True), reasons(found)
    assert a1.reason.startswith(f"it may not be done {BY_CHANCE}: ")
    assert headline(found).endswith(", 1 by chance")
    assert found.undone == [a1], "so --exit-code says it"
    assert upgrade_plan_document(found, {})["nodes"][0]["byChance"] is True


def test_what_the_run_itself_holds_is_no_chance() -> None:
    """It looks for room before a claim, and takes the first of equal nodes each time: where it
    finds none, no pod is evicted."""
    found = tight(*BOTH)
    (a1,) = found.nodes
    assert (a1.decision, a1.by_chance) == ("hold", False)
    assert a1.reason.startswith("no room: ")


def test_with_room_on_either_node_chance_decides_nothing() -> None:
    found = tight(*BOTH, cpu="8")
    assert not found.undone and not reasons(found)
    assert "chance" not in headline(found)
