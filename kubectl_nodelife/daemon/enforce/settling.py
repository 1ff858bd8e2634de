"""Finds out what became of the writes of a process that ended in the middle."""

from __future__ import annotations

from typing import Final

from kubectl_nodelife.daemon.intents import Intent, Intents
from kubectl_nodelife.engine.calls import Get
from kubectl_nodelife.engine.calls.call import NOT_FOUND
from kubectl_nodelife.live.writer import Writer

_CREATES: Final = ("CreatePod", "CreateControllerRevision")
_DELETES: Final = ("DeletePod", "DeleteControllerRevision", "EvictPod")


async def settle_unsettled(intents: Intents, writer: Writer) -> None:
    """Read each object; nothing is sent again. What cannot be read stays open for the next time."""
    for write in intents.unsettled():
        intent = write.intent
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
    await intents.flush()


def _is_a(intent: Intent, names: tuple[str, ...]) -> bool:
    return any(f'"type":"{name}"' in intent.action for name in names)
