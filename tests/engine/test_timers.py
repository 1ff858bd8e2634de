"""Timers: one instant a key, the earliest first, and a naive list that must agree."""

import random

import pytest

from kubectl_nodelife.engine.workqueue import Timers


def test_keys_come_out_by_instant_then_by_the_order_of_setting() -> None:
    timers = Timers()
    for key, at_ns in (("c", 5), ("a", 5), ("b", 3)):
        timers.set(key, at_ns)
    assert timers.next_due() == 3
    assert list(timers.pop_due(4)) == ["b"]
    assert list(timers.pop_due(5)) == ["c", "a"]
    assert timers.next_due() is None
    assert len(timers) == 0


def test_setting_a_key_anew_replaces_its_instant() -> None:
    timers = Timers()
    timers.set("a", 5)
    timers.set("a", 9)
    assert timers.get("a") == 9
    assert list(timers.pop_due(8)) == []
    timers.set("a", 2)
    assert list(timers.pop_due(8)) == ["a"]


def test_a_dropped_key_never_comes_out() -> None:
    timers = Timers()
    timers.set("a", 5)
    timers.drop("a")
    timers.drop("never set")
    assert timers.get("a") is None
    assert timers.next_due() is None
    assert list(timers.pop_due(10)) == []


def test_a_key_set_while_others_come_out_comes_out_too_if_it_is_due() -> None:
    timers = Timers()
    timers.set("a", 1)
    seen = []
    for key in timers.pop_due(5):
        seen.append(key)
        if key == "a":
            timers.set("b", 4)
            timers.set("a", 6)
    assert seen == ["a", "b"]
    assert timers.next_due() == 6


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_a_plain_list(seed: int) -> None:
    chance, timers = random.Random(seed), Timers()
    plain: list[tuple[int, str]] = []
    for now_ns in range(300):
        key = chance.choice("abcdefgh")
        plain = [(at, k) for at, k in plain if k != key]
        if chance.random() < 0.2:
            timers.drop(key)
        else:
            at_ns = now_ns + chance.randrange(1, 30)
            timers.set(key, at_ns)
            plain.append((at_ns, key))
        due = [k for at, k in sorted(plain, key=lambda entry: entry[0]) if at <= now_ns]
        plain = [(at, k) for at, k in plain if at > now_ns]
        assert list(timers.pop_due(now_ns)) == due
        assert timers.next_due() == min((at for at, _ in plain), default=None)
        assert len(timers) == len(plain)
