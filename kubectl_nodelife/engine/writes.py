"""An action as API calls: read, change, patch, and again on a conflict. No I/O, a conversation.

`write` yields the call to make and is sent the answer; whoever drives it (an executor, a test)
makes the call. Follows `AddOrUpdateTaintOnNode` and `RemoveTaintOffNode` of
pkg/controller/controller_utils.go: the first read may come from the API server's cache, later ones
must not; nothing to change, no patch.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.meta import KubeObject

_TRIES: Final = 5
CONFLICT: Final = 409
NOT_FOUND: Final = 404
OK: Final = 200


class Get(msgspec.Struct, frozen=True):
    """GET one object; `fresh`: not from the API server's cache (resourceVersion "0" otherwise)."""

    kind: str
    key: tuple[str, str]
    fresh: bool


class Patch(msgspec.Struct, frozen=True):
    """PATCH from `before` to `after`, with before's resourceVersion as the precondition."""

    before: KubeObject
    after: KubeObject | None


class Answer(msgspec.Struct, frozen=True):
    """The API server's answer: an HTTP status code, and the object where it is 200."""

    code: int
    obj: KubeObject | None = None


def write(action: Action, now_ns: int) -> Generator[Get | Patch, Answer, int]:
    """The conversation of one action; its return value is the last status code.

    An object of another uid than the action's is treated as not found: it is not the one that was
    decided upon.
    """
    kind, key = action.target
    code = CONFLICT
    for attempt in range(_TRIES):
        answer = yield Get(kind, key, fresh=attempt > 0)
        if answer.code != OK or answer.obj is None:
            return answer.code
        if action.uid and answer.obj.uid and action.uid != answer.obj.uid:
            return NOT_FOUND
        after = action.effect(answer.obj, now_ns)
        if after is answer.obj:
            return OK
        answer = yield Patch(answer.obj, after)
        code = answer.code
        if code != CONFLICT:
            return code
    return code
