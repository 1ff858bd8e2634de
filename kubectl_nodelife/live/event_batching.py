"""Delays reading from a busy watch a little, so that many events are read in one piece."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp


async def gather(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Let what comes in the next moment come in one piece.

    A busy watch sends many small pieces, and each would be decrypted, parsed and told alone.
    """
    connection = response.connection
    transport = connection.transport if connection is not None else None
    if transport is None or transport.is_closing():
        return
    # TLS goes on reading up to its own limit while the application does not: without a limit
    # each piece would still wake us. Plain sockets have none.
    limit = getattr(transport, "set_read_buffer_limits", lambda high=None: None)
    transport.pause_reading()
    limit(1)
    try:
        await asyncio.sleep(seconds)
    finally:
        # A connection that is being closed waits to read the other side's farewell. Of one
        # that is gone asyncio says so by this error.
        with contextlib.suppress(AttributeError):
            limit()
            transport.resume_reading()
