"""Plays the cases of `call_cases` against an API server, and compares what is left.

What the server then has must be what the action's `effect` says; fields that no slice holds must
all survive.
"""

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from kubectl_nodelife.engine import actions as act
from kubectl_nodelife.engine.actions import Action
from kubectl_nodelife.engine.calls import Answer, Request, Result, WaitUntil, converse
from kubectl_nodelife.engine.calls.call import request_of_call
from kubectl_nodelife.kube.codec import decode
from kubectl_nodelife.kube.field_managers import NOBODY
from kubectl_nodelife.kube.meta import KubeObject, Time
from kubectl_nodelife.kube.pod import PodCondition
from kubectl_nodelife.kube.wellknown import EVICTION_BY_EVICTION_API
from kubectl_nodelife.kube.workload import Job, JobSpec
from tests.call_cases import NOW, PATHS, Case

DEPRECATED_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"

Ask = tuple[str, str, bytes | None, str]
Play = Generator[Ask, tuple[int, Any], None]
"""Yields (method, path, body, content type), is sent (code, document)."""


def play_case(case: Case) -> Play:
    """Make the objects, take the action, compare, and clean up."""
    found: dict[str, KubeObject] = {}
    for document in case.objects:
        found[document["kind"]] = yield from _create(document)
    action = case.action(found)
    kind, key = action.target
    before = found.get(kind)
    if kind == "Node" and isinstance(action, act.RecordEvent):
        before = None
    result = yield from converse_with(action, before)
    assert result.ok and result.changed, f"{case.title}: {result}"
    code, document = yield ("GET", f"{PATHS[kind]}/{key[1]}", None, "")
    expected = action.effect(before, NOW)
    if expected is None and not isinstance(action, act.RecordEvent):
        assert code == 404, f"{case.title}: {document}"
    elif not isinstance(action, act.RecordEvent):
        assert code == 200, document
        left = decode(kind, document)
        assert _comparable(left) == _comparable(expected), case.title
        for word in case.survives:
            assert f"'{word}'" in str(document), f"{word} is lost by {case.title}"
    again = yield from converse_with(action, expected if expected is not None else before)
    assert again.ok or again.code in (404, 409), f"{case.title} twice: {again}"
    for path in (*PATHS.values(), PATHS["Pod"]):
        yield ("DELETE", path, _AT_ONCE, "application/json")


def converse_with(action: Action, seen: KubeObject | None) -> Generator[Ask, Any, Result]:
    """The action's conversation with whoever answers."""
    conversation = converse(action, seen, NOW)
    try:
        call = next(conversation)
        while True:
            if isinstance(call, WaitUntil):
                call = conversation.send(Answer(200, now_ns=call.at_ns))
                continue
            request = request_of_call(call)
            code, document = yield from _ask(request)
            call = conversation.send(answer_of(call.kind, code, document))
    except StopIteration as end:
        result: Result = end.value
        return result


def answer_of(kind: str, code: int, document: Any) -> Answer:
    """An answer as JSON for a conversation."""
    if code >= 300:
        return Answer(code, None, None, document.get("reason", ""), document.get("message", ""))
    whole = isinstance(document, dict) and document.get("kind") == kind
    return Answer(code, decode(kind, document) if whole else None, document, now_ns=NOW)


def _ask(request: Request) -> Generator[Ask, Any, tuple[int, Any]]:
    content = None if request.method == "GET" else request.content()
    return (yield (request.method, request.path, content, request.content_type))


def _create(document: dict[str, Any]) -> Generator[Ask, Any, KubeObject]:
    kind, status = document["kind"], document.get("status")
    request = Request("POST", PATHS[kind], "application/json", document)
    code, made = yield from _ask(request)
    assert code == 201, made
    if status:
        path = f"{PATHS[kind]}/{made['metadata']['name']}"
        if kind == "Node":  # the API server adds a taint of its own to a new node
            taints = {"spec": {"taints": document["spec"]["taints"]}}
            patch = Request("PATCH", path, "application/merge-patch+json", taints)
            yield from _ask(patch)
        body = {"status": status}
        patch = Request("PATCH", f"{path}/status", "application/merge-patch+json", body)
        code, made = yield from _ask(patch)
        assert code == 200, made
    return decode(kind, made)


_AT_ONCE = b'{"gracePeriodSeconds": 0, "propagationPolicy": "Background"}'  # Jobs would wait
_OF_JOB = ("controller-uid", "job-name")


def _comparable(obj: KubeObject | None) -> KubeObject | None:
    """The object without what no two servers have alike."""
    if obj is None:
        return None
    annotations = dict(obj.metadata.annotations or {})
    annotations.pop(DEPRECATED_TEMPLATE_GENERATION, None)  # counted by the API server
    meta = replace(
        obj.metadata,
        labels=obj.metadata.labels or None,
        annotations=annotations or None,
        resource_version="",
        generation=0,
        uid="",
        creation_timestamp=None,
        deletion_timestamp=Time(0) if obj.metadata.deletion_timestamp else None,
    )
    if hasattr(meta, "managed_fields"):
        meta = replace(meta, managed_fields=NOBODY)
    obj = replace(obj, metadata=meta)
    if isinstance(obj, Job):  # the API server names the job on it, and fills in the spec
        labels = {k: v for k, v in (meta.labels or {}).items() if not k.endswith(_OF_JOB)}
        obj = replace(obj, metadata=replace(meta, labels=labels or None), spec=JobSpec())
    if hasattr(obj, "status") and hasattr(obj.status, "phase"):
        conditions = tuple(map(_comparable_condition, obj.status.conditions))
        status = type(obj.status)(
            phase=obj.status.phase, reason=obj.status.reason, conditions=conditions
        )
        obj = replace(obj, spec=type(obj.spec)(), status=status)  # admission fills in the spec
    return obj


def _comparable_condition(condition: PodCondition) -> PodCondition:
    if condition.reason == EVICTION_BY_EVICTION_API:  # the server's own, and of its own time
        condition = replace(condition, last_transition_time=None)
    return replace(condition, observed_generation=0)
