"""Who tolerates what and for how long, arithmetic on taint lists, taints as text."""

import pytest

from kubectl_nodelife.kube.node import Taint
from kubectl_nodelife.kube.pod import Toleration
from kubectl_nodelife.kube.taints import (
    add_or_update_taints,
    default_tolerations,
    find_matching_untolerated_taint,
    first_tolerating,
    matching_tolerations,
    min_toleration_seconds,
    no_execute_taints,
    parse_taint,
    parse_taint_to_remove,
    remove_taints,
    swap_taints,
    tolerates,
)

S = 1_000_000_000
A = Taint("a", "NoExecute", "1")
B = Taint("b", "NoSchedule")
C = Taint("c", "NoExecute")


def exists(key: str = "", effect: str = "", seconds: int | None = None) -> Toleration:
    return Toleration(key=key, operator="Exists", effect=effect, toleration_seconds=seconds)


def compare(operator: str, value: str) -> Toleration:
    return Toleration(key="sla", operator=operator, value=value, effect="NoSchedule")


TOLERATES = {
    "Exists of the key and effect": (exists("a", "NoExecute"), A, True),
    "Exists of the key, every effect": (exists("a"), A, True),
    "Exists of every key": (exists(), A, True),
    "Exists of another key": (exists("b"), A, False),
    "another effect": (exists("a", "NoSchedule"), A, False),
    "no operator means Equal": (Toleration(key="a", value="1"), A, True),
    "Equal, other value": (Toleration(key="a", operator="Equal", value="2"), A, False),
    "Equal with an empty key compares values": (Toleration(operator="Equal", value="1"), A, True),
    "unknown operator": (Toleration(key="a", operator="Like", value="1"), A, False),
}

COMPARED = {
    "950 > 900": ("Gt", "900", "950", True),
    "900 > 900": ("Gt", "900", "900", False),
    "850 < 900": ("Lt", "900", "850", True),
    "-1 < 0": ("Lt", "0", "-1", True),
    "a sign is allowed": ("Gt", "0", "+5", True),
    "largest int64": ("Gt", "9223372036854775806", "9223372036854775807", True),
    "beyond int64": ("Gt", "1", "9223372036854775808", False),
    "words": ("Lt", "900", "low", False),
    "toleration not a number": ("Lt", "many", "1", False),
    "blank": ("Lt", "900", " 1", False),
    "underscore": ("Lt", "900", "1_0", False),
    "empty": ("Lt", "900", "", False),
}


@pytest.mark.parametrize(("toleration", "taint", "expected"), TOLERATES.values(), ids=TOLERATES)
def test_tolerates(toleration: Toleration, taint: Taint, expected: bool) -> None:
    assert tolerates(toleration, taint) is expected
    assert tolerates(toleration, taint, comparison_operators=True) is expected


@pytest.mark.parametrize(
    ("operator", "limit", "value", "expected"), COMPARED.values(), ids=COMPARED
)
def test_tolerates_by_comparison(operator: str, limit: str, value: str, expected: bool) -> None:
    taint = Taint("sla", "NoSchedule", value)
    assert tolerates(compare(operator, limit), taint, comparison_operators=True) is expected
    assert tolerates(compare(operator, limit), taint) is False


UNTOLERATED = {
    "no taints": ((), (), None, None),
    "first of two": ((A, B, C), (exists("a"),), None, B),
    "only the effects asked for": ((A, B, C), (exists("a"),), ("NoExecute",), C),
    "a filter that accepts nothing": ((A, B, C), (), (), None),
    "all tolerated": ((A, B, C), (exists(),), None, None),
}


@pytest.mark.parametrize(
    ("taints", "tolerations", "effects", "expected"), UNTOLERATED.values(), ids=UNTOLERATED
)
def test_find_matching_untolerated_taint(
    taints: tuple[Taint, ...],
    tolerations: tuple[Toleration, ...],
    effects: tuple[str, ...] | None,
    expected: Taint | None,
) -> None:
    assert find_matching_untolerated_taint(taints, tolerations, effects) == expected


def test_matching_tolerations_takes_the_first_for_each_taint() -> None:
    wildcard, short = exists(seconds=60), exists("a", seconds=5)
    assert matching_tolerations((A, C), (wildcard, short)) == (True, (wildcard, wildcard))
    assert matching_tolerations((A, C), (short, wildcard)) == (True, (short, wildcard))
    assert matching_tolerations((A, C), (short,)) == (False, ())
    assert matching_tolerations((), ()) == (True, ())
    assert first_tolerating((short, wildcard), C) is wildcard


