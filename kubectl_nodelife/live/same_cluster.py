"""Asks whether the cluster behind an address is still the one that it was.

A cluster is known by the UID of its namespace kube-system. An address may lead elsewhere while a
daemon runs: a load balancer or a DNS name is moved, a local cluster is made anew. After a
connection is opened anew the cluster is confirmed before what was read is passed on, so that
nothing of another cluster is ever taken for the first one's. A server that does not let us read the
UID is believed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from kubectl_nodelife.errors import Unreachable
from kubectl_nodelife.kube.times import SECOND_NS
from kubectl_nodelife.live.client import ApiError, Client
from kubectl_nodelife.live.clock import steady_ns
from kubectl_nodelife.live.news import OtherCluster

_NAMESPACE = "/api/v1/namespaces/kube-system"
_ANSWER_S = 15.0
_PAUSE_S = 0.5
"""A server that ends every watch at once is asked no more often, by all kinds together."""

SERVER = "server"


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Namespace(msgspec.Struct):
    metadata: _Metadata


async def cluster_uid(client: Client) -> str:
    """The UID of kube-system, "" where the server does not say. Raises Unreachable, Failed."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            body = await client.read(_NAMESPACE, retry=False)
        return msgspec.json.decode(body, type=_Namespace).metadata.uid
    except (ApiError, msgspec.MsgspecError):
        return ""
    except TimeoutError:
        raise Unreachable("it does not say which cluster it is", on=client.server) from None


class SameCluster:
    """Puts an `OtherCluster` on the queue when the cluster changes, and when it is back."""

    def __init__(self, client: Client, queue: asyncio.Queue[Any]) -> None:
        self._client = client
        self._queue = queue
        self.uid = ""  # of the cluster that was met first; "" until it is known
        self._because = ""
        self._lock = asyncio.Lock()
        self._tried_ns = self._confirmed_ns = 0

    async def confirm(self, opened_ns: int) -> None:
        """Ask unless that was done since a connection was opened, at that instant of the steady
        clock; report a change before this returns. Raises Unreachable, Failed.
        """
        async with self._lock:
            if self._confirmed_ns >= opened_ns:
                return
            if self._tried_ns:
                await asyncio.sleep((self._tried_ns - steady_ns()) / SECOND_NS + _PAUSE_S)
            asked_ns = self._tried_ns = steady_ns()
            uid = await cluster_uid(self._client)
            if uid:
                await self._compare(uid)
            self._confirmed_ns = asked_ns

    async def _compare(self, uid: str) -> None:
        self.uid = self.uid or uid
        because = "" if uid == self.uid else self._words(uid)
        if because != self._because:
            await self._queue.put(OtherCluster(SERVER, because))
            self._because = because

    def _words(self, uid: str) -> str:
        return (
            f"{self._client.server} is another cluster now (kube-system has uid {uid}, not "
            f"{self.uid}; 'kubectl nodelife daemon restart' follows it)"
        )
