"""CEL against the reference implementation, google/cel-cpp, on random expressions.

Both evaluate without type checking, as the API server does for an object of unknown schema. Where
the reference fails, ours must fail; else the values and their types are the same. Left out is where
cel-cpp differs from cel-go, which the API server runs: int(true), and a null or list in a map.
"""

import math
import random
from typing import Any

import pytest

from kubectl_nodelife.kube.cel import CelError, Unknown, evaluate
from kubectl_nodelife.kube.cel.values import Uint, value_of_key

cel = pytest.importorskip("cel_expr_python.cel", reason="has wheels for Linux only")

VALUES = {
    "pod": {"name": "web-1", "labels": {"app": "web", "tier": ""}, "ports": [80, 443], "n": -7},
    "names": ["web", "db", "", "web-1"],
    "nothing": None,
    "half": 0.5,
    "yes": True,
}
ENVIRONMENT = cel.NewEnv(variables=dict.fromkeys(VALUES, cel.Type.DYN))
EXPRESSIONS = 1500
FAILED = ("failed", None)

ATOMS = [
    *("0", "1", "2", "7", "-3", "9223372036854775807", "-9223372036854775808", "1u", "0u", "3u"),
    *("0.0", "1.0", "-2.5", "1e300", "0x1F", "true", "false", "null", "''", "'a'", '"web-1"'),
    *("r'\\d'", "'\\n\\x41'", "'é😀'", "b'a'", "[]", "{}", "[1, 2, 3]", "{'a': 1, 'b': [2]}"),
    *("pod", "pod.name", "pod.labels", "pod.ports", "pod.n", "names", "nothing", "half", "yes"),
    *(
        "pod.missing",
        "pod['labels']['app']",
        "pod.ports[1]",
        "names[9]",
        "{1: 'x', true: 'y'}[true]",
    ),
    *("{1: 2}[1.0]", "{2u: 3}[2]", "has(pod.name)", "has(pod.missing)", "has(pod.labels.app)"),
]
OPERATORS = ["+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&&", "||"]
UNARY = ["!({})", "-({})", "size({})", "uint({})", "string({})", "bool({})", "bytes({})"]
UNARY += ["[{}]", "({}).size()", "{{'k': {}}}.k", "dyn({})", "double({})"]
BINARY = ["({}).startsWith({})", "({}).endsWith({})", "({}).contains({})", "({})[{}]"]
BINARY += ["{{{}: {}}}", "({}).matches({})", "int(({}) + ({}))", "({}) in [{}, 1, 'web']"]
BINARY += ["string({}) in {{'web': {}}}"]
MACROS = ["all", "exists", "exists_one", "map", "filter"]


def expression(chosen: random.Random, depth: int, variables: tuple[str, ...] = ()) -> str:
    """A random expression, most often one that is well typed in part only."""

    def inner(more: tuple[str, ...] = ()) -> str:
        return expression(chosen, depth - 1, variables + more)

    kind = chosen.randrange(12)
    if depth == 0 or kind == 0:
        return chosen.choice([*ATOMS, *variables * 5])
    if kind < 6:
        return f"({inner()}) {chosen.choice(OPERATORS)} ({inner()})"
    if kind < 8:
        return chosen.choice(UNARY).format(inner())
    if kind < 10:
        return chosen.choice(BINARY).format(inner(), inner())
    if kind == 10:
        return f"({inner()}) ? ({inner()}) : ({inner()})"
    name = f"x{depth}"
    return f"({inner()}).{chosen.choice(MACROS)}({name}, {inner((name,))})"


def ours(text: str) -> Any:
    try:
        return comparable(evaluate(text, VALUES))
    except (CelError, Unknown):
        return FAILED


def reference(text: str) -> Any:
    try:
        value = ENVIRONMENT.compile(text, disable_check=True).eval(data=VALUES)
    except RuntimeError:
        return FAILED
    return plain(value)


def comparable(value: Any) -> Any:
    """A value of ours with its type beside it."""
    if isinstance(value, list):
        return ("LIST", [comparable(item) for item in value])
    if isinstance(value, dict):
        pairs = [(value_of_key(key), comparable(value[key])) for key in value]
        return ("MAP", sorted(pairs, key=repr))
    if isinstance(value, float) and math.isnan(value):
        return ("DOUBLE", "nan")
    names = {bool: "BOOL", Uint: "UINT", int: "INT", float: "DOUBLE", str: "STRING"}
    return (names.get(type(value), "BYTES" if isinstance(value, bytes) else "NULL"), value)


def plain(value: Any) -> Any:
    """The same for a value of the reference."""
    name = value.type().name().upper()
    if name == "ERROR":
        return FAILED
    if name.startswith("LIST"):
        return ("LIST", [plain(item) for item in value.value()])
    if name.startswith("MAP"):
        pairs = [(key, plain(item)) for key, item in value.value().items()]
        return ("MAP", sorted(pairs, key=repr))
    found = value.plain_value()
    return comparable({"UINT": Uint, "BYTES": bytes}.get(name, lambda same: same)(found))


def unordered(value: Any) -> Any:
    """The value with its lists sorted."""
    kind, held = value
    return (kind, sorted(map(unordered, held), key=repr) if kind == "LIST" else held)


@pytest.mark.parametrize("seed", range(4))
def test_values_and_errors_are_the_references(seed: int) -> None:
    chosen = random.Random(seed)
    values = 0
    for _ in range(EXPRESSIONS):
        text = expression(chosen, chosen.choice((1, 1, 2, 2, 3)))
        expected = reference(text)
        found = ours(text)
        if ").map(" in text or ").filter(" in text:  # over a map, in any order
            found, expected = unordered(found), unordered(expected)
        assert found == expected, text
        values += expected != FAILED
    assert values > EXPRESSIONS // 6, "most expressions fail: the comparison says little"
