"""A certificate for a server on loopback, made afresh for one run of the sandbox.

kubectl sends a token only over TLS, so the sandbox needs a certificate, and no library that makes
one is among our dependencies. What is needed fits here: an ECDSA key on P-256 (FIPS 186-4, SEC 1),
a self-signed X.509 certificate (RFC 5280) in DER, PEM around it. Not constant-time and not meant
for more than its purpose: the key lives as long as the sandbox and vouches for 127.0.0.1 only.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from typing import NamedTuple

# NIST P-256: the field's prime, the curve's b (a is -3), the group's order and generator.
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_DAY_S = 86_400

Point = tuple[int, int] | None


class KeyPair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: str
    key: str


def make_certificate(days: int = 30) -> KeyPair:
    """A self-signed certificate for 127.0.0.1, ::1 and localhost, with a new key."""
    private = secrets.randbelow(_N - 1) + 1
    public = _multiply(_G, private)
    assert public is not None
    point = b"\x04" + public[0].to_bytes(32, "big") + public[1].to_bytes(32, "big")
    body = _tbs_certificate(point, days)
    signature = _sequence(_ECDSA_WITH_SHA256)
    certificate = _sequence(body, signature, _bits(_sign(private, body)))
    key = _sequence(
        _integer(1),
        _octets(private.to_bytes(32, "big")),
        _tagged(0, _P256),
        _tagged(1, _bits(point)),
    )
    return KeyPair(_pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", key))


def _tbs_certificate(point: bytes, days: int) -> bytes:
    now = time.time()
    name = _sequence(_set(_sequence(_COMMON_NAME, _text("kubectl-nodelife sandbox"))))
    return _sequence(
        _tagged(0, _integer(2)),  # version 3
        _integer(secrets.randbits(127) | 1),
        _sequence(_ECDSA_WITH_SHA256),
        name,
        _sequence(_time(now - _DAY_S), _time(now + days * _DAY_S)),
        name,
        _sequence(_sequence(_EC_PUBLIC_KEY, _P256), _bits(point)),
        _tagged(3, _sequence(*_extensions(point))),
    )


def _extensions(point: bytes) -> list[bytes]:
    key_id = hashlib.sha1(point).digest()  # an identifier, as RFC 5280 has it
    names = _sequence(
        _value(0x82, b"localhost"),
        _value(0x87, bytes([127, 0, 0, 1])),
        _value(0x87, bytes(15) + b"\x01"),
    )
    return [
        _extension(_BASIC_CONSTRAINTS, _sequence(_BOOLEAN_TRUE), critical=True),
        # digitalSignature and keyCertSign
        _extension(_KEY_USAGE, _value(0x03, b"\x02\x84"), critical=True),
        _extension(_EXTENDED_KEY_USAGE, _sequence(_SERVER_AUTH)),
        _extension(_SUBJECT_KEY_ID, _octets(key_id)),
        _extension(_AUTHORITY_KEY_ID, _sequence(_value(0x80, key_id))),
        _extension(_SUBJECT_ALT_NAME, names),
    ]


# --- ECDSA ---------------------------------------------------------------------------------------


def _add(a: Point, b: Point) -> Point:
    """The sum of two points of the curve; None is the point at infinity."""
    if a is None:
        return b
    if b is None:
        return a
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _multiply(point: Point, factor: int) -> Point:
    result: Point = None
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def _sign(private: int, message: bytes) -> bytes:
    """ECDSA with SHA-256, as DER."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = secrets.randbelow(_N - 1) + 1
        point = _multiply(_G, nonce)
        assert point is not None
        r = point[0] % _N
        s = pow(nonce, -1, _N) * (digest + r * private) % _N
        if r and s:
            return _sequence(_integer(r), _integer(s))


# --- DER -----------------------------------------------------------------------------------------


def _value(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def _sequence(*parts: bytes) -> bytes:
    return _value(0x30, b"".join(parts))


def _set(*parts: bytes) -> bytes:
    return _value(0x31, b"".join(parts))


def _integer(number: int) -> bytes:
    return _value(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _value(0x03, b"\x00" + content)


def _octets(content: bytes) -> bytes:
    return _value(0x04, content)


def _text(text: str) -> bytes:
    return _value(0x0C, text.encode())


def _time(seconds: float) -> bytes:
    return _value(0x17, time.strftime("%y%m%d%H%M%SZ", time.gmtime(seconds)).encode())


def _tagged(number: int, content: bytes) -> bytes:
    return _value(0xA0 | number, content)


def _oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = bytes([first * 40 + second])
    for number in rest:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.insert(0, number & 0x7F | 0x80)
        content += bytes(digits)
    return _value(0x06, content)


def _extension(oid: bytes, content: bytes, *, critical: bool = False) -> bytes:
    return _sequence(oid, *([_BOOLEAN_TRUE] if critical else []), _octets(content))


def _pem(label: str, content: bytes) -> str:
    text = base64.encodebytes(content).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"


_BOOLEAN_TRUE = _value(0x01, b"\xff")
_ECDSA_WITH_SHA256 = _oid("1.2.840.10045.4.3.2")
_EC_PUBLIC_KEY = _oid("1.2.840.10045.2.1")
_P256 = _oid("1.2.840.10045.3.1.7")
_COMMON_NAME = _oid("2.5.4.3")
_BASIC_CONSTRAINTS = _oid("2.5.29.19")
_KEY_USAGE = _oid("2.5.29.15")
_EXTENDED_KEY_USAGE = _oid("2.5.29.37")
_SUBJECT_KEY_ID = _oid("2.5.29.14")
_AUTHORITY_KEY_ID = _oid("2.5.29.35")
_SUBJECT_ALT_NAME = _oid("2.5.29.17")
_SERVER_AUTH = _oid("1.3.6.1.5.5.7.3.1")
