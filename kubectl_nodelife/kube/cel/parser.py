"""Reading CEL: text to nested tuples, by recursive descent over the language's grammar.

Follows the CEL language definition's syntax without messages, bytes and triple-quoted strings.
"""

from __future__ import annotations

import re
from typing import Any, Final

Node = tuple[Any, ...]


class Unknown(Exception):
    """The value depends on something that was not read, or on a part of CEL not known here."""


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|0x[0-9a-fA-F]+u?|\d+u?)
    | (?P<string>[rR]?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<op>\.\?|\[\?|&&|\|\||<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{}])
    )""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`"}
_LEVELS: Final = (
    ("||",),
    ("&&",),
    ("<", "<=", ">", ">=", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)


class Parser:
    """Recursive descent over CEL's grammar, to nested tuples."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                rest = text[position : position + 20]
                raise Unknown(f"cannot read the CEL expression at {rest!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._at = 0

    def parse(self) -> Node:
        """The whole expression."""
        node = self._ternary()
        if self._at != len(self._tokens):
            raise Unknown(f"cannot read the CEL expression at {self._peek()!r}")
        return node

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, *expected: str) -> bool:
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if text in expected and kind != "string":
                self._at += 1
                return True
        return False

    def _need(self, expected: str) -> None:
        if not self._take(expected):
            raise Unknown(f"the CEL expression lacks {expected!r} at {self._peek()!r}")

    def _ternary(self) -> Node:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        then = self._ternary()
        self._need(":")
        return ("choice", condition, then, self._ternary())

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level] and self._take(*_LEVELS[level]):
            operator = self._tokens[self._at - 1][1]
            left = (operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> Node:
        if self._take("!"):
            return ("not", self._unary())
        if self._take("-"):
            return ("negative", self._unary())
        return self._member(self._primary())

    def _member(self, node: Node) -> Node:
        while True:
            if self._take(".?"):
                node = ("optional", node, ("literal", self._name()))
            elif self._take("[?"):
                node = ("optional", node, self._ternary())
                self._need("]")
            elif self._take("."):
                name = self._name()
                called = self._take("(")
                node = ("method", name, node, self._list(")")) if called else ("select", node, name)
            elif self._take("["):
                node = ("index", node, self._ternary())
                self._need("]")
            else:
                return node

    def _name(self) -> str:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if kind != "name":
            raise Unknown(f"the CEL expression lacks a name at {text!r}")
        self._at += 1
        return text

    def _list(self, end: str) -> list[Node]:
        found: list[Node] = []
        while not self._take(end):
            found.append(self._ternary())
            if not self._take(","):
                self._need(end)
                break
        return found

    def _primary(self) -> Node:
        if self._take("("):
            node = self._ternary()
            self._need(")")
            return node
        if self._take("["):
            return ("list", self._list("]"))
        if self._take("{"):
            return ("map", self._entries())
        if self._at >= len(self._tokens):
            raise Unknown("the CEL expression ends too early")
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return ("literal", _number(text))
        if kind == "string":
            return ("literal", _string(text))
        if kind != "name":
            raise Unknown(f"cannot read the CEL expression at {text!r}")
        if text in ("true", "false", "null"):
            return ("literal", {"true": True, "false": False, "null": None}[text])
        if self._take("("):
            return ("call", text, self._list(")"))
        return ("name", text)

    def _entries(self) -> list[tuple[Node, Node]]:
        entries: list[tuple[Node, Node]] = []
        while not self._take("}"):
            key = self._ternary()
            self._need(":")
            entries.append((key, self._ternary()))
            if not self._take(","):
                self._need("}")
                break
        return entries


def _number(text: str) -> int | float:
    text = text.rstrip("u")
    if text.startswith("0x"):
        return int(text, 16)
    return float(text) if "." in text else int(text)


def _string(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text[1:-1])
