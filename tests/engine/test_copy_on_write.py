"""A dict that was forked behaves as one that was copied, whatever is done to both."""

import random

import pytest

from kubectl_nodelife.copy_on_write import (
    CopyOnWriteDict,
    copy_of_dict,
    entries_of,
    fork_dict,
    made_later,
    peek,
    values_at,
)


def change(dice: random.Random, *dicts: dict[int, int]) -> None:
    """One change, the same in all."""
    key, value = dice.randrange(40), dice.randrange(1000)
    act = dice.randrange(6)
    for one in dicts:
        if act < 3:
            one[key] = value
        elif act == 3:
            one.pop(key, None)
        elif act == 4 and key in one:
            del one[key]
        elif act == 5:
            one.setdefault(key, value)


def check(forked: dict[int, int], copied: dict[int, int]) -> None:
    """Equal in every respect, order included."""
    assert list(forked) == list(forked.keys()) == list(copied)
    assert list(forked.values()) == list(copied.values())
    assert list(forked.items()) == list(copied.items())
    assert dict(forked) == copied == {**forked} and forked == copied
    assert len(forked) == len(copied) and bool(forked) == bool(copied)
    for key in range(40):
        assert (key in forked) == (key in copied)
        assert forked.get(key) == copied.get(key)
        assert forked.get(key, -1) == copied.get(key, -1)
        if key in copied:
            assert forked[key] == copied[key]
        else:
            with pytest.raises(KeyError):
                forked[key]
            with pytest.raises(KeyError):
                forked.pop(key)
            assert forked.pop(key, -1) == -1


@pytest.mark.parametrize("later", [False, True], ids=["there", "made-later"])
@pytest.mark.parametrize("seed", range(50))
def test_forks_are_as_copies(seed: int, later: bool) -> None:
    dice = random.Random(seed)
    first: dict[int, int] = {}
    for _ in range(30):
        change(dice, first)
    own = {key: -key for key in range(0, 40, 7)} if later else {}
    copied = {**first, **own}
    if later:
        first = made_later({key: str(value) for key, value in first.items()}, int, own=own)
    pairs = [(first, copied)]
    for _ in range(60):
        i = dice.randrange(len(pairs))
        forked, copied = pairs[i]
        if dice.random() < 0.1 and len(pairs) < 6:
            mine, theirs = fork_dict(forked)
            pairs[i] = (mine, copied)
            pairs.append((theirs, dict(copied)))
        else:
            change(dice, forked, copied)
        for forked, copied in pairs:
            check(forked, copied)


def test_what_is_made_later_is_made_once_for_all_forks_and_copied_for_each() -> None:
    made: list[str] = []

    def numbers(text: str) -> dict[int, int]:
        made.append(text)
        return {int(text): 1}

    mine, theirs = fork_dict(made_later({"a": "1", "b": "2"}, numbers, copy_of_dict), copy_of_dict)
    assert (len(mine), list(theirs), "a" in mine, made) == (2, ["a", "b"], True, [])
    assert peek(mine, "a") == {1: 1} == mine["a"]
    mine["a"][3] = 3
    assert theirs.get("a") == {1: 1} and theirs["b"] == {2: 1}
    assert made == ["1", "2"]
    assert mine["a"] == {1: 1, 3: 3}


def test_values_that_change_in_place_are_copied_when_they_are_read() -> None:
    mine, theirs = fork_dict({"a": {1: 1}, "b": {2: 2}}, copy_of_dict)
    mine["a"][3] = 3
    assert theirs["a"] == {1: 1} and mine["a"] == {1: 1, 3: 3}
    again, third = fork_dict(mine, copy_of_dict)
    third["a"][4] = 4
    for values in theirs.values():
        values.clear()
    assert again == {"a": {1: 1, 3: 3}, "b": {2: 2}}
    assert third == {"a": {1: 1, 3: 3, 4: 4}, "b": {2: 2}}
    assert theirs == {"a": {}, "b": {}}
    assert theirs.get("c") is None


def test_many_changes_become_a_shared_dict_of_their_own() -> None:
    mine, _ = fork_dict(dict.fromkeys(range(100), 0))
    for key in range(100):
        mine[key] = 1
    mine, theirs = fork_dict(mine)
    assert isinstance(mine, CopyOnWriteDict) and isinstance(theirs, CopyOnWriteDict)
    assert mine._shared is theirs._shared
    assert dict.__len__(mine) == dict.__len__(theirs) == 0
    assert mine == theirs == dict.fromkeys(range(100), 1)


def test_what_is_made_is_what_everybody_sees() -> None:
    def in_order(group: dict[int, int]) -> dict[int, int]:
        return dict(sorted(group.items()))

    shared = {"a": {2: 2, 1: 1}, "b": {4: 4, 3: 3}}
    groups = made_later(shared, in_order, copy_of_dict)
    mine, theirs = fork_dict(groups, copy_of_dict)
    assert [list(group) for _, group in entries_of(mine)] == [[1, 2], [3, 4]]
    theirs["a"][0] = 0
    for forked in fork_dict(theirs, copy_of_dict):
        assert list(peek(forked, "a") or ()) == [1, 2, 0]
        assert list(peek(forked, "b") or ()) == [3, 4] and peek(forked, "c") is None
    assert list(peek(mine, "a") or ()) == [1, 2] and list(shared["a"]) == [2, 1]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_brought_in_order_later_is_as_if_it_had_been_at_once(seed: int) -> None:
    dice = random.Random(seed)
    shuffled = {key: -key for key in dice.sample(range(40), 20)}
    first: dict[int, int] = CopyOnWriteDict(shuffled, in_order=lambda of: dict(sorted(of.items())))
    pairs = [(first, dict(sorted(shuffled.items())))]
    values, wanted = first.values(), list(pairs[0][1].values())
    for _ in range(30):
        forked, copied = dice.choice(pairs)
        if dice.random() < 0.1 and len(pairs) < 6:
            pairs.append((fork_dict(forked)[1], dict(copied)))
        elif forked is not first:
            change(dice, forked, copied)
        keys = [key for key in dice.sample(range(40), 5) if key in copied]
        assert values_at(forked, keys) == [copied[key] for key in keys]
        if dice.random() < 0.2:
            check(forked, copied)
    assert list(values) == list(values) == wanted and len(values) == 20
    for forked, copied in pairs:
        check(forked, copied)
