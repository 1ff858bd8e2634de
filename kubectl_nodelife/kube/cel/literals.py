"""The value of a literal's text: numbers within 64 bits, strings and bytes with their escapes."""

from __future__ import annotations

import re
from typing import Final

from kubectl_nodelife.kube.cel.errors import Unknown
from kubectl_nodelife.kube.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

_MAX_DIGITS: Final = 64
_ESCAPE: Final = re.compile(
    r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))",
    re.DOTALL,
)
_ESCAPES: Final = dict(zip("abfnrtv\\?\"'`", "\a\b\f\n\r\t\v\\?\"'`", strict=True))


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
