"""The calls of which conversations with the API server are made, the request that each one is, and
steps of several calls.

A call is data: which object, what to change, and under which conditions. `request_of_call` writes
it down as method, path and body; nothing here sends anything. Preconditions are those that the API
server checks itself, and become part of the body; what else a write depends on is established by a
read right before it.

Steps are the uid check, a write with its lost answer, and whole values as JSON. A write whose
answer did not come, or came as a 5xx, may have been done all the same: the object is read before
anything else is decided, and what is found done counts as done.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import FieldInfo, fields, replace

from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.kube.codec import encode, go_json
from kubectl_nodelife.kube.kinds import kind_named
from kubectl_nodelife.kube.meta import ApiStruct, KubeObject

STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"

OK: Final = 200
NOT_FOUND: Final = 404
CONFLICT: Final = 409
TOO_MANY_REQUESTS: Final = 429
FORBIDDEN: Final = 403
NO_ANSWER: Final = 0
BAD_REQUEST: Final = 400
SERVER_ERROR: Final = 500

Body = dict[str, Any]
Key = tuple[str, str]
Preconditions = Mapping[str, str]
"""`uid` and `resourceVersion`, which the object must still have; what is not there may be any."""


class Get(msgspec.Struct, frozen=True, tag=True):
    """GET one object. `quorum`: not from the API server's cache (resourceVersion=0 otherwise)."""

    kind: str
    key: Key
    quorum: bool = True


class ListObjects(msgspec.Struct, frozen=True, tag=True):
    """GET the objects of a kind in a namespace that have these labels, as they are now.

    The answer has them in `raw`, under `items`.
    """

    of: str
    namespace: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """Of the answer, such as PodList."""
        return f"{self.of}List"


class Post(msgspec.Struct, frozen=True, tag=True):
    """POST a new object; `key` has its name, so that a lost answer can be looked for."""

    kind: str
    key: Key
    body: Body


class Replace(msgspec.Struct, frozen=True, tag=True):
    """PUT a whole object, made from the raw one as it was read."""

    kind: str
    key: Key
    body: Body
    subresource: str = ""


class Patch(msgspec.Struct, frozen=True, tag=True):
    """PATCH one object; `body` without the preconditions."""

    kind: str
    key: Key
    body: Body
    preconditions: Preconditions = {}
    subresource: str = ""
    content_type: str = STRATEGIC_MERGE


class Delete(msgspec.Struct, frozen=True, tag=True):
    """DELETE one object. `grace_period_seconds` None: the object's own.

    `propagation_policy` "": the kind's own, which orphans the pods of a Job.
    """

    kind: str
    key: Key
    preconditions: Preconditions = {}
    grace_period_seconds: int | None = None
    propagation_policy: str = ""


class Evict(msgspec.Struct, frozen=True, tag=True):
    """POST to the `eviction` subresource of a pod (policy/v1)."""

    key: Key
    preconditions: Preconditions = {}
    grace_period_seconds: int | None = None

    @property
    def kind(self) -> str:
        """Always Pod."""
        return "Pod"


class WaitUntil(msgspec.Struct, frozen=True, tag=True):
    """Go on not before `at_ns` and, where others may try as well, at a random instant up to
    `latest_ns` (0: at `at_ns`). Instants in ns since the epoch.
    """

    at_ns: int
    latest_ns: int = 0


