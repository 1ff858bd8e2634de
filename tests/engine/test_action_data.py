"""Each action as data and back, and the numbers by which actions are known."""

from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from kubectl_nodelife.engine.actions import Action, ActionNumbers, AddTaints, DeletePod
from kubectl_nodelife.engine.actions.identity import ACTION_CLASSES, decode_action, encode_action
from kubectl_nodelife.kube.meta import MicroTime, Time
from kubectl_nodelife.kube.node import Taint

INSTANT = 1_767_225_600_123_456_789
"""Finer than what the API writes."""


def sample(type_: Any) -> Any:
    """Some value of a type that is not its default."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is tuple:
        return tuple(sample(each) for each in arguments if each is not Ellipsis)
    if origin is dict:
        return {"spec": {"list": [1, None, "x"]}} if arguments[1] is Any else {"key": "value"}
    if arguments:
        return sample(arguments[0])
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return filled(type_)
    made = {str: "text", int: 7, float: 0.5, bool: True, Any: {"a": 1}}
    return type_(INSTANT) if type_ in (Time, MicroTime) else made[type_]


def filled(type_: Any) -> Any:
    """A struct with a value in each field."""
    hints = {name: hint for name, hint in get_type_hints(type_).items() if name != "cause"}
    return type_(**{name: sample(hints[name]) for name in type_.__struct_fields__ if name in hints})


@pytest.mark.parametrize("kind", ACTION_CLASSES, ids=lambda kind: kind.__name__)
def test_every_action_survives_a_journal(kind: type[Action]) -> None:
    action = filled(kind)
    assert len(set(ACTION_CLASSES)) > 20
    read = decode_action(encode_action(action))
    assert (read, read.id) == (action, action.id)


def test_a_cause_is_not_kept() -> None:
    cause = AddTaints(controller="c", because="b", node="n", taints=(Taint("k"),), id=41)
    action = DeletePod(controller="c", because="b", namespace="d", pod="p", cause=cause, id=42)
    read = decode_action(encode_action(action))
    assert (read.cause, read.id) == (None, 42)


def test_two_decisions_that_say_the_same_are_equal_and_known_apart() -> None:
    numbers = ActionNumbers(5)
    one, other = (DeletePod(controller="c", because="b", namespace="d", pod="p") for _ in "ab")
    numbers.ensure(one)
    numbers.ensure(one)
    again = numbers.give(one)
    numbers.ensure(other)
    assert one == other == again
    assert (one.id, again.id, other.id, numbers.next_id) == (5, 6, 7, 8)
