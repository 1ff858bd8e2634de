"""Asks a daemon: one HTTP/1.0 request on its Unix socket, one JSON object back.

Written on the standard library's socket, because every import counts on the quick path. A daemon of
another protocol says so in the same form. The client never removes anything: a socket without a
listener is removed by the next daemon.
"""

from __future__ import annotations

import json
import os
import socket

from kubectl_nodelife.errors import NodelifeError, Unreachable, error_of

TYPE_CHECKING = False  # as typing's, without importing typing: this is on the quick path
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    class Way(Protocol):
        """Another way to a daemon than a path; str() of it names the daemon."""

        def connect(self, seconds: float) -> socket.socket:
            """A connection whose reads and writes time out so. Raises NodelifeError."""


PROTOCOL = 2
"""Raised when an older side could misunderstand a newer one; fields may be added without."""

ANSWER_SECONDS = 10.0
MOST_BYTES = 64 << 20

_CHUNK = 1 << 18
_LONGEST_LINE = 4096
"""A longer query is the request's body: servers bound the length of its first line."""

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class NotRunning(Unreachable):
    """No daemon listens there."""


class OtherProtocol(NodelifeError):
    """The daemon there uses another protocol. `version` is the daemon's."""

    def __init__(self, protocol: object, version: str) -> None:
        super().__init__(
            f"the daemon (version {version}) speaks protocol {protocol}, and we {PROTOCOL}",
            remedy="run: kubectl nodelife daemon restart",
        )


ORDERS = frozenset({"stop", "reload", "pause", "resume", "ui", "ui-stop"})


def ask(
    path: str | Way, question: str, seconds: float = ANSWER_SECONDS, **query: Any
) -> dict[str, Any]:
    """The answer to `question`, such as "status". None and "" in the query are left out.

    Raises NotRunning, OtherProtocol, Denied, Unreachable.
    """
    with _connect(path, seconds) as connection:
        try:
            connection.sendall(_request(question, query))
            received = bytearray()
            while chunk := connection.recv(_CHUNK):
                received += chunk
                if len(received) > MOST_BYTES:
                    raise Unreachable("the daemon's answer is too long", on=str(path))
        except OSError as error:
            raise _no_answer(path, error) from None
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    return _checked(path, head, body)


def follow(path: str | Way, question: str, **query: Any) -> Iterator[dict[str, Any]]:
    """The answers to `question` as they come, one JSON object a line, until the daemon ends.

    Raises as `ask`; Unreachable where the daemon goes away.
    """
    with _connect(path, ANSWER_SECONDS) as connection:
        connection.sendall(_request(question, query))
        with connection.makefile("rb") as lines:
            head = b""
            try:
                while (line := lines.readline(_LONGEST_LINE)).strip() and len(head) < _CHUNK:
                    head += line
                if b" 200 " not in head.partition(b"\r\n")[0]:
                    _checked(path, head, lines.read(MOST_BYTES))
                connection.settimeout(None)
                while line := lines.readline(MOST_BYTES):
                    if line.strip():
                        yield _checked(path, head, line)
            except OSError as error:
                raise _no_answer(path, error) from None


def _connect(path: str | Way, seconds: float) -> socket.socket:
    if not isinstance(path, str):
        return path.connect(seconds)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(seconds)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        connection.close()
        raise NotRunning(
            "no daemon runs for this cluster", remedy="run: kubectl nodelife daemon start"
        ) from None
    except OSError as error:
        connection.close()
        raise _no_answer(path, error) from None
    return connection


def _request(question: str, query: dict[str, Any]) -> bytes:
    pairs = []
    for key, value in query.items():
        values = value if isinstance(value, (list, tuple)) else (value,)
        pairs += [f"{key}={_quoted(v)}" for v in values if v is not None and v != ""]
    verb = "POST" if question in ORDERS else "GET"
    target, body = f"/v1/{question}", "&".join(pairs)
    length = f"Content-Length: {len(body)}\r\n"
    if len(body) <= _LONGEST_LINE:
        target, body, length = f"{target}?{body}" if body else target, "", ""
    return (
        f"{verb} {target} HTTP/1.0\r\nHost: nodelife\r\nX-Nodelife-Protocol: {PROTOCOL}\r\n"
        f"{length}Connection: close\r\n\r\n{body}"
    ).encode("ascii")


def _quoted(value: object) -> str:
    """Percent-encoding without urllib.parse, which costs more than the rest of this module."""
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return "".join(chr(b) if b in _SAFE else f"%{b:02X}" for b in os.fsencode(text))


def _checked(path: str | Way, head: bytes, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        line = head.partition(b"\r\n")[0].decode(errors="replace") or "nothing"
        raise Unreachable(
            f"the daemon's answer cannot be decoded: {line}",
            on=str(path),
            remedy="run: kubectl nodelife daemon restart",
        ) from None
    if answer.get("protocol", PROTOCOL) != PROTOCOL:
        raise OtherProtocol(answer["protocol"], str(answer.get("version")))
    if error := answer.get("error"):
        raise error_of(error)
    return answer


def _no_answer(path: str | Way, error: OSError) -> Unreachable:
    what = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
    return Unreachable(
        f"the daemon does not answer: {what}",
        on=str(path),
        remedy="look at 'kubectl nodelife daemon status', or run: kubectl nodelife daemon restart",
    )
