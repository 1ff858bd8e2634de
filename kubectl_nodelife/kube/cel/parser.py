"""Reading CEL: text to nested tuples, with the values of literals.

Follows the CEL language definition's grammar without messages. The grammar's rules are generators
that `parse` runs on a stack of its own, so that nesting is bounded by `MAX_DEPTH` rather than by
the interpreter's stack; cel-go allows 250 levels, and 100,000 characters. Numbers have 64 bits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Generator
from typing import Any, Final

from kubectl_nodelife.kube.cel.values import INT_MAX, INT_MIN, UINT_MAX, NotEvaluated, Uint, Unknown

Node = tuple[Any, ...]
Rule = Generator["Rule", Any, Any]
"""A rule in progress: yields the rules that it needs, is sent what they found, returns a node."""

MAX_CHARACTERS: Final = 100_000
MAX_DEPTH: Final = 1_600
"""Rules in progress at once; a pair of parentheses takes two or three."""

_TOKEN: Final = re.compile(
    r"""(?:\s++|//[^\n]*+)*+(?:
      (?P<number>(?:\d+\.\d+|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|0x[0-9a-fA-F]+[uU]?|\d+[uU]?)
    | (?P<string>[bB]?(?:\"{3}(?s:\\.|[^\\])*?\"{3}|'{3}(?s:\\.|[^\\])*?'{3}
                 |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<op>\.\?|\[\?|&&|\|\||<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{}])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_RAW_STRING: Final = re.compile(
    r"""(?:\s++|//[^\n]*+)*+(?P<string>(?:[rR][bB]?|[bB][rR])
    (?:\"{3}(?s:.)*?\"{3}|'{3}(?s:.)*?'{3}|"[^"\n]*"|'[^'\n]*'))""",
    re.VERBOSE,
)
_LEVELS: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_KEYWORDS: Final = {"true": True, "false": False, "null": None}
_RESERVED: Final = {
    *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "in", "let"),
    *("loop", "package", "namespace", "return", "var", "void", "while"),
}

_MAX_DIGITS: Final = 64
_ESCAPE: Final = re.compile(
    r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))",
    re.DOTALL,
)
_ESCAPES: Final = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """The expression as nested tuples: an operator's or construct's name, then its operands.

    Raises Unknown for what cannot be read, NotEvaluated for what is too long or nested too deeply.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotEvaluated(f"it is longer than {MAX_CHARACTERS:,} characters")
    parser = _Parser(text)
    rules: list[Rule] = [parser.whole()]
    result: Any = None
    while rules:
        try:
            rules.append(rules[-1].send(result))
            result = None
        except StopIteration as done:
            rules.pop()
            result = done.value
        if len(rules) > MAX_DEPTH:
            raise NotEvaluated("it is nested too deeply")
    return result  # type: ignore[no-any-return]


class _Parser:
    """The grammar over a list of tokens, each a pair of kind and text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(text):
            match = _RAW_STRING.match(text, position) or _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                rest = text[position : position + 20]
                raise Unknown(f"cannot read the CEL expression at {rest!r}")
            if match.lastgroup != "end":
                self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._tokens.append(("end", ""))
        self._at = 0

    def whole(self) -> Rule:
        """The whole expression."""
        node = yield self._ternary()
        if self._kind() != "end":
            raise self._unreadable()
        return node

    # --- tokens ----------------------------------------------------------------------------------

    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _operator(self) -> str:
        """The operator that comes next, `in` too; "" for anything else."""
        kind, text = self._tokens[self._at]
        return text if kind == "op" or (kind, text) == ("name", "in") else ""

    def _take(self, expected: str) -> bool:
        if self._operator() != expected:
            return False
        self._at += 1
        return True

    def _need(self, expected: str) -> None:
        if not self._take(expected):
            raise self._unreadable(f"lacks {expected!r}")

    def _unreadable(self, why: str = "cannot be read") -> Unknown:
        return Unknown(f"the CEL expression {why} at {self._tokens[self._at][1][:20]!r}")

    def _name(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name":
            raise self._unreadable("lacks a name")
        self._at += 1
        return text

    # --- rules -----------------------------------------------------------------------------------

    def _ternary(self) -> Rule:
        condition = yield self._binary(1)
        if not self._take("?"):
            return condition
        then = yield self._binary(1)
        self._need(":")
        return ("choice", condition, then, (yield self._ternary()))

    def _binary(self, lowest: int) -> Rule:
        """Operands and the operators between them, of the level `lowest` and those that bind
        more. Operators of one level make one node, so that a long sum is not a deep one."""
        left = yield self._unary()
        while (level := _LEVELS.get(self._operator(), 0)) >= lowest:
            steps: list[tuple[str, Node]] = []
            while _LEVELS.get(operator := self._operator()) == level:
                self._at += 1
                steps.append((operator, (yield self._binary(level + 1))))
            if level <= 2:
                left = (steps[0][0], left, *(operand for _, operand in steps))
            else:
                left = ("chain", left, steps)
        return left

    def _unary(self) -> Rule:
        signs: list[str] = []
        while self._operator() in ("!", "-"):
            signs.append(self._operator())
            self._at += 1
        if signs and signs[-1] == "-" and self._kind() == "number":
            signs.pop()
            node = yield self._member("-")
        else:
            node = yield self._member()
        for sign in reversed(signs):
            node = ("not" if sign == "!" else "negative", node)
        return node

    def _member(self, sign: str = "") -> Rule:
        """A primary and what is selected from it."""
        node = yield self._primary(sign)
        while True:
            if self._take(".?"):
                node = ("optional", node, ("literal", self._name()))
            elif self._take("[?"):
                node = ("optional", node, (yield self._ternary()))
                self._need("]")
            elif self._take("."):
                name = self._name()
                if self._take("("):
                    node = ("method", name, node, (yield self._list(")")))
                else:
                    node = ("select", node, name)
            elif self._take("["):
                node = ("index", node, (yield self._ternary()))
                self._need("]")
            else:
                return node

    def _list(self, end: str) -> Rule:
        items: list[Node] = []
        while not self._take(end):
            maybe = end == "]" and self._take("?")
            item = yield self._ternary()
            items.append(("maybe", item) if maybe else item)
            if not self._take(","):
                self._need(end)
                break
        return items

    def _primary(self, sign: str) -> Rule:
        if self._take("("):
            node = yield self._ternary()
            self._need(")")
            return node
        if self._take("["):
            return ("list", (yield self._list("]")))
        if self._take("[?"):
            self._at -= 1
            self._tokens[self._at] = ("op", "?")
            return ("list", (yield self._list("]")))
        if self._take("{"):
            return ("map", (yield self._entries()))
        self._take(".")
        kind, text = self._tokens[self._at]
        if kind not in ("number", "string", "name") or text in _RESERVED:
            raise self._unreadable()
        self._at += 1
        if kind == "number":
            return ("literal", number(sign + text))
        if kind == "string":
            return ("literal", text_or_bytes(text))
        if text in _KEYWORDS:
            return ("literal", _KEYWORDS[text])
        if self._take("("):
            return ("call", text, (yield self._list(")")))
        return ("name", text)

    def _entries(self) -> Rule:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._take("}"):
            maybe = self._take("?")
            key = yield self._ternary()
            self._need(":")
            entries.append((key, (yield self._ternary()), maybe))
            if not self._take(","):
                self._need("}")
                break
        return entries


def number(text: str) -> int | float | Uint:
    """An int, a uint (`1u`) or a double, with its sign. Raises Unknown if it does not fit."""
    plain = text.rstrip("uU")
    digits = plain.lstrip("-")
    if not digits.startswith("0x") and any(sign in digits for sign in ".eE"):
        return float(plain)
    if len(digits) <= _MAX_DIGITS:
        value = int(plain, 16 if digits.startswith("0x") else 10)
        if plain != text and 0 <= value <= UINT_MAX:
            return Uint(value)
        if plain == text and INT_MIN <= value <= INT_MAX:
            return value
    raise Unknown("the CEL expression has an integer of more than 64 bits")


def text_or_bytes(text: str) -> str | bytes:
    """A string or, with the prefix b, bytes. Raises Unknown for an escape that does not exist."""
    quote = text.index(text[-1])
    prefix, body = text[:quote].lower(), text[quote:]
    width = 3 if len(body) >= 6 and body[:3] == body[0] * 3 else 1
    body = body[width:-width]
    if "b" not in prefix:
        return body if "r" in prefix else _ESCAPE.sub(_character, body)
    if "r" in prefix:
        return body.encode()
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[end : match.start()].encode())
        octet = (match[1] and int(match[1], 16)) or (match[4] and int(match[4], 8))
        parts.append(bytes([octet or 0]) if match[1] or match[4] else _character(match).encode())
        end = match.end()
    return b"".join([*parts, body[end:].encode()])


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    point = int(code, 16) if code else int(match[4], 8) if match[4] else None
    if point is None:
        if match[5] not in _ESCAPES:
            raise Unknown(f"the CEL expression has an escape that CEL lacks: {match[0]!r}")
        return _ESCAPES[match[5]]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise Unknown(f"the CEL expression has an escape for no character: {match[0]!r}")
    return chr(point)
