"""TLS on loopback: the socket, its certificate, made afresh for one run of the sandbox, and a
private kubeconfig for clients.

kubectl sends a token only over TLS. The key exists as long as the sandbox and is valid for this
machine's loopback addresses only. No package of an installed archive makes certificates.
cryptography does, but it would be a quarter of the archive, beyond its limit of 20 MB, and its
releases no longer have wheels for Intel Macs: so the two certificates, an authority and a server,
are put together here, with ECDSA on P-256. Do not use it for what must stay secret: the arithmetic
takes a time that depends on the key.

Follows RFC 5280 (certificates), RFC 5480 and RFC 5758 (elliptic curves in them), RFC 5915 (the
key's form), FIPS 186-5 section 6.4 (ECDSA).

"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import logging
import os
import secrets
import shutil
import ssl
import tempfile
from base64 import b64encode, encodebytes
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from aiohttp import web

from kubectl_nodelife.sandbox.cluster import SandboxCluster
from kubectl_nodelife.sandbox.server import ApiServer

_ADDRESSES: Final = ("127.0.0.1", "::1")
_VALID: Final = timedelta(days=365)

# P-256 (FIPS 186-4, D.1.2.3): y² = x³ - 3x + b modulo P; G generates a group of order N.
_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

_Point = tuple[int, int] | None  # None: the point at infinity


class ServerKeyPair(NamedTuple):
    """A certificate with the authority that signed it behind it, and its key; both PEM.

    The server sends the certificate; since it includes the authority, clients trust it.
    """

    certificate: str
    key: str


def make_certificate() -> ServerKeyPair:
    """A certificate for 127.0.0.1, ::1 and localhost, with a new key, of a new authority."""
    authority, server = _Key.new(), _Key.new()
    root = _certificate("authority", authority, by=authority, extensions=_of_authority(authority))
    leaf = _certificate("server", server, by=authority, extensions=_of_server(authority, server))
    chain = _pem("CERTIFICATE", leaf) + _pem("CERTIFICATE", root)
    return ServerKeyPair(chain, _pem("EC PRIVATE KEY", server.private_info()))


class _Key(NamedTuple):
    """A key on P-256: the secret number, and the point that is public."""

    secret: int
    public: bytes

    @classmethod
    def new(cls) -> _Key:
        secret = 1 + secrets.randbelow(_N - 1)
        point = _times(secret, _G)
        assert point is not None
        return cls(secret, b"\x04" + point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big"))

    def public_info(self) -> bytes:
        """SubjectPublicKeyInfo: the key says on which curve it is."""
        curve = _sequence(_oid(1, 2, 840, 10045, 2, 1), _oid(1, 2, 840, 10045, 3, 1, 7))
        return _sequence(curve, _bits(self.public))

    def private_info(self) -> bytes:
        """ECPrivateKey, the form of openssl's `EC PRIVATE KEY`."""
        return _sequence(
            _integer(1),
            _octets(self.secret.to_bytes(32, "big")),
            _der(0xA0, _oid(1, 2, 840, 10045, 3, 1, 7)),
            _der(0xA1, _bits(self.public)),
        )

    def name(self) -> bytes:
        """The content of key identifiers (RFC 5280, 4.2.1.2)."""
        return hashlib.sha1(self.public, usedforsecurity=False).digest()

    def signed(self, message: bytes) -> bytes:
        """ECDSA-Sig-Value of the message's SHA-256."""
        number = int.from_bytes(hashlib.sha256(message).digest(), "big")
        while True:
            once = 1 + secrets.randbelow(_N - 1)
            point = _times(once, _G)
            assert point is not None
            r = point[0] % _N
            s = pow(once, -1, _N) * (number + r * self.secret) % _N
            if r and s:
                return _sequence(_integer(r), _integer(s))


def _times(factor: int, point: _Point) -> _Point:
    """The point added to itself so many times."""
    total: _Point = None
    while factor:
        if factor & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        factor >>= 1
    return total


def _plus(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % _P == 0:
            return None
        slope = (3 * one[0] * one[0] - 3) * pow(2 * one[1], -1, _P) % _P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P) % _P
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _certificate(role: str, key: _Key, *, by: _Key, extensions: bytes) -> bytes:
    """A certificate of the key, signed by an authority's."""
    began = datetime.now(UTC) - timedelta(minutes=5)  # clocks of clients may be behind
    algorithm = _sequence(_oid(1, 2, 840, 10045, 4, 3, 2))  # ecdsa-with-SHA256
    body = _sequence(
        _der(0xA0, _integer(2)),  # version 3
        _integer(1 + secrets.randbits(127)),
        algorithm,
        _subject("authority"),
        _sequence(_time(began), _time(began + _VALID)),
        _subject(role),
        key.public_info(),
        _der(0xA3, extensions),
    )
    return _sequence(body, algorithm, _bits(by.signed(body)))


def _of_authority(key: _Key) -> bytes:
    return _sequence(
        _extension(19, _sequence(_der(0x01, b"\xff")), critical=True),  # basicConstraints: CA
        _extension(15, _der(0x03, b"\x02\x04"), critical=True),  # keyUsage: keyCertSign
        _extension(14, _octets(key.name())),  # subjectKeyIdentifier
    )


