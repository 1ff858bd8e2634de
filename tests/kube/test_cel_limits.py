"""CEL's limits: whatever stands in a policy is evaluated, fails, or is not evaluated; soon."""

import tracemalloc
from typing import Any

import pytest

from kubectl_nodelife.kube import cel
from kubectl_nodelife.kube.cel.values import MAX_SIZE, PER_CALL_LIMIT

CONSTRUCTS_PER_UNIT = 1
"""Most constructs of an expression that may be evaluated for each unit that it is charged."""


@pytest.mark.parametrize(
    "expression",
    [
        "'a' * 3",
        "true + 1",
        "[1] < [2]",
        "{[1]: 2}",
        "int(1.0 / 0.0)",
        "int(-1e300)",
        "9223372036854775807 + 1",
        "-9223372036854775808 / -1",
        "uint(-1)",
        "int('9' + '" + "9" * 5000 + "')",
        "'a'.startsWith()",
        "[1].filter(x, 1)",
        "'a'.matches('(')",
        "'a'.substring(3)",
        "optional.none().value()",
    ],
)
def test_fails_as_in_the_api_server(expression: str) -> None:
    with pytest.raises(cel.CelError):
        cel.evaluate(expression, {})


@pytest.mark.parametrize(
    "expression",
    [
        "9" * 5000,
        "9223372036854775808",
        "0x" + "f" * 5000,
        "[1].filter(x)",
        "[1].map(x, 1, 2, 3)",
        "optional.of(1).orValue()",
        "'\\q'",
        "'\\ud800'",
        "'''",
        "1 " * 5000,
        "//" * 5000 + "\n\x00",
        "a." * 1000,
        "for",
        "x{y: 1}",
    ],
)
def test_what_cannot_be_read_is_not_known(expression: str) -> None:
    with pytest.raises(cel.Unknown):
        cel.evaluate(expression, {"a": {}})


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 3000 + "1" + ")" * 3000,
        "[" * 3000 + "]" * 3000,
        "[" * 200 + "]" * 200,
        "!" * 3000 + "true",
        "a" + ".b" * 3000,
        "a" + "[0]" * 3000,
        "size(" * 3000 + "a" + ")" * 3000,
        "true ? 1 : " * 3000 + "2",
        "1" + " + 1" * 60_000,
    ],
)
def test_what_is_nested_too_deeply_or_too_long_is_not_evaluated(expression: str) -> None:
    with pytest.raises(cel.NotEvaluated, match=r"nested too deeply|longer than"):
        cel.evaluate(expression, {"a": {}})


@pytest.mark.parametrize(
    "expression, value",
    [
        ("(" * 300 + "1" + ")" * 300, 1),
        ("1" + " + 1" * 20_000, 20_001),
        ("false" + " || false" * 10_000, False),
        ("[" * 50 + "]" * 50 + " == " + "[" * 50 + "]" * 50, True),
    ],
)
def test_what_is_long_but_flat_is_evaluated(expression: str, value: object) -> None:
    assert cel.evaluate(expression, {}) == value


@pytest.mark.parametrize(
    "expression",
    [
        "list.all(a, list.all(b, list.all(c, a + b + c >= 0)))",
        "list.map(a, list.map(b, list.map(c, [a, b, c]))).size() > 0",
        "list.exists(a, list.exists(b, list.exists(c, a == -1)))",
        "[text, text, text].all(a, list.all(b, !a.matches('(a|b|ab)*c')))",
        "list.map(a, text.replace('', text))",
        "list.map(a, list).map(b, b.map(c, text)).map(d, d.join(text))",
        "list.all(a, list == list + list || true) && list.all(a, text + text + text != text)",
    ],
)
def test_what_costs_too_much_is_not_evaluated(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = 0
    value_of = cel.evaluation._Evaluation.value

    def counted(self: Any, node: Any) -> Any:
        nonlocal evaluated
        evaluated += 1
        return value_of(self, node)

    monkeypatch.setattr(cel.evaluation._Evaluation, "value", counted)
    values = {"list": list(range(400)), "text": "ab" * 4000}
    with pytest.raises(cel.NotEvaluated, match=r"units|elements"):
        cel.evaluate(expression, values)
    assert evaluated <= CONSTRUCTS_PER_UNIT * PER_CALL_LIMIT


def test_a_value_that_doubles_is_bounded_in_memory() -> None:
    for first in ("['a']", "'a'"):
        variables = {"v0": first}
        variables |= {f"v{n}": f"variables.v{n - 1} + variables.v{n - 1}" for n in range(1, 64)}
        tracemalloc.start()
        with pytest.raises(cel.NotEvaluated):
            cel.evaluate("variables.v63.size() > 0", {}, variables)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * MAX_SIZE


def test_lists_that_hold_the_same_list_twice_are_compared_within_the_budget() -> None:
    one: list[object] = [1]
    other: list[object] = [1]
    for _ in range(40):
        one, other = [one, one], [other, other]
    with pytest.raises(cel.NotEvaluated):
        cel.evaluate("one == other", {"one": one, "other": other})


def test_a_variable_that_refers_to_itself_is_not_known() -> None:
    with pytest.raises(cel.Unknown, match="refers to itself"):
        cel.evaluate("variables.a", {}, {"a": "variables.b + 1", "b": "variables.a"})


def test_variables_that_refer_to_one_another_are_bounded_in_depth() -> None:
    variables = {f"v{n}": f"!variables.v{n + 1}" for n in range(2000)} | {"v2000": "true"}
    with pytest.raises(cel.NotEvaluated, match=r"nested too deeply"):
        cel.evaluate("variables.v0", {}, variables)


def test_regular_expressions_take_time_in_proportion_to_the_text() -> None:
    """RE2 does, whatever the expression. An engine that tries again would not come back."""
    assert type(cel.functions._expression("a")).__module__ == "re2"
    assert not cel.evaluate("name.matches('^([a-z0-9]+-?)+$')", {"name": "a" * 63 + "!"})
    assert not cel.evaluate("name.matches('^(a+)+$')", {"name": "a" * 5000 + "!"})


def test_a_look_ahead_is_not_re2() -> None:
    with pytest.raises(cel.CelError, match="regular expression"):
        cel.evaluate("'a'.matches('a(?=b)')", {})


def test_a_macros_variable_ends_with_the_macro() -> None:
    assert cel.evaluate("[1].exists(x, x == 1) && [2].all(y, [3].all(x, x == 3) && y == 2)", {})
    with pytest.raises(cel.Unknown, match="x is not known"):
        cel.evaluate("[1, 2].exists(x, x == 1) && x == 1", {})
    with pytest.raises(cel.Unknown, match="x is not known"):
        cel.evaluate("[1].map(x, variables.inner)", {}, {"inner": "x"})


def test_expressions_share_a_budget() -> None:
    whole = cel.Budget(3000)
    policy = cel.Budget(2000, within=whole)
    cel.evaluate("list.all(x, x >= 0)", {"list": list(range(300))}, budget=policy)
    assert 1000 < whole.left < 2500 and policy.left < 1000
    with pytest.raises(cel.NotEvaluated):
        cel.evaluate("list.all(x, x >= 0)", {"list": list(range(300))}, budget=policy)


def test_the_limit_of_one_expression_is_the_api_servers() -> None:
    assert PER_CALL_LIMIT == 1_000_000