Write = Post | Replace | Patch | Delete | Evict
Read = Get | ListObjects
Call = Read | Write | WaitUntil


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a call. `code`: HTTP status, 0 where no answer came; `now_ns`: when.

    `obj` is the object as a slice, `raw` the same with all that slices leave out (None: only the
    slice is known). `causes` are the reasons in `details.causes` of an error.
    """

    code: int
    obj: KubeObject | None = None
    raw: Body | None = None
    reason: str = ""
    message: str = ""
    causes: tuple[str, ...] = ()
    now_ns: int = 0

    @property
    def ok(self) -> bool:
        """True if the server did as asked."""
        return 200 <= self.code < 300

    @property
    def is_ambiguous(self) -> bool:
        """True if the write may have been done all the same."""
        return self.code == NO_ANSWER or self.code >= 500


_MADE_OF_NAMES: Final = frozenset({"NotFound", "Conflict", "AlreadyExists"})
"""Reasons of errors that the API server words itself; an admission webhook may use them too."""


class Result(msgspec.Struct, frozen=True):
    """The end of a conversation. `code`: that of the call which decided it.

    `changed`: a write was accepted (False: nothing was left to do). `fresh`: the object as last
    read or answered, for the decision on what comes next. `moot`: it was not sent, for nothing asks
    for it any more.
    """

    code: int
    message: str = ""
    reason: str = ""
    changed: bool = False
    fresh: KubeObject | None = None
    moot: bool = False

    @property
    def ok(self) -> bool:
        """True if the action is done."""
        return 200 <= self.code < 300

    @property
    def recorded(self) -> str:
        """The part of `message` that may be kept on disk. A text that refuses a write quotes the
        values that it refuses, and an admission webhook may do so with any code, a 5xx as well: the
        reason is kept, but where the words are ours (they have none), or of names alone.
        """
        of_names = self.reason in _MADE_OF_NAMES and "denied the request" not in self.message
        if self.code < BAD_REQUEST or of_names or not self.message:
            return self.message
        if self.reason:
            return self.reason
        return self.message if self.code < SERVER_ERROR else "a server error"


class Request(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One request to the API server; `path` without the server."""

    method: str
    path: str
    content_type: str
    body: Body

    def content(self) -> bytes:
        """The body as it is sent."""
        return go_json(self.body)


def request_of_call(call: Read | Write) -> Request:
    """The call as a request."""
    if isinstance(call, ListObjects):
        path = kind_named(call.of).path(call.namespace)
        selector = ",".join(f"{key}={value}" for key, value in call.labels)
        path += f"?labelSelector={quote(selector, safe='')}" if selector else ""
        return Request("GET", path, JSON, {})
    if isinstance(call, Get):
        path = object_path(call.kind, call.key)
        return Request("GET", path if call.quorum else f"{path}?resourceVersion=0", JSON, {})
    if isinstance(call, Post):
        return Request("POST", kind_named(call.kind).path(call.key[0]), JSON, call.body)
    if isinstance(call, Evict):
        return Request("POST", f"{object_path('Pod', call.key)}/eviction", JSON, _eviction(call))
    path = object_path(call.kind, call.key)
    if isinstance(call, Delete):
        return Request("DELETE", path, JSON, _delete_options(call))
    path = f"{path}/{call.subresource}" if call.subresource else path
    if isinstance(call, Replace):
        return Request("PUT", path, JSON, call.body)
    body = call.body
    if call.preconditions:
        body = {**body, "metadata": {**body.get("metadata", {}), **call.preconditions}}
    return Request("PATCH", path, call.content_type, body)


def as_dry_run(request: Request) -> Request:
    """The same write as a server-side dry run: it is checked and admitted, and nothing is stored.

    Of a DELETE with a body the API server reads the options there and not in the query; those of
    an Eviction must agree with the query.
    """
    body = request.body
    if request.method == "DELETE":
        return replace(request, body={**body, "dryRun": ["All"]})
    if body.get("kind") == "Eviction":
        body = {**body, "deleteOptions": {**body["deleteOptions"], "dryRun": ["All"]}}
    mark = "&" if "?" in request.path else "?"
    return replace(request, path=f"{request.path}{mark}dryRun=All", body=body)


def object_path(kind_name: str, key: Key) -> str:
    """Such as `/api/v1/nodes/N`."""
    return f"{kind_named(kind_name).path(key[0])}/{quote(key[1], safe='')}"


def _delete_options(call: Delete | Evict) -> Body:
    options: Body = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if call.grace_period_seconds is not None:
        options["gracePeriodSeconds"] = call.grace_period_seconds
    if isinstance(call, Delete) and call.propagation_policy:
        options["propagationPolicy"] = call.propagation_policy
    if call.preconditions:
        options["preconditions"] = dict(call.preconditions)
    return options


