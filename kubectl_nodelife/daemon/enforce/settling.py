"""Finds out what became of the writes of a process that ended in the middle.

A journal of writes that was begun before it was known which cluster it is of was moved to the
cluster's folder, under another name (`daemon.process`). What it left open is settled as well, and
what it says that only a person ends, a pause or a breaker, holds on.
"""

from __future__ import annotations

import asyncio
import glob
from typing import Final

from kubectl_nodelife.daemon.intents import WRITES, Intent, Intents
from kubectl_nodelife.daemon.logs import log
from kubectl_nodelife.daemon.preflight import CLUSTER_MARK
from kubectl_nodelife.engine.calls import Get
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.kube.kinds import KINDS
from kubectl_nodelife.live.writer import Writer

AGAIN_S: Final = 10.0
_CREATES: Final = ("CreatePod", "CreateControllerRevision")
_KINDS: Final = frozenset(kind.name for kind in KINDS)
_DELETES: Final = ("DeletePod", "DeleteControllerRevision", "EvictPod")


def moved_journals(path: str) -> list[Intents]:
    """The moved journals beside the journal of that name. Raises Refused where one is of no use."""
    stem = path.removesuffix(WRITES)
    return [Intents(found) for found in sorted(glob.glob(f"{glob.escape(stem)}.*{WRITES}"))]


async def settle_moved(own: Intents, moved: Intents, writer: Writer) -> int:
    """Settle what a moved journal left open; how many writes stay open all the same.

    Of another cluster's nothing can be known.
    """
    if (cluster := moved.mark(CLUSTER_MARK)) in ("", own.mark(CLUSTER_MARK)):
        await settle_unsettled(moved, writer)
    elif moved.unsettled():
        log.warning("%s is of another cluster (%s)", moved.path, cluster)
    return len(moved.unsettled())


async def settle_all(own: Intents, moved: list[Intents], writer: Writer) -> None:
    """Settle what earlier processes have left open in these journals; `moved` are closed after."""
    await settle_unsettled(own, writer)
    while moved:
        journal = moved.pop()
        try:
            if left := await settle_moved(own, journal, writer):
                log.warning("%s: the outcome of %d writes is unknown", journal.path, left)
        finally:
            await journal.close()


async def settle_later(intents: Intents, writer: Writer) -> None:
    """Settle what could not be read before, and writes of ours whose end is not known, until
    cancelled.
    """
    while True:
        await asyncio.sleep(AGAIN_S)
        if intents.has_unsettled:
            await settle_unsettled(intents, writer)


async def settle_unsettled(intents: Intents, writer: Writer) -> None:
    """Read each object; nothing is sent again. What cannot be read stays open for the next time.

    `has_unsettled` stays true until all of it has been read, and where an end becomes unknown
    meanwhile.
    """
    unknown_before = intents.unknown_ends
    await intents.flush()  # what was noted last is looked at, too
    is_open = bool(intents.error)
    for write in intents.unsettled():
        intent = write.intent
        if intent.kind not in _KINDS:  # the row is damaged: what was written is not known
            is_open = True
            continue
        answer = await writer.call(Get(intent.kind, (intent.namespace, intent.name)))
        if answer.code == NOT_FOUND:
            state = "applied" if _is_a(intent, _DELETES) else "failed"
            intents.note(write.id, state, NOT_FOUND, "there is no such object")
        elif answer.ok and answer.obj is not None:
            version = answer.obj.metadata.resource_version
            moved = bool(intent.version) and version != intent.version
            going = answer.obj.metadata.deletion_timestamp is not None
            done = moved or _is_a(intent, _CREATES) or (going and _is_a(intent, _DELETES))
            state = "applied" if done else "failed"
            intents.note(write.id, state, 0, "settled by reading the object", version)
        else:
            is_open = True
    await intents.flush()
    intents.has_unsettled = is_open or intents.unknown_ends != unknown_before


def _is_a(intent: Intent, names: tuple[str, ...]) -> bool:
    return any(f'"type":"{name}"' in intent.action for name in names)
