"""Looks for notices every second, and hands them to the ways out that were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from kubectl_nodelife.daemon.notify.delivery import CommandDelivery, Outbox, WebhookDelivery
from kubectl_nodelife.daemon.notify.notices import NotedCondition, NoticeBoard
from kubectl_nodelife.daemon.notify.options import NotifyOptions
from kubectl_nodelife.kube.times import SECOND_NS

TOKEN: Final = "NODELIFE_WEBHOOK_TOKEN"
_LOOK_SECONDS: Final = 1.0


class ConditionSource(Protocol):
    """Says what holds; None: that cannot be judged now."""

    def conditions(self) -> dict[str, NotedCondition] | None:
        """By key."""

    def now_ns(self) -> int:
        """The instant, by the API server's clock."""


class Notifier:
    """See the module."""

    def __init__(
        self,
        source: ConditionSource,
        options: NotifyOptions,
        server: str,
        environ: Mapping[str, str],
    ) -> None:
        self._source = source
        self._wanted = options.wanted
        self._board = NoticeBoard(server)
        self._outboxes: list[Outbox] = []
        if options.command:
            self._outboxes.append(Outbox(CommandDelivery(options.argv())))
        if options.webhook:
            webhook = WebhookDelivery(options.webhook, environ.get(TOKEN, ""))
            self._outboxes.append(Outbox(webhook))

    async def run(self) -> None:
        """Notify until cancelled."""
        async with asyncio.TaskGroup() as group:
            for outbox in self._outboxes:
                group.create_task(outbox.run())
            group.create_task(self._look())

    async def _look(self) -> None:
        while True:
            now = self._source.conditions()
            if now is not None:
                wanted = {key: it for key, it in now.items() if it.event in self._wanted}
                notices = self._board.take(wanted, self._source.now_ns() // SECOND_NS * SECOND_NS)
                for outbox in self._outboxes:
                    outbox.put(notices)
            await asyncio.sleep(_LOOK_SECONDS)
