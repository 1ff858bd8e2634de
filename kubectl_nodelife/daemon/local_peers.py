"""Which user of this machine is at the other end of a TCP connection over loopback.

The kernel of Linux says it (sock_diag(7), as `ss -e` asks). Elsewhere it cannot be known, and each
peer counts as our own user. A user of an address that is not this machine's is that address.
"""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import ip_address
from typing import Any, Final

OWN: Final = "own"
"""Our own user, or root, who can do everything to this process."""

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_ALL_STATES: Final = 0xFFFFFFFF
_NO_COOKIE: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("=IHHII")
_ASKED: Final = struct.Struct("=BBBxI")
_END: Final = struct.Struct("=III")
_TOLD: Final = struct.Struct("=4B48xIIIII")
"""inet_diag_msg: family, state, timer, retrans; the id; expires, rqueue, wqueue, uid, inode."""


class LocalPeers:
    """Asks the kernel which user is at the other end of a TCP connection over loopback.

    It holds a socket of its own until `close`.
    """

    def __init__(self) -> None:
        family = getattr(socket, "AF_NETLINK", None)
        self._kernel: socket.socket | None = None
        if family is not None:
            try:
                self._kernel = socket.socket(family, socket.SOCK_RAW, _SOCK_DIAG)
                self._kernel.settimeout(0.2)
                self._check()
            except OSError:
                self.close()

    def close(self) -> None:
        """Ask no more."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def peer_of(self, accepted: socket.socket, address: Any) -> str:
        """`own`, `uid 1001` or an address; "" where the other end has gone already."""
        host = str(address[0])
        if not ip_address(host.partition("%")[0]).is_loopback:
            return host
        if self._kernel is None:
            return OWN
        try:
            uid = self._uid(accepted, address)
        except (OSError, struct.error):
            return OWN
        if uid is None:
            return ""
        return OWN if uid in (os.geteuid(), 0) else f"uid {uid}"

    def _check(self) -> None:
        """Ask about a connection of our own. Raises OSError where the kernel does not know it."""
        server = socket.create_server(("127.0.0.1", 0))
        with server, socket.create_connection(server.getsockname()):
            accepted, address = server.accept()
            with accepted:
                if self._uid(accepted, address) != os.geteuid():
                    raise OSError

    def _uid(self, accepted: socket.socket, address: Any) -> int | None:
        """Of the socket whose own address is our connection's other end; None: it has none."""
        assert self._kernel is not None
        here = accepted.getsockname()
        asked = _ASKED.pack(accepted.family, socket.IPPROTO_TCP, 0, _ALL_STATES)
        asked += struct.pack("!HH", address[1], here[1])
        for host in (address[0], here[0]):
            asked += socket.inet_pton(accepted.family, host.partition("%")[0]).ljust(16, b"\0")
        asked += _END.pack(0, _NO_COOKIE, _NO_COOKIE)
        header = _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 0, 0)
        self._kernel.send(header + asked)
        told = self._kernel.recv(4096)
        if _HEADER.unpack_from(told)[1] != _BY_FAMILY:
            return None
        *_, uid, inode = _TOLD.unpack_from(told, _HEADER.size)
        return int(uid) if inode else None  # a socket that nobody has any more is no user's