def _eviction(call: Evict) -> Body:
    options = _delete_options(call)
    del options["apiVersion"], options["kind"]
    namespace, name = call.key
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": options,
    }


Conversation = Generator[Call, Answer, Result]
"""Yields calls and is sent the answer to each; a WaitUntil is answered with the time."""

UNCHANGED = Result(OK)


def failed(answer: Answer, fresh: KubeObject | None = None) -> Result:
    """The end that an answer means which is no success."""
    return Result(answer.code, answer.message, answer.reason, fresh=fresh)


def is_another(action: Action, obj: KubeObject) -> bool:
    """True if the object is not the one that was decided upon."""
    return bool(action.uid and obj.uid and action.uid != obj.uid)


def another(action: Action) -> Result:
    """The end where another object has the name now: the one that was meant is gone."""
    kind, key = action.target
    where = "/".join(part for part in key if part)
    return Result(NOT_FOUND, f"{kind} {where} is another object now", "NotFound")


def same(action: Action, seen: KubeObject | None) -> Preconditions:
    """The object is the one decided upon."""
    uid = action.uid or (seen.uid if seen is not None else "")
    return {"uid": uid} if uid else {}


def as_seen(action: Action, seen: KubeObject | None) -> Preconditions:
    """The object is the one decided upon, and has not changed since."""
    return {**same(action, seen), **unchanged(seen)}


def unchanged(seen: KubeObject | None) -> Preconditions:
    """The object has not changed since it was seen."""
    version = seen.metadata.resource_version if seen is not None else ""
    return {"resourceVersion": version} if version else {}


def read(action: Action, *, quorum: bool) -> Generator[Call, Answer, Answer | Result]:
    """The action's object as the API server has it; a Result where it is gone or unreadable."""
    kind, key = action.target
    answer = yield Get(kind, key, quorum)
    if not answer.ok or answer.obj is None:
        return failed(answer)
    return another(action) if is_another(action, answer.obj) else answer


def write(action: Action, call: Write) -> Conversation:
    """Make the call once. After an answer that proves nothing the object is read."""
    answer = yield call
    if answer.ok:
        return Result(answer.code, changed=True, fresh=answer.obj)
    if not answer.is_ambiguous:
        return failed(answer)
    current = yield Get(*action.target)
    replaced = current.obj is not None and is_another(action, current.obj)
    if current.code == NOT_FOUND or replaced:
        gone = action.effect(current.obj, current.now_ns) is None
        end = another(action) if replaced else failed(current)
        return Result(OK, changed=True) if gone else end
    if current.obj is None:
        return failed(answer)
    done = is_done(action, current.obj, current.now_ns)
    return Result(OK, changed=True, fresh=current.obj) if done else failed(answer, current.obj)


def patch_status(action: Action, seen: KubeObject | None, status: Body) -> Conversation:
    """One PATCH of these fields of the status, under the version seen."""
    return write(action, Patch(*action.target, {"status": status}, as_seen(action, seen), "status"))


def is_done(action: Action, obj: KubeObject, now_ns: int) -> bool:
    """True if the object is as the action would leave it."""
    return action.effect(obj, now_ns) is obj or action.shown_by(obj)


def conflict(message: str, fresh: KubeObject | None = None) -> Result:
    """The end where the object is no longer what the decision was taken on."""
    return Result(CONFLICT, message, "Conflict", fresh=fresh)


def whole(value: ApiStruct) -> Body:
    """A part of an object with each of its fields, null and empty ones too.

    A strategic merge keeps what a patch does not name; this replaces what was there.
    """
    encoded = encode(value)
    full: Body = {}
    for field in _fields(type(value)):
        empty: Any = None if field.default is None else getattr(value, field.name)
        full[field.encode_name] = encoded.get(field.encode_name, empty)
    return full


@cache
def _fields(type_: type[ApiStruct]) -> tuple[FieldInfo, ...]:
    """msgspec works them out anew each time, from the annotations."""
    return fields(type_)
