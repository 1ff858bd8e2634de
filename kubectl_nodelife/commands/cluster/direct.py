"""Direct reads of a live cluster: target, client, refused lists, the server's clock.

A list that RBAC forbids is no error: the verb says what it cannot answer without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from kubectl_nodelife.commands.flags import Connection, answer_by
from kubectl_nodelife.errors import Unreachable
from kubectl_nodelife.live.auth import Session
from kubectl_nodelife.live.client import Client
from kubectl_nodelife.live.clock import SKEW_WARNED_NS, clock_warning, steady_ns
from kubectl_nodelife.live.target import Target, connection_warnings, find_target
from kubectl_nodelife.report import terminal


def target_of(connection: Connection) -> Target:
    """The cluster that the flags and the kubeconfig mean. Raises BadInput."""
    return find_target(connection, os.environ)


@contextlib.asynccontextmanager
async def bulk_client(target: Target) -> AsyncIterator[Client]:
    """A client to read much with; its clock may be asked afterwards. The collector is off: a first
    read makes objects that stay, or go by counting references. Raises Unreachable at the moment of
    `answer_by`, at which all that still goes on is ended, credential plugins included.
    """
    terminal.warn(*connection_warnings(target))
    client = Client(Session(target, os.environ))
    by = answer_by.get()
    gc.disable()
    try:
        async with asyncio.timeout(None if by is None else by - time.monotonic()):
            yield client
    except TimeoutError:
        raise Unreachable("no answer in time", on=target.server) from None
    finally:
        gc.enable()
        gc.freeze()
        await client.close()


def adding_up(step: Callable[[int], None]) -> Callable[[int], None]:
    """Takes how many objects more were read; `step` receives the total."""
    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        step(done)

    return progress


def server_now_ns(client: Client) -> int:
    """The present by the API server's clock, or by ours where no answer said it."""
    server_ns = client.clock.now_ns(steady_ns())
    return time.time_ns() if server_ns is None else server_ns


def skew_warnings(client: Client) -> list[str]:
    """The warning where this machine's clock is wrong; none where it is right."""
    skew_ns = client.clock.skew_ns(steady_ns(), time.time_ns())
    return [clock_warning(skew_ns)] if abs(skew_ns) > SKEW_WARNED_NS else []


def direct_source(target: Target, *, synced: bool) -> dict[str, Any]:
    """Where an answer without a daemon is from. `synced`: whether every list could be read."""
    return {
        "kind": "direct",
        "context": target.context or None,
        "server": target.server,
        "synced": synced,
        "age": 0.0,
    }
