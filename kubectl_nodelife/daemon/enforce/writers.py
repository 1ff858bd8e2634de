"""Makes what each enforcing controller writes with: a client, its token bucket, its Events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kubectl_nodelife.daemon.enforce.limits import client_rate
from kubectl_nodelife.engine.settings import Settings
from kubectl_nodelife.engine.token_bucket import TokenBucket
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.clock import ServerClock
from kubectl_nodelife.live.events import EventSender
from kubectl_nodelife.live.executor import ControllerWriter
from kubectl_nodelife.live.writer import Writer, WritingSession

_EVENT_SHARE: Final = 8
_GIVES_WAY_S: Final = 2.0
_LOOK_S: Final = 0.02


def controller_writers(
    controllers: Iterable[str],
    settings: Settings,
    session: WritingSession,
    now_ns: Callable[[], int],
    clock: ServerClock,
    closed_because: Callable[[], str],
    is_sending: Callable[[], bool],
) -> dict[str, ControllerWriter]:
    """By controller. Events get an eighth of its tokens, and are sent while the gate is open.

    While writes are on their way (`is_sending`) an Event waits up to two seconds: upstream sends
    both at once, here they share one thread, and a mark or taint matters more.
    """
    qps, burst = client_rate(settings)

    def writing(name: str) -> ControllerWriter:
        writer = Writer(session, name, now_ns, clock)
        tokens = TokenBucket(qps / _EVENT_SHARE, max(1, burst // _EVENT_SHARE))

        async def admitted() -> bool:
            at_ns = tokens.reserve(now_ns())
            await asyncio.sleep(max(0.0, (at_ns - now_ns()) / SECOND_NS))
            until_ns = now_ns() + int(_GIVES_WAY_S * SECOND_NS)
            while is_sending() and now_ns() < until_ns:
                await asyncio.sleep(_LOOK_S)
            return not closed_because()

        events = EventSender(writer, now_ns, admitted)
        return ControllerWriter(writer, events, TokenBucket(qps, burst))

    return {name: writing(name) for name in controllers}
