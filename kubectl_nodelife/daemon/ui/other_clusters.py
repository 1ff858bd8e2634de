"""Tells the live page what happens in the other clusters of its user: those that other daemons of
that user watch on this machine.

They are found in the private folder of sockets, and each is asked on its own. No session, token or
credential goes from one to another: the page learns a sentence, and where the other page is, which
asks for a session of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubectl_nodelife.daemon import client
from kubectl_nodelife.daemon.instance import Instance, instances
from kubectl_nodelife.daemon.paths import check_private
from kubectl_nodelife.daemon.server import Query
from kubectl_nodelife.errors import NodelifeError

MOST_ASKED: Final = 32
ASK_SECONDS: Final = 3.0
UNKNOWN: Final = "unknown"
"""The level of a cluster whose daemon does not say."""

_WORST_FIRST: Final = ("gone", "worse", "blind", UNKNOWN, "ours", "peace")
_MOST_TEXT: Final = 500
_PAGE: Final = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}/")


class OtherClusters:
    """Asks the other daemons. `cluster_uid`: of our own cluster, "" while it is not known."""

    def __init__(self, own: Instance, cluster_uid: Callable[[], str]) -> None:
        self._own, self._cluster_uid = own, cluster_uid

    async def answer(self, query: Query) -> dict[str, Any]:
        """The other clusters, each once, trouble first: context, server, level, sentence, url."""
        check_private(self._own.runtime)
        found = await asyncio.to_thread(instances, self._own.runtime)
        others = [one for one in found if one.identity != self._own.identity and one.is_taken()]
        asked = (asyncio.to_thread(_asked, one) for one in others[:MOST_ASKED])
        told = await asyncio.gather(*asked)
        return {"items": merged(told, self._cluster_uid())}


def _asked(other: Instance) -> Mapping[str, Any]:
    try:
        return client.ask(other.socket, "situation", ASK_SECONDS)
    except NodelifeError as error:
        sentence = f"Its daemon does not say what happens: {error.what}."
        return {**other.read_card(), "level": UNKNOWN, "sentence": sentence}


def merged(told: list[Mapping[str, Any]], own_uid: str) -> list[dict[str, str]]:
    """Answers of daemons as clusters, the worst first. A cluster that several watch, under other
    names, is told once, by the first that knows; one that is our own, not at all."""
    rank = {level: place for place, level in enumerate(_WORST_FIRST)}
    found: dict[str, dict[str, str]] = {}
    for each in sorted(told, key=lambda one: one.get("level") == UNKNOWN):
        uid, server = str(each.get("clusterUid") or ""), str(each.get("server") or "")
        if uid and uid == own_uid:
            continue
        context = _text(each.get("context"))
        known = found.get(uid or server or context)
        if known is not None:
            known["contexts"] += f", {context}"
            known["url"] = known["url"] or _page(each.get("url"))
            continue
        level = str(each.get("level"))
        found[uid or server or context] = {
            "contexts": context,
            "context": context,
            "server": server[:_MOST_TEXT],
            "level": level if level in rank else UNKNOWN,
            "sentence": _text(each.get("sentence")),
            "url": _page(each.get("url")),
        }
    return sorted(found.values(), key=lambda one: (rank[one["level"]], one["contexts"]))


def _text(value: object) -> str:
    return str(value or "")[:_MOST_TEXT]


def _page(value: object) -> str:
    """The address of a page on this machine; "" for any other."""
    return str(value) if _PAGE.fullmatch(str(value or "")) else ""