def test_comparison_operators_reach_the_searches() -> None:
    taint, over_five = Taint("sla", "NoSchedule", "9"), compare("Gt", "5")
    assert find_matching_untolerated_taint((taint,), (over_five,)) is taint
    assert (
        find_matching_untolerated_taint((taint,), (over_five,), comparison_operators=True) is None
    )
    assert matching_tolerations((taint,), (over_five,), comparison_operators=True)[0]
    assert not matching_tolerations((taint,), (over_five,))[0]


MIN_TIME = {
    "no tolerations": ((), 0),
    "for ever": ((None, None), None),
    "unset is ignored": ((None, 7), 7),
    "the shortest": ((300, 60), 60),
    "zero": ((300, 0), 0),
    "negative is zero": ((-3, 300), 0),
}


@pytest.mark.parametrize(("seconds", "expected"), MIN_TIME.values(), ids=MIN_TIME)
def test_min_toleration_time(seconds: tuple[int | None, ...], expected: int | None) -> None:
    assert min_toleration_seconds(exists(seconds=s) for s in seconds) == expected


def test_no_execute_taints() -> None:
    assert no_execute_taints((A, B, C)) == (A, C)


def test_add_or_update_taints() -> None:
    taints = (A, B)
    assert add_or_update_taints(taints, (A,)) is taints
    assert add_or_update_taints(taints, ()) is taints
    assert add_or_update_taints(taints, (C,)) == (A, B, C)
    other_value, other_effect = Taint("a", "NoExecute", "2"), Taint("a", "NoSchedule", "1")
    assert add_or_update_taints(taints, (other_value, other_effect)) == (
        other_value,
        B,
        other_effect,
    )


def test_remove_taints() -> None:
    taints = (A, B, C)
    assert remove_taints(taints, (Taint("a", "NoExecute"),)) == (B, C)
    assert remove_taints(taints, (Taint("a", "NoSchedule"),)) is taints
    assert remove_taints(taints, (Taint("c", ""),)) == (A, B)


def test_swap_stamps_and_replaces() -> None:
    swapped = swap_taints((A, B, C), add=(Taint("c", "NoExecute"),), remove=(A,), now_ns=5 * S)
    assert swapped == (B, Taint("c", "NoExecute", "", 5 * S))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("dedicated=gpu:NoExecute", Taint("dedicated", "NoExecute", "gpu")),
        ("old:NoSchedule", Taint("old", "NoSchedule")),
        ("x.io/y=:PreferNoSchedule", Taint("x.io/y", "PreferNoSchedule")),
    ],
)
def test_parse_taint(text: str, taint: Taint) -> None:
    assert parse_taint(text) == taint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key", "has no effect"),
        ("key:", "unknown effect ''"),
        ("key:noexecute", "unknown effect 'noexecute'"),
        (":NoExecute", "'' is not a valid key"),
        ("a b:NoExecute", "'a b' is not a valid key"),
        ("a=b c:NoExecute", "'b c' is not a valid value"),
        ("a:NoExecute-", "unknown effect 'NoExecute-'"),
    ],
)
def test_parse_taint_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_taint(text)


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("old:NoSchedule", Taint("old", "NoSchedule")),
        ("old:NoSchedule-", Taint("old", "NoSchedule")),
        ("old=1:NoSchedule-", Taint("old", "NoSchedule", "1")),
        ("old-", Taint("old", "")),
    ],
)
def test_parse_taint_to_remove(text: str, taint: Taint) -> None:
    assert parse_taint_to_remove(text) == taint


def test_parse_taint_to_remove_refuses() -> None:
    with pytest.raises(ValueError, match="unknown effect 'Never'"):
        parse_taint_to_remove("old:Never-")


NOT_READY = exists("node.kubernetes.io/not-ready", "NoExecute", 300)
UNREACHABLE = exists("node.kubernetes.io/unreachable", "NoExecute", 300)
DEFAULTED = {
    "nothing there": ((), (NOT_READY, UNREACHABLE)),
    "a wildcard covers both": ((exists(),), (exists(),)),
    "every effect covers its key": (
        (exists("node.kubernetes.io/not-ready"),),
        (exists("node.kubernetes.io/not-ready"), UNREACHABLE),
    ),
    "another effect does not": ((exists(effect="NoSchedule"),), None),
}


@pytest.mark.parametrize(("given", "expected"), DEFAULTED.values(), ids=DEFAULTED)
def test_default_tolerations(
    given: tuple[Toleration, ...], expected: tuple[Toleration, ...] | None
) -> None:
    expected = (*given, NOT_READY, UNREACHABLE) if expected is None else expected
    assert default_tolerations(given) == expected


def test_default_tolerations_takes_the_flags_values() -> None:
    got = default_tolerations((), not_ready_seconds=1, unreachable_seconds=2)
    assert [t.toleration_seconds for t in got] == [1, 2]
