"""When a leader decides nothing, for nothing could be written."""

from types import SimpleNamespace
from typing import Any, cast

from kubectl_nodelife.acts.upgrade.leader import used_up, why_shut
from kubectl_nodelife.engine.guard import HALF_OPEN_NS, Breaker, Caps

NOW_NS = 10 * HALF_OPEN_NS


def shut(leads: bool = True, **fields: Any) -> str:
    parts: dict[str, Any] = {
        "kill_switch": SimpleNamespace(present=False),
        "intents": SimpleNamespace(error=""),
        "guard": SimpleNamespace(breakers={}),
        "monotonic_ns": lambda: NOW_NS,
    }
    lease = SimpleNamespace(leads=lambda: leads)
    return why_shut(cast(Any, SimpleNamespace(**{**parts, **fields})), cast(Any, lease))


def breaker(age_ns: int) -> SimpleNamespace:
    opened = Breaker("errors", "5 of the last 10 writes failed", NOW_NS - age_ns, heals=True)
    return SimpleNamespace(breakers={("errors", "x"): opened})


def test_a_leader_that_holds_the_lease_and_may_write_decides() -> None:
    assert shut() == ""


def test_without_lease_switch_or_journal_nothing_is_decided() -> None:
    assert "not held" in shut(leads=False)
    assert "nodelife-stop" in shut(kill_switch=SimpleNamespace(present=True))
    assert "disk full" in shut(intents=SimpleNamespace(error="disk full"))


def test_an_open_breaker_holds_decisions_until_one_write_may_try() -> None:
    assert "5 of the last 10" in shut(guard=breaker(HALF_OPEN_NS - 1))
    assert shut(guard=breaker(HALF_OPEN_NS)) == "", "else no write would ever close it"


def test_a_leader_that_has_sent_twice_what_its_plan_needs_ends_and_says_so() -> None:
    def ends(total: int | None, sent: int) -> str:
        guard = SimpleNamespace(caps=Caps(total=total), sent=sent)
        return used_up(cast(Any, SimpleNamespace(guard=guard)))

    assert not ends(10, 9) and not ends(None, 10_000)
    assert "10 writes" in ends(10, 10) and "upgrade status" in ends(10, 10)