def _of_server(authority: _Key, key: _Key) -> bytes:
    names = [_der(0x82, b"localhost")]
    names += [_der(0x87, ipaddress.ip_address(address).packed) for address in _ADDRESSES]
    return _sequence(
        _extension(17, _sequence(*names)),  # subjectAltName
        _extension(15, _der(0x03, b"\x07\x80"), critical=True),  # keyUsage: digitalSignature
        _extension(37, _sequence(_oid(1, 3, 6, 1, 5, 5, 7, 3, 1))),  # extKeyUsage: serverAuth
        _extension(14, _octets(key.name())),
        _extension(35, _sequence(_der(0x80, authority.name()))),  # authorityKeyIdentifier
    )


def _extension(number: int, value: bytes, *, critical: bool = False) -> bytes:
    flag = _der(0x01, b"\xff") if critical else b""
    return _sequence(_oid(2, 5, 29, number), flag, _octets(value))


def _subject(role: str) -> bytes:
    """The name of an authority or a server: CN=kubectl-nodelife sandbox ROLE."""
    text = _der(0x0C, f"kubectl-nodelife sandbox {role}".encode())
    return _sequence(_der(0x31, _sequence(_oid(2, 5, 4, 3), text)))


# DER (ITU-T X.690)


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    counted = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(counted))) + counted + content


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, b"".join(parts))


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _octets(content: bytes) -> bytes:
    return _der(0x04, content)


def _bits(content: bytes) -> bytes:
    return _der(0x03, b"\0" + content)


def _oid(first: int, second: int, *rest: int) -> bytes:
    content = bytearray((40 * first + second,))
    for number in rest:
        digits = [number & 127]
        while number := number >> 7:
            digits.insert(0, number & 127 | 128)
        content += bytes(digits)
    return _der(0x06, bytes(content))


def _time(at: datetime) -> bytes:
    return _der(0x17, at.strftime("%y%m%d%H%M%SZ").encode())


def _pem(kind: str, content: bytes) -> str:
    text = encodebytes(content).decode().replace("\n", "")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])


CONTEXT = "sandbox"
HOST = "127.0.0.1"


@dataclass(eq=False)
class Sandbox:
    """A cluster that is served. Use it as an asynchronous context manager.

    `kubeconfig` is the path of a file that is removed with the sandbox; `folder` is its folder.
    """

    cluster: SandboxCluster
    server: ApiServer
    token: str
    _access_log: logging.Logger | None = None
    url: str = ""
    folder: str = ""
    kubeconfig: str = ""
    _keys: ServerKeyPair | None = None
    _runner: web.AppRunner | None = None
    _task: asyncio.Task[None] | None = None
    _port: int = 0

    async def __aenter__(self) -> Sandbox:
        self.folder = tempfile.mkdtemp(prefix="nodelife-sandbox-")
        self._keys = make_certificate()
        try:
            await self.listen()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.kubeconfig = os.path.join(self.folder, "kubeconfig")
        write_private(self.kubeconfig, json.dumps(self._document(), indent=2) + "\n")
        self._task = asyncio.create_task(self.cluster.run(), name="cluster")
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._task  # raises if the loop ended by itself
        finally:
            await self.hang_up()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def listen(self) -> None:
        """Open the socket; the same port as before, if there was one."""
        assert self._keys is not None
        self._runner = web.AppRunner(
            self.server.app, access_log=self._access_log, shutdown_timeout=0.2
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, HOST, self._port, ssl_context=_tls(self._keys, self.folder)
        )
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"https://{HOST}:{self._port}"

    async def hang_up(self) -> None:
        """Close the socket and every connection; the cluster keeps running."""
        if self._runner is not None:
            self.server.go_down()
            await self._runner.cleanup()
            self._runner = None
            self.server.down = False

    async def run_until(self, stopped: asyncio.Event) -> None:
        """Serve until `stopped` is set. A bug that ends the cluster's loop is raised."""
        assert self._task is not None
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task

    def _document(self) -> dict[str, object]:
        assert self._keys is not None
        authority = b64encode(self._keys.certificate.encode()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [
                {
                    "name": CONTEXT,
                    "cluster": {
                        "server": self.url,
                        "certificate-authority-data": authority,
                        "disable-compression": True,
                    },
                }
            ],
            "users": [{"name": CONTEXT, "user": {"token": self.token}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        }


def make_sandbox(cluster: SandboxCluster, git_version: str, *, verbose: bool = False) -> Sandbox:
    """A sandbox around the cluster, not yet listening. `verbose`: log requests to stderr."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    token = secrets.token_urlsafe(24)
    server = ApiServer(
        cluster.api, git_version=git_version, token=token, wake=cluster.wake, now_ns=cluster.clock
    )
    log = logging.getLogger("kubectl_nodelife.sandbox") if verbose else None
    return Sandbox(cluster, server, token, log)


def write_private(path: str, text: str) -> None:
    """Write a new file that only this user can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _tls(keys: ServerKeyPair, folder: str) -> ssl.SSLContext:
    """A server's context.

    The library reads keys from files only, so these files exist for a moment.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    paths = [os.path.join(folder, name) for name in ("tls.crt", "tls.key")]
    try:
        for path, text in zip(paths, keys, strict=True):
            write_private(path, text)
        context.load_cert_chain(*paths)
    finally:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
    return context
